#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A recorded run for other programs: its trace on one clock, which is JSON that Python reads, its layers, and a step as a picture; and what
# is refused. What is in them is compared with clocks and times that are known by test_trace, test_clocks and test_step_line.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "it has one thread; those that record are those of test_every_kind.sh, which runs here"
light_if_watched
idx_set "$work/data" 1000 50
recorded() {   # recorded ARGUMENT...: in $work/run
    rm -rf "$work/run"
    expect 0 '^  speed ' --data "$work/data" --progress off --record "$work/run" "$@"
}
no_export() {  # no_export STATUS PATTERN ARGUMENT...: refused with one sentence, and nothing is left of it
    ends_with "$1" "$2" explain "${@:3}"
    check "not one sentence: echelon explain ${*:3}" [ "$(wc -l <"$work/err")" = 1 ]
    check "something is left: echelon explain ${*:3}" [ ! -e "$work/trace" ] && [ ! -e "$work/layers" ]
}

# Every slice lies in [0, end], in or behind the others of its track; an arrow has two ends, and points back by no more than the clocks'
# errors. All nodes are on this machine, so they have one clock: what is estimated is off by its offset.
cat >"$work/whole.py" <<'END'
import json, sys
trace = json.load(open(sys.argv[1]))
events, clocks = trace["traceEvents"], trace["otherData"]["clocks"]
world, names = len(clocks), set()
assert world == int(sys.argv[2]), world
for rank, clock in enumerate(clocks):
    assert clock["rank"] == rank and clock["misses_ns"] == 0 and clock["error_ns"] is not None, clock
    assert abs(clock["offset_ns"]) <= clock["error_ns"] + 2, clock
error = [clock["error_ns"] / 1000 for clock in clocks]
ends = {}
slices = {}
for e in events:
    assert 0 <= e["pid"] < world
    if e["ph"] == "M":
        if e["name"] == "thread_name": names.add((e["pid"], e["tid"]))
        continue
    assert e["ts"] >= 0 and e.get("dur", 0) >= 0, e
    assert (e["pid"], e["tid"]) in names or e["tid"] >= 5, e
    if e["ph"] == "X": slices.setdefault((e["pid"], e["tid"]), []).append((e["ts"], -e["dur"], e["name"]))
    if e["ph"] in "sf":
        assert ends.setdefault((e["id"], e["ph"]), e) is e, e
for (_, tid), track in slices.items():
    track.sort()
    open_until = []
    for at, dur, name in track:
        while open_until and open_until[-1] <= at + 1e-4: open_until.pop()
        assert not open_until or at - dur <= open_until[-1] + 1e-4, (tid, at, name)
        open_until.append(at - dur)
starts = [e for (_, ph), e in ends.items() if ph == "s"]
assert len(ends) == 2 * len(starts) and (len(starts) > 0) == (world > 1)
for s in starts:
    f = ends[(s["id"], "f")]
    may = 0.002 if 0 in (s["pid"], f["pid"]) else error[s["pid"]] + error[f["pid"]] + 0.002
    assert f["ts"] >= s["ts"] - may and f["name"] == s["name"] and f["bp"] == "e", (s, f)
for wanted in sys.argv[3:]:
    assert any(wanted == e["name"] for e in events), wanted
END
# What a rank pushes of a lease has as many bytes as the layers' gradients; of what is coded nobody knows.
cat >"$work/bytes.py" <<'END'
import json, sys
sizes = sum(int(line.split()[5]) for line in open(sys.argv[2]) if line[0].isdigit())
pushed = {}
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if e["ph"] == "X" and e["name"] == "push" and "to rank" in e["args"]:
        lease = e["pid"], e["args"]["lease"]
        pushed[lease] = pushed.get(lease, 0) + e["args"].get("bytes", 0)
assert pushed and sizes > 0 and set(pushed.values()) == {0 if sys.argv[3] == "coded" else sizes}, (sizes, pushed)
END
pushed() { ! command -v python3 >/dev/null || check "the bytes of a $1 push" python3 "$work/bytes.py" "$work/trace" "$work/layers" "$1"; }
whole() {      # whole WORLD NAME...: these are among its events
    ! command -v python3 >/dev/null || check "the trace of $*" python3 "$work/whole.py" "$work/trace" "$@"
}
# Something is drawn, and what is printed of the path is in the picture. A rank that stood still meanwhile has done nothing.
picture() {    # picture WORLD WORDS
    local length
    length=$(sed -n 's/^  critical path  *\([0-9.e+-]* m*s\) .*/\1/p' "$work/out")
    check "no step: $2" grep -qE "^  step  +[0-9]+ of [0-9]+ is drawn in $work/step.svg" "$work/out"
    check "no title: $2" grep -qE ", $1 nodes?: step [0-9]+ of [0-9]+, as it was recorded</text>" "$work/step.svg"
    check "another length: $2" grep -qF "Critical path, $length " "$work/step.svg"
    check "no path: $2" grep -qE '<(rect|line) [^>]*/>' <(sed -n '/stroke-width="1.6"/,$p' "$work/step.svg")
    check "nothing computes: $2" grep -q '<title>rank [0-9]*, compute: ' "$work/step.svg"
    ! command -v python3 >/dev/null ||
        check "no XML: $2" python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$work/step.svg"
}
rows() { grep -v '^#' "$work/layers"; }

# --- runs of several kinds
one_run() {    # one_run WORLD "NAME..." ARGUMENT...
    local world=$1 names=$2
    shift 2
    recorded --local "$world" "$@"
    ends_with 0 "^  trace  .* in $work/trace" explain "$work/run" --trace "$work/trace" --layers "$work/layers" --svg "$work/step.svg"
    picture "$world" "$*"
    check "not every clock: $*" [ "$(grep -c '^  clock of rank' "$work/out")" = $((world - 1)) ]
    # shellcheck disable=SC2086 # a list of names
    whole "$world" $names
    check "no table: $*" [ "$(rows | head -n 2 | tr '\t' ' ')" = $'Id Name Forward Backward Comm. Size\n0 data 0 0 0 0' ]
    check "not a row a layer: $*" awk -F '\t' 'NF != 6 || (NR > 1 && $1 != NR - 2) { bad = 1 } END { exit bad || NR < 5 }' <(rows)
}
one_run 1 "step apply" --steps 20
check "something was communicated by one node" awk '$5 > 0 { bad = 1 } END { exit bad }' <(rows | tail -n +3)
one_run 3 "step apply push weights lease" --sync bsp --batch 33 --shares 11,11,11 --steps 31 --eval-every 300
check "layers that take no time" awk '$3 <= 0 || $4 <= 0 || $5 <= 0 || $6 <= 0 { bad = 1 } END { exit bad }' <(rows | tail -n +3)
pushed dense
cp "$work/trace" "$work/before"
ends_with 0 'layers  .* of rank 2 in' explain "$work/run" --rank 2 --layers "$work/layers"
check "the table is another rank's" grep -q ', rank 2 of 3: mean of [0-9]* steps, in microseconds and bytes$' "$work/layers"
ends_with 0 '^  trace ' explain "$work/run" --trace "$work/trace"
check "the same recording gives another trace" cmp -s "$work/before" "$work/trace"
one_run 3 "ring_sum ring_weights" --sync bsp --exchange ring --batch 33 --shares 11,11,11 --steps 15
one_run 3 "forward backward head activation activation_grad" --sync asp --separate 1 --epochs 1.2 --eval-every 400
one_run 3 "state" --sync gssp --groups 2 --separate off --epochs 1 --slow 2=4
one_run 2 "step" --sync local --samples-per-step 7 --inner-steps 5 --epochs 1
one_run 2 "encode decode" --sync asp --codec topk --samples-per-step 16 --epochs 1
pushed coded
one_run 2 "checkpoint evaluation" --steps 12 --checkpoint "$work/kept" --every 5 --eval-every 200

# --- a recording that breaks off
truncate -s $(($(stat -c %s "$work/run/rank1.events") / 2)) "$work/run/rank1.events"
ends_with 0 '^  trace ' explain "$work/run" --trace "$work/trace"
! command -v python3 >/dev/null || check "no JSON of a recording that breaks off" python3 -m json.tool "$work/trace" "$work/out"
rm -f "$work/trace" "$work/layers"

# --- what is refused
no_export 13 'trace .*no/such.* cannot be written: its folder is not there' "$work/run" --trace "$work/no/such"
no_export 13 'layers .*no/such.* cannot be written: its folder is not there' "$work/run" --layers "$work/no/such"
no_export 13 'svg .*no/such.* cannot be written: its folder is not there' "$work/run" --svg "$work/no/such"
no_export 2 '--trace needs a value' "$work/run" --trace
no_export 13 'cannot read' "$work/nowhere" --trace "$work/trace"
rm -f "$work/step.svg"
rm "$work/run/rank1.events"
no_export 13 'rank1.events.* is missing' "$work/run" --trace "$work/trace"
recorded --local 3 --sync bsp --batch 12 --shares 6,6,0 --steps 3
no_export 1. 'rank 2 has recorded no step: give a rank that trains' "$work/run" --rank 2 --layers "$work/layers"
echo precious >"$work/trace.mine"
said=$(ulimit -f 4; trap '' XFSZ; "$echelon" explain "$work/run" --trace "$work/trace.mine" 2>&1)
check "a disk that is full: status $?" [ $? = 13 ]
check "a disk that is full: $said" grep -q 'cannot write .*trace.mine.*writing: ' <<<"$said"
check "a trace that could not be written has taken another's place" [ "$(cat "$work/trace.mine")" = precious ]
check "something is left beside it" [ "$(ls -A "$work" | grep -c 'trace.mine')" = 1 ]
recorded --steps 1
rm -f "$work/step.svg"
no_export 1. 'no node has recorded two steps: one is shown' "$work/run" --svg "$work/step.svg"
check "a picture of nothing" [ ! -e "$work/step.svg" ]
ends_with 0 '--trace FILE' explain --help
verdict trace
