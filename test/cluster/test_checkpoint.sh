#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs that are stopped, killed or out of disk, and go on from their checkpoints: alone to the very same bits, with other
# nodes and policies to the same samples. Nothing is lost in silence.
# make check only: 25 s of processor time; test_every_kind.sh has a run of it
. "$(dirname "$0")/cluster.bash"
! under thread || skip "the thread that writes is that of test_checkpoint, which runs here"
light
idx_set "$work/data" 2000 100
kept=$work/kept
newest() { ls "$kept"/*.complete 2>/dev/null | tail -n 1; }
# word KEY: of the newest checkpoint
word() { grep -ao "\"$1\":\"[^\"]*\"" "$(newest | sed 's/complete$/safetensors/')" | head -n 1 | sed 's/.*:"//; s/"$//'; }
train=(--data "$work/data" --eval-every 0 --batch 32 --progress on)

written() { [ "$(grep -c 'checkpoint written' "$work/err")" -ge "$1" ] || ! runs; }   # written COUNT, or the run is over
# killed COUNT ARGUMENT...: a run without end, ended by SIGKILL of rank 0 once COUNT checkpoints were written
killed() {
    local count=$1 pids
    shift
    : >"$work/err"
    "$echelon" train "${train[@]}" --epochs 100000 --checkpoint "$kept" --resume "$@" >"$work/out" 2>"$work/err" </dev/null &
    run=$!
    await written "$count"
    check "killed $*: $count checkpoints" [ "$(grep -c 'checkpoint written' "$work/err")" -ge "$count" ]
    pids=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent=$run '$4 == parent { print $1 }' | sort -n | head -n 1)
    kill -KILL "${pids:-$run}"    # rank 0 is the first child of --local, and the run itself without
    wait $run 2>/dev/null
    run=
}
# goes_on ROUNDS ARGUMENT...: resumed, the run ends with so many rounds more, every sample counted once
goes_on() {
    local from rounds=$(($(word rounds) + $1))
    shift
    from=$(word samples)
    rm -f "$work/report"
    expect 0 "going on from .*: $from samples" "${train[@]}" --checkpoint "$kept" --resume --steps $rounds --report "$work/report" "$@"
    check "$(value samples) samples, not $((32 * rounds)): $*" [ "$(value samples)" = $((32 * rounds)) ]
    check "resumed at $(value resumed_samples), not $from: $*" [ "$(value resumed_samples)" = "$from" ]
    check "the last checkpoint has $(word samples) samples, not $((32 * rounds)): $*" [ "$(word samples)" = $((32 * rounds)) ]
}

# --- alone: the bits of a run that was never cut; epochs of 62.5 rounds end in a short one
expect 0 '^  speed ' "${train[@]}" --steps 200 --save "$work/whole"
expect 0 'beginning at the beginning' "${train[@]}" --steps 130 --checkpoint "$kept" --every 7 --resume
# A slow disk leaves some out, so there may be fewer than three.
marks=$(ls "$kept"/*.complete | wc -l)
check "$marks marks for $(ls "$kept"/*.safetensors | wc -l) files, of at most 3" \
    [ "$marks" -le 3 -a "$(ls "$kept" | wc -l)" = $((2 * marks)) ]
goes_on 70 --save "$work/again" --every 50
check "resumed: other weights than in one go" cmp -s "$work/whole" "$work/again"
rm -rf "$kept"
adam=(--optimizer adam --weight-decay 1e-3)
expect 0 '^  speed ' "${train[@]}" "${adam[@]}" --steps 200 --save "$work/whole"
expect 0 '^  speed ' "${train[@]}" "${adam[@]}" --steps 130 --checkpoint "$kept" --every 50
goes_on 70 "${adam[@]}" --save "$work/again"
check "Adam, resumed: other weights than in one go" cmp -s "$work/whole" "$work/again"
check "Adam, resumed: its moments start at zero" eval '! grep -q "starts at zero" "$work/err"'
check "optimizer is $(word optimizer)" [ "$(word optimizer)" = adam ]
goes_on 10
check "from Adam to SGD: without a word" grep -q 'was made with optimizer adam, this run has sgd.*starts at zero' "$work/err"
goes_on 10 --optimizer adamw
check "from SGD to Adam: without a word" grep -q 'was made with optimizer sgd, this run has adamw.*starts at zero' "$work/err"
rm -rf "$kept"
killed 3 --every 20
goes_on 30 --save "$work/again"
expect 0 '^  speed ' "${train[@]}" --steps "$(word rounds)" --save "$work/whole"
check "killed and resumed: other weights than in one go" cmp -s "$work/whole" "$work/again"
expect 0 'nothing left to do' "${train[@]}" --steps "$(word rounds)" --checkpoint "$kept" --resume --save "$work/again"
check "with nothing left to do: other weights" cmp -s "$work/whole" "$work/again"
expect 0 "nothing left to do" "${train[@]}" --steps "$(word rounds)" --checkpoint "$kept" --resume --local 3 --sync gssp

# --- the target: the weights that met it are saved, and the accuracy that is reported is theirs, though two workers trained on meanwhile;
# the checkpoint has the weights behind that, which are evaluated before the run goes on
rm -rf "$kept"
bars "$work/bars" 200 10
learns=(--data "$work/bars" --batch 32 --local 2 --sync asp --epochs 50 --eval-every 320 --target-accuracy 0.5)
accuracy_of() { expect 0 '^  speed ' --data "$work/bars" --steps 0 --init "$1" --report "$work/again"; value test_accuracy "$work/again"; }
expect 0 '^  target +50.00 %' "${learns[@]}" --checkpoint "$kept" --save "$work/met" --report "$work/report"
check "reported $(value test_accuracy), saved $(accuracy_of "$work/met")" [ "$(value test_accuracy)" = "$(accuracy_of "$work/met")" ]
met() { awk -v accuracy="$(value test_accuracy)" 'BEGIN { exit !(accuracy >= 0.5) }'; }
check "ends with $(value test_accuracy)" met
check "$(word samples) samples in the checkpoint, of $(value samples)" [ "$(word samples)" = "$(value samples)" ]
expect 0 'they are evaluated first' "${learns[@]}" --checkpoint "$kept" --save "$work/met" --report "$work/report" --resume
check "resumed: ends with $(value test_accuracy)" met
check "resumed: reported $(value test_accuracy), saved $(accuracy_of "$work/met")" \
    [ "$(value test_accuracy)" = "$(accuracy_of "$work/met")" ]

# --- deterministic: the bits of one node that was never cut, whatever the nodes before and after the cut;
# the learning rate goes by the place
rm -rf "$kept"
learning=(--optimizer nesterov --schedule step --lr-steps 0.5,2.2 --warmup 1)
expect 0 '^  speed ' "${train[@]}" "${learning[@]}" --deterministic --steps 150 --save "$work/whole"
expect 0 '^  speed ' "${train[@]}" "${learning[@]}" --deterministic --steps 130 --local 3 --separate 1 --checkpoint "$kept"
goes_on 20 "${learning[@]}" --deterministic --local 2 --save "$work/again"
check "deterministic, resumed: other weights than in one go" cmp -s "$work/whole" "$work/again"

rm -rf "$kept"
expect 0 '^  speed ' "${train[@]}" "${adam[@]}" --deterministic --steps 150 --save "$work/whole"
expect 0 '^  speed ' "${train[@]}" "${adam[@]}" --deterministic --steps 130 --local 3 --separate 1 --checkpoint "$kept"
goes_on 20 "${adam[@]}" --deterministic --local 2 --save "$work/again"
check "deterministic Adam, resumed: other weights than in one go" cmp -s "$work/whole" "$work/again"

# --- several nodes: killed, then resumed with the same, other and no others, from policy to policy
rm -rf "$kept"
killed 2 --every 10 --local 3
goes_on 20 --local 3
goes_on 20 --local 2 --every 5
killed 2 --every 10 --local 3 --sync gssp --groups 2 --separate 1
goes_on 15 --local 3 --sync gssp --groups 2 --separate 1
goes_on 15 --local 4 --sync gssp --groups 3 --separate off --every 6
goes_on 15
goes_on 15 --local 2 --sync ssp --lr 0.001 --momentum 0.5
# The outer momentum of local goes on from run to run, and to no other policy.
goes_on 15 --local 2 --sync local --inner-steps 4
check "to local: momentum is dropped without a word" grep -q 'without sync local, whose momentum is of another kind' "$work/err"
killed 2 --every 10 --local 3 --sync local --inner-steps 2 --resume
goes_on 15 --local 2 --sync local --inner-steps 4 --every 6
check "local to local: momentum is dropped" eval '! grep -q "momentum starts at zero" "$work/err"'
goes_on 15 --local 3
check "from local: momentum is dropped without a word" grep -q 'with sync local, whose momentum is of another kind' "$work/err"

# Adam's moments, through groups that come and go, a head apart and not
rm -rf "$kept"
killed 2 --every 10 --local 3 --sync gssp --groups 2 --separate 1 "${adam[@]}"
goes_on 15 --local 4 --sync gssp --groups 3 --separate off "${adam[@]}"
goes_on 15 --local 3 --sync gssp --groups 2 --separate 1 "${adam[@]}"
goes_on 15 --local 2 "${adam[@]}"
check "Adam, resumed: its moments start at zero" eval '! grep -q "starts at zero" "$work/err"'
goes_on 15 --local 2 --sync local --inner-steps 4 "${adam[@]}"
check "Adam to local: momentum is dropped without a word" grep -q 'without sync local, whose momentum is of another kind' "$work/err"
goes_on 15 --local 2 --sync local --inner-steps 4
check "local to local, Adam to SGD: momentum is dropped" eval '! grep -q "starts at zero" "$work/err"'

# --- SIGTERM leaves a checkpoint with all that was trained
rm -rf "$kept"
: >"$work/err"   # or the last run's progress is taken for this one's
"$echelon" train "${train[@]}" --epochs 100000 --checkpoint "$kept" --every 0 --local 2 >"$work/out" 2>"$work/err" </dev/null &
run=$!
says "$work/err" 'epoch .*images/s' "the run begins"
kill -TERM $run
ended $run
run=
check "SIGTERM: ended with $status, not 22" [ "$status" = 22 ]
check "SIGTERM: a checkpoint of $(word samples) samples" grep -q "stopped after $(word samples) samples" "$work/err"
goes_on 10

# --- what is refused, each in a sentence
refuse 2 'resume is on, but checkpoint is missing' --data "$work/data" --resume
refuse 2 'checkpoints of an earlier run.*--resume' --data "$work/data" --checkpoint "$kept"
refuse 2 'in another order \(seed 1, here seed 2\)' --data "$work/data" --checkpoint "$kept" --resume --seed 2
idx_set "$work/other" 1000 50
refuse 2 'made with data .*/data .*this run has data .*/other' --data "$work/other" --checkpoint "$kept" --resume
refuse 13 'cannot be made' --data "$work/data" --checkpoint "$work/no/such"

# --- a broken one is skipped, and named
printf '%64s' | tr ' ' x | dd of="$(newest | sed 's/complete$/safetensors/')" bs=1 seek=9000 conv=notrunc 2>/dev/null
broken=$(newest | grep -o '[1-9][0-9]*\.' | tail -n 1)
check "there are two to choose from" [ "$(ls "$kept"/*.complete | wc -l)" -gt 1 ]
expect 0 "checkpoint ${broken%.} is broken and skipped" "${train[@]}" --checkpoint "$kept" --resume --steps $(($(word rounds) + 5))
for mark in "$kept"/*.complete; do echo >>"$mark"; done
expect 14 'none of the .* checkpoints in .* is whole' "${train[@]}" --checkpoint "$kept" --resume --steps 10000

# --- a full disk: the run goes on without, says so, and does not end well without its last checkpoint
full=$work/full
(
    trap '' XFSZ
    ulimit -f 5
    "$echelon" train "${train[@]}" --steps 60 --checkpoint "$full" --every 20 >"$work/out" 2>"$work/err" </dev/null
    [ $? = 13 ]
) || bad "a full disk: ended well"
check "a full disk: the run does not say so" grep -q 'no checkpoint this time: .*cannot write' "$work/err"
check "a full disk: the training goes on" grep -q '1920 samples' "$work/out"
check "a full disk: something is left of it" [ -z "$(ls "$full")" ]

# A disk with space for two and a half: each run ends with a checkpoint, for which the oldest makes space.
bytes=$(stat -c %s "$(newest | sed 's/complete$/safetensors/')")
pages=$(((bytes + 4095) / 4096 + 1))   # of the data, and of the mark
small="mount -t tmpfs -o size=$((5 * pages / 2 * 4096)) none '$full'"
if unshare -m bash -c "$small" 2>/dev/null; then
    unshare -m bash -c "$small && for run in 1 2 3 4; do \"\$@\" --steps \$((5 * run)) || exit; done; ls '$full' >'$work/left'" -- \
        "$echelon" train "${train[@]}" --checkpoint "$full" --every 0 --resume --keep 3 \
        >"$work/out" 2>"$work/err" </dev/null || bad "a small disk: status $?"
    check "a small disk: has not the last two: $(cat "$work/left")" [ "$(grep -o '[34]\.complete' "$work/left")" = "3.complete
4.complete" ]
    check "a small disk: the runs do not say so" grep -q 'the disk is full: .*2 of --keep 3 are left' "$work/err"
else
    echo "no small disk can be mounted here: that part is left out"
fi

# --- the files are what others can read
if command -v python3 >/dev/null; then
    rm -rf "$kept"
    expect 0 '^  speed ' "${train[@]}" --steps 20 --local 3 --sync gssp --groups 2 --separate 1 --checkpoint "$kept"
    python3 - "$kept"/*.safetensors >"$work/out" 2>&1 <<'END' || bad "a checkpoint is not what safetensors say"
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8:8 + size])
words = header.pop("__metadata__")
assert all(isinstance(v, str) for v in words.values()) and words["samples"] == "640"
assert words["groups"] in ("2", "3")   # a reserve, too, where the measured speeds leave a node that owns nothing else
assert max(t["data_offsets"][1] for t in header.values()) == len(raw) - 8 - size
layers = [n for n in header if not n.startswith("momentum.")]
assert layers == [l + p for l in ("conv1", "conv2", "fc1", "fc2", "fc3") for p in (".weight", ".bias")]
assert header["momentum.0.fc1.weight"]["shape"] == header["fc1.weight"]["shape"] in ([120, 400], [12, 50])
assert "momentum.1.conv2.bias" in header and "momentum.1.fc1.weight" not in header
END
fi

verdict checkpoint
