#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One node, all defaults, real MNIST: 98.5 % at a look within 3 epochs, 98.9 % at some look within 10, for each seed.
#   SEEDS="1 2 3"   other seeds than 1 to 7
source "$(dirname "$0")/common.sh"

seeds=${SEEDS:-1 2 3 4 5 6 7}
data=$(find_mnist) ||
    { echo "accuracy: no MNIST in \$ECHELON_DATA/mnist or data/mnist (tools/get-data mnist fetches it): skipped"; exit 0; }
fails=0

# first_look FILE PERCENT: the epoch of the first evaluation that found so much, from the progress lines, or null. Each look has
# a line of its own: "  12.3 s  epoch 1.65  loss 0.0512  test 98.52 %  ..."; of 10,000 images two decimals are exact.
first_look() {
    awk -v least="$2" '{ for (i = 1; i < NF; i++) {
            if ($i == "epoch") e = $(i + 1)
            if ($i == "test" && $(i + 1) >= least) { print e; found = 1; exit } } }
        END { if (!found) print "null" }' "$1"
}

printf '%-6s %18s %18s %18s\n' seed "98.5 % at epoch" "98.9 % at epoch" "best in 10 epochs"
for seed in $seeds; do
    "$echelon" train --data "$data" --seed "$seed" --epochs 10 --progress auto --report "$out/accuracy-$seed.json" \
        > /dev/null 2> "$out/accuracy-$seed.txt" || { cat "$out/accuracy-$seed.txt"; exit 1; }
    early=$(first_look "$out/accuracy-$seed.txt" 98.5)
    late=$(first_look "$out/accuracy-$seed.txt" 98.9)
    verdict=pass
    if [ "$early" = null ] || [ "$(compare "$early" '<=' 3)" != yes ] || [ "$late" = null ]; then verdict=FAIL; fails=$((fails + 1)); fi
    printf '%-6s %18s %18s %18s   %s\n' "$seed" "${early/null/never}" "${late/null/never}" \
        "$(awk -v b="$(value "$out/accuracy-$seed.json" best_accuracy)" 'BEGIN { printf "%.2f %%", 100 * b }')" $verdict
done
if [ $fails = 0 ]; then echo "accuracy: all seeds pass"; else echo "accuracy: $fails of the seeds FAIL"; exit 1; fi
