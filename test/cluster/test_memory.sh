#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A node that trains LeNet-5 with MNIST loaded stays under 128 MiB resident, whatever it does: by the kernel's own count
# of each node, and by the report's. One node that trains a net of 80 MB takes 3.3 times that, and its activations; and what is planned.
# make check only: it trains with all of MNIST, three times.
. "$(dirname "$0")/cluster.bash"
! under address && ! under thread || skip "sanitizers take memory of their own"

idx_set "$work/small" 256 128
printf '%s\n' 'input 1 28 28' 'conv2d out 16 kernel 5' relu 'max_pool kernel 2' 'fc out 4096' relu 'fc out 2590' relu \
    'fc out 10' >"$work/net"
one=(--model "$work/net" --data "$work/small" --batch 16 --threads 1)
parameters=$("$echelon" model "$work/net" | awk '/^total/ { print $2 }')
activations=$("$echelon" doctor "${one[@]}" --json | sed -n 's/.*"activations": \([0-9]*\).*/\1/p')
"$echelon" train "${one[@]}" --steps 4 --progress off --report "$work/report" >"$work/out" 2>&1
check "one node trains" [ $? = 0 ]
peak=$(sed -n 's/^  "resident_peak": \([0-9]*\),*$/\1/p' "$work/report")
most=$((parameters * 4 * 33 / 10 + activations))
echo "one node, $((parameters * 4)) bytes of model, $activations of activations: $peak resident, at most $most"
check "$peak bytes resident, and $most allowed" [ "${peak:-0}" -gt $((parameters * 8)) -a "${peak:-$most}" -le $most ]
# What a plan counts of it is what such a node holds, beside up to 16 MB of program, samples and tables. Activations are counted to
# the byte.
env -u ECH_MEASURE "$echelon" plan --model "$work/net" --data "$work/small" --batch 16 --workers 1 --sync bsp --report "$work/plan" \
    >"$work/out"
planned() { sed -n "s/^  \"$1\": .\([0-9]*\).*/\1/p" "$work/plan"; }
sum=$(($(planned slot_bytes) + $(planned activation_bytes)))
echo "planned are $sum bytes, $(planned activation_bytes) of activations"
check "activations are not those of the plan" [ "$activations" = "$(planned activation_bytes)" ]
check "$peak bytes resident, $sum planned" [ "${peak:-0}" -gt "$sum" -a "${peak:-0}" -lt $((sum + 16000000)) ]
[ -n "${ECHELON_DATA:-}" ] || skip "ECHELON_DATA is not set: no MNIST to load"
mnist=$ECHELON_DATA/mnist
if [ ! -f "$mnist/train-images-idx3-ubyte" ] && [ ! -f "$mnist/train-images.idx3-ubyte" ]; then
    "$root/tools/get-data" mnist --from "$mnist" --to "$work/mnist" >/dev/null 2>&1 || skip "no MNIST in $mnist"
    mnist=$work/mnist
fi
limit=$((128 * 1024))   # KiB

plan() {       # everything at once on rank 0: coordinator, owner, head and worker
    printf 'sync %s\nworld 2\nround 64\nlr 0.02\nmomentum 0.9\ndecay 0\nhead %s\ngroup 0 owner 0 workers 0:%d 1:%d\n' "$@" >"$work/plan"
}
hwm() { awk '/^VmHWM:/ { print $2 }' "/proc/$1/status" 2>/dev/null; }
under() {      # under WHAT ARGUMENTS OF BOTH NODES: two nodes by hand, each with data of its own
    local what=$1 most=(0 0) now
    shift
    free_port
    rm -f "$work/report"
    start 0 --data "$mnist" --world 2 --coordinator "127.0.0.1:$port" --epochs 0.5 --report "$work/report" "$@"
    start 1 --data "$mnist" --world 2 --coordinator "127.0.0.1:$port" --epochs 0.5 "$@"
    while kill -0 "${nodes[0]}" 2>/dev/null; do
        for rank in 0 1; do
            now=$(hwm "${nodes[rank]}")
            [ "${now:-0}" -le "${most[rank]}" ] || most[rank]=$now
        done
        sleep 0.1
    done
    node_ends 0 0 accuracy "$what"
    node_ends 1 0 '' "$what"
    reported=$(($(sed -n 's/^  "resident_peak": \([0-9]*\),*$/\1/p' "$work/report") / 1024))
    echo "$what: ${most[0]} and ${most[1]} KiB, $reported by the report"
    for now in "${most[@]}" "$reported"; do check "$what: $now KiB resident" [ "$now" -gt 10000 -a "$now" -lt $limit ]; done
    # Linux counts resident pages in batches of 32 for each processor, so what it says of a moment is off by so many.
    off=$((100 + 32 * $(getconf PAGESIZE) / 1024 * $(getconf _NPROCESSORS_ONLN)))
    check "the report says $reported KiB, the kernel ${most[0]}" [ $((reported + off)) -ge "${most[0]}" ]
}
plan gssp 0 64 64
under "all roles on one node, gssp" --plan "$work/plan"
plan bsp none 40 24
under "bsp" --plan "$work/plan"
plan asp 0 128 128
under "two threads, 128 samples a step" --plan "$work/plan" --threads 2

verdict memory
