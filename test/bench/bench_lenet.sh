#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# LeNet-5 training, one thread, batch 64: ours and PyTorch's in turn, so that both see the same machine.
#   B             build folder (default build)
#   BENCH_PYTHON  a Python with torch; the system's is tried too, and the faster of the two is the one to beat
#   PAIRS         how many pairs of runs (default 5)
# Prints medians and their ratio; exits with 77 when no PyTorch is here, after our own figures.
set -u
here=$(dirname "$0")
ours=${B:-build}/test/bench/bench_lenet
pairs=${PAIRS:-5}
batch=64
unset OPENBLAS_CORETYPE
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

"$ours" || exit 1

best_python='' best_variant='' best_speed=0
for python in ${BENCH_PYTHON:+"$BENCH_PYTHON"} /usr/bin/python3; do
    version=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null) || continue
    read -r variant speed < <("$python" -W ignore "$here/bench_lenet_torch.py" $batch 2>/dev/null) || continue
    echo "PyTorch $version: fastest eager variant '$variant', $speed images/s"
    if [ "$speed" -gt "$best_speed" ]; then best_python=$python best_variant=$variant best_speed=$speed; fi
done
if [ -z "$best_python" ]; then
    echo "no PyTorch here: name a Python that has it in BENCH_PYTHON, or install python3-torch"
    exit 77
fi

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
a=() t=() r=()
for ((i = 0; i < pairs; i++)); do
    x=$("$ours" train $batch) || exit 1
    y=$("$best_python" -W ignore "$here/bench_lenet_torch.py" $batch "$best_variant") || exit 1
    a+=("$x") t+=("$y") r+=("$(awk "BEGIN { printf \"%.2f\", $x / $y }")")
    echo "  pair $((i + 1)): Echelon $x, PyTorch $y images/s, ratio ${r[i]}"
done
echo "median of $pairs: Echelon $(printf '%s\n' "${a[@]}" | median), PyTorch $(printf '%s\n' "${t[@]}" | median) images/s," \
    "ratio $(printf '%s\n' "${r[@]}" | median) (at least 3 wanted)"
