#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Owners under BSP that are killed in mid-run. Where each node computes and owns some of the parameters, each death is that of a worker and
# of an owner in one: others take the parts over, on a ring too. Of the only owner the workers keep what the run can be resumed from.
# make check only: 46 s of processor time; test_every_kind.sh has a run of a lost node
. "$(dirname "$0")/lost.bash"

# Any owner of a shard but rank 0, one or two at once, at a moment of chance; the parts go to others, and every sample counts once.
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

verdict "lost owner"
