/* SPDX-License-Identifier: Apache-2.0
 * What tools/gpu-check compiles tests with in place of cmocka, on a machine that has none and no network: the few words of it that the
 * tests of devices use, with the same meaning. One test after the other in this process; the first check of a test that fails ends it. */
#ifndef PLAIN_CMOCKA_H
#define PLAIN_CMOCKA_H
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*CMFixtureFunction)(void **state);
struct CMUnitTest { const char *name; void (*test)(void **state); CMFixtureFunction setup, teardown; };
#define cmocka_unit_test_setup_teardown(f, s, t) {#f, f, s, t}
#define cmocka_unit_test_setup(f, s) {#f, f, s, NULL}
#define cmocka_unit_test(f) {#f, f, NULL, NULL}

enum { PLAIN_FAILED = 1, PLAIN_SKIPPED };
static jmp_buf plain_end;   /* of the test that runs */

__attribute__((format(printf, 1, 2))) static inline void print_message(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
}
#define print_error print_message

_Noreturn static inline void plain_fail(const char *file, int line) {
    printf("[   LINE   ] --- %s:%d: error: Failure!\n", file, line);
    longjmp(plain_end, PLAIN_FAILED);
}
#define fail_msg(...) (print_message(__VA_ARGS__), print_message("\n"), plain_fail(__FILE__, __LINE__))
#define skip() longjmp(plain_end, PLAIN_SKIPPED)
#define plain_check(holds, ...) ((holds) ? (void)0 : fail_msg(__VA_ARGS__))
#define plain_int(x) ((uintmax_t)(x))
#define assert_true(x) plain_check((x), "%s", #x)
#define assert_false(x) plain_check(!(x), "not %s", #x)
#define assert_null(x) plain_check((x) == NULL, "%s is not NULL", #x)
#define assert_non_null(x) plain_check((x) != NULL, "%s is NULL", #x)
#define assert_ptr_equal(a, b) plain_check((const void *)(a) == (const void *)(b), "%s is not %s", #a, #b)
#define assert_int_equal(a, b) plain_int_equal(plain_int(a), plain_int(b), #a, #b, __FILE__, __LINE__)
#define assert_string_equal(a, b) plain_string_equal((a), (b), __FILE__, __LINE__)
#define assert_memory_equal(a, b, n) plain_check(memcmp((a), (b), (n)) == 0, "%s and %s differ", #a, #b)

static inline void plain_int_equal(uintmax_t a, uintmax_t b, const char *a_text, const char *b_text, const char *file, int line) {
    if (a == b) return;
    printf("%s is %#" PRIxMAX ", %s is %#" PRIxMAX "\n", a_text, a, b_text, b);
    plain_fail(file, line);
}
static inline void plain_string_equal(const char *a, const char *b, const char *file, int line) {
    if (strcmp(a, b) == 0) return;
    printf("\"%s\" is not \"%s\"\n", a, b);
    plain_fail(file, line);
}

static inline int plain_run(const struct CMUnitTest *t) {
    void *state = NULL;
    printf("[ RUN      ] %s\n", t->name);
    fflush(stdout);
    int ended = setjmp(plain_end);
    if (ended == 0) {
        if (t->setup != NULL && t->setup(&state) != 0) return PLAIN_FAILED;
        t->test(&state);
    }
    if (t->teardown != NULL && t->teardown(&state) != 0) ended = PLAIN_FAILED;
    printf("[ %8s ] %s\n", ended == 0 ? "OK" : ended == PLAIN_SKIPPED ? "SKIPPED" : "FAILED", t->name);
    return ended;
}

static inline int plain_run_all(const char *group, const struct CMUnitTest *tests, size_t count, CMFixtureFunction setup,
                                CMFixtureFunction teardown) {
    void *state = NULL;
    int ended[3] = {0};
    printf("[==========] %s: %zu test(s).\n", group, count);
    if (setup != NULL && setup(&state) != 0) {
        printf("[  FAILED  ] the group's set-up\n");
        return 1;
    }
    for (size_t i = 0; i < count; i++) ended[plain_run(&tests[i])]++;
    if (teardown != NULL && teardown(&state) != 0) ended[PLAIN_FAILED]++;
    printf("[==========] %s: %d passed, %d failed, %d skipped\n", group, ended[0], ended[PLAIN_FAILED], ended[PLAIN_SKIPPED]);
    return ended[PLAIN_FAILED];
}
#define cmocka_run_group_tests_name(name, tests, setup, teardown) \
    plain_run_all(name, tests, sizeof(tests) / sizeof(tests)[0], setup, teardown)
#define cmocka_run_group_tests(tests, setup, teardown) cmocka_run_group_tests_name(#tests, tests, setup, teardown)
#endif
