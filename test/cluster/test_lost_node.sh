#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that are killed, stopped or told to end in mid-run. Without a worker, or an owner where another is left, the others go
# on and every sample is accounted for. Without the head or the coordinator they name the rank that is gone and leave in order,
# with the documented status; nothing is left behind, and what was trained until a signal is kept.
# make check only: 11 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/lost.bash"

# As accounts, but from what the owners that are left wrote down, not from the coordinator's counts.
once() {       # once DIR SAMPLES LOST WHAT TASK
    checks=$((checks + 1))
    "$echelon" replay "$1" --show >"$work/shown" 2>"$work/err" || { bad "$4: the recordings cannot be read"; return; }
    awk -v samples="$2" -v lost="$3" -v task="$5" -f "$root/test/cluster/once.awk" "$work/shown" >"$work/err" 2>&1 ||
        bad "$4: $(cat "$work/err")"
}

# --- killed: the connection breaks, and everybody knows at once. The others do all that was asked.
for victim in 3 2; do
    rm -rf "$work"/report "$work"/run
    begin --epochs $epochs --report "$work/report" --record "$work/run"
    kill -KILL "${nodes[victim]}"
    says "$work/0.log" "rank $victim was lost \(.*\): the others go on" "kill -9 of the ${role[victim]}"
    others $victim 0 '' "kill -9 of the ${role[victim]}"
    accounts "$work/report" $((2000 * epochs)) $victim "kill -9 of the ${role[victim]}"
    once "$work/run" $((2000 * epochs)) $victim "kill -9 of the ${role[victim]}" apply
    ended "${nodes[victim]}"
done
# Under local a lease is many steps, of which nothing is in before all are.
rm -rf "$work"/report "$work"/run
printf '%s\n' 'sync local' 'world 4' 'round 64' 'lr 0.02' 'outer_lr 0.7' 'outer_momentum 0.9' \
    'group 0 owner 1 workers 0:8x9 1:8x4 2:16x5 3:8x7' >"$work/local"
begin --epochs $epochs --report "$work/report" --record "$work/run" --plan "$work/local"
kill -KILL "${nodes[3]}"
says "$work/0.log" "rank 3 was lost \(.*\): the others go on" "kill -9 of a worker of local"
others 3 0 '' "kill -9 of a worker of local"
accounts "$work/report" $((2000 * epochs)) 3 "kill -9 of a worker of local"
once "$work/run" $((2000 * epochs)) 3 "kill -9 of a worker of local" add
ended "${nodes[3]}"
rm -f "$work"/report   # one after the other, until those are left that must be
begin --epochs $epochs --report "$work/report"
kill -KILL "${nodes[2]}"
says "$work/0.log" 'rank 2 was lost' "kill -9 of owner and worker"
kill -KILL "${nodes[3]}"
for rank in 0 1; do node_ends $rank 0 '' "kill -9 of owner and worker"; done
accounts "$work/report" $((2000 * epochs)) '2, 3' "kill -9 of owner and worker"
for victim in 1 0; do
    begin
    kill -KILL "${nodes[victim]}"
    others $victim 18 "rank $victim\b.* was lost" "kill -9 of the ${role[victim]}"
    ended "${nodes[victim]}"
done

# --- stopped: no connection breaks, only the word fails to come. Continued, it finds itself alone and leaves as well.
rm -f "$work"/report
begin --report "$work/report" --deadline $deadline
kill -STOP "${nodes[3]}"
says "$work/0.log" "rank 3 was lost \(no word for [0-9.]+ seconds.*\): the others go on" "SIGSTOP of the worker"
kill -CONT "${nodes[3]}"
node_ends 3 18 'rank [0-9].* was lost|was left out of the run: no word' "SIGCONT of the worker, much later"
kill -TERM "${nodes[0]}"
others 3 22 'stopped' "SIGTERM after the worker was lost"
accounts "$work/report" '[0-9]*' 3 "SIGSTOP of the worker"
begin --deadline $deadline
kill -STOP "${nodes[0]}"
others 0 18 "rank 0\b.* was lost \(no word for [0-9.]+ seconds|rank 0 was lost: the coord" "SIGSTOP of the coordinator"
kill -CONT "${nodes[0]}"
node_ends 0 18 'rank [0-9].* was lost' "SIGCONT of the coordinator, much later"

# --- told to leave: a worker goes at once, and its work is handed on
rm -f "$work"/report
begin --epochs $epochs --report "$work/report"
kill -TERM "${nodes[3]}"
node_ends 3 22 'left the run, as its user asked' "SIGTERM to the worker"
says "$work/0.log" "rank 3 was lost \(it left the run, as its user asked\): the others go on" "SIGTERM to the worker"
others 3 0 '' "SIGTERM to the worker"
accounts "$work/report" $((2000 * epochs)) 3 "SIGTERM to the worker"

# --- told to end: by rank 0, or by a node that the run cannot do without, all leave in order, and rank 0 keeps what was trained
for who in 0:TERM 1:INT; do
    rm -f "$work"/saved "$work"/report
    begin --save "$work/saved" --report "$work/report"
    kill -"${who#*:}" "${nodes[${who%:*}]}"
    node_ends 0 22 'the run was stopped after [1-9][0-9]* samples' "SIG${who#*:} to rank ${who%:*}"
    for rank in 1 2 3; do node_ends $rank 22 'stopped' "SIG${who#*:} to rank ${who%:*}"; done
    check "SIG${who#*:}: weights saved" [ -s "$work/saved" ]
    check "SIG${who#*:}: report written" grep -q '"samples": [1-9]' "$work/report"
done

verdict "lost node"
