#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A node that is slowed in mid-run joins the slow group, and comes back when it is fast again. Where there is no slow group it has one of
# its own meanwhile. That run is recorded: its moves, and what came of them, are replayed to the same bits.
# That nobody else moves, nor who stands still once, is seen in virtual time (test/unit/test_regroup.c): here, other work of the machine
# may slow any node.
# make check only: it waits for nodes that are slow on purpose; test_sim regroups, too.
. "$(dirname "$0")/cluster.bash"
light_if_watched
idx_set "$work/data" 1000 50

# Two nodes, and two of a quarter of their speed; all of them sleep so long that what a step waits for the processor, where a machine has
# much other work, is little beside it.
# Group 0 is rank 0's, group 1 rank 2's. Under ThreadSanitizer the arithmetic is slower than any sleep, and who waited for the processor
# looks slow.
! under thread || skip "steps are too slow to tell nodes apart by their sleep; its threads are those of test_lost_node.sh and" \
    "test_every_kind.sh, which run here"
slow=40
printf '%s\n' 'sync gssp' 'world 4' 'round 64' 'lr 0.001' 'momentum 0.5' 'decay 0' 'head none' 'group 0 owner 0 workers 0:16 1:16' \
    'group 1 owner 2 workers 2:16 3:16' >"$work/plan"
# All in one group, and a place for who falls behind.
sed -e '/^group 1/d' -e 's/^group 0.*/group 0 owner 0 workers 0:16 1:16 2:16 3:16\nreserve 3/' "$work/plan" >"$work/one"
plan=plan others=4
cluster() {    # cluster ARGUMENT...: all four nodes, which train until they are stopped
    local common
    free_port
    common=(--data "$work/data" --world 4 --coordinator "127.0.0.1:$port" --plan "$work/$plan" --eval-every 0 --epochs 1000000 "$@")
    rm -f "$work/report"
    start 0 "${common[@]}" --slow "$slow" --progress on --report "$work/report" --save "$work/live"
    start 1 "${common[@]}" --slow "$slow"
    start 2 "${common[@]}" --slow $((others * slow))
    start 3 "${common[@]}" --slow $((others * slow))
    says "$work/0.log" 'epoch' "the cluster trains"
}
# Stands still for half a second after every few steps: as under a quota of the processor. Long, so that it is much slower also where
# other work keeps this loop from stopping it again at once. Few: of more than a speed's windows hold (lib/core/planner/speed.c) it would be
# seen at full speed in between.
slowed() {
    while kill -STOP "$1"; do
        sleep 0.5
        kill -CONT "$1"
        sleep 0.05
    done 2>/dev/null
}
stop_cluster() {   # stop_cluster WHAT: in order; the report tells of it
    kill -TERM "${nodes[0]}"
    for r in 0 1 2 3; do node_ends $r 22 '' "$1"; done
    check "$1: no report" [ -s "$work/report" ]
}
moves() { grep -c -e 'joins group' -e 'returns to group' "$work/0.log"; }
in_first() { [[ $(value groups) =~ ^\[\[[^]]*$1 ]]; }   # in_first RANK: it was in group 0 at the end

# regrouped THERE BACK ARGUMENT...: rank 1 is slowed until it goes there, and let go until it is back. Where other work of the machine has
# moved another node before, groups are no longer those that the plan made: all begin anew.
moves_of() { grep -qE "rank [$1] (joins|returns to) group" "$work/0.log"; }
is_there() { grep -qF "rank 1 $1" "$work/0.log"; }
is_there_or_over() { is_there "$1" || moves_of 023 || ! runs; }
regrouped() {
    local there=$1 back=$2 try
    shift 2
    for try in 1 2 3 4 5; do
        cluster "$@"
        slowed "${nodes[1]}" &
        run=$!
        await is_there_or_over "$there"
        kill "$run"
        wait "$run" 2>/dev/null
        run=
        kill -CONT "${nodes[1]}"
        ! is_there "$there" || await is_there_or_over "$back"
        moves_of 023 && [ "$try" -lt 5 ] || break
        stop_cluster "begun anew"
        rm -rf "$work/run"
    done
    check "the slowed node does not say '$there'" is_there "$there"
    check "the node at its speed again does not say '$back'" is_there "$back"
}

# --- one that is slow for long goes to the slow ones, and comes back
regrouped 'joins group 1: ' 'joins group 0: '
stop_cluster "moved twice"
check "the report counts $(value regroups) moves of $(moves)" [ "$(value regroups)" = "$(moves)" ]
check "groups at the end: $(value groups)" in_first 1
check "samples were issued again" [ "$(value samples_again)" = 0 ]

# --- one that is slow where all others are alike has a group of its own until it keeps up again; recorded: roles and arithmetic are
# those of the run, the reserve's waking and all
plan=one others=1
regrouped 'joins group 1, the reserve: ' 'returns to group 0: ' --record "$work/run"
stop_cluster "recorded"
check "groups at the end: $(value groups)" in_first 1
check "samples were issued again with a reserve" [ "$(value samples_again)" = 0 ]
ends_with 0 'bit for bit' replay "$work/run" --save "$work/again"
check "other weights" cmp -s "$work/live" "$work/again"
ends_with 0 'the worker of rank 1 joins group 1' replay "$work/run" --show --rank 1
plan=plan others=4

# --- --regroup off: nobody moves
cluster --regroup off
slowed "${nodes[1]}" &
run=$!
sleep 10
kill "$run"
wait "$run" 2>/dev/null
run=
kill -CONT "${nodes[1]}"
stop_cluster "off"
check "moved with --regroup off" [ "$(moves)$(value regroups)" = 00 ]
refuse 2 'regroup is .often.: give auto or off' --regroup often

verdict regroup
