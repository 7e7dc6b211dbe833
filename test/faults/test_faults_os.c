/* SPDX-License-Identifier: Apache-2.0
 * What an OS may refuse: threads, descriptors, sockets, names, entropy. Each refusal at each call of a run of two nodes ends
 * it in order with a sentence, or is got over; and a host program's locale changes nothing that is written or read. */
#include "nodes.h"
#include "part.h"
#include "sanitized.h"

#include "echi_run.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/resource.h>

static int descriptors(void) {
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* ---------------------------------------------------------------- refusals */

static const struct refusal {
    enum inject_call call;
    int error;
    ech_status status;       /* of the node that meets it; ECH_OK: it goes on without */
    const char *says;        /* in its sentence */
} refusals[] = {
    {INJECT_THREAD, EAGAIN, ECH_E_MEMORY, "thread"},
    {INJECT_SOCKET, EMFILE, ECH_E_IO, "open files"},
    {INJECT_SOCKET, ENFILE, ECH_E_IO, "open files"},
    {INJECT_SOCKET, ENOBUFS, ECH_E_IO, "socket"},
    {INJECT_SOCKET, EAFNOSUPPORT, ECH_E_IO, "socket"},
    {INJECT_EPOLL, EMFILE, ECH_E_IO, "open files"},
    {INJECT_EVENTFD, EMFILE, ECH_E_IO, "open files"},
    {INJECT_LISTEN, EADDRINUSE, ECH_E_BUSY, "in use"},
    {INJECT_LISTEN, EACCES, ECH_E_IO, "listen"},
    {INJECT_RESOLVE, EAI_NONAME, ECH_E_ARGUMENT, "127.0.0.1"},
    {INJECT_RESOLVE, EAI_AGAIN, ECH_E_IO, "127.0.0.1"},
    {INJECT_RESOLVE, EAI_FAIL, ECH_E_ARGUMENT, "127.0.0.1"},
    {INJECT_RESOLVE, EAI_MEMORY, ECH_E_MEMORY, "127.0.0.1"},
    {INJECT_ACCEPT, EMFILE, ECH_OK, ""},
    {INJECT_ACCEPT, ENFILE, ECH_OK, ""},
    {INJECT_ACCEPT, ECONNABORTED, ECH_OK, ""},
    {INJECT_ACCEPT, EINTR, ECH_OK, ""},
    {INJECT_ACCEPT, EAGAIN, ECH_OK, ""},
    {INJECT_ACCEPT, ENOMEM, ECH_OK, ""},
    {INJECT_AFFINITY, EINVAL, ECH_OK, ""},
    {INJECT_AFFINITY, ENOSYS, ECH_OK, ""},
    {INJECT_STREAM, ENOENT, ECH_OK, ""},
    {INJECT_OPEN, EACCES, ECH_OK, ""},       /* /proc/cpuinfo, and the spare descriptor */
    {INJECT_LIBRARY, ENOENT, ECH_OK, ""},
    {INJECT_ENTROPY, ENOSYS, ECH_OK, ""},
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

/* False when there was no n-th such call. */
static bool refuse_once(const struct refusal *f, void *(*main_of_node)(void *), long n) {
    const long live = inject_live();
    const int fds = descriptors();
    snprintf(nodes_doing, sizeof nodes_doing, "%s, %s %ld: error %d", main_of_node == node_main ? "train" : "session", inject_name(f->call),
             n, f->error);
    prepare_nodes(2, "bsp", 0);
    inject(f->call, n, 1, f->error);
    run_nodes(2, main_of_node);
    const long hits = inject_hits();
    inject_nothing();
    bool told = f->status == ECH_OK, well = true;
    for (int r = 0; r < 2; r++) {
        const struct node *node = &nodes[r];
        const bool others = node->status == ECH_E_PEER_LOST || (node->status == ECH_E_ABORTED && nodes_stop);
        well = well && node->status == ECH_OK;
        told = told || (node->status == f->status && strstr(node->error.text, f->says));
        if (node->status != ECH_OK && node->status != f->status && !others)
            fail_msg("%s: rank %d: %s, '%s'", nodes_doing, r, ech_status_name(node->status), node->error.text);
    }
    /* A link that cannot be made is dialled again: only at its listener is a refused socket final. */
    if (hits > 0 && !(well || told)) fail_msg("%s: '%s' and '%s'", nodes_doing, nodes[0].error.text, nodes[1].error.text);
    /* Each node listens once, and then for a moment more, when it measures what sockets cost: without that it goes by what it knows. */
    const bool harmless = f->call == INJECT_SOCKET || (f->call == INJECT_LISTEN && n > 2);
    if (hits > 0 && well && f->status != ECH_OK && !harmless) fail_msg("%s: refused, and all was well", nodes_doing);
    if (f->status == ECH_OK && !well) fail_msg("%s: '%s' and '%s'", nodes_doing, nodes[0].error.text, nodes[1].error.text);
    if (inject_live() != live || descriptors() != fds)
        fail_msg("%s: %ld blocks, %d descriptors lost", nodes_doing, inject_live() - live, descriptors() - fds);
    return hits > 0;
}

static void each_refusal(void **state) {
    (void)state;
    int tried[INJECT_CALLS] = {0};
    for (int i = 0; i < REFUSALS; i++)
        for (int session = 0; session < 2; session++) {
            const long later = THREADS_WATCHED ? 25 : test_few() ? 5 : 1;   /* a part of those that are alike, behind the first */
            for (long n = 1; n < 40 && refuse_once(&refusals[i], session ? session_main : node_main, n); n += n > 4 ? later : 1)
                tried[refusals[i].call]++;
        }
    /* What a run of today does not ask for is not counted: libraries, entropy. */
    for (int c = INJECT_THREAD; c <= INJECT_RESOLVE; c++)
        if (tried[c] == 0) fail_msg("no %s was refused", inject_name((enum inject_call)c));
}

/* Who is not woken looks by himself after half a second. */
static void lost_wake_ups(void **state) {
    (void)state;
    static const struct refusal lost = {INJECT_WAKE, EAGAIN, ECH_OK, ""};
    for (long n = 1; n <= 10; n++) assert_true(refuse_once(&lost, node_main, n));
}

static void entropy(void **state) {
    (void)state;
    uint8_t bytes[64];
    struct ech_error err;
    inject(INJECT_ENTROPY, 1, 1, ENOSYS);
    assert_int_equal(echi_entropy(bytes, sizeof bytes, &err), ECH_E_IO);
    assert_non_null(strstr(err.text, "random"));
    inject(INJECT_ENTROPY, 1, 3, EINTR);
    assert_int_equal(echi_entropy(bytes, sizeof bytes, &err), ECH_OK);
    assert_int_equal(inject_hits(), 3);
    inject_nothing();
}

/* A device gets all of its threads, or none and a sentence: each of them refused, then each allocation. */
static void computing_threads(void **state) {
    (void)state;
    static const struct { enum inject_call call; int error; } cases[] = {{INJECT_THREAD, EAGAIN}, {INJECT_ALLOC, ENOMEM}};
    enum { THREADS = 4 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        long refused = 0;
        for (long n = 1;; n++) {
            const long live = inject_live();
            struct echi_device *device = NULL;
            struct ech_error err = {.text = ""};
            inject(cases[i].call, n, 1, cases[i].error);
            const ech_status status = echi_device_open("cpu", THREADS, &device, &err);
            const long hits = inject_hits();
            inject_nothing();
            if (status == ECH_OK) echi_device_close(device);
            if (inject_live() != live) fail_msg("%s %ld: %ld blocks lost", inject_name(cases[i].call), n, inject_live() - live);
            if (hits == 0) break;
            refused++;
            if (status == ECH_OK) continue;   /* what is only for a name */
            assert_int_equal(status, ECH_E_MEMORY);
            assert_non_null(strstr(err.text, cases[i].call == INJECT_THREAD ? "use fewer threads" : "memory"));
        }
        assert_true(cases[i].call == INJECT_THREAD ? refused == THREADS - 1 : refused >= 3);
    }
}

static void processors(void **state) {
    (void)state;
    inject(INJECT_AFFINITY, 1, 1, EINVAL);
    assert_true(echi_cpu_count() >= 1);
    assert_int_equal(inject_hits(), 1);
    inject_nothing();
}

static int64_t large_block_takes(void) {
    const int64_t began = echi_now();
    void *p = echi_alloc_aligned((size_t)1 << 20);
    const int64_t took = echi_now() - began;
    assert_non_null(p);
    echi_free_aligned(p);
    return took;
}

/* The turn on the machine's memory never comes, since a process was stopped that has it: that holds nobody up for long more than once. */
static void a_turn_that_never_comes(void **state) {
    (void)state;
    enum { THEN = 500 };   /* tries of a millisecond */
    inject(INJECT_LOCK, 1, LONG_MAX / 2, EWOULDBLOCK);
    const int64_t took = large_block_takes();
    assert_true(took > 1900000000);
    assert_int_equal(inject_hits(), 2000 + 1);   /* and given back */
    inject(INJECT_LOCK, 1, LONG_MAX / 2, EWOULDBLOCK);
    large_block_takes();
    assert_int_equal(inject_hits(), THEN + 1);
    /* It gets its turn, unless other tests have it all the time, and so waits for longer the next time. */
    long asked = THEN + 1;
    for (int i = 0; i < 20 && asked == THEN + 1; i++) {
        inject_nothing();
        large_block_takes();
        inject(INJECT_LOCK, 1, THEN + 10, EWOULDBLOCK);
        large_block_takes();
        asked = inject_calls(INJECT_LOCK);
    }
    assert_true(asked >= THEN + 10 + 1 + 1);   /* refused, taken, given back */
    inject_nothing();
}

/* Few descriptors, all of them taken but k: a run either gets what it needs or says what it lacks. */
static void few_descriptors(void **state) {
    (void)state;
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int used = descriptors() - 3;   /* not . and .., nor that of the look itself */
    bool failed = false, worked = false;
    for (int more = 0; more < 24; more++) {
        few = before;
        few.rlim_cur = (rlim_t)(used + more);
        prepare_nodes(2, "bsp", 0);
        for (int r = 0; r < 2; r++) nodes[r].config.join_timeout = 0.2;
        snprintf(nodes_doing, sizeof nodes_doing, "%d descriptors", more);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        run_nodes(2, node_main);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        for (int r = 0; r < 2; r++) {
            const ech_status s = nodes[r].status;
            if (s != ECH_OK && s != ECH_E_IO && s != ECH_E_TIMEOUT && s != ECH_E_PEER_LOST && !(s == ECH_E_ABORTED && nodes_stop))
                fail_msg("%s: rank %d: %s, '%s'", nodes_doing, r, ech_status_name(s), nodes[r].error.text);
            failed = failed || s == ECH_E_IO;
            worked = worked || s == ECH_OK;
        }
    }
    assert_true(failed && worked);
}

/* ------------------------------------------------------------------ locale */

/* A locale with a decimal comma, made here: few machines have one, and the tests ask no other of them. */
static bool use_commas(const char *at) {
    char command[512];
    snprintf(command, sizeof command,
             "cd '%s' && printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \".\"\\ngrouping 3;3\\nEND LC_NUMERIC\\n' > comma && "
             "localedef -c -i ./comma ./xx_XX 2>/dev/null; test -e xx_XX/LC_NUMERIC", at);
    if (system(command) != 0) return false;
    setenv("LOCPATH", at, 1);
    return setlocale(LC_NUMERIC, "xx_XX") && strcmp(localeconv()->decimal_point, ",") == 0;
}

/* All that is written as text, one after the other. */
static size_t write_all_text(char *out, size_t cap, char *plan_path) {
    size_t len = 0;
    uint8_t *bytes;
    size_t n;
    struct ech_error err;
    struct ech_report report = {.world = 1, .seconds = 1.5, .train_loss = 0.25, .test_accuracy = 0.75, .staleness_mean = 1e-7,
                                .lost_peer = -1};
    len += ech_report_json(&report, out + len, cap - len);
    len += ech_model_text(tiny, out + len, cap - len);
    len += ech_model_describe(tiny, out + len, cap - len);
    struct echi_plan plan = {.sync = ECHI_SYNC_BSP, .world = 1, .round = 8, .staleness = 3, .rounds_apart = 4, .flights = 1, .n_groups = 1,
                             .head = ECHI_NO_RANK, .lr = 0.02, .momentum = 0.9, .decay = 1e-4};
    plan.n[0] = 8;
    memset(plan.group_of + 1, ECHI_NONE, sizeof plan.group_of - 1);
    memset(plan.owner_of + 1, 0xff, sizeof plan.owner_of - sizeof plan.owner_of[0]);
    assert_int_equal(echi_plan_save(plan_path, &plan, NULL, &err), ECH_OK);
    assert_int_equal(echi_file_read(plan_path, 1 << 16, &bytes, &n, &err), ECH_OK);
    memcpy(out + len, bytes, n);
    free(bytes);
    struct echi_plan back;
    if (echi_plan_load(plan_path, 2, &back, NULL, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_memory_equal(&back, &plan, sizeof plan);
    len += n;
    float weights[256] = {1.5f}, again[256];
    assert_int_equal(echi_safetensors_save(plan_path, tiny, weights, &err), ECH_OK);
    assert_int_equal(echi_safetensors_load(plan_path, tiny, again, NULL, NULL, &err), ECH_OK);
    assert_memory_equal(weights, again, ech_model_params(tiny) * sizeof(float));
    assert_int_equal(echi_file_read(plan_path, 1 << 16, &bytes, &n, &err), ECH_OK);
    memcpy(out + len, bytes, n);
    free(bytes);
    unlink(plan_path);
    return len + n;
}

static void a_point_is_a_point(void **state) {
    (void)state;
    char at[] = "/tmp/echelon-locale-XXXXXX", plan_path[64], command[64];
    static char in_c[16384], in_comma[16384];
    assert_non_null(mkdtemp(at));
    snprintf(plan_path, sizeof plan_path, "%s/plan", at);
    snprintf(command, sizeof command, "rm -r '%s'", at);
    const size_t len = write_all_text(in_c, sizeof in_c, plan_path);
    if (!use_commas(at)) {
        assert_int_equal(system(command), 0);
        print_message("localedef is missing: no locale with a decimal comma can be made\n");
        skip();
    }
    struct ech_config config;
    struct ech_error err;
    const size_t len_comma = write_all_text(in_comma, sizeof in_comma, plan_path);
    ech_config_init(&config);
    config.measure = 0.001;
    const ech_status point = ech_config_set(&config, "lr", "0.125", &err), comma = ech_config_set(&config, "lr", "0,125", &err);
    char shown[16];
    snprintf(shown, sizeof shown, "%.1f", 0.5);
    setlocale(LC_ALL, "C");
    assert_int_equal(system(command), 0);
    assert_string_equal(shown, "0,5");   /* the host program keeps its own */
    assert_int_equal(point, ECH_OK);
    assert_true(config.lr == 0.125);
    assert_int_equal(comma, ECH_E_ARGUMENT);
    assert_int_equal(len, len_comma);
    assert_memory_equal(in_c, in_comma, len);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_refusal), cmocka_unit_test(lost_wake_ups), cmocka_unit_test(entropy),
        cmocka_unit_test(computing_threads), cmocka_unit_test(processors), cmocka_unit_test(a_turn_that_never_comes),
        cmocka_unit_test(few_descriptors), cmocka_unit_test(a_point_is_a_point),
    };
    return cmocka_run_group_tests_name("refusals of the OS", tests, nodes_setup, nodes_teardown);
}
