#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Links that fall silent, without a reset, between nodes that both reach rank 0: the run goes on without the node whose loss it
# outlives, within the deadline, whoever complains first; nobody else is lost, and the one that is left out says why it was.
. "$(dirname "$0")/cluster.bash"
light_if_watched

bed=$root/tools/testbed name=c$(($$ % 1000000))
down() { [ "$BASHPID" != $$ ] || "$bed" --name "$name" down; }
trap 'down; clean_up' EXIT
"$bed" --name "$name" up 4 2>"$work/up" || {
    status=$?
    [ $status != 3 ] || skip "$(tail -n 1 "$work/up")"
    cat "$work/up"
    exit 1
}
idx_set "$work/data" 2000 100
head -c 32 /dev/urandom >"$work/key"
chmod 600 "$work/key"
# Rank 1 owns all that the others train: its loss, like rank 0's, would end the run.
printf '%s\n' 'sync ssp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0.5' 'decay 0' 'staleness 3' 'head none' \
    'group 0 owner 1 workers 0:16 1:16 2:16 3:16' >"$work/plan"

begin() {      # four nodes, each on a host, training
    local rank
    rm -f "$work"/?.log "$work/report"
    for rank in 0 1 2 3; do
        "$bed" --name "$name" run $rank "$echelon" train --rank $rank --world 4 --coordinator 198.18.0.10:7000 --key "$work/key" \
            --data "$work/data" --plan "$work/plan" --epochs 100000 --eval-every 0 --deadline 4 --join-timeout 120 --progress on \
            --report "$work/report" >"$work/$rank.log" 2>&1 </dev/null &
        nodes[rank]=$!
    done
    says "$work/0.log" 'epoch .*images/s' "the run begins"
}
cut() { "$bed" --name "$name" cut "$1" "$2"; }
goes_on() {    # goes_on LOST WHAT: the others train, and end in order when they are told to
    local rank before
    says "$work/0.log" "rank $1 was lost \(.*cannot reach.*\): the others go on" "$2"
    node_ends "$1" 18 "was left out of the run: .*rank [12].*cannot reach" "$2"
    before=$(wc -c <"$work/0.log")
    await eval '[ "$(wc -c <"$work/0.log")" -gt $before ]'
    kill -TERM "${nodes[0]}"
    for rank in "${!nodes[@]}"; do node_ends "$rank" 22 'stopped' "$2"; done
    check "$2: others were lost as well: $(value lost)" grep -q "\"lost\": \[$1\]" "$work/report"
    for rank in 0 1 2 3; do "$bed" --name "$name" heal "$1" $rank 2>/dev/null; done
}

begin
cut 1 2
goes_on 2 "the link of a worker to the owner is cut"
begin
cut 3 1
cut 3 2
goes_on 3 "the links of a host to all but rank 0 are cut"
verdict "silent cuts"
