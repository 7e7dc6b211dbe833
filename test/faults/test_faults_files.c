/* SPDX-License-Identifier: Apache-2.0
 * A full disk, a broken one, calls that are interrupted or do less than asked: at each call of a write and a read. Never half
 * a file under its name, nothing left beside it, no descriptor lost, and a sentence that names the file.
 * make check only: 2 s of processor time; test_faults_tool.sh has the files of a run. */
#include "nodes.h"

#include "echelon_dev.h"
#include "echi_recording.h"
#include "echi_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

static char folder[64], weights_path[128], plan_path[128], report_path[128], record_path[128], events_path[160];
static float weights[2][256];     /* the old ones and the new ones */
static struct ech_error error;
static struct echi_plan plan;

/* ------------------------------------------------------------ the folder */

struct bytes { uint8_t *at; size_t len; bool there; };

static struct bytes contents(const char *path) {
    struct bytes b = {0};
    b.there = access(path, F_OK) == 0;
    if (b.there) assert_int_equal(echi_file_read(path, 1 << 20, &b.at, &b.len, &error), ECH_OK);
    return b;
}
static bool same(const struct bytes *a, const struct bytes *b) {
    return a->there == b->there && a->len == b->len && (a->len == 0 || memcmp(a->at, b->at, a->len) == 0);
}

static int entries(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}
static int descriptors(void) { return entries("/proc/self/fd"); }

/* ---------------------------------------------------------------- writing */

static ech_status save_weights(int version) { return echi_safetensors_save(weights_path, tiny, weights[version], &error); }
static ech_status save_plan(int version) {
    plan.staleness = 3 + (uint32_t)version;
    return echi_plan_save(plan_path, &plan, NULL, &error);
}

/* A run without training, which writes its report last. */
static ech_status save_report(int version) {
    prepare_nodes(1, version ? "gssp" : "bsp", 0);
    nodes[0].config.steps = 0;
    nodes[0].config.eval_every = 0;
    snprintf(nodes[0].config.report, sizeof nodes[0].config.report, "%s", report_path);
    run_nodes(1, node_main);
    error = nodes[0].error;
    return nodes[0].status;
}

static const struct writer {
    const char *name;
    char *path;
    ech_status (*save)(int version);
    bool exact;   /* the same version gives the same bytes */
} writers[] = {{"weights", weights_path, save_weights, true}, {"plan", plan_path, save_plan, true},
               {"report", report_path, save_report, false}};

/* What may go wrong at a call, and whether the write must succeed all the same. */
static const struct trouble { enum inject_call call; int error; bool harmless; } troubles[] = {
    {INJECT_OPEN, EMFILE, false}, {INJECT_OPEN, EACCES, false}, {INJECT_OPEN, EINTR, true},     {INJECT_STAT, EIO, false},
    {INJECT_WRITE, ENOSPC, false}, {INJECT_WRITE, EIO, false},  {INJECT_WRITE, EDQUOT, false},  {INJECT_WRITE, EFBIG, false},
    {INJECT_WRITE, EINTR, true},  {INJECT_WRITE, INJECT_SHORT, true}, {INJECT_WRITE, INJECT_ZERO, false},
    {INJECT_CHMOD, EPERM, false}, {INJECT_FSYNC, EIO, false},   {INJECT_FSYNC, ENOSPC, false},  {INJECT_FSYNC, EINTR, true},
    {INJECT_CLOSE, EIO, false},   {INJECT_CLOSE, EINTR, true},  {INJECT_RENAME, ENOSPC, false}, {INJECT_RENAME, EIO, false},
};
enum { TROUBLES = sizeof troubles / sizeof troubles[0] };

/* A write under trouble at the n-th call; `rest`: at all that follow too. False when there was no n-th. */
static bool write_once(const struct writer *w, const struct trouble *t, long n, bool rest, bool over_old) {
    snprintf(nodes_doing, sizeof nodes_doing, "%s %s: %s %ld%s: %s", w->name, over_old ? "over an old file" : "anew", inject_name(t->call),
             n, rest ? " and all that follow" : "",
             t->error == INJECT_SHORT ? "one byte" : t->error == INJECT_ZERO ? "nothing" : strerror(t->error));
    unlink(w->path);
    if (over_old) assert_int_equal(w->save(0), ECH_OK);
    const struct bytes before = contents(w->path);
    const int fds = descriptors();
    inject(t->call, n, rest ? LONG_MAX / 2 : 1, t->error);
    const ech_status status = w->save(1);
    const long hits = inject_hits();
    inject_nothing();
    struct bytes after = contents(w->path);
    const char *wrong = NULL;
    if (descriptors() != fds) wrong = "a descriptor is lost";
    else if (entries(folder) != after.there) wrong = "something is left beside the file";
    else if (w->exact && hits && !t->harmless && status == ECH_OK && !(t->call == INJECT_CLOSE && n > 1))   /* (a folder's close) */
        wrong = "the failure is not told";
    else if (status != ECH_OK && hits == 0) wrong = "it failed without a reason";
    else if (status == ECH_OK && (!after.there || same(&before, &after))) wrong = "it says that it wrote what it did not";
    else if (hits && t->harmless && status != ECH_OK && !rest) wrong = "it failed without need";
    else if (status != ECH_OK && (status != ECH_E_IO || !strstr(error.text, strrchr(w->path, '/'))))
        wrong = "the failure has no proper sentence";
    else if (after.there && !same(&before, &after)) {
        /* Then it is the new one, whole. */
        const struct bytes got = after;
        if (w->exact) {
            assert_int_equal(w->save(1), ECH_OK);
            after = contents(w->path);
            if (!same(&got, &after)) wrong = "half a file";
            free(got.at);
        } else if (memcmp(got.at + got.len - 3, "\n}\n", 3) != 0) wrong = "half a report";
    }
    if (wrong) fail_msg("%s: %s (%s: %s)", nodes_doing, wrong, ech_status_name(status), status ? error.text : "");
    free(before.at);
    free(after.at);
    return hits > 0;
}

/* A run makes hundreds of other calls before it writes its report, which test_faults_os.c has: without FAULTS_TRIED=all, the last ones. */
static long first_call(const struct writer *w, enum inject_call call) {
    enum { LAST = 12 };
    inject_nothing();
    assert_int_equal(w->save(1), ECH_OK);
    const long calls = inject_calls(call);
    unlink(w->path);
    return calls > LAST ? calls - LAST : 1;
}

static void each_call_of_a_write(void **state) {
    const struct writer *w = *state;
    const char *word = getenv("FAULTS_TRIED");
    const bool all = word && strcmp(word, "all") == 0;
    int tried = 0;
    for (int t = 0; t < TROUBLES; t++)
        for (int over_old = 0; over_old < 2; over_old++)
            for (int rest = 0; rest < 2; rest++) {
                if (!w->exact && rest == over_old && !all) continue;   /* a whole run each time */
                if (rest && troubles[t].harmless && troubles[t].error != INJECT_SHORT) continue;   /* for ever is not what it means */
                const long first = w->exact || all ? 1 : first_call(w, troubles[t].call);
                long n = first;
                while (n < 1000 && write_once(w, &troubles[t], n, rest, over_old)) n++;
                tried += (int)(n - first);
            }
    unlink(w->path);
    print_message("%s: %d calls\n", w->name, tried);
    assert_true(tried > 40);
}

/* What cannot be written is told, and what was trained is handed over all the same. */
static void a_run_keeps_what_it_trained(void **state) {
    (void)state;
    float params[2][256] = {{0}};
    struct ech_report report[2];
    for (int full = 0; full < 2; full++) {
        prepare_nodes(1, "bsp", 0);
        struct ech_config *c = &nodes[0].config;
        snprintf(c->save, sizeof c->save, "%s", weights_path);
        inject(INJECT_WRITE, 1, full ? LONG_MAX / 2 : 0, ENOSPC);
        const ech_status status = ech_train(tiny, tiny_data, c, params[full], &report[full], &error);
        inject_nothing();
        assert_int_equal(status, full ? ECH_E_IO : ECH_OK);
        if (full) assert_non_null(strstr(error.text, "free some space"));
    }
    assert_memory_equal(params[0], params[1], ech_model_params(tiny) * sizeof(float));
    assert_int_equal(report[1].samples, 2 * TRAIN);
    unlink(weights_path);
}

static bool warned;
static void on_warning(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    if (level == ECH_LOG_WARN && strstr(line, "the recording in") && strstr(line, "rank0.events") && strstr(line, "the run goes on"))
        warned = true;
}

/* A recording ends where its disk did, the run does not, and what is there is a sound beginning. Only a folder that takes
 * nothing at all is refused, before the run. */
static void a_run_outlives_its_recording(void **state) {
    (void)state;
    static const int errors[] = {ENOSPC, INJECT_ZERO};
    float params[2][256] = {{0}};
    int cut = 0;
    for (size_t e = 0; e < sizeof errors / sizeof errors[0]; e++)
        for (long n = 0; n < 30; n++) {   /* 0: nothing fails */
            struct ech_report report;
            const int fds = descriptors();
            prepare_nodes(1, "asp", 0);
            struct ech_config *c = &nodes[0].config;
            c->on_log = on_warning;
            c->epochs = 0.5;
            warned = false;
            unlink(events_path);   /* none is written over */
            snprintf(c->record, sizeof c->record, "%s", record_path);
            inject(INJECT_WRITE, n, n > 0, errors[e]);
            const ech_status status = ech_train(tiny, tiny_data, c, params[n > 0], &report, &error);
            const long hits = inject_hits();
            inject_nothing();
            assert_int_equal(descriptors(), fds);
            assert_int_equal(status, n == 1 ? ECH_E_IO : warned ? ECH_E_UNRECORDED : ECH_OK);
            if (status != ECH_OK) assert_non_null(strstr(error.text, "rank0.events"));
            if (n != 1) assert_memory_equal(params[0], params[n > 0], ech_model_params(tiny) * sizeof(float));
            struct bytes there = contents(events_path);
            struct echi_recording r;
            int kind = ECHI_RECORD_ABOUT;
            const uint8_t *body;
            size_t len;
            if (n != 1) assert_int_equal(echi_recording_open(there.at, there.len, events_path, &r, &error), ECH_OK);
            while (n != 1 && kind) assert_int_equal(echi_recording_next(&r, &kind, &body, &len, &error), ECH_OK);
            if (n != 1) assert_int_equal(r.ended, !warned);
            cut += n > 1 && warned;
            free(there.at);
            if (n > 0 && hits == 0) break;
        }
    assert_true(cut >= 4);   /* plan and end at least */
}

/* ---------------------------------------------------------------- reading */

static ech_status load_weights(void) { return echi_safetensors_load(weights_path, tiny, weights[0], NULL, NULL, &error); }
static ech_status load_plan(void) { return echi_plan_load(plan_path, 2, &plan, NULL, &error); }
static ech_status load_model(void) {
    ech_model *model = NULL;
    const ech_status status = ech_model_open(report_path, &model, &error);
    if (status == ECH_OK) ech_model_destroy(model);
    return status;
}
static ech_status load_recording(void) {
    struct ech_recording about;
    return ech_recording_about(record_path, &about, &error);
}
static const struct reader { const char *name, *path; ech_status (*load)(void); } readers[] = {
    {"weights", weights_path, load_weights}, {"plan", plan_path, load_plan}, {"model", report_path, load_model},
    {"recording", events_path, load_recording}};
static const struct trouble read_troubles[] = {
    {INJECT_OPEN, EMFILE, false}, {INJECT_OPEN, EACCES, false}, {INJECT_OPEN, EINTR, true}, {INJECT_STAT, EIO, false},
    {INJECT_READ, EIO, false},    {INJECT_READ, EINTR, true},   {INJECT_READ, INJECT_SHORT, true},
};
enum { READ_TROUBLES = sizeof read_troubles / sizeof read_troubles[0], READERS = sizeof readers / sizeof readers[0] };

/* Each its file; the recording is of a run that was recorded once. */
static void write_all(void) {
    char text[256];
    static struct bytes recorded;
    if (!recorded.there) {
        unlink(events_path);
        prepare_nodes(1, "bsp", 0);
        snprintf(nodes[0].config.record, sizeof nodes[0].config.record, "%s", record_path);
        assert_int_equal(ech_train(tiny, tiny_data, &nodes[0].config, NULL, NULL, &error), ECH_OK);
        recorded = contents(events_path);
    }
    assert_int_equal(echi_file_write(events_path, recorded.at, recorded.len, &error), ECH_OK);
    assert_int_equal(save_weights(1), ECH_OK);
    assert_int_equal(save_plan(1), ECH_OK);
    assert_int_equal(echi_file_write(report_path, text, ech_model_text(tiny, text, sizeof text), &error), ECH_OK);
}

static void each_call_of_a_read(void **state) {
    (void)state;
    write_all();
    for (int r = 0; r < READERS; r++) {
        int tried = 0;
        for (int t = 0; t < READ_TROUBLES; t++) {
            const struct trouble *trouble = &read_troubles[t];
            for (long n = 1;; n++) {
                const int fds = descriptors();
                const long live = inject_live();
                inject(trouble->call, n, 1, trouble->error);
                const ech_status status = readers[r].load();
                const long hits = inject_hits();
                inject_nothing();
                assert_int_equal(descriptors(), fds);
                assert_int_equal(inject_live(), live);
                if (status != (hits && !trouble->harmless ? ECH_E_IO : ECH_OK) || (status && !strstr(error.text, readers[r].path)))
                    fail_msg("%s: %s %ld: %d gives %s, '%s'", readers[r].name, inject_name(trouble->call), n, trouble->error,
                             ech_status_name(status), error.text);
                if (!hits) break;
                tried++;
            }
        }
        assert_true(tried >= READ_TROUBLES);
    }
}

/* Interrupted and cut again and again, by chance: slower, and otherwise the same. */
static void a_disk_that_dribbles(void **state) {
    (void)state;
    const int kinds[] = {EINTR, INJECT_SHORT};
    long hits = 0;
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (int k = 0; k < 2; k++) {
            inject_random(INJECT_WRITE, seed, 2, kinds[k]);
            write_all();
            hits += inject_hits();
            for (int r = 0; r < READERS; r++) {
                memset(weights[0], 0, sizeof weights[0]);
                inject_random(INJECT_READ, seed + (uint64_t)r, 2, kinds[k]);
                if (readers[r].load() != ECH_OK) fail_msg("%s, seed %d: %s", readers[r].name, (int)seed, error.text);
                hits += inject_hits();
                if (r == 0) assert_memory_equal(weights[0], weights[1], ech_model_params(tiny) * sizeof(float));
            }
            inject_nothing();
        }
    assert_true(hits > 200);
}

/* Bytes go missing between the look at its size and the read, or all of them. */
static void a_file_that_shrinks(void **state) {
    (void)state;
    struct stat info;
    for (int r = 0; r < READERS; r++) {
        write_all();
        assert_int_equal(stat(readers[r].path, &info), 0);
        for (off_t len = info.st_size - 1; len >= 0; len = len > 16 ? len / 2 : len - 1) {
            assert_int_equal(truncate(readers[r].path, len), 0);
            const ech_status status = readers[r].load();
            /* A text may be whole without its last word; weights never are. */
            if (status != ECH_E_FORMAT && status != ECH_E_SHAPE && status != ECH_E_ARGUMENT && (r == 0 || status != ECH_OK))
                fail_msg("%s of %d bytes: %s, %s", readers[r].name, (int)len, ech_status_name(status), error.text);
        }
    }
}

/* What is no file is told apart from one, and opening it does not wait for a writer. */
static void what_is_no_file(void **state) {
    (void)state;
    char fifo[160];
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *const paths[] = {folder, fifo, "/dev/zero", "/dev/full"};
    strcpy(nodes_doing, "a path that is no file");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        uint8_t *bytes;
        size_t len;
        ech_model *model;
        assert_int_equal(echi_file_read(paths[i], 1 << 20, &bytes, &len, &error), ECH_E_ARGUMENT);
        assert_non_null(strstr(error.text, "not a file"));
        assert_int_equal(ech_model_open(paths[i], &model, &error), ECH_E_ARGUMENT);
        assert_int_equal(echi_file_write(paths[i], "x", 1, &error), ECH_E_ARGUMENT);
        assert_non_null(strstr(error.text, "not a file"));
    }
    unlink(fifo);
}

static int setup(void **state) {
    /* In memory where that is possible: thousands of files are synced. */
    snprintf(folder, sizeof folder, "%s/echelon-faults-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (nodes_setup(state) != 0 || !mkdtemp(folder)) return -1;
    snprintf(weights_path, sizeof weights_path, "%s/weights", folder);
    snprintf(plan_path, sizeof plan_path, "%s/plan", folder);
    snprintf(record_path, sizeof record_path, "%s/record", folder);
    snprintf(events_path, sizeof events_path, "%s/rank0.events", record_path);
    snprintf(report_path, sizeof report_path, "%s/report", folder);
    for (int i = 0; i < 256; i++) weights[1][i] = (float)i + 0.5f;
    plan = (struct echi_plan){.sync = ECHI_SYNC_BSP, .world = 1, .round = 8, .staleness = 3, .rounds_apart = 4, .flights = 1, .n_groups = 1,
                              .head = ECHI_NO_RANK};
    plan.n[0] = 8;
    memset(plan.group_of + 1, ECHI_NONE, sizeof plan.group_of - 1);
    memset(plan.owner_of + 1, 0xff, sizeof plan.owner_of - sizeof plan.owner_of[0]);
    return 0;
}

static int teardown(void **state) {
    unlink(weights_path);
    unlink(plan_path);
    unlink(report_path);
    unlink(events_path);
    rmdir(record_path);
    return nodes_teardown(state) != 0 || rmdir(folder) != 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(each_call_of_a_write, (void *)(uintptr_t)&writers[0]),
        cmocka_unit_test_prestate(each_call_of_a_write, (void *)(uintptr_t)&writers[1]),
        cmocka_unit_test_prestate(each_call_of_a_write, (void *)(uintptr_t)&writers[2]),
        cmocka_unit_test(a_run_keeps_what_it_trained), cmocka_unit_test(a_run_outlives_its_recording),
        cmocka_unit_test(each_call_of_a_read), cmocka_unit_test(a_disk_that_dribbles), cmocka_unit_test(a_file_that_shrinks),
        cmocka_unit_test(what_is_no_file),
    };
    return cmocka_run_group_tests_name("files that fail", tests, setup, teardown);
}
