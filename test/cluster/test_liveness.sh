#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who is only late is not lost, and a judge that was away itself accuses nobody. SIGUSR1: who waits for whom, also in a run
# that hangs. A second SIGTERM ends at once.
# make check only: it stops nodes for half a minute; unit/test_silence has the rule.
. "$(dirname "$0")/cluster.bash"
light_if_watched

idx_set "$work/data" 2000 100
endless=(--data "$work/data" --epochs 100000 --eval-every 0)

asked() { kill -USR1 "${nodes[$1]}" && sleep 0.1 && grep -qE -e "$2" "$work/$1.log"; }
answers() {    # answers RANK PATTERN: to SIGUSR1, sooner or later
    checks=$((checks + 1))
    await asked "$1" "$2"
}
begin() {      # begin WORLD ARGUMENT...: nodes by hand, training
    local world=$1 rank
    shift
    free_port
    rm -f "$work"/?.log
    nodes=()
    for ((rank = 0; rank < world; rank++)); do
        start $rank --world $world --coordinator "127.0.0.1:$port" "${endless[@]}" --progress on "$@"
    done
    says "$work/0.log" 'epoch .*images/s' "the run begins"
}
stop_all() {   # stop_all WHAT: told to end, all do, so they were still there
    local rank
    kill -TERM "${nodes[0]}"
    node_ends 0 22 'the run was stopped after [1-9]' "$1"
    for rank in "${!nodes[@]}"; do node_ends $rank 22 'stopped' "$1"; done
}

# --- a worker that is stopped for less than the deadline is late, and goes on
begin 3 --deadline 12
kill -STOP "${nodes[2]}"
says "$work/0.log" 'rank 2 is late: no word for [0-9.]+ s; after [0-9.]+ s it counts as lost' "a worker stopped for a while"
kill -CONT "${nodes[2]}"
says "$work/0.log" 'rank 2 is heard again, after' "a worker stopped for a while"
stop_all "a worker stopped for a while"

# --- the whole machine sleeps for longer than the deadline; the judge wakes first
begin 3 --deadline 5
for _ in 1 2; do
    kill -STOP "${nodes[@]}"
    sleep 6
    kill -CONT "${nodes[0]}"
    sleep 0.1
    kill -CONT "${nodes[@]}"
    sleep 0.3
done
stop_all "all stopped, longer than the deadline"

# --- a judge with a fraction of a processor
begin 3 --deadline 4
for _ in $(seq 24); do
    kill -STOP "${nodes[0]}"
    sleep 0.25
    kill -CONT "${nodes[0]}"
    sleep 0.02
done
stop_all "a judge that seldom runs"

# --- SIGUSR1, in a round that cannot end
printf '%s\n' 'sync bsp' 'world 3' 'round 64' 'lr 0.02' 'momentum 0.9' 'decay 0' 'head none' 'group 0 owner 0 workers 0:32 1:16 2:16' \
    >"$work/plan"
begin 3 --deadline 60 --plan "$work/plan"
kill -STOP "${nodes[2]}"
answers 0 'coordinator: trains since [0-9.]+ s; .* leases out: .*rank 2 has [0-9]+'
answers 0 'owner of group 0: version [0-9]+; [1-9][0-9]* samples of its round are in, none of rank 2;'
answers 0 'peers: rank 1 spoke [0-9.]+ s ago .*, rank 2 spoke'
answers 1 \
    'worker of group 0: waits for weights from rank 0 to begin lease [0-9]+: it holds those of round [0-9]+, since [0-9.]+ s'
answers 1 'lane: idle'
answers 1 'node: rank 1 of 3'
# ... which SIGTERM to rank 0 cannot end in order, and a second one ends at once.
kill -TERM "${nodes[0]}"
sleep 0.3
check "the first SIGTERM waits for an orderly end" kill -0 "${nodes[0]}"
kill -TERM "${nodes[0]}"
node_ends 0 143 '' "a second SIGTERM"
kill -CONT "${nodes[2]}"
for rank in 1 2; do node_ends $rank '18|22' '' "after a second SIGTERM elsewhere"; done

# --- SIGUSR1 before all have joined
free_port
nodes=()
start 0 --world 2 --coordinator "127.0.0.1:$port" "${endless[@]}"
await listens "$port"
answers 0 'node: rank 0 of 2, .* has not met all nodes yet'
kill -TERM "${nodes[0]}"
node_ends 0 22 'stopped while waiting' "SIGTERM while joining"

# --- under --local the command passes both on
local_run() {
    rm -f "$work"/{err,out,saved,report}
    "$echelon" train --local 3 "${endless[@]}" --progress on --save "$work/saved" --report "$work/report" "$@" >"$work/out" 2>"$work/err" \
        </dev/null &
    run=$!
    says "$work/err" 'epoch .*images/s' "a run with --local begins"
}
local_run
kill -USR1 $run
for rank in 0 1 2; do says "$work/err" "node: rank $rank of 3" "SIGUSR1 under --local"; done
kill -TERM $run
ended $run
check "SIGTERM under --local: ended with $status, not 22" [ "$status" = 22 ]
check "SIGTERM under --local: weights saved" [ -s "$work/saved" ]
check "SIGTERM under --local: report written" grep -q '"samples": [1-9]' "$work/report"
local_run --deadline 60
stopped=$(pgrep -P $run | tail -n 1)
kill -STOP "$stopped"
kill -TERM $run
sleep 0.5
check "SIGTERM under --local waits for an orderly end" kill -0 $run
kill -TERM $run
ended $run
run=
check "a second SIGTERM under --local: ended with $status, not 137" [ "$status" = 137 ]
check "a second SIGTERM under --local leaves node $stopped" eval "! kill -0 $stopped 2>/dev/null"

verdict "liveness"
