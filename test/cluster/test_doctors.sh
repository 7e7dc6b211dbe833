#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `echelon plan --doctors`: machines where `echelon doctor --listen` waits are measured and planned for, again and again, whatever becomes
# of whoever asks; and why they cannot be.
# make check only: 4 s of processor time; test_doctor (test/unit) has the same two ends against strangers
. "$(dirname "$0")/cluster.bash"
! under thread || skip "its nodes are those of a run, which test_every_kind.sh starts, and of a net, which test_doctor watches"
light          # for its model: `plan` is none of the commands that get it by themselves
plan() {       # plan STATUS PATTERN ARGUMENT...
    checks=$((checks + 1))
    "$echelon" plan --threads 1 --join-timeout 60 "${@:3}" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status =~ ^($1)$ ]] || { bad "status $status, not $1: echelon plan ${*:3}"; return; }
    grep -qE -e "$2" "$work/out" "$work/err" || bad "does not say '$2': echelon plan ${*:3}"
}
shows() { grep -qE -e "$1" "$work/out" || bad "the plan does not say '$1'"; }
waits() {      # waits RANK ARGUMENT...: a node that waits, at ${at[RANK]}
    free_port
    at[$1]=127.0.0.1:$port
    : >"$work/$1.log"
    "$echelon" doctor --listen --coordinator "${at[$1]}" --threads 1 --join-timeout 60 "${@:2}" 2>"$work/$1.log" &
    nodes[$1]=$!
    says "$work/$1.log" "listening at ${at[$1]}.*or on one: echelon plan --doctors ${at[$1]}" "doctor --listen"
}
served() { [ "$(grep -c 'the plan was made' "$work/$1.log")" = "$2" ] || bad "rank $1 took part in other than $2 plans"; }

at=()
waits 1
waits 2
both=${at[1]},${at[2]}

# --- a plan of three nodes, with a file of it, and with what was measured
plan 0 "^$(basename "$model"), bsp, 3 nodes$" --model "$model" --doctors "$both" --sync bsp --save-plan "$work/plan" --report "$work/report"
shows '^  rank measured +64 samples +alone '
shows '^  0    here +[0-9.]+ ms +[0-9]+ images/s '
shows "^  2    ${at[2]} +[0-9.]+ ms +[0-9]+ images/s "
shows '^  speed +[0-9]+ images/s are predicted$'
grep -q '^world 3$' "$work/plan" || bad "the saved plan is of other than 3 nodes: $(head -n 3 "$work/plan")"
value step_seconds | grep -qE '^\[[0-9.e-]+, [0-9.e-]+, [0-9.e-]+\]$' || bad "not three steps were measured: $(value step_seconds)"
check "something was trained" [ "$(value samples)" = 0 ]
ends_with 0 '3 nodes' explain "$work/report"
plan 0 '^[^ ]+, bsp, 3 nodes$' --model "$model" --doctors "$both" --plan "$work/plan"

# --- all policies where none is named; a model whose text is longer than a frame takes at once
{ echo 'input 1 28 28'; for _ in $(seq 60); do printf '%s\n' 'conv2d out 2 kernel 3 stride 1 pad 1' relu; done; echo 'fc out 10'; } \
    >"$work/deep"
check "the model's text is short" [ "$("$echelon" model "$work/deep" --text | wc -c)" -gt 2000 ]
plan 0 '^\* ' --model "$work/deep" --doctors "$both"
shows '^  bsp |^\* bsp '
for rank in 1 2; do served $rank 3; done

# --- a node that is not there is named at once, and nobody waits for it
free_port
plan 17 "rank 1 is ${at[1]}" --doctors "${at[1]},127.0.0.1:$port" --join-timeout 1
grep -qE "^echelon: 127.0.0.1:$port: no listener at .*: start .echelon doctor --listen --coordinator 127.0.0.1:$port. there, or correct \
--doctors$" "$work/err" || bad "it is not named, with what helps: $(tail -n 1 "$work/err")"
plan 0 ', 2 nodes$' --model "$model" --doctors "${at[1]}"

# --- one that cannot take part says why
waits 3 --device cpu:7
plan 16 "^echelon: ${at[3]}: .*device 'cpu:7'" --doctors "${at[1]},${at[3]}"
says "$work/3.log" "no plan was made: .*device 'cpu:7'" "a node without its device"

# --- whoever asks may be killed, or stopped, in the middle; two may ask at once
for signal in KILL INT; do
    : >"$work/9.log"   # see `start`
    ECH_MEASURE=60 "$echelon" plan --threads 1 --doctors "$both" >"$work/9.log" 2>&1 &
    nodes[9]=$!
    says "$work/9.log" 'all 3 nodes have joined' "a plan"
    kill -$signal "${nodes[9]}"
    ended "${nodes[9]}"
    unset 'nodes[9]'
done
grep -q 'stopped' "$work/9.log" || bad "a plan that is stopped does not say so"
ECH_MEASURE=0.5 "$echelon" plan --threads 1 --model "$model" --doctors "$both" >"$work/9.log" 2>&1 &
nodes[9]=$!
plan 0 ', 3 nodes$' --model "$model" --doctors "$both"
node_ends 9 0 ', 3 nodes$' "a plan beside another"
served 2 5

# --- strangers: with another key, or none; who measures a link is served as before
head -c 32 /dev/urandom >"$work/key" && head -c 32 /dev/urandom >"$work/other" && chmod 600 "$work/key" "$work/other"
waits 4 --key "$work/key"
plan 19 'another key' --doctors "${at[4]}" --key "$work/other"
plan 19 '--key' --doctors "${at[4]}"
plan 0 ', 2 nodes$' --model "$model" --doctors "${at[4]}" --key "$work/key"
ends_with 0 'training would begin' doctor --world 2 --rank 1 --coordinator "${at[1]}"

# --- words
refuse_plan() {
    plan "$@"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || bad "not one line: echelon plan ${*:3}"
}
refuse_plan 2 'give HOST:PORT of each' --doctors "$both,"
refuse_plan 2 'no --hosts: --doctors measures' --doctors "$both" --hosts x
refuse_plan 2 'no --data: the nodes that wait' --data glyphs --doctors="$both"
refuse_plan 2 'leads off this machine: give --key' --doctors 203.0.113.9:7000
unset ECH_MEASURE
ends_with 2 'has no --key without --doctors' plan --workers 2 --key x
ends_with 2 'train has no --doctors' train --data glyphs --doctors "$both"
ends_with 2 'or --doctors HOST:PORT' plan

for rank in 1 2 3 4; do
    kill -INT "${nodes[rank]}"
    node_ends $rank 0 '' "doctor --listen"
done
verdict doctors
