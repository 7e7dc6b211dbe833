#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Merging: communication that tables of parts leave exposed, by the model (bench_merge.c) and in live runs. Under BSP four hosts of
# tools/testbed at 1 Gb/s train with plans that differ in their tables alone, in turn: a message a layer, one of all, DDP's buckets of
# 25 MB, MG-WFBP's greedy merging, the dynamic program's; and with the plan that the planner makes by itself.
#   HOSTS, CPU, RATE  default 4, two cores divided by the hosts, 1gbit
#   NETS              default "lenet5 resnet18"; any other built-in net, too
#   BATCH             samples a step of each host (default 8)
#   RUNS, TRAIN       runs of each (default 5: the median counts), seconds that each should train for, about (default 8)
# Half an hour with all defaults, by name only, as root: make bench ONLY=merge. RUNS=1 TRAIN=1 NETS=lenet5 is a first trial of a minute.
# Exits with 77 where there can be no test-bed, behind the figures of the model.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
hosts=${HOSTS:-4} rate=${RATE:-1gbit} batch=${BATCH:-8} runs=${RUNS:-5} target=${TRAIN:-8}
cpu=${CPU:-$(awk -v n="$hosts" 'BEGIN { printf "%.3g", 2 / n }')}
bin=${B:-$root/build}/test/bench
rules="layers one buckets greedy best"
dir=$out/merge
rm -rf "$dir"
mkdir -p "$dir"
bed=m$(($$ % 1000000))

# One run: what rank 0 prints is left in $dir/NAME. In the background, since a signal ends `wait` but not a command.
run() {   # run NAME HOST|all SAMPLES STEPS OPTIONS...
    bed run "$2" "$bin/bench_sync" "$net" "$4" --sync bsp --shares equal --batch "$3" --threads 1 --join-timeout 300 "${@:5}" \
        > "$dir/$1" 2> "$dir/$1.err" &
    wait $! || { cat "$dir/$1" "$dir/$1.err" >&2; return 1; }
    await_line "$dir/$1" batches
}
of_run() { sed 's/^0: //' "$dir/$1" | awk -v key="$2" '$1 == key { print $2 }'; }   # of_run NAME KEY

# Seconds of a step where each host trains by itself, all at once: a round of all beyond that is exposed.
step_alone() {
    local host
    for ((host = 0; host < hosts; host++)); do (run "alone.$host" "$host" "$batch" "$1") & done
    wait
    median $(for ((host = 0; host < hosts; host++)); do of_run "alone.$host" step_seconds; done)
}

# Plans of all owners that differ in their tables; the base has the links that were measured. bench_merge prints what the model expects of a
# round. A step that fits into what a period of the quota grants, 8 ms of the share, goes at full speed in rounds, which wait for links.
make_plans() {   # make_plans SECONDS
    local rule all step
    step=$(awk -v s="$1" -v cpu="$cpu" 'BEGIN { full = s * (cpu < 1 ? cpu : 1); print full <= 0.008 * cpu ? full : s }')
    all=$(seq -s, 0 $((hosts - 1)))
    run base all $((batch * hosts)) 0 --insecure 1 --exchange server --shards "$all" --save-plan "$dir/base.plan" \
        --profile-out "$dir/profile"
    run planner all $((batch * hosts)) 0 --insecure 1 --save-plan "$dir/planner.plan"
    for rule in $rules; do
        expected[$rule]=$("$bin/bench_merge" "$rule" "$net" "$dir/base.plan" "$dir/profile" "$step" "$dir/$rule.plan")
    done
    expected[planner]=-
}

measure() {   # measure NET
    local net=$1 alone steps rule i rates best
    local -A expected=() got=() exposed=()
    alone=$(step_alone 20)
    steps=$(awk -v s="$alone" -v t="$target" 'BEGIN { n = int(t / s / 2); print n < 5 ? 5 : n }')
    make_plans "$alone"
    for ((i = 0; i < runs; i++)); do
        others_since
        for rule in $rules planner; do
            run "$rule" all $((batch * hosts)) "$steps" --insecure 1 --plan "$dir/$rule.plan"
            got[$rule]+=" $(of_run "$rule" images_per_second)"
        done
        others_since
    done
    printf '%s: a step alone %.2f ms, runs of %d rounds; %s cores busy with other work\n' "$net" \
        "$(awk -v s="$alone" 'BEGIN { print 1e3 * s }')" "$steps" "$others"
    best=$(median ${got[best]})
    for rule in $rules planner; do
        rates=$(median ${got[$rule]})
        printf '  %-9s %7d %10.1f %12s %12s %8s   %s\n' "$rule" "$(grep -c '^part' "$dir/$rule.plan")" "$rates" \
            "$(awk -v n=$((batch * hosts)) -v r="$rates" -v s="$alone" 'BEGIN { printf "%.2f", 1e3 * (n / r - s) }')" \
            "$(awk -v e="${expected[$rule]}" -v s="$alone" 'BEGIN { print e == "-" ? e : sprintf("%.2f", 1e3 * (e - s)) }')" \
            "$(ratio "$best" "$rates")" "$(printf '%s\n' ${got[$rule]} | sort -g | awk '{ v[NR] = $1 } END { print v[1] "-" v[NR] }')"
    done
}

"$bin/bench_merge"
echo
bed_up "$hosts" --rate "$rate" --cpu "$cpu" || exit $([ $? = 3 ] && echo 77 || echo 1)
echo "live: $hosts hosts, $rate, $cpu of a core each, $batch samples a step of each; medians of $runs runs in turn. exposed: a round" \
    "beyond a step alone, measured and by the model, ms. ratio: images/s of 'best' over it"
printf '  %-9s %7s %10s %12s %12s %8s   %s\n' table parts images/s exposed "by model" ratio range
for net in ${NETS:-lenet5 resnet18}; do measure "$net"; done
bed down
