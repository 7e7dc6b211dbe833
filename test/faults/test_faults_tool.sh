#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole command where the OS gives little: closed streams, broken pipes, few descriptors, little memory, small files, a
# full disk, an empty environment. It does its work or says in one sentence why not, and leaves no half file.
# shellcheck source-path=SCRIPTDIR source=../cluster/cluster.bash
. "$(dirname "$0")/../cluster/cluster.bash"
idx_set "$work/data" 256 16
args=(train --data "$work/data" --steps 2 --eval-every 0)

# try STATUSES COMMAND...: bash runs it; its status is one of STATUSES, and when it failed it said so.
try() {
    local wanted=$1 status
    shift
    checks=$((checks + 1))
    bash -c "set -o pipefail; $*" -- "$echelon" "${args[@]}" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status =~ ^($wanted)$ ]] || bad "status $status, not $wanted: $*"
    return $status
}

# --- streams
try 0 '"$@" <&-'
try 0 '"$@" 2>&-'
try 0 '"$@" 2>/dev/full'
try 0 '"$@" --local 3 <&- 2>&-'
try 13 '"$@" >&-'
try 13 '"$@" >/dev/full'
try 13 '"$@" --local 3 >/dev/full'
try 13 '"$@" >&- 2>&- <&-'
try 13 '"$@" --local 3 --progress on 2>&1 | true'   # nobody reads: SIGPIPE must not leave nodes behind
try 0 '"$1" train --help | head -c 10; case ${PIPESTATUS[0]} in 0 | 13 | 141) ;; *) false ;; esac'   # 141: SIGPIPE
try 0 'env -i "$@"'

# A closed stream's number is not given to a socket, which would get what is said on the stream.
free_port
"$echelon" "${args[@]}" --world 2 --rank 0 --coordinator "127.0.0.1:$port" >"$work/0.log" 2>&- </dev/null &
nodes[0]=$!
await listens "$port"
check "standard error is $(readlink "/proc/${nodes[0]}/fd/2")" [ "$(readlink "/proc/${nodes[0]}/fd/2")" = /dev/null ]
kill -KILL "${nodes[0]}"
{ wait "${nodes[0]}"; } 2>/dev/null
nodes=()

# --- descriptors and memory: from too little to enough, each ends well or with a sentence
worked=0 failed=0
few() {        # few STATUSES COMMAND...: like try; a failure says something on stderr, but 139: the kernel ended it
    local status=0
    try "$@" || status=$?
    [ $status != 0 ] || { worked=$((worked + 1)); return; }
    failed=$((failed + 1))
    [ $status = 139 ] || [ -s "$work/err" ] || bad "fails without a word: $*"
}
[[ ,${SAN:-}, != *,address,* ]] || export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0   # which takes descriptors itself
for n in 3 4 5 6 8 10 12 20; do
    few '0|1[0-9]|20|127' "ulimit -n $n; \"\$@\" --join-timeout 1 --local 2"
done
check "few descriptors: $worked runs worked, $failed failed" [ $worked -gt 0 ] && [ $failed -gt 0 ]
if [ -z "${SAN:-}" ]; then      # a sanitizer's own memory is beyond all limits
    worked=0 failed=0
    for kib in 6000 8000 12000 16000 20000 24000 32000 48000 64000 96000 400000; do
        wanted='0|12|127'                              # 127 and 139: not even the loader has enough
        [ $kib -ge 16000 ] || wanted+='|139'
        few "$wanted" "ulimit -v $kib; \"\$@\""
    done
    check "little memory: $worked runs worked, $failed failed" [ $worked -gt 0 ] && [ $failed -gt 0 ]
fi

# --- files
nothing_beside() { check "left behind: $(ls "$work/files")" [ "$(ls "$work/files")" = "$1" ]; }
mkdir "$work/files"
try 13 "ulimit -f 4; \"\$@\" --save $work/files/w"
check "the limit's name" grep -q 'ulimit -f' "$work/err"
nothing_beside ''
try 13 "\"\$@\" --save /dev/full"
try 13 "\"\$@\" --report $work/files"
mkfifo "$work/fifo"
try '1[0-9]|2' "\"\$@\" --init $work/fifo"
try '1[0-9]|2' "\"\$@\" --plan $work/fifo"
try 13 "\"\$@\" --save $work/fifo"

# A disk of 64 KiB, where such a thing may be mounted.
disk='mount -t tmpfs -o size=64k none "'$work'/files" && '
if unshare -m bash -c "$disk true" 2>/dev/null; then
    export echelon work args
    full() {   # full COMMAND...: on that disk; then what is on it
        try 13 "unshare -m bash -c '$disk \"\$@\"; status=\$?; ls $work/files >$work/left; exit \$status' -- \"\$@\" $*"
        grep -q 'free some space' "$work/err" || bad "does not say what to do: $*"
    }
    full --save "$work/files/w"
    check "left behind on a full disk: $(cat "$work/left")" [ ! -s "$work/left" ]
    full --local 2 --save "$work/files/w" --report "$work/files/r"
    check "left behind on a full disk: $(cat "$work/left")" [ ! -s "$work/left" ]
else
    echo "no small disk can be mounted here: that part is left out"
fi
verdict "little from the OS"
