#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nodes that are killed, stopped or told to end in mid-run. Without a worker, or an owner where another is left, the others go
# on and every sample is accounted for. Without the head or the coordinator they name the rank that is gone and leave in order,
# with the documented status; nothing is left behind, and what was trained until a signal is kept.
# make check only: 36 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
light_if_watched

plan_of_roles "$work/plan"
role=(coordinator head owner worker)
idx_set "$work/data" 2000 100
endless=(--data "$work/data" --plan "$work/plan" --epochs 60000 --eval-every 0 --slow 32)   # they sleep for most of the time
deadline=10   # seconds, where silence is to end a run: heartbeats come ten times as often, however busy the machine is
epochs=$(under thread && echo 1 || echo 2)   # of 2,000 samples, where a run is to come to its end: seconds

trains() { says "$1" 'epoch .*images/s' "the run begins"; }   # trains LOG
begin() {      # begin ARGUMENT...: four nodes by hand, training
    free_port
    rm -f "$work"/?.log
    for rank in 0 1 2 3; do start $rank --world 4 --coordinator "127.0.0.1:$port" "${endless[@]}" --progress on "$@"; done
    trains "$work/0.log"
}
others() {     # others RANK STATUS PATTERN WHAT: all but that rank end so
    for rank in 0 1 2 3; do [ $rank = "$1" ] || node_ends $rank "$2" "$3" "$4"; done
}

accounts() {   # accounts REPORT SAMPLES LOST WHAT: each sample once, and what it took
    check "$4: not $2 samples" grep -q "\"samples\": $2," "$1"
    check "$4: not $3 lost" grep -q "\"lost\": \[$3\]" "$1"
    check "$4: nothing is issued again" grep -qE '"samples_again": [1-9]' "$1"
}

# The same from what the owners that are left wrote down, not from the coordinator's counts.
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

# Owners of shards: each node computes and owns some of the parameters, so each death is that of a worker and of an owner in one. Any but
# rank 0, one or two at once, at a moment of chance; the parts go to others, and every sample counts once.
printf '%s\n' 'sync bsp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0.9' 'decay 0' 'shards 0,1,2,3' \
    'group 0 owner 0 workers 0:16 1:16 2:16 3:16' >"$work/shards"
long=$((6 * epochs))   # so that no machine is through before the kill
for victims in $((1 + RANDOM % 3)) '1 3' $((2 + RANDOM % 2)); do
    rm -f "$work/report"
    begin --epochs $long --report "$work/report" --plan "$work/shards" --eval-every 500
    sleep "0.$((RANDOM % 8))"
    for victim in $victims; do kill -KILL "${nodes[victim]}"; done
    for rank in 0 1 2 3; do [[ " $victims " == *" $rank "* ]] || node_ends $rank 0 '' "kill -9 of owners of shards, ranks $victims"; done
    for victim in $victims; do says "$work/0.log" "rank $victim was lost" "kill -9 of the owner of a shard"; done
    says "$work/0.log" 'the parameters of lost owners have other owners' "kill -9 of owners of shards"
    check "kill -9 of owners of shards: not $((2000 * long)) samples" grep -q "\"samples\": $((2000 * long))," "$work/report"
    check "kill -9 of owners of shards: no momentum was lost" grep -qE '"momentum_lost": [1-9]' "$work/report"
    for victim in $victims; do ended "${nodes[victim]}"; done
done

ring_breaks() {   # ring_breaks WHAT LINE...: rank 3 is killed on a ring; the plan has these lines
    local what=$1
    rm -f "$work/report"
    printf '%s\n' 'sync bsp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0.9' 'decay 0' 'exchange ring' "${@:2}" >"$work/ring"
    begin --epochs $long --report "$work/report" --plan "$work/ring" --eval-every 500
    says "$work/0.log" 'summed on a ring' "$what, from a plan's file"
    sleep "0.$((RANDOM % 8))"
    kill -KILL "${nodes[3]}"
    for rank in 0 1 2; do node_ends $rank 0 '' "kill -9 in $what"; done
    says "$work/0.log" 'rank 3 was lost' "kill -9 in $what"
    says "$work/0.log" 'the ring has ended' "kill -9 in $what"
    check "kill -9 in $what: not $((2000 * long)) samples" grep -q "\"samples\": $((2000 * long))," "$work/report"
    ended "${nodes[3]}"
}
# Whoever is lost breaks a ring, here one that owns nothing, and the others go on without it.
ring_breaks 'a ring' 'shards 0,2' 'group 0 owner 0 workers 0:16 1:16 2:16 3:16'

if [ -z "${SAN:-}" ]; then   # what follows has the code of the above, and is about what comes of it
    # The same without rank 0, which only coordinates: whoever is lost there owns parts, and another owner gets them.
    ring_breaks 'a ring without rank 0' 'shards 3,1,2' 'group 0 owner 3 workers 1:24 2:20 3:20'

    # One that dies before training: its parts begin with the first weights, which all owners have been sent. Then the weights are those
    # of one node that trains so many rounds, but for the order of sums.
    early=(--data "$work/data" --batch 64 --lr 0.02 --momentum 0 --weight-decay 0 --steps 20 --eval-every 0)
    expect 0 '^  speed ' "${early[@]}" --save "$work/alone"
    sed 's/momentum 0.9/momentum 0/' "$work/shards" >"$work/early"
    for victim in 1 3; do
        free_port
        rm -f "$work"/?.log "$work/saved" "$work/report"
        for rank in 0 1 2 3; do
            start $rank --world 4 --coordinator "127.0.0.1:$port" "${early[@]}" --plan "$work/early" --measure 2 --save "$work/saved" \
                --report "$work/report" --progress on
        done
        says "$work/0.log" 'all 4 nodes' "four nodes have joined"
        kill -KILL "${nodes[victim]}"
        others $victim 0 '' "kill -9 of an owner of a shard before training"
        check "kill -9 before training: not rank $victim is lost" grep -q "\"lost\": \[$victim\]" "$work/report"
        check "kill -9 before training: not 1280 samples" grep -q '"samples": 1280,' "$work/report"
        far=$(apart "$work/saved" "$work/alone")
        check "kill -9 of an owner of a shard before training: weights $far from one node's" is_within "$far" 1e-5
        ended "${nodes[victim]}"
    done

    # The only owner of BSP: what its workers computed on last is the state behind a round, and one node that trains so many rounds has the
    # same bits. From the checkpoint, which has the weights and no momentum, training goes on behind that round.
    printf '%s\n' 'sync bsp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0' 'decay 0' 'deterministic 1' \
        'group 0 owner 2 workers 0:16 1:16 2:16 3:16' >"$work/bsp"
    bsp=(--plan "$work/bsp" --deterministic --save "$work/saved")
    begin "${bsp[@]}" --checkpoint "$work/kept" --every 0
    kill -KILL "${nodes[2]}"
    others 2 18 "rank 2\b.* was lost" "kill -9 of the only owner"
    samples=$(sed -n 's/.*of round [0-9]* (\([0-9]*\) samples); start it again, with --resume$/\1/p' "$work/0.log")
    check "of which round the weights are, in $(tail -n 1 "$work/0.log")" [ "${samples:-0}" -gt 0 ]
    check "weights saved" [ -s "$work/saved" ]
    one=(--data "$work/data" --deterministic --batch 64 --lr 0.02 --momentum 0 --eval-every 0)
    epochs_in=$(awk "BEGIN { printf \"%.9f\", ${samples:-0} / 2000 }")
    expect 0 '^  speed ' "${one[@]}" --epochs "$epochs_in" --save "$work/alone" --report "$work/report"
    check "one node trained $(value samples), not ${samples:-0}" [ "$(value samples)" = "${samples:-0}" ]
    check "other weights than one node has behind that round" cmp -s "$work/saved" "$work/alone"
    more=$((${samples:-0} + 2000))
    expect 0 "going on from .*: ${samples:-0} samples" "${one[@]}" --epochs "$(awk "BEGIN { printf \"%.9f\", $more / 2000 }")" \
        --checkpoint "$work/kept" --resume --save "$work/again"
    expect 0 '^  speed ' "${one[@]}" --epochs "$(awk "BEGIN { printf \"%.9f\", $more / 2000 }")" --save "$work/alone"
    check "resumed: other weights than one node" cmp -s "$work/again" "$work/alone"
    ended "${nodes[2]}"
fi

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

# --- the same under --local: the command speaks for its nodes
local_run() {  # local_run ARGUMENT...: in the background; its nodes, in order of rank, into children
    rm -f "$work/err"   # `trains` must not read the last run's
    "$echelon" train --local 4 "${endless[@]}" --progress on "$@" >"$work/out" 2>"$work/err" </dev/null &
    run=$!
    trains "$work/err"
    # Numbers of processes begin anew behind the highest: those below the parent's come behind those above.
    mapfile -t children < <(cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent=$run '$4 == parent { print ($1 < parent), $1 }' |
        sort -k1n -k2n | cut -d' ' -f2)
    check "--local starts four nodes, not ${#children[@]}" [ ${#children[@]} = 4 ]
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
for victim in 3 2; do
    rm -f "$work/report"
    local_run --epochs $epochs --report "$work/report"
    kill -KILL "${children[victim]}"
    local_ends 0 "rank $victim was lost .*: the others go on" "--local, kill -9 of the ${role[victim]}"
    accounts "$work/report" $((2000 * epochs)) $victim "--local, kill -9 of the ${role[victim]}"
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

verdict "lost node"
