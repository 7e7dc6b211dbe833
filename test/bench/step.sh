#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training step of each model on one thread, or on a card: ours and PyTorch's in turn, so that both see the same machine.
#   B             build folder (default build)
#   BENCH_PYTHON  a Python with torch; the system's is tried too, and the faster of the two is the one to beat
#   PAIRS         how many pairs of runs (default 5)
#   MODELS        which, each with its batch, in bf16 where that is said (default "lenet5:64 vgg19:32 resnet18:32
#                 alexnet:16 vgg19:32:bf16")
#   DEVICE        cuda: on the first card, beside PyTorch with cuDNN on it, both in the format of each entry, fp32, tf32 or bf16 (MODELS
#                 then is "resnet18:128:fp32 resnet18:128:tf32 resnet18:128:bf16")
#   VARIANT       PyTorch's so, one of bench_step_torch.py's, instead of the fastest of all
# Prints the parts of a step (on one thread), medians and their ratio, and peaks of memory; exits with 77 when no PyTorch is here, after our
# own figures, and where there is no card.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${B:-build}" && pwd)
ours=$build/test/bench/bench_step
pairs=${PAIRS:-5}
device=${DEVICE:-}
models="lenet5:64 vgg19:32 resnet18:32 alexnet:16 vgg19:32:bf16"
[ -z "$device" ] || models="resnet18:128:fp32 resnet18:128:tf32 resnet18:128:bf16"
unset OPENBLAS_CORETYPE
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# ours_train MODEL BATCH [FORMAT]: images a second, and MiB
ours_train() {
    local format=${3:-}
    [ "$format" != fp32 ] || format=
    "$ours" ${device:+on "$device"} ${format:+"$format"} train "$1" "$2"
}
# torch_train PYTHON MODEL BATCH FORMAT [VARIANT]: the same; without VARIANT which one is the fastest, and its images a second
torch_train() {
    local python=$1 model=$2 batch=$3 format=$4
    shift 4
    "$python" -W ignore "$here/bench_step_torch.py" ${device:+--cuda "$format"} "$build/echelon" "$model" "$batch" "$@"
}

# against_pytorch MODEL BATCH WANTED [FORMAT]: ours so; PyTorch, too, on a card, else in floats
against_pytorch() {
    local model=$1 batch=$2 format=${4:-} best_python='' best_variant='' best_speed=0 python version variant speed i x y
    local a=() t=() r=() am=() tm=() how=${format:+, ours in $format}
    [ -z "$device" ] || how=", both on $device in $format"
    for python in ${BENCH_PYTHON:+"$BENCH_PYTHON"} /usr/bin/python3; do
        version=$("$python" -c "$look" 2>/dev/null) || continue
        echo "PyTorch $version, $model${device:+ on $device in $format}, images/s of its variants:"
        if [ -n "${VARIANT:-}" ]; then
            read -r speed _ < <(torch_train "$python" "$model" "$batch" "$format" "$VARIANT" 2> >(tail -n 1 >&2)) || continue
            variant=$VARIANT
        else
            read -r variant speed < <(torch_train "$python" "$model" "$batch" "$format" 2> >(grep '^    ' >&2)) || continue
        fi
        if awk "BEGIN { exit !($speed > $best_speed) }"; then best_python=$python best_variant=$variant best_speed=$speed; fi
    done
    if [ -z "$best_python" ]; then
        if [ -n "$device" ]; then
            x=$(ours_train "$model" "$batch" "$format") || return 1
            echo "$model, batch $batch, on $device in $format: Echelon ${x% *} images/s, memory ${x#* } MiB"
        fi
        echo "no PyTorch${device:+ with CUDA} here: name a Python that has it in BENCH_PYTHON, or install python3-torch"
        return 77
    fi
    for ((i = 0; i < pairs; i++)); do
        x=$(ours_train "$model" "$batch" "$format") || return 1
        y=$(torch_train "$best_python" "$model" "$batch" "$format" "$best_variant") || return 1
        a+=("${x% *}") t+=("${y% *}") am+=("${x#* }") tm+=("${y#* }") r+=("$(awk "BEGIN { printf \"%.2f\", ${x% *} / ${y% *} }")")
        echo "  pair $((i + 1)): Echelon ${a[i]}, PyTorch ${t[i]} images/s, ratio ${r[i]}"
    done
    echo "$model, batch $batch$how, median of $pairs: Echelon $(printf '%s\n' "${a[@]}" | median)," \
        "PyTorch ($best_variant) $(printf '%s\n' "${t[@]}" | median)" \
        "images/s, ratio $(printf '%s\n' "${r[@]}" | median) (at least $3 wanted);" \
        "memory $(printf '%s\n' "${am[@]}" | median) and $(printf '%s\n' "${tm[@]}" | median) MiB"
}

look='import torch; print(torch.__version__)'
if [ -n "$device" ]; then
    look='import torch; assert torch.cuda.is_available(); print(torch.__version__, "with cuDNN", torch.backends.cudnn.version())'
    "$ours" on "$device" train lenet5 1 >/dev/null || exit
fi
status=0
for entry in ${MODELS:-$models}; do
    IFS=: read -r model batch format <<<"$entry"
    [ -z "$device" ] || format=${format:-fp32}
    case $device$entry in
    cuda*) wanted=0.7 ;;
    lenet5:*) wanted=4 ;;
    vgg19:*:bf16) wanted=4 ;;
    vgg19:*) wanted=2.1 ;;
    resnet18:*) wanted=1.85 ;;
    alexnet:*) wanted=1.5 ;;
    *) wanted=1 ;;
    esac
    table=0
    [ -n "$device" ] || "$ours" ${format:+"$format"} "$model" "$batch" || table=$?
    if [ $table = 77 ]; then
        echo "$model in $format stays open"
        continue
    fi
    [ $table = 0 ] || exit 1
    against_pytorch "$model" "$batch" $wanted ${format:+"$format"} || status=$?
done
exit $status
