/* SPDX-License-Identifier: Apache-2.0
 * No allocation in the step loop after the first step: this program has a malloc of its own, which counts, and trains
 * through ech_train, alone and as two nodes.
 * make check only: 11 s of processor time. */
#include "echelon.h"
#include "echi_times.h"
#include "sanitized.h"
#include "../unit/text_files.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ------------------------------------------------------------- counting */

static atomic_ulong allocations;         /* since the program began */
static void *_Atomic latest;             /* who asked for the latest */

#if !SANITIZED                           /* a sanitizer has a malloc of its own already */

static struct { void *(*malloc)(size_t), *(*calloc)(size_t, size_t), *(*realloc)(void *, size_t), (*free)(void *);
                int (*posix_memalign)(void **, size_t, size_t); void *(*aligned_alloc)(size_t, size_t);
                void *(*mmap)(void *, size_t, int, int, int, off_t); } real;
static char early[8192];                 /* for what dlsym itself asks for */
static size_t early_used;

static bool is_early(const void *p) { return (const char *)p >= early && (const char *)p < early + sizeof early; }

static void *take_early(size_t size) {
    size_t at = early_used;
    early_used += (size + 15) & ~(size_t)15;
    return early_used <= sizeof early ? early + at : NULL;
}

static void find(void *out, const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(out, &symbol, sizeof symbol);
}

static bool looked_up(void) {
    static bool looking, found;          /* the first call comes before main, and before any thread */
    if (found) return true;
    if (looking) return false;
    looking = true;
    find(&real.malloc, "malloc");
    find(&real.calloc, "calloc");
    find(&real.realloc, "realloc");
    find(&real.free, "free");
    find(&real.posix_memalign, "posix_memalign");
    find(&real.aligned_alloc, "aligned_alloc");
    find(&real.mmap, "mmap");
    return found = true;
}

static void count(void *caller) {
    atomic_fetch_add(&allocations, 1);
    atomic_store(&latest, caller);
}

#define OURS __attribute__((visibility("default")))
OURS void *malloc(size_t size) {
    count(__builtin_return_address(0));
    return looked_up() ? real.malloc(size) : take_early(size);
}
OURS void *calloc(size_t n, size_t size) {
    count(__builtin_return_address(0));
    return looked_up() ? real.calloc(n, size) : take_early(n * size);
}
OURS void *realloc(void *old, size_t size) {
    count(__builtin_return_address(0));
    if (!looked_up()) return NULL;
    if (!is_early(old)) return real.realloc(old, size);
    void *p = real.malloc(size);
    if (p) memcpy(p, old, size < (size_t)(early + sizeof early - (char *)old) ? size : (size_t)(early + sizeof early - (char *)old));
    return p;
}
OURS void free(void *p) {
    if (p && !is_early(p) && looked_up()) real.free(p);
}
OURS int posix_memalign(void **out, size_t alignment, size_t size) {
    count(__builtin_return_address(0));
    return looked_up() ? real.posix_memalign(out, alignment, size) : ENOMEM;
}
OURS void *aligned_alloc(size_t alignment, size_t size) {
    count(__builtin_return_address(0));
    return looked_up() ? real.aligned_alloc(alignment, size) : NULL;
}
OURS void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {   /* large blocks; libc's own are not seen */
    count(__builtin_return_address(0));
    return looked_up() ? real.mmap(at, size, protection, flags, fd, offset) : MAP_FAILED;
}

#endif

/* ------------------------------------------------------------- the window */

/* Opens when this node's worker comes for its FIRST_WATCHED-th batch, and is looked at with each further one. */
enum { FIRST_WATCHED = 3, SAMPLES = 640, TESTS = 64, SIDE = 28, CLASSES = 10 };
static atomic_bool measures;   /* step times at start read samples, too: no batch of the worker's */
struct echi_job;
struct echi_device;
struct echi_lane;
ech_status __real_echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                               struct echi_cost_io io, struct echi_times *out, struct ech_error *err);
ech_status __wrap_echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                               struct echi_cost_io io, struct echi_times *out, struct ech_error *err);
ech_status __wrap_echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                               struct echi_cost_io io, struct echi_times *out, struct ech_error *err) {
    atomic_store(&measures, true);
    const ech_status status = __real_echi_measure(job, device, slow, lane, io, out, err);
    atomic_store(&measures, false);
    return status;
}

static struct { int steps; unsigned long at_open, so_far; void *who; } window;

static void look(void) {
    const unsigned long now = atomic_load(&allocations);
    if (++window.steps == FIRST_WATCHED) window.at_open = now;
    if (window.steps < FIRST_WATCHED) return;
    if (now - window.at_open > window.so_far) window.who = atomic_load(&latest);
    window.so_far = now - window.at_open;
}

/* Some picture for each number; what is learnt does not matter. */
static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    if (!test && !atomic_load(&measures)) look();
    for (int i = 0; i < n; i++) {
        labels[i] = (uint16_t)(index[i] % CLASSES);
        for (uint32_t p = 0; p < SIDE * SIDE; p++)
            rows[(uint32_t)i * SIDE * SIDE + p] = (float)((p * (index[i] % CLASSES + 1)) % 17) * 0.1f - 0.8f;
    }
    return 0;
}

static void keep_address(void *user, const char *address) {
    dprintf(*(int *)user, "%s\n", address);
}

/* Trains as one node; true when all went well and nothing was allocated. */
static bool train(struct ech_config *config, const char *what) {
    struct ech_error err = {.code = ECH_OK};
    const struct ech_data_callback callback = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES,
                                               .train_samples = SAMPLES, .test_samples = TESTS, .read = read_samples, .name = "stripes"};
    ech_model *model = NULL;
    ech_data *data = NULL;
    ech_status status = ech_model_open("lenet5", &model, &err);
    if (status == ECH_OK) status = ech_data_from_callback(&callback, &data, &err);
    memset(&window, 0, sizeof window);
    if (status == ECH_OK) status = ech_train(model, data, config, NULL, NULL, &err);
    ech_data_destroy(data);
    ech_model_destroy(model);
    if (status != ECH_OK) fprintf(stderr, "%s, rank %d: %s\n", what, config->rank, err.text);
    /* A window that was never open, or a malloc that is not ours, would prove nothing. Under a sanitizer it is not ours:
     * the runs are then only what the sanitizer watches. */
#if SANITIZED
    const bool counted = true;
#else
    const bool counted = window.at_open > 20;
#endif
    const bool watched = window.steps >= 10 && counted;
    if (!watched)
        fprintf(stderr, "%s, rank %d: only %d steps and %lu allocations before\n", what, config->rank, window.steps, window.at_open);
    Dl_info at = {0};
    if (window.so_far > 0 && window.who) dladdr(window.who, &at);
    if (window.so_far > 0)
        fprintf(stderr, "%s, rank %d: %lu allocations in %d steps, the last from %s (%p in %s)\n", what, config->rank, window.so_far,
                window.steps - FIRST_WATCHED, at.dli_sname ? at.dli_sname : "?", (void *)((char *)window.who - (char *)at.dli_fbase),
                at.dli_fname ? at.dli_fname : "?");
    return status == ECH_OK && watched && window.so_far == 0;
}

static void set(struct ech_config *config, const char *name, const char *value) {
    struct ech_error err;
    if (ech_config_set(config, name, value, &err) != ECH_OK) fail_msg("%s", err.text);
}

static char record_folder[] = "/tmp/echelon-alloc.XXXXXX";

/* GSSP with a head, and a worker on each node: a plan that is made here may leave the head's node without one, by a busy machine's times,
 * and nothing would be watched. */
static const char head_plan[] = "sync gssp\nworld 2\nround 16\nflights 2\nhead 0\ngroup 0 owner 1 workers 0:8 1:8\n";
static char plan_path[sizeof record_folder + sizeof "/plan"];

static void forget_recordings(void) {   /* none is written over */
    for (int rank = 0; rank < 2; rank++) {
        char path[64];
        snprintf(path, sizeof path, "%s/rank%d.events", record_folder, rank);
        unlink(path);
    }
}

static void defaults(struct ech_config *config, const char *sync) {
    ech_config_init(config);
    config->measure = 0.02;
    forget_recordings();
    set(config, "record", record_folder);   /* so is recording */
    set(config, "sync", sync);
    set(config, "batch", "32");
#if SANITIZED
    set(config, "epochs", "3");
#else
    set(config, "epochs", "8");
#endif
    set(config, "eval-every", "1000");   /* looks are part of the loop */
}

/* ------------------------------------------------------------- the tests */

static void one_node(void **state) {
    (void)state;
    static const char *const policies[] = {"bsp", "gssp", "local"};
    for (size_t policy = 0; policy < sizeof policies / sizeof policies[0]; policy++) {
        const char *sync = policies[policy];
        struct ech_config config;
        defaults(&config, sync);
        assert_true(train(&config, sync));
    }
}

/* Gathered, written, and the oldest taken away, in the loop. */
static void with_checkpoints(void **state) {
    (void)state;
    char folder[] = "/tmp/echelon-alloc.XXXXXX", command[64];
    struct ech_config config;
    defaults(&config, "bsp");
    assert_non_null(mkdtemp(folder));
    set(&config, "checkpoint", folder);
    set(&config, "every", "10");
    set(&config, "keep", "1");
    const bool good = train(&config, "with checkpoints");
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    assert_true(good);
}

/* Rank 1 is a child that reads from a pipe where to go. */
static void two_nodes(const char *what, const char *sync, const char *separate, const char *groups) {
    int channel[2];
    struct ech_config config;
    defaults(&config, sync);
    set(&config, "world", "2");
    set(&config, "separate", separate);
    set(&config, "groups", groups);
    if (strcmp(sync, "bsp") != 0) set(&config, "samples-per-step", "8");
    else set(&config, "shares", "equal");
    if (strstr(what, "deterministic")) set(&config, "deterministic", "on");
    if (strstr(what, "codec")) set(&config, "codec", "topk:paper");
    if (strstr(what, "by a plan")) set(&config, "plan", plan_path);
    assert_int_equal(pipe(channel), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char address[128] = "";
        ssize_t got = read(channel[0], address, sizeof address - 1);
        if (got > 1) address[got - 1] = 0;
        set(&config, "coordinator", address);
        set(&config, "rank", "1");
        _exit(train(&config, what) ? 0 : 1);
    }
    set(&config, "coordinator", "127.0.0.1:0");
    config.on_bound = keep_address;
    config.user = &channel[1];
    const bool here = train(&config, what);
    int there;
    close(channel[1]);
    close(channel[0]);
    assert_int_equal(waitpid(child, &there, 0), child);
    assert_true(here);
    assert_true(WIFEXITED(there) && WEXITSTATUS(there) == 0);
}

static void two_nodes_each_policy(void **state) {
    (void)state;
    two_nodes("gssp, two groups", "gssp", "off", "2");
    two_nodes("gssp with a head, by a plan", "gssp", "1", "auto");
    two_nodes("gssp, one group", "gssp", "off", "1");
    two_nodes("bsp", "bsp", "off", "auto");
    two_nodes("local", "local", "off", "auto");
    two_nodes("bsp with a head", "bsp", "1", "auto");
    two_nodes("bsp, deterministic", "bsp", "off", "auto");
    two_nodes("bsp with a head, deterministic", "bsp", "1", "auto");
    two_nodes("gssp, two groups, codec", "gssp", "off", "2");
    two_nodes("bsp, codec", "bsp", "off", "auto");
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(record_folder)) return -1;
    snprintf(plan_path, sizeof plan_path, "%s/plan", record_folder);
    write_bytes(plan_path, head_plan, sizeof head_plan - 1);
    return 0;
}
static int remove_folder(void **state) {
    (void)state;
    forget_recordings();
    unlink(plan_path);
    return rmdir(record_folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_node), cmocka_unit_test(with_checkpoints),
                                       cmocka_unit_test(two_nodes_each_policy)};
    return cmocka_run_group_tests_name("allocations", tests, make_folder, remove_folder);
}
