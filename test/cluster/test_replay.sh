#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Live runs under every policy, recorded and replayed: the roles byte for byte, the trained weights bit for bit. And what a
# recording that does not fit says.
# make check only: 20 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
heavy=$echelon   # which trains LeNet-5
light
! under thread || skip "a replay has one thread; those that record are those of test_every_kind.sh, which runs here"
idx_set "$work/data" 1000 50

replays() { ends_with "$1" "$2" replay "${@:3}"; }
# The same for what is refused: one sentence on stderr, nothing on stdout.
no_replay() {
    replays "$@"
    [ "$(wc -l <"$work/err")" = 1 ] || bad "not one sentence: echelon replay ${*:3}"
    [ ! -s "$work/out" ] || bad "a summary of what was refused: echelon replay ${*:3}"
}
# recorded ARGUMENT...: a run whose recording is in $work/run and whose weights are in $work/live.
recorded() {
    rm -rf "$work/run"
    expect 0 '^  speed ' --data "$work/data" --progress off --record "$work/run" --save "$work/live" "$@"
}

# --- every policy, with head and without, slow nodes, two steps in flight, looks in between
runs=(
    "--local 1 --steps 20"
    "--local 3 --sync bsp --batch 12 --shares 6,6,0 --steps 3"   # an idle rank
    "--local 3 --sync bsp --batch 33 --steps 31 --eval-every 300"
    "--local 3 --sync bsp --batch 33 --steps 31 --separate 1 --slow 1=3"
    "--local 3 --sync bsp --batch 32 --steps 20 --separate 1 --deterministic --slow 1=2"
    "--local 4 --sync bsp --batch 33 --steps 31 --shards 3 --eval-every 300"
    "--local 4 --sync bsp --batch 33 --steps 31 --exchange ring --eval-every 300"
    "--local 4 --sync bsp --batch 32 --steps 20 --exchange ring --deterministic --slow 1=2"
    "--local 4 --sync asp --samples-per-step 7 --epochs 1.5 --slow 3=4"
    "--local 3 --sync asp --separate 1 --epochs 1.2 --eval-every 400"
    "--local 3 --sync ssp --staleness 0 --samples-per-step 16 --epochs 1 --slow 2=4"
    "--local 3 --sync local --samples-per-step 7 --inner-steps 5 --epochs 1.3 --eval-every 300 --slow 1=3"
    "--local 4 --sync gssp --groups 2 --epochs 3 --slow 3=4,2=4"
    "--local 4 --sync gssp --groups 3 --separate off --samples-per-step 9 --epochs 1.3 --slow 1=3 --damping 0.5"
    "--local 2 --sync asp --samples-per-step 16 --epochs 1.5 --augment crop-flip"
    "--local 2 --sync asp --epochs 1 --threads 3"
)
! under address || runs=("${runs[@]:8}")        # the same code: those that do most
for words in "${runs[@]}"; do
    read -ra arguments <<<"$words"
    # Of each way to compute one with layers that are worth their kernels.
    model=$work/light echelon=$work/echelon
    [[ -n "${SAN:-}" || ! $words =~ local\ 1\ |deterministic|threads ]] || model=lenet5 echelon=$heavy
    recorded "${arguments[@]}"
    replays 0 '^  roles .*as recorded$' "$work/run" --roles
    replays 0 '^  arithmetic .*bit for bit$' "$work/run" --save "$work/again"
    check "other weights: $words" cmp -s "$work/live" "$work/again"
    check "other losses, or no sum: $words" grep -q 'sha256 [0-9a-f]\{64\}' "$work/out"
done
model=$work/light echelon=$work/echelon
# Two steps in flight: the planner takes them where a head is far; here a plan asks for them.
recorded --local 3 --sync gssp --groups 2 --steps 4 --save-plan "$work/plan"
sed 's/^flights .*/flights 2/' "$work/plan" >"$work/plan2"
check "the plan has flights" grep -q '^flights 2' "$work/plan2"
recorded --local 3 --plan "$work/plan2" --epochs 2 --slow 1=2
replays 0 'bit for bit' "$work/run" --save "$work/again"
check "other weights with two flights" cmp -s "$work/live" "$work/again"
replays 0 'of flight 1' "$work/run" --show
# Micro-batches, which a head takes in any order.
recorded --local 3 --separate 1 --batch 33 --steps 31 --micro-batches 3 --slow 1=3
replays 0 'bit for bit' "$work/run" --save "$work/again"
check "other weights with micro-batches" cmp -s "$work/live" "$work/again"
replays 0 'backward of flight 0, micro-batch 3 of 3' "$work/run" --show
# Activations in bf16, also those of the head's own worker; of rounds, with a shadow, and of groups.
for words in "--sync bsp --batch 32 --steps 20 --shadow" "--sync gssp --groups 2 --epochs 1"; do
    read -ra arguments <<<"$words"
    recorded --local 3 --separate 1 --activations bf16 "${arguments[@]}"
    replays 0 'bit for bit' "$work/run" --save "$work/again"
    check "other weights with activations in bf16: $words" cmp -s "$work/live" "$work/again"
done
recorded --local 3 --plan "$work/plan2" --epochs 2 --slow 1=2   # again with two flights
# Where its time went: all of it, of each rank.
ends_with 0 '^  rank [0-2] computes the most, .*; rank [0-2] waits the most' explain "$work/run"
check "no speed" grep -qE '^  speed  .* images/s in that time; predicted are [0-9]+ images/s$' "$work/out"
check "no prediction of each rank" test "$(grep -cE '^    predicted +[0-9.]+ %   of its time' "$work/out")" = 3
check "no time of each rank" test "$(grep -c '^  rank [0-2]    .* s from its first task to its last$' "$work/out")" = 3
parts='/^    (computed|waited) / { sum += $2; n++ } END { exit !(n == 6 && sum > 299.5 && sum < 300.5) }'
check "not all time is computed or waited" awk "$parts" "$work/out"
check "rank 1 has a head's wait" grep -q 'waited .*activation_grad from rank' "$work/out"
ends_with 0 '^  rank 1 ' explain "$work/run" --rank 1
check "more than one rank" test "$(grep -c '^  rank' "$work/out")" = 1
ends_with 2 'give a report, or the folder of a recorded run: echelon explain REPORT.DIR' explain
ends_with 2 'there is no option --rnak; did you mean --rank?' explain "$work/run" --rnak 1
ends_with 2 "give a whole number from 0 to 1023" explain "$work/run" --rank x
ends_with 2 'rank 3: the run had 3 nodes' explain "$work/run" --rank 3
ends_with 13 'cannot read' explain "$work/nowhere"
replays 0 "^rank 1 of 3: ${model##*/} on " "$work/run" --show --rank 1
check "--rank shows one" [ "$(grep -c '^rank . of 3' "$work/out")" = 1 ]
check "--show has an end" grep -q '^the end: status 0' "$work/out"

# --- from a file of weights, and from a plan made before; what it needs is where the recording says, or given
cp "$work/live" "$work/first"
recorded --local 3 --sync gssp --init "$work/first" --plan "$work/plan" --steps 8 --seed 5 --no-shuffle --threads 1
replays 0 'bit for bit' "$work/run" --save "$work/again"
check "other weights after --init" cmp -s "$work/live" "$work/again"
mv "$work/first" "$work/moved"
no_replay 1. 'first' "$work/run"
replays 0 'bit for bit' "$work/run" --init "$work/moved" --data "$work/data" --model "$model"
no_replay 1. 'initial weights .*--init' "$work/run" --init "$work/live"
idx_set "$work/other" 999 50
no_replay 1. 'the data differs: recorded .*here .*--data' "$work/run" --init "$work/moved" --data "$work/other"
printf 'input 1 28 28\nfc out 10\n' >"$work/model"
no_replay 1. 'the model differs: recorded .*here .*--model' "$work/run" --init "$work/moved" --model "$work/model"
no_replay 1. "threads differs: recorded '1', here '2'" "$work/run" --init "$work/moved" --threads 2
mv "$work/moved" "$work/first"

# --- checkpoints are no arithmetic; what a run went on from is not in its recording
recorded --local 3 --sync gssp --steps 12 --checkpoint "$work/kept" --every 5
replays 0 'bit for bit' "$work/run" --save "$work/again"
check "other weights with checkpoints" cmp -s "$work/live" "$work/again"
recorded --local 3 --sync gssp --steps 20 --checkpoint "$work/kept" --every 5 --resume
replays 0 '^  roles .*as recorded$' "$work/run" --roles
no_replay 1. 'went on from a checkpoint' "$work/run"
recorded --local 3 --sync gssp --steps 8 --init "$work/first"

# --- files that are not whole
keep() { rm -rf "$work/bad" && cp -r "$work/run" "$work/bad"; }
keep && rm "$work/bad/rank2.events"
no_replay 1. 'rank2.events.* is missing: the run had 3 nodes' "$work/bad"
keep && cp "$work/bad/rank1.events" "$work/bad/rank2.events"
no_replay 1. 'was recorded by rank 1' "$work/bad"
keep && truncate -s -40 "$work/bad/rank0.events"
no_replay 1. 'rank0.events.* has no end: rank 0 was killed' "$work/bad"
for rank in 1 2; do   # whoever waits for it, at once or for others that do
    for part in 2 4; do
        keep && truncate -s $(($(stat -c %s "$work/run/rank$rank.events") / part)) "$work/bad/rank$rank.events"
        no_replay 1. "from rank $rank.*the sender's recording breaks off before that" "$work/bad"
    done
done
keep && truncate -s -1 "$work/bad/rank1.events"   # no more than its end
replays 0 'bit for bit' "$work/bad"
replays 0 'up to where a recording breaks off' "$work/bad" --roles
replays 0 'no end: the node was killed' "$work/bad" --show --rank 1
for at in 40 $(($(stat -c %s "$work/run/rank1.events") - 12)); do   # in its first record and its last; a changed length may look cut off
    keep && printf '\377' | dd of="$work/bad/rank1.events" bs=1 seek="$at" conv=notrunc status=none
    no_replay 1. 'rank1.events.* is damaged at byte ' "$work/bad"
done
keep && printf '\377' | dd of="$work/bad/rank0.events" bs=1 seek=8 conv=notrunc status=none
no_replay 1. 'recording of format 255' "$work/bad"
keep && echo nonsense >"$work/bad/rank0.events"
no_replay 1. 'is no recording' "$work/bad"
# One rank's file from another run of the same size: its roles are right, what it was sent is not.
recorded --local 3 --sync asp --steps 8
cp -r "$work/run" "$work/asp"
recorded --local 3 --sync asp --steps 9
keep && cp "$work/asp/rank1.events" "$work/bad/rank1.events"
no_replay 1. 'differs|nobody has sent that|damaged|does not' "$work/bad"

# --- words on the command line
no_replay 2 'give the folder'
no_replay 1. "cannot read '$work/nothing/rank0.events'" "$work/nothing"
no_replay 2 'there is no option --rols.*did you mean --roles' "$work/run" --rols
no_replay 2 '--rank .x.: give a whole number' "$work/run" --show --rank x
no_replay 2 '--init needs a value' "$work/run" --init ''
no_replay 2 '--init needs a value' "$work/run" --init=
no_replay 13 "--save $work/no/such cannot be written: its folder is not there" "$work/run" --save "$work/no/such"
no_replay 2 'leave --roles out' "$work/run" --roles --save "$work/again"
replays 0 '^usage: echelon replay DIR' --help
refuse 1. 'folder .*no/such/folder' --data "$work/data" --local 2 --record "$work/no/such/folder" --steps 1
refuse 1. 'folder .*live' --data "$work/data" --record "$work/live" --steps 1

# recorded RANK: some of its run is; or nobody runs any more
recorded() { [ "$(stat -c %s "$work/run/rank$1.events" 2>/dev/null || echo 0)" -gt 20000 ] || ! runs; }

# --- a node that is killed leaves all that others know of it; their recordings are whole
rm -rf "$work/run"
free_port
for r in 0 1 2; do
    start $r --data "$work/data" --world 3 --coordinator "127.0.0.1:$port" --sync asp --epochs 1000 --eval-every 0 --record "$work/run"
done
await recorded 1
kill -KILL "${nodes[1]}"
kill -TERM "${nodes[0]}"
for r in 0 1 2; do node_ends $r '.*' '' "a killed node"; done
replays 0 'up to where a recording breaks off' "$work/run" --roles
replays 0 'bit for bit' "$work/run"

# --- a run that goes on without a node: whoever is left has a whole recording, and replays its roles through the loss; and all that the
# lost one pushed is computed again, so the trained weights are. Rank 2 owns what 2 and 3 train; without it 3 joins 0.
plan_of_roles "$work/plan"
# Of 1,000 samples, by nodes that sleep for most of the time: seconds, so that the loss falls within them.
epochs=9
goes_on() {    # goes_on VICTIMS ARGUMENT...: a run of four in which those are killed, one after the other
    local victims=$1 victim r
    shift
    rm -rf "$work/run"
    free_port
    for r in 0 1 2 3; do
        start $r --data "$work/data" --world 4 --coordinator "127.0.0.1:$port" --record "$work/run" --save "$work/live" --slow 64 "$@"
    done
    for victim in $victims; do
        await recorded "$victim"
        kill -KILL "${nodes[victim]}"
    done
    for r in 0 1 2 3; do
        [[ " $victims " == *" $r "* ]] && node_ends $r 137 '' "killed: $*" && continue
        node_ends $r 0 '' "goes on without $victims: $*"
        replays 0 "rank ${victims%% *} is lost" "$work/run" --show --rank $r
        check "rank $r has no end without $victims: $*" grep -q '^the end: status 0' "$work/out"
    done
    replays 0 'up to where a recording breaks off' "$work/run" --roles
    replays 0 'bit for bit' "$work/run" --save "$work/again"
    check "other weights without $victims: $*" cmp -s "$work/live" "$work/again"
}
unwatched() { [ -n "${SAN:-}" ] || goes_on "$@"; }   # the same code as the others
unwatched 3 --plan "$work/plan" --epochs $epochs --eval-every 5000
goes_on 2 --plan "$work/plan" --epochs $epochs --eval-every 5000
replays 0 'send to the owner of rank 0: push' "$work/run" --show --rank 3
goes_on '2 3' --plan "$work/plan" --epochs $epochs
# Two owners are left: one hands the lost one's last state to the other.
{
    grep -v '^head\|^group' "$work/plan"
    printf '%s\n' 'group 0 owner 2 workers 2:32 3:32' 'group 1 owner 0 workers 0:32' 'group 2 owner 1 workers 1:32'
} >"$work/three"
unwatched 2 --plan "$work/three" --epochs $epochs --eval-every 5000
printf '%s\n' 'sync bsp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0.9' 'decay 0' 'group 0 owner 0 workers 0:16 1:16 2:16 3:16' \
    >"$work/rounds"
unwatched 3 --plan "$work/rounds" --epochs $epochs
goes_on '1 2' --plan "$work/rounds" --epochs $epochs --eval-every 5000
unwatched 2 --plan "$work/plan" --epochs $epochs --checkpoint "$work/kept-too" --every 100

# --- nothing is written over, nor through a link; who never began leaves nothing
small=(--data "$work/data" --steps 1 --eval-every 0)
rm -rf "$work/run"
mkdir "$work/run"
echo precious >"$work/victim"
ln -s "$work/victim" "$work/run/rank0.events"
refuse 2 'rank0.events. is there already and is not written over: remove it, or give another folder' "${small[@]}" --record "$work/run"
check "a link was followed" [ "$(cat "$work/victim")" = precious ]
ln -sf "$work/not-there" "$work/run/rank0.events"
refuse 2 'is there already' "${small[@]}" --record "$work/run"
check "a link was followed to where nothing was" [ ! -e "$work/not-there" ]
rm -r "$work/run"
expect 0 '^  speed ' "${small[@]}" --local 2 --record "$work/run"
cp "$work/run/rank1.events" "$work/before"
rm "$work/run/rank0.events"
refuse 2 'rank1.events. is there already' "${small[@]}" --local 2 --record "$work/run"
check "an earlier recording is changed" cmp -s "$work/before" "$work/run/rank1.events"
check "a run that did not begin leaves a recording" [ ! -e "$work/run/rank0.events" ]
rm -r "$work/run"
free_port
start 0 "${small[@]}" --world 2 --coordinator "127.0.0.1:$port" --record "$work/run"
records() { [ -s "$work/run/rank0.events" ] || ! runs; }
await records
refuse 20 'another run is writing .*rank0.events' "${small[@]}" --record "$work/run"
check "who was refused takes another's recording away" [ -s "$work/run/rank0.events" ]
kill -TERM "${nodes[0]}"
node_ends 0 22 '' "alone in its recording"

# --- a disk that is full ends the recording, not the run, and the status says so
said=$(ulimit -f 0; trap '' XFSZ; "$echelon" train "${small[@]}" --record "$work/full" 2>&1)
check "no room for a recording: status $?" [ $? = 13 ]
check "no room for a recording: $said" grep -q 'rank0.events.*writing failed' <<<"$said"
check "no room for a recording: something is left" [ -z "$(ls "$work/full")" ]
rm -rf "$work/run"
(trap '' XFSZ && ulimit -f 64 && exec "$echelon" train --data "$work/data" --progress off --local 2 --epochs 10 --eval-every 0 \
    --record "$work/run") >"$work/out" 2>"$work/err"
check "a recording that breaks off ends the run with $?" [ $? = 28 ]
check "nobody says that the recording breaks off" grep -q 'the recording in .* ends here: .*writing failed.*the run goes on' "$work/err"
check "what was trained is not told" grep -q '^  speed ' "$work/out"
replays 0 'up to where a recording breaks off' "$work/run" --roles
verdict replay
