#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs each test in a process of its own with a time limit, prints a line for each and, of those that fail, what they said.
# As many run at a time as there are processors and one more, since some wait for most of their time; or TEST_JOBS.
# usage: B=build CC=gcc NM=nm SAN= TEST_TIMEOUT=120 [TEST_JOBS=2] [ONLY=word] test/run.sh TEST...
# A script that cannot run here exits with 77 and says why in its last line; a program's status 77 is a failure.
set -u
logs=$B/test-logs
mkdir -p "$logs"
passed=0 failed=0 skipped=0 jobs=${TEST_JOBS:-$(($(nproc) + 1))}

# A sanitizer's malloc is to answer NULL like any other when there is too little memory: the tests ask for too much.
export ASAN_OPTIONS="allocator_may_return_null=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
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
    fi ;;
esac

# A program without threads has no data races: ThreadSanitizer, the slowest of all, is for the others. Those of test/ops and test/fuzz
# compute on one thread, but for the one that holds several against it; what they are linked with could start more. Runs with an allocation
# or a disk that fails, hundreds of them, are those whose threads test_faults_os and test/cluster see; so are those whose allocations are
# counted. Simulated runs have no threads, options and crops need none.
starts_threads() {
    case $1 in
    */test_faults_tool.sh) return 1 ;;
    *.sh | */test/ops/test_threads) return 0 ;;
    */test/ops/* | */test/fuzz/* | */test/faults/test_faults_memory | */test/faults/test_faults_files) return 1 ;;
    */test/cluster/test_alloc | */test/unit/test_predict_sim | */test/unit/test_config | */test/unit/test_augment) return 1 ;;
    esac
    $NM -u "$1" | grep -q pthread_create
}

# With job control each test is a process group, so that nothing of it outlives it, nor an interrupt here.
set -m
declare -A running=() began=()   # name and start of each test that runs, by its process
trap 'for group in "${!running[@]}"; do kill -KILL -- "-$group"; done 2>/dev/null; exit 130' INT TERM

log_of() { echo "$logs/$(tr / - <<<"$1").log"; }

# finish PROCESS: says how it went
finish() {
    local group=$1 name=${running[$1]} seconds=$((SECONDS - began[$1])) log status why
    log=$(log_of "$name")
    wait "$group" 2>/dev/null
    status=$?
    kill -KILL -- "-$group" 2>/dev/null
    unset "running[$group]"
    if [ $status = 0 ]; then
        passed=$((passed + 1))
        printf 'ok      %s  (%d s, %s of a processor)\n' "$name" $seconds "$(awk 'END { print $1 + $2 }' "$log.time")"
        rm -f "$log" "$log.time"
    elif [ $status = 77 ] && [[ $name = *.sh ]]; then
        skipped=$((skipped + 1))
        printf 'skipped %s: %s\n' "$name" "$(tail -n 1 "$log")"
    else
        failed=$((failed + 1))
        case $status in
        124 | 137) why="still running after $TEST_TIMEOUT s" ;;
        *)         why="status $status" ;;
        esac
        printf 'FAILED  %s  (%s; output: %s)\n' "$name" "$why" "$log"
        tail -n 60 "$log" | sed 's/^/        /'
    fi
}

# make_room N: waits until fewer than N tests run
make_room() {
    local group
    while [ ${#running[@]} -ge "$1" ]; do
        for group in "${!running[@]}"; do
            [[ $'\n'$(jobs -rp)$'\n' = *$'\n'"$group"$'\n'* ]] || finish "$group"
        done
        [ ${#running[@]} -lt "$1" ] || sleep 0.05
    done
}

for test in "$@"; do
    case $test in *"${ONLY:-}"*) ;; *) continue ;; esac
    [[ ,${SAN:-}, != *,thread,* ]] || starts_threads "$test" || continue
    name=${test#"$B"/}
    case $test in
    *.sh) run=(bash "$test") ;;
    /*)   run=("$test") ;;
    *)    run=("./$test") ;;
    esac
    make_room "$jobs"
    log=$(log_of "$name")
    TIMEFORMAT='%1U %1S' timeout -k 5 "$TEST_TIMEOUT" bash -c 'time "$@" 2>&1' timed "${run[@]}" >"$log" 2>"$log.time" </dev/null &
    running[$!]=$name
    began[$!]=$SECONDS
done
make_room 1
[ $skipped = 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed != 0 ]
