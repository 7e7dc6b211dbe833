#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --deterministic as a user meets it: the same file of weights, loss and accuracy from any cluster, over TCP; and what does not
# go with it is refused.
# make check only: 24 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
[ -z "${SAN:-}" ] || skip "it compares bits; threads and memory are those of test_exact and test_every_kind.sh, which run here"
bars "$work/data" 100 5

# 40 rounds of 48 and looks on the way; a run that ends at a look; epochs that end in short rounds.
same() {       # same NAME ARGUMENT...: weights, loss and accuracy are those of $first
    local name=$1
    shift
    expect 0 '^  speed ' --deterministic --progress off --eval-every 600 --save "$work/$name" --report "$work/$name.json" "$@"
    as_first "$name"
}
as_first() {
    local name=$1
    check "$name: other weights than $first's" cmp -s "$work/$first" "$work/$name"
    for key in train_loss test_accuracy best_accuracy samples; do
        check "$name: another $key than $first's" [ "$(value $key "$work/$first.json")" = "$(value $key "$work/$name.json")" ]
    done
}
first=alone
rounds=(--data "$work/data" --batch 48 --steps 40)
same alone "${rounds[@]}" --local 1
same three "${rounds[@]}" --local 3 --separate off
same four "${rounds[@]}" --local 4 --separate 1 --shares 4,24,0,20
same head "${rounds[@]}" --local 2 --separate 1 --slow 1=3
same threads "${rounds[@]}" --local 2 --threads 3
same shards "${rounds[@]}" --local 4 --separate off --shards 3
same ring "${rounds[@]}" --local 3 --separate off --exchange ring
same uneven-ring "${rounds[@]}" --local 4 --separate off --exchange ring --shares 4,24,8,12
same ring-of-some "${rounds[@]}" --local 4 --separate off --exchange ring --shards 3,0 --shares 20,0,12,16
same auto "${rounds[@]}" --local 3 --exchange auto
same shards-and-head "${rounds[@]}" --local 3 --separate 1 --shards 2,0 --shares 24,0,24
check "nothing was learnt" awk -v a="$(value test_accuracy "$work/alone.json")" 'BEGIN { exit !(a > 0.3) }'

# What follows is about samples and who has them, whatever is computed of them.
heavy=$echelon   # which trains LeNet-5
light
# Without --batch: what is chosen does not depend on the nodes either.
first=unsaid
same unsaid --data "$work/data" --steps 6 --local 1
same unsaid-five --data "$work/data" --steps 6 --local 5 --separate off
same unsaid-equal --data "$work/data" --steps 6 --local 5 --shares equal --separate off

# Crops and flips belong to the sample and its epoch, not to who computes it (two epochs, so that they change once).
first=augmented
moved=(--data "$work/data" --batch 48 --epochs 2 --augment crop-flip)
same augmented "${moved[@]}" --local 1
same augmented-three "${moved[@]}" --local 3 --separate 1 --shares 4,24,20
expect 0 '^  speed ' --deterministic --progress off --save "$work/as-they-are" --data "$work/data" --batch 48 --epochs 2
check "--augment changes nothing" bash -c '! cmp -s "$1" "$2"' _ "$work/augmented" "$work/as-they-are"

# A look finds the same weights, however many rounds are under way, so it also ends a run at the same one.
echelon=$heavy   # it learns
first=ends
until=(--data "$work/data" --batch 48 --epochs 2 --target-accuracy 0.3)
same ends "${until[@]}" --eval-every 300
same ends-too "${until[@]}" --local 4 --separate 1 --eval-every 300
same ends-as-well "${until[@]}" --local 3 --separate off --eval-every 300
check "it ended early" [ "$(value samples "$work/ends.json")" -lt 2000 ]

echelon=$work/echelon
first=short
epochs=(--data "$work/data" --batch 44 --epochs 1.997 --seed 3)   # 1,000 = 22 x 44 + 32; 1,997 ends with a reduction block of one
same short "${epochs[@]}"
same shorter "${epochs[@]}" --local 5 --separate 1 --shares 4,4,4,28,4
same shortest "${epochs[@]}" --local 3 --shares equal --separate off

# Nodes that are killed in the middle: what they had not finished is done by others, in the same rounds. Rows that the head had
# of them are answered again, not trained again.
first=whole
momentum=0.9 lr=0.0003
middle=(--data "$work/data" --deterministic --batch 48 --steps 40
    --lr $lr --momentum $momentum --weight-decay 0.0001)
same whole "${middle[@]}" --local 1
check "gradients have died away" awk -v l="$(value train_loss "$work/whole.json")" 'BEGIN { exit !(l > 0.1) }'
killed() {     # killed NAME VICTIMS HEAD [OWNERS [EXCHANGE]]: of four nodes those die, one after the other
    local name=$1 victims=$2 owners=${4:+shards $4} exchange=${5:+exchange $5} rank
    printf '%s\n' 'sync bsp' 'world 4' 'round 48' 'deterministic 1' "lr $lr" "momentum $momentum" 'decay 0.0001' "head $3" \
        'group 0 owner 0 workers 0:16 1:8 2:12 3:12' ${owners:+"$owners"} ${exchange:+"$exchange"} >"$work/plan"
    free_port
    rm -f "$work"/?.log
    for rank in 0 1 2 3; do   # without looks: a node that is lost at one owes nothing, since there nothing is out
        start $rank "${middle[@]}" --world 4 --coordinator 127.0.0.1:$port --plan "$work/plan" --slow 100 --eval-every 0 --progress on \
            --save "$work/$name" --report "$work/$name.json"
    done
    says "$work/0.log" 'epoch .*images/s' "$name"
    for rank in $victims; do
        kill -KILL "${nodes[rank]}"
        says "$work/0.log" "rank $rank was lost" "$name"
    done
    [ -z "${5:-}" ] || says "$work/0.log" 'the ring has ended' "$name"
    for rank in 0 1 2 3; do
        [[ " $victims " == *" $rank "* ]] && node_ends $rank 137 '' "$name" || node_ends $rank 0 '' "$name"
    done
    check "$name: not $victims lost" grep -q "\"lost\": \[${victims// /, }\]" "$work/$name.json"
    check "$name: nothing was issued again" grep -qE '"samples_again": [1-9]' "$work/$name.json"
    as_first "$name"
}
killed worker-killed 2 none
killed two-killed '3 1' none
killed beside-shards '3 2' none 0,1
killed beside-ring '3 2' none 0,1 ring
killed trunk-killed 2 1
killed trunks-killed '3 2' 1

# An owner of a shard: without momentum nothing is lost with it but weights, which its workers have.
first=plain momentum=0 lr=0.003
middle=(--data "$work/data" --deterministic --batch 48 --steps 40 --lr $lr --momentum $momentum --weight-decay 0.0001)
same plain "${middle[@]}" --local 1
killed owner-killed 2 none 0,1,2
killed ring-owner-killed '1 3' none 0,1,2,3 ring

echelon=$heavy
# Without it the same question has another answer, so the above says something.
expect 0 '^  speed ' "${rounds[@]}" --progress off --save "$work/fast"
check "without --deterministic the same bits" eval '! cmp -s "$work/alone" "$work/fast"'

# --- what does not go with it
refuse 2 'give sync bsp' --data "$work/data" --deterministic --sync gssp
refuse 2 'multiple of 4' --data "$work/data" --deterministic --batch 30
refuse 2 'multiples of 4' --data "$work/data" --deterministic --local 2 --shares 30,34
expect 0 '^  speed ' --data "$work/data" --local 2 --deterministic --batch 32 --steps 2 --save-plan "$work/plan"
expect 0 '^  speed ' --data "$work/data" --local 2 --deterministic --plan "$work/plan" --steps 2
refuse 2 'for --deterministic: start every node with it' --data "$work/data" --local 2 --plan "$work/plan" --steps 2
sed -i '/^deterministic/d' "$work/plan"
refuse 2 'without --deterministic: start every node without it' --data "$work/data" --local 2 --deterministic --plan "$work/plan" --steps 2

# --- all nodes, or none
free_port
start 0 --data "$work/data" --world 2 --coordinator 127.0.0.1:$port --deterministic --steps 2
start 1 --data "$work/data" --world 2 --coordinator 127.0.0.1:$port --steps 2
node_ends 1 '[1-9][0-9]*' '--deterministic.*as fast as|as fast as.*--deterministic' "one node without --deterministic"
kill "${nodes[0]}" 2>/dev/null
node_ends 0 '.*' '' "one node without --deterministic"

verdict deterministic
