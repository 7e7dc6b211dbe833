/* SPDX-License-Identifier: Apache-2.0
 * How much memory there is, read from trees of files made here as Linux shows them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KIB ((size_t)1024)
static char root[64];

/* A file of the tree, with the folders above it. */
static void put(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int begin(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/echelon-available-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}
static int end(void **state) {
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command) ? -1 : 0;
}

static void test_system(void **state) {
    (void)state;
    assert_true(echi_memory_available(root) == SIZE_MAX);   /* nothing is said: not refused */
    put("/proc/meminfo", "MemTotal:       24684500 kB\nMemFree:  99 kB\nMemAvailable:   14917000 kB\nBuffers: 1 kB\n");
    assert_true(echi_memory_available(root) == 14917000 * KIB);
    put("/proc/meminfo", "MemTotal: 24684500 kB\n");
    assert_true(echi_memory_available(root) == SIZE_MAX);
}

static void test_groups(void **state) {
    (void)state;
    put("/proc/meminfo", "MemAvailable: 1000 kB\n");
    put("/proc/self/cgroup", "0::/jobs/one\n");
    put("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
    put("/sys/fs/cgroup/jobs/one/memory.current", "300000\n");
    assert_true(echi_memory_available(root) == 1000 * KIB);
    put("/sys/fs/cgroup/jobs/memory.max", "900000\n");   /* of a group above */
    put("/sys/fs/cgroup/jobs/memory.current", "600000\n");
    assert_true(echi_memory_available(root) == 300000);
    put("/sys/fs/cgroup/jobs/memory.stat", "anon 350000\nfile 250000\ninactive_file 200000\nactive_file 50000\n");   /* 250,000 of it are copies of files */
    assert_true(echi_memory_available(root) == 550000);
    put("/sys/fs/cgroup/jobs/memory.current", "2000000\n");
    assert_true(echi_memory_available(root) == 0);
}

/* Version 1, in a container that shows its own group at the mount. */
static void test_version_1(void **state) {
    (void)state;
    put("/proc/meminfo", "MemAvailable: 1000 kB\n");
    put("/proc/self/cgroup", "9:cpu:/x\n4:memory:/docker/5f1d\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
    assert_true(echi_memory_available(root) == 600000);
}

static void test_here(void **state) {
    (void)state;
    const size_t now = echi_memory_available("");
    assert_true(now > 1 << 20);
    assert_null(echi_alloc_aligned(SIZE_MAX / 2));
    if (now < SIZE_MAX / 8) assert_null(echi_alloc_aligned(4 * now));   /* refused, where Linux would have given it */
    void *some = echi_alloc_aligned(32 << 20);
    assert_non_null(some);
    echi_free_aligned(some);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_system, begin, end),
        cmocka_unit_test_setup_teardown(test_groups, begin, end),
        cmocka_unit_test_setup_teardown(test_version_1, begin, end),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests_name("available", tests, NULL, NULL);
}
