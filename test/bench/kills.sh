#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Live runs in which one node is killed, now and then two: RUNS of them (20). A seed chooses kind of run, victims and moment.
#   RUNS=200 FIRST=1 KINDS="shards-4 shards-5 shards-momentum" test/bench/kills.sh
#   SEED=17 test/bench/kills.sh     that one again (with the same KINDS)
# Victims are any nodes that the run can lose: not rank 0, no head without a shadow, never all owners of the trunk. The moment is
# during start-up, in the first rounds, in the middle or near the end. Afterwards these must hold:
#   - the command ends by itself, with status 0, and leaves no process
#   - the report counts all samples, and names the victims
#   - replayed from its recordings, the run comes to the same weights, bit for bit
#   - under BSP with shards and without momentum the weights are those of one node that trains alone (THE_SAME at most apart: a
#     sample that is missing in one shard, or is there twice, moves them ten times as far). Under GSSP each sample is once in
#     the owners' recordings.
# A run that was over before the kill does not count. Of a run that failed all files are kept in build/bench/kills.
. "$(dirname "$0")/common.sh"
. "$root/test/cluster/apart.bash"

runs=${SEED:+1} runs=${runs:-${RUNS:-20}} first=${SEED:-${FIRST:-1}}
read -ra kinds <<<"${KINDS:-shards-4 shards-5 shards-momentum gssp-2 gssp-3 gssp-auto bsp bsp+head asp ssp+head bsp+shadow gssp+shadow}"
data=$(find_mnist) || { echo "MNIST is not here: tools/get-data mnist"; exit 77; }
rounds=${ROUNDS:-250} PATIENCE=${PATIENCE:-60} THE_SAME=2e-6
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-kills.XXXXXX") run=
trap 'kill -KILL $run 2>/dev/null || true; rm -rf "$work"' EXIT

# LeNet-5 as it was published. Without ReLU and max-pool the order of sums hardly shows in the weights.
printf '%s\n' 'input 1 28 28' 'conv2d out 6 kernel 5 pad 2' tanh 'avg_pool kernel 2 stride 2' 'conv2d out 16 kernel 5' tanh \
    'avg_pool kernel 2 stride 2' 'fc out 120' tanh 'fc out 84' tanh 'fc out 10' >"$work/smooth"

# Each role on ranks of its own, and the slow one with a group of its own, which it owns.
plan() {       # plan NAME SYNC HEAD MOMENTUM LINES...
    printf '%s\n' "sync $2" 'world 5' 'round 80' 'lr 0.02' "momentum $4" 'decay 0' "head $3" "${@:5}" >"$work/$1"
}
plan bsp bsp none 0.9 'group 0 owner 0 workers 0:20 1:20 2:20 3:10 4:10'
plan bsp+head bsp 0 0.9 'group 0 owner 0 workers 1:25 2:25 3:20 4:10'
plan asp asp none 0.9 'group 0 owner 0 workers 0:16 1:16 2:16 3:16 4:16'
plan ssp+head ssp 1 0.9 'group 0 owner 0 workers 0:32 2:32 3:32 4:16'
plan gssp-2 gssp 0 0.9 'group 0 owner 1 workers 1:32 2:32 3:32' 'group 1 owner 4 workers 4:16'
plan gssp-3 gssp 0 0.9 'group 0 owner 1 workers 1:32 2:32' 'group 1 owner 3 workers 3:32' 'group 2 owner 4 workers 4:16'
plan bsp+shadow bsp 3 0.9 'shadow 1' 'group 0 owner 0 workers 0:20 1:20 2:20 3:10 4:10'
plan gssp+shadow gssp 2 0.9 'shadow 1' 'group 0 owner 1 workers 0:32 1:32 2:32' 'group 1 owner 4 workers 3:16 4:16'
plan shards-5 bsp none 0 'shards 0,1,2,3,4' 'group 0 owner 0 workers 0:20 1:20 2:20 3:10 4:10'
plain=(--lr 0.02 --weight-decay 0)
equal=(--sync bsp --shards 4 --shares equal --batch 64)   # by speed a rank 0 that is slow does not train: then no owner may be lost

set_kind() {   # into $world, $round, $options and $model
    world=5 round=80 model=lenet5 options=(--plan "$work/$1" --slow 4=3)
    case $1 in
    shards-4) world=4 round=64 model=$work/smooth options=("${equal[@]}" --momentum 0 "${plain[@]}") ;;
    shards-5) model=$work/smooth ;;
    shards-momentum) world=4 round=64 options=("${equal[@]}" --momentum 0.9 "${plain[@]}") ;;
    gssp-auto) options=(--sync gssp --batch 80 --slow '3=3,4=3' "${plain[@]}") ;;
    esac
    samples=$((rounds * round))
}

begin() {      # begin ARGUMENT...
    rm -rf "$work/report" "$work/saved" "$work/plan" "$work/run" "$work/kept"
    "$echelon" train --local $world --data "$data" --model "$model" "${options[@]}" --steps $rounds --eval-every 8000 \
        --measure 0.1 --deadline 5 --progress off --report "$work/report" --save "$work/saved" --save-plan "$work/plan" \
        --record "$work/run" "$@" >"$work/out" 2>"$work/err" </dev/null &
    run=$! began=$(date +%s%N)
}
milliseconds() { echo $((($(date +%s%N) - $1) / 1000000)); }
over() { ! kill -0 "$run" 2>/dev/null; }
await() {      # await SECONDS COMMAND...: false when the command fails so long, or the run is over
    local since=$(date +%s%N) limit=$1
    until "${@:2}"; do
        [ "$(milliseconds "$since")" -lt $((limit * 1000)) ] && ! over || return 1
        sleep 0.005
    done
}
finish() {     # its status into $status; who waits for whom is asked before it is ended
    status=0
    if ! await "$PATIENCE" over && ! over; then
        kill -USR1 "$run"
        sleep 1
        kill -KILL "$run"
    fi
    wait "$run" || status=$?
    run=
}
find_nodes() { # into $nodes, in order of rank
    mapfile -t nodes < <(cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent="$run" '$4 == parent { print $1 }' | sort -n)
    [ ${#nodes[@]} = "$world" ]
}
field() { sed -n "s/^$1 //p" "$2"; }

# ---- victims and moment, by the seed ----

draw() { drawn=$((RANDOM * 32768 + RANDOM)); drawn=$((drawn % $1)); }   # draw N: 0 to N - 1
draw_seconds() {   # draw_seconds FROM TO. Not in a subshell, whose random numbers no seed repeats
    draw 10001
    drawn=$(awk -v r=$drawn -v from="$1" -v to="$2" 'BEGIN { printf "%.3f", from + (to - from) * r / 10000 }')
}

owners_of() { sed -n 's/^group [0-9]* owner \([0-9]*\).*/\1/p' "$1"; }   # of groups; the reserve's is on a line of its own
# Who may die, by the plan that is followed. gssp-auto's is known only when the run has made it.
may_lose() {   # may_lose PLAN
    local head owners
    head=$(field head "$1") shadow=$(field shadow "$1") owners=($(owners_of "$1"))
    for ((rank = 1; rank < world; rank++)); do
        [ "$rank" = "$head" ] && [ -z "$shadow" ] && continue
        grep -q '^shards' "$1" || [ "${owners[*]}" != "$rank" ] || continue
        echo "$rank"
    done
}
are_head_and_shadow() { # are_head_and_shadow PLAN RANK RANK: one of them has to be left
    local head shadow
    head=$(field head "$1") shadow=$(field shadow "$1")
    [ -n "$shadow" ] && [[ " $head $shadow $head " == *" $2 $3 "* ]]
}
all_owners() { # all_owners PLAN RANK RANK: are these all that own the trunk?
    ! grep -q '^shards' "$1" && ! owners_of "$1" | grep -qvxE "$2|$3"
}
choose_victims() {   # choose_victims PLAN: into $victims and, of the second, $later (seconds behind the first)
    local can=($(may_lose "$1")) one two
    draw ${#can[@]}
    one=${can[drawn]} victims=$one
    draw ${#can[@]}
    two=${can[drawn]}
    draw_seconds -0.15 0.15
    later=$drawn
    [ "$pair" = 0 ] && [ "$one" != "$two" ] && ! all_owners "$1" "$one" "$two" && ! are_head_and_shadow "$1" "$one" "$two" &&
        victims="$one $two"
    return 0
}
choose() {     # choose SEED: what is known before the run begins
    RANDOM=$(($1 * 7919 % 32768))
    draw 1 && draw 1   # the first numbers of neighbouring seeds are alike
    draw ${#kinds[@]}
    kind=${kinds[drawn]}
    set_kind "$kind"
    local moments=(start first middle end)
    moment=${moments[$1 % 4]}
    [ "$kind/$moment" != gssp-auto/start ] || moment=first
    draw 5
    pair=$drawn   # 0: two victims
    draw 3
    extra=()
    [ "$drawn" != 0 ] || extra=(--checkpoint "$work/kept" --every 100)
}
wait_for_moment() {
    local seconds=${train_seconds[$kind]}
    case $moment in
    start) draw_seconds 0 "${start_seconds[$kind]}" ;;
    first) draw_seconds 0 0.12 ;;
    middle) draw_seconds 0.1 "$seconds" ;;
    end) draw_seconds "$(awk -v s="$seconds" 'BEGIN { print 0.8 * s }')" "$(awk -v s="$seconds" 'BEGIN { print 1.05 * s }')" ;;
    esac
    # The plan is written when it is sent; training begins some milliseconds later.
    if [ "$moment" = start ]; then await 10 find_nodes || true; else await 20 test -s "$work/plan" || true; find_nodes || true; fi
    sleep "$drawn"
}
kill_one() { [ -n "${nodes[$1]:-}" ] && kill -KILL "${nodes[$1]}" 2>/dev/null || true; }   # else it has ended already
kill_victims() {
    set -- $victims
    kill_one "$1"
    [ $# = 1 ] || { awk -v s="$later" 'BEGIN { exit !(s > 0) }' && sleep "$later"; kill_one "$2"; }
    killed=$(date +%s%N)
}

# ---- what must hold ----

is_owner() { grep -q "^group [0-9]* owner $1 " "$work/plan"; }
# Each of these prints what is wrong, or nothing.
wrong_samples() { [ "$(value "$work/report" samples)" = "$samples" ] || echo "not $samples samples; "; }
wrong_weights() {
    [ -s "$work/saved" ] || { echo "no weights; "; return; }
    [ "$model" = "$work/smooth" ] || return 0
    local far=$(apart "$work/saved" "$work/alone-$round")
    is_within "$far" $THE_SAME || echo "weights $far from one node's; "
}
wrong_replay() {
    timeout 120 "$echelon" replay "$work/run" --model "$model" --data "$data" >"$work/replayed" 2>&1 ||
        echo "replay: $(tail -n 1 "$work/replayed"); "
}
wrong_leases() {     # of two lost owners of several the recordings do not tell
    local owners=0 rank text
    case $kind in gssp*) ;; *) return 0 ;; esac
    for rank in ${lost//,/ }; do owners=$((owners + $(is_owner "$rank" && echo 1 || echo 0))); done
    [ $owners -lt 2 ] || return 0
    "$echelon" replay "$work/run" --show >"$work/shown" 2>&1 || { echo "recordings cannot be read; "; return; }
    text=$(awk -v samples=$samples -v lost="$lost" -v task=apply -f "$root/test/cluster/once.awk" "$work/shown") || echo "$text; "
}
left_behind() {
    for pid in "${nodes[@]}"; do [ -e "/proc/$pid" ] && { awk '{ exit $3 == "Z" }' "/proc/$pid/stat" || echo "node $pid is left; "; }; done
}
judge() {      # into $outcome and $told
    local wrong=$(left_behind)
    lost=$(value "$work/report" lost 2>/dev/null | tr -d '[] ') || true
    if [ "$status" != 0 ]; then
        outcome=FAILED told="${wrong}status $status: $(tail -n 1 "$work/err")"
        return 0
    fi
    [ "$lost" != '' ] || { outcome=over told=; return 0; }
    for rank in ${lost//,/ }; do [[ " $victims " == *" $rank "* ]] || wrong+="rank $rank was lost, and not killed; "; done
    wrong+=$(wrong_samples; wrong_weights; wrong_leases; wrong_replay)
    outcome=survived told="lost $lost, $(value "$work/report" samples_again) samples again"
    [ "$(value "$work/report" momentum_lost)" = 0 ] || told+=", $(value "$work/report" momentum_lost) momenta gone"
    [ -z "$wrong" ] || outcome=FAILED told=$wrong
}
keep_logs() {
    mkdir -p "$out/kills"
    rm -rf "$out/kills/$seed"
    cp -r "$work" "$out/kills/$seed"
    echo "      kept in build/bench/kills/$seed; again: SEED=$seed KINDS=\"${kinds[*]}\" test/bench/kills.sh"
}

# ---- what runs without a kill take, and what one node alone comes to ----

declare -A train_seconds start_seconds normal cost count
undisturbed() {   # undisturbed KIND
    local starts=() trains=()
    set_kind "$1"
    for _ in 1 2 3; do
        begin
        finish
        [ "$status" = 0 ] || { cat "$work/err"; exit 1; }
        starts+=("$(value "$work/report" startup_seconds)")
        trains+=("$(awk -v a="$(value "$work/report" seconds)" -v b="$(value "$work/report" measuring_seconds)" 'BEGIN { print a + b }')")
    done
    start_seconds[$1]=$(median "${starts[@]}") train_seconds[$1]=$(median "${trains[@]}")
    [ "$model" != "$work/smooth" ] || [ -e "$work/alone-$round" ] ||
        "$echelon" train --data "$data" --model "$model" --steps $rounds --batch $round --momentum 0 "${plain[@]}" --eval-every 0 \
            --progress off --save "$work/alone-$round" >/dev/null
    [ -z "$(wrong_weights)" ] || { echo "$1 without a kill: $(wrong_weights)"; exit 1; }
}
for kind in "${kinds[@]}"; do undisturbed "$kind"; done

hits=0 failed=0
printf '%5s  %-16s %-7s %-8s %8s  %-9s %s\n' seed kind moment victims seconds outcome told
for ((seed = first; hits < runs; seed++)); do
    choose $seed
    begin ${extra[@]+"${extra[@]}"}
    victims=
    [ "$kind" = gssp-auto ] || case $kind in
        shards-*) printf 'head none\nshards all\n' >"$work/known"; choose_victims "$work/known" ;;
        *) choose_victims "$work/$kind" ;;
        esac
    wait_for_moment
    [ -n "$victims" ] || choose_victims "$work/plan"
    kill_victims
    finish
    judge
    count[$kind/$outcome]=$((${count[$kind/$outcome]:-0} + 1))
    [ "$outcome" = over ] && [ -z "${SEED:-}" ] && continue
    hits=$((hits + 1))
    seconds=$(value "$work/report" seconds 2>/dev/null || true)
    [ "$outcome" != survived ] || cost[$kind]+=" $seconds"
    printf '%5d  %-16s %-7s %-8s %8.2f  %-9s %s\n' "$seed" "$kind" "$moment" "${victims// /,}" "${seconds:-0}" "$outcome" "$told"
    [ "$outcome" != FAILED ] || { failed=$((failed + 1)); keep_logs; }
done

printf '\n%-16s %6s %9s %7s %7s %15s %12s\n' kind kills survived FAILED 'no hit' 'seconds plain' 'with a kill'
for kind in "${kinds[@]}"; do
    s=${count[$kind/survived]:-0} f=${count[$kind/FAILED]:-0}
    printf '%-16s %6d %9d %7d %7d %15.2f %12s\n' "$kind" $((s + f)) "$s" "$f" "${count[$kind/over]:-0}" \
        "${train_seconds[$kind]}" "$([ -z "${cost[$kind]:-}" ] || printf %.2f "$(median ${cost[$kind]})")"
done
echo "no hit: the run was over before the kill, and does not count"
echo "seeds $first to $((seed - 1)), FIRST=$seed for more"
echo "$((hits - failed)) of $hits kills ended as they must"
[ $failed = 0 ]
