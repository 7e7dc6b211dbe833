#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The CUDA texts of ops/gpu on this machine's card, by the images of the build: that they compute what test/ops/test_gpu_texts.c wants, and
# how fast products are beside cuBLAS. Target, of cuBLAS at each size: 0.8 in floats, 0.5 in TF32 and bf16 by mma, 0.75 by wgmma. Skipped
# where there is no card, or no nvcc made images; without cuBLAS it ends with 77, too, after our own figures.
# usage: [MAKE=make] [B=build] [CMOCKA=plain] test/bench/gpu_texts.sh
set -euo pipefail
make=${MAKE:-make} B=${B:-build} images=${IMAGES:-build/images}/ops/gpu
[ -n "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null)" ] || { echo "no NVIDIA card here"; exit 77; }
"$make" -s ${CMOCKA:+"CMOCKA=$CMOCKA"} "B=$B" "$B/test/bench/card_gpu_texts" "$B/test/bench/bench_gpu_texts"
[ -s "$images/products_sm80.fatbin" ] || { echo "no nvcc made images in $images"; exit 77; }
"$B/test/bench/card_gpu_texts" "$images"
"$B/test/bench/bench_gpu_texts" "$images" | awk '
    { print; fflush() }
    /^(float|tf32|bf16) +[0-9]/ && $6 > 0 {
        way = $1 == "float" ? "float" : $3 ~ /wgmma/ ? "wgmma" : "mma"
        if (!(way in least) || $7 < least[way]) least[way] = $7
    }
    END {
        wanted["float"] = 0.8; wanted["mma"] = 0.5; wanted["wgmma"] = 0.75
        for (way in least) {
            seen = 1
            printf "%-5s least of cuBLAS %.2f   >= %.2f %s\n", way, least[way], wanted[way], (least[way] >= wanted[way] ? "yes" : "NO")
        }
        if (!seen) { print "no cuBLAS here that it could be compared with"; exit 77 }
    }'
