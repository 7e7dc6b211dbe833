#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA texts of ops/gpu on this machine's card, by the images of the build: that they compute what test/ops/test_gpu_texts.c wants, and
# how fast products are beside cuBLAS. Skipped where there is no card, or no nvcc made images.
# usage: [MAKE=make] [B=build] [CMOCKA=plain] test/bench/gpu_texts.sh
set -eu
make=${MAKE:-make} B=${B:-build} images=${IMAGES:-build/images}/ops/gpu
[ -n "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null)" ] || { echo "no NVIDIA card here"; exit 77; }
"$make" -s ${CMOCKA:+"CMOCKA=$CMOCKA"} "B=$B" "$B/test/bench/card_gpu_texts" "$B/test/bench/bench_gpu_texts"
[ -s "$images/products_sm80.fatbin" ] || { echo "no nvcc made images in $images"; exit 77; }
"$B/test/bench/card_gpu_texts" "$images"
"$B/test/bench/bench_gpu_texts" "$images"
