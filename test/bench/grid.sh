#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the planner chooses beside a grid of 40 named plans. The best plan of the grid and the planner's are run again, with other seeds than
# those that found it: else the luckiest of 40 would be the one to beat.
#   PARTS      default "speed time": speed, costs only, in the simulator; time, real gradients in virtual time until LeNet-5 finds 98.5 % of
#              MNIST; live, three clusters of tools/testbed, 12 plans (as root, with costs only: nothing is learned to an accuracy)
#   CLUSTERS   default "even incast links mild strong late" and random-1 to random-6 (test/hosts/draw.sh); or other files of test/hosts
#   NETS       default "lenet5 conv3fc", of speed and live
#   STEPS      rounds of a run of speed (default 400); SEEDS of the runs again (default "11 12 13 14 15")
#   TOP        of time: the plans of the grid with the most goodput of each cluster, so many (default 3), and the best under BSP
#   TIME_SEEDS default "1 2 3"
#   RUNS, TRAIN  of live: runs of each (default 3), seconds of each about (default 8)
#   JOBS       runs at a time (default: processors)
# Hours with all defaults, by name only: make bench ONLY=grid. Runs are kept in build/bench/grid; a new build begins anew.
#
# Which plans may be compared? All have the same round (16 samples a host) and as many samples. Images/s tell which of two plans is better
# only where a sample is worth the same: under bsp. Elsewhere a plan gets images/s by pushes of older weights. So each row of the planner
# stands beside the plans among which it chooses, by what it chooses by:
#   --sync bsp    plans of bsp, by images/s
#   --sync gssp   plans of gssp with all steps of the planner's length, by images/s; beside it goodput
#   --sync auto   all plans, by goodput: images/s of the run times statistical efficiency of the plan (lib/core/planner/efficiency.c)
# Whether that efficiency is right only the time to an accuracy tells. Plans with a codec, and of `local`, have none that is known: they are
# in the grid for their predictions, and `local` for the time to an accuracy. asp and ssp leave the planner little to choose.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
parts=${PARTS:-speed time} nets=${NETS:-lenet5 conv3fc} steps=${STEPS:-400} seeds=${SEEDS:-11 12 13 14 15} jobs=${JOBS:-$(nproc)}
clusters=${CLUSTERS:-even incast links mild strong late random-1 random-2 random-3 random-4 random-5 random-6}
time_seeds=${TIME_SEEDS:-1 2 3} target=0.985 dir=$out/grid
mkdir -p "$dir"
build=$(sha256sum "$echelon" | cut -c 1-16)
if [ "$(cat "$dir/build" 2> /dev/null)" != "$build" ]; then rm -rf "${dir:?}"/*; fi
echo "$build" > "$dir/build"

# NAME | compared by | options. N: all hosts; ALL, HALF, QUARTER: the fastest so many, with shares by speed; SERVE: the others.
grid() {
    cat <<'PLANS'
bsp-1|bsp|--sync bsp --shards 1
bsp-2|bsp|--sync bsp --shards 2 --exchange server
bsp-4|bsp|--sync bsp --shards 4 --exchange server
bsp-8|bsp|--sync bsp --shards 8 --exchange server
bsp-all|bsp|--sync bsp --shards N --exchange server
bsp-ring|bsp|--sync bsp --exchange ring
bsp-equal-1|bsp|--sync bsp --shares equal --shards 1
bsp-equal-all|bsp|--sync bsp --shares equal --shards N --exchange server
bsp-equal-ring|bsp|--sync bsp --shares equal --exchange ring
bsp-head|bsp|--sync bsp --separate 1 --shards 1
bsp-head-4|bsp|--sync bsp --separate 1 --shards 4
bsp-half-1|bsp|--sync bsp --shares HALF --shards 1
bsp-half-2|bsp|--sync bsp --shares HALF --shards 2 --exchange server
bsp-half-ring|bsp|--sync bsp --shares HALF --exchange ring
bsp-quarter-1|bsp|--sync bsp --shares QUARTER --shards 1
bsp-quarter-ring|bsp|--sync bsp --shares QUARTER --exchange ring
bsp-served|bsp|--sync bsp --shares HALF --shards SERVE --exchange server
bsp-alone|bsp|--sync bsp --shares ALONE --shards 1
asp|asp|--sync asp
asp-16|asp|--sync asp --samples-per-step 16
asp-64|asp|--sync asp --samples-per-step 64
asp-head|asp|--sync asp --separate 1
ssp|ssp|--sync ssp
ssp-16|ssp|--sync ssp --samples-per-step 16
ssp-64|ssp|--sync ssp --samples-per-step 64
ssp-head|ssp|--sync ssp --separate 1
gssp-2|gssp|--sync gssp --separate off --groups 2
gssp-4|gssp|--sync gssp --separate off --groups 4
gssp-8|gssp|--sync gssp --separate off --groups 8
gssp-2-64|gssp|--sync gssp --separate off --groups 2 --samples-per-step 64
gssp-4-64|gssp|--sync gssp --separate off --groups 4 --samples-per-step 64
gssp-head-1|gssp|--sync gssp --separate 1 --groups 1
gssp-head-2|gssp|--sync gssp --separate 1 --groups 2
gssp-head-4|gssp|--sync gssp --separate 1 --groups 4
gssp-head-8|gssp|--sync gssp --separate 1 --groups 8
gssp-head-4-16|gssp|--sync gssp --separate 1 --groups 4 --samples-per-step 16
bsp-topk|none|--sync bsp --codec topk
gssp-4-topk|none|--sync gssp --separate off --groups 4 --codec topk
local-4|none|--sync local --inner-steps 4
local-16|none|--sync local --inner-steps 16
PLANS
}
planner() {
    local policy
    for policy in bsp gssp auto; do echo "auto-$policy|planner|--sync $policy"; done
}
options_of() { { grid; planner; } | awk -F'|' -v name="$1" '$1 == name { print $3 }'; }

# ---- clusters ----

# The host file of a cluster; those that are drawn are made first.
hosts_of() { case $1 in random-*) echo "$dir/$1.hosts" ;; *) echo "$root/test/hosts/$1" ;; esac; }
draw_hosts() {
    local cluster
    for cluster in $clusters; do
        [ "${cluster#random-}" = "$cluster" ] || "$root/test/hosts/draw.sh" "${cluster#random-}" > "$(hosts_of "$cluster")"
    done
}
speeds() { awk '$1 == "hosts" { for (i = 3; i < NF; i++) if ($i == "speed") for (k = 0; k < $2; k++) print $(i + 1) }' "$1"; }
# spelt OPTIONS HOSTS: the words in capitals become numbers; of equal hosts the first are the fastest.
spelt() {
    local n
    n=$(speeds "$2" | wc -l)
    speeds "$2" | awk -v options="$1" -v n="$n" '
        function fastest(count, r, k, best) {
            for (r = 0; r < n; r++) trains[r] = 0
            for (k = 0; k < count; k++) {
                best = -1
                for (r = 0; r < n; r++) if (!trains[r] && (best < 0 || speed[r] > speed[best])) best = r
                trains[best] = 1
            }
        }
        function shares(count, r, all, sum, passed, list) {   # of a round, by speed; they sum to it whatever is rounded
            fastest(count)
            for (r = 0; r < n; r++) all += trains[r] * speed[r]
            for (r = 0; r < n; r++) {
                passed = int(16 * n * sum / all + 0.5)
                sum += trains[r] * speed[r]
                list = list (r ? "," : "") int(16 * n * sum / all + 0.5) - passed
            }
            return list
        }
        function others(r, list) {
            for (r = 0; r < n; r++) if (!trains[r]) list = list (list == "" ? "" : ",") r
            return list
        }
        function put(word, value) { gsub(word, value, options) }
        { speed[NR - 1] = $1 }
        END {
            put("QUARTER", shares(n < 8 ? 2 : int(n / 4)))
            put("ALONE", shares(1))
            put("HALF", shares(int(n / 2)))
            put("SERVE", others())
            put("shards N", "shards " n)
            print "--batch", 16 * n, options
        }'
}

# ---- runs ----

# run FILE OPTIONS...: a run of the simulator, unless it is there. It is there when its report is: that is renamed last. A report without
# figures is one that was refused, or whose loss was no number any more, or that did not reach its target.
run() {
    [ ! -e "$1.json" ] || return 0
    "$echelon" sim --progress off --report "$1.tmp" "${@:2}" > "$1.log" 2>&1 < /dev/null || true
    [ -e "$1.tmp" ] || echo '{}' > "$1.tmp"
    mv "$1.tmp" "$1.json"
}
# speed NET CLUSTER PLAN SEED: costs only. Its report's name is the first three, and the seed.
speed() {
    local hosts model=$1
    hosts=$(hosts_of "$2")
    [ "$1" != conv3fc ] || model=$root/test/bench/conv3fc.txt
    # shellcheck disable=SC2046 # words
    run "$dir/$1.$2.$3.$4" --data glyphs --compute model --eval-every 0 --steps "$steps" --model "$model" --hosts "$hosts" --seed "$4" \
        $(spelt "$(options_of "$3")" "$hosts")
}
# arrives CLUSTER PLAN SEED: real gradients, until the target or for eight epochs.
arrives() {
    local hosts
    hosts=$(hosts_of "$1")
    # shellcheck disable=SC2046 # words
    run "$dir/time.$1.$2.$3" --data "$mnist" --eval-every 6000 --epochs 8 --target-accuracy $target --hosts "$hosts" --seed "$3" \
        $(spelt "$(options_of "$2")" "$hosts")
}
# Lines of calls from standard input, so many at a time.
side_by_side() { xargs -r -P "$jobs" -L 1 bash -c '"$@"' _; }

# efficiency REPORT: of the plan that was taken
efficiency() { sed -n 's/.*"taken": 1,[^}]*"efficiency": \([0-9.e+-]*\).*/\1/p' "$1"; }
# row NET CLUSTER PLAN SEED: "images/s predicted goodput", or nothing
row() {
    local file=$dir/$1.$2.$3.$4.json rate
    rate=$(value "$file" images_per_second)
    [ -z "$rate" ] || [ "$rate" = 0 ] ||
        awk -v r="$rate" -v p="$(value "$file" predicted_images_per_second)" -v e="$(efficiency "$file")" \
            'BEGIN { printf "%.1f %.1f %.1f\n", r, p, r * (e ? e : 1) }'
}

# ---- speed ----

# Plans of the grid that a row of the planner is compared with, and the field of `row` by which.
compared_with() {
    case $1 in
    auto-auto) grid | awk -F'|' '$2 != "none" { print $1 }' ;;
    auto-gssp) grid | awk -F'|' '$2 == "gssp" && $3 !~ /samples/ { print $1 }' ;;
    *) grid | awk -F'|' -v kind="${1#auto-}" '$2 == kind { print $1 }' ;;
    esac
}
compared_by() { if [ "$1" = auto-auto ]; then echo 3; else echo 1; fi; }
# best NET CLUSTER ROW: the plan that has the most of it, by the run that looked for it
best() {
    local name by
    by=$(compared_by "$3")
    for name in $(compared_with "$3"); do echo "$(row "$1" "$2" "$name" 1) $name"; done | awk 'NF == 4' | sort -k "$by,${by}gr" |
        awk 'NR == 1 { print $4 }'
}
# over NET CLUSTER ROW PLAN FIELD: median of the ratios of the seeds
over() {
    local seed a b ratios=()
    for seed in $seeds; do
        a=$(row "$1" "$2" "$3" "$seed" | cut -d ' ' -f "$5") b=$(row "$1" "$2" "$4" "$seed" | cut -d ' ' -f "$5")
        ratios+=("$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.4f", (b > 0 ? a / b : 0) }')")
    done
    median "${ratios[@]}"
}
middle() {   # middle NET CLUSTER PLAN FIELD: median over the seeds
    local seed all=()
    for seed in $seeds; do all+=("$(row "$1" "$2" "$3" "$seed" | cut -d ' ' -f "$4")"); done
    median "${all[@]}"
}

compare_speeds() {
    local net cluster name plan by ratio
    echo "images/s (auto: goodput) of what the planner chose, and over those of the grid's best; medians of seeds $seeds"
    printf '%-9s %-10s %-9s %-16s %9s %9s %8s  %-10s %s\n' net cluster planner "grid's best" planner grid over 'within 3 %' goodput
    for net in $nets; do
        for cluster in $clusters; do
            for name in auto-bsp auto-gssp auto-auto; do
                plan=$(best "$net" "$cluster" $name)
                by=$(compared_by $name)
                ratio=$(over "$net" "$cluster" $name "$plan" "$by")
                printf '%-9s %-10s %-9s %-16s %9.0f %9.0f %8.3f  %-10s %8.3f\n' "$net" "$cluster" "${name#auto-}" "$plan" \
                    "$(middle "$net" "$cluster" $name "$by")" "$(middle "$net" "$cluster" "$plan" "$by")" "$ratio" \
                    "$(compare "$ratio" '>=' 0.97)" "$(over "$net" "$cluster" $name "$plan" 3)"
            done
        done
    done | tee "$dir/speed.txt"
    awk '{ if ($7 < 0.97) short[$3] = short[$3] " " $1 "/" $2; n[$3]++; bad[$3] += $7 < 0.97
           if (!($3 in least) || $7 < least[$3]) least[$3] = $7 }
        END { for (k in n) printf "%-5s short by more than 3 %% in %d of %d, the least %.3f:%s\n", k, bad[k], n[k], least[k], short[k] }' \
        "$dir/speed.txt" | sort
}

# All rows, by how far the prediction is off, but those of a codec, whose first epochs send more than is predicted. The worst again with the
# other seeds, since rounds with rare stutters are a matter of luck.
compare_predictions() {
    local net cluster name
    for net in $nets; do
        for cluster in $clusters; do
            for name in $(grid | cut -d '|' -f 1 | grep -v topk); do echo "$net $cluster $name $(row "$net" "$cluster" "$name" 1)"; done
        done
    done | awk 'NF == 6 { r = $5 / $4; printf "%.3f %.3f %s %s %s\n", (r > 1 ? r - 1 : 1 - r), r, $1, $2, $3 }' | sort -g > "$dir/ratios"
    awk -v all="$(wc -l < "$dir/ratios")" '
        NR == int((all + 1) / 2) { m = $1 } NR == int(0.9 * all + 0.5) { t = $1 } { w = $1 }
        END { printf "predicted images/s beside those of %d runs: off by %.1f %% in the median, 9 of 10 by ", all, 100 * m
              printf "%.1f %% at most, the worst %.1f %%\n", 100 * t, 100 * w }' "$dir/ratios"
    tail -n 20 "$dir/ratios" | while read -r _ _ net cluster name; do
        for seed in $seeds; do echo "speed $net $cluster $name $seed"; done
    done | side_by_side
    echo "the 20 worst, and the same with seeds $seeds: medians"
    tail -n 20 "$dir/ratios" | while read -r _ r net cluster name; do
        printf '  %-9s %-10s %-16s %6.3f  again %6.3f\n' "$net" "$cluster" "$name" "$r" \
            "$(awk -v p="$(middle "$net" "$cluster" "$name" 2)" -v m="$(middle "$net" "$cluster" "$name" 1)" 'BEGIN { print p / m }')"
    done
    echo "by plan: median and worst of all clusters and nets"
    awk '{ n[$5]++; off[$5, n[$5]] = $2; d[$5, n[$5]] = $1 }
        END { for (k in n) printf "  %-16s %6.3f %6.3f\n", k, off[k, int((n[k] + 1) / 2)], off[k, n[k]] }' "$dir/ratios" | sort
}

speeds_part() {
    local net cluster name seed
    for net in $nets; do
        for cluster in $clusters; do
            for name in $(grid | cut -d '|' -f 1); do echo "speed $net $cluster $name 1"; done
            for name in $(planner | cut -d '|' -f 1); do
                for seed in $seeds; do echo "speed $net $cluster $name $seed"; done
            done
        done
    done | side_by_side
    for net in $nets; do
        for cluster in $clusters; do
            for name in $(planner | cut -d '|' -f 1); do best "$net" "$cluster" "$name"; done | sort -u |
                while read -r name; do
                    for seed in $seeds; do echo "speed $net $cluster $name $seed"; done
                done
        done
    done | side_by_side
    compare_speeds
    compare_predictions
}

# ---- time to an accuracy ----

# Of a cluster, the plans of the grid with the most goodput, and the best under BSP. Of `local` nobody knows it; it is there always.
worth_running() {
    local name
    {
        grid | awk -F'|' '$2 != "none" { print $1 }' | while read -r name; do echo "$(row lenet5 "$1" "$name" 1) $name"; done |
            awk 'NF == 4' | sort -k 3,3gr | awk -v top="${TOP:-3}" 'NR <= top { print $4 }'
        best lenet5 "$1" auto-bsp
        echo local-16
    } | sort -u
}
arrived() {   # arrived CLUSTER PLAN: median of seconds
    local seed all=() t
    for seed in $time_seeds; do
        t=$(value "$dir/time.$1.$2.$seed.json" target_seconds)
        [ -n "$t" ] && [ "$t" != null ] || t=inf
        all+=("$t")
    done
    median "${all[@]}"
}
times_part() {
    local cluster name seed plan time own
    mnist=$(find_mnist) || { echo "no MNIST: no time to an accuracy"; return 0; }
    export mnist
    for cluster in $clusters; do
        for name in $(grid | cut -d '|' -f 1); do echo "speed lenet5 $cluster $name 1"; done
    done | side_by_side
    for cluster in $clusters; do
        for name in auto-auto $(worth_running "$cluster"); do
            for seed in $time_seeds; do echo "arrives $cluster $name $seed"; done
        done
    done | side_by_side
    echo "virtual seconds to 98.5 %, LeNet-5 on MNIST; medians of seeds $time_seeds"
    printf '%-10s %-16s %9s %9s %8s  %s\n' cluster "grid's best" planner grid over 'within 10 %'
    for cluster in $clusters; do
        own=$(arrived "$cluster" auto-auto)
        read -r time plan < <(worth_running "$cluster" | while read -r name; do echo "$(arrived "$cluster" "$name") $name"; done |
            sed 's/^inf/1e30/' | sort -g | sed 's/^1e30/inf/')
        printf '%-10s %-16s %9.4g %9.4g %8s  %s\n' "$cluster" "$plan" "$own" "$time" "$(ratio "$own" "$time")" \
            "$(compare "$(ratio "$own" "$time")" '<=' 1.1)"
        for name in $(worth_running "$cluster"); do printf '           %-16s %19.4g\n' "$name" "$(arrived "$cluster" "$name")"; done
    done
}

# ---- live ----

live_plans='bsp-1 bsp-2 bsp-4 bsp-ring bsp-equal-1 bsp-head asp ssp gssp-2 gssp-4 gssp-head-2 gssp-head-4'
# name | hosts: options of `testbed up` | speeds, by which shares are spelt
live_clusters() {
    cat <<'BEDS'
alike|4 --rate 1gbit --cpu 0.5
unlike|4 --rate 1gbit --cpu 0.5 --cpu 3=0.125
thin|4 --rate 100mbit --rate 3=20mbit --cpu 0.5
BEDS
}
# live_run NET BED PLAN RUN STEPS: in the background, since a signal ends `wait` but not a command
live_run() {
    local model=$1 report=$dir/live.$1.$2.$3.$4.json
    [ "$1" != conv3fc ] || model=$root/test/bench/conv3fc.txt
    # shellcheck disable=SC2046 # words
    bed run all "$echelon" train --data "$mnist" --model "$model" --batch 64 --steps "$5" --eval-every 0 --insecure --progress off \
        --join-timeout 120 --report "$report" $(options_of "$3" | sed 's/shards N/shards 4/') > "$dir/log" 2>&1 &
    wait $! || { echo "  $1 $2 $3: $(tail -n 1 "$dir/log")"; echo '{}' > "$report"; }
}
# Plans take turns, run by run, so that what changes on the machine meets all alike.
live_part() {
    local line options net i name rounds seeds
    mnist=$(find_mnist) || { echo "no MNIST: no live runs"; return 0; }
    bed=g$(($$ % 1000000)) seeds=$(seq -s ' ' 1 "${RUNS:-3}")
    printf '%-9s %-10s %-9s %-16s %9s %9s %8s  %s\n' net cluster planner "grid's best" planner grid over 'others, cores'
    while IFS='|' read -r line options; do
        # shellcheck disable=SC2086 # words
        bed_up $options || { [ $? = 3 ] && return 77 || return 1; }
        for net in $nets; do
            live_run "$net" "$line" auto-bsp plan 0
            rounds=$(awk -v r="$(value "$dir/live.$net.$line.auto-bsp.plan.json" predicted_images_per_second)" -v s="${TRAIN:-8}" \
                'BEGIN { n = int(r * s / 64); print n < 20 ? 20 : n }')
            others_since
            for i in $seeds; do
                for name in $live_plans auto-bsp auto-gssp auto-auto; do live_run "$net" "$line" "$name" "$i" "$rounds"; done
            done
            others_since
            live_table "$net" "$line"
        done
        bed down
    done < <(live_clusters)
}
live_table() {
    local name plan candidate by
    for name in auto-bsp auto-gssp auto-auto; do
        by=$(compared_by $name)
        plan=$(for candidate in $live_plans; do
            [[ " $(compared_with $name | tr '\n' ' ') " = *" $candidate "* ]] || continue
            echo "$(middle "live.$1" "$2" "$candidate" "$by") $candidate"
        done | sort -gr | awk 'NR == 1 { print $2 }')
        printf '%-9s %-10s %-9s %-16s %9.0f %9.0f %8.3f  %s\n' "$1" "$2" "${name#auto-}" "$plan" "$(middle "live.$1" "$2" $name "$by")" \
            "$(middle "live.$1" "$2" "$plan" "$by")" "$(over "live.$1" "$2" $name "$plan" "$by")" "$others"
    done
}

export -f run speed arrives hosts_of speeds spelt options_of grid planner
export dir root echelon steps target
draw_hosts
for part in $parts; do
    echo "-- $part"
    case $part in
    speed) speeds_part ;;
    time) times_part ;;
    live) live_part ;;
    *) echo "PARTS are speed, time and live, not '$part'"; exit 2 ;;
    esac
done
