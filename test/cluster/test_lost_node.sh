#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that are killed, stopped or told to end in mid-run: the others name the rank that is gone and leave in order, with
# the documented status, in time; nothing is left behind, and what was trained until a signal is kept.
. "$(dirname "$0")/cluster.bash"

# Each role on a rank of its own: 0 coordinates (and is a group by itself), 1 is the head, 2 owns what 2 and 3 train.
cat >"$work/plan" <<'END'
sync gssp
world 4
round 64
lr 0.02
momentum 0.9
decay 0
head 1
group 0 owner 2 workers 2:32 3:32
group 1 owner 0 workers 0:32
END
role=(coordinator head owner worker)
idx_set "$work/data" 2000 100
endless=(--data "$work/data" --plan "$work/plan" --epochs 100000 --eval-every 0 --deadline 2)

trains() {     # trains LOG: waits until progress is told there
    for _ in $(seq $((10 * patience))); do
        grep -q 'images/s' "$1" 2>/dev/null && return
        sleep 0.1
    done
    bad "the run does not begin"
}
begin() {      # begin ARGUMENT...: four nodes by hand, training
    free_port
    rm -f "$work"/?.log
    for rank in 0 1 2 3; do start $rank --world 4 --coordinator "127.0.0.1:$port" "${endless[@]}" --progress on "$@"; done
    trains "$work/0.log"
}
others() {     # others RANK STATUS PATTERN WHAT: all but that rank end so
    for rank in 0 1 2 3; do [ $rank = "$1" ] || node_ends $rank "$patience" "$2" "$3" "$4"; done
}

# --- killed: the connection breaks, and everybody knows at once
for victim in 3 2 1 0; do
    begin
    kill -KILL "${nodes[victim]}"
    others $victim 18 "rank $victim\b.* was lost" "kill -9 of the ${role[victim]}"
    ended "${nodes[victim]}" 1
done

# --- stopped: no connection breaks, only the word fails to come. Continued, it finds itself alone and leaves as well.
for victim in 3 0; do
    begin
    kill -STOP "${nodes[victim]}"
    others $victim 18 "rank $victim\b.* was lost \(no word for [0-9.]+ seconds|rank $victim was lost: the coord" "SIGSTOP of the ${role[victim]}"
    kill -CONT "${nodes[victim]}"
    node_ends $victim "$patience" 18 'rank [0-9].* was lost' "SIGCONT of the ${role[victim]}, much later"
done

# --- told to end: whoever gets the signal, all leave in order, and rank 0 keeps what was trained
for who in 0:TERM 3:INT; do
    rm -f "$work"/saved "$work"/report
    begin --save "$work/saved" --report "$work/report"
    kill -"${who#*:}" "${nodes[${who%:*}]}"
    node_ends 0 "$patience" 22 'the run was stopped after [1-9][0-9]* samples' "SIG${who#*:} to rank ${who%:*}"
    for rank in 1 2 3; do node_ends $rank "$patience" 22 'stopped' "SIG${who#*:} to rank ${who%:*}"; done
    check "SIG${who#*:}: weights saved" [ -s "$work/saved" ]
    check "SIG${who#*:}: report written" grep -q '"samples": [1-9]' "$work/report"
done

# --- the same under --local: the command speaks for its nodes
local_run() {  # local_run ARGUMENT...: in the background; its nodes, in order of rank, into children
    rm -f "$work/err"   # `trains` must not read the last run's
    "$echelon" train --local 4 "${endless[@]}" --progress on "$@" >"$work/out" 2>"$work/err" </dev/null &
    run=$!
    trains "$work/err"
    mapfile -t children < <(cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent=$run '$4 == parent { print $1 }' | sort -n)
    check "--local starts four nodes, not ${#children[@]}" [ ${#children[@]} = 4 ]
}
local_ends() { # local_ends STATUS PATTERN WHAT
    local pid
    ended $run $((2 * patience))
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
local_run --deadline 1
kill -STOP "${children[2]}"
local_ends '18|137' "rank 2 was lost \(no word for [0-9.]+ seconds, while .*; --deadline is 1\)" "--local, SIGSTOP of the owner"
rm -f "$work/saved"
local_run --save "$work/saved"
kill -INT $run
local_ends 22 'the run was stopped after [1-9][0-9]* samples' "--local, SIGINT"
check "--local, SIGINT: weights saved" [ -s "$work/saved" ]

verdict "lost node"
