# SPDX-License-Identifier: Apache-2.0
# Files of weights beside each other: 32-bit floats behind a header. Sourced by cluster.bash and by test/bench/kills.sh.
floats() { od -An -v -w4 -t f4 -j $((8 + $(od -An -t u8 -N 8 "$1"))) "$1"; }
apart() {      # apart FILE FILE: the largest difference; "none" where one has no weights
    paste <(floats "$1") <(floats "$2") |
        awk 'NF != 2 { bad = 1 } { d = $1 - $2; d = d < 0 ? -d : d; if (!(d <= most)) most = d }
            END { print NR && !bad ? most + 0 : "none" }'
}
is_within() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "none" && a + 0 <= b + 0) }'; }   # is_within DIFFERENCE MOST
