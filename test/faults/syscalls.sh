#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# By hand, not in CI: strace makes the n-th system call of a whole process fail, for n = 1, 2, ... until a run has no such call.
# The command must end in time with 0 or a status and a sentence, and never by a signal. Needs strace; takes minutes.
# usage: test/faults/syscalls.sh [CALL=ERROR ...]      (default: those below)
# shellcheck source-path=SCRIPTDIR source=../cluster/cluster.bash
. "$(dirname "$0")/../cluster/cluster.bash"
command -v strace >/dev/null || { echo "strace is not installed"; exit 77; }
idx_set "$work/data" 128 16
default='read=EINTR read=EIO write=EINTR write=ENOSPC openat=EMFILE openat=EINTR openat=EACCES mmap=ENOMEM clone3=EAGAIN
socket=EMFILE bind=EADDRINUSE listen=EINVAL accept4=EMFILE connect=EINTR connect=ECONNREFUSED readv=EINTR readv=ECONNRESET
sendmsg=EINTR sendmsg=EPIPE sendmsg=ENOBUFS epoll_wait=EINTR epoll_ctl=ENOMEM epoll_create1=EMFILE eventfd2=EMFILE ppoll=EINTR
fsync=EIO fsync=EINTR rename=EIO close=EINTR clock_nanosleep=EINTR getrandom=ENOSYS sched_getaffinity=EINVAL
setsockopt=ENOPROTOOPT getsockname=ENOBUFS'
tried=0
# shellcheck disable=SC2086 # a list
for pair in ${*:-$default}; do
    call=${pair%=*} error=${pair#*=}
    for n in $(seq 400); do
        rm -f "$work/w"
        strace -f -o "$work/trace" -e "trace=$call" -e "inject=$call:error=$error:when=$n" \
            "$echelon" train --data "$work/data" --steps 2 --eval-every 0 --local 2 --join-timeout 3 --deadline 3 \
            --save "$work/w" >"$work/out" 2>"$work/err" </dev/null
        status=$?
        grep -q INJECTED "$work/trace" || break
        tried=$((tried + 1))
        # A loader without its libraries ends with 127, as does bash.
        [[ $status =~ ^(0|1[0-9]|2[0-6]|127)$ ]] || bad "$call $n: $error: status $status"
        [ $status = 0 ] || [ -s "$work/err" ] || bad "$call $n: $error: no word"
        [ $status != 0 ] || [ -s "$work/w" ] || bad "$call $n: $error: no weights and status 0"
        ls "$work"/w.*.tmp >/dev/null 2>&1 && bad "$call $n: $error: a temporary file is left"
    done
    echo "$pair: $((n - 1)) calls"
done
checks=$tried
verdict "system calls that fail"
