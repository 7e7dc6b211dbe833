#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Seconds of training until LeNet-5 finds 99 % of MNIST's test digits, on all cores of this machine, seven seeds; 10 wanted, 2 aimed at.
#   SEEDS="1 2 3"      other seeds
#   OPTIONS="--..."    other settings
source "$(dirname "$0")/common.sh"

data=$(find_mnist) ||
    { echo "mnist99: no MNIST in \$ECHELON_DATA/mnist or data/mnist (tools/get-data mnist fetches it): skipped"; exit 77; }
options=${OPTIONS:---batch 64 --lr 0.06 --schedule cosine --epochs 6 --warmup 0.2}
seconds=() reached=0
for seed in ${SEEDS:-1 2 3 4 5 6 7}; do
    # shellcheck disable=SC2086 # options are words
    "$echelon" train --data "$data" --seed "$seed" $options --eval-every 10000 --target-accuracy 0.99 --progress off \
        --report "$out/mnist99.json" > /dev/null 2>&1 || true   # one that does not reach it counts as never
    at=$(value "$out/mnist99.json" target_seconds)
    if [ "$at" = null ]; then at=inf; else reached=$((reached + 1)); fi
    seconds+=("$at")
    printf 'seed %s: %s s, epoch %s, best %s\n' "$seed" "$at" "$(value "$out/mnist99.json" target_epochs)" \
        "$(value "$out/mnist99.json" best_accuracy)"
done
middle=$(median "${seconds[@]}")
echo "99 % of MNIST with $options: median $middle s of ${#seconds[@]} seeds, $reached of which reached it:" \
    "at most 10 $(compare "$middle" '<=' 10)"
