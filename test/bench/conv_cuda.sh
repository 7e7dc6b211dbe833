#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Convolutions on the first CUDA card, forward and both ways back, beside cuDNN's in fp32, TF32 and bf16; the geometric mean of each mode.
# Target: 0.6 of cuDNN's rate.
#   B             build folder (default build)
#   BENCH_PYTHON  a Python (default python3) whose cuDNN is taken, if it has one: PyTorch's
# Exits with 77 where there is no card, or no cuDNN after our own figures.
# usage: test/bench/conv_cuda.sh [MODEL BATCH]
set -eu
folder=$("${BENCH_PYTHON:-python3}" -c 'import nvidia.cudnn; print(list(nvidia.cudnn.__path__)[0])' 2>/dev/null) || folder=
[ -z "$folder" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/lib
exec "${B:-build}/test/bench/bench_conv_cuda" "$@"
