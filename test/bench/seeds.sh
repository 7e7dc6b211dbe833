#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Any number of seeded runs of the protocol under faults (test/seeds), in as many processes as there are processors, and one table of
# all that happened in them; then every planted bug, who saw it, and within how many seeds it must be seen.
#   test/bench/seeds.sh RUNS=10000000 [FIRST=1] [JOBS=2]
# Begun again it goes on where it was: what is done is kept in build/bench/seeds, for this very program. It ends with the first run
# that breaks an invariant, and shows it.
set -eu
cd "$(dirname "$0")/../.."
for word in "$@"; do
    case $word in
    RUNS=* | FIRST=* | JOBS=*) declare "$word" ;;
    *) echo "usage: $0 [RUNS=N] [FIRST=SEED] [JOBS=N]" >&2; exit 2 ;;
    esac
done
B=${B:-build} RUNS=${RUNS:-100000} FIRST=${FIRST:-1} JOBS=${JOBS:-$(nproc)}
"${MAKE:-make}" -s "$B/test/seeds/test_seeds"
program=$B/test/seeds/test_seeds
work=$B/bench/seeds/$(sha256sum "$program" | cut -c 1-12)
piece=$((RUNS < 50000 * JOBS ? (RUNS + JOBS - 1) / JOBS : 50000))
mkdir -p "$work"

one() {        # one FIRST COUNT: a piece of them, unless it is done
    local out=$work/$1-$2
    [ ! -s "$out" ] || return 0
    "$program" "$1" "$2" >"$out.new" 2>"$out.failed" || { cat "$out.failed"; return 255; }   # no further piece is begun
    rm "$out.failed"
    mv "$out.new" "$out"
}
export -f one
export program work
pieces=()
for ((first = FIRST; first < FIRST + RUNS; first += piece)); do
    left=$((FIRST + RUNS - first))
    pieces+=("$first $((left < piece ? left : piece))")
done
began=$SECONDS
# shellcheck disable=SC2016 # that shell's own words
printf '%s\n' "${pieces[@]}" | xargs -P "$JOBS" -L 1 bash -c 'one "$0" "$1"'
printf '%s runs from seed %s, %s processes, %s s\n\n' "$RUNS" "$FIRST" "$JOBS" $((SECONDS - began))
for each in "${pieces[@]}"; do cat "$work/${each/ /-}"; done | awk '
    !($1 in sum) { name[++names] = $1 }
    $1 ~ /^most\./ { if ($2 > sum[$1] || !($1 in sum)) sum[$1] = $2; next }
    { sum[$1] += $2 }
    END { for (i = 1; i <= names; i++) printf "%-44s %16.0f\n", name[i], sum[name[i]] }'
echo
bash test/seeds/plants.sh
