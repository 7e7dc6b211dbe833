#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The example programs as a user would build them: against the installed archive, outside the tree, with nothing but
# `pkg-config --static`; then each in four processes.
set -euo pipefail
export LC_ALL=C   # numbers with a point

root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-outside.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() { echo "outside: $*" >&2; exit 1; }

# --- build; `make test` has installed to $STAGE already
installed=${STAGE:-$work/installed}
if [ -z "${STAGE:-}" ]; then
    "${MAKE:-make}" -s -C "$root" install DESTDIR= PREFIX="$installed" >"$work/install.log" 2>&1 ||
        { cat "$work/install.log" >&2; fail "make install failed"; }
fi
cp "$root"/test/outside/{whole.c,softmax.c,trunk.c,Makefile} "$work"
export PKG_CONFIG_PATH=$installed/lib/pkgconfig
env -u MAKEFLAGS -u MFLAGS -u CFLAGS -u LDFLAGS "${MAKE:-make}" -s -C "$work" CC="${CC:-cc}" ||
    fail "the examples do not build with pkg-config --static"

# --- data
data=glyphs
given=${ECHELON_DATA:+$ECHELON_DATA/mnist}
if [ -n "$given" ] && [ -f "$given/train-images-idx3-ubyte" ]; then
    data=$given
elif [ -n "$given" ] && [ -f "$given/train-images-idx3-ubyte.gz" ]; then
    "$root/tools/get-data" mnist --from "$given" --to "$work/mnist" >"$work/data.log" 2>&1 ||
        { cat "$work/data.log" >&2; fail "$given cannot be unpacked"; }
    data=$work/mnist
else
    echo "outside: no MNIST (\$ECHELON_DATA/mnist is not there), so glyphs are used"
fi

# --- run
# together WORLD NAME COMMAND...: as many processes, each told its place by the environment. All must end well.
# Output of rank 0 in NAME.0.
together() {
    local world=$1 name=$2 port=$((20000 + $$ * 41 % 12000)) pids=() r status=0
    shift 2
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done   # somebody listens there
    for ((r = 0; r < world; r++)); do
        ECH_RANK=$r ECH_WORLD=$world ECH_COORDINATOR=127.0.0.1:$port "$@" >"$work/$name.$r" 2>&1 &
        pids+=($!)
    done
    for r in "${!pids[@]}"; do
        wait "${pids[$r]}" || { status=$?; echo "outside: $name: rank $r ended with $status:" >&2; cat "$work/$name.$r" >&2; }
    done
    [ $status = 0 ] || fail "$name failed"
}
# accuracy_of NAME AT_LEAST
accuracy_of() {
    awk -v name="$1" -v least="$2" '/^accuracy/ { found = 1; print "  " name ": " $0; if ($2 < least) bad = 1 }
        END { exit bad || !found }' \
        "$work/$1.0" || fail "$1: accuracy below $2: $(cat "$work/$1.0")"
}
cd "$work"
least=0.85
[ "$data" != glyphs ] || least=0.75

together 4 whole ./whole
accuracy_of whole 0.95

# One process and four must train the same model under bsp: each round is the same 64 samples with the same weights. Only
# the order of float sums differs: a few 1e-7 in a weight, so 1e-5 is exact up to rounding and far below any mistake (one
# sample too many or too few in a single round moves weights by more than 1e-4).
together 1 softmax-1 ./softmax "$data" one.txt
together 4 softmax-bsp env ECH_SYNC=bsp ./softmax "$data" four.txt
accuracy_of softmax-1 $least
accuracy_of softmax-bsp $least
paste one.txt four.txt | awk 'NF != 2 || $1 + 0 != $1 + 0 { bad = 1 }
    { d = $1 - $2; if (d < 0) d = -d; if (d > most) most = d; size = $1 < 0 ? -$1 : $1; if (size > largest) largest = size }
    END { printf "  bsp in four processes: weights up to %.3g, differ from one process by at most %.2g\n", largest, most
          exit bad || NR != 7850 || most > 1e-5 || largest == 0 }' || fail "four processes under bsp do not train what one does"

# Who pushes when is the machine's, and late pushes act as momentum themselves (Mitliagkas et al., "Asynchrony begets momentum", 2016): with
# the example's 0.9 on top accuracies were 0.80 to 0.90 in 30 runs, with none 0.899 to 0.901 in twelve.
together 4 softmax-gssp env ECH_SYNC=gssp ECH_MOMENTUM=0 ECH_LR=0.02 ./softmax "$data"
accuracy_of softmax-gssp $least

# A trunk of its own with a head of Echelon's: alone, with the head on each node, and with one node that trains it for all. Under bsp MNIST
# came to 0.948 each time, under gssp to 0.896 to 0.914 in seven runs.
together 1 trunk-1 ./trunk "$data"
together 3 trunk-bsp env ECH_SYNC=bsp ECH_SEPARATE=off ./trunk "$data"
together 3 trunk-head env ECH_SYNC=bsp ECH_SEPARATE=on ./trunk "$data"
together 3 trunk-gssp env ECH_SYNC=gssp ECH_SEPARATE=on ECH_MOMENTUM=0.5 ./trunk "$data"
for name in trunk-1 trunk-bsp trunk-head trunk-gssp; do accuracy_of $name $least; done
echo "outside: the examples build and train"
