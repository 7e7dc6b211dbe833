/* SPDX-License-Identifier: Apache-2.0
 * Recorded events. What is read encodes to the same bytes; and what is in a recording, however well it checks, makes no role
 * do more than answer or refuse: each input's events go into fresh roles. The seeds are runs of one node that hosts all roles. */
#include "fuzz.h"

#include "echi_recording.h"
#include "json_whole.h"

#include <string.h>

/* Each event again as bytes: those it was read from. */
static void same_bytes(struct echi_recording *r) {
    static struct echi_record record;
    static uint8_t again[ECHI_RECORD_MAX];
    const struct echi_actions none = {0};
    struct ech_error err;
    echi_recording_rewind(r);
    while (echi_recording_read(r, &record, &err) == ECH_OK && record.kind != 0) {
        if (record.kind != ECHI_RECORD_EVENT) continue;
        const struct echi_traced *t = &record.event;
        struct echi_writer w = echi_writer_over(again, sizeof again);
        echi_trace_put(&w, (enum echi_role)t->role, &t->event, &none, NULL);
        const size_t len = (size_t)(w.at - again);
        FUZZ_CHECK(w.ok && memcmp(again, t->actions - len, len) == 0);
        char text[64];
        echi_event_text(t, text, sizeof text);
        struct echi_reader at = echi_reader_over(t->actions, t->actions_len);
        struct echi_traced_action action;
        while (echi_trace_next_action(&at, &action)) echi_action_text(&action, text, sizeof text);
        FUZZ_CHECK(at.ok && at.at == at.end);
    }
}

/* It is never less than nothing, nor more than there was between the first event and the last. */
static void where_time_went(struct echi_recording *r) {
    static struct echi_record record;
    static struct echi_took waited[ECHI_WORLD_MAX * ECHI_KINDS];
    static struct echi_plan plan;
    static struct echi_times times[ECHI_WORLD_MAX];
    static struct echi_predict_work work;
    static struct echi_interval interval[256];   /* too few, as a rule */
    static struct echi_timeline line = {.interval = interval, .capacity = 256};
    struct echi_prediction predicted;
    const size_t waits = (size_t)r->about.world * ECHI_KINDS;
    struct echi_spent spent = {.world = r->about.world, .waited = waited};
    double all;
    memset(waited, 0, waits * sizeof waited[0]);
    echi_recording_rewind(r);
    const ech_status status = echi_recording_spent(r, &record, &spent, NULL);
    FUZZ_CHECK(status == ECH_OK || status == ECH_E_FORMAT);
    all = spent.other.seconds;
    for (int kind = 0; kind < ECHI_TASKS; kind++) all += spent.task[kind].seconds;
    for (size_t i = 0; i < waits; i++) all += waited[i].seconds;
    FUZZ_CHECK(spent.other.seconds >= 0 && all >= 0 && all <= (double)r->now * 1e-9 * 1.0001 + 1e-6);
    echi_recording_rewind(r);
    if (echi_recording_planned(r, &record, &plan, times)) {
        bool known = plan.world == r->about.world;
        FUZZ_CHECK(echi_plan_valid(&plan));
        for (int i = 0; i < plan.world; i++) known = known && times[i].count > 0;
        if (known) echi_predict_line(&plan, times, &r->about.request.load, 4, &work, &line, &predicted);
        for (int i = 0; known && i < line.path.parts; i++) FUZZ_CHECK(line.path.part[i].seconds > 0);
        FUZZ_CHECK(!known || predicted.rate > 0);
    }
    echi_recording_rewind(r);
}

/* The trace, of at most so many nodes with this recording each: JSON, whatever the recording's words are. Times are within the run. */
enum { NODES = 3, TEXT = 1 << 25 };
static char text[TEXT];
static size_t text_len;
static ech_status keep_text(void *user, const void *bytes, size_t len, struct ech_error *err) {
    (void)user, (void)err;
    FUZZ_CHECK(len > 0 && text_len + len < TEXT);
    memcpy(text + text_len, bytes, len);
    text_len += len;
    text[text_len] = 0;
    return ECH_OK;
}

/* The step of such nodes that would be drawn, in a time line that has too little memory for most. */
static void a_step(struct echi_recording all[NODES], int world, const struct echi_clock clock[NODES]) {
    static struct echi_times times[NODES];
    static struct echi_interval interval[64];
    static struct echi_timeline line = {.interval = interval, .capacity = 64};
    struct echi_recorded_step step;
    double path = 0;
    echi_timeline_clear(&line, world);
    const ech_status status = echi_recordings_line(all, world, clock, &all[0].about.plan, times, &line, &step, NULL);
    FUZZ_CHECK(status == ECH_OK || status == ECH_E_UNSUPPORTED);
    if (status != ECH_OK) return;
    FUZZ_CHECK(step.rank < world && step.step > 1 && step.step <= step.steps && line.to >= line.from);
    for (int i = 0; i < line.path.parts; i++) path += line.path.part[i].seconds;
    FUZZ_CHECK(path <= line.path.seconds * 1.0001 + 1e-6);
}

static void for_other_programs(const struct echi_recording *r) {
    static struct echi_recording all[NODES];
    static struct echi_record record;
    static struct echi_layer_table table;
    struct echi_clock clock[NODES];
    struct echi_times times = {.count = 1, .n = {4}, .trunk = {1}, .units = 2, .cut = 2, .sizes = 1, .share = {{{{1, 2}}, {{3, 65529}}}}};
    char lines[65536];
    const int world = r->about.world;
    if (world > NODES) return;
    for (int i = 0; i < world; i++) {
        all[i] = *r;
        all[i].about.rank = (uint16_t)i;
    }
    const ech_status status = echi_recordings_clocks(all, world, clock, NULL);
    FUZZ_CHECK(status == ECH_OK || status == ECH_E_FORMAT);
    text_len = 0;
    if (status == ECH_OK) FUZZ_CHECK(echi_recordings_trace(all, world, clock, &(struct echi_sink){keep_text, NULL}, NULL) == ECH_OK);
    if (status == ECH_OK) FUZZ_CHECK(json_whole(text));
    if (status == ECH_OK) a_step(all, world, clock);
    for (int known = 0; known < 2; known++) {
        echi_recording_rewind(&all[0]);
        const ech_status made = echi_recording_layers(&all[0], &record, &r->about.request.layers, known ? &times : NULL, &table, NULL);
        FUZZ_CHECK((made == ECH_OK) == (status == ECH_OK) || world > 1);
        for (int u = 0; u < table.count && made == ECH_OK; u++)
            FUZZ_CHECK(table.row[u].seconds[0] >= 0 && table.row[u].seconds[1] >= 0 && table.row[u].exchange >= 0);
        FUZZ_CHECK(echi_layer_table_text(&table, &r->about, lines, sizeof lines) < sizeof lines);
    }
}

static bool one(const uint8_t *bytes, size_t len) {
    struct echi_recording r;
    struct ech_error err = {0};
    uint64_t events = 0, actions = 0;
    ech_status status = echi_recording_open(bytes, len, "rank0.events", &r, &err);
    if (status == ECH_OK) same_bytes(&r);
    if (status == ECH_OK) where_time_went(&r);
    if (status == ECH_OK) for_other_programs(&r);
    if (status == ECH_OK) status = echi_replay_roles(&r, &events, &actions, &err);
    if (status == ECH_OK) return true;
    FUZZ_CHECK(status == ECH_E_FORMAT || status == ECH_E_MISMATCH);
    fuzz_sentence(&err, status);
    return false;
}

static void repair(uint8_t *bytes, size_t *len, size_t cap) {
    uint64_t check, events = 0;
    (void)cap;
    if (*len < 12) return;
    memcpy(bytes, ECHI_RECORDING_MAGIC, 8);
    echi_store32(bytes + 8, ECHI_RECORDING_FORMAT);
    check = echi_check(ECHI_CHECK_BEGIN, bytes, 12);
    for (size_t at = 12; *len - at >= ECHI_RECORD_HEAD + ECHI_RECORD_TAIL;) {
        const size_t body = echi_load32(bytes + at), most = *len - at - ECHI_RECORD_HEAD - ECHI_RECORD_TAIL;
        if (body > most) return;
        if (bytes[at + 4] == ECHI_RECORD_EVENT) events++;
        if (bytes[at + 4] == ECHI_RECORD_END && body >= 12) echi_store64(bytes + at + ECHI_RECORD_HEAD + 4, events);
        check = echi_record_seal(check, (enum echi_record_kind)bytes[at + 4], bytes + at + ECHI_RECORD_HEAD, body);
        at += ECHI_RECORD_HEAD + body + ECHI_RECORD_TAIL;
    }
}

/* ---- a node by itself, whose messages and tasks are done at once, in order ---- */

enum { WAITING_MAX = 128, POSTS_MAX = 64 };
static struct alone {
    struct echi_setup setup;
    struct echi_node_role node;
    struct echi_coordinator coordinator;
    struct echi_worker worker;
    struct echi_owner owner;
    struct echi_head head;
    struct echi_action action[ECHI_ACTIONS_MAX];
    struct waiting { bool task; uint8_t meta[ECHI_MSG_MAX]; size_t len; struct echi_action what; } waiting[WAITING_MAX];
    int first, end;
    struct { uint8_t kind; struct echi_slot slot; } post[POSTS_MAX];
    int posts;
    int64_t now;
    uint8_t *out;
    size_t at, cap;
    size_t event_at;   /* of the body of the last event */
    uint64_t check, events;
    bool over;
} a;

static uint8_t *body(void) { return a.out + a.at + ECHI_RECORD_HEAD; }
static size_t room(void) { return a.cap - a.at - ECHI_RECORD_HEAD - ECHI_RECORD_TAIL; }
static void seal(enum echi_record_kind kind, size_t len) {
    FUZZ_CHECK(len > 0);
    a.check = echi_record_seal(a.check, kind, body(), len);
    a.at += ECHI_RECORD_HEAD + len + ECHI_RECORD_TAIL;
}

static void queue(const struct echi_action *what) {
    FUZZ_CHECK(a.end < WAITING_MAX);
    struct waiting *w = &a.waiting[a.end++];
    *w = (struct waiting){.task = what->type == ECHI_ACTION_COMPUTE, .what = *what};
    if (!w->task) w->len = echi_msg_encode(&what->msg, w->meta, sizeof w->meta);
}

static void tell(enum echi_role role, struct echi_event *e);
static void tell_node(enum echi_event_type type) { tell(ECHI_ROLE_NODE, &(struct echi_event){.type = (uint8_t)type}); }

/* What is asked of the driver is there at once, behind the list that asks for it. */
static void answer(int asked) {
    if (asked == ECHI_EVENT_SLOTS) {
        seal(ECHI_RECORD_SETUP, echi_setup_encode(&a.setup, "none", body(), room()));
        a.node.owner = &a.owner;
        a.node.worker = &a.worker;
        a.node.head = a.setup.plan.cut ? &a.head : NULL;
    }
    if (asked != ECHI_EVENT_START) tell_node((enum echi_event_type)asked);
}

/* A SEND of PLAN, MEASURED or STATS has its body from here. */
static void queue_body(int kind, enum echi_role to, const uint8_t *bytes, size_t len) {
    const struct echi_action what = {.type = ECHI_ACTION_SEND, .kind = (uint8_t)kind,
                                     .msg = {.kind = (uint8_t)kind, .to_role = (uint8_t)to, .from_role = ECHI_ROLE_NODE}};
    queue(&what);
    struct waiting *w = &a.waiting[a.end - 1];
    FUZZ_CHECK(w->len + len <= sizeof w->meta);
    memcpy(w->meta + w->len, bytes, len);
    w->len += len;
}

static void queue_send(const struct echi_action *act) {
    const struct echi_times times = {.count = 1, .n = {4}, .trunk = {0.5}};
    uint8_t bytes[ECHI_TIMES_BYTES_MAX];
    if (act->kind == ECHI_KIND_MEASURED)
        queue_body(ECHI_KIND_MEASURED, ECHI_ROLE_COORDINATOR, bytes, echi_times_encode(&times, bytes, sizeof bytes));
    else queue(act);
}

static void queue_plan(void) {
    uint8_t bytes[ECHI_PLAN_BYTES(1)];
    queue_body(ECHI_KIND_PLAN, ECHI_ROLE_NODE, bytes, echi_plan_encode(&a.setup.plan, bytes, sizeof bytes));
}

static void tell(enum echi_role role, struct echi_event *e) {
    struct echi_actions list = {a.action, 0, (int)(sizeof a.action / sizeof a.action[0]), false};
    int asked = ECHI_EVENT_START;
    e->now = a.now += 1000;
    FUZZ_CHECK(echi_node_role_step(&a.node, role, e, &list));
    struct echi_writer w = echi_writer_over(body(), room());
    echi_trace_put(&w, role, e, &list, &a.coordinator);
    FUZZ_CHECK(w.ok);
    a.event_at = a.at + ECHI_RECORD_HEAD;
    seal(ECHI_RECORD_EVENT, (size_t)(w.at - body()));
    a.events++;
    for (int i = 0; i < list.count; i++) {
        const struct echi_action *act = &list.list[i];
        if (act->type == ECHI_ACTION_SEND) queue_send(act);
        if (act->type == ECHI_ACTION_COMPUTE) queue(act);
        if (act->type == ECHI_ACTION_PLAN) queue_plan();
        if (act->type == ECHI_ACTION_MEASURE) asked = ECHI_EVENT_MEASURED;
        if (act->type == ECHI_ACTION_SLOTS) asked = ECHI_EVENT_SLOTS;
        if (act->type == ECHI_ACTION_HOLD) asked = ECHI_EVENT_HELD;
        for (int n = act->type == ECHI_ACTION_POST ? echi_posts(&a.setup, act) : 0; n > 0; n--) {
            FUZZ_CHECK(a.posts < POSTS_MAX);
            a.post[a.posts].kind = act->kind;
            a.post[a.posts++].slot = act->slot;
        }
        if (act->type == ECHI_ACTION_DONE) a.over = true;
    }
    answer(asked);
}

static void deliver(const struct waiting *w) {
    struct echi_msg m = w->what.msg;
    struct echi_event e = {.type = ECHI_EVENT_MESSAGE, .msg = &m, .bytes = w->meta + 2, .len = w->len - 2};
    const bool payload = echi_kind_has_payload(m.kind);
    for (int i = 0; payload && i < a.posts; i++) {
        if (a.post[i].kind != m.kind) continue;
        e.slot = a.post[i].slot;
        memmove(&a.post[i], &a.post[i + 1], (size_t)(--a.posts - i) * sizeof a.post[0]);
        break;
    }
    FUZZ_CHECK(payload == (e.slot.kind != ECHI_SLOT_NONE));
    tell((enum echi_role)m.to_role, &e);
    struct echi_event sent = {.type = ECHI_EVENT_SENT, .kind = m.kind, .slot = w->what.slot};
    if (payload) tell((enum echi_role)m.from_role, &sent);
}

static void compute(const struct echi_task *t) {
    const struct echi_result result = {.loss = {0.5}, .correct = {1}, .accuracy = 0.25};
    struct echi_event e = {.type = ECHI_EVENT_GRADIENT, .task = t, .result = &result};
    const bool layered = t->kind == ECHI_TASK_STEP || (t->kind == ECHI_TASK_BACKWARD && t->micro + 1 == t->micros);
    for (e.layer = a.setup.cut - 1; layered && e.layer >= 0; e.layer--) tell((enum echi_role)t->role, &e);
    e.layer = 0;
    if (t->kind == ECHI_TASK_HEAD && (t->weights_out.kind || t->state.kind)) tell((enum echi_role)t->role, &e);
    e.type = ECHI_EVENT_COMPUTED;
    tell((enum echi_role)t->role, &e);
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const struct { uint8_t sync, separated, flights; uint32_t samples; uint8_t codec, micro_batches; } run[] = {
        {ECHI_SYNC_BSP, 0, 1, 12, 0, 0}, {ECHI_SYNC_BSP, 1, 1, 8, 0, 0}, {ECHI_SYNC_ASP, 0, 1, 12, 0, 0}, {ECHI_SYNC_GSSP, 1, 2, 16, 0, 0},
        {ECHI_SYNC_SSP, 1, 1, 0, 0, 0}, {ECHI_SYNC_BSP, 0, 1, 8, ECHI_CODEC_TOPK, 0}, {ECHI_SYNC_GSSP, 1, 2, 8, ECHI_CODEC_TOPK, 0},
        {ECHI_SYNC_LOCAL, 0, 1, 8, 0, 0}, {ECHI_SYNC_BSP, 1, 1, 8, 0, 2},
    };
    enum { RUNS = sizeof run / sizeof run[0], CUTS = 3 };
    if (i >= RUNS + CUTS) return 0;
    const int k = i < RUNS ? i : 0;
    memset(&a, 0, sizeof a);
    a.out = out;
    a.cap = cap;
    struct echi_about about = {.version = ECH_VERSION, .model = "toy", .model_hash = "m", .data = "toy", .data_hash = "d", .device = "cpu",
                               .device_name = "none", .isa = "base", .threads = 1, .world = 1, .train_samples = 8, .real_bytes = 4,
                               .plan_given = true, .request = {.sync = (enum echi_sync)run[k].sync, .world = 1, .batch = 4},
                               .goal = {.train_samples = 8, .samples = run[k].samples, .eval_every = 6, .has_test = true},
                               .plan = {.sync = run[k].sync, .world = 1, .n_groups = 1, .cut = run[k].separated,
                                        .head = run[k].separated ? 0 : ECHI_NO_RANK, .flights = run[k].flights, .n = {4}, .round = 4,
                                        .micro_batches = run[k].micro_batches,
                                        .activations = run[k].separated ? ECHI_ACTIVATIONS_BF16 : ECHI_ACTIVATIONS_FP32,
                                        .staleness = 1, .rounds_apart = 4, .lr = 0.1, .momentum = 0.5, .codec = run[k].codec}};
    if (run[k].codec) about.plan.state_ratio = about.plan.base[0] = 300000;
    if (run[k].sync == ECHI_SYNC_LOCAL) about.plan.inner[0] = 2, about.plan.outer_lr = 0.7, about.plan.n[0] = 2;
    echi_parts_make(&(struct echi_layers){.count = 2, .cut = 1, .params = {1, 1}}, run[k].separated, run[k].codec, 1, 1, &about.plan.parts);
    memset(about.plan.group_of + 1, ECHI_NONE, sizeof about.plan.group_of - 1);
    memcpy(out, ECHI_RECORDING_MAGIC, 8);
    echi_store32(out + 8, ECHI_RECORDING_FORMAT);
    a.at = 12;
    a.check = echi_check(ECHI_CHECK_BEGIN, out, 12);
    seal(ECHI_RECORD_ABOUT, echi_about_encode(&about, body(), room()));
    a.setup = (struct echi_setup){.plan = about.plan, .n_layers = 2, .cut = run[k].separated ? 1 : 2, .cut_width = 1};
    echi_coordinator_init(&a.coordinator, &a.setup, &about.request, &about.goal, true);
    echi_node_role_init(&a.node, &a.setup, 0, 1, false);
    a.node.coordinator = &a.coordinator;
    tell_node(ECHI_EVENT_START);
    for (; a.first < a.end && !a.over; a.first++) {
        const struct waiting now = a.waiting[a.first];
        if (now.task) compute(&now.what.task);
        else deliver(&now);
    }
    FUZZ_CHECK(a.over);
    const struct echi_recorded_end end = {.events = a.events, .has_weights = true};
    seal(ECHI_RECORD_END, echi_end_encode(&end, body(), room()));
    /* One that breaks off is taken as far as it goes; one with a changed byte, or something behind its end, is not. */
    if (i == RUNS) return a.at - 20;
    *good = i < RUNS;
    if (i == RUNS + 1) out[a.event_at]++;   /* in a body: with another length a record may seem to break off */
    if (i == RUNS + 2) memcpy(out + a.at, out + 12, 30), a.at += 30;
    return a.at;
}

/* A node's roles, which are made for 1,024 ranks, and what replay keeps beside them. */
enum { ROLES = sizeof a.node + sizeof a.coordinator + sizeof a.worker + sizeof a.owner + sizeof a.head,
       BESIDE = ECHI_ACTIONS_MAX * sizeof(struct echi_action) + (1 << 20) };
const struct fuzz_driver fuzz_recording = {.name = "recording", .one = one, .seed = seed, .repair = repair, .most = FUZZ_INPUT_MAX,
                                           .heap = ROLES + BESIDE, .heap_a_byte = 64};
