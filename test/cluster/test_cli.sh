#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The `echelon` command as a user meets it: exit statuses, one clear sentence for each mistake, and runs that end in order whatever
# happens to their nodes.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "the threads are those of test_liveness.sh and test_lost_node.sh, which run here"
expect() { ends_with "$@"; }   # here of any command
idx_set "$work/data" 2000 100
pictures=(--data "$work/data")   # opened in no time: glyphs are drawn before most options are looked at
# The same for what must fail before anything starts: one line, no more.
refuse() {
    expect "$@"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || bad "not one line: echelon ${*:3}"
}

# --- words
expect 0 '^echelon [0-9]+\.[0-9]+\.[0-9]+$' --version
expect 0 'usage: echelon train' help
expect 0 'echelon sim --data' help
expect 0 'echelon doctor' help
expect 2 'usage: echelon train'
expect 2 "no command 'tarin'; did you mean train" tarin
expect 0 'Exit status:' train --help
expect 0 'Exit status:' train --world 7 --help
grep -q '^Others:' "$work/out" && bad "an option is in no section of --help"
cp "$work/out" "$work/train-help"
expect 0 'Exit status:' sim --help
grep -q '^Others:' "$work/out" && bad "an option is in no section of sim's --help"
cp "$work/out" "$work/sim-help"
expect 0 'Exit status:' plan --help
grep -q '^Others:' "$work/out" && bad "an option is in no section of plan's --help"
cp "$work/out" "$work/plan-help"
expect 0 'Exit status:' doctor --help
grep -q '^Others:' "$work/out" && bad "an option is in no section of doctor's --help"
cat "$work/out" "$work/sim-help" "$work/plan-help" "$work/train-help" |
    grep -oE '^  --[a-z0-9-]+' | tr -d ' ' | sort -u >"$work/help-options"
awk 'after == ".TP" && $2 ~ /^\\-\\-/ { gsub(/\\/, "", $2); print $2 } { after = $0 }' "$root/tools/echelon.1" | sort >"$work/man-options"
diff "$work/help-options" "$work/man-options" >"$work/out" || bad "--help (<) and the man page (>) list different options"
"$echelon" train --help >/dev/full 2>/dev/null && bad "a full disk behind stdout is not noticed"

# --- a model as a table, and as a file that is the same model
expect 0 '^total +11183562 ' model resnet18
expect 0 '^fc out 10$' model lenet5 --text
cp "$work/out" "$work/model" && expect 0 '^conv2d out 16 kernel 5' model "$work/model" --text
cmp -s "$work/out" "$work/model" || bad "the text of a model is another model"
expect 0 'usage: echelon model' model --help
expect 2 'usage: echelon model' model
refuse 2 "'--txet' is too much" model lenet5 --txet
refuse '1[0-9]' "'nope' is no built-in model.*lenet5, resnet18, vgg19" model nope
"$echelon" model vgg19 >/dev/full 2>/dev/null && bad "a full disk behind stdout is not noticed"

# --- which kernels compute, and why those
printf '%s\n' 'input 1 28 28' 'conv2d out 16 kernel 3 pad 1' 'conv2d out 16 kernel 3 pad 1' 'fc out 10' >"$work/model"
expect 0 'kernels: trunk, conv1: conv .*directly: points are for 16 channels' train "${pictures[@]}" --steps 1 --eval-every 0 \
    --model "$work/model" --verbose
grep -qE 'kernels: trunk, conv2: conv .*F\(2x2\) [0-9.]+, F\(4x4\) [0-9.]+ of direct sums' "$work/err" || bad "no reasons for conv2"
grep -qE 'kernels: evaluation: [0-9.]+ MiB' "$work/err" || bad "no memory of what evaluates"
grep -qE 'kernels: trunk, conv2: .*; turns [1-9][0-9.]+ KiB a sample$' "$work/err" || bad "no word of what conv2 turns"
grep -qE 'kernels: trunk: .*of a sample 3\.1 KiB change their layout at the border, [1-9][0-9.]+ KiB inside$' "$work/err" ||
    bad "no sum of the conversions"

# --- usage
refuse 2 '--data is missing.*get-data mnist.*glyphs' train
refuse 2 'no option --dtaa; did you mean --data' train --dtaa x
refuse 2 'no option --epoch=?.*did you mean --epochs' train --epoch=3
# What other trainers call it.
for pair in learning-rate:lr bs:batch batch-size:batch batch_size:batch wd:weight-decay nodes:local np:local nproc_per_node:local \
    world-size:world num-epochs:epochs scheduler:schedule milestones:lr-steps master-addr:coordinator dtype:precision data-dir:data; do
    refuse 2 "no option --${pair%:*}; did you mean --${pair#*:}\?" train --"${pair%:*}" 3
done
refuse 2 'no option --nodes; did you mean --workers' sim --nodes 3
refuse 2 'no option --nodes; did you mean --world' doctor --nodes 3
refuse 2 "'glyphs' is no option; options begin with --" train glyphs
refuse 2 "'old' is no option; --resume takes no value" train "${pictures[@]}" --resume old
refuse 2 'schedule is step, but lr-steps is missing' train "${pictures[@]}" --schedule step
refuse 2 'warmup 3 is as long as the run.*2 epochs.*schedule cosine' train "${pictures[@]}" --epochs 2 --schedule cosine --warmup 3
refuse 2 'momentum is 0.9, but optimizer is adam' train "${pictures[@]}" --optimizer adam --momentum 0.9
refuse 2 'beta2 is given, but optimizer is sgd' train "${pictures[@]}" --beta2 0.9
refuse 2 "epsilon is '0': give a number from 1e-12 to 1" train "${pictures[@]}" --optimizer adam --epsilon 0
refuse 2 '--batch needs a value' train --batch
refuse 2 'rank.*1024.*0 to 1023' train "${pictures[@]}" --rank 1024
refuse 2 'rank is 2.*world is 2' train "${pictures[@]}" --rank 2 --world 2 --coordinator 127.0.0.1:1
refuse 2 'coordinator is missing' train "${pictures[@]}" --world 2
refuse 2 'sync.*bsp, asp, ssp, gssp, local or auto' train "${pictures[@]}" --sync fast
refuse 2 'separate.*layer relu1 of model lenet5.*it has no parameters.*conv2' train "${pictures[@]}" --separate 2
refuse 2 'lr.*nan.*number' train "${pictures[@]}" --lr nan
refuse 2 'samples-per-step' train "${pictures[@]}" --samples-per-step 8
refuse 2 '--local.*from 1 to 64' train "${pictures[@]}" --local 65
refuse 2 '--world 65.*1 to 64 nodes' train "${pictures[@]}" --world 65 --rank 0 --coordinator 127.0.0.1:0
refuse 2 'leave out --rank' train "${pictures[@]}" --local 2 --world 2
refuse 2 'names rank 4' train "${pictures[@]}" --local 4 --slow 4=2
refuse 2 "slow '3:4'|slow.*3:4" train "${pictures[@]}" --local 4 --slow 3:4
refuse 2 "slow.*0\.5.*1 to" train "${pictures[@]}" --local 4 --slow 1=0.5
refuse 2 'shares has 3 numbers for 4 nodes' train "${pictures[@]}" --local 4 --batch 60 --shares 20,20,20
refuse 2 'every is given, but checkpoint is missing' train "${pictures[@]}" --every 50
refuse 2 'keep is given, but checkpoint is missing' train "${pictures[@]}" --keep 2
refuse 2 'resume is on, but checkpoint is missing' train "${pictures[@]}" --resume
refuse 2 '--progress.*auto, on or off' train "${pictures[@]}" --progress maybe
ECH_RNAK=1 refuse 2 'ECH_RNAK, which is no option' train "${pictures[@]}"
ECH_BATCH=many refuse 2 'ECH_BATCH.*many.*whole number' train "${pictures[@]}"
ECH_INSTALL=0 refuse 2 '--data is missing' train

# --- files
refuse 13 "$work/nowhere" train --data "$work/nowhere"
refuse 13 '--report .*its folder is not there' train "${pictures[@]}" --report "$work/nowhere/r.json"
refuse 13 '--curve .*its folder is not there' train "${pictures[@]}" --curve "$work/nowhere/c.csv"
refuse 13 '--save .*it is a folder' train "${pictures[@]}" --save "$work"
expect '1[34]' "$work/no.model|no.model" train "${pictures[@]}" --model "$work/no.model" 2>/dev/null

# --- a run
expect 0 '^  accuracy ' train --data glyphs --steps 20 --report "$work/one.json" --progress off
grep -q '^  "steps": 20,$' "$work/one.json" || bad "one.json has no 20 steps"
expect 0 'group 0' train "${pictures[@]}" --local 4 --slow 3=4 --sync=gssp --steps 20 --report "$work/four.json" \
    --save "$work/four.safetensors" --eval-every 500 --curve "$work/four.csv"
[ "$(awk -F, 'NR == 1 || ($1 > last && $3 >= 0 && $5 >= 0 && $5 <= 1 && NF == 5) { last = NR > 1 ? $1 : 0; good++ }
    END { print (good == NR && NR > 2) }' "$work/four.csv")" = 1 ] ||
    bad "four.csv is not a line for each evaluation: $(cat "$work/four.csv")"
grep -q '^  "world": 4,$' "$work/four.json" || bad "four.json has no world of 4"
[ -s "$work/four.safetensors" ] || bad "--save wrote nothing"
expect 26 'not reached' train "${pictures[@]}" --steps 2 --target-accuracy 1 --progress off
expect 21 'rank|lr|loss' train "${pictures[@]}" --steps 200 --lr 1000 --weight-decay 1 --progress off --save "$work/diverged"
[ ! -e "$work/diverged" ] || bad "a diverged run saved its weights"

# --- nodes that do not come, and places that are taken
free_port
expect 17 'rank 1' train "${pictures[@]}" --world 2 --rank 0 --coordinator "127.0.0.1:$port" --join-timeout 2
free_port
expect 17 "127.0.0.1:$port" train "${pictures[@]}" --world 2 --rank 1 --coordinator "127.0.0.1:$port" --join-timeout 2
start 0 "${pictures[@]}" --world 2 --coordinator "127.0.0.1:$port"
await listens "$port"
refuse 20 "$port" train "${pictures[@]}" --world 2 --rank 0 --coordinator "127.0.0.1:$port"
kill "${nodes[0]}"
node_ends 0 22 'stopped while waiting' "told to end while it waits"

# --- nodes that end early. A long run in the background; children are its nodes in order of rank.
background() {
    rm -f "$work/err"
    "$echelon" train --data "$work/data" --epochs 100000 --eval-every 0 --progress on "$@" >"$work/out" 2>"$work/err" &
    run=$!
}
children() {   # children N: the run's N nodes into nodes, when all have started
    mapfile -t nodes < <(awk -v parent="$run" '$4 == parent { print $1 }' /proc/[0-9]*/stat 2>/dev/null | sort -n)
    [ ${#nodes[@]} = "$1" ]
}
gone() { [ ! -e "/proc/$1" ] || awk '{ exit $3 != "Z" }' "/proc/$1/stat" 2>/dev/null; }   # one that nobody has waited for yet (Z) has ended
run_ends() {   # run_ends STATUS PATTERN WHAT: the background run ends so, and then its nodes
    local node
    ended $run
    [[ $status =~ ^($1)$ ]] || bad "$3: status $status, not $1"
    [ -z "$2" ] || grep -qE -e "$2" "$work/err" || bad "$3: does not say '$2'"
    for node in "${nodes[@]}"; do await gone "$node"; done
    nodes=() run=
}
started() {
    await children "$1"
    says "$work/err" 'epoch .*images/s' "a run with --local"
}
background --local 3
started 3
kill -KILL "${nodes[0]}"   # (the others can be done without: test_lost_node.sh)
run_ends '18|137' 'rank 0' "rank 0 killed in mid-run"
background --local 3 --save "$work/stopped"
started 3
kill -TERM $run
run_ends 22 'stop' "the command told to end"
background --local 3
started 3
kill -KILL $run
run_ends 137 '' "the command killed"

verdict cli
