#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The runner of the tests itself: a test that is slow but goes on passes, one that sleeps or computes for ever is ended and reported,
# nothing outlives its test, and `make test` leaves out what only `make check` runs.
set -u
runner=$(cd "$(dirname "$0")/.." && pwd)/run.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-runner.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
bad() {
    failures=$((failures + 1))
    echo "BAD  $*"
    sed 's/^/     | /' out
}
reports() { grep -qE -e "$1" out || bad "the runner does not report '$1'"; }
patience=6   # seconds without progress

mkdir test
# Each of these two takes longer than that: the first computes a little now and then, the second prints.
echo 'for i in 1 2 3 4 5 6 7 8 9; do for ((k = 0; k < 10000; k++)); do :; done; sleep 1; done' >test/computes.sh
echo 'for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 1; done' >test/prints.sh
# `timeout` makes a group of processes of its own.
echo "trap 'echo I was told; exit 1' TERM; timeout 1000 sleep 1001; echo not reached" >test/sleeps.sh
echo 'while :; do :; done' >test/spins.sh
echo 'timeout 1000 sleep 1002 & echo $! >left' >test/leaves.sh
echo 'echo not here; exit 77' >test/skips.sh
echo 'echo wrong; exit 3' >test/fails.sh
printf '# make check only: it is long\nexit 0\n' >test/long.sh
run() { ONLY='' SAN='' B=build TEST_JOBS=9 TEST_IDLE=$patience TEST_CPU=2 bash "$runner" "$@" >out 2>&1; }

QUICK=1 run test/*.sh && bad "the runner's status is 0 though tests failed"
reports '^ok      test/computes.sh '
reports '^ok      test/prints.sh '
reports '^ok      test/leaves.sh '
reports "^FAILED  test/sleeps.sh  \(no progress for $patience s: no output, no processor time; output: .*/test-sleeps.sh.log\)"
reports '^ +[0-9]+ S, [0-9]+ ticks: sleep 1001'
reports '^        I was told'
reports '^FAILED  test/spins.sh  \(it used more than 2 s of processor time'
reports '^FAILED  test/fails.sh  \(status 3'
reports '^        wrong$'
reports '^skipped test/skips.sh: not here'
reports '^1 skipped'
reports '^1 left to make check'
reports '^3 passed, 3 failed'
[ ! -e "/proc/$(cat left)" ] || bad "a process outlives its test"
QUICK='' run test/long.sh || bad "a test that only make check runs is not run there"
reports '^ok      test/long.sh '
reports '^1 passed, 0 failed'

echo "runner: $failures not as expected"
[ $failures = 0 ]
