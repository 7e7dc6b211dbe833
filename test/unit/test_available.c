/* SPDX-License-Identifier: Apache-2.0
 * How much memory there is, and how much processor time is granted, read from trees of files made here as Linux shows them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_os.h"

#include <limits.h>
#include <math.h>
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
    /* 250,000 of it are copies of files. */
    put("/sys/fs/cgroup/jobs/memory.stat", "anon 350000\nfile 250000\ninactive_file 200000\nactive_file 50000\n");
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

static void test_time(void **state) {
    (void)state;
    assert_int_equal(echi_cpu_granted(root), INT_MAX);
    put("/proc/self/cgroup", "0::/jobs/one\n");
    assert_int_equal(echi_cpu_granted(root), INT_MAX);
    put("/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
    assert_int_equal(echi_cpu_granted(root), INT_MAX);
    put("/sys/fs/cgroup/jobs/cpu.max", "400000 100000\n");   /* of a group above */
    assert_int_equal(echi_cpu_granted(root), 4);
    static const struct { const char *text; int processors; } cases[] = {
        {"150000 100000\n", 2}, {"200000 100000\n", 2}, {"200001 100000\n", 3}, {"1000 100000\n", 1}, {"0 100000\n", 1},
        {"900000 100000\n", 4}, {"30000 10000\n", 3}, {"100000 0\n", 4}, {"100000\n", 4}, {"100000 max\n", 4}, {"", 4}, {"-1 100000\n", 4},
        {"18446744073709551615 1\n", 4}, {"9223372036854775807 1\n", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("/sys/fs/cgroup/jobs/one/cpu.max", cases[i].text);
        double quota = 0, period = 0;
        const bool own = i < 7 && i != 4;   /* the others say nothing, or too much, and the group above counts */
        const double processors = own ? (double[]){1.5, 2, 2.00001, 0.01, 0, 4, 3}[i] : 4;
        assert_int_equal(echi_cpu_quota(root, &quota, &period), i != 4);
        if (i != 4 && (fabs(quota / period - processors) > 1e-9 || fabs(period - (i == 6 ? 0.01 : 0.1)) > 1e-9))
            fail_msg("'%s': %g of %g s", cases[i].text, quota, period);
        if (echi_cpu_granted(root) != cases[i].processors) fail_msg("'%s': %d processors", cases[i].text, echi_cpu_granted(root));
    }
}

static void test_time_of_version_1(void **state) {
    (void)state;
    static const struct { const char *groups, *mount; } cases[] = {
        {"3:cpuset:/a\n2:cpu:/a\n", "/sys/fs/cgroup/cpu"}, {"4:cpu,cpuacct:/a\n", "/sys/fs/cgroup/cpu,cpuacct"},
        {"4:cpuacct,cpu:/a\n0::/\n", "/sys/fs/cgroup/cpuacct,cpu"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char quota[96], period[96];
        put("/proc/self/cgroup", cases[i].groups);
        snprintf(quota, sizeof quota, "%s/a/cpu.cfs_quota_us", cases[i].mount);
        snprintf(period, sizeof period, "%s/a/cpu.cfs_period_us", cases[i].mount);
        put(quota, "250000\n");
        assert_int_equal(echi_cpu_granted(root), INT_MAX);   /* of what period? */
        put(period, "100000\n");
        assert_int_equal(echi_cpu_granted(root), 3);
        put(quota, "-1\n");
        assert_int_equal(echi_cpu_granted(root), INT_MAX);
    }
    put("/sys/fs/cgroup/cpuacct,cpu/cpu.cfs_quota_us", "100000\n");   /* of the group above, as a container sees its own */
    put("/sys/fs/cgroup/cpuacct,cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(echi_cpu_granted(root), 1);
}

static void test_here(void **state) {
    (void)state;
    assert_in_range(echi_cpu_count(), 1, echi_cpu_granted(""));
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
        cmocka_unit_test_setup_teardown(test_time, begin, end),
        cmocka_unit_test_setup_teardown(test_time_of_version_1, begin, end),
        cmocka_unit_test(test_here),
    };
    return cmocka_run_group_tests_name("available", tests, NULL, NULL);
}
