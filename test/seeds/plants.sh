#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bugs planted into copies of lib/core, one at a time: each must be seen by the invariant it breaks, within so many seeds,
# from its first on, where it takes rare ones.
#   test/seeds/plants.sh [NAME...]     all of plants/, or these; `make tests` has been run
# Prints a table: the plant, the invariant that saw it, the first seed. Fails when one is not seen, seen by another, or when a plant
# does not fit the source any more. Where chance decides which of several sees it first, the plant names them: breaks A|B. The real
# sources have no switch: a plant says which text of which file becomes what.
set -eu
cd "$(dirname "$0")/../.."
B=${B:-build} LIB=${LIB:-$B/libechelon.a} CC=${CC:-gcc}
plants=${PLANTS:-test/seeds/plants}   # the folder they are in
seeds=$B/test/seeds/test_seeds.o work=$B/plants failed=0
include=(-Iport/pure -Ilib/core/{types,cost,planner,sync,exchange,roles})   # as the Makefile compiles lib/core
source test/seeds/plant.sh

[ $# != 0 ] || set -- "$plants"/*.plant
printf '%-34s %-24s %10s %10s\n' plant 'seen by' 'first seed' within
for each in "$@"; do
    each=${each##*/}
    plant "$plants/${each%.plant}.plant" lib/core || { failed=1; continue; }
    if [ -z "$breaks" ] || [ -z "$within" ]; then
        echo "$name: no breaks or within"
        failed=1
        continue
    fi
    mkdir -p "$work/$name"
    source_of=$work/$name/${file##*/}
    printf '%s' "$text" >"$source_of"
    # Objects come before the archive: its member of that name is not taken. CC may be several words. One file of the many that run is not
    # optimised: of most plants the compiler took longer than the runs take.
    if ! { $CC -std=c11 -D_GNU_SOURCE -O0 ${SAN:+-fsanitize=$SAN} "${include[@]}" -c -o "$work/$name/plant.o" "$source_of" &&
           $CC ${SAN:+-fsanitize=$SAN} -o "$work/$name/seeds" "$seeds" "$work/$name/plant.o" "$LIB" -lcmocka -lm -ldl -lpthread
         } 2>"$work/$name/cc"; then
        echo "$name: does not compile"
        cat "$work/$name/cc"
        failed=1
        continue
    fi
    status=0
    "$work/$name/seeds" "$from" "$within" >"$work/$name/out" 2>&1 || status=$?
    read -r seed seen < <(sed -n 's/^seed \([0-9]*\), after [0-9]* events, broken: \([^:]*\):.*/\1 \2/p' "$work/$name/out") || true
    printf '%-34s %-24s %10s %10s\n' "$name" "${seen:-nobody}" "${seed:--}" "$within"
    if [ $status != 1 ] || [[ "|$breaks|" != *"|${seen:-nobody}|"* ]]; then
        echo "  status $status; it should be seen by: $breaks"
        failed=1
    fi
    seen='' seed=''
done
exit $failed
