#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Keys as a user meets them: runs with one; files that are none; nodes that do not have the same; addresses that
# need one.
. "$(dirname "$0")/cluster.bash"
light_if_watched
good=$work/good
idx_set "$good" 200 20
head -c 32 /dev/urandom >"$work/key"
head -c 32 /dev/urandom >"$work/other"
printf 'too short' >"$work/short"
head -c 5000 /dev/urandom >"$work/long"
: >"$work/empty"
printf 'passwordpassword\n' >"$work/guessed"
chmod 600 "$work"/{key,other,short,long,empty,guessed}

# Runs with a key.
run=(--data "$good" --steps 8 --eval-every 0 --local 3)
expect 0 '^  sent ' "${run[@]}" --key "$work/key"
expect 0 '^  sent ' "${run[@]}" --key "$work/key" --sync gssp
expect 0 '^  speed ' --data "$good" --steps 1 --key "$work/key"

# Files that are no keys.
node=(--data "$good" --world 2 --join-timeout 2)
refuse 2 '\-\-key has 9 bytes: give a file of 16 to 4096' "${node[@]}" --coordinator 127.0.0.1:0 --key "$work/short"
refuse 2 '\-\-key has 0 bytes' "${node[@]}" --coordinator 127.0.0.1:0 --key "$work/empty"
refuse 2 '\-\-key holds 17 bytes that are easy to guess.*/dev/urandom' "${node[@]}" --coordinator 127.0.0.1:0 --key "$work/guessed"
refuse 14 "long' has 5000 bytes" "${node[@]}" --coordinator 127.0.0.1:0 --key "$work/long"
refuse 13 "nokey' \(No such file" "${node[@]}" --coordinator 127.0.0.1:0 --key "$work/nokey"
refuse 2 "good' is a folder" "${node[@]}" --coordinator 127.0.0.1:0 --key "$good"
for mode in 640 604 620 666; do
    chmod $mode "$work/other"
    refuse 2 "other' is a secret that others may read or change \(its mode is $mode\): chmod 600" "${node[@]}" --coordinator 127.0.0.1:0 \
        --key "$work/other"
done
chmod 400 "$work/other"
# Root reads what belongs to others, and says that they can, too.
if [ "$(id -u)" = 0 ] && cp "$work/key" "$work/foreign" && chown 65534 "$work/foreign" 2>/dev/null; then
    expect 0 "foreign' belongs to user 65534 \(mode 600\): others" "${run[@]}" --key "$work/foreign"
fi
refuse 2 'key and insecure contradict' "${node[@]}" --coordinator 127.0.0.1:0 --key "$work/key" --insecure

# Beyond this machine only with one of the two.
refuse 2 '\-\-coordinator 0.0.0.0:0 leads off this machine.*--key FILE.*--insecure' "${node[@]}" --coordinator 0.0.0.0:0
refuse 2 '\-\-coordinator 203.0.113.9:7000 leads off this machine' "${node[@]}" --rank 1 --coordinator 203.0.113.9:7000
refuse 2 '\-\-bind 0.0.0.0 leads off this machine' "${node[@]}" --rank 1 --coordinator 127.0.0.1:1 --bind 0.0.0.0
expect 17 'rank 1 did not' "${node[@]}" --coordinator 0.0.0.0:0 --insecure
expect 17 'rank 1 did not' "${node[@]}" --coordinator 0.0.0.0:0 --key "$work/key"

# Two nodes and what they were given: pair WHAT SAID KEY0 KEY1
pair() {
    free_port
    start 0 "${node[@]}" --coordinator "127.0.0.1:$port" --steps 3 --join-timeout 10 ${3:+--key "$work/$3"}
    start 1 "${node[@]}" --coordinator "127.0.0.1:$port" --steps 3 --join-timeout 10 ${4:+--key "$work/$4"}
    node_ends 1 19 "$2" "$1"
    node_ends 0 17 "$2" "$1"
}
pair "two keys" 'calls itself rank 1 has another key: give all nodes the same --key file' key other
pair "only rank 0 has a key" 'rank 1 was started without --key but rank 0 with one' key ''
pair "only rank 1 has a key" 'rank 1 was started with --key but rank 0 without' '' key
free_port
start 0 "${node[@]}" --coordinator "0.0.0.0:$port" --steps 3 --key "$work/key" --join-timeout 60
start 1 "${node[@]}" --coordinator "127.0.0.1:$port" --steps 3 --key "$work/key" --join-timeout 60
node_ends 1 0 '' "one key"
node_ends 0 0 '' "one key"
verdict keys
