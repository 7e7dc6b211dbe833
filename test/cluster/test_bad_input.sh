#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What users and disks get wrong: one sentence that names the file, option, rank or layer and what to do, a documented
# status; no crash, no hang, no half-written file.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "what is refused starts no threads"
good=$work/good
idx_set "$good" 200 20
outputs=(--save "$work/saved" --report "$work/report")
nothing_written() { check "$1 left a file behind" eval '! ls "$work"/saved* "$work"/report* >/dev/null 2>&1'; }

# --- data. spoilt NAME COMMAND: a copy of the good set in $work/NAME, in which COMMAND ran.
spoilt() {
    rm -rf "${work:?}/$1"
    cp -r "$good" "$work/$1"
    (cd "$work/$1" && eval "$2")
}
images=train-images-idx3-ubyte labels=train-labels-idx1-ubyte
patch() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
data_is() {    # data_is STATUS PATTERN WHAT COMMAND
    spoilt "$3" "$4"
    refuse "$1" "$2" --data "$work/$3" "${outputs[@]}"
}
refuse 13 "nowhere' cannot be listed .*check its name; .*tools/get-data" --data "$work/nowhere"
refuse 13 "$images" --data "$work" --local 3
refuse 13 "$labels' cannot be listed .*it is no folder" --data "$good/$labels"
data_is 13 "t10k-$(cut -d- -f2- <<<$labels).*get-data|t10k-labels" missing 'rm t10k-labels-idx1-ubyte'
data_is 14 "$images" truncated "truncate -s 9000 $images"
data_is 14 "$images" header "truncate -s 7 $images"
data_is 14 "$images" empty ": >$images"
data_is 14 "$images" magic "patch $images 0 '\x1f\x8b\x08\x00'"
data_is 14 "$labels|$images" counts "patch $labels 7 '\xc7'; truncate -s 207 $labels"
data_is 14 "$images" overflow "patch $images 4 '\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff'"
data_is 14 "$images" none "patch $images 4 '\0\0\0\0'"
data_is 14 "$labels.*(label|12)" label "patch $labels 100 '\14'"
data_is '14|15' 't10k-images|28' sides "patch t10k-images-idx3-ubyte 11 '\16\0\0\0\70'"
spoilt folder "rm $images; mkdir $images"
refuse 2 "$images.*is a folder" --data "$work/folder"

# --- models
model_is() {   # model_is STATUS PATTERN LINE...
    printf '%s\n' "${@:3}" >"$work/m.model"
    refuse "$1" "$2" --data "$good" --model "$work/m.model" --local 2 "${outputs[@]}"
}
model_is 14 "m.model:2: 'conv3d' is no layer: did you mean 'conv2d'" 'input 1 28 28' 'conv3d out 6 kernel 5'
model_is 15 'm.model:3.*conv2.*kernel 50' 'input 1 28 28' 'conv2d out 6 kernel 5' 'conv2d out 6 kernel 50' 'fc out 10'
model_is 15 'm.model.*3 x 28 x 28.*1 x 28 x 28' 'input 3 28 28' 'conv2d out 6 kernel 5' 'fc out 10'
model_is 15 'fc1.*5.*10' 'input 1 28 28' 'fc out 5'
model_is 14 "m.model.*input" ''
model_is 14 "m.model:2.*out" 'input 1 28 28' 'fc 10'
model_is '14|15' 'm.model:2.*99999999999' 'input 1 28 28' 'fc out 99999999999'
refuse 13 "'resnet999' is no built-in model.*lenet5" --data "$good" --model resnet999
# Sizes that no machine's memory has are refused by their layer; those that this one has not, before the first step. A limit of the shell
# stands for a machine's; sanitizers need address space of their own.
model_is 15 'm.model:3.*fc2.*parameters' 'input 1 28 28' 'fc out 65536' 'fc out 65536'
if ! under address && ! under thread; then
    printf '%s\n' 'input 1 28 28' 'fc out 30000' 'fc out 30000' 'fc out 10' >"$work/wide.model"
    # little to compute, much to keep
    printf '%s\n' 'input 1 28 28' 'conv2d out 600 kernel 1' 'conv2d out 600 kernel 1' 'fc out 10' >"$work/deep.model"
    before=$failures
    (
        ulimit -v 2000000
        refuse 12 'no memory for 3695520040 bytes of weights' --data "$good" --model "$work/wide.model" "${outputs[@]}"
        refuse 12 'no memory for [0-9]* bytes of .*activations of .* samples; use a smaller' --data "$good" --model "$work/deep.model" \
            --threads 1 --batch 2048 "${outputs[@]}"
        exit $((failures - before))
    ) || failures=$((failures + $?))
fi

# --- weights to start from
expect 0 '^  speed ' --data "$good" --steps 0 --save "$work/lenet5.weights"
head -c 1000 "$work/lenet5.weights" >"$work/cut.weights"
refuse 14 'cut.weights' --data "$good" --init "$work/cut.weights" "${outputs[@]}"
refuse 14 'm.model' --data "$good" --init "$work/m.model"
refuse 13 'no.weights' --data "$good" --init "$work/no.weights"
printf 'input 1 28 28\nfc out 10\n' >"$work/small.model"
refuse 15 'lenet5.weights.*(fc1|conv1)' --data "$good" --model "$work/small.model" --init "$work/lenet5.weights" --local 3 "${outputs[@]}"
nothing_written "a run that could not begin"

# --- plans
plan_is() {    # plan_is STATUS PATTERN SED-EXPRESSION
    sed "$3" >"$work/p.plan" <<'END'
sync bsp
world 2
round 9
lr 0.02
momentum 0.9
decay 0
head none
group 0 owner 1 workers 0:4 1:5
END
    refuse "$1" "$2" --data "$good" --local 2 --plan "$work/p.plan" "${outputs[@]}"
}
refuse 13 'no.plan' --data "$good" --plan "$work/no.plan"
plan_is 14 'p.plan:1.*bsp, asp, ssp, gssp' 's/bsp/fast/'
plan_is 14 "p.plan:8.*'x'" 's/0:4/0:x/'
plan_is 14 'p.plan:8.*already' 's/0:4/1:4/'
plan_is 14 'p.plan.*sum to the round' 's/round 9/round 10/'
plan_is 14 'p.plan.*whole plan' 's/owner 1/owner 2/'
plan_is 14 'p.plan:9.*expected' '$a colour blue'
plan_is 2 'p.plan is a plan for 3 nodes, but the run has 2' 's/world 2/world 3/'
plan_is 14 'p.plan' 's/.*/\x00/'
# Parts and owners: a saved plan, one word of which becomes another.
expect 0 '' --data "$good" --local 3 --shards 3 --shares equal --batch 12 --steps 1 --save-plan "$work/shards.plan"
shards_is() {  # shards_is STATUS PATTERN SED-EXPRESSION
    sed "$3" "$work/shards.plan" >"$work/p.plan"
    refuse "$1" "$2" --data "$good" --local 3 --plan "$work/p.plan" "${outputs[@]}"
}
# Micro-batches: of bsp, with a head.
refuse 2 'micro-batches is 4, but sync is ssp: only bsp cuts steps' --data "$good" --sync ssp --separate 1 --micro-batches 4
refuse 2 'micro-batches is 4, but no layers are separated' --data "$good" --micro-batches 4
refuse 2 "activations is 'fp16': give fp32 or bf16" --data "$good" --separate 1 --activations fp16
refuse 2 'activations is bf16, but no layers are separated' --data "$good" --separate off --activations bf16
refuse 2 'activations is bf16, but no layers are separated' --data "$good" --sync bsp --activations bf16
refuse 2 'activations is bf16, but deterministic gives the same weights from any number of nodes' --data "$good" --separate 1 \
    --deterministic --activations bf16
refuse 2 "micro-batches is '9': give" --data "$good" --separate 1 --micro-batches 9
shards_is 14 'p.plan:[0-9]+: micro_batches is a number from 1 to 8' '/^round /a micro_batches 9'
shards_is 14 'p.plan:[0-9]+: activations is fp32 or bf16' '/^round /a activations fp16'
shards_is 14 'p.plan .*activations bf16 are sent to a head, without deterministic: remove that line' '/^round /a activations bf16'
shards_is 14 'p.plan .*micro_batches are of bsp with a head, without sync_norm: remove that line' '/^round /a micro_batches 3'
at=$(awk '$1 == "part" && $2 == 1 { print $4 }' "$work/shards.plan")   # there are three or more
shards_is 14 'p.plan .*part 2 begins at parameter [0-9]+, but part 1 ends in front of [0-9]+: parts must not overlap' \
    "s/^part 2 at [0-9]*/part 2 at $((at + 1))/"
shards_is 14 "p.plan .*part 1 begins at parameter $((at + 28)): parameters $at to $((at + 27)) are in no part" \
    "s/^part 1 at $at/part 1 at $((at + 28))/"
shards_is 14 'p.plan:[0-9]+: part 2 stands where part 1 belongs' '/^part 1 /d'
count=$(awk '{ n = $6 } END { print n }' "$work/shards.plan")   # of the last part
shards_is 2 'p.plan .*parameters 61705 to 61705 of the model are in no part.*without .part. lines' "$ s/count $count/count $((count - 1))/"
shards_is 14 'p.plan .*shards names rank 7, but the ranks are 0 to 2' 's/^shards .*/shards 0,1,7/'
shards_is 14 'p.plan .*group 0 has owner 7, but the ranks are 0 to 2' 's/^group 0 owner [0-9]/group 0 owner 7/'
shards_is 14 'p.plan .*part [0-9]+ is in shard 5, which has no owner' 's/shard 2$/shard 5/'
shards_is 14 'p.plan .*shard 2, of rank [0-9], has no part: give it one' 's/shard 2$/shard 1/'
printf 'sync bsp\nworld 2\nround 9\nlr 0.02\nmomentum 0.9\ndecay 0\nhead 0\ngroup 0 owner 1 workers 0:4 1:5\n' >"$work/head.plan"
refuse 14 'head.plan is not a whole plan: head 0, but the model has no usual place to cut' --data "$good" --local 2 \
    --plan "$work/head.plan" --model "$work/small.model"
refuse 2 'separate is on, but model small.model has no fully connected layers behind convolutions' \
    --data "$good" --local 2 --separate 1 --model "$work/small.model"

# --- where to write. What was there before stays as it was.
refuse 13 "$work/no/s" --data "$good" --save "$work/no/s"
refuse 13 '/dev/full.*device' --data "$good" --report /dev/full
echo before | tee "$work/saved" >"$work/report"
expect 21 'the loss .*--lr' --data "$good" --lr 1000 --local 3 "${outputs[@]}"
expect 21 'the loss .*--lr' --data "$good" --lr 1000 --local 2 --sync gssp "${outputs[@]}"
[ "$(cat "$work/saved" "$work/report")" = $'before\nbefore' ] || bad "a diverged run wrote over a file"
expect 26 'target-accuracy' --data "$good" --steps 2 --target-accuracy 0.999 "${outputs[@]}"
check "a run that missed its target keeps what it has" [ "$(wc -c <"$work/saved")" -gt 100000 ]
if [ "$(id -u)" != 0 ]; then
    mkdir "$work/locked" && chmod 555 "$work/locked"
    refuse 13 "$work/locked/s" --data "$good" --save "$work/locked/s"
    chmod 0 "$work/locked"
    refuse 13 "locked' cannot be listed .*check its permissions" --data "$work/locked"
fi
# A disk that is full: an empty file system would be needed; a limit on the size of files is met in the same place.
before=$failures
(ulimit -f 50; trap '' XFSZ; expect 13 'saved2' --data "$good" --steps 1 --save "$work/saved2"; exit $((failures - before))) ||
    failures=$((failures + 1))
check "a file that could not be written whole is left" eval '! ls "$work"/saved2* >/dev/null 2>&1'

# --- nodes that do not agree, or are not there
pair() {       # pair STATUS0 PATTERN0 STATUS1 PATTERN1 WHAT [ARGUMENTS OF RANK 1, which may begin with another --rank]
    free_port
    start 0 --data "$good" --world 2 --coordinator "127.0.0.1:$port" --join-timeout 20 --steps 3
    start 1 --data "$good" --world 2 --coordinator "127.0.0.1:$port" --join-timeout 20 --steps 3 "${@:6}"
    node_ends 0 "$1" "$2" "$5"
    node_ends 1 "$3" "$4" "$5"
}
pair 19 'rank 1 has model' 19 'model.*start all nodes' "another model" --model "$work/small.model"
spoilt other "patch $images 5000 x"
pair 19 'rank 1 has data' 19 'data.*start all nodes' "other data" --data "$work/other"
pair 19 'rank 1 has augment crop-flip, seed 1 but rank 0 has augment off' 19 'augment off' "another augmentation" --augment crop-flip
pair 19 'rank 1 has order seed 2 but rank 0 has order seed 1' 19 'order seed' "another seed" --seed 2
pair '17|19' 'rank 1' 19 'started with --world 3' "another world" --world 3
pair 17 'rank 1' 17 "127.0.0.1:1\b.*--coordinator" "a coordinator elsewhere" --coordinator 127.0.0.1:1
expect '2|17' 'nohost.invalid' --data "$good" --world 2 --rank 1 --coordinator nohost.invalid:7000 --join-timeout 2
refuse 2 'no address of this machine' --data "$good" --world 2 --coordinator 203.0.113.9:7000 --join-timeout 2 --insecure
free_port
start 0 --data "$good" --world 3 --coordinator "127.0.0.1:$port" --join-timeout 20
await listens "$port"
refuse 20 "coordinator 127.0.0.1:$port: the port is in use" --data "$good" --world 3 --rank 0 --coordinator "127.0.0.1:$port"
for twin in 1 2; do   # whichever joins first
    "$echelon" train --rank 1 --data "$good" --world 3 --coordinator "127.0.0.1:$port" --join-timeout 60 >"$work/$twin.log" 2>&1 &
    nodes[twin]=$!
done
await grep -qs 'joined' "$work/1.log" "$work/2.log"
twin=$(grep -q joined "$work/1.log"; echo $((1 + $?)))
node_ends "$twin" 19 'rank 1 has joined already' "two of one rank"
node_ends 0 17 'rank 2 did not' "a node that never joins"
node_ends $((3 - twin)) 17 'rank 2' "a node that never joins"
check "garbage at the door" bash -c '
    "$0" train --data "$1" --world 2 --rank 0 --coordinator "127.0.0.1:$2" --steps 3 >"$3/0.log" 2>&1 & first=$!
    until (head -c 5000 /dev/urandom >"/dev/tcp/127.0.0.1/$2") 2>/dev/null; do sleep 0.2; done
    "$0" train --data "$1" --world 2 --rank 1 --coordinator "127.0.0.1:$2" --steps 3 >"$3/1.log" 2>&1 && wait $first
' "$echelon" "$good" $((port += 1)) "$work"

verdict "bad input"
