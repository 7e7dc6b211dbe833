# SPDX-License-Identifier: Apache-2.0
# What the benches share; sourced by them. Reports are JSON with one key a line, so they need no JSON reader.
set -euo pipefail
export LC_ALL=C   # numbers with a point

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
echelon=${ECHELON:-$root/build/echelon}
out=$root/build/bench
mkdir -p "$out"

# The folder with MNIST's four files, unpacked to build/mnist when only packed ones are there.
find_mnist() {
    local folder
    for folder in ${ECHELON_DATA:+"$ECHELON_DATA/mnist"} "$root/data/mnist" "$root/build/mnist"; do
        if [ -f "$folder/train-images-idx3-ubyte" ]; then echo "$folder"; return; fi
        if [ -f "$folder/train-images-idx3-ubyte.gz" ]; then
            "$root/tools/get-data" mnist --from "$folder" --to "$root/build/mnist" >&2 && echo "$root/build/mnist" && return
        fi
    done
    return 1
}

# The folder with CIFAR-10's six files, alike.
find_cifar() {
    local folder
    for folder in ${ECHELON_DATA:+"$ECHELON_DATA/cifar10"} "$root/data/cifar10" "$root/build/cifar10"; do
        if [ -f "$folder/data_batch_1.bin" ]; then echo "$folder"; return; fi
        if [ -f "$folder/data_batch_1.bin.xz" ]; then
            "$root/tools/get-data" cifar10 --from "$folder" --to "$root/build/cifar10" >&2 && echo "$root/build/cifar10" && return
        fi
    done
    return 1
}

# value FILE KEY: a number of a report, or null. It is empty when there is no such key.
value() { sed -n "s/^  \"$2\": \(.*[^,]\),*\$/\1/p" "$1"; }

# median NUMBER...: "inf" is larger than all.
median() {
    printf '%s\n' "$@" | sed 's/^inf$/1e999/' | sort -g |
        awk '{ v[NR] = $1 }
            END { m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; print m == "1e999" || m == m + 1 ? "inf" : m }'
}

# compare A '<=' B prints "yes" or "NO"; inf is allowed.
compare() {
    awk -v a="$1" -v op="$2" -v b="$3" 'BEGIN {
        if (a == "inf") a = 1e30; if (b == "inf") b = 1e30
        print (op == ">=" ? a + 0 >= b + 0 : a + 0 <= b + 0) ? "yes" : "NO" }'
}

# ratio A B: A/B with two decimals; a run that never arrived makes it 0 or inf.
ratio() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        if (a == "inf") print "inf"; else if (b == "inf") print "0.00"; else if (b + 0 == 0) print "inf"; else printf "%.2f\n", a / b }'
}

# What a link needs for so many bytes: it carries 119 MB/s of data a Gb/s. 0: a rate that is none.
link_seconds() {   # link_seconds BYTES RATE
    awk -v bytes="$1" -v rate="$2" 'BEGIN {
        unit["gbit"] = 1; unit["mbit"] = 1e-3; unit["kbit"] = 1e-6
        word = tolower(rate); sub(/^[0-9.]+/, "", word)
        print word in unit ? bytes / (119e6 * rate * unit[word]) : 0 }'
}

# The machine, in a few lines.
machine() {
    local cpu
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
    echo "date      $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "commit    $(git -C "$root" describe --always --dirty 2>/dev/null || echo 'not a clone')"
    echo "CPU       ${cpu:-unknown}, $(nproc) cores," \
        "$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo | awk '{ printf "%.0f GiB", $1 / 1048576 }')"
    echo "system    $(uname -sr), $(${CC:-cc} --version | head -1)"
    echo "load      $(cut -d' ' -f1-3 /proc/loadavg) (figures are worth something when it is near 0)"
}

# Hosts of tools/testbed, under the name $bed. It needs a folder, $dir.
bed() { "$root/tools/testbed" --name "$bed" "$@"; }
# bed_up ARGUMENTS...: `testbed up`; the hosts go when the script ends. On failure its status, and what it said: 3, where there can be none.
bed_up() {
    local status=0
    bed up "$@" 2> "$dir/up" || status=$?
    [ $status = 0 ] || { cat "$dir/up"; return $status; }
    trap '[ "$BASHPID" != $$ ] || bed down' EXIT
    trap 'exit 130' INT TERM
}

# What a run on all hosts has printed last may come behind its end, through what puts the host in front of each line.
await_line() {   # await_line FILE KEY: until rank 0's line KEY is there; a run prints it last
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        ! grep -qE "^(0: )?$2 " "$1" || return 0
        sleep 0.1
    done
    echo "$(basename "$0"): a run has not printed $2: $1" >&2
    return 1
}

# One run on hosts: what rank 0 prints is left in $dir/NAME. In the background, since a signal ends `wait` but not a command.
run_on_hosts() {   # run_on_hosts NAME LAST_KEY HOST|all COMMAND...
    bed run "$3" "${@:4}" > "$dir/$1" 2> "$dir/$1.err" &
    wait $! || { cat "$dir/$1" "$dir/$1.err" >&2; return 1; }
    await_line "$dir/$1" "$2" || return 1
    sed -i 's/^0: //' "$dir/$1"
}
of_run() { awk -v key="$2" '$1 == key { print $2 }' "$dir/$1"; }   # of_run NAME KEY
spread() { printf '%s\n' "$@" | sort -g | awk '{ v[NR] = $1 } END { printf "%.2f-%.2f", v[1], v[NR] }'; }

# What the machine did besides: cores busy with work that is not ours, from one call to the next. It needs a folder, $dir.
others_since() {   # into $others
    local cpu rest now mine
    read -r cpu rest < /proc/stat
    now=$(awk -v hz="$(getconf CLK_TCK)" '{ print ($1 + $2 + $3 + $6 + $7) / hz }' <<< "$rest")
    times > "$dir/times"   # a pipe would show a subshell's
    mine=$(awk '{ for (i = 1; i <= NF; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } } END { print sum }' "$dir/times")
    others=$(awk -v b="$now" -v m="$mine" -v b0="${busy0:-$now}" -v m0="${mine0:-$mine}" -v s="$((SECONDS - ${seconds0:-$SECONDS}))" \
        'BEGIN { o = s ? (b - b0 - m + m0) / s : 0; printf "%.2f", o < 0 ? 0 : o }')
    busy0=$now mine0=$mine seconds0=$SECONDS
}
