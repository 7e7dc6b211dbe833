#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training step of each model on one thread: ours and PyTorch's in turn, so that both see the same machine.
#   B             build folder (default build)
#   BENCH_PYTHON  a Python with torch; the system's is tried too, and the faster of the two is the one to beat
#   PAIRS         how many pairs of runs (default 5)
#   MODELS        which, each with its batch, in bf16 where that is said (default "lenet5:64 vgg19:32 resnet18:32
#                 alexnet:16 vgg19:32:bf16")
# Prints the parts of a step, medians and their ratio, and peaks of memory; exits with 77 when no PyTorch is here, after our own figures.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${B:-build}" && pwd)
ours=$build/test/bench/bench_step
pairs=${PAIRS:-5}
unset OPENBLAS_CORETYPE
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# against_pytorch MODEL BATCH WANTED [bf16]: ours so, PyTorch in floats
against_pytorch() {
    local model=$1 batch=$2 best_python='' best_variant='' best_speed=0 python version variant speed i x y a=() t=() r=() am=() tm=()
    for python in ${BENCH_PYTHON:+"$BENCH_PYTHON"} /usr/bin/python3; do
        version=$("$python" -c 'import torch; print(torch.__version__)' 2>/dev/null) || continue
        echo "PyTorch $version, $model, images/s of its variants:"
        read -r variant speed < <("$python" -W ignore "$here/bench_step_torch.py" "$build/echelon" "$model" "$batch" \
            2> >(grep '^    ' >&2)) || continue
        if awk "BEGIN { exit !($speed > $best_speed) }"; then best_python=$python best_variant=$variant best_speed=$speed; fi
    done
    if [ -z "$best_python" ]; then
        echo "no PyTorch here: name a Python that has it in BENCH_PYTHON, or install python3-torch"
        return 77
    fi
    for ((i = 0; i < pairs; i++)); do
        x=$("$ours" ${4:+"$4"} train "$model" "$batch") || return 1
        y=$("$best_python" -W ignore "$here/bench_step_torch.py" "$build/echelon" "$model" "$batch" "$best_variant") || return 1
        a+=("${x% *}") t+=("${y% *}") am+=("${x#* }") tm+=("${y#* }") r+=("$(awk "BEGIN { printf \"%.2f\", ${x% *} / ${y% *} }")")
        echo "  pair $((i + 1)): Echelon ${a[i]}, PyTorch ${t[i]} images/s, ratio ${r[i]}"
    done
    echo "$model, batch $batch${4:+, ours in $4}, median of $pairs: Echelon $(printf '%s\n' "${a[@]}" | median)," \
        "PyTorch ($best_variant) $(printf '%s\n' "${t[@]}" | median)" \
        "images/s, ratio $(printf '%s\n' "${r[@]}" | median) (at least $3 wanted);" \
        "memory $(printf '%s\n' "${am[@]}" | median) and $(printf '%s\n' "${tm[@]}" | median) MiB"
}

status=0
for entry in ${MODELS:-lenet5:64 vgg19:32 resnet18:32 alexnet:16 vgg19:32:bf16}; do
    IFS=: read -r model batch format <<<"$entry"
    case $entry in
    lenet5:*) wanted=4 ;;
    vgg19:*:bf16) wanted=4 ;;
    vgg19:*) wanted=2.1 ;;
    resnet18:*) wanted=1.85 ;;
    alexnet:*) wanted=1.5 ;;
    *) wanted=1 ;;
    esac
    table=0
    "$ours" ${format:+"$format"} "$model" "$batch" || table=$?
    if [ $table = 77 ]; then
        echo "$model in $format stays open"
        continue
    fi
    [ $table = 0 ] || exit 1
    against_pytorch "$model" "$batch" $wanted ${format:+"$format"} || status=$?
done
exit $status
