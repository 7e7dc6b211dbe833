#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/testbed: hosts are made, shaped, cut and removed; a run over them; nothing is left when the test-bed's process is killed.
set -u
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
name=t$(($$ % 1000000))
bed() { tools/testbed --name "$name" "$@"; }
trap 'bed down; rm -rf "$work"' EXIT
failed=0
check() {   # check SENTENCE COMMAND...: what must be true
    local sentence=$1
    shift
    "$@" || { echo "not so: $sentence"; failed=1; }
}
ended_with() {   # ended_with STATUS COMMAND...
    local want=$1 got=0
    shift
    "$@" > "$work/out" 2>&1 || got=$?
    [ $got = "$want" ] || { echo "status $got instead of $want: $*"; cat "$work/out"; return 1; }
}

status=0
bed up 2 --rate 1gbit --rate 1=20mbit/100mbit --cpu 1=0.5 2> "$work/up" || status=$?
if [ $status = 3 ]; then tail -n 1 "$work/up"; exit 77; fi
[ $status = 0 ] || { cat "$work/up"; exit 1; }

bed status > "$work/status"
check "host 1 has the rates that were asked for" grep -q '^1 .*20Mbit.*100Mbit.* 0.5 ' "$work/status"
check "a test-bed is not made twice" ended_with 4 bed up 2
check "there is no host 2" ended_with 2 bed run 2 true
check "a rate without a unit is refused" ended_with 2 bed rate 0 100
check "a command's status is passed on" ended_with 7 bed run 0 sh -c 'exit 7'

# Shorter periods than two ticks of the kernel grant a host less than its share (tools/quota.bash). Not by the clock: that takes a
# machine without other work.
granted=$(source tools/quota.bash; for share in 0.125 0.25 0.5 1 2; do quota_of $share; done | awk '{ printf "%g of %d, ", $1, $2 }')
check "quotas are $granted" [ "$granted" = "1000 of 8000, 2000 of 8000, 4000 of 8000, 8000 of 8000, 16000 of 8000, " ]
check "a share below an eighth has the least quota" [ "$(source tools/quota.bash; quota_of 0.05)" = "1000 20000" ]

# A port that nobody listens on answers with a reset; a cut link does not answer.
call() { bed run 1 timeout "$1" bash -c ': < /dev/tcp/198.18.0.10/9'; }
check "a healthy link resets" ended_with 1 call 60
bed cut 0 1
# Bursts: 125,000 bytes of 1 Gb/s, 16,384 of 20 Mb/s.
whole() { bed run "$1" ip -d link show eth0 | sed -n 's/.* gso_max_size \([0-9]*\).*/\1/p'; }
check "packets as large as a burst go whole: $(whole 0) and $(whole 1) bytes" [ "$(whole 0) $(whole 1)" = "65536 15360" ]
check "a cut link is silent" ended_with 124 call 1
bed heal 0 1
check "a healed link resets" ended_with 1 call 60

head -c 32 /dev/urandom > "$work/run.key"
chmod 600 "$work/run.key"
check "two hosts train" ended_with 0 bed run all "$ECHELON" train --data glyphs --steps 3 --eval-every 0 --key "$work/run.key" \
    --join-timeout 3600 --deadline 600 --save "$work/out.safetensors" --report "$work/report"
check "rank 0 saved weights" [ -s "$work/out.safetensors" ]
# Host 0 has 1 Gb/s, but the other sends at 20 Mb/s: with one partner that is what both carry. Slow machines find less.
link=$(sed -n 's/^ *"link": \[\([0-9.]*\), \([0-9.]*\)\].*/\1 \2/p' "$work/report")
check "links of 20 Mb/s were measured as '$link' Mb/s" \
    awk -v l="$link" 'BEGIN { exit !(split(l, m) == 2 && m[1] > 1 && m[1] < 24 && m[2] > 1 && m[2] < 24) }'
bed down
check "nothing is left" [ -z "$(ip netns list | grep "^$name-")" ]

# Removed also when the process that made it is killed.
tools/testbed --name "$name" with 2 -- sleep 300 2>/dev/null &
with=$!
until [ -n "$(ip netns list | grep "^$name-1")" ]; do sleep 0.1; done
until sleeper=$(pgrep -P $with -x sleep); do sleep 0.1; done
kill -KILL $with
wait $with 2>/dev/null
kill "$sleeper"
while [ -n "$(ip netns list | grep "^$name-")" ]; do sleep 0.1; done
exit $failed
