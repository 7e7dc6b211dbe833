#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Worlds of 1 to 5 nodes under every policy, with sizes that do not divide: each run does exactly what was asked; what
# must be equal is equal.
# make check only: 39 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
[ -z "${SAN:-}" ] || skip "its worlds are more of those of test_every_kind.sh, which runs here"
light
idx_set "$work/data" 1000 50
json() { command -v python3 >/dev/null || return 0; python3 -m json.tool "$work/report" >/dev/null; }

# done_as_asked WORLD SAMPLES ARGUMENT...: status 0, and a whole report with that many samples.
done_as_asked() {
    local world=$1 samples=$2
    shift 2
    rm -f "$work/report"
    expect 0 '^  speed ' --data "$work/data" --local "$world" --report "$work/report" --progress off "$@"
    check "the report is no JSON: --local $world $*" json
    check "$(value samples) samples, not $samples: --local $world $*" [ "$(value samples)" = "$samples" ]
    check "world $(value world), not $world: $*" [ "$(value world)" = "$world" ]
}

# --- every policy. 33 samples a round; 5 epochs end in a short round under bsp (1,000 = 30 x 33 + 10).
policies=("bsp" "bsp --shares equal" "bsp --separate 1" "asp" "ssp" "gssp" "gssp --separate off" "gssp --groups 2"
    "local --inner-steps 3" "auto")
tried=0
for world in 1 2 3 5; do
    for policy in "${policies[@]}"; do
        # Every policy in a world of 3, and in each other world every third, in turn; one group a node at most.
        tried=$((tried + 1))
        [[ $world != 3 && $((tried % 3)) != 0 || $world = 1 && $policy = *groups* ]] && continue
        read -ra words <<<"--sync $policy"
        done_as_asked $world 99 "${words[@]}" --batch 33 --steps 3
        check "$(value steps) steps, not 3" [ "$(value steps)" = 3 ]
    done
done
policies=("asp --samples-per-step 7" "gssp --groups 3 --samples-per-step 128" "local --samples-per-step 7 --inner-steps 5" "bsp"
    "bsp --separate 1" "ssp --staleness 0" "gssp --samples-per-step 13" "asp --weigh-by-time --drop-older 1.5 --samples-per-step 7"
    "asp --drop-older 0.001" "local --inner-steps 200")
for policy in "${policies[@]}"; do
    read -ra words <<<"--sync $policy"
    done_as_asked 3 2050 "${words[@]}" --batch 33 --epochs 2.05 --eval-every 300 --slow 1=3
done
done_as_asked 3 50 --sync bsp --batch 33 --epochs 0.05
done_as_asked 5 8 --sync bsp --batch 2 --steps 4                            # three nodes have nothing to do
done_as_asked 4 40 --sync bsp --batch 10 --shares 0,1,0,9 --steps 4
expect 2 'at least one sample for each node' --data "$work/data" --local 5 --sync bsp --shares equal --batch 2

# --- a plan that is saved is the plan that runs when it is given back
expect 0 '^  speed ' --data "$work/data" --local 4 --sync gssp --groups 2 --batch 33 --steps 2 --save-plan "$work/plan"
groups=$(sed -n 's/^group//p' "$work/plan")
expect 0 'gssp, 4 nodes' --data "$work/data" --local 4 --plan "$work/plan" --save-plan "$work/again" --steps 2
check "a plan changed on its way through a file" cmp -s "$work/plan" "$work/again"
for rank in 0 1 2 3; do echo "link $rank out 9$rank lowest 80 highest 95 in 200 lowest 150 highest 250"; done >>"$work/plan"
expect 0 'gssp, 4 nodes' --data "$work/data" --local 4 --plan "$work/plan" --save-plan "$work/again" --steps 2 --report "$work/report"
check "links changed on their way through a file" cmp -s "$work/plan" "$work/again"
check "the links of a plan are not the report's: $(value link)" [ "$(value link)" = '[90, 91, 92, 93]' ]
check "nor each direction: $(value link_in)" [ "$(value link_in | grep -o '"rate": 200, "lowest": 150, "highest": 250' | wc -l)" = 4 ]
# The deadline is that of a machine that takes long to choose: all plans of all policies are predicted.
expect 0 '^  speed ' --data "$work/data" --local 3 --sync auto --steps 2 --deadline 60 --progress on --report "$work/report" \
    --save-plan "$work/plan"
check "auto says what it compared" grep -q 'predicted of' "$work/err"
check "auto says why" grep -Eq 'is taken: |the only one' "$work/err"
check "auto is a policy in the report: $(value sync)" grep -Eq 'bsp|ssp|gssp' <<<"$(value sync)"
check "a rate was predicted: $(value predicted_images_per_second)" grep -Eq '^[1-9]' <<<"$(value predicted_images_per_second)"
expect 0 '^  speed ' --data "$work/data" --local 3 --plan "$work/plan" --save-plan "$work/again" --steps 2
check "the plan of auto changed on its way through a file" cmp -s "$work/plan" "$work/again"
check "the plan has two groups" [ "$(wc -l <<<"$groups")" = 2 ]

expect 0 '^  speed ' --data "$work/data" --local 3 --sync local --inner-steps 9 --outer-lr 0.25 --batch 33 --slow 1=3 --steps 2 \
    --save-plan "$work/plan"
check "the plan has no steps in a round" grep -qE '^group 0 owner [0-9] workers 0:[0-9]+x[0-9]+ 1:[0-9]+x[0-9]+ 2:[0-9]+x[0-9]+$' \
    "$work/plan"
expect 0 'local, 3 nodes' --data "$work/data" --local 3 --plan "$work/plan" --save-plan "$work/again" --steps 2
check "a plan of local changed on its way through a file" cmp -s "$work/plan" "$work/again"
# What is too old is dropped, and its samples come again: each counts once, and nothing that was applied is older.
done_as_asked 4 2000 --sync asp --samples-per-step 8 --batch 33 --epochs 2 --drop-older 0.3 --slow 1=3
check "$(value samples_dropped) samples dropped, $(value samples_again) again" \
    [ "$(value samples_dropped)" -gt 0 -a "$(value samples_again)" -ge "$(value samples_dropped)" ]
check "staleness $(value staleness_max), beyond --drop-older 0.3" awk -v s="$(value staleness_max)" 'BEGIN { exit !(s <= 0.3) }'
refuse 2 'drop-older.*ssp.*only asp' --data "$work/data" --local 3 --sync ssp --drop-older 2
refuse 2 'weigh-by-time.*separate is 1' --data "$work/data" --local 3 --sync asp --weigh-by-time --separate 1
refuse 2 'separate.*local' --data "$work/data" --local 3 --sync local --separate 1
refuse 2 'inner-steps.*bsp.*only local' --data "$work/data" --local 3 --inner-steps 4

# --- the initial weights are those of one node, whatever the cluster; and they come back from --init
expect 0 '^  speed ' --data "$work/data" --steps 0 --save "$work/one"
for policy in "bsp" "gssp" "gssp --separate off --groups 3" "local"; do
    read -ra words <<<"--sync $policy"
    expect 0 '^  speed ' --data "$work/data" --local 3 "${words[@]}" --steps 0 --save "$work/three"
    check "initial weights of 3 nodes under $policy" cmp -s "$work/one" "$work/three"
done
expect 0 '^  speed ' --data "$work/data" --steps 0 --seed 2 --save "$work/seed2"
check "another seed, the same weights" eval '! cmp -s "$work/one" "$work/seed2"'
expect 0 '^  speed ' --data "$work/data" --local 3 --sync gssp --seed 2 --steps 0 --init "$work/one" --save "$work/three"
check "--init is not where the run starts" cmp -s "$work/one" "$work/three"

# --- bsp with unequal shares is one node with the whole round, but for the order of sums
if command -v python3 >/dev/null; then
    cat >"$work/apart.py" <<'END'
# usage: apart.py A B: the largest difference of two safetensors files, relative to the largest value of its tensor.
import array, json, math, struct, sys
def tensors(path):
    raw = open(path, "rb").read()
    size = struct.unpack("<Q", raw[:8])[0]
    for name, t in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__": continue
        values = array.array("f")
        values.frombytes(raw[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
        yield name, values
a, b = dict(tensors(sys.argv[1])), dict(tensors(sys.argv[2]))
assert a.keys() == b.keys() and all(len(a[k]) == len(b[k]) for k in a)
assert all(math.isfinite(x) for t in (a, b) for v in t.values() for x in v), "a weight is not finite"
print("%.3g" % max(max(abs(x - y) for x, y in zip(a[k], b[k])) / max(map(abs, a[k])) for k in a))
END
    apart() { python3 "$work/apart.py" "$1" "$2" 2>&1; }
    near() { awk -v d="$(apart "$1" "$2")" 'BEGIN { exit !(d ~ /^[0-9]/ && d < 1e-5) }'; }
    noise "$work/noise" 1000 50
    rounds() { expect 0 '^  speed ' --data "$work/noise" --batch 33 --eval-every 0 --save "$work/$1" "${@:2}"; }
    printf '%s\n' 'sync local' 'world 3' 'round 33' 'lr 0.02' 'momentum 0.9' 'outer_lr 3' 'group 0 owner 1 workers 0:11x1 1:11x1 2:11x1' \
        >"$work/equal"
    rounds whole --steps 1
    check "a round moves the weights" eval '! near "$work/one" "$work/whole"'
    rounds shares --steps 1 --local 3 --shares 20,1,12
    check "one round on 3 nodes is $(apart "$work/whole" "$work/shares") apart from one node" near "$work/whole" "$work/shares"
    rounds head --steps 1 --local 3 --shares 9,20,4 --separate 1
    check "one round with a head is $(apart "$work/whole" "$work/head") apart from one node" near "$work/whole" "$work/head"
    # Of local a round of one step each is one of bsp, when nothing is averaged and nothing remembered: the mean's outer lr is then
    # the number of nodes. Alone it is a node that trains by itself, however many steps are a round.
    rounds plain --steps 1 --lr 0.02
    rounds local --steps 1 --local 3 --plan "$work/equal"
    check "one round of local on 3 nodes is $(apart "$work/plain" "$work/local") apart from one of bsp" near "$work/plain" "$work/local"
    rounds plain --steps 30 --no-shuffle --lr 0.02
    rounds local --steps 30 --no-shuffle --sync local --samples-per-step 33 --inner-steps 4 --lr 0.02 --outer-momentum 0 --outer-lr 1
    check "30 rounds of local alone are $(apart "$work/plain" "$work/local") apart from one node" near "$work/plain" "$work/local"
    rounds groups --steps 30 --local 3 --sync gssp --groups 3
    check "gssp with 3 groups: $(apart "$work/groups" "$work/groups")" [ "$(apart "$work/groups" "$work/groups")" = 0 ]
    rounds alone --steps 30 --no-shuffle
    rounds three --steps 30 --no-shuffle --local 3 --shares 11,11,11
    check "30 rounds on 3 nodes are $(apart "$work/alone" "$work/three") apart from one node" \
        awk -v d="$(apart "$work/alone" "$work/three")" 'BEGIN { exit !(d ~ /^[0-9]/ && d < 1e-2) }'
fi

# --- IPv6 by hand: rank 0 takes any free port and tells which
if (exec 3<>"/dev/tcp/::1/1") 2>&1 | grep -q 'not supported\|Cannot assign'; then
    echo "no IPv6 here: --coordinator [::1]:0 is not tried"
else
    start 0 --data "$work/data" --world 2 --coordinator '[::1]:0' --steps 3 --progress on
    says "$work/0.log" 'listens at' "IPv6"
    at=$(sed -n 's/.*start the others with --coordinator //p' "$work/0.log")
    start 1 --data "$work/data" --world 2 --coordinator "$at" --steps 3
    node_ends 0 0 'listens at \[::1\]:[1-9]' "IPv6"
    node_ends 1 0 '' "IPv6"
fi

verdict policies
