#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/gpu-check on a machine without cmocka: what it compiles compiles with test/plain, and a check there fails when it must.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-plain.XXXXXX")
trap 'rm -rf "$work"' EXIT
rooms="-Iport/pure -Iport -Ihal -Iops -Inet -Ilib -Itest/plain -Itest $(printf -- '-I%s ' lib/*/ lib/*/*/)"
tests=$(sed -n 's/^tests=(\(.*\))$/\1/p' tools/gpu-check)
[ -n "$tests" ]
# shellcheck disable=SC2086 # lists
for test in $tests; do
    $CC -std=gnu11 -Wall -Wextra -Werror -Wno-unused-function $rooms -fsyntax-only "test/$test.c"
done
checks=("assert_true(one == 1)" "assert_false(one == 2)" "assert_null(none)" "assert_non_null(&one)" "assert_ptr_equal(none, NULL)"
    "assert_int_equal(one, 1)" 'assert_string_equal("a", "a")' 'assert_memory_equal("ab", "ac", 1)')
wrong=("assert_true(one == 2)" "assert_false(one == 1)" "assert_null(&one)" "assert_non_null(none)" "assert_ptr_equal(none, &one)"
    "assert_int_equal(one, -1)" 'assert_string_equal("a", "b")' 'assert_memory_equal("ab", "ac", 2)' 'fail_msg("%d", one)')
run() {        # run STATUS CHECK: a test of this line alone
    local status=0
    {
        echo '#include <cmocka.h>'
        printf 'static void test(void **state) { int one = 1; void *none = NULL; (void)state, (void)one, (void)none; %s; }\n' "$2"
        echo 'int main(void) { const struct CMUnitTest tests[] = {cmocka_unit_test(test)};'
        echo '    return cmocka_run_group_tests(tests, NULL, NULL); }'
    } >"$work/t.c"
    $CC -std=gnu11 -Itest/plain -o "$work/t" "$work/t.c"
    "$work/t" >"$work/said" || status=$?
    [ $status = "$1" ] || { echo "status $status, not $1: $2"; exit 1; }
}
for check in "${checks[@]}" 'skip()'; do run 0 "$check"; done
for check in "${wrong[@]}"; do run 1 "$check"; done
