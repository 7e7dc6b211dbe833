#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `echelon plan` as a user meets it: what is compared, the plan, its speed and its bottleneck, without data; the same bytes again; what a
# simulated run of that plan makes; and one sentence for each mistake.
. "$(dirname "$0")/cluster.bash"
! under thread || skip "a plan is made on one thread"
! under address || skip "test_choice, test_what_if and test_sim have the same code"
plans() { ends_with "$1" "$2" plan "${@:3}"; }       # plans STATUS PATTERN ARGUMENT...
refuse() {                                            # the same for what is wrong: one sentence, nothing on stdout
    plans "$@"
    [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ] || bad "not one sentence: echelon plan ${*:3}"
}
out() { grep -qE "$1" "$work/out"; }

# --- words
plans 0 'Exit status:' --help
for option in hosts workers spread profile trace trace-batch alpha-beta sync shards exchange batch report svg save-plan; do
    check "--help lists --$option" out "^  --$option "
done
for option in rank local compute steps save curve progress; do check "--help does not list --$option" eval "! out '^  --$option '"; done

# --- every policy is compared, one is taken, and no data is needed
plans 0 '' --workers 8 --spread strong --report "$work/one.json" --save-plan "$work/one.plan"
for policy in bsp ssp gssp; do check "$policy is compared" out "^[* ] $policy[, ]"; done
check "one of them is taken" [ "$(grep -c '^\* ' "$work/out")" = 1 ]
check "speed" out '^  speed +[0-9]+ images/s are predicted$'
check "bottleneck" out '^  bottleneck +.*: in half the time [0-9]+ % more images/s are predicted'
check "the busiest link" out '^  busiest link +rank [0-9]+.s, (in|out): [0-9.e+]+ Mb/s, [0-9]+ % of what it carries$'
check "the critical path" out '^  critical path +[0-9.e+]+ m?s from a push of rank [0-9]+ to its next: [0-9]+ % [a-z ]+'
check "memory" out '^  memory +[0-9.]+ [kMG]?B \(ranks? [0-9].*, of it up to [0-9.]+ [kMG]B activations on a processor like this one$'
check "samples a step" out '^  samples a step +[0-9]+ \(rank'
cp "$work/out" "$work/one.out"
plans 0 '' --workers 8 --spread strong --report "$work/two.json" --save-plan "$work/two.plan"
for what in out json plan; do
    [ $what = out ] && cp "$work/out" "$work/two.out"
    check "the same $what again" cmp -s "$work/one.$what" "$work/two.$what"
done
check "the report has what was compared" grep -qE '"candidates": \[\{"sync": "bsp", .*"taken": 1' "$work/one.json"
check "and the critical path, whose parts are all of it" awk '/"path_seconds"/ { all = $2 + 0 }
    /"path":/ { n = split($0, part, /"seconds": /); for (i = 2; i <= n; i++) sum += part[i] }
    END { exit !(n > 2 && all > 0 && sum / all > 0.9999 && sum / all < 1.0001) }' "$work/one.json"
check "and what would help" grep -qE '"what_if": \[\{"what": "[a-z]+", "rank": (null|[0-9]+), "gain": [0-9.]+\}' "$work/one.json"

# --- the plan of one policy is what a run takes, and about what it makes
idx_set "$work/data" 2000 100
plans 0 '' --workers 4 --sync bsp --exchange server --save-plan "$work/bsp.plan" --report "$work/bsp.json"
# Of a round of 64 samples.
check "the critical path is as long as a round" awk -v p="$(value predicted_images_per_second "$work/bsp.json")" \
    -v s="$(value path_seconds "$work/bsp.json")" 'BEGIN { exit !(s * p / 64 > 0.999 && s * p / 64 < 1.001) }'
check "one policy alone" [ "$(grep -cE '^[* ] (bsp|ssp|gssp)' "$work/out")" = 1 ]
ends_with 0 '^  speed ' sim --data "$work/data" --workers 4 --plan "$work/bsp.plan" --compute model --steps 300 --eval-every 0 \
    --report "$work/run.json"
check "the run is as fast as planned, within 10 %" awk -v p="$(value predicted_images_per_second "$work/bsp.json")" \
    -v m="$(value images_per_second "$work/run.json")" 'BEGIN { exit !(p > 0 && m / p > 0.9 && m / p < 1.1) }'
# Megabits that all links are to send for a sample, beside what the run sent for one.
# A worker that owns nothing has two copies of the 61,706 weights, one of which its gradients take.
check "each node's memory is in the report" grep -qE '"slot_bytes": \[[0-9]{7}, [0-9]{7}, 493648, 493648\]' "$work/bsp.json"
check "links carry what is predicted, within 10 %" awk \
    -v p="$(value predicted_link "$work/bsp.json" | grep -oE '"out": [0-9.e+-]+' | awk '{ sum += $2 } END { print sum }')" \
    -v rate="$(value predicted_images_per_second "$work/bsp.json")" -v samples="$(value samples "$work/run.json")" \
    -v bytes="$(value bytes_sent "$work/run.json" | grep -oE '"(push|weights)": [0-9]+' | awk '{ sum += $2 } END { print sum }')" \
    'BEGIN { m = bytes * 8e-6 / samples; exit !(m > 0 && p / rate / m > 0.9 && p / rate / m < 1.1) }'
check "the error of the prediction is in the report" awk -v e="$(value predicted_over_measured "$work/run.json")" \
    'BEGIN { exit !(e > 0.9 && e < 1.1) }'

# --- seconds to a target, by a run that took two epochs of 100 samples at half the efficiency of BSP: here one
target() {                                            # target [SED...]: its report, changed
    echo '{"model": "lenet5", "sync": "asp", "world": 1, "groups": [[0]], "round": 64, "codec": "dense", "samples": 1000, "epochs": 10,
           "target_accuracy": 0.985, "target_epochs": 2, "target_seconds": 7,
           "candidates": [{"sync": "ssp", "efficiency": 0.9}, {"sync": "asp", "efficiency": 0.5, "taken": 1}]}' |
        sed "${1:-}" >"$work/target"
}
target
plans 0 '  predicted of .* s to target$' --workers 2 --batch 64 --target-from "$work/target"
check "every plan has its seconds, and that of BSP is 100 samples at its speed" awk '
    /^[* ] (bsp|ssp|gssp)/ { plans++; n = NF; off = $n * $(n - 4) * $(n - 2) / 100 - 1; if (off > 0.02 || off < -0.02) bad++ }
    END { exit !(plans > 2 && !bad) }' "$work/out"
plans 0 '' --workers 2 --batch 64 --sync bsp --target-from "$work/target"
check "the plan that is taken" \
    out "^  target +98.50 % after [0-9.e+-]+ s is predicted: 1 epochs at efficiency 1.00, as .*target took 2 at 0.50$"
target 's/, "taken": 1//; s/"sync": "asp", "world"/"sync": "bsp", "world"/; s/"target_accuracy": 0.985,//'
plans 0 '^  target +it after .*: 2 epochs at efficiency 1.00, .* took 2 at 1.00$' --workers 2 --batch 64 --sync bsp \
    --target-from "$work/target"
plans 0 'images/s are predicted$' --workers 2 --batch 64 --sync local --target-from "$work/target"
check "nobody knows of local" eval "! out '^  target'"
target 's/, "taken": 1//'
refuse 2 'does not have the statistical efficiency' --workers 2 --target-from "$work/target"
target 's/"target_epochs": 2,//'
refuse 2 'reached no target' --workers 2 --target-from "$work/target"
target 's/"round": 64/"round": 32/'
refuse 2 "rounds of 32 samples, .* the plan's 64: give --batch 32" --workers 2 --target-from "$work/target"
target 's/lenet5/vgg19/'
refuse 2 'its run trained vgg19, and the plan is for lenet5' --workers 2 --target-from "$work/target"
target 's/dense/topk:paper/'
refuse 2 'had the codec topk:paper, and the plan has dense' --workers 2 --target-from "$work/target"
refuse 13 "cannot read '$work/nowhere'" --workers 2 --target-from "$work/nowhere"
refuse 14 'is no report of a run' --workers 2 --target-from "$work/one.plan"
# --- a picture of a round: well-formed, whatever a model is called, every node in it, its critical path as long as the round
"$echelon" model lenet5 --text >"$work/a<b & c.model"
plans 0 '' --model "$work/a<b & c.model" --workers 3 --sync bsp --exchange server --svg "$work/round.svg"
well_formed() {   # each < begins a tag, each & an entity, and each tag ends where it should
    awk 'BEGIN { RS = "<" }
        NR == 1 || /^[?]xml / { next }
        { gsub(/&(amp|lt|gt);/, ""); if (/&/ || !/>/ || gsub(/>/, ">") > 1) exit bad = 1 }
        /^\// { if (open[depth--] != substr($1, 2, index($1, ">") - 2)) exit bad = 1; next }
        { split($1, name, ">") } !/\/>/ { open[++depth] = name[1] }
        END { exit bad || depth != 0 }' "$1"
}
check "an element is not closed" well_formed "$work/round.svg"
sed 's/<\/title>//' "$work/round.svg" >"$work/open.svg"
check "an open element is not seen" eval '! well_formed "$work/open.svg"'
sed 's/&lt;/</' "$work/round.svg" >"$work/open.svg"
check "a name is not seen" eval '! well_formed "$work/open.svg"'
if command -v python3 >/dev/null; then
    check "no XML" python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$work/round.svg"
fi
check "its title" grep -qF 'a&lt;b &amp; c.model, bsp, 3 nodes: ' "$work/round.svg"
for rank in 0 1 2; do
    check "rank $rank computes" grep -qE "<title>rank $rank, compute: (forward|backward|apply), " "$work/round.svg"
    check "rank $rank sends" grep -qE "<title>rank $rank, out: (gradients|weights)" "$work/round.svg"
done
check "nine rates of links, and three numbers of nodes" [ "$(grep -c '<circle' "$work/round.svg")" = 12 ]
check "they are not printed" grep -qE '^    nodes +1 +2 +3$' "$work/out"
read -r _ one two three <<<"$(sed -n 's/^    images.s  //p' "$work/out" | sed 's/^/x/')"
for rate in "$one" "$two" "$three"; do check "$rate images/s are not drawn" grep -q ">$rate</text>" "$work/round.svg"; done
check "all nodes make what is predicted" grep -qE "^  speed +$three images/s are predicted" "$work/out"
# Rectangles behind <g fill="none" stroke...: pixels of 1092 that are the round.
check "the critical path" awk '/<g fill="none"/ { on = 1 } /<\/g>/ { on = 0 }
    on && /<rect/ { match($0, / width="[0-9.]+/); sum += substr($0, RSTART + 8, RLENGTH - 8) }
    END { exit !(sum > 0.9 * 1092 && sum < 1.001 * 1092) }' "$work/round.svg"
plans 0 '' --workers 20 --spread even --sync bsp --svg "$work/many.svg"
check "too many are told of" grep -qE '>[0-9]+ more nodes are not drawn<' "$work/many.svg"
check "sixteen are drawn" [ "$(grep -cE '>rank [0-9]+</text>' "$work/many.svg")" = 16 ]
plans 0 '' --workers 1 --svg "$work/one.svg"
check "one node has neither links nor fewer nodes" eval '! grep -q "<circle" "$work/one.svg"'
ends_with 0 '^  speed ' sim --data "$work/data" --workers 3 --sync bsp --exchange server --compute model --steps 20 --eval-every 0 \
    --svg "$work/sim.svg"
check "a simulated run's, too" well_formed "$work/sim.svg"
plans 16 'svg has nothing to draw: .* 256 nodes' --workers 300 --sync bsp --svg "$work/no.svg"
check "nothing is drawn" [ ! -e "$work/no.svg" ]

# --- pictures larger than any data set here
plans 0 'images/s are predicted' --model alexnet --workers 4 --sync bsp --exchange ring

# --- layer times of another system: 1 s of forward and 2 s of backward of each of two layers, 10^9 bytes together
cat >"$work/table" <<'END'
Id Name Forward Backward Comm. Size
0 data 100 0 0 0
1 conv1 1000000 2000000 100000 200000000
2 relu1 500000 500000 0 0
3 fc 500000 1500000 400000 800000000
END
warns() { grep -qE "$1" "$work/err"; }
speed() { value predicted_images_per_second "$1"; }
is_about() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0.999 * b && a < 1.001 * b) }'; }
plans 0 '^table, bsp, 1 node$' --trace "$work/table" --trace-batch 30 --workers 1 --sync bsp --report "$work/trace.json"
check "one machine is as fast as the trace's: 30 images in 6 s" is_about "$(speed "$work/trace.json")" 5
check "nothing is assumed" [ ! -s "$work/err" ]
# Two nodes, one of which owns all. At the other the gradients of conv1 are there after 6 s; a byte takes a nanosecond, so all 25 slices are
# at the owner after 6.2 s, and the last of their weights is back a slice later (0.2 / 25 s), or three, behind two of fc that have left.
printf 'hosts 2 speed 1 x link 8 Gb/s\n' >"$work/hosts"
plans 0 '' --trace "$work/table" --trace-batch 30 --hosts "$work/hosts" --sync bsp --shards 1 --report "$work/trace.json"
check "two nodes: what overlaps, overlaps" awk -v rate="$(speed "$work/trace.json")" \
    'BEGIN { period = 60 / rate; exit !(period > 6.2 + 0.99 * 0.2 / 25 && period < 6.2 + 3.01 * 0.2 / 25) }'
plans 0 '' --trace "$work/table" --workers 4 --sync bsp --save-plan "$work/trace.plan"
check "it is said of how many samples a step is" warns 'table does not specify how many samples a step has: 64 are assumed'
check "and that links are guessed" warns 'all-reduce times of an unknown number of nodes: .* are assumed, 4$'
check "a round is a step of each" grep -q '^round 256' "$work/trace.plan"
# All-reduce of 4 takes 0.5 ns a byte round a ring: 1.5 bytes over each link, so 3 Gb/s.
check "links follow from the trace's all-reduce" out '^  links +2.4e\+04 Mb/s, of every node$'
plans 0 '^  links +1e\+04 Mb/s, of every node$' --trace "$work/table" --workers 4 --alpha-beta 50e-6,0.8e-9 --sync bsp
printf '2,1000 11\n2,2000 12\n2,3000 13\n' >"$work/osu"
plans 0 '^  links +8e\+03 Mb/s, of every node$' --trace "$work/table" --workers 4 --alpha-beta "$work/osu" --sync bsp
check "a log that says of how many nodes it is needs no guess" eval "! warns 'unknown number of nodes'"
awk 'BEGIN { for (i = 1; i <= 20; i++) print "2," 1000 * i, i <= 10 ? 50 + 2 * i : 500 + i }' >"$work/osu"   # 4 Gb/s, then 8
plans 0 '^  links +8e\+03 Mb/s, of every node$' --trace "$work/table" --workers 4 --alpha-beta "$work/osu" --sync bsp
plans 0 '' --trace "$work/table" --trace-batch 30 --workers 2 --alpha-beta 1,1e-9 --sync bsp --shards 1 --report "$work/trace.json"
check "a message takes alpha: 1 s there and 1 s back" awk -v rate="$(speed "$work/trace.json")" \
    'BEGIN { period = 60 / rate; exit !(period > 8.2 && period < 8.3) }'
cat >"$work/graph" <<'END'
node3 -- Linear(4) -- forward_compute_time=1, backward_compute_time=2, activation_size=800, parameter_size=400000000
node2 -- Conv2d(3) -- forward_compute_time=40, backward_compute_time=80, activation_size=6400, parameter_size=40000
node1 -- Input -- forward_compute_time=900, backward_compute_time=0, activation_size=1204224, parameter_size=0
	node1 -- node2
	node2 -- node3
END
plans 0 'layer separation' --trace "$work/graph" --workers 4 --alpha-beta 1e-5,1e-9
check "a graph says what is fully connected" out '^  head +separated from node3 Linear on, trained by rank'
check "and how long data was read" warns "a step's samples were read in 0.9 s and computed in 0.123 s"
awk 'BEGIN { for (i = 1; i <= 300; i++) print i, "l", 1000, 2000, 10 + i % 9, 1000 + i }' >"$work/many"
plans 0 '' --trace "$work/many" --workers 2 --sync bsp
check "too many layers are planned together" warns 'many has 300 layers with parameters: neighbours are planned together, as 256 layers'
refuse '1[0-9]' 'nowhere' --trace "$work/table" --workers 2 --profile "$work/nowhere"
printf '[0, 1000000, 9000, 400]\n[1, 1000, 9000, 40]\n' >"$work/log"
plans 0 '^log, bsp' --trace "$work/log" --workers 2 --alpha-beta 0,1e-9 --sync bsp
check "a log has no forward times" warns 'log has no forward times: half of the backward times are assumed in their place'
plans 0 '^  samples a step +10 \(rank' --trace "$work/table" --trace-batch 10 --workers 4 --alpha-beta 0,1e-9 --sync ssp

# --- mistakes
refuse 2 '--trace is planned in the place of a model: leave --model out' --trace "$work/table" --workers 2 --model lenet5
refuse 2 '--trace is planned without samples: leave --data out' --trace "$work/table" --workers 2 --data glyphs
refuse 2 '--trace with --workers is of machines that are alike' --trace "$work/table" --workers 2 --spread even
refuse 2 '--hosts says what links carry: leave --alpha-beta out' --trace "$work/table" --hosts "$work/hosts" --alpha-beta 1,1
refuse 2 '--alpha-beta is for machines like a trace' --workers 2 --alpha-beta 1,1
refuse 2 '--trace-batch is about a trace' --workers 2 --trace-batch 3
refuse 2 "--trace-batch '0': give a whole number of samples from 1 to 65536" --trace "$work/table" --workers 2 --trace-batch 0
refuse 2 'option alpha-beta is 1,-1: give seconds of a message' --trace "$work/table" --workers 2 --alpha-beta 1,-1
refuse 2 'graph has no times of communication from which links would follow' --trace "$work/graph" --workers 2 --sync bsp
refuse 2 'option separate is on, but table does not specify which layers' --trace "$work/table" --trace-batch 9 --workers 1 --separate 1
refuse 2 'option sync-norm is on, but table does not specify which layers are batch-norms' --trace "$work/table" --workers 2 --sync bsp \
    --sync-norm
refuse 2 'a round of 4 steps of 60000 samples has 240000, and one has at most 65536' --trace "$work/table" --trace-batch 60000 \
    --alpha-beta 0,1e-9 --workers 4
refuse '1[0-9]' 'nowhere' --trace "$work/nowhere" --workers 2
refuse '1[0-9]' 'table:1: a line of an OSU log is' --trace "$work/table" --workers 2 --trace-batch 9 --alpha-beta "$work/table"
refuse '1[0-9]' 'hosts:1: a trace begins with' --trace "$work/hosts" --workers 2
ends_with 2 'sim has no --trace: .*echelon plan' sim --data glyphs --workers 2 --trace "$work/table"
ends_with 2 'train has no --trace: .*echelon plan' train --data glyphs --trace "$work/table"
refuse 2 'which machines.*--hosts FILE, or --workers N'
refuse 2 'plan has no --steps: a plan trains nothing' --workers 2 --steps 3
refuse 2 'plan has no --rank: all nodes are simulated' --workers 2 --rank 1
refuse 2 'plan has no --save: .*--save-plan' --workers 2 --save x
refuse '1[0-9]' '--svg .*/nowhere/a.svg cannot be written: its folder is not there' --workers 2 --svg "$work/nowhere/a.svg"
refuse 2 'no option --nodes; did you mean --workers' --nodes 3
refuse '1[0-9]' 'nowhere' --hosts "$work/nowhere"
refuse '1[0-9]' "'nope' is no built-in model" --model nope --workers 2
ECH_STEPS=3 refuse 2 'the environment has ECH_STEPS, but echelon plan has no --steps' --workers 2

verdict "plan"
