#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# net over loopback: gradients of 1 MiB beside one stream of iperf3 with messages of 1 MiB, by turns; small messages beside a bare
# epoll ping-pong; both without a key and with one. iperf3's own default, 128 KiB from one buffer, is shown too.
#   ROUNDS=5 SECONDS_EACH=2 test/bench/net.sh
source "$(dirname "$0")/common.sh"
bench=${B:-$root/build}/test/bench/bench_net
rounds=${ROUNDS:-5} each=${SECONDS_EACH:-2} port=$((30000 + $$ % 10000))

# iperf OPTION...: GB/s
iperf() {
    local server
    iperf3 -s -1 -p "$port" >/dev/null 2>&1 & server=$!
    sleep 0.5
    iperf3 -c 127.0.0.1 -p "$port" -t "$each" -J "$@" |
        awk '/"sum_received"/ { on = 1 } on && /bits_per_second/ { sub(/,/, "", $2); printf "%.3f\n", $2 / 8e9; exit }'
    wait "$server" || true
}

"$bench"
"$bench" ping
"$bench" ping key
iperf3=$(command -v iperf3 || true)
[ -n "$iperf3" ] || echo "iperf3 is not installed (Debian: apt-get install iperf3): the rates below stand alone"
plain=() keyed=() ratios=() small=() cores=()
for _ in $(seq "$rounds"); do
    read -r rate _ receiver _ sender _ < <("$bench" gradients "$each")
    read -r sealed _ sealed_receiver _ sealed_sender _ < <("$bench" gradients "$each" key)
    plain+=("$rate") keyed+=("$sealed")
    cores+=("$(awk -v a="$sealed_receiver" -v b="$sealed_sender" 'BEGIN { printf "%.2f\n", 1 / (a > b ? a : b) }')")
    line="gradients $rate GB/s ($receiver + $sender ns of processor a byte, receiver + sender)"
    line+=", sealed $sealed GB/s ($sealed_receiver + $sealed_sender)"
    if [ -n "$iperf3" ]; then
        beside=$(iperf -l 1M) default=$(iperf)
        ratios+=("$(ratio "$rate" "$beside")") small+=("$(ratio "$rate" "$default")")
        line+="; iperf3 -l 1M $beside GB/s, its default $default GB/s"
    fi
    echo "$line"
done
echo "gradients of 1 MiB, medians: $(median "${plain[@]}") GB/s, sealed $(median "${keyed[@]}") GB/s"
best=$(median "${cores[@]}")
echo "sealed, by the busier side's processor time: $best GB/s a core  >= 0.8 $(compare "$best" '>=' 0.8)"
if [ -n "$iperf3" ]; then
    beside=$(median "${ratios[@]}")
    echo "without a key beside iperf3 -l 1M: $beside  >= 0.8 $(compare "$beside" '>=' 0.8); beside its default: $(median "${small[@]}")"
fi
