/* SPDX-License-Identifier: Apache-2.0
 * Recordings of simulated clusters (sched_runs.h), one a node, in memory. */
#ifndef TAPE_H
#define TAPE_H
#include "sched_runs.h"

#include "echi_recording.h"

enum { TAPE = 1 << 22 };

static struct tape { uint8_t *bytes; size_t len; uint64_t check, events; } tape[NODES];

static uint8_t *body_of(struct tape *t) { return t->bytes + t->len + ECHI_RECORD_HEAD; }
static size_t room_of(const struct tape *t) { return TAPE - t->len - ECHI_RECORD_HEAD - ECHI_RECORD_TAIL; }
static void seal(struct tape *t, enum echi_record_kind kind, size_t len) {
    assert_true(len > 0 && len < room_of(t));
    t->check = echi_record_seal(t->check, kind, body_of(t), len);
    t->len += ECHI_RECORD_HEAD + len + ECHI_RECORD_TAIL;
}

static void open_tape(struct tape *t, const struct echi_about *about) {
    if (!t->bytes) assert_non_null(t->bytes = malloc(TAPE));
    memcpy(t->bytes, ECHI_RECORDING_MAGIC, 8);
    echi_store32(t->bytes + 8, ECHI_RECORDING_FORMAT);
    t->len = 12;
    t->events = 0;
    t->check = echi_check(ECHI_CHECK_BEGIN, t->bytes, t->len);
    seal(t, ECHI_RECORD_ABOUT, echi_about_encode(about, body_of(t), room_of(t)));
}

static void begin_tape(const struct sim *s, int node) {
    struct tape *t = &tape[node];
    struct echi_about about = {.version = ECH_VERSION, .model = "toy", .model_hash = "m", .data = "toy", .data_hash = "d", .device = "cpu",
                               .device_name = "none", .isa = "base", .threads = 1, .seed = s->seed, .rank = (uint16_t)node,
                               .world = s->plan.world, .train_samples = s->goal.train_samples};
    about.request = s->request;
    about.request.world = s->plan.world;
    toy_layers(&about.request.layers);
    about.goal = s->goal;
    about.session = s->goal.give_final;
    about.plan_given = s->plan_given;
    about.plan = s->plan;
    open_tape(t, &about);
}

/* An event of a node by hand, with up to two actions. */
static inline void record_event(int node, struct echi_event e, struct echi_action *asked, int count) {
    struct tape *t = &tape[node];
    struct echi_writer w = echi_writer_over(body_of(t), room_of(t));
    const struct echi_actions list = {asked, count, count, false};
    echi_trace_put(&w, ECHI_ROLE_WORKER, &e, &list, NULL);
    assert_true(w.ok);
    seal(t, ECHI_RECORD_EVENT, (size_t)(w.at - body_of(t)));
    t->events++;
}

/* With nothing in it yet. */
static inline void begin_by_hand(int node, int world) {
    struct tape *t = &tape[node];
    struct echi_about about = {.version = ECH_VERSION, .model = "by hand", .model_hash = "m", .data = "d", .data_hash = "d",
                               .device = "cpu", .device_name = "none", .isa = "base", .threads = 1, .rank = (uint16_t)node,
                               .world = (uint16_t)world, .train_samples = 8, .real_bytes = 4};
    about.request.world = world;
    about.goal.train_samples = 8;
    open_tape(t, &about);
}

/* What a node's clock shows at a time of the simulator; NULL: the simulator's own clocks. */
static int64_t (*tape_clock)(int node, int64_t now);

static void watch(struct sim *s, int node, enum echi_role role, const struct echi_event *e, const struct echi_actions *list) {
    struct tape *t = &tape[node];
    if (!e) return seal(t, ECHI_RECORD_SETUP, echi_setup_encode(&s->node[node].setup, "none", body_of(t), room_of(t)));
    struct echi_writer w = echi_writer_over(body_of(t), room_of(t));
    struct echi_event shown = *e;
    if (tape_clock) shown.now = tape_clock(node, s->now);
    echi_trace_put(&w, role, &shown, list, node == 0 ? &s->coordinator : NULL);
    assert_true(w.ok);
    seal(t, ECHI_RECORD_EVENT, (size_t)(w.at - body_of(t)));
    t->events++;
}

static void end_tape(int node) {
    struct tape *t = &tape[node];
    const struct echi_recorded_end end = {.events = t->events};
    seal(t, ECHI_RECORD_END, echi_end_encode(&end, body_of(t), room_of(t)));
}

static uint64_t ratio_changes;
/* A planned run of every policy in turn; returns its world. */
static int record_run(uint64_t seed) {
    static struct sim s;
    sim_clear(&s);
    s.seed = seed;
    echi_random_init(&s.random, seed, ECHI_STREAM_TEST, 7);
    s.goal = (struct echi_goal){.train_samples = 20 + below(&s, 100), .eval_every = below(&s, 3) ? 10 + below(&s, 60) : 0,
                                .has_test = below(&s, 4) != 0, .give_final = below(&s, 3) == 0};
    s.goal.samples = s.goal.train_samples + below(&s, 60);
    s.stop_at = below(&s, 6) ? 0 : 1 + below(&s, 20000);
    choose_request(&s, (enum echi_sync)(seed % ECHI_SYNCS));
    const enum echi_codec codec = (enum echi_codec)below(&s, ECHI_CODECS);
    s.request.params = 15;
    s.request.trunk_params = 9;
    if (s.request.sync != ECHI_SYNC_LOCAL && s.request.drop_older == 0) s.request.codec = codec;
    if (seed % 2 || s.request.codec) {   /* links as drivers see them, and ratios after them */
        echi_random_init(&s.told, seed, ECHI_STREAM_TEST, 9);
        s.tells_rates = true;
        s.request.ratios = (enum echi_ratios)(seed / 2 % ECHI_RATIOS);
        s.request.ratios_after = 30;
    }
    s.plan.world = (uint8_t)s.request.world;
    s.watch = watch;
    for (int r = 0; r < s.request.world; r++) begin_tape(&s, r);
    sim_run(&s);
    ratio_changes += s.coordinator.follow.changes;
    for (int r = 0; r < s.request.world; r++) end_tape(r);
    return s.request.world;
}
#endif
