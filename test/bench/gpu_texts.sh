#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA texts of ops/gpu on this machine's card: that they compute what test/ops/test_gpu_texts.c wants, and how fast products are.
# Images are compiled for the card, or, where there is no nvcc, those that are in build/gpu_texts are taken (gpu_texts.sh images sm_90a).
# usage: [MAKE=make] [B=build] [NVCC=nvcc] [CMOCKA=plain] test/bench/gpu_texts.sh [images ARCHITECTURE]
set -eu
make=${MAKE:-make} B=${B:-build} images=${B:-build}/gpu_texts
nvcc=${NVCC:-$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)}
mkdir -p "$images"

compile() {   # ARCHITECTURE
    local text
    for text in products_f32 products_sm80 $([ "$1" != sm_90a ] || echo products_sm90); do
        "$nvcc" -arch="$1" -cubin -o "$images/$text.cubin" "ops/gpu/$text.cu"
    done
}
if [ "${1:-}" = images ]; then
    compile "${2:?of which architecture: sm_80, sm_86, sm_90a, ...}"
    exit
fi
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .) || true
[ -n "$capability" ] || { echo "no NVIDIA card here"; exit 77; }
[ -n "$nvcc" ] || [ -e "$images/products_sm80.cubin" ] || { echo "no nvcc here, and no images in $images"; exit 77; }
[ -z "$nvcc" ] || compile "sm_$capability$([ "$capability" != 90 ] || echo a)"
"$make" -s ${CMOCKA:+"CMOCKA=$CMOCKA"} "B=$B" "$B/test/bench/card_gpu_texts" "$B/test/bench/bench_gpu_texts"
"$B/test/bench/card_gpu_texts" "$images"
"$B/test/bench/bench_gpu_texts" "$images"
