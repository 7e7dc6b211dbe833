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
# Four of them find the same memory at the same time: which is the one that ends them all differs from run to run.
for megabytes in 160 220 300; do
    within $megabytes --local 4 --shares equal
    status=$?
    check "four nodes in $megabytes MB: status $status" [ $status = 12 ]
    check "four nodes in $megabytes MB: not a sentence" grep -q 'no memory for .* use a smaller batch or model' "$work/err"
done
verdict "memory of local nodes"
