#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `echelon explain REPORT` as a user meets it: a report made by hand, each of whose figures is known; those that runs write; and one
# sentence for what is no report.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "a file is read on one thread"
explains() { ends_with "$1" "$2" explain "${@:3}"; }   # explains STATUS PATTERN ARGUMENT...
refuse() {                                             # the same for what is wrong: one sentence, nothing on stdout
    explains "$@"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || bad "not one sentence: echelon explain ${*:3}"
}
line() { check "no line '$1'" grep -qE -e "$1" "$work/out"; }
lacks() { ! grep -qE -e "$1" "$work/out"; }
no_line() { check "a line '$1'" lacks "$1"; }

# --- by hand: three nodes, the last of which was left out; 2,000 images/s were predicted and 1,000 made
report() {                                             # report [KEY...]: with other keys behind it
    cat >"$work/report" <<'END'
{"version": "0.0.9", "model": "lenet5", "data": "data/mnist", "sync": "bsp", "seed": 1, "separate": 0, "world": 3, "groups": [[0, 1]],
 "owners": [0], "shard_owners": [], "head": [], "batch": [48, 16, 0], "round": 64, "step_seconds": [0.032, 0.064, 0.128],
 "link": [100, 100, 50], "delay": [0, 0.002, 0], "iteration_seconds": [0.064], "steps": 1000, "samples": 64000, "epochs": 6.4,
 "link_out": [{"rate": 100, "lowest": 90, "highest": 110}, {"rate": 100, "lowest": 100, "highest": 100}, {"rate": 50}],
 "link_in": [{"rate": 100}, {"rate": 100}, {"rate": 50}],
 "link_run_out": [{"rate": 100, "lowest": 100, "highest": 100}, {"rate": 20, "lowest": 15, "highest": 25}, {"rate": 0}],
 "link_run_in": [{"rate": 80.1}, {"rate": 80}, {"rate": 0}],
 "predicted_link": [{"out": 40, "in": 30}, {"out": 30, "in": 40}, {"out": 0, "in": 0}],
 "seconds": 64, "images_per_second": 1000, "measuring_seconds": 8, "startup_seconds": 4, "checkpoint_seconds": 4,
 "test_accuracy": 0.9871, "best_accuracy": 0.9874, "bytes_sent": {"lease": 0, "push": 30000000, "weights": 30000000, "other": 40000},
 "staleness_max": 0, "staleness_mean": 0, "codec": "dense", "predicted_images_per_second": 2000, "predicted_staleness": 0,
 "net_negative": 2, "net_negative_gain": 0.07, "predicted_over_measured": 2,
 "candidates": [{"sync": "bsp", "groups": 1, "separated": 0, "taken": 1, "images_per_second": 2000, "efficiency": 1, "goodput": 2000}],
END
    {
        printf '%s,\n' "$@"
        echo ' "what_if": [{"what": "links", "rank": 1, "gain": 0.41}, {"what": "steps", "rank": null, "gain": 0.25},
  {"what": "latency", "rank": null, "gain": 0.125}, {"what": "variation", "rank": null, "gain": 0.03}],
  "path_seconds": 0.02, "path_rank": null,
  "path": [{"what": "in", "rank": 1, "seconds": 0.015}, {"what": "latency", "rank": null, "seconds": 0.005}]}'
    } >>"$work/report"
}
report '"leases_again": 0'
explains 0 '^lenet5 on data/mnist, bsp, 3 nodes, reported by echelon 0.0.9$' "$work/report"
line '^  speed +1000 images/s \(64000 samples, 6.40 epochs, 64.0 s\); predicted were 2000 images/s$'
line '^  prediction +100 % more than measured$'
line "^  may be why +rank 1's link, out, carried 100 Mb/s when it joined and 20 of late; 1 more direction changed by a quarter or more$"
line "^  bottleneck +rank 1's link: in half the time 41 % more images/s are predicted; then steps 25 %, latency of messages 12 %$"
line "^  critical path +20 ms a round: 75 % rank 1's link, in; 25 % latency$"
line '^  workers +2 of 3 nodes, which by themselves would make 3000 images/s in all: the run made 33 % of that$'
line '^  time +training 64 s \(80 %\), until it began 4 s \(5 %\), evaluations 8 s \(10 %\), checkpoints 4 s \(5 %\)$'
line "^ +\\+41 % images/s   half the time for rank 1's link: faster links; --codec topk"
line '^ +\+3 % images/s   half the time for variation of steps: '
line '^ +\+7 % images/s   without rank 2, which was left out$'
line '^  0 +0 +48 +32 ms +2000 images/s +38 % +-$'                 # 48 of 64 samples, in 24 ms of 64
line '^  1 +0 +16 +64 ms +1000 images/s +25 % +2 ms$'
line '^  2 +- +0 +128 ms +500 images/s +- +-$'
line '^  group 0 +ranks 0, 1; weights kept by rank 0; 64 ms an iteration$'
line '^  0 +100 \(90 to 110\) +100 +40, 40 %$'
line '^  1 +100 +20 \(15 to 25\) +30, 30 %   changed$'
line '^  0 +100 +80.1 +30, 30 %$'                              # a quarter less is changed
line '^  1 +100 +80 +40, 40 %   changed$'
line '^  2 +50 +- +-$'
line '^  sent +60.0 MB, by all nodes: push 50 %, weights 50 %, all else 0.1 %$'
line '^  accuracy +98.71 % \(best evaluation 98.74 %\)$'
line '^\* bsp +2000 +0.00 +1.00 +2000$'
no_line 'lost|regrouping|dropped|codec .*:|staleness  |target '
check "what is asked for first comes first" [ "$(grep -nE '^  (speed|bottleneck|time|rank|links, out|sent|predicted of)' "$work/out" |
    awk '{ print $2 }' | tr -d '\n')" = speedbottlenecktimeranklinks,sentpredicted ]

# --- seconds of compute threads, where the report knows them, instead of what follows from steps at the start; simulated ones are virtual
spent='"spent": [{"steps": 30, "owner": 2, "head": 0, "codec": 0, "weights": 24, "lease": 8, "activations": 0, "gradients": 0, "other": 0},
    {"steps": 5, "owner": 0, "head": 1, "codec": 2, "weights": 0, "lease": 0, "activations": 1, "gradients": 0.5, "other": 0.5},
    {"steps": 0, "owner": 0, "head": 0, "codec": 0, "weights": 0, "lease": 0, "activations": 0, "gradients": 0, "other": 0}]'
report "$spent" '"simulated": 1'
explains 0 '^lenet5 on data/mnist, bsp, 3 simulated nodes, reported by' "$work/report"
line '^  speed +1000 images/s \(64000 samples, 6.40 epochs, 64.0 virtual s\)'
line '^  0 +0 +48 +32 ms +2000 images/s +50 % +-$'
line '^  1 +0 +16 +64 ms +1000 images/s +80 % +2 ms$'
line '^  2 +- +0 +128 ms +500 images/s +- +-$'
line '^  0 +30 +2 +- +- +24 +8 +- +- +-$'
line '^  1 +5 +- +1 +2 +- +- +1 +0.5 +0.5$'
line '^  2 +- +- +- +- +- +- +- +- +-$'
refuses() { explains 14 "$1" "$work/report"; }
report "${spent/24/-24}"
refuses '"weights" takes a number, 0 or more'

# --- what else may be why, each from its facts; the ranks of a run that lost one are all there
report '"lost": [1], "lost_peer": null' '"target_accuracy": 0.98, "target_seconds": 30, "target_epochs": 3' \
    '"samples_again": 6400' '"regroups": 1, "resizes": 2' '"resumed_samples": 3200'
explains 0 '^  lost +rank 1; 6400 samples were issued again$' "$work/report"
for why in '3200 of its samples are those of runs before it' '1 node was lost on the way' '10 % of its samples were trained twice' \
           "rank 1's link, out, carried" 'nodes became faster or slower for good'; do
    check "no reason '$why'" grep -qE "^  (may be why)? +$why" "$work/out"
done
no_line 'nothing that a report tells'
line '^  target +98.00 % after 30.0 s, 3.00 epochs$'
line '^  regrouping +1 moves of workers to other groups, 2 changes of step sizes$'
calm=$(sed -e '/"link_run_/d' "$work/report" | sed -e 's/"lost".*,//; s/"samples_again".*,//; s/"regroups".*,//; s/"resumed_samples".*,//')
echo "$calm" >"$work/calm"
explains 0 '^  may be why +nothing that a report tells' "$work/calm"
sed 's/"seconds": 64/"seconds": 4/' "$work/calm" >"$work/other"
explains 0 '^  may be why +it trained for 4 s only' "$work/other"
sed 's/"lowest": 90/"lowest": 60/' "$work/calm" >"$work/other"
explains 0 "^  may be why +rank 0's link, out, was measured to carry 60 to 110 Mb/s" "$work/other"
sed 's/second": 2000/second": 1099/' "$work/report" >"$work/other"
explains 0 '^  prediction +10 % more than measured$' "$work/other"
no_line 'may be why'
sed 's/second": 2000/second": 800/' "$work/report" >"$work/other"
explains 0 '^  prediction +20 % less than measured$' "$work/other"
line 'may be why'

# --- an old one with few keys, one of a plan, of a single node; other things than numbers
echo '{"groups": [], "sync": "bsp", "model": "\u001b[31m", "world": 1}' >"$work/other"
explains 0 '^\?\[31m, bsp, 1 node, reported by echelon $' "$work/other"
line '^  speed +nothing was trained$'
echo '{"groups": [[0]], "sync": "x", "model": "m", "world": 2, "samples": 5, "seconds": null, "images_per_second": null,
       "what_if": [{"what": "gravity", "rank": null, "gain": null}], "net_negative": 1}' >"$work/other"
explains 0 '^  bottleneck +gravity: in half the time nan? % more' "$work/other"
if ! under address; then
    ends_with 0 '' plan --workers 4 --spread strong --sync gssp --report "$work/other"
    explains 0 '^  speed +nothing was trained; predicted are [0-9]+ images/s$' "$work/other"
    line '^  predicted of +images/s +staleness +efficiency +goodput$'
fi

# --- of a run: the figures that its summary has
idx_set "$work/data" 2000 100
ends_with 0 '^  speed ' train --data "$work/data" --local 2 --sync asp --steps 20 --progress off --report "$work/run"
cp "$work/out" "$work/summary"
explains 0 '^  speed ' "$work/run"
for label in speed bottleneck 'group 0' staleness accuracy; do
    check "the summary's $label" eval 'grep "^  $label  " "$work/summary" | diff - <(grep "^  $label  " "$work/out")'
done
line '^  mean staleness +[0-9.]+ rounds'

# --- what each node computed and waited is all of a simulated run, from its first task on: to a hundredth of its virtual seconds; and of a
# head what it computes behind its last answers, when the run's clock has stopped
accounted() {  # accounted REPORT: how much of the seconds the nodes account for, the least and the most
    tr '{' '\n' <"$1" | sed -nE 's/^"steps": ([0-9.e+-]+), .*"other": .*/&/p' | tr -c '0-9.e+\n-' ' ' |
        awk -v all="$(value seconds "$1")" '{ sum = 0; for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]/) sum += $i
            part = sum / all; if (sum > 0 && (!busy++ || part < least)) least = part; if (part > most) most = part }
            END { printf "%d of %d nodes, %.4f to %.4f\n", busy, NR, least, most
                  exit !(NR == 4 && busy >= 2 && least > 0.97 && most < 1.001) }'   # a plan may leave nodes out
}
for sync in bsp gssp asp; do
    ends_with 0 '^  speed ' sim --compute model --workers 4 --spread mild --sync $sync --data "$work/data" --epochs 40 --eval-every 0 \
        --report "$work/sim"
    check "$sync: $(accounted "$work/sim")" eval 'accounted "$work/sim" >"$work/part"'
    check "$sync: it is not said to be simulated" [ "$(value simulated "$work/sim")" = 1 ]
done
# of a run that is recorded as well, beside what its recording says (another reader of the same events): rank 1 is not held
ends_with 0 '' train --data "$work/data" --local 2 --sync bsp --shares equal --steps 30 --eval-every 0 --progress off \
    --report "$work/both" --record "$work/record"
explains 0 'computed' "$work/record"
recorded=$(sed -nE '/^  rank 1 /,$s/^    computed +([0-9.]+) %.*/\1/p' "$work/out" | head -n 1)
explains 0 '^  1 ' "$work/both"
reported=$(sed -nE 's/^  1 .*images\/s +([0-9]+) % .*/\1/p; s/^  0 to 1 .*images\/s +([0-9]+) % .*/\1/p' "$work/out" | head -n 1)
check "rank 1 computed $reported % by the report, $recorded % by the recording" \
    awk -v a="$reported" -v b="$recorded" 'BEGIN { d = a - b; exit !(a != "" && b > 0 && d <= 0.56 && d >= -0.56) }'
check "a real run is said to be simulated" [ "$(value simulated "$work/run")" = 0 ]

# --- what is no report
refuse 13 "cannot read '-' .*give a report, or the folder of a recorded run" -
refuse 13 "cannot read '$work/nowhere'" "$work/nowhere"
refuse 13 "cannot read '$work/data/rank0.events' .*train --record DIR" "$work/data"
refuse 2 'one path is enough' "$work/report" "$work/run"
refuse 2 'rank goes with the folder of a recorded run' "$work/report" --rank 1
refuse 2 'svg goes with the folder of a recorded run' "$work/report" --svg "$work/round.svg"
refuse 2 'there is no option --rnak; did you mean --rank' "$work/report" --rnak 1
refuse 2 'give a report, or the folder of a recorded run: echelon explain REPORT.DIR'
: >"$work/other"
refuse 14 'is no report of a run: it is empty' "$work/other"
echo '# Plan of an Echelon run' >"$work/other"
refuse 14 'is no report of a run: it is no JSON object.*a plan is for --plan, a profile for --profile' "$work/other"
echo '{"world": 4, "rank": 0}' >"$work/other"
refuse 14 'is no report of a run: it has no "model"' "$work/other"
head -c 700 "$work/report" >"$work/other"
refuse 14 "other:[0-9]+: .*found the end of the file \(byte 700: " "$work/other"
sed 's/"batch": \[48/"batch": [-48/' "$work/report" >"$work/other"
refuse 14 "other:2: \"batch\" takes a whole number from 0 to 2147483647, found '-48'" "$work/other"
refuse 2 'is a device or pipe, not a file' /dev/null

# --- words
explains 0 'REPORT is the file of' --help

verdict "explain"
