#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --precision bf16: digits are learnt as well as in floats, a recorded run comes out again bit for bit, nodes must agree, and what cannot be
# is refused. --isa: kernels and recordings name the instruction set asked for, and a replay takes it again.
# make check only: 14 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
! under thread || skip "what bf16 changes is arithmetic; the threads are those of test_every_kind.sh, which runs here"
idx_set "$work/data" 600 50
less() { awk "BEGIN { exit !($1 < $2) }"; }

# --- every instruction set: the last that is not refused is what `auto` takes
refuse 2 "isa is 'neon': give auto, base, avx2 or avx512" --data "$work/data" --isa neon
for set in base avx2 avx512; do
    if "$ECHELON" train --data "$work/data" --steps 1 --isa $set --progress off 2>&1 | grep -q 'this processor has no more than'; then
        refuse 16 "isa is $set, but this processor has no more than $most: give that, or auto" --data "$work/data" --isa $set
        continue
    fi
    most=$set
    expect 0 "kernels: trunk, conv1: conv.* $set" --data "$work/data" --steps 5 --eval-every 0 --isa $set --record "$work/$set" \
        --save "$work/$set.weights" --progress off --verbose
    "$ECHELON" replay "$work/$set" --show > "$work/out" 2>&1
    check "a recording says $set" grep -q "^rank 0 of 1.*, $set, " "$work/out"
    "$ECHELON" replay "$work/$set" --data "$work/data" --save "$work/again" > "$work/out" 2>&1
    check "replay of a run with $set" cmp -s "$work/$set.weights" "$work/again"
done
expect 0 "kernels: trunk, conv1: conv.* $most" --data "$work/data" --steps 5 --eval-every 0 --save "$work/auto.weights" --progress off \
    --verbose
check "auto is $most" cmp -s "$work/auto.weights" "$work/$most.weights"
[ $most = base ] ||
    check "$most rounds as base does: is it taken?" bash -c '! cmp -s "$1" "$2"' _ "$work/base.weights" "$work/$most.weights"

refuse 2 "precision is 'fp16': give fp32, tf32 or bf16" --data "$work/data" --precision fp16
refuse 2 'deterministic computes the same' --data "$work/data" --deterministic --precision bf16
if "$ECHELON" train --data "$work/data" --steps 1 --precision bf16 --progress off 2>&1 | grep -q 'this processor lacks'; then
    refuse 16 'this processor lacks .*BF16.*leave' --data "$work/data" --precision bf16
    echo "this processor lacks bf16: the rest is not tested"
    verdict test_precision
    exit
fi

# --- accuracies of three seeds, one epoch of glyphs each: medians within three points, which is how far single seeds spread
[ -n "${SAN:-}" ] || for format in fp32 bf16; do
    for seed in 1 2 3; do
        expect 0 '^  speed ' --data glyphs --epochs 1 --eval-every 0 --seed $seed --precision $format --report "$work/report" --progress off
        value test_accuracy
    done | sort -g | sed -n 2p > "$work/$format"
done
[ -n "${SAN:-}" ] || check "accuracy $(cat "$work/bf16") in bf16, $(cat "$work/fp32") in fp32" less "$(cat "$work/fp32") - 0.03" \
    "$(cat "$work/bf16")"

# --- a recorded run again
expect 0 '^  speed ' --data "$work/data" --local 2 --sync asp --samples-per-step 16 --epochs 1.5 --precision bf16 --record "$work/run" \
    --save "$work/live" --progress off
"$ECHELON" replay "$work/run" --data "$work/data" --save "$work/again" > "$work/out" 2>&1
check "replay of a run in bf16" grep -q '^  arithmetic .*bit for bit$' "$work/out"
check "other weights in replay" cmp -s "$work/live" "$work/again"
expect 0 '^  speed ' --data "$work/data" --steps 20 --precision bf16 --save "$work/bf16.weights" --progress off
expect 0 '^  speed ' --data "$work/data" --steps 20 --save "$work/fp32.weights" --progress off
check "bf16 changes the weights" bash -c '! cmp -s "$1" "$2"' _ "$work/bf16.weights" "$work/fp32.weights"
verdict test_precision
