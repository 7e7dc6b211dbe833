#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nodes under `--local` that are killed or stopped in mid-run, and the command told to end: it speaks for its nodes, and leaves none behind.
# make check only: 6 s of processor time; test_every_kind.sh has a run of a lost node
. "$(dirname "$0")/lost.bash"

nodes=4
local_run() {  # local_run ARGUMENT...: in the background; its nodes, in order of rank, into children
    rm -f "$work/err"   # `trains` must not read the last run's
    "$echelon" train --local $nodes "${endless[@]}" --progress on "$@" >"$work/out" 2>"$work/err" </dev/null &
    run=$!
    trains "$work/err"
    # Numbers of processes begin anew behind the highest: those below the parent's come behind those above.
    mapfile -t children < <(cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent=$run '$4 == parent { print ($1 < parent), $1 }' |
        sort -k1n -k2n | cut -d' ' -f2)
    check "--local starts $nodes nodes, not ${#children[@]}" [ ${#children[@]} = "$nodes" ]
}
local_ends() { # local_ends STATUS PATTERN WHAT
    local pid
    ended $run
    run=
    check "$3: ended with $status, not $1" eval "[[ $status =~ ^($1)$ ]]"
    check "$3: does not say '$2'" grep -qE -e "$2" "$work/err"
    for pid in "${children[@]}"; do
        awk '{ exit $3 == "Z" }' "/proc/$pid/stat" 2>/dev/null && bad "$3: node $pid is left" && kill -KILL "$pid"
    done
}
for victim in 1 0; do
    local_run
    kill -KILL "${children[victim]}"
    local_ends '18|137' "rank $victim\b.* (was lost|was ended by signal 9)" "--local, kill -9 of the ${role[victim]}"
done
long=$((6 * epochs))   # so that no machine is through before the kill
for victim in 3 2; do
    rm -f "$work/report"
    local_run --epochs $long --report "$work/report"
    kill -KILL "${children[victim]}"
    local_ends 0 "rank $victim was lost .*: the others go on" "--local, kill -9 of the ${role[victim]}"
    accounts "$work/report" $((2000 * long)) $victim "--local, kill -9 of the ${role[victim]}"
done
local_run --deadline $deadline
kill -STOP "${children[2]}"
says "$work/err" "rank 2 was lost \(no word for [0-9.]+ seconds.*\): the others go on" "--local, SIGSTOP of the owner"
kill -CONT "${children[2]}"
kill -INT $run
local_ends 22 'the run was stopped after [1-9][0-9]* samples' "--local, SIGINT after a loss"
rm -f "$work/saved"
local_run --save "$work/saved"
kill -INT $run
local_ends 22 'the run was stopped after [1-9][0-9]* samples' "--local, SIGINT"
check "--local, SIGINT: weights saved" [ -s "$work/saved" ]
# Nodes that fill a machine compute on a part of it each; what else they do may run anywhere there.
sets_of() { grep -h '^Cpus_allowed_list:' "$@" | sort -u | wc -l; } # sets_of STATUS...: of processors, each once
nodes=$(nproc)
if [ "$nodes" -ge 2 ] && [ "$nodes" -le 8 ]; then
    endless=(--data "$work/data" --epochs 60000 --eval-every 0 --slow 32)   # the plan is one for four nodes
    local_run --threads 1
    mapfile -t lanes < <(for child in "${children[@]}"; do grep -lx ech-lane "/proc/$child"/task/*/comm; done | sed 's/comm$/status/')
    check "nodes compute on the same processors" [ "$(sets_of "${lanes[@]}")" = "$nodes" ]
    check "the threads that send are bound" [ "$(for child in "${children[@]}"; do cat "/proc/$child/status"; done | sets_of)" = 1 ]
    kill -INT $run
    local_ends 22 'the run was stopped after' "--local, bound"
fi

verdict "lost node of --local"
