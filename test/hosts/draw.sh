#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Prints a host file that follows from a seed alone: the same bytes with every awk.
#   test/hosts/draw.sh SEED > FILE     SEED: 1 to 999999
# Two to four classes, four to sixteen hosts, 500 to 4,000 LeNet-5 images/s. A third of the files have one link for all, a third a link a
# class, a third rates that follow speeds, fast machines on fast links, as clusters that have grown have them.
set -euo pipefail
[[ ${1:-} =~ ^[1-9][0-9]{0,5}$ ]] || { echo "usage: draw.sh SEED (1 to 999999, not '${1:-}')" >&2; exit 2; }
# Park and Miller's generator ("Random number generators: good ones are hard to find", CACM 31(10), 1988): exact in doubles. Small seeds
# are neighbours, and their sequences multiples of each other, so squares stir them first.
LC_ALL=C awk -v seed="$1" '
function uniform() { state = state * 16807 % 2147483647; return state / 2147483647 }
function between(low, high) { return int(low + uniform() * (high - low + 1)) }
function ratio(low, high) { return low * exp(uniform() * log(high / low)) }   # as likely to double as to halve
function rounded(x, step) { return int(x / step + 0.5) * step }
BEGIN {
    state = seed
    for (i = 0; i < 16; i++) state = (state * 16807 + (state % 46337) ^ 2 + 1) % 2147483647
    if (state == 0) state = 1
    classes = between(2, 4)
    links = between(0, 2)
    common = rounded(ratio(100, 1000), 10)
    printf "# Drawn by draw.sh from seed %d.\n", seed
    printf "default jitter %.2f stutter %d %% %d x", 0.05 + 0.2 * uniform(), between(0, 3), between(2, 6)
    if (links == 0) printf " link %d Mb/s", common
    if (uniform() < 0.5) printf " delay %d us", between(20, 500)
    print ""
    for (i = 0; i < classes; i++) {
        speed = rounded(ratio(500, 4000), 10)
        printf "hosts %d speed %d images/s", between(2, 4), speed
        if (links == 1) printf " link %d Mb/s", rounded(ratio(50, 1000), 10)
        if (links == 2) printf " link %d Mb/s", rounded(speed / 4, 10)
        print ""
    }
}'
