#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --local 4 in control groups that hold one node and not four: a node reports that memory is missing, and the kernel kills none.
# make check only: it needs a control group for memory, which takes root.
. "$(dirname "$0")/cluster.bash"
! under address && ! under thread || skip "sanitizers take memory of their own"
idx_set "$work/data" 256 16
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/echelon-memory-$$ limit=memory.max
    { echo +memory >/sys/fs/cgroup/cgroup.subtree_control; } 2>/dev/null
else
    group=/sys/fs/cgroup/memory/echelon-memory-$$ limit=memory.limit_in_bytes
fi
mkdir "$group" 2>/dev/null || skip "no control group can be made here"
trap 'clean_up; rmdir "$group"' EXIT
[ -e "$group/$limit" ] || skip "there is no control group for memory here"

# 23 MB of parameters: a node alone takes some 100 MB, one of four more. All four work, whatever the plan would rather have.
printf '%s\n' 'input 1 28 28' 'fc out 2048' relu 'fc out 2048' relu 'fc out 10' >"$work/model"
within() {     # within MEGABYTES ARGUMENT...: the status
    echo "$1M" >"$group/$limit" || return 77
    shift
    (
        echo $BASHPID >"$group/cgroup.procs"
        exec "$echelon" train --data "$work/data" --model "$work/model" --steps 2 --eval-every 0 --threads 1 "$@"
    ) >"$work/out" 2>"$work/err" </dev/null
}
within 500
status=$?
[ $status != 77 ] || skip "the control group takes no limit"
check "one node in 500 MB: status $status" [ $status = 0 ]
# Four of them find the same memory at the same time: which is the one that ends them all differs from run to run. One owner: divided, they
# need hardly more than there is, and then whoever was late is ended by the kernel.
for megabytes in 160 220 230 290; do
    within $megabytes --local 4 --shares equal --shards 1
    status=$?
    check "four nodes in $megabytes MB: status $status" [ $status = 12 ]
    check "four nodes in $megabytes MB: not a sentence" grep -q 'no memory for .* use a smaller batch or model' "$work/err"
done

# A plan by which one node owns nearly all, and has less memory than that takes: it is named, with the bytes and with what would help, and
# no node is killed. The same model is trained where the plan divides it.
shards() {     # shards OWNER OWNER: of layers 0 and 2, of layer 1
    printf '%s\n' 'sync bsp' 'world 2' 'round 8' 'lr 0.02' 'momentum 0.9' 'decay 0' "shards $1,$2" "group 0 owner $1 workers 0:4 1:4" \
        'part 0 at 0 count 1607680 layers 0-0 codec dense tolerance 0 shard 0' \
        'part 1 at 1607680 count 4196352 layers 1-1 codec dense tolerance 0 shard 1' \
        'part 2 at 5804032 count 20490 layers 2-2 codec dense tolerance 0 shard 0' >"$work/plan"
}
pair() {       # pair MEGABYTES: rank 1 has so many
    free_port
    local both=(--data "$work/data" --model "$work/model" --plan "$work/plan" --world 2 --coordinator "127.0.0.1:$port" --steps 2
        --eval-every 0 --threads 1)
    echo "$1M" >"$group/$limit"
    start 0 "${both[@]}"
    (
        echo $BASHPID >"$group/cgroup.procs"
        exec "$echelon" train --rank 1 --progress off "${both[@]}"
    ) >"$work/1.log" 2>&1 </dev/null &
    nodes[1]=$!
}
shards 0 1
pair 104
sentence='rank 1 has no memory for its part of the plan: .* take [0-9]+ bytes, and [0-9]+ are left .*; use a smaller batch or model, or'
sentence+='.* --shards'
node_ends 1 12 "$sentence" "a plan for more memory than rank 1 has"
node_ends 0 12 "$sentence" "a plan for more memory than rank 1 has"
shards 1 0
pair 104
for rank in 0 1; do node_ends $rank 0 '' "a plan for what rank 1 has"; done
verdict "memory of local nodes"
