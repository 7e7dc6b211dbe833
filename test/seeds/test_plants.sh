#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The seeded runs can fail: every planted bug fits the source, and is seen by the invariant that it breaks, within its number of seeds: each
# of a TEST_PART-th whose turn it is (test/part.h); under sanitizers one, the canary. And what is no bug is not taken for a seen one.
# make check only: it builds and runs a program for each plant.
set -eu
cd "$(dirname "$0")/../.."
if [ -n "${SAN:-}" ]; then
    bash test/seeds/plants.sh staleness_one_more
else
    source test/seeds/plant.sh
    all=(test/seeds/plants/*.plant) turn=() part=${TEST_PART:-1}
    for each in "${all[@]}"; do plant "$each" lib/core; done
    for ((i = ${TEST_TURN:-0} % part; i < ${#all[@]}; i += part)); do turn+=("${all[i]##*/}"); done
    bash test/seeds/plants.sh "${turn[@]}"
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-plants.XXXXXX")
trap 'rm -rf "$work"' EXIT
harmless() {   # harmless LINE: a plant that turns this line of sync.c into itself
    printf 'file sync/sync.c\nbreaks staleness\nwithin 20\n<<<<\n%s\n====\n%s\n>>>>\n' "$1" "$1" >"$work/harmless.plant"
    PLANTS=$work bash test/seeds/plants.sh harmless >"$work/out" && { echo "a plant that nobody can see counts as seen"; exit 1; }
    grep -q "$2" "$work/out" || { echo "it failed for another reason:"; cat "$work/out"; exit 1; }
}
harmless '    return table[sync];' 'harmless  *nobody'
harmless '    return tables[sync];' 'not in sync/sync.c exactly once'
