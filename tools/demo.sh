#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make demo`: four nodes on this machine, one of them four times slower, learn digits in three ways.
set -euo pipefail
export LC_ALL=C   # numbers with a point

root=$(cd "$(dirname "$0")/.." && pwd)
echelon=${ECHELON:-$root/build/echelon}
out=$root/build/demo
target=0.985
# Four nodes on, say, two cores would wait for each other's cores, and the slow one would have the most to itself. So each
# gets a quarter of a core, rank 3 a quarter of that: now they are as unlike as machines of their own.
slow=0=4,1=4,2=4,3=16
mkdir -p "$out"

# --- data: what is here, else what can be fetched, else generated
has() { [ -f "$1/train-images-idx3-ubyte" ] || [ -f "$1/train-images.idx3-ubyte" ]; }
find_data() {
    local folder
    for folder in ${ECHELON_DATA:+"$ECHELON_DATA/mnist"} "$root/data/mnist" "$root/build/mnist"; do
        if has "$folder"; then echo "$folder"; return; fi
        if [ -f "$folder/train-images-idx3-ubyte.gz" ]; then
            "$root/tools/get-data" mnist --from "$folder" --to "$root/build/mnist" >&2 && echo "$root/build/mnist" && return
        fi
    done
    echo "demo: no MNIST in \$ECHELON_DATA/mnist or data/mnist; fetching it" >&2
    if "$root/tools/get-data" mnist --to "$root/data/mnist" >&2; then echo "$root/data/mnist"; return; fi
    echo "demo: MNIST cannot be fetched, so the digits are generated ones (glyphs); figures will differ" >&2
    echo glyphs
}
data=$(find_data)

# --- three runs
# run NAME TITLE OPTIONS...: ends at the target, or after 6 epochs without it, which the table then says.
run() {
    local name=$1 title=$2 status=0
    shift 2
    echo "== $title: echelon train --local 4 --slow $slow $*"
    rm -f "$out/$name.json"
    "$echelon" train --data "$data" --local 4 --slow $slow --target-accuracy $target --epochs 6 --report "$out/$name.json" "$@" || status=$?
    [ $status = 0 ] || [ $status = 26 ] || exit $status   # 26: the target was not reached
    echo
}
run equal "BSP, equal shares" --sync bsp --shares equal
run speed "BSP, shares by speed" --sync bsp --shares speed --batch 128 --lr 0.04
run gssp "GSSP, FC layers apart" --sync gssp

# --- the table
# The report has one key a line, so its numbers need no JSON reader.
value() { sed -n "s/^  \"$2\": \(.*[^,]\),*\$/\1/p" "$out/$1.json"; }
bytes() { value "$1" bytes_sent | grep -o ': [0-9]*' | awk '{ sum += $2 } END { printf "%.1f MB", sum / 1e6 }'; }
row() {
    local seconds
    seconds=$(value "$1" target_seconds)
    [ "$seconds" = null ] && seconds="not reached" || seconds=$(printf '%.1f s' "$seconds")
    printf '%-24s %10.0f   %11s   %10s\n' "$2" "$(value "$1" images_per_second)" "$seconds" "$(bytes "$1")"
}
echo "Four nodes, rank 3 four times slower than the others, on $data:"
printf '%-24s %10s   %11s   %10s\n' "" "images/s" "to 98.5 %" "sent"
row equal "BSP, equal shares"
row speed "BSP, shares by speed"
row gssp "GSSP, FC layers apart"
echo "(reports: ${out#"$PWD"/}/*.json)"
