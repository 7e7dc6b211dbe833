#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `make pytorch` runs: compare.py under each Python here that has torch (BENCH_PYTHON, then python3). Without PyTorch or
# without MNIST it says so and exits with 77.
source "$(dirname "$0")/../bench/common.sh"
data=$(find_mnist) || { echo "no MNIST here: set ECHELON_DATA, or fetch it with tools/get-data mnist"; exit 77; }
tried=0 failed=0
for python in ${BENCH_PYTHON:+"$BENCH_PYTHON"} python3; do
    "$python" -c 'import torch, numpy' 2>/dev/null || continue
    tried=$((tried + 1))
    "$python" -W ignore "$root/test/pytorch/compare.py" "$echelon" "$data" "$@" || failed=$((failed + 1))
done
[ $tried != 0 ] || { echo "no PyTorch here: name a Python that has torch and numpy in BENCH_PYTHON, or install python3-torch"; exit 77; }
[ $failed = 0 ]
