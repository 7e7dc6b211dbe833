#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What layer separation is worth (Stanza: Wu et al., arXiv 1812.10624) on hosts of tools/testbed: images/s of BSP with the fully connected
# layers on a node of their own, and with nothing separated: by a parameter server that all hosts share, by one on a host of its own, by a
# ring, and by PyTorch DDP over gloo. All four hosts train; dense fp32 gradients, momentum SGD, generated images.
#   ROWS            NET:RATE of each row, NET of `echelon model` or a file of this folder; default, of three kinds of links:
#                   "alexnet:1gbit alexnet:40mbit vgg19fc.txt:40mbit resnet18:40mbit". 40 Mb/s is to half a core what 10 Gb/s is to the V100
#                   of the paper
#   HOSTS, CPU      how many hosts (default 4), and how much of a core each has (two cores divided by the hosts)
#   BATCH           samples a step of each host (default 8)
#   RUNS            of each in turn (default 3): medians count
#   TRAIN           seconds that a run should train for, about (default 20), but 4 steps at least
#   WAYS            default "separated shadowed sharded dedicated ring torch"; `shadowed` is separated with a second node that trains the
#                   head as well, `planned` what the planner chooses where it may separate or not
#   SHARES          Echelon's --shares (default speed)
#   BENCH_PYTHON    a Python with torch; without it there is no row of DDP
# Hours with all defaults, by name only: make bench ONLY=separation. ROWS=alexnet:1gbit RUNS=1 is a first look of four minutes.
# Exits with 77 where there can be no test-bed.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
here=$root/test/bench
node=${B:-$root/build}/test/bench/bench_sync
hosts=${HOSTS:-4} batch=${BATCH:-8} runs=${RUNS:-3} target=${TRAIN:-20} shares=${SHARES:-speed}
cpu=${CPU:-$(awk -v n="$hosts" 'BEGIN { printf "%.3g", 2 / n }')}
unset OPENBLAS_CORETYPE
export GLOO_SOCKET_IFNAME=eth0   # a host's name says nothing about its address
dir=$out/separation
rm -rf "$dir"
mkdir -p "$dir"
bed=h$(($$ % 1000000))
[ -x "$node" ] || { echo "separation: $node is not there: make bench builds it"; exit 2; }

train() {   # train WAY STEPS: an Echelon run
    local way=$1 options=(--shares "$shares")
    case $way in
    separated) options+=(--separate on) ;;
    shadowed) options+=(--separate on --shadow 1) ;;
    planned) options+=(--separate auto) ;;
    sharded) options=(--separate off --shares equal --exchange server --shards "$hosts") ;;
    dedicated) options=(--separate off --exchange server --shards 1 --shares "$(dedicated)") ;;
    ring) options=(--separate off --shares equal --exchange ring) ;;
    esac
    run_on_hosts "$way" batches all "$node" "$model" "$2" --sync bsp --batch $((batch * hosts)) --threads 1 --lr 0.001 --momentum 0.9 \
        --weight-decay 0 --join-timeout 300 --insecure 1 "${options[@]}"
}
# Rank 0 trains nothing, so that the only owner is placed there; the others share the batch.
dedicated() { awk -v n="$hosts" -v b=$((batch * hosts)) 'BEGIN { s = 0; for (i = 1; i < n; i++) { k = int((b - left) / (n - i)); left += k
    s = s "," k }; print s }'; }
torch() {   # torch STEPS
    [ -n "${BENCH_PYTHON:-}" ] || return 1
    OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
        run_on_hosts torch link_bytes all "$BENCH_PYTHON" -W ignore "$here/bench_ddp_torch.py" "$echelon" "$model" "$batch" "$1" view
}

title() { printf '%-12s %-8s %-10s %9s %-15s %10s %6s  %s\n' "$@"; }
measure() {   # measure NET RATE, on the hosts that are up
    local net=$1 model=$1 link=$2 way i steps=0 base
    [ ! -f "$here/$net" ] || model=$here/$net
    local -A rates=() predicted=() heads=() shared=() of=()
    for ((i = 0; i < runs; i++)); do
        for way in ${WAYS:-separated shadowed sharded dedicated ring torch}; do
            if [ "$way" = torch ]; then
                steps=$(awk -v t="$target" 'BEGIN { n = int(t / 4); print n < 4 ? 4 : n }')   # some 4 s a step on 1 Gb/s
                torch "$steps" || continue
            else
                if [ -z "${of[$way]:-}" ]; then
                    train "$way" 0 || continue
                    of[$way]=$(of_run "$way" predicted | awk -v t="$target" -v b=$((batch * hosts)) \
                        '{ n = int($1 * t / b); print n < 4 ? 4 : n }')
                fi
                train "$way" "${of[$way]}" || continue
                predicted[$way]=$(of_run "$way" predicted) heads[$way]=$(of_run "$way" head) shared[$way]=$(of_run "$way" batches)
            fi
            rates[$way]+=" $(of_run "$way" images_per_second)"
        done
    done
    # shellcheck disable=SC2086 # lists of numbers
    base=$(median ${rates[separated]:-0})
    for way in ${WAYS:-separated shadowed sharded dedicated ring torch}; do
        [ -n "${rates[$way]:-}" ] || continue
        # shellcheck disable=SC2086
        i=$(median ${rates[$way]})
        title "$net" "$link" "$way" "$(printf '%.2f' "$i")" "$(spread ${rates[$way]})" \
            "$([ -z "${predicted[$way]:-}" ] || ratio "${predicted[$way]}" "$i")" "$([ "$base" = 0 ] || ratio "$base" "$i")" \
            "${shared[$way]:+samples ${shared[$way]}}$([ "${heads[$way]:--1}" -lt 0 ] || echo ", head ${heads[$way]}")"
    done
}

machine
echo "$hosts hosts, $cpu of a core each; images/s: median of $runs runs in turn, and their range; predicted over measured; separated over" \
    "each"
title net rate way images/s range predicted times plan
for row in ${ROWS:-alexnet:1gbit alexnet:40mbit vgg19fc.txt:40mbit resnet18:40mbit}; do
    bed_up "$hosts" --rate "${row##*:}" --cpu "$cpu" || exit $([ $? = 3 ] && echo 77 || echo 1)
    measure "${row%:*}" "${row##*:}"
    bed down
done
