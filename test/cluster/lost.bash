# SPDX-License-Identifier: Apache-2.0
# What the scripts about lost nodes share; sourced: four nodes of one role each, which train until one is lost, and what must hold then.
. "$(dirname "${BASH_SOURCE[0]}")/cluster.bash"
light

plan_of_roles "$work/plan"
role=(coordinator head owner worker)
idx_set "$work/data" 2000 100
slow=$([ -n "${SAN:-}" ] && echo 32 || echo 64)   # they sleep for most of the time
endless=(--data "$work/data" --plan "$work/plan" --epochs 60000 --eval-every 0 --slow $slow)
deadline=10   # seconds, where silence is to end a run: heartbeats come ten times as often, however busy the machine is
epochs=$(under thread && echo 1 || echo 2)   # of 2,000 samples, where a run is to come to its end: seconds

trains() { says "$1" 'epoch .*images/s' "the run begins"; }   # trains LOG
begin() {      # begin ARGUMENT...: four nodes by hand, training
    free_port
    rm -f "$work"/?.log
    for rank in 0 1 2 3; do start $rank --world 4 --coordinator "127.0.0.1:$port" "${endless[@]}" --progress on "$@"; done
    trains "$work/0.log"
}
others() {     # others RANK STATUS PATTERN WHAT: all but that rank end so
    for rank in 0 1 2 3; do [ $rank = "$1" ] || node_ends $rank "$2" "$3" "$4"; done
}

accounts() {   # accounts REPORT SAMPLES LOST WHAT: each sample once, and what it took
    check "$4: not $2 samples" grep -q "\"samples\": $2," "$1"
    check "$4: not $3 lost" grep -q "\"lost\": \[$3\]" "$1"
    check "$4: nothing is issued again" grep -qE '"samples_again": [1-9]' "$1"
}
