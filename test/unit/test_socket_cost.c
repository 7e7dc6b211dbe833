/* SPDX-License-Identifier: Apache-2.0
 * What messages cost a processor, measured over loopback. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_os.h"
#include "echi_socket_cost.h"

#include <dirent.h>
#include <string.h>

static int open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int count = 0;
    if (!d) return 0;
    while (readdir(d)) count++;
    closedir(d);
    return count;
}

/* Between what copying a byte takes, and what no machine with a socket needs; and within the processor time that all of it took. */
static void is_sane(const struct echi_socket_cost *c, double took) {
    if (!(c->byte > 1e-12 && c->byte < 1e-7)) fail_msg("%g s a byte", c->byte);
    if (!(c->message > 1e-8 && c->message < 1e-3)) fail_msg("%g s a message", c->message);
    if (c->byte * (2 << 20) > took) fail_msg("%g s a byte, where all took %g s", c->byte, took);
}

static void test_costs(void **state) {
    (void)state;
    const int files = open_files();
    struct ech_error err;
    static const size_t sizes[] = {0, 1, 100000, 4 << 20, 100 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct echi_socket_cost cost = {0, 0};
        const int64_t began = echi_thread_cpu();
        assert_int_equal(echi_socket_cost(sizes[i], false, &cost, &err), ECH_OK);
        is_sane(&cost, (double)(echi_thread_cpu() - began) * 1e-9);
    }
    assert_int_equal(open_files(), files);
}

/* Every byte goes through Poly1305 at both ends. */
static void test_seals(void **state) {
    (void)state;
    struct echi_socket_cost plain, sealed;
    struct ech_error err;
    assert_int_equal(echi_socket_cost(1 << 20, false, &plain, &err), ECH_OK);
    assert_int_equal(echi_socket_cost(1 << 20, true, &sealed, &err), ECH_OK);
    if (!(sealed.byte > plain.byte)) fail_msg("%g s a byte, sealed %g s", plain.byte, sealed.byte);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_costs), cmocka_unit_test(test_seals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
