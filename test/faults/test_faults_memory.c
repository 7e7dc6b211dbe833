/* SPDX-License-Identifier: Apache-2.0
 * The N-th allocation fails, for all N: a sentence and ECH_E_MEMORY, nothing leaked, nothing hangs, and the same objects do
 * their work again. FAULTS_TRIED=all tries every N; without it each place that allocates is tried at its first call, and of the
 * other calls every few. */
#include "nodes.h"
#include "part.h"

#include "echelon_dev.h"
#include "echi_hosts.h"
#include "echi_run.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>

#include "unit/test_data_files.h"

static char file_path[160], kept_path[160], record_path[160], hosts_path[160];
static bool nothing_left;      /* no allocation succeeds any more: a node cannot even take a call, and those who call give up in time */
static struct ech_error error;

/* ------------------------------------------------------------ what is done */

static ech_status build_model(void) {
    ech_model *model = NULL;
    const ech_status status = build_tiny(&model, &error);
    ech_model_destroy(model);
    return status;
}

static ech_status open_model(const char *name) {
    ech_model *model = NULL;
    const ech_status status = ech_model_open(name, &model, &error);
    if (status == ECH_OK) ech_model_destroy(model);
    return status;
}
static ech_status open_builtin_model(void) { return open_model("lenet5"); }

static ech_status open_model_text(void) {
    char text[256];
    const size_t len = ech_model_text(tiny, text, sizeof text);
    const ech_status status = echi_file_write(file_path, text, len, &error);
    return status == ECH_OK ? open_model(file_path) : status;
}

static ech_status open_data(const char *name) {
    ech_data *data = NULL;
    const ech_status status = ech_data_open(name, 1, &data, &error);
    if (status == ECH_OK) ech_data_destroy(data);
    return status;
}
static ech_status open_glyphs(void) { return open_data("glyphs"); }
static ech_status open_idx(void) { return open_data(folder); }

static ech_status open_callback(void) {
    ech_data *data = NULL;
    const ech_status status = ech_data_from_callback(&tiny_callback, &data, &error);
    if (status == ECH_OK) ech_data_destroy(data);
    return status;
}

static ech_status weights_to_a_file_and_back(void) {
    float weights[256] = {0};
    assert_true(ech_model_params(tiny) <= 256);
    const ech_status status = echi_safetensors_save(file_path, tiny, weights, &error);
    return status == ECH_OK ? echi_safetensors_load(file_path, tiny, weights, NULL, NULL, &error) : status;
}

static ech_status plan_to_a_file_and_back(void) {
    struct echi_plan plan = {.sync = ECHI_SYNC_BSP, .world = 1, .round = 8, .staleness = 3, .rounds_apart = 4, .flights = 1, .n_groups = 1,
                             .head = ECHI_NO_RANK};
    plan.n[0] = 8;
    for (int r = 1; r < ECHI_WORLD_MAX; r++) plan.group_of[r] = ECHI_NONE;
    for (int g = 1; g < ECHI_GROUPS_MAX; g++) plan.owner_of[g] = ECHI_NO_RANK;
    const ech_status status = echi_plan_save(file_path, &plan, NULL, &error);
    return status == ECH_OK ? echi_plan_load(file_path, 2, &plan, NULL, &error) : status;
}

/* The nodes' statuses as one: all well, or that of the first that is not and tells the most. The others may say that they
 * lost it, or were told to stop waiting for it. */
static ech_status of_nodes(int world) {
    ech_status status = ECH_OK;
    for (int r = 0; r < world; r++) {
        const ech_status s = nodes[r].status;
        const bool fits = s == ECH_OK || s == ECH_E_MEMORY || s == ECH_E_PEER_LOST || (s == ECH_E_ABORTED && nodes_stop) ||
                          (s == ECH_E_TIMEOUT && nothing_left);
        if (!fits || (s != ECH_OK && strlen(nodes[r].error.text) < 15))
            fail_msg("%s: rank %d ends with %s, '%s'", nodes_doing, r, ech_status_name(s), nodes[r].error.text);
        if (s == ECH_OK || status == ECH_E_MEMORY) continue;
        status = nodes[r].status;
        error = nodes[r].error;
    }
    return status;
}

static ech_status train_by(void *(*main_of_node)(void *), int world, const char *sync, int separate) {
    prepare_nodes(world, sync, separate);
    for (int r = 0; r < world && nothing_left; r++) nodes[r].config.join_timeout = 0.5;
    if (main_of_node == node_main) {
        snprintf(nodes[0].config.save, sizeof nodes[0].config.save, "%s", file_path);
        snprintf(nodes[0].config.report, sizeof nodes[0].config.report, "%s.json", file_path);
        snprintf(nodes[0].config.save_plan, sizeof nodes[0].config.save_plan, "%s.plan", file_path);
    }
    run_nodes(world, main_of_node);
    return of_nodes(world);
}
static ech_status train(int world, const char *sync, int separate, bool session) {
    return train_by(session ? session_main : node_main, world, sync, separate);
}
static ech_status train_bsp(void) { return train(1, "bsp", 0, false); }
static ech_status train_asp(void) { return train(1, "asp", 0, false); }
static ech_status train_ssp(void) { return train(1, "ssp", 0, false); }
static ech_status train_gssp(void) { return train(1, "gssp", 0, false); }
static ech_status train_with_head(void) { return train(1, "gssp", 1, false); }
static ech_status session_bsp(void) { return train(1, "bsp", 0, true); }
static ech_status session_gssp(void) { return train(1, "gssp", 0, true); }
static ech_status session_with_head(void) { return train_by(headed_main, 1, "bsp", 0); }
static ech_status two_bsp(void) { return train(2, "bsp", 0, false); }
static ech_status two_with_head(void) { return train(2, "gssp", 1, false); }
static ech_status three_with_head(void) { return train(3, "gssp", 1, false); }
static ech_status two_sessions(void) { return train(2, "ssp", 0, true); }
static ech_status three_sessions(void) { return train(3, "bsp", 0, true); }
static ech_status two_sessions_with_head(void) { return train_by(headed_main, 2, "gssp", 1); }
static ech_status model_forward(void) {
    float params[PARAMS * 100] = {0}, rows[4 * SIDE * SIDE] = {0}, out[4 * CLASSES];
    assert_true(ech_model_params(tiny) <= sizeof params / sizeof params[0]);
    return ech_model_forward(tiny, params, 4, rows, out, &error);
}

static void empty(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
}

static ech_status run_one_node(void) {
    run_nodes(1, node_main);
    return of_nodes(1);
}

/* A run that keeps a checkpoint after every round, and one that goes on from the last. */
static ech_status train_and_resume(void) {
    empty(kept_path);
    for (int go_on = 0; go_on < 2; go_on++) {
        prepare_nodes(1, "gssp", 1);
        snprintf(nodes[0].config.checkpoint, sizeof nodes[0].config.checkpoint, "%s", kept_path);
        nodes[0].config.every = 1;
        nodes[0].config.resume = go_on;
        nodes[0].config.epochs = 1 + go_on;
        const ech_status status = run_one_node();
        if (status != ECH_OK) return status;
    }
    return ECH_OK;
}

static ech_status train_recorded(void) {
    empty(record_path);
    prepare_nodes(1, "gssp", 1);
    snprintf(nodes[0].config.record, sizeof nodes[0].config.record, "%s", record_path);
    return run_one_node();
}

static ech_status train_for_a_profile(void) {
    prepare_nodes(1, "bsp", 0);
    snprintf(nodes[0].config.profile_out, sizeof nodes[0].config.profile_out, "%s.profile", file_path);
    return run_one_node();
}

/* The files that a simulation takes. */
static const char three_hosts[] = "default link 1 Gb/s\nhosts 1 speed 2 x cores 2 of desk\nhosts 2 speed 1 x jitter 0.1 cores 2 of desk\n";

static ech_status hosts_and_a_profile(void) {
    struct echi_hosts hosts = {0};
    struct echi_profile profile;
    echi_profile_builtin(&profile);
    ech_status status = echi_file_write(file_path, three_hosts, strlen(three_hosts), &error);
    if (status == ECH_OK) status = echi_hosts_load(file_path, &hosts, &error);
    echi_hosts_free(&hosts);
    if (status == ECH_OK) status = echi_hosts_named(3, "strong", &hosts, &error);
    echi_hosts_free(&hosts);
    if (status == ECH_OK) status = echi_profile_save(file_path, &profile, &error);
    return status == ECH_OK ? echi_profile_load(file_path, &profile, &error) : status;
}

/* Of the run that was recorded before. */
static ech_status replay(void) {
    const struct ech_replay_options options = {.dir = record_path, .model = tiny, .data = tiny_data, .save = file_path};
    return ech_replay(&options, NULL, &error);
}
static void no_line(void *user, const char *text) { (void)user, (void)text; }
static ech_status show(void) { return ech_replay_show(record_path, -1, no_line, NULL, &error); }

static ech_status trace(void) { return ech_recording_trace(record_path, file_path, NULL, NULL, &error); }
static ech_status layers(void) { return ech_recording_layers(record_path, 0, file_path, NULL, &error); }

/* A simulated cluster, with a death in it. */
static ech_status simulate(void) {
    static const char hosts[] = "default jitter 0.1 link 1 Mb/s\nhosts 3 speed 1 x\nhosts 1 speed 0.01 x dies 5 ms\n";
    static struct ech_config config;
    const struct ech_sim_options options = {.hosts = hosts_path};
    ech_config_init(&config);
    config.measure = 0.001;   /* most of the time of a short run is its measuring */
    config.batch = 8;
    config.epochs = 2;
    config.deadline = 0.1;
    snprintf(config.sync, sizeof config.sync, "asp");
    snprintf(config.save, sizeof config.save, "%s", file_path);
    snprintf(config.report, sizeof config.report, "%s.json", file_path);
    const ech_status status = echi_file_write(hosts_path, hosts, sizeof hosts - 1, &error);
    return status == ECH_OK ? ech_simulate(tiny, tiny_data, &config, &options, NULL, &error) : status;
}

/* The layer times of another system, on links of a log of its all-reduces. */
static ech_status plan_a_trace(void) {
    static const char graph[] =
        "node1 -- Conv2d(1) -- forward_compute_time=3, backward_compute_time=5, activation_size=64, parameter_size=4000\n"
        "node2 -- Linear(1) -- forward_compute_time=1, backward_compute_time=2, activation_size=64, parameter_size=9000\n"
        "\tnode1 -- node2\n";
    static const char log[] = "2,1000 20\n2,2000 25\n2,4000 35\n";
    static struct ech_config config;
    const struct ech_sim_options options = {.trace = file_path, .trace_batch = 16, .alpha_beta = hosts_path, .workers = 2, .costs_only = 1};
    ech_config_init(&config);
    config.steps = 0;
    ech_status status = echi_file_write(file_path, graph, sizeof graph - 1, &error);
    if (status == ECH_OK) status = echi_file_write(hosts_path, log, sizeof log - 1, &error);
    return status == ECH_OK ? ech_simulate(NULL, NULL, &config, &options, NULL, &error) : status;
}

/* --------------------------------------------------------------- the sweep */

static const struct act {
    const char *name;
    ech_status (*run)(void);
    int least;           /* allocations that it makes at least: fewer, and the sweep would prove nothing */
    int stride;          /* without FAULTS_TRIED=all */
    int world;           /* nodes; 0: nothing is run */
    enum { QUICK, LONG, SEVERAL } kind;   /* LONG: all that follow fail only with FAULTS_TRIED=all; SEVERAL: so too, and nodes that
                                             run at once, so that the N-th allocation is another each time */
} acts[] = {
    {"build a model", build_model, 1, 1, 0, QUICK},
    {"open lenet5", open_builtin_model, 1, 1, 0, QUICK},
    {"a model's text", open_model_text, 2, 1, 0, QUICK},
    {"glyphs", open_glyphs, 4, 1, 0, LONG},
    {"idx files", open_idx, 6, 1, 0, QUICK},
    {"a data callback", open_callback, 3, 1, 0, QUICK},
    {"weights to a file and back", weights_to_a_file_and_back, 3, 1, 0, QUICK},
    {"a plan to a file and back", plan_to_a_file_and_back, 3, 1, 0, QUICK},
    {"train bsp", train_bsp, 30, 3, 1, LONG},
    {"train asp", train_asp, 30, 5, 1, LONG},
    {"train ssp", train_ssp, 30, 7, 1, LONG},
    {"train gssp", train_gssp, 30, 7, 1, LONG},
    {"train with a head", train_with_head, 30, 3, 1, LONG},
    {"session bsp", session_bsp, 20, 3, 1, LONG},
    {"session gssp", session_gssp, 20, 3, 1, LONG},
    {"session with a head", session_with_head, 20, 3, 1, LONG},
    {"a model forward", model_forward, 5, 1, 0, QUICK},
    {"train with checkpoints and go on", train_and_resume, 60, 7, 1, LONG},
    {"train recorded", train_recorded, 30, 3, 1, LONG},
    {"train for a profile", train_for_a_profile, 30, 7, 1, LONG},
    {"hosts and a profile", hosts_and_a_profile, 5, 1, 0, QUICK},
    {"replay", replay, 10, 1, 0, QUICK},
    {"show a recording", show, 1, 1, 0, QUICK},
    {"a recording's trace", trace, 10, 1, 0, QUICK},
    {"a recording's layers", layers, 3, 1, 0, QUICK},
    {"simulate four nodes", simulate, 60, 1, 0, QUICK},
    {"plan a trace", plan_a_trace, 20, 1, 0, QUICK},
    {"two nodes, bsp", two_bsp, 60, 7, 2, SEVERAL},
    {"two nodes with a head", two_with_head, 60, 7, 2, SEVERAL},
    {"three nodes with a head", three_with_head, 100, 11, 3, SEVERAL},
    {"two sessions, ssp", two_sessions, 50, 7, 2, SEVERAL},
    {"three sessions, bsp", three_sessions, 80, 11, 3, SEVERAL},
    {"two sessions with a head", two_sessions_with_head, 60, 7, 2, SEVERAL},
};
enum { ACTS = sizeof acts / sizeof acts[0], N_MAX = 4096 };

/* A run may do without the name of its processor: who asks for memory to read it, as learned at the beginning. */
static void *namers[16];
static bool names_processor(const void *caller) {
    for (size_t i = 0; i < sizeof namers / sizeof namers[0]; i++)
        if (caller && namers[i] == caller) return true;
    return false;
}
/* Its report may lack the critical path. And a link that was not made is dialled anew: each has
 * two ends; two more, because nodes at once need not fail in the same place. */
#define NOT_TOLD 1
static int forgives(const struct act *act) { return NOT_TOLD + (act->world > 1 ? act->world * (act->world - 1) + 2 : 0); }

static bool all_of_them(void) {
    const char *word = getenv("FAULTS_TRIED");
    return word && strcmp(word, "all") == 0;
}

/* Which N to try: those whose caller was not seen before, and every stride-th. */
static int choose(const struct act *act, long count, long chosen[N_MAX]) {
    void *seen[N_MAX];
    int n_seen = 0, n = 0;
    for (long i = 1; i <= count && n < N_MAX; i++) {
        void *caller = inject_caller(i);
        bool fresh = caller != NULL;
        for (int s = 0; s < n_seen; s++) fresh = fresh && seen[s] != caller;
        if (fresh) seen[n_seen++] = caller;
        if (fresh || all_of_them() || (i - 1) % (act->stride * (long)test_part()) == act->stride * (long)test_turn()) chosen[n++] = i;
    }
    return n;
}

static const char *where(long n) {
    static char text[160];
    Dl_info at = {0};
    const char *caller = inject_caller(n);
    if (caller) dladdr(caller, &at);
    snprintf(text, sizeof text, "addr2line -ife %s %#tx", at.dli_fname ? at.dli_fname : "?",
             at.dli_fbase ? caller - (const char *)at.dli_fbase : 0);
    return text;
}

static ech_status attempt(const struct act *act) {
    memset(&error, 0, sizeof error);
    const ech_status status = act->run();
    return status;
}

/* One run in which allocation n fails (and with `rest` all that follow). */
static ech_status one(const struct act *act, long n, bool rest) {
    snprintf(nodes_doing, sizeof nodes_doing, "%s: allocation %ld%s", act->name, n, rest ? " and all that follow" : "");
    const long live = inject_live();
    inject(INJECT_ALLOC, n, rest ? LONG_MAX / 2 : 1, ENOMEM);
    nothing_left = rest;
    const ech_status status = attempt(act);
    nothing_left = false;
    const long hits = inject_hits(), lost = inject_live() - live;
    const bool told = status == ECH_OK || ((status == ECH_E_MEMORY || (rest && act->kind == SEVERAL)) && strlen(error.text) >= 15);
    if (!told || lost != 0 || (hits == 0 && act->kind != SEVERAL))
        fail_msg("%s: status %s, %ld blocks lost, '%s' (%s)", nodes_doing, ech_status_name(status), lost, error.text, where(n));
    inject_nothing();
    return hits > 0 ? status : ECH_E_AGAIN;   /* nodes at once: this time there was no n-th */
}

static void each_allocation(void **state) {
    const struct act *act = *state;
    static long chosen[N_MAX];
    inject_nothing();
    snprintf(nodes_doing, sizeof nodes_doing, "%s: no failure", act->name);
    const ech_status clean = attempt(act);
    if (clean != ECH_OK) fail_msg("%s without a failure: %s: %s", act->name, ech_status_name(clean), error.text);
    const long count = inject_calls(INJECT_ALLOC);
    if (count < act->least) fail_msg("%s: only %ld allocations", act->name, count);
    const int n = choose(act, count, chosen);
    print_message("%s: %ld allocations, %d tried\n", act->name, count, n);
    void *forgiven_to[N_MAX];   /* once each, however often it is tried */
    int forgiven = 0;
    for (int i = 0; i < n; i++) {
        const ech_status status = one(act, chosen[i], false);
        void *const caller = inject_caller(chosen[i]);
        bool again = false;
        for (int f = 0; f < forgiven && caller; f++) again = again || forgiven_to[f] == caller;
        if (status == ECH_OK && !names_processor(caller) && !again) forgiven_to[forgiven++] = caller;
        if (forgiven > forgives(act)) fail_msg("%s: allocation %ld failed and all was well (%s)", act->name, chosen[i], where(chosen[i]));
        if (act->kind == QUICK || all_of_them()) one(act, chosen[i], true);
    }
    assert_int_equal(attempt(act), ECH_OK);   /* all these failures left nothing behind */
}

static int setup(void **state) {
#ifdef __GLIBC__
    /* What is freed stays with the process: half of the time went into pages that the kernel took back, and cleared for the next run. */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
#endif
    if (nodes_setup(state) != 0 || make_folder(state) != 0) return -1;
    struct file files[FILES];
    make_files(files);
    write_files(files);
    path_in_folder(file_path, "file");
    path_in_folder(kept_path, "kept");
    path_in_folder(record_path, "record");
    path_in_folder(hosts_path, "hosts");
    uint8_t *bytes;
    size_t len;
    inject_nothing();
    if (echi_file_read("/proc/cpuinfo", 1 << 20, &bytes, &len, &error) == ECH_OK) free(bytes);
    for (long i = 1; i <= inject_calls(INJECT_ALLOC) && i <= 16; i++) namers[i - 1] = inject_caller(i);
    return train_recorded() != ECH_OK;
}

static int teardown(void **state) {
    remove_file("file");
    remove_file("file.json");
    remove_file("file.plan");
    remove_file("file.profile");
    remove_file("hosts");
    empty(kept_path);
    empty(record_path);
    rmdir(kept_path);
    rmdir(record_path);
    return nodes_teardown(state) != 0 || remove_folder(state) != 0;
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[ACTS];
    for (int i = 0; i < ACTS; i++)
        tests[i] = (struct CMUnitTest){.name = acts[i].name, .test_func = each_allocation, .initial_state = (void *)(uintptr_t)&acts[i]};
    if (argc > 1) cmocka_set_test_filter(argv[1]);   /* one of them, by hand: a pattern such as "train*" */
    return cmocka_run_group_tests_name("allocations that fail", tests, setup, teardown);
}
