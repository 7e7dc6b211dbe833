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
for option in hosts workers spread profile sync shards exchange batch report save-plan; do
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
check "samples a step" out '^  samples a step +[0-9]+ \(rank'
cp "$work/out" "$work/one.out"
plans 0 '' --workers 8 --spread strong --report "$work/two.json" --save-plan "$work/two.plan"
for what in out json plan; do
    [ $what = out ] && cp "$work/out" "$work/two.out"
    check "the same $what again" cmp -s "$work/one.$what" "$work/two.$what"
done
check "the report has what was compared" grep -qE '"candidates": \[\{"sync": "bsp", .*"taken": 1' "$work/one.json"
check "and what would help" grep -qE '"what_if": \[\{"what": "[a-z]+", "rank": (null|[0-9]+), "gain": [0-9.]+\}' "$work/one.json"

# --- the plan of one policy is what a run takes, and about what it makes
idx_set "$work/data" 2000 100
plans 0 '' --workers 4 --sync bsp --exchange server --save-plan "$work/bsp.plan" --report "$work/bsp.json"
check "one policy alone" [ "$(grep -cE '^[* ] (bsp|ssp|gssp)' "$work/out")" = 1 ]
ends_with 0 '^  speed ' sim --data "$work/data" --workers 4 --plan "$work/bsp.plan" --compute model --steps 300 --eval-every 0 \
    --report "$work/run.json"
check "the run is as fast as planned, within 10 %" awk -v p="$(value predicted_images_per_second "$work/bsp.json")" \
    -v m="$(value images_per_second "$work/run.json")" 'BEGIN { exit !(p > 0 && m / p > 0.9 && m / p < 1.1) }'
# Megabits that all links are to send for a sample, beside what the run sent for one.
check "links carry what is predicted, within 10 %" awk \
    -v p="$(value predicted_link "$work/bsp.json" | grep -oE '"out": [0-9.e+-]+' | awk '{ sum += $2 } END { print sum }')" \
    -v rate="$(value predicted_images_per_second "$work/bsp.json")" -v samples="$(value samples "$work/run.json")" \
    -v bytes="$(value bytes_sent "$work/run.json" | grep -oE '"(push|weights)": [0-9]+' | awk '{ sum += $2 } END { print sum }')" \
    'BEGIN { m = bytes * 8e-6 / samples; exit !(m > 0 && p / rate / m > 0.9 && p / rate / m < 1.1) }'
check "the error of the prediction is in the report" awk -v e="$(value predicted_over_measured "$work/run.json")" \
    'BEGIN { exit !(e > 0.9 && e < 1.1) }'

# --- pictures larger than any data set here
plans 0 'images/s are predicted' --model alexnet --workers 4 --sync bsp --exchange ring

# --- mistakes
refuse 2 'which machines.*--hosts FILE, or --workers N'
refuse 2 'plan has no --steps: a plan trains nothing' --workers 2 --steps 3
refuse 2 'plan has no --rank: all nodes are simulated' --workers 2 --rank 1
refuse 2 'plan has no --save: .*--save-plan' --workers 2 --save x
refuse 2 'no option --nodes; did you mean --workers' --nodes 3
refuse '1[0-9]' 'nowhere' --hosts "$work/nowhere"
refuse '1[0-9]' "'nope' is no built-in model" --model nope --workers 2
ECH_STEPS=3 refuse 2 'the environment has ECH_STEPS, but echelon plan has no --steps' --workers 2

verdict "plan"
