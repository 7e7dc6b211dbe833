#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One short live run of each kind: policies, codec, precision, batch-norm over nodes, the same bits, recorded and replayed, stopped and
# resumed, a node lost, a link measured. `make test` has this; what each kind promises is shown by the script named beside it, in
# `make check`.
. "$(dirname "$0")/cluster.bash"
light_if_watched
bars "$work/data" 32 4

run=(--data "$work/data" --batch 32 --eval-every 0 --progress off --report "$work/report")
trains_all() { # trains_all SAMPLES ARGUMENT...: status 0, and each sample once
    local samples=$1
    shift
    expect 0 '^  speed ' "${run[@]}" "$@"
    check "$(value samples) samples, not $samples: $*" [ "$(value samples)" = "$samples" ]
}

# --- policies (test_policies.sh); what is learnt
for sync in "bsp --separate 1" "bsp --shards 3" "bsp --exchange ring" asp ssp "gssp --groups 2" "local --inner-steps 3" auto; do
    read -ra words <<<"$sync"
    trains_all 256 --local 3 --steps 8 --sync "${words[@]}"
done
trains_all 1600 --local 2 --sync bsp --epochs 5
[ -n "${SAN:-}" ] ||   # the light model of sanitizers is too small to learn this
    check "accuracy $(value test_accuracy) after five epochs" awk -v a="$(value test_accuracy)" 'BEGIN { exit !(a > 0.5) }'

# --- what travels and what is computed with (test_codec.sh, test_precision.sh, test_sync_norm.sh)
trains_all 256 --local 3 --steps 8 --sync bsp --shares equal --codec topk
check "pushes of $(value push_ratio)" awk -v r="$(value push_ratio)" 'BEGIN { exit !(r < 0.4) }'
trains_all 256 --local 3 --steps 8 --sync bsp --separate 1 --activations bf16
"$echelon" train "${run[@]}" --steps 4 --precision bf16 >"$work/out" 2>"$work/err" ||
    check "bf16" grep -q 'this processor lacks' "$work/err"
printf '%s\n' 'input 1 28 28' 'conv2d out 4 kernel 5 stride 3 bias 0' batch_norm relu 'fc out 10' >"$work/norm"
trains_all 256 --local 3 --steps 8 --model "$work/norm" --sync-norm --shares 16,12,4

# --- the same bits (test_deterministic.sh), recorded and replayed (test_replay.sh), resumed (test_checkpoint.sh)
trains_all 256 --steps 8 --deterministic --save "$work/alone"
trains_all 256 --steps 8 --deterministic --local 3 --shares 8,20,4 --save "$work/three" --record "$work/recorded"
check "three nodes end with other weights than one" cmp -s "$work/alone" "$work/three"
ends_with 0 'bit for bit' replay "$work/recorded" --save "$work/again"
check "the replay ends with other weights" cmp -s "$work/alone" "$work/again"
trains_all 160 --steps 5 --deterministic --checkpoint "$work/kept"
trains_all 256 --steps 8 --deterministic --local 2 --checkpoint "$work/kept" --resume --save "$work/resumed"
check "resumed, with other weights" cmp -s "$work/alone" "$work/resumed"

# --- a worker is lost, the others go on; told to end, they keep what was trained (test_lost_node.sh)
plan_of_roles "$work/plan"
free_port
for rank in 0 1 2 3; do
    start $rank --data "$work/data" --world 4 --coordinator "127.0.0.1:$port" --plan "$work/plan" --epochs 100000 --eval-every 0 \
        --progress on --save "$work/saved"
done
says "$work/0.log" 'epoch .*images/s' "the run begins"
kill -KILL "${nodes[3]}"
says "$work/0.log" 'rank 3 was lost \(.*\): the others go on' "a worker is lost"
kill -TERM "${nodes[0]}"
node_ends 3 137 '' "a worker is lost"
for rank in 0 1 2; do node_ends $rank 22 'stopped' "told to end"; done
check "no weights were saved" [ -s "$work/saved" ]

# --- a link is measured (test_doctor.sh); of devices there is one
export OCL_ICD_VENDORS=$work/none
free_port
"$echelon" doctor --listen --coordinator "127.0.0.1:$port" 2>"$work/0.log" &
nodes[0]=$!
says "$work/0.log" "listening at 127.0.0.1:$port" "doctor --listen"
ends_with 0 'training would begin' doctor --world 2 --rank 1 --coordinator "127.0.0.1:$port" --model "$work/norm"
kill -INT "${nodes[0]}"
node_ends 0 0 '' "doctor --listen"

verdict "every kind"
