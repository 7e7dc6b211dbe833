#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Predicted over measured images/s of live runs on the hosts of tools/testbed, with links as they are measured at the start: BSP and GSSP,
# LeNet-5, conv3fc.txt and ResNet-18, at 100 Mb/s, 1 Gb/s and on links without a bound.
#   HOSTS      how many hosts (default 4)
#   CPU        of each (default: two cores divided by the hosts)
#   RATES      default "100mbit 1gbit none"
#   NETS       default "lenet5 conv3fc resnet18"; any other built-in net, too
#   POLICIES   default "bsp gssp"
#   RUNS       of each (default 5): the median of the ratios counts
#   TRAIN      seconds that a run should train for, about (default 8)
# An hour with all defaults, by name only: make bench ONLY=predictions. RUNS=1 NETS=lenet5 is a first trial of two minutes.
# Exits with 77 where there can be no test-bed, or data is missing.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
hosts=${HOSTS:-4} runs=${RUNS:-5} target=${TRAIN:-8}
cpu=${CPU:-$(awk -v n="$hosts" 'BEGIN { printf "%.3g", 2 / n }')}
dir=$out/predictions
rm -rf "$dir"
mkdir -p "$dir"
bed=p$(($$ % 1000000))
mnist=$(find_mnist) || { echo "no MNIST: skipped"; exit 77; }

# train REPORT STEPS: one run over all hosts. In the background, since a signal ends `wait` but not a command. Large nets have generated
# images and none to test with: an evaluation takes them minutes on a part of a core.
train() {
    local command=("$echelon" train --data "$mnist" --steps "$2" --eval-every 0 --insecure --progress off)
    case $net in
    lenet5) command+=(--model lenet5) ;;
    conv3fc) command+=(--model "$root/test/bench/conv3fc.txt") ;;
    *) command=("$root/build/test/bench/bench_sync" "$net" "$2" --insecure 1) ;;
    esac
    bed run all "${command[@]}" --sync "$policy" --join-timeout 120 --report "$1" > "$dir/log" 2>&1 &
    wait $! || { cat "$dir/log" >&2; return 1; }
}

# Runs of rounds enough for the time that is wanted, by the prediction of a run of no rounds; and of so many that the beginning and the
# end do not count, where workers that do not wait for each other have done their last steps some apart: of 12 steps of all workers these
# two cost a tenth (ResNet-18 at 100 Mb/s). The reports stay.
measure() {
    local i steps rate round least=20 ratios=() predicted=() measured=() report=$dir/$net-$policy-$link
    train "$dir/plan.json" 0 || return 1
    rate=$(value "$dir/plan.json" predicted_images_per_second) round=$(value "$dir/plan.json" round)
    [ "$policy" = bsp ] || least=$(value "$dir/plan.json" batch | awk -v b="$round" -F'[^0-9]+' \
        '{ for (i = 1; i <= NF; i++) sum += $i; n = int(30 * sum / b); print n < 60 ? 60 : n }')
    steps=$(awk -v r="$rate" -v b="$round" -v s="$target" -v l="$least" 'BEGIN { n = int(r * s / b); print n < l ? l : n }')
    for ((i = 0; i < runs; i++)); do
        others_since
        train "$report-$i.json" "$steps" || return 1
        others_since
        predicted+=("$(value "$report-$i.json" predicted_images_per_second)")
        measured+=("$(value "$report-$i.json" images_per_second)")
        ratios+=("$(ratio "${predicted[i]}" "${measured[i]}")")
    done
    printf '%-9s %-5s %-8s %10.0f %10.0f %6.2f  %-24s %s\n' "$net" "$policy" "$link" "$(median "${predicted[@]}")" \
        "$(median "${measured[@]}")" "$(median "${ratios[@]}")" "${ratios[*]}" "$others"
}

echo "$hosts hosts, $cpu of a core each; predicted and measured: images/s, medians of $runs runs; others: cores busy with other work"
printf '%-9s %-5s %-8s %10s %10s %6s  %-24s %s\n' net sync link predicted measured ratio "of each run" others
for link in ${RATES:-100mbit 1gbit none}; do
    bed_up "$hosts" --rate "$link" --cpu "$cpu" || exit $([ $? = 3 ] && echo 77 || echo 1)
    for net in ${NETS:-lenet5 conv3fc resnet18}; do
        for policy in ${POLICIES:-bsp gssp}; do measure; done
    done
    bed down
done
