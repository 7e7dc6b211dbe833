#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Echelon's BSP beside PyTorch DDP over gloo, in turn, on hosts of tools/testbed (shaped links, a part of a core each): images/s, and how
# far a step is from the bound that processors and links set. All hosts train; dense fp32 gradients, momentum SGD, generated images.
# PyTorch has one thread, and the faster of DDP's default buckets and gradient_as_bucket_view, of each Python that has it.
#   HOSTS="4 8"     how many hosts; with 8, AlexNet is left out unless NETS names it
#   RATE, CPU       of each host; default 1gbit up to 4 hosts and 300mbit for more, and two cores divided by the hosts
#   NETS            default "resnet18 vgg19 alexnet"
#   KEYED           nets that also run with a key, where HOSTS begins (default resnet18)
#   BATCH           samples a step of each host (default 8)
#   RUNS, STEPS     runs of each in turn (default 5), steps a run (default 50)
#   SHARES          Echelon's --shares (default equal)
#   SHARDS          Echelon's --shards (default auto)
#   BENCH_PYTHON    a Python with torch; the system's is tried too, and the faster of the two is the one to beat
# Hours with all defaults, by name only: make bench ONLY=sync. RUNS=1 STEPS=8 HOSTS=4 NETS=resnet18 is a first look of two minutes.
# Exits with 77 where there can be no test-bed, and, after our own figures, where there is no PyTorch.
# The bound is max(processor time of a step on one host alone / its part of a core, bytes of the busiest link / goodput), each its own:
# PyTorch's bytes are a ring's, Echelon's are those of its plan. A link carries 119 MB/s of data a Gb/s. Beside it stands the bound by the
# processor time of a step in the run: what messages take is in it, and what hosts that share caches take from each other.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
here=$root/test/bench
node=${B:-$root/build}/test/bench/bench_sync
runs=${RUNS:-5} steps=${STEPS:-50} batch=${BATCH:-8} shares=${SHARES:-equal} shards=${SHARDS:-auto} keyed=${KEYED-resnet18}
alone_steps=20   # of one host alone, for its processor time
unset OPENBLAS_CORETYPE
export GLOO_SOCKET_IFNAME=eth0   # a host's name says nothing about its address

dir=$out/sync
rm -rf "$dir"
mkdir -p "$dir"
bed=s$(($$ % 1000000))
(umask 077; head -c 32 /dev/urandom > "$dir/key")
[ -x "$node" ] || { echo "sync: $node is not there: make bench builds it"; exit 2; }

# --- PyTorch: each Python that has gloo, and how DDP keeps its buckets
pythons=() versions=()
look='import torch; from torch import distributed; distributed.ProcessGroupGloo; print(torch.__version__)'
find_pythons() {
    local python version
    for python in ${BENCH_PYTHON:+"$BENCH_PYTHON"} /usr/bin/python3; do
        version=$("$python" -W ignore -c "$look" 2> /dev/null) || continue
        pythons+=("$python") versions+=("$version")
        echo "PyTorch   $version"
    done
    [ ${#pythons[@]} -gt 0 ] ||
        echo "no PyTorch with gloo here: name a Python that has it in BENCH_PYTHON, or install python3-torch; Echelon alone is measured"
}

# --- one run
echelon_run() {   # echelon_run NAME HOST|all HOSTS STEPS OPTIONS...
    run_on_hosts "$1" batches "$2" "$node" "$net" "$4" --sync bsp --shares "$shares" --batch $((batch * $3)) --threads 1 --lr 0.001 \
        --momentum 0.9 --weight-decay 0 --join-timeout 300 --shards "$([ "$3" = 1 ] && echo auto || echo "$shards")" "${@:5}"
}
# each host by itself, all at once: the processor seconds of a step where they take caches and a core's two threads from each other
echelon_each() {   # echelon_each HOSTS STEPS
    local host
    for ((host = 0; host < $1; host++)); do (echelon_run "each.$host" "$host" 1 "$2") & done
    wait
    median $(for ((host = 0; host < $1; host++)); do of_run "each.$host" processor_seconds; done)
}
torch_run() {     # torch_run NAME HOST|all STEPS [PYTHON VARIANT]
    OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
        run_on_hosts "$1" link_bytes "$2" "${4:-$python}" -W ignore "$here/bench_ddp_torch.py" "$echelon" "$net" "$batch" "$3" \
            "${5:-$variant}"
}

# the fastest of all Pythons and variants, by a few steps of each: into python, variant, and peer for people
choose_torch() {
    local i kind speed best=0 few=$((steps / 5 > 5 ? steps / 5 : 5))
    for i in "${!pythons[@]}"; do
        for kind in default view; do
            torch_run probe all $few "${pythons[i]}" $kind || continue
            speed=$(of_run probe images_per_second)
            printf '  PyTorch %-14s %-8s %8.2f images/s over %d steps\n' "${versions[i]}" $kind "$speed" $few
            [ "$(compare "$speed" '<=' "$best")" = yes ] || best=$speed python=${pythons[i]} variant=$kind peer="${versions[i]} $kind"
        done
    done
}

# --- a row of the table
# bound PROCESSOR_SECONDS LINK_SECONDS STEP: the bound, what sets it, and the step over it
bound() {
    awk -v p="$(awk -v p="$1" -v c="$cpu" 'BEGIN { print p / c }')" -v l="$2" -v s="$3" 'BEGIN {
        by_link = l > p; b = by_link ? l : p
        printf "%8.3f %-9s %9.2f", b, by_link ? "link" : "processor", s / b }'
}
title() { printf '%-14s %5s %-8s %-6s  %-21s %-21s %6s   %-30s %s\n' "$@"; }
rows=()
row() {   # row NAME OURS_NAME: from the arrays a (ours), t (PyTorch's), a_step, t_step
    local theirs=- times=- their_bound=- i ratios=()
    if [ -n "$python" ]; then
        for i in "${!a[@]}"; do ratios+=("$(ratio "${a[i]}" "${t[i]}")"); done
        theirs="$(printf '%.2f' "$(median "${t[@]}")") ($(spread "${t[@]}"))" times=$(printf "%.2f" "$(median "${ratios[@]}")")
        their_bound=$(bound "$t_alone" "$(link_seconds "$(of_run torch link_bytes)" "$rate")" "$(median "${t_step[@]}")")
    fi
    rows+=("$(title "$1" "$hosts" "$rate" "$cpu" "$(printf '%.2f' "$(median "${a[@]}")") ($(spread "${a[@]}"))" "$theirs" "$times" \
        "$(bound "$a_alone" "$(link_seconds "$(of_run "$2" link_bytes)" "$rate")" "$(median "${a_step[@]}")")" "$their_bound")")
}

measure() {   # measure NET, on the hosts that are up
    local net=$1 i key=no a=() t=() a_step=() t_step=() k=() k_step=() a_over=() a_alone t_alone=0 python='' variant='' peer=''
    [[ " $keyed " != *" $net "* ]] || [ "$hosts" != "$first_hosts" ] || key=yes
    echo "$net on $hosts hosts, $rate, $cpu of a core, batch $batch each:"
    choose_torch
    echelon_run alone 0 1 $alone_steps
    a_alone=$(of_run alone processor_seconds)
    printf '  processor time of a step on one host alone: Echelon %.3f s (%.3f while each host computes by itself)' "$a_alone" \
        "$(echelon_each "$hosts" $alone_steps)"
    if [ -n "$python" ]; then
        torch_run torch 0 $alone_steps
        t_alone=$(of_run torch processor_seconds)
        printf ', PyTorch %s %.3f s' "$peer" "$t_alone"
    fi
    echo
    for ((i = 0; i < runs; i++)); do
        others_since
        echelon_run echelon all "$hosts" "$steps" --insecure 1
        a+=("$(of_run echelon images_per_second)") a_step+=("$(of_run echelon step_seconds)")
        a_over+=("$(bound "$(of_run echelon processor_seconds)" "$(link_seconds "$(of_run echelon link_bytes)" "$rate")" "${a_step[i]}" |
            awk '{ print $3 }')")
        printf '  turn %d: Echelon %.2f' $((i + 1)) "${a[i]}"
        if [ -n "$python" ]; then
            torch_run torch all "$steps"
            t+=("$(of_run torch images_per_second)") t_step+=("$(of_run torch step_seconds)")
            printf ', PyTorch %.2f images/s, ratio %s' "${t[i]}" "$(ratio "${a[i]}" "${t[i]}")"
        fi
        if [ $key = yes ]; then
            echelon_run keyed all "$hosts" "$steps" --key "$dir/key"
            k+=("$(of_run keyed images_per_second)") k_step+=("$(of_run keyed step_seconds)")
            printf '; Echelon with a key %.2f' "${k[i]}"
        fi
        others_since
        echo "; $others cores busy with other work"
    done
    printf '  samples a step of each host: %s; in a step of %.3f s: rank 0 computes %.3f s, the busiest link carries %.3f s each way\n' \
        "$(of_run echelon batches)" "${a_step[-1]}" "$(of_run echelon processor_seconds)" \
        "$(link_seconds "$(of_run echelon link_bytes)" "$rate")"
    printf '  the step over the bound by what rank 0 takes of a processor in the run, messages and all: %.2f (%s)\n' \
        "$(median "${a_over[@]}")" "$(spread "${a_over[@]}")"
    row "$net" echelon
    if [ $key = yes ]; then
        a=("${k[@]}") a_step=("${k_step[@]}")
        row "$net, key" keyed
    fi
}

machine
find_pythons
first_hosts=
for hosts in ${HOSTS:-4 8}; do
    first_hosts=${first_hosts:-$hosts}
    rate=${RATE:-$([ "$hosts" -le 4 ] && echo 1gbit || echo 300mbit)}
    cpu=${CPU:-$(awk -v n="$hosts" 'BEGIN { print n < 2 ? 1 : 2 / n }')}
    bed_up "$hosts" --rate "$rate" --cpu "$cpu" || exit $([ $? = 3 ] && echo 77 || echo 1)
    for net in ${NETS:-resnet18 vgg19 $([ "$hosts" -gt 4 ] || echo alexnet)}; do measure "$net"; done
    bed down
done

echo
echo "images/s: median of $runs runs of $steps steps in turn, and their range. ratio: median of the turns. Then the bound of a step in" \
    "seconds, what sets it, and the step over it."
title net hosts rate cpu Echelon PyTorch ratio "Echelon's bound s, over it" "PyTorch's bound s, over it"
printf '%s\n' "${rows[@]}"
[ ${#pythons[@]} -gt 0 ] || exit 77
