#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --sync-norm: nodes with unequal shares train a residual net with batch-norms as one node does, live and simulated; a run that loses
# workers comes to its end; a recorded one comes out again bit for bit; what does not fit is refused.
# make check only: 29 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
[ -z "${SAN:-}" ] || skip "its code is that of unit/test_sync_norm and test_every_kind.sh, which run here"
idx_set "$work/data" 640 50
first=('input 1 28 28' 'conv2d out 6 kernel 3 stride 2 pad 1 bias 0' batch_norm relu)
printf '%s\n' "${first[@]}" 'conv2d out 8 kernel 3 stride 2 pad 1 bias 0' batch_norm 'conv2d out 8 kernel 1 stride 2 bias 0 from 3' \
    batch_norm 'add with 5' relu global_avg_pool 'fc out 10' >"$work/net"
printf '%s\n' "${first[@]}" 'fc out 12 bias 0' batch_norm relu 'fc out 10' >"$work/head"
near() { awk "BEGIN { d = $1 - ($2); if (d < 0) d = -d; exit !(d <= $3) }"; }
plan() {       # plan WORLD ROUND WORKERS...: rank 0 owns the weights, whoever turns out to be the fastest
    printf '%s\n' 'sync bsp' 'sync_norm 1' "world $1" "round $2" 'lr 0.02' 'momentum 0.9' "group 0 owner 0 workers ${*:3}" >"$work/plan"
}
far() { ! near "$@"; }

# --- one node, three with unequal shares, and both simulated: the same loss. Without the option another one.
noise "$work/noise" 1280 50
same=(--model "$work/net" --data "$work/noise" --steps 20 --batch 64 --lr 0.02 --momentum 0.9 --eval-every 0 --report "$work/report")
with=(--model "$work/net" --data "$work/data" --sync-norm --eval-every 0)
expect 0 '^  speed ' "${same[@]}" --progress off --sync-norm
alone=$(value train_loss)
for shares in '0:40 1:20 2:4' '1:63 2:1'; do
    plan 3 64 "$shares"
    expect 0 '^  speed ' "${same[@]}" --progress off --sync-norm --local 3 --plan "$work/plan"
    check "loss $(value train_loss) of three nodes, $alone of one" near "$(value train_loss)" "$alone" 1e-6
    check "nothing is exchanged" grep -qE '"norm": [1-9]' "$work/report"
done
live=$(grep -oE '"norm(_all)?": [0-9]+' "$work/report")
ends_with 0 '^  speed ' sim "${same[@]}" --workers 3 --plan "$work/plan" --sync-norm
check "loss $(value train_loss) simulated, $alone of one node" near "$(value train_loss)" "$alone" 1e-6
check "other bytes simulated" [ "$(grep -oE '"norm(_all)?": [0-9]+' "$work/report")" = "$live" ]
expect 0 '^  speed ' "${same[@]}" --progress off --local 3 --shares 40,20,4
check "without the option the loss is the same" far "$(value train_loss)" "$alone" 1e-6

# --- with pushes and weights that travel short
expect 0 '^  speed ' "${with[@]}" --steps 20 --local 3 --codec topk --progress off

# --- recorded, and again
expect 0 '^  speed ' "${with[@]}" --steps 20 --local 3 --shares 30,10,8 --record "$work/run" --save "$work/live" --progress off
ends_with 0 '^  arithmetic .*bit for bit$' replay "$work/run" --model "$work/net" --data "$work/data" --save "$work/again"
check "other weights in replay" cmp -s "$work/live" "$work/again"

# --- workers that are killed: the others go on, with every sample in. They sleep for most of the time, or would be through before
plan 4 32 0:8 1:8 2:8 3:8
free_port
for rank in 0 1 2 3; do
    start $rank --world 4 --coordinator "127.0.0.1:$port" "${with[@]}" --plan "$work/plan" --epochs 40 --slow 8 \
        --report "$work/report" --progress on
done
says "$work/0.log" 'epoch .*images/s' "the run begins"
kill -KILL "${nodes[3]}"
says "$work/0.log" 'rank 3 was lost' "kill -9 of two workers"
kill -KILL "${nodes[2]}"
for rank in 0 1; do node_ends $rank 0 '' "kill -9 of two workers"; done
check "not 25600 samples" grep -q "\"samples\": 25600," "$work/report"
check "not ranks 2 and 3 lost" grep -qE '"lost": \[3, 2\]|"lost": \[2, 3\]' "$work/report"
for rank in 2 3; do ended "${nodes[rank]}"; done

# --- refused, before anybody begins
refuse 2 "sync is gssp, where nodes do not compute the same round" "${with[@]}" --sync gssp
refuse 2 'sync is auto' "${with[@]}" --sync auto
refuse 2 'sync is local' "${with[@]}" --sync local
refuse 2 'deterministic takes batch-norm' "${with[@]}" --deterministic
refuse 2 'model lenet5 has no batch-norm' --data "$work/data" --sync-norm
refuse 2 'the layers that separate separates, from fc1 on, have a batch-norm' \
    --model "$work/head" --data "$work/data" --sync-norm --separate 1
refuse 2 'micro-batches is 2, but sync-norm takes statistics over whole rounds' "${with[@]}" --separate 1 --micro-batches 2
refuse 2 'a batch-norm in front of the separated layers takes its statistics over whole ones' \
    --model "$work/net" --data "$work/data" --local 2 --separate 1 --micro-batches 2
expect 0 '' --model "$work/net" --data "$work/data" --steps 1 --local 2 --save-plan "$work/plan" --progress off
refuse 2 'is a plan without --sync-norm: start every node without it' "${with[@]}" --plan "$work/plan" --local 2
verdict test_sync_norm
