#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs in which a node is killed, RUNS of them (20): any rank but the coordinator, the head's owner and a trunk's only owner, at a
# random moment of training. Each must end with status 0 and with every sample accounted for. Beside each kind of run stands what a
# kill cost: its seconds of training beside the same without one, where the nodes share the machine, so that one less is none slower.
# A run that was over before the kill is one without: it is made again.
#   RUNS=200 SEED=1 test/bench/kills.sh
. "$(dirname "$0")/common.sh"

runs=${RUNS:-20} nodes=() RANDOM=${SEED:-1}
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-kills.XXXXXX")
run=
trap 'kill -KILL $run 2>/dev/null || true; rm -rf "$work"' EXIT

# Each role on ranks of its own, and the slow one with a group of its own, which it owns.
plan() {       # plan FILE SYNC HEAD GROUPS...
    { printf 'sync %s\nworld 5\nround 80\nlr 0.02\nmomentum 0.9\ndecay 0\nhead %s\n' "$2" "$3"
      printf '%s\n' "${@:4}"; } >"$1"
}
plan "$work/bsp" bsp none 'group 0 owner 0 workers 0:20 1:20 2:20 3:10 4:10'
plan "$work/bsp+head" bsp 0 'group 0 owner 0 workers 1:25 2:25 3:20 4:10'
plan "$work/asp" asp none 'group 0 owner 0 workers 0:16 1:16 2:16 3:16 4:16'
plan "$work/ssp+head" ssp 1 'group 0 owner 0 workers 0:32 2:32 3:32 4:16'
plan "$work/gssp-2" gssp 0 'group 0 owner 1 workers 1:32 2:32 3:32' 'group 1 owner 4 workers 4:16'
plan "$work/gssp-3" gssp 0 'group 0 owner 1 workers 1:32 2:32' 'group 1 owner 3 workers 3:32' 'group 2 owner 4 workers 4:16'
declare -A victims=([bsp]='1 2 3 4' [bsp+head]='1 2 3 4' [asp]='1 2 3 4' [ssp+head]='2 3 4' [gssp-2]='1 2 3 4' [gssp-3]='1 2 3 4')
kinds=(bsp bsp+head asp ssp+head gssp-2 gssp-3)
epochs=${EPOCHS:-2} samples=$(( ${EPOCHS:-2} * 20000 ))

begin() {      # begin KIND
    rm -f "$work/report" "$work/saved"
    "$echelon" train --local 5 --data glyphs --plan "$work/$1" --save-plan "$work/saved" --slow 4=3 --epochs "$epochs" \
        --eval-every 8000 --progress off --report "$work/report" >"$work/out" 2>"$work/err" </dev/null &
    run=$!
}
finish() {     # its status into $status, its seconds into $seconds
    status=0
    wait "$run" || status=$?
    run=
    seconds=$(value "$work/report" seconds 2>/dev/null || true)
}
nodes_of() {   # its nodes, in order of rank
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent="$1" '$4 == parent { print $1 }' | sort -n
}

declare -A plain cost count noticed alone
for kind in "${kinds[@]}"; do
    times=()
    for _ in $(seq ${PLAIN:-3}); do
        begin "$kind"
        finish
        times+=("$seconds")
    done
    alone[$kind]="${times[*]}"
    plain[$kind]=$(median "${times[@]}")
    cost[$kind]= count[$kind]=0 noticed[$kind]=
done

good=0
printf '%4s  %-9s %6s %8s %8s  %s\n' run kind victim 'after s' seconds outcome
for ((i = 1; i <= runs; i++)); do
    kind=${kinds[RANDOM % ${#kinds[@]}]}
    set -- ${victims[$kind]}
    shift $((RANDOM % $#))
    victim=$1
    begin "$kind"
    # The plan is written when it is sent; training begins some milliseconds later.
    for ((t = 0; t < 2000; t++)); do [ -e "$work/saved" ] && break; sleep 0.01; done
    after=$(awk -v r=$RANDOM -v s="${plain[$kind]}" 'BEGIN { printf "%.2f", 0.1 + s * r / 32768 }')
    sleep "$after"
    mapfile -t nodes < <(nodes_of "$run")
    began=$(date +%s%N)
    [ -n "${nodes[victim]:-}" ] && kill -KILL "${nodes[victim]}" 2>/dev/null || true   # else it has ended already
    for ((t = 0; t < 500; t++)); do
        grep -q "rank $victim was lost" "$work/err" && break
        kill -0 "$run" 2>/dev/null || break
        sleep 0.005
    done
    took=$((($(date +%s%N) - began) / 1000000))
    finish
    outcome=good
    [ "$status" = 0 ] || outcome="status $status: $(tail -n 1 "$work/err")"
    [ -e "$work/report" ] || { echo "{}" >"$work/report"; outcome="no report, status $status: $(tail -n 1 "$work/err")"; }
    [ "$(value "$work/report" samples)" = "$samples" ] || outcome="$outcome; not $samples samples"
    lost=$(value "$work/report" lost)
    if [ "$lost" = "[$victim]" ]; then
        cost[$kind]+=" $seconds"
        noticed[$kind]+=" $took"
        outcome="$outcome, $(value "$work/report" samples_again) samples issued again, seen after $took ms"
    elif [ "$lost" = "[]" ] && [ "$outcome" = good ]; then
        alone[$kind]+=" $seconds"
        plain[$kind]=$(median ${alone[$kind]})
        i=$((i - 1))
        continue
    else outcome="lost: $lost"; fi
    count[$kind]=$((count[$kind] + 1))
    case $outcome in good*) good=$((good + 1)) ;; esac
    printf '%4d  %-9s %6d %8s %8.2f  %s\n' "$i" "$kind" "$victim" "$after" "${seconds:-0}" "$outcome"
done

printf '\n%-10s %5s %14s %14s %12s\n' kind runs 'seconds plain' 'with a kill' 'seen, ms'
for kind in "${kinds[@]}"; do
    [ -n "${cost[$kind]}" ] || continue
    printf '%-10s %5d %14.2f %14.2f %12s\n' "$kind" "${count[$kind]}" "${plain[$kind]}" "$(median ${cost[$kind]})" \
        "$(median ${noticed[$kind]})"
done
echo "$good of $runs runs ended with every sample accounted for"
[ "$good" = "$runs" ]
