#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The node that trains the separated layers is killed: its shadow goes on with them (PROTOCOL.md, "The head's shadow"), every sample counts
# once, and under BSP the weights are those of one node.
. "$(dirname "$0")/lost.bash"

plain=(--data "$work/data" --batch 64 --lr 0.02 --momentum 0.9 --weight-decay 0 --eval-every 0)
printf '%s\n' 'sync bsp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0.9' 'decay 0' 'head 2' 'shadow 1' \
    'group 0 owner 0 workers 0:16 1:16 2:16 3:16' >"$work/bsp"
printf '%s\n' 'sync gssp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0.9' 'decay 0' 'head 3' 'shadow 2' \
    'group 0 owner 1 workers 0:16 1:16' 'group 1 owner 3 workers 2:16 3:16' >"$work/gssp"

loses() {      # loses PLAN VICTIM WHAT ARGUMENT...: samples into $samples
    local victim=$2 what=$3
    samples=$((2000 * 4 * epochs))
    rm -f "$work/report"
    begin "${plain[@]}" --epochs $((4 * epochs)) --slow $((slow / 2)) --report "$work/report" --plan "$1" "${@:4}"
    sleep "0.$((RANDOM % 8))"
    kill -KILL "${nodes[victim]}"
    for rank in 0 1 2 3; do [ $rank = "$victim" ] || node_ends $rank 0 '' "kill -9 of $what"; done
    says "$work/0.log" "rank $victim was lost" "kill -9 of $what"
    check "kill -9 of $what: not $samples samples" grep -q "\"samples\": $samples," "$work/report"
    check "kill -9 of $what: not rank $victim is lost" grep -q "\"lost\": \[$victim\]" "$work/report"
    ended "${nodes[victim]}"
}

loses "$work/bsp" 2 "the head under bsp" --save "$work/saved"
says "$work/0.log" 'trained by their shadow, rank 1' "kill -9 of the head under bsp"
check "the report names another head" grep -qE '"head": \[?1' "$work/report"
expect 0 '^  speed ' "${plain[@]}" --epochs $((4 * epochs)) --save "$work/alone"
far=$(apart "$work/saved" "$work/alone")
check "kill -9 of the head under bsp: weights $far from one node's" is_within "$far" 1e-3

loses "$work/gssp" 3 "the head under gssp, which owns a group"
says "$work/0.log" 'trained by their shadow, rank 2' "kill -9 of the head under gssp"

loses "$work/bsp" 1 "the shadow"
says "$work/0.log" 'the head, rank 2, has no shadow any more' "kill -9 of the shadow"

# Another shadow is made while the run goes, so the head that the first one has become may be lost as well.
loses_twice() {   # loses_twice PLAN FIRST SECOND WHAT ARGUMENT...
    local first=$2 second=$3 what=$4 third
    samples=$((2000 * 8 * epochs))
    rm -f "$work/report"
    begin "${plain[@]}" --epochs $((8 * epochs)) --slow 8 --verbose --report "$work/report" --plan "$1" "${@:5}"
    kill -KILL "${nodes[first]}"
    says "$work/0.log" "is the shadow of the head, rank $second, from now on" "$what: no other shadow"
    third=$(sed -n "s/.*rank \([0-9]\) is the shadow of the head, rank $second, from now on.*/\1/p" "$work/0.log")
    kill -KILL "${nodes[second]}"
    for rank in 0 1 2 3; do [ $rank = "$first" ] || [ $rank = "$second" ] || node_ends $rank 0 '' "$what"; done
    says "$work/0.log" "trained by their shadow, rank $third" "$what: the second loss"
    check "$what: not $samples samples" grep -q "\"samples\": $samples," "$work/report"
    check "$what: not both are lost" grep -q "\"lost\": \[$first, $second\]" "$work/report"
    check "$what: no shadow was counted" grep -qE '"shadows_made": [1-9]' "$work/report"
    ended "${nodes[first]}"
    ended "${nodes[second]}"
}

loses_twice "$work/bsp" 2 1 "two heads lost under bsp" --save "$work/saved"
expect 0 '^  speed ' "${plain[@]}" --epochs $((8 * epochs)) --save "$work/alone"
far=$(apart "$work/saved" "$work/alone")
check "two heads lost under bsp: weights $far from one node's" is_within "$far" 1e-3
loses_twice "$work/gssp" 3 2 "two heads lost under gssp"

# The planner's: neither is rank 0, and rank 0 owns what else no run outlives the loss of.
expect 0 'is the head.s shadow' "${plain[@]}" --local 3 --steps 3 --separate 1 --shadow --verbose
verdict "lost head"
