/* SPDX-License-Identifier: Apache-2.0
 * Recordings of simulated clusters: replayed into fresh roles they give the same actions; changed in any byte, cut anywhere,
 * or forged with checks that fit, they give a sentence and do no harm. Whole runs with real arithmetic: test_replay.sh. */
#include "tape.h"

#include "echelon_dev.h"

#include <malloc.h>
#include <unistd.h>

#define PLANS (150 / test_part())
#define FORGED (4000 / test_part())
/* Of bytes changed and lengths cut. Odd: every bit is changed somewhere. */
#define STRIDE (test_few() ? 7u : 1u)

static ech_status replay(const uint8_t *bytes, size_t len, bool *out_ended, uint64_t *out_events, struct ech_error *err) {
    struct echi_recording r;
    uint64_t actions;
    *out_ended = false;
    ech_status status = echi_recording_open(bytes, len, "tape", &r, err);
    if (status == ECH_OK) status = echi_replay_roles(&r, out_events, &actions, err);
    if (status == ECH_OK) *out_ended = r.ended;
    return status;
}

/* ---- the tests ---- */

/* Whoever asks glibc's malloc gets bytes that are neither zero nor anything sane: a role that reads what nobody has set shows it. */
static void fill_new_memory(int with) {
#ifdef M_PERTURB
    (void)mallopt(M_PERTURB, with);   /* sanitizers have an allocator of their own, which fills by itself */
#else
    (void)with;
#endif
}

static void fresh_roles_do_the_same(void **state) {
    (void)state;
    uint64_t all = 0;
    fill_new_memory(0xa5);
    for (uint64_t seed = 1; seed <= PLANS; seed++) {
        const int world = record_run(seed);
        for (int r = 0; r < world; r++) {
            struct ech_error err = {0};
            uint64_t events = 0;
            bool ended;
            if (replay(tape[r].bytes, tape[r].len, &ended, &events, &err) != ECH_OK) fail_msg("seed %u: %s", (unsigned)seed, err.text);
            assert_true(ended);
            assert_int_equal(events, tape[r].events);
            all += events;
        }
    }
    fill_new_memory(0);
    assert_true(all > 100 * PLANS && (ratio_changes > 0 || PLANS < 150));
}

/* A run in which a node's speed changes for good, and its worker joins another group because of it. */
static void moves_are_replayed(void **state) {
    (void)state;
    static struct sim s;
    uint64_t moves = 0;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        memset(&s, 0, sizeof s);
        s.seed = seed;
        echi_random_init(&s.random, seed, ECHI_STREAM_TEST, 8);
        s.goal = (struct echi_goal){.train_samples = 128, .samples = 128 * 8};
        s.request = (struct echi_plan_request){.sync = ECHI_SYNC_GSSP, .world = 4, .groups = 2, .batch = 8, .lr = 0.1,
                                               .samples_per_step = 1,
                                        .staleness = 3, .regroup_after = 1};
        for (int r = 0; r < 4; r++) s.speed[r] = r % 2 ? 4000 : 1000;
        s.speed_at = 2000;
        s.speed_of = 2;
        s.speed_then = 4000;
        s.plan.world = 4;
        s.watch = watch;
        for (int r = 0; r < 4; r++) begin_tape(&s, r);
        sim_run(&s);
        for (int r = 0; r < 4; r++) {
            struct echi_recording recording;
            struct echi_record record;
            struct ech_error err = {0};
            uint64_t events = 0;
            bool ended;
            end_tape(r);
            if (replay(tape[r].bytes, tape[r].len, &ended, &events, &err) != ECH_OK) fail_msg("seed %u: %s", (unsigned)seed, err.text);
            assert_true(ended);
            assert_int_equal(echi_recording_open(tape[r].bytes, tape[r].len, "tape", &recording, NULL), ECH_OK);
            while (echi_recording_read(&recording, &record, NULL) == ECH_OK && record.kind)
                moves += record.kind == ECHI_RECORD_EVENT && record.event.event.type == ECHI_EVENT_MESSAGE &&
                         record.event.msg.kind == ECHI_KIND_REGROUP && record.event.msg.peer == 2;
        }
    }
    if (moves < 20) fail_msg("%d words on moves", (int)moves);
}

/* ---- where time went ---- */

/* At so many tenths of a second the worker is told this, and asks for that task; ECHI_TASKS: for none. */
static void told(struct tape *t, int tenths, struct echi_event e, int asks_for) {
    static struct echi_action room[2];
    struct echi_actions list = {room, 0, 2, false};
    struct echi_writer w = echi_writer_over(body_of(t), room_of(t));
    e.now = (int64_t)tenths * 100000000;
    if (asks_for < ECHI_TASKS) echi_act(&list, ECHI_ACTION_COMPUTE)->task = (struct echi_task){.kind = (uint8_t)asks_for};
    echi_trace_put(&w, ECHI_ROLE_WORKER, &e, &list, NULL);
    assert_true(w.ok);
    seal(t, ECHI_RECORD_EVENT, (size_t)(w.at - body_of(t)));
    t->events++;
}

static void took(struct echi_took took, double seconds, uint64_t count) {
    if (fabs(took.seconds - seconds) > 1e-9 || took.count != count) fail_msg("%g s in %d for %g s", took.seconds, (int)took.count, seconds);
}

/* Of two nodes rank 1: steps, a sum that goes before them, an evaluation, a checkpoint beside the thread; and waits for weights, for
 * nothing that came, and before the first task, which does not count. */
static void time_is_computed_or_waited(void **state) {
    (void)state;
    struct tape *t = &tape[1];
    const struct echi_task step = {.kind = ECHI_TASK_STEP, .lease = {.id = 1, .n = 7, .worker = 1}}, add = {.kind = ECHI_TASK_ADD},
                           eval = {.kind = ECHI_TASK_EVAL}, keep = {.kind = ECHI_TASK_KEEP};
    const struct echi_result none = {0};
    struct echi_msg weights = {.kind = ECHI_KIND_WEIGHTS}, push = {.kind = ECHI_KIND_PUSH};
    const struct echi_event comes = {.type = ECHI_EVENT_MESSAGE, .from = 0, .msg = &weights},
                            pushed = {.type = ECHI_EVENT_MESSAGE, .from = 1, .msg = &push},
                            sent = {.type = ECHI_EVENT_SENT, .kind = ECHI_KIND_PUSH};
#define DONE(what) (struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &(what), .result = &none}
    record_run(1);
    const size_t about = echi_load32(t->bytes + 12);
    t->len = 12;
    t->events = 0;
    t->check = echi_check(ECHI_CHECK_BEGIN, t->bytes, t->len);
    seal(t, ECHI_RECORD_ABOUT, about);
    told(t, 10, comes, ECHI_TASK_STEP);
    told(t, 30, DONE(step), ECHI_TASKS);
    told(t, 32, sent, ECHI_TASKS);               /* something, but nothing to compute */
    told(t, 45, comes, ECHI_TASK_STEP);
    told(t, 50, pushed, ECHI_TASK_ADD);
    told(t, 60, DONE(add), ECHI_TASK_KEEP);
    told(t, 80, DONE(step), ECHI_TASKS);
    told(t, 82, DONE(keep), ECHI_TASK_EVAL);     /* nobody's message */
    told(t, 90, DONE(eval), ECHI_TASKS);
    told(t, 95, sent, ECHI_TASKS);
    struct echi_recording r;
    struct echi_record record;
    struct echi_took waited[2 * ECHI_KINDS] = {{0, 0}};
    struct echi_spent spent = {.world = 2, .waited = waited};
    assert_int_equal(echi_recording_open(t->bytes, t->len, "tape", &r, NULL), ECH_OK);
    assert_int_equal(echi_recording_spent(&r, &record, &spent, NULL), ECH_OK);
    took(spent.task[ECHI_TASK_STEP], 2 + 0.5 + 2, 2);
    took(spent.task[ECHI_TASK_ADD], 1, 1);
    took(spent.task[ECHI_TASK_EVAL], 0.8, 1);
    took(spent.task[ECHI_TASK_KEEP], 0, 0);
    took(waited[ECHI_KIND_WEIGHTS], 1.5, 1);
    took(waited[ECHI_KINDS + ECHI_KIND_PUSH], 0, 0);
    took(spent.other, 0.2, 1);
    assert_int_equal(spent.samples, 2 * 7);
}

/* What was measured before the plan was made is in rank 0's recording, and the plan. */
static void what_was_planned_by_is_known(void **state) {
    static struct echi_times times[ECHI_WORLD_MAX];
    static struct echi_plan plan;
    struct echi_recording r;
    struct echi_record record;
    int plans = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const int world = record_run(seed);
        assert_int_equal(echi_recording_open(tape[0].bytes, tape[0].len, "tape", &r, NULL), ECH_OK);
        if (!echi_recording_planned(&r, &record, &plan, times)) continue;
        assert_int_equal(plan.world, world);
        for (int i = 0; i < world; i++) assert_true(times[i].count > 0 || plan.n[i] == 0);
        plans++;
    }
    assert_true(plans > 10);
}

/* A small recording with all five roles in it. */
static struct tape *small(void) {
    for (uint64_t seed = 1; seed < 60; seed++) {
        record_run(seed);
        struct echi_recording r;
        struct echi_record record;
        bool role[ECHI_ROLES] = {false};
        assert_int_equal(echi_recording_open(tape[0].bytes, tape[0].len, "tape", &r, NULL), ECH_OK);
        while (echi_recording_read(&r, &record, NULL) == ECH_OK && record.kind)
            if (record.kind == ECHI_RECORD_EVENT) role[record.event.role] = true;
        bool all = true;
        for (int k = 0; k < ECHI_ROLES; k++) all = all && role[k];
        if (all) return &tape[0];
    }
    return NULL;
}

static void every_changed_byte_is_found(void **state) {
    (void)state;
    struct tape *t = small();
    assert_non_null(t);
    for (size_t i = 0; i < t->len; i += STRIDE + i / 400 * STRIDE) {
        struct ech_error err = {0};
        uint64_t events;
        bool ended;
        t->bytes[i] ^= (uint8_t)(1u << i % 8);
        const ech_status status = replay(t->bytes, t->len, &ended, &events, &err);
        t->bytes[i] ^= (uint8_t)(1u << i % 8);
        /* A length that now goes beyond the end looks like a recording that breaks off. */
        if (status == ECH_OK ? ended : (status != ECH_E_FORMAT && status != ECH_E_MISMATCH) || !err.text[0])
            fail_msg("byte %zu of %zu changed: %s '%s'", i, t->len, ech_status_name(status), err.text);
    }
}

static void a_cut_recording_is_replayed_so_far(void **state) {
    (void)state;
    struct tape *t = small();
    uint64_t most = 0;
    for (size_t len = 0; len < t->len; len += STRIDE + len / 300 * STRIDE) {
        struct ech_error err = {0};
        uint64_t events = 0;
        bool ended;
        const ech_status status = replay(t->bytes, len, &ended, &events, &err);
        assert_false(ended);
        if (status != ECH_OK) assert_true(status == ECH_E_FORMAT && err.text[0]);
        assert_true(events >= most || status != ECH_OK);
        if (events > most) most = events;
    }
    assert_true(most > t->events / 2);
}

/* Where record `at` begins, and all checks from there on made anew. */
static void mend(struct tape *t) {
    t->check = echi_check(ECHI_CHECK_BEGIN, t->bytes, 12);
    for (size_t at = 12; at + ECHI_RECORD_HEAD + ECHI_RECORD_TAIL <= t->len;) {
        const size_t len = echi_load32(t->bytes + at);
        if (len > t->len - at - ECHI_RECORD_HEAD - ECHI_RECORD_TAIL) return;
        t->check = echi_record_seal(t->check, (enum echi_record_kind)t->bytes[at + 4], t->bytes + at + ECHI_RECORD_HEAD, len);
        at += ECHI_RECORD_HEAD + len + ECHI_RECORD_TAIL;
    }
}

/* Bytes changed and the checks made to fit: no event does harm to a role, whatever it says (sanitizers watch). */
static void forged_recordings_do_no_harm(void **state) {
    (void)state;
    struct tape *t = small(), copy = {.bytes = malloc(TAPE)};
    assert_non_null(copy.bytes);
    struct echi_random random;
    int same = 0;
    for (uint32_t i = 0; i < FORGED; i++) {
        struct ech_error err = {0};
        uint64_t events;
        bool ended;
        echi_random_init(&random, 5, ECHI_STREAM_TEST, i);
        copy.len = t->len;
        memcpy(copy.bytes, t->bytes, t->len);
        for (uint32_t k = 1 + echi_random_below(&random, 3); k > 0; k--) {
            /* Mostly near the beginning: the fewer events, the more of these. */
            const uint32_t most = echi_random_below(&random, 3) ? 4000 : (uint32_t)t->len;
            const size_t at = 12 + echi_random_below(&random, most < t->len ? most - 12 : (uint32_t)t->len - 12);
            copy.bytes[at] = echi_random_below(&random, 2) ? (uint8_t)echi_random_u32(&random) : (uint8_t)(copy.bytes[at] + 1);
        }
        mend(&copy);
        const ech_status status = replay(copy.bytes, copy.len, &ended, &events, &err);
        if (status == ECH_OK) same++;
        else if ((status != ECH_E_FORMAT && status != ECH_E_MISMATCH) || !err.text[0])
            fail_msg("forged %u: %s '%s'", (unsigned)i, ech_status_name(status), err.text);
    }
    free(copy.bytes);
    /* Times, losses and words may be anything; most else is told. */
    if ((uint32_t)same < FORGED / 100 || (uint32_t)same > FORGED * 3 / 4) fail_msg("%d of %u replayed without a difference", same, FORGED);
}

/* Changes the first event that fits: what the replay then says names it. */
static void differences_are_told_in_words(void **state) {
    (void)state;
    struct tape *t = small();
    size_t at = 12;
    uint64_t number = 0;
    struct ech_error err = {0};
    uint64_t events;
    bool ended;
    char expected[80];
    for (;; at += ECHI_RECORD_HEAD + echi_load32(t->bytes + at) + ECHI_RECORD_TAIL) {
        struct echi_traced traced;
        assert_true(at < t->len);
        if (t->bytes[at + 4] != ECHI_RECORD_EVENT) continue;
        number++;
        assert_true(echi_trace_get(t->bytes + at + ECHI_RECORD_HEAD, echi_load32(t->bytes + at), &traced));
        if (traced.role != ECHI_ROLE_WORKER || traced.event.type != ECHI_EVENT_COMPUTED || traced.actions_len == 0) continue;
        if (traced.actions[0] != ECHI_ACTION_SEND) continue;   /* weights were taken in */
        /* The slot of its first action. */
        t->bytes[traced.actions - t->bytes + 4]++;
        break;
    }
    mend(t);
    assert_int_equal(replay(t->bytes, t->len, &ended, &events, &err), ECH_E_MISMATCH);
    snprintf(expected, sizeof expected, "rank 0, event %llu, worker (done: ", (unsigned long long)number);
    if (!strstr(err.text, expected) || !strstr(err.text, "was recorded, 'send to the ")) fail_msg("%s", err.text);
}

/* What the coordinator plans by comes back as it was: with another plan request a replay would make another plan. */
static void requests_come_back(void **state) {
    (void)state;
    static const struct { int shards; uint16_t rank[ECHI_SHARDS_MAX]; } shards[] = {{ECHI_SHARDS_AUTO, {0}}, {0, {0}}, {1, {0}},
                                                                                    {ECHI_WORLD_MAX, {0}}, {3, {4, 0, 2}}};
    for (size_t i = 0; i < 2 * sizeof shards / sizeof shards[0]; i++) {
        static struct echi_plan_request request, back;
        uint8_t bytes[ECHI_RECORD_MAX];
        memset(&request, 0, sizeof request);
        request.world = 5;
        request.separate = -1;
        request.lr = 0.1;
        request.shards = shards[i / 2].shards;
        request.shard_rank_given = shards[i / 2].rank[0] > 0;
        memcpy(request.shard_rank, shards[i / 2].rank, sizeof request.shard_rank);
        request.keep_all = i % 2;
        request.activations = (enum echi_activations)(i % ECHI_ACTIVATIONS);
        request.exchange = (enum echi_exchange)(i % (ECHI_EXCHANGES + 1));
        for (size_t k = 0; k < i; k++) {
            struct echi_measured *m = &request.evidence.of[request.evidence.count++];
            m->sync = ECHI_SYNC_GSSP;
            m->separated = i % 2;
            m->behind = 1.5 + (double)k;
            m->efficiency = 0.75;
            m->error = 0.125;
        }
        struct echi_writer w = echi_writer_over(bytes, sizeof bytes);
        echi_plan_request_put(&w, &request);
        struct echi_reader r = echi_reader_over(bytes, (size_t)(w.at - bytes));
        assert_true(w.ok && echi_plan_request_get(&r, &back) && r.at == r.end);
        assert_memory_equal(&request, &back, sizeof request);
    }
}

static void other_versions_are_refused(void **state) {
    (void)state;
    struct tape *t = small();
    struct ech_error err = {0};
    struct echi_recording r;
    char format[16];
    snprintf(format, sizeof format, "format %u,", ECHI_RECORDING_FORMAT - 1);
    t->bytes[8] = ECHI_RECORDING_FORMAT - 1;
    assert_int_equal(echi_recording_open(t->bytes, t->len, "tape", &r, &err), ECH_E_MISMATCH);
    assert_non_null(strstr(err.text, format));
    t->bytes[8] = ECHI_RECORDING_FORMAT;
    uint8_t *version = t->bytes + 12 + ECHI_RECORD_HEAD + 2;
    assert_memory_equal(version, ECH_VERSION, strlen(ECH_VERSION));
    version[0] = '7';
    mend(t);
    assert_int_equal(echi_recording_open(t->bytes, t->len, "tape", &r, &err), ECH_E_MISMATCH);
    if (!strstr(err.text, "echelon 7.") || !strstr(err.text, ECH_VERSION)) fail_msg("%s", err.text);
    assert_int_equal(echi_recording_open((const uint8_t *)"echo", 4, "tape", &r, &err), ECH_E_FORMAT);
}

/* ---- a whole run of one node, with files ---- */

static char folder[] = "/tmp/echelon-replay.XXXXXX", record_path[64];

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test;
    for (int i = 0; i < n; i++) {
        labels[i] = (uint16_t)(index[i] % 3);
        for (uint32_t p = 0; p < 64; p++) rows[(uint32_t)i * 64 + p] = (float)(p % (labels[i] + 2u)) * 0.3f - 0.2f;
    }
    return 0;
}
static ech_data *make_data(void) {
    const struct ech_data_callback callback = {.channels = 1, .height = 8, .width = 8, .classes = 3, .train_samples = 60, .test_samples = 9,
                                               .read = read_samples, .name = "stripes"};
    ech_data *data = NULL;
    assert_int_equal(ech_data_from_callback(&callback, &data, NULL), ECH_OK);
    return data;
}
static ech_model *make_model(void) {
    static const char text[] = "input 1 8 8\nconv2d out 2 kernel 3\nrelu\nmax_pool kernel 2\nfc out 3\n";
    ech_model *model = NULL;
    assert_int_equal(ech_model_parse(text, strlen(text), "small", &model, NULL), ECH_OK);
    return model;
}
static void configure(struct ech_config *config) {
    ech_config_init(config);
    assert_int_equal(ech_config_set(config, "steps", "6", NULL), ECH_OK);
    assert_int_equal(ech_config_set(config, "batch", "16", NULL), ECH_OK);
    assert_int_equal(ech_config_set(config, "record", folder, NULL), ECH_OK);
    unlink(record_path);   /* none is written over */
}

/* Changes a word of the recording, with checks that fit; the same again changes it back. */
static void change_word(const char *from, const char *to) {
    struct tape t = {0};
    assert_int_equal(strlen(from), strlen(to));
    assert_int_equal(echi_file_read(record_path, TAPE, &t.bytes, &t.len, NULL), ECH_OK);
    uint8_t *at = memmem(t.bytes, t.len, from, strlen(from));
    assert_non_null(at);
    memcpy(at, to, strlen(to));
    mend(&t);
    assert_int_equal(echi_file_write(record_path, t.bytes, t.len, NULL), ECH_OK);
    free(t.bytes);
}

static void refused(const struct ech_replay_options *o, ech_status status, const char *word, const char *other) {
    struct ech_error err = {0};
    assert_int_equal(ech_replay(o, NULL, &err), status);
    if (!strstr(err.text, word) || !strstr(err.text, other)) fail_msg("'%s' has not both '%s' and '%s'", err.text, word, other);
}

static void another_machine_is_refused(void **state) {
    (void)state;
    struct ech_config config;
    struct ech_error err = {0};
    struct ech_replay_report report;
    ech_model *model = make_model();
    ech_data *data = make_data();
    const struct ech_replay_options whole = {.dir = folder, .model = model, .data = data}, roles = {.dir = folder};
    configure(&config);
    if (ech_train(model, data, &config, NULL, NULL, &err) != ECH_OK) fail_msg("%s", err.text);
    if (ech_replay(&whole, &report, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_true(report.tasks > 6 && report.world == 1 && report.unended == 0 && strlen(report.weights) == 64);

    char isa[16];
    snprintf(isa, sizeof isa, "%s", echi_cpu_level_name(echi_cpu_level()));
    isa[0] ^= 1;
    change_word(echi_cpu_level_name(echi_cpu_level()), isa);   /* the first is the machine's own name for it, in the head */
    refused(&whole, ECH_E_MISMATCH, isa, echi_cpu_level_name(echi_cpu_level()));
    if (ech_replay(&roles, &report, &err) != ECH_OK) fail_msg("roles need no like machine: %s", err.text);
    assert_int_equal(report.tasks, 0);
    change_word(isa, echi_cpu_level_name(echi_cpu_level()));
    change_word("trunk: conv+relu", "trunk: conv+gelu");
    refused(&whole, ECH_E_MISMATCH, "conv+gelu", "conv+relu");
    change_word("trunk: conv+gelu", "trunk: conv+relu");
    if (ech_replay(&whole, &report, &err) != ECH_OK) fail_msg("%s", err.text);
    ech_data_destroy(data);
    ech_model_destroy(model);
}

static void of_a_session_the_roles_are_replayed(void **state) {
    (void)state;
    float value[4] = {1, 2, 3, 4}, grad[4] = {0.1f, 0.2f, -0.1f, 0};
    const struct ech_param param = {.name = "w", .value = value, .grad = grad, .count = 4};
    struct ech_config config;
    struct ech_error err = {0};
    struct ech_replay_report report;
    struct ech_step step;
    ech_session *session = NULL;
    ech_status status;
    configure(&config);
    if (ech_session_open(&param, 1, 60, &config, NULL, NULL, &session, &err) != ECH_OK) fail_msg("%s", err.text);
    while ((status = ech_step_begin(session, &step, &err)) == ECH_OK) {
        assert_int_equal(ech_gradient_ready(session, 0, &err), ECH_OK);
        assert_int_equal(ech_step_end(session, 0.5, &err), ECH_OK);
    }
    assert_int_equal(status, ECH_E_END);
    assert_int_equal(ech_session_close(session, NULL, &err), ECH_OK);
    ech_model *model = make_model();
    ech_data *data = make_data();
    const struct ech_replay_options whole = {.dir = folder, .model = model, .data = data}, roles = {.dir = folder};
    if (ech_replay(&roles, &report, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_true(report.events > 6 * 3 && report.tasks == 0);
    refused(&whole, ECH_E_UNSUPPORTED, "session", "--roles");
    ech_data_destroy(data);
    ech_model_destroy(model);
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(record_path, sizeof record_path, "%s/rank0.events", folder);
    return 0;
}
static int remove_folder(void **state) {
    (void)state;
    unlink(record_path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_roles_do_the_same), cmocka_unit_test(moves_are_replayed),
        cmocka_unit_test(time_is_computed_or_waited), cmocka_unit_test(what_was_planned_by_is_known),
        cmocka_unit_test(every_changed_byte_is_found),
        cmocka_unit_test(a_cut_recording_is_replayed_so_far), cmocka_unit_test(forged_recordings_do_no_harm),
        cmocka_unit_test(differences_are_told_in_words), cmocka_unit_test(requests_come_back),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(another_machine_is_refused),   cmocka_unit_test(of_a_session_the_roles_are_replayed),
    };
    const int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
    for (int r = 0; r < NODES; r++) free(tape[r].bytes);
    return failed;
}
