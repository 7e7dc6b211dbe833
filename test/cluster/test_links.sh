#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `echelon doctor --links` on hosts of which one has a thin link (tools/testbed): each pair is measured, and the thin host named.
. "$(dirname "$0")/cluster.bash"
light_if_watched
! under thread || skip "it measures on the threads of a net, which test_doctor and test_net watch"

bed=$root/tools/testbed name=l$(($$ % 1000000))
down() { [ "$BASHPID" != $$ ] || "$bed" --name "$name" down; }
trap 'down; clean_up' EXIT
"$bed" --name "$name" up 4 --rate 200mbit --rate 2=2mbit 2>"$work/up" || {
    status=$?
    [ $status != 3 ] || skip "$(tail -n 1 "$work/up")"
    cat "$work/up"
    exit 1
}
head -c 32 /dev/urandom >"$work/key"
chmod 600 "$work/key"

measure() {    # measure FILE [--json]: rank 3's table
    local rank
    for rank in 0 1 2 3; do
        "$bed" --name "$name" run $rank "$echelon" doctor --links --rank $rank --world 4 --coordinator 198.18.0.10:7000 --key "$work/key" \
            --join-timeout 120 --deadline 60 "${@:2}" >"$1.$rank" 2>"$work/$rank.log" </dev/null &
        nodes[rank]=$!
    done
    for rank in 0 1 2 3; do node_ends $rank 0 '' "links of hosts"; done
}
measure "$work/text"
# What the others carry is the machine's: where it is busy, one of them may pass for slow as well.
slow='^rank 2 carries [0-9.]+ Mb/s at most, the others [0-9.]+ Mb/s( \(and [12] more such hosts?\))?: '
for rank in 0 1 2 3; do
    grep -qE "$slow" "$work/text.$rank" || bad "rank $rank does not name the thin host: $(cat "$work/text.$rank")"
done
measure "$work/json" --json
grep -qE '^  "slow": "rank 2 carries ' "$work/json.3" || bad "JSON does not name it: $(cat "$work/json.3")"
# What a shaper lets through is an upper bound of what is measured, but for its burst; the way down is the machine's.
rate='"bytes_per_second": ([0-9.e+]+)' trip='"round_trip_seconds": ([0-9.e-]+)'
tr '{' '\n' <"$work/json.3" | sed -nE "s/.*\"from\": ([0-9]), \"to\": ([0-9]), $rate, .*$trip.*/\\1 \\2 \\3 \\4/p" >"$work/cells"
check "not 12 pairs: $(cat "$work/cells")" [ "$(wc -l <"$work/cells")" = 12 ]
awk '{ most = ($1 == 2 || $2 == 2 ? 2e6 : 200e6) / 8 * 1.1; if ($3 > most || $4 <= 0) bad = 1 } END { exit bad }' "$work/cells" ||
    bad "a link carries more than it has: $(cat "$work/cells")"

verdict links
