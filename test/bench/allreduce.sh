#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An all-reduce of floats by a round of Echelon's BSP beside torch.distributed over gloo, in turn: four processes of this machine over
# loopback, then four hosts of tools/testbed with shaped links. One thread each. Every rank compares its sums with the exact ones.
#   MIB             of floats (default 64)
#   EXCHANGES       Echelon's --exchange, each in turn (default "server ring"); what the library refuses is left out
#   RUNS, STEPS     runs of each in turn (default 5), all-reduces a run (default 20)
#   RATE, CPU       of each host (default 1gbit and 0.5)
#   PLACES          default "loopback hosts"; hosts take root
#   OPTIONS         more of Echelon's options
#   BENCH_PYTHON    a Python with torch; without one Echelon alone is measured, and the bench stays open
# The floor is 2 (N - 1) / N of the bytes over the link's goodput of 119 MB/s a Gb/s.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
here=$root/test/bench
node=${B:-$root/build}/test/bench/bench_allreduce
mib=${MIB:-64} runs=${RUNS:-5} steps=${STEPS:-20} rate=${RATE:-1gbit} cpu=${CPU:-0.5} python=${BENCH_PYTHON:-/usr/bin/python3}
world=4
dir=$out/allreduce
rm -rf "$dir"
mkdir -p "$dir"
bed=a$(($$ % 1000000))
port=$((20000 + $$ % 10000))
[ -x "$node" ] || { echo "allreduce: $node is not there: make bench builds it"; exit 2; }
unset OPENBLAS_CORETYPE

# loopback NAME COMMAND...: as the ranks of one run; what rank 0 prints is left in $dir/NAME. The first failure's status.
loopback() {
    local rank one pids=() status=0
    port=$((port + 1))
    for ((rank = 0; rank < world; rank++)); do
        ECH_RANK=$rank ECH_WORLD=$world ECH_COORDINATOR=127.0.0.1:$port GLOO_SOCKET_IFNAME=lo \
            "${@:2}" > "$dir/$1.$rank" 2> "$dir/$1.$rank.err" &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        one=0
        wait "${pids[rank]}" || one=$?
        [ $status != 0 ] || status=$one
    done
    cat "$dir/$1".?.err > "$dir/$1.err"
    mv "$dir/$1.0" "$dir/$1"
    return $status
}
# The same on the hosts. In the background, since a signal ends `wait` but not a command.
hosts() {
    GLOO_SOCKET_IFNAME=eth0 bed run all "${@:2}" > "$dir/$1" 2> "$dir/$1.err" &
    wait $! || return $?
    await_line "$dir/$1" processor_seconds || return 1
    sed -i 's/^0: //' "$dir/$1"
}

echelon_run() {   # echelon_run PLACE NAME EXCHANGE STEPS. "server" is what there is where the library has no such option.
    local options=()
    [ "$3" = server ] || options=(--exchange "$3")
    # shellcheck disable=SC2086   # OPTIONS are words
    $1 "$2" "$node" "$mib" "$4" --shards $world --insecure 1 --join-timeout 120 "${options[@]}" ${OPTIONS:-}
}
torch_run() {   # torch_run PLACE STEPS
    OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
        $1 gloo "$python" -W ignore "$here/bench_allreduce_torch.py" "$mib" "$2"
}

# taken PLACE EXCHANGE: does the library take it?
taken() {
    local status=0
    echelon_run "$1" probe "$2" 1 || status=$?
    [ $status != 0 ] || return 0
    [ $status = 3 ] || { cat "$dir/probe.err" >&2; exit 1; }
    echo "  $2: refused: $(sed -n '1s/^0: //;1p' "$dir/probe.err")"
    return 1
}

# row PLACE NAME FLOOR: of the arrays seconds (NAME's), gloo
row() {
    local i ratios=() time used
    time=$(median "${seconds[@]}") used=$(median "${processor[@]}")
    for i in "${!gloo[@]}"; do ratios+=("$(awk -v a="${gloo[i]}" -v b="${seconds[i]}" 'BEGIN { print a / b }')"); done
    awk -v place="$1" -v name="$2" -v t="$time" -v p="$used" -v floor="$3" -v bytes=$((mib << 20)) \
        -v ratio="$([ ${#ratios[@]} = 0 ] || median "${ratios[@]}")" 'BEGIN {
        printf "%-10s %-16s %8.3f %12.1f %12.4f %10s %12s\n", place, name, t, bytes / t / 1e6, p, ratio ? sprintf("%.2f", ratio) : "-",
            floor ? sprintf("%.2f", t / floor) : "-" }'
}

measure() {   # measure PLACE FLOOR
    local place=$1 exchange i names=() gloo=() gloo_used=()
    for exchange in ${EXCHANGES:-server ring}; do
        if taken "$place" "$exchange"; then names+=("$exchange"); fi
    done
    for ((i = 0; i < runs; i++)); do
        others_since
        printf '  turn %d:' $((i + 1))
        for exchange in "${names[@]}"; do
            echelon_run "$place" "$exchange" "$exchange" "$steps" || { cat "$dir/$exchange.err" >&2; exit 1; }
            echo "$(of_run "$exchange" seconds) $(of_run "$exchange" processor_seconds)" >> "$dir/$place.$exchange.all"
            printf ' %s %s s,' "$exchange" "$(of_run "$exchange" seconds)"
        done
        if [ "$has_torch" = yes ]; then
            torch_run "$place" "$steps" || { cat "$dir/gloo.err" >&2; exit 1; }
            gloo+=("$(of_run gloo seconds)") gloo_used+=("$(of_run gloo processor_seconds)")
            printf ' gloo %s s,' "${gloo[-1]}"
        fi
        others_since
        echo " $others cores busy with other work"
    done
    for exchange in "${names[@]}"; do
        mapfile -t seconds < <(cut -d' ' -f1 "$dir/$place.$exchange.all")
        mapfile -t processor < <(cut -d' ' -f2 "$dir/$place.$exchange.all")
        table+=("$(row "$place" "$exchange" "$2")")
    done
    seconds=("${gloo[@]}") processor=("${gloo_used[@]}")
    [ ${#gloo[@]} = 0 ] || table+=("$(row "$place" gloo "$2")")
}

machine
has_torch=no
if version=$("$python" -W ignore -c 'import torch; from torch import distributed; distributed.ProcessGroupGloo; print(torch.__version__)' \
    2> /dev/null); then
    has_torch=yes
    echo "PyTorch   $version"
else
    echo "no PyTorch with gloo here: name a Python that has it in BENCH_PYTHON; Echelon alone is measured"
fi
echo "an all-reduce of $mib MiB, $world ranks, $steps a run:"
table=()
for place in ${PLACES:-loopback hosts}; do
    echo "$place$([ "$place" = loopback ] || echo ", $rate, $cpu of a core each"):"
    if [ "$place" = loopback ]; then
        measure loopback ''
        continue
    fi
    status=0
    bed_up $world --rate "$rate" --cpu "$cpu" || status=$?
    if [ $status = 3 ]; then continue; fi
    [ $status = 0 ] || exit 1
    measure hosts "$(link_seconds $((2 * (world - 1) * (mib << 20) / world)) "$rate")"
done
echo
printf '%-10s %-16s %8s %12s %12s %10s %12s\n' place what seconds 'MB/s' 'processor s' 'over gloo' 'times floor'
printf '%s\n' "${table[@]}"
echo "medians of $runs runs in turn; over gloo: median of gloo's seconds over these, turn by turn; for 64 MiB at least 1.0 is asked over" \
    "loopback, and at most 0.94 s on hosts of 1gbit"
[ $has_torch = yes ] || exit 77
