#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `make pytorch` runs: compare.py, head.py and compare_nets.py under each Python here that has torch (BENCH_PYTHON, then python3), on
# the data that is here. Without PyTorch or without any of the data it says so and exits with 77.
source "$(dirname "$0")/../bench/common.sh"
build=${B:-$root/build}
mnist=$(find_mnist) || echo "no MNIST here: set ECHELON_DATA, or fetch it with tools/get-data mnist"
cifar=$(find_cifar) || echo "no CIFAR-10 here: set ECHELON_DATA, or fetch it with tools/get-data cifar10"
[ -n "$mnist$cifar" ] || exit 77
tried=0 failed=0
for python in ${BENCH_PYTHON:+"$BENCH_PYTHON"} python3; do
    "$python" -c 'import torch, numpy' 2>/dev/null || continue
    tried=$((tried + 1))
    [ -z "$mnist" ] || "$python" -W ignore "$root/test/pytorch/compare.py" "$echelon" "$mnist" || failed=$((failed + 1))
    for run in "1 bsp" "3 bsp" "2 gssp"; do   # processes, and their policy
        read -r nodes sync <<<"$run"
        [ -z "$mnist" ] || "$python" -W ignore "$root/test/pytorch/head.py" "$build/test/pytorch/session.so" "$mnist" "$nodes" "$sync" ||
            failed=$((failed + 1))
    done
    [ -z "$cifar" ] || "$python" -W ignore "$root/test/pytorch/compare_nets.py" "$build" "$cifar" "${NET_STEPS:-30}" ||
        failed=$((failed + 1))
done
[ $tried != 0 ] || { echo "no PyTorch here: name a Python that has torch and numpy in BENCH_PYTHON, or install python3-torch"; exit 77; }
[ $failed = 0 ]
