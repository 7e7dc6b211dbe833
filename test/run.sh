#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each test in a process of its own, prints a line for each and, of those that fail, their output.
# Four times as many run at a time as there are processors, since some wait for most of their time; or TEST_JOBS.
# usage: B=build CC=gcc NM=nm SAN= [QUICK=1] [TEST_JOBS=2] [TEST_IDLE=120] [TEST_CPU=1800] [ONLY=word] test/run.sh TEST...
# QUICK leaves out what says `make check only:` at its head, and has random cases tried in part: see test/part.h.
# A test has as much time as it needs. It is ended when it makes no progress: in TEST_IDLE seconds it printed nothing and
# used less than a hundredth of a processor; or when it used TEST_CPU seconds of processor time, as an endless loop does.
# A script that cannot run here exits with 77 and says why in its last line; a program's status 77 is a failure.
set -u
logs=$B/test-logs
mkdir -p "$logs"
: >"$logs/times"   # a line for each test that passed: processor time and wall time in seconds, name
passed=0 failed=0 skipped=0 left_out=0 jobs=${TEST_JOBS:-$((4 * $(nproc)))}
idle_max=${TEST_IDLE:-120} cpu_max=${TEST_CPU:-1800} tick=2 hertz=$(getconf CLK_TCK)
[ -z "${QUICK:-}" ] || export TEST_PART=${TEST_PART:-16}

# A sanitizer's malloc is to answer NULL like any other when there is too little memory: the tests ask for too much.
# Its __tls_get_addr guesses the bounds of a block of thread-local storage from the block's heap header, and where a library that is
# loaded late (OpenCL's runtime) deceives it, the search for leaks reads at them and ends the test by a signal.
export ASAN_OPTIONS="allocator_may_return_null=1:intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export TSAN_OPTIONS="allocator_may_return_null=1${TSAN_OPTIONS:+:$TSAN_OPTIONS}"

# Leak detection needs ptrace, which some containers forbid. Only where a leak planted here goes unseen is it switched off.
case ",${SAN:-}," in
*,address,*)
    probe=$B/leak-probe
    printf '#include <stdlib.h>\nint main(void) { char *volatile p = malloc(7); p = 0; return p != 0; }\n' |
        $CC -x c -fsanitize=address -o "$probe" - || exit 1
    if ! "$probe" 2>&1 | grep -q 'detected memory leaks'; then
        echo "leak detection does not work here (a planted leak went unseen): switched off"
        ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
    fi
    # What OpenCL's runtime keeps of a kernel that it compiles is not ours; it compiles only what it has not compiled before.
    printf 'leak:libpocl\nleak:libLLVM\n' >"$B/leaks-of-others"
    export LSAN_OPTIONS="suppressions=$PWD/$B/leaks-of-others:print_suppressions=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}" ;;
esac

# Under ThreadSanitizer: of what the Makefile names, a program can start threads if it calls this.
starts_threads() { [[ $1 = *.sh ]] || $NM -u "$1" | grep -q pthread_create; }

# check_only NAME: does its source say so at its head?
check_only() {
    local source=$1
    case $source in
    double/*) return 0 ;;   # the same in double
    *.sh) ;;
    test/fuzz/test_fuzz) source=test/fuzz/main.c ;;
    *) source=$source.c ;;
    esac
    head -n 20 "$source" | grep -q '^\(#\| \*\) make check only: '
}

# Each test is a session, which its children cannot leave unintended: what a test started is found by it, and ended with it.
# sessions: of each process of the system its session, its id, and the processor time in ticks of it and of those that it waited for.
sessions() {
    cat /proc/[0-9]*/stat 2>/dev/null |
        awk '{ id = $1; sub(/.*\) /, ""); print $4, id, $12 + $13 + $14 + $15 }'   # a name in brackets may have spaces
}
kill_session() { # kill_session SESSION [BUT]: all of its processes, or all but one
    local id
    for id in $(sessions | awk -v session="$1" -v but="${2:-}" '$1 == session && $2 != but { print $2 }'); do kill -KILL "$id"; done
} 2>/dev/null

declare -A running=() began=()              # name and start of each test that runs, by its process
declare -A ticks=() idle=() ended_why=()    # processor time when progress was last seen, seconds since; why it was ended
set -m                                      # an interrupt here is for this shell, which ends the tests
trap 'for id in "${!running[@]}"; do kill_session "$(session_of "$id")"; done; exit 130' INT TERM

log_of() { echo "$logs/${1//\//-}.log"; }
session_of() { cat "$(log_of "${running[$1]}").session" 2>/dev/null; }

# finish PROCESS: prints how it ended
finish() {
    local id=$1 name=${running[$1]} seconds=$((SECONDS - began[$1])) log status cpu
    log=$(log_of "$name")
    { wait "$id"; } 2>/dev/null
    status=$?
    kill_session "$(session_of "$id")"
    unset "running[$id]"
    cpu=$(awk 'END { print $1 + $2 }' "$log.time")
    if [ $status = 0 ] && [ -z "${ended_why[$id]:-}" ]; then
        passed=$((passed + 1))
        printf 'ok      %s  (%d s, %s of a processor)\n' "$name" $seconds "$cpu"
        echo "$cpu $seconds $name" >>"$logs/times"
        rm -f "$log" "$log.time" "$log.session"
    elif [ $status = 77 ] && [[ $name = *.sh ]]; then
        skipped=$((skipped + 1))
        printf 'skipped %s: %s\n' "$name" "$(tail -n 1 "$log")"
    else
        failed=$((failed + 1))
        printf 'FAILED  %s  (%s; output: %s)\n' "$name" "${ended_why[$id]:-status $status}" "$log"
        tail -n 60 "$log" | sed 's/^/        /'
    fi
}

# give_up PROCESS WHY: a script first hears of it, and can say where it was once the command ends that it waits for.
give_up() {
    local session id text
    ended_why[$1]=$2
    session=$(session_of "$1")
    {
        echo "--- ended: $2. Its processes:"
        for id in $(sessions | awk -v session="$session" '$1 == session { print $2 }'); do
            text=$(tr '\0' ' ' <"/proc/$id/cmdline")
            echo "  $id $(awk '{ sub(/.*\) /, ""); print $1 ", " $12 + $13 " ticks" }' "/proc/$id/stat"): ${text:0:200}"
        done
    } >>"$(log_of "${running[$1]}")" 2>/dev/null
    {
        kill -TERM "$session"
        sleep 2
        kill_session "$session" "$session"
        sleep 3
        kill_session "$session"
    } 2>/dev/null &
}

# A look at each test that runs. Turns are counted, not the clock: where the machine sleeps or this shell is held up, they wait as well.
look() {
    local id session used log all
    all=$(sessions)
    for id in "${!running[@]}"; do
        [ -z "${ended_why[$id]:-}" ] || continue
        session=$(session_of "$id")
        used=$(awk -v session="$session" '$1 == session { sum += $3 } END { print sum + 0 }' <<<"$all")
        log=$(log_of "${running[$id]}")
        if [ "$used" -gt $((cpu_max * hertz)) ]; then
            give_up "$id" "it used more than $cpu_max s of processor time"
        elif [ "$log" -nt "$logs/looked" ] || [ $((${used} - ${ticks[$id]})) -ge $((idle_max * hertz / 100)) ] ||
            [ "$used" -lt "${ticks[$id]}" ]; then   # less: a process is gone that nobody waited for
            ticks[$id]=$used idle[$id]=0
        elif [ $((idle[$id] += tick)) -ge "$idle_max" ]; then
            give_up "$id" "no progress for $idle_max s: no output, no processor time"
        fi
    done
    : >"$logs/looked"
}

# make_room N: waits until fewer than N tests run
make_room() {
    local id alive
    while true; do
        jobs -rp >"$logs/running"   # not in a copy of this shell, which may take running jobs for dead
        alive=$'\n'$(<"$logs/running")$'\n'
        for id in "${!running[@]}"; do
            [[ $alive = *$'\n'"$id"$'\n'* ]] || finish "$id"
        done
        [ ${#running[@]} -ge "$1" ] || return
        if [[ $alive != *$'\n'"$ticker"$'\n'* ]]; then
            look
            sleep $tick &
            ticker=$!
        fi
        wait -n 2>/dev/null
    done
}
ticker=none

# What is long begins first, so that at the end nothing is waited for alone.
long=() short=()
for test in "$@"; do
    case $test in *"${ONLY:-}"*) ;; *) continue ;; esac
    if ! check_only "${test#"$B"/}"; then short+=("$test")
    elif [ -n "${QUICK:-}" ] && [ -z "${ONLY:-}" ]; then left_out=$((left_out + 1))   # who names a test wants it
    else long+=("$test"); fi
done
for test in ${long[@]+"${long[@]}"} ${short[@]+"${short[@]}"}; do
    name=${test#"$B"/}
    [[ ,${SAN:-}, != *,thread,* ]] || starts_threads "$test" || continue
    case $test in
    *.sh) run=(bash "$test") ;;
    /*)   run=("$test") ;;
    *)    run=("./$test") ;;
    esac
    make_room "$jobs"
    log=$(log_of "$name")
    rm -f "$log" "$log.session"
    TIMEFORMAT='%1U %1S' bash -c 'time setsid bash -c '\''echo $$ >"$0.session"; exec "$@"'\'' "$@" 2>&1' timed "$log" "${run[@]}" \
        >>"$log" 2>"$log.time" </dev/null &
    running[$!]=$name
    began[$!]=$SECONDS ticks[$!]=0 idle[$!]=0
done
make_room 1
[ $skipped = 0 ] || echo "$skipped skipped"
[ $left_out = 0 ] || echo "$left_out left to make check"
sort -rn "$logs/times" | awk '{ sum += $1 } NR <= 5 { most = most ", " $3 " " $1 }
    END { if (NR) printf "processor time: %.0f s%s\n", sum, (NR > 5 ? "; most: " substr(most, 3) : "") }'
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
