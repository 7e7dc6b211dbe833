#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A net with residual blocks, dropout and batch-norm, in trunk and head, as a user meets it: the same bits from any cluster, recorded and
# replayed; looks do not drop; and what does not fit is refused with its line.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "it compares bits; its threads are those of test_exact and test_every_kind.sh, which run here"
bars "$work/data" 60 5
cat >"$work/net" <<'END'
input 1 28 28
conv2d out 4 kernel 5 stride 3 pad 2 bias 0
batch_norm
relu
conv2d out 4 kernel 3 pad 1
dropout p 0.25
conv2d out 4 kernel 1 from 3
batch_norm
add with 5
add with 3
relu
max_pool kernel 2
fc out 16
relu
dropout p 0.5
fc out 16
batch_norm
add with 13
relu
fc out 10
END
net=(--model "$work/net" --data "$work/data" --progress off)

# --- BSP, deterministic: whoever has a sample drops the same of it
run=(--batch 24 --epochs 3 --lr 0.02)
expect 0 '^  speed ' "${net[@]}" "${run[@]}" --deterministic --local 1 --save "$work/alone" --report "$work/alone.json"
for cluster in "--local 3 --separate off" "--local 4 --separate 1 --shares 4,12,0,8" "--local 2 --separate 1 --slow 1=2"; do
    read -ra words <<<"$cluster"
    expect 0 '^  speed ' "${net[@]}" "${run[@]}" --deterministic "${words[@]}" --save "$work/other" --report "$work/other.json"
    check "other weights with $cluster" cmp -s "$work/alone" "$work/other"
    check "another loss with $cluster" [ "$(value train_loss "$work/alone.json")" = "$(value train_loss "$work/other.json")" ]
done
# Another seed drops others, in the same order of samples from the same weights too.
expect 0 . "${net[@]}" "${run[@]}" --deterministic --local 1 --init "$work/alone" --no-shuffle --seed 1 --save "$work/one"
expect 0 . "${net[@]}" "${run[@]}" --deterministic --local 1 --init "$work/alone" --no-shuffle --seed 1 --save "$work/same"
expect 0 . "${net[@]}" "${run[@]}" --deterministic --local 1 --init "$work/alone" --no-shuffle --seed 2 --save "$work/two"
check "the same seed, other weights" cmp -s "$work/one" "$work/same"
check "another seed, the same weights" eval '! cmp -s "$work/one" "$work/two"'

# --- looks evaluate: without its dropouts the net has the same weights, and finds the same
sed 's/^dropout.*/dropout p 0/' "$work/net" >"$work/plain"
expect 0 . "${net[@]}" --init "$work/alone" --steps 0 --report "$work/with.json"
expect 0 . --model "$work/plain" --data "$work/data" --progress off --init "$work/alone" --steps 0 --report "$work/without.json"
check "nothing was learnt" awk -v a="$(value test_accuracy "$work/with.json")" 'BEGIN { exit !(a > 0.3) }'
check "a look drops" [ "$(value test_accuracy "$work/with.json")" = "$(value test_accuracy "$work/without.json")" ]

# --- asynchronous, rows of several workers and epochs at the head: the recording computes the same once more
for words in "--local 3 --sync asp --separate 1 --epochs 2.2" "--local 3 --sync gssp --groups 2 --epochs 2 --slow 2=3" \
    "--local 2 --sync local --epochs 2"; do
    read -ra arguments <<<"$words"
    rm -rf "$work/run"
    expect 0 '^  speed ' "${net[@]}" --record "$work/run" --save "$work/live" "${arguments[@]}"
    ends_with 0 'bit for bit' replay "$work/run" --model "$work/net" --save "$work/again"
    check "other weights again: $words" cmp -s "$work/live" "$work/again"
done

# --- what does not fit
broken() {     # broken STATUS PATTERN LINE...: a net of those lines
    local status=$1 pattern=$2
    shift 2
    printf '%s\n' 'input 1 28 28' "$@" >"$work/broken"
    refuse "$status" "broken:$pattern" --model "$work/broken" --data "$work/data"
}
broken 2 "3: 'add' does not fit: add1: with 2" relu 'add with 2'
broken 15 "3: 'add' does not fit.*2 x 28 x 28.*1 x 28 x 28" 'conv2d out 2 kernel 1' 'add with 0'
broken 14 "3: no layer takes the output of 'relu', layer 2" 'fc out 10' 'relu' 'fc out 10 from 1'
broken 14 "2: '1' after 'p' is not a number" 'dropout p 1'
verdict layers
