#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `echelon doctor`: what it finds on a machine where training would begin, and a status and a sentence where it would not; the link between
# two nodes, with a key and without; strangers at its door; a table of three (of hosts with a thin link: test_links.sh).
# make check only: 10 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
! under thread || skip "it measures and answers on the threads of a run, which test_every_kind.sh starts, and of a net, which" \
    "test_doctor and test_net watch"
doctor() { ends_with "$1" "$2" doctor "${@:3}"; }
shows() { grep -qE -e "$1" "$work/out" || bad "${2:-the page} does not say '$1'"; }   # of the page just printed
json() { sed -nE "s/^  \"$1\": (.*[^,]),?$/\1/p" "$work/out"; }                     # a value of the JSON just printed, on its line

# --- a machine by itself
doctor 0 '^training would begin$'
shows '^  ok    cpu:0 \(this node.s\)'
shows '^ +29 known answers right; copies to it [0-9.]+ GB/s, from it [0-9.]+ GB/s; products [0-9.]+ billion'
shows 'libcuda.so.1: ' && shows 'libOpenCL.so.1: '
shows '  lo 127\.0\.0\.1'
shows '^  ok    lenet5, batch 64: 64 samples a step here; [0-9]+ images/s'
[ ! -s "$work/err" ] || bad "a good machine: something on stderr"
[ "$(wc -l <"$work/out")" -le 40 ] || bad "more than a page"

# A doctor looks at every device: OpenCL on the processor computes its known answers for a second, and is not seen but where this is undone.
export OCL_ICD_VENDORS=$work/none

# --- JSON says the same, and is JSON where somebody can tell
printf '%s\n' 'input 3 20 20' 'conv2d out 16 kernel 3 pad 1' 'batch_norm' 'relu' 'max_pool kernel 2' 'fc out 3000' 'relu' 'fc out 10' \
    >"$work/some.model"
free_port
doctor 0 '^  "ok": true,$' --json --model "$work/some.model" --batch 16 --shares equal --world 4 --coordinator 127.0.0.1:$port
json port | grep -q "\"address\": \"127.0.0.1:$port\", \"ok\": true" || bad "the port: $(json port)"
json memory | grep -q '"model": "some.model", "batch": 16, "samples_per_step": 4, ' || bad "the memory: $(json memory)"
json interfaces | grep -q '"address": "127.0.0.1", "loopback": true, "used": "--coordinator names it"' ||
    bad "the interface: $(json interfaces)"
total=$(json memory | sed -n 's/.*"total": \([0-9]*\),.*/\1/p')
parts=$(json memory | grep -oE '"(weights|gradients|optimizer|rows|activations)": [0-9]+' | awk '{ sum += $2 } END { printf "%.0f", sum }')
check "$total bytes are not the sum of their parts, $parts" [ "$total" = "$parts" ]
check "a copy of these weights is 19 MB, and a run on rank 0 has at least five: $total bytes" [ "${total:-0}" -gt 96000000 ]
if command -v python3 >/dev/null; then check "no JSON" python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/out"; fi

# --- what would fail: the status is the run's
free_port
"$echelon" doctor --listen --coordinator "127.0.0.1:$port" 2>"$work/9.log" &
nodes[9]=$!
up() { says "$work/9.log" "listening at 127.0.0.1:$port" "--listen"; }
up
doctor 20 '^training would fail: .*the port is in use' --world 2 --coordinator "127.0.0.1:$port"
shows '^  BAD   not free$'
if ! under address && ! under thread; then
    printf '%s\n' 'input 1 28 28' 'fc out 30000' 'fc out 30000' 'fc out 10' >"$work/wide.model"
    before=$failures
    (
        ulimit -v 2000000
        doctor 12 '^training would fail: no memory for 3695520040 bytes of weights' --model "$work/wide.model"
        grep -qE '^  BAD   wide.model' "$work/out" || bad "not said of the memory"
        doctor 12 '"ok": false,$' --json --model "$work/wide.model"
        exit $((failures - before))
    ) || failures=$((failures + $?))
fi
doctor 17 '^  "link": .*"ok": false, "trouble": "no listener at 127\.0\.0\.1:1 .* there, or correct --coordinator"' --json \
    --world 2 --rank 1 --coordinator 127.0.0.1:1 --join-timeout 1
doctor 2 'training would fail: .*leads off this machine: give --key' --world 2 --rank 1 --coordinator 203.0.113.9:7000 --join-timeout 1
doctor 2 'training would fail: .*no address of this machine' --world 2 --coordinator 203.0.113.9:7000 --insecure
doctor '2|16' "training would fail: .*device 'cpu:7'" --device cpu:7
unset OCL_ICD_VENDORS
doctor 0 '^  ok    (cpu:0|cuda:[0-9]+|opencl:[0-9]+) \(this node.s\)' --device auto
if grep -qE '^  ok    opencl:0' "$work/out"; then doctor 16 'training would fail: --slow .*give --device cpu' --device opencl --slow 2; fi
export OCL_ICD_VENDORS=$work/none

# --- words
refuse_doctor() {
    ends_with "$1" "$2" doctor "${@:3}"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || bad "not one line: echelon doctor ${*:3}"
}
doctor 0 'Exit status:' --help
shows '^  --json ' && shows '^  --listen ' && shows '^  --links '
refuse_doctor 2 'echelon doctor has no --local' --local 2
refuse_doctor 2 'echelon doctor has no --hosts' --hosts x
refuse_doctor 2 'no option --jsno; did you mean --json' --jsno
refuse_doctor 13 "$work/nowhere" --data "$work/nowhere"
refuse_doctor 2 'batch' --batch many
refuse_doctor 2 'an address that the other nodes can name' --listen
refuse_doctor 2 'an address that the other nodes can name' --listen --coordinator 127.0.0.1:0
refuse_doctor 20 'the port is in use' --listen --coordinator "127.0.0.1:$port"
refuse_doctor 2 'leads off this machine: give --key' --listen --coordinator "0.0.0.0:$port"
refuse_doctor 2 '--links measures between nodes: give --world' --links
refuse_doctor 2 'option coordinator is missing' --links --world 3
refuse_doctor 17 'no link was measured: no coordinator at 127\.0\.0\.1:1 ' --links --world 3 --rank 1 --coordinator 127.0.0.1:1 \
    --join-timeout 1
refuse_doctor 2 'no link was measured: .*leads off this machine: give --key' --links --world 2 --coordinator "0.0.0.0:$port"
ends_with 2 'echelon train has no --json: --report' train --data glyphs --json
ends_with 2 'echelon train has no --links: .echelon doctor.' train --data glyphs --links
"$echelon" doctor --help >/dev/full 2>/dev/null && bad "a full disk behind stdout is not noticed"

# --- a link: twice, so the listener is there for the next one, too; strangers between them
link() {       # link WHAT ARGUMENT...
    doctor 0 '"ok": true,$' --json --world 2 --rank 1 --coordinator "127.0.0.1:$port" --join-timeout 60 "${@:2}"
    rates='"out_bytes_per_second": [0-9.e+]+, "in_bytes_per_second": [0-9.e+]+'
    for way in out in; do rates+=", \"${way}_highest_bytes_per_second\": [0-9.e+]+"; done
    json link | grep -qE "\"round_trip_seconds\": [0-9.e-]+, $rates, \"clock_offset_seconds\": -?[0-9.e-]+, " ||
        bad "$1: $(json link)"
    # One clock: it is ahead of itself by no more than what the measurement says it may be wrong by.
    check "$1: the clock of this machine is ahead of itself: $(json link)" awk -v line="$(json link)" 'BEGIN {
        match(line, /"clock_offset_seconds": [^,]*/); offset = substr(line, RSTART + 24, RLENGTH - 24) + 0
        match(line, /"clock_offset_within_seconds": [^,]*/); within = substr(line, RSTART + 31, RLENGTH - 31) + 0
        exit !(within > 0 && within < 1 && offset <= 1.05 * within && offset >= -1.05 * within) }'
}
link "a link"
for _ in 1 2 3; do head -c 3000 /dev/urandom >"/dev/tcp/127.0.0.1/$port" 2>/dev/null || :; done
(exec 3<>"/dev/tcp/127.0.0.1/$port"; sleep 1) 2>/dev/null &   # somebody who says nothing
link "a link behind strangers"
# a run's node that calls here
bars "$work/data" 2 1
expect '1[0-9]' 'membership|model|fit|ended the join' --data "$work/data" --world 2 --rank 1 --coordinator "127.0.0.1:$port" \
    --join-timeout 60
stop_listening() {
    kill -INT "${nodes[9]}"
    ended "${nodes[9]}"
    unset 'nodes[9]'
    check "--listen ended with $status, not 0" [ "$status" = 0 ]
}
stop_listening
check "--listen served $(grep -c 'a node was served' "$work/9.log") nodes, not 2" [ "$(grep -c 'a node was served' "$work/9.log")" = 2 ]

# --- with a key; with another
head -c 32 /dev/urandom >"$work/key" && head -c 32 /dev/urandom >"$work/other" && chmod 600 "$work/key" "$work/other"
free_port
"$echelon" doctor --listen --coordinator "127.0.0.1:$port" --key "$work/key" 2>"$work/9.log" &
nodes[9]=$!
up
link "a link with a key" --key "$work/key"
doctor 19 'training would fail: .*another key' --world 2 --rank 1 --coordinator "127.0.0.1:$port" --key "$work/other" --join-timeout 60
doctor 19 'training would fail: .*--key' --world 2 --rank 1 --coordinator "127.0.0.1:$port" --join-timeout 60
stop_listening

# --- a table of three nodes, with a stranger among them who has no key; all get the same
free_port
table() {      # table OUTPUT RANK ARGUMENT...
    "$echelon" doctor --links --world 3 --rank "$2" --coordinator "127.0.0.1:$port" --key "$work/key" --join-timeout 60 "${@:3}" \
        >"$work/$1" 2>"$work/$1.log" &
    nodes[$2]=$!
}
all_end() { for rank in 0 1 2; do node_ends $rank 0 '' "$1"; done; }
cells() { tr '{' '\n' <"$work/$1" | grep '"from"'; }
for rank in 0 1 2; do : >"$work/$rank.log"; done
table table.0 0 --json
says "$work/table.0.log" "listening at 127.0.0.1:$port" "--links"
doctor 19 'no link was measured: .*another key' --links --world 3 --rank 1 --coordinator "127.0.0.1:$port" --key "$work/other" \
    --join-timeout 60
table table.1 1 --json
table table.2 2
all_end "a table"
check "rank 0: $(head -c 300 "$work/table.0")" grep -q '^  "ok": true,$' "$work/table.0"
check "rank 1 has another table" [ "$(cells table.0)" = "$(cells table.1)" ]
rates='"bytes_per_second": [0-9.e+]+, "highest_bytes_per_second": [0-9.e+]+, "round_trip_seconds": [0-9.e-]+'
for pair in '0, "to": 1' '0, "to": 2' '1, "to": 0' '1, "to": 2' '2, "to": 0' '2, "to": 1'; do
    cells table.0 | grep -qE "\"from\": $pair, $rates" ||
        bad "no link of $pair: $(cells table.0)"
done
check "there are $(cells table.0 | wc -l) pairs" [ "$(cells table.0 | wc -l)" = 6 ]
for line in 'links of 3 nodes, seen by rank 2' '^Mb/s$' '^round trip, ms$' '^  from . to +0 +1 +2$' '^ +0 +[0-9.]+ +[0-9.]+$'; do
    grep -qE "$line" "$work/table.2" || bad "the table does not say '$line': $(cat "$work/table.2")"
done
if command -v python3 >/dev/null; then check "no JSON" python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/table.0"; fi

# --- a run that waits for its nodes is not disturbed
free_port
start 0 --data "$work/data" --world 2 --coordinator "127.0.0.1:$port" --steps 3
await listens "$port"
doctor 19 'training would fail: .*doctor --listen' --world 2 --rank 1 --coordinator "127.0.0.1:$port" --join-timeout 60
doctor 19 'no link was measured: ' --links --world 2 --rank 1 --coordinator "127.0.0.1:$port" --join-timeout 60
start 1 --data "$work/data" --world 2 --coordinator "127.0.0.1:$port" --steps 3
node_ends 0 0 '' "a run that was looked at"
node_ends 1 0 '' "a run that was looked at"

verdict doctor
