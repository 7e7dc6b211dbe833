/* SPDX-License-Identifier: Apache-2.0
 * Events and actions to bytes and back (lib/drive/replay/README.md says it byte by byte). */
#include "echi_trace.h"

#include <string.h>

#define META_MAX (ECHI_MSG_MAX > 2 + ECHI_PLAN_BYTES_MAX ? ECHI_MSG_MAX : 2 + ECHI_PLAN_BYTES_MAX)
#define TIME_MAX (INT64_C(1) << 60)   /* 36 years in ns: differences and sums of what passes between them stay numbers */

/* What an encoder of this room has written at w->at; 0 bytes mean that there was no room. */
static void advance(struct echi_writer *w, size_t bytes) {
    if (bytes) w->at += bytes;
    else w->ok = false;
}
static size_t room(const struct echi_writer *w) { return w->ok ? (size_t)(w->end - w->at) : 0; }

/* A length in two bytes, filled in when what it counts has been written. */
static uint8_t *begin_counted(struct echi_writer *w) { return echi_writer_take(w, 2); }
static void end_counted(struct echi_writer *w, uint8_t *length) {
    if (!w->ok) return;
    const size_t bytes = (size_t)(w->at - length) - 2;
    if (bytes > UINT16_MAX) w->ok = false;
    else echi_store16(length, (uint16_t)bytes);
}
static const uint8_t *get_counted(struct echi_reader *r, size_t *out_len) {
    *out_len = echi_get16(r);
    return echi_reader_take(r, *out_len);
}

static void put_slot(struct echi_writer *w, struct echi_slot s) {
    echi_put8(w, s.kind);
    echi_put16(w, s.index);
}
static struct echi_slot get_slot(struct echi_reader *r) {
    struct echi_slot s = {echi_get8(r), 0};
    s.index = echi_get16(r);
    if (s.kind >= ECHI_SLOT_KINDS) r->ok = false;
    return s;
}

/* ------------------------------------------------------- tasks and results */

void echi_task_put(struct echi_writer *w, const struct echi_task *t) {
    echi_put8(w, t->kind);
    echi_put8(w, t->role);
    echi_put8(w, t->flight);
    echi_put8(w, t->micro);
    echi_put8(w, t->micros);
    put_slot(w, t->act);
    echi_put8(w, t->first);
    echi_put8(w, t->n_rows);
    for (int i = 0; i < t->n_rows && i < ECHI_MERGE_STEPS; i++) {
        echi_put16(w, t->rows[i]);
        echi_put32(w, t->row_count[i]);
        echi_put32(w, t->row_epoch[i]);
        echi_put32(w, t->row_start[i]);
    }
    echi_lease_put(w, &t->lease);
    put_slot(w, t->weights);
    put_slot(w, t->weights_out);
    put_slot(w, t->grads);
    put_slot(w, t->state);
    put_slot(w, t->state_out);
    put_slot(w, t->own);
    echi_put_bytes(w, t->peer, sizeof t->peer);
    echi_put32(w, t->samples);
    echi_put32(w, t->divisor);
    put_slot(w, t->coded);
    echi_put32(w, t->ratio);
    echi_put32(w, t->sample);
    echi_put32(w, t->number);
    echi_put16(w, t->part);
    echi_put16(w, t->layer);
    echi_put16(w, t->from);
    echi_put16(w, t->until);
    put_slot(w, t->norm);
    put_slot(w, t->sums);
    echi_put16(w, t->only);
    put_slot(w, t->ring);
    echi_put32(w, t->alone);
    echi_put8(w, t->summed);
    echi_put_f64(w, t->damping);
}

static void get_task(struct echi_reader *r, struct echi_task *t) {
    memset(t, 0, sizeof *t);
    t->kind = echi_get8(r);
    t->role = echi_get8(r);
    t->flight = echi_get8(r);
    t->micro = echi_get8(r);
    t->micros = echi_get8(r);
    t->act = get_slot(r);
    t->first = echi_get8(r);
    t->n_rows = echi_get8(r);
    if (t->kind >= ECHI_TASKS || t->role >= ECHI_ROLES || t->flight >= ECHI_FLIGHTS || t->n_rows > ECHI_MERGE_STEPS) r->ok = false;
    if (t->micros > ECHI_MICRO_MAX || (t->micro > 0 && t->micro >= t->micros) || (t->micro > 0 && t->flight > 0)) r->ok = false;
    for (int i = 0; r->ok && i < t->n_rows; i++) {
        t->rows[i] = echi_get16(r);
        if (t->rows[i] >= ECHI_WORLD_MAX) r->ok = false;
        t->row_count[i] = echi_get32(r);
        t->row_epoch[i] = echi_get32(r);
        t->row_start[i] = echi_get32(r);
    }
    echi_lease_get(r, &t->lease);
    t->weights = get_slot(r);
    t->weights_out = get_slot(r);
    t->grads = get_slot(r);
    t->state = get_slot(r);
    t->state_out = get_slot(r);
    t->own = get_slot(r);
    echi_get_bytes(r, t->peer, sizeof t->peer);
    t->samples = echi_get32(r);
    t->divisor = echi_get32(r);
    t->coded = get_slot(r);
    t->ratio = echi_get32(r);
    t->sample = echi_get32(r);
    t->number = echi_get32(r);
    t->part = echi_get16(r);
    t->layer = echi_get16(r);
    t->from = echi_get16(r);
    t->until = echi_get16(r);
    t->norm = get_slot(r);
    t->sums = get_slot(r);
    t->only = echi_get16(r);
    t->ring = get_slot(r);
    t->alone = echi_get32(r);
    t->summed = echi_get8(r);
    t->damping = echi_get_f64(r);
    if (!(t->damping >= 0 && t->damping <= 1)) r->ok = false;
}

/* Places of a result that mean something. */
static int places(const struct echi_task *t) { return t->kind == ECHI_TASK_HEAD ? t->n_rows : 1; }

void echi_result_put(struct echi_writer *w, const struct echi_task *t, const struct echi_result *result) {
    for (int i = 0; i < places(t); i++) {
        echi_put_f64(w, result->loss[i]);
        echi_put32(w, result->correct[i]);
    }
    echi_put_f64(w, result->accuracy);
    echi_put8(w, result->kept);
}

static void get_result(struct echi_reader *r, const struct echi_task *t, struct echi_result *out) {
    memset(out, 0, sizeof *out);
    for (int i = 0; r->ok && i < places(t); i++) {
        out->loss[i] = echi_get_f64(r);
        out->correct[i] = echi_get32(r);
    }
    out->accuracy = echi_get_f64(r);
    const uint8_t kept = echi_get8(r);
    if (kept > 1) r->ok = false;
    out->kept = kept == 1;
}

/* ------------------------------------------------------------------ events */

/* A message in its wire form: what echi_msg_encode says of it, and the body behind that of kinds that have one. */
static void put_message(struct echi_writer *w, const struct echi_event *e) {
    uint8_t meta[ECHI_MSG_MAX];
    const size_t len = echi_msg_encode(e->msg, meta, sizeof meta);
    echi_put8(w, e->msg->kind);
    put_slot(w, e->slot);
    uint8_t *length = begin_counted(w);
    echi_put_bytes(w, meta, len);
    /* `bytes` is all that stood behind the two roles. */
    if (e->bytes && len >= 2 && e->len > len - 2) echi_put_bytes(w, e->bytes + (len - 2), e->len - (len - 2));
    end_counted(w, length);
    if (!len) w->ok = false;
}

static void get_message(struct echi_reader *r, struct echi_traced *t) {
    const int kind = echi_get8(r);
    t->event.slot = get_slot(r);
    t->meta = get_counted(r, &t->meta_len);
    if (!r->ok || t->meta_len < 2 || t->meta_len > META_MAX || !echi_msg_decode(kind, t->meta, t->meta_len, &t->msg)) {
        r->ok = false;
        return;
    }
    t->event.msg = &t->msg;
    t->event.bytes = t->meta + 2;
    t->event.len = t->meta_len - 2;
}

/* Sentences are cut to what a message takes. */
static void put_text(struct echi_writer *w, const char *text) {
    const size_t len = text ? strlen(text) : 0, most = ECHI_TRACED_TEXT - 1;
    uint8_t *length = begin_counted(w);
    echi_put_bytes(w, text ? text : "", len < most ? len : most);
    end_counted(w, length);
}

static void get_text(struct echi_reader *r, struct echi_traced *t) {
    size_t len;
    const uint8_t *text = get_counted(r, &len);
    if (!r->ok || len >= sizeof t->text || memchr(text, 0, len)) {
        r->ok = false;
        return;
    }
    memcpy(t->text, text, len);
    t->event.text = t->text;
}

static bool get_flag(struct echi_reader *r) {
    const uint8_t flag = echi_get8(r);
    if (flag > 1) r->ok = false;
    return flag == 1;
}

static void put_event(struct echi_writer *w, const struct echi_event *e) {
    echi_put8(w, e->type);
    echi_put16(w, e->from);
    echi_put64(w, (uint64_t)e->now);
    switch ((enum echi_event_type)e->type) {
    case ECHI_EVENT_START:
    case ECHI_EVENT_MEASURED:
    case ECHI_EVENT_HELD:
    case ECHI_EVENT_TIME: break;
    case ECHI_EVENT_SLOTS:
    case ECHI_EVENT_STOP: echi_put8(w, e->flag); break;
    case ECHI_EVENT_RATE:
        echi_put8(w, e->flag);
        echi_put_f64(w, e->rate);
        break;
    case ECHI_EVENT_LOST:
        echi_put8(w, e->flag);
        put_text(w, e->text);
        break;
    case ECHI_EVENT_FAILED: echi_put16(w, (uint16_t)e->status); /* fall through */
    case ECHI_EVENT_BROKE: put_text(w, e->text); break;
    case ECHI_EVENT_TAKEOVER:
    case ECHI_EVENT_HEADS:
    case ECHI_EVENT_MOVED: w->ok = false; break;   /* no driver's */
    case ECHI_EVENT_MESSAGE: put_message(w, e); break;
    case ECHI_EVENT_SENT:
        echi_put8(w, e->kind);
        put_slot(w, e->slot);
        break;
    case ECHI_EVENT_GRADIENT: echi_put16(w, (uint16_t)e->layer); /* fall through */
    case ECHI_EVENT_COMPUTED:
        echi_task_put(w, e->task);
        echi_result_put(w, e->task, e->result);
        break;
    }
}

static void get_event(struct echi_reader *r, struct echi_traced *t) {
    struct echi_event *e = &t->event;
    e->type = echi_get8(r);
    e->from = echi_get16(r);
    e->now = (int64_t)echi_get64(r);
    if (e->now < 0 || e->now > TIME_MAX) r->ok = false;
    switch ((enum echi_event_type)e->type) {
    case ECHI_EVENT_START:
    case ECHI_EVENT_MEASURED:
    case ECHI_EVENT_HELD:
    case ECHI_EVENT_TIME: break;
    case ECHI_EVENT_SLOTS:
    case ECHI_EVENT_STOP: e->flag = get_flag(r); break;
    case ECHI_EVENT_RATE:
        e->flag = get_flag(r);
        e->rate = echi_get_f64(r);
        break;
    case ECHI_EVENT_LOST:
        e->flag = get_flag(r);
        get_text(r, t);
        break;
    case ECHI_EVENT_FAILED: e->status = (ech_status)echi_get16(r); /* fall through */
    case ECHI_EVENT_BROKE: get_text(r, t); break;
    case ECHI_EVENT_MESSAGE: get_message(r, t); break;
    case ECHI_EVENT_SENT:
        e->kind = echi_get8(r);
        e->slot = get_slot(r);
        if (e->kind >= ECHI_KINDS) r->ok = false;
        break;
    case ECHI_EVENT_GRADIENT: e->layer = echi_get16(r); /* fall through */
    case ECHI_EVENT_COMPUTED:
        get_task(r, &t->task);
        get_result(r, &t->task, &t->result);
        e->task = &t->task;
        e->result = &t->result;
        break;
    default: r->ok = false;
    }
}

/* Which events a driver gives to which role. */
static bool fits(int role, int type) {
    switch (type) {
    case ECHI_EVENT_MESSAGE: return role < ECHI_ROLES;
    case ECHI_EVENT_SENT:
    case ECHI_EVENT_GRADIENT:
    case ECHI_EVENT_COMPUTED: return role < ECHI_ROLES && role != ECHI_ROLE_NODE;
    case ECHI_EVENT_TIME: return role == ECHI_ROLE_COORDINATOR;
    default: return role == ECHI_ROLE_NODE;
    }
}

/* ----------------------------------------------------------------- actions */

static void put_action(struct echi_writer *w, const struct echi_action *a, const struct echi_coordinator *c) {
    uint8_t *length;
    echi_put8(w, a->type);
    switch ((enum echi_action_type)a->type) {
    case ECHI_ACTION_SEND:
    case ECHI_ACTION_POST:
        echi_put16(w, a->to);
        echi_put8(w, a->kind);
        put_slot(w, a->slot);
        if (a->type == ECHI_ACTION_POST) {
            echi_put16(w, a->only);
            break;
        }
        length = begin_counted(w);
        advance(w, echi_msg_encode(&a->msg, w->at, room(w)));
        end_counted(w, length);
        break;
    case ECHI_ACTION_COMPUTE: echi_task_put(w, &a->task); break;
    case ECHI_ACTION_PLAN:
        length = begin_counted(w);
        advance(w, echi_plan_encode(&c->setup->plan, w->at, room(w)));
        end_counted(w, length);
        break;
    case ECHI_ACTION_FAULT:
        echi_put16(w, a->msg.layer);
        length = begin_counted(w);
        echi_put_bytes(w, a->msg.text, strlen(a->msg.text));
        end_counted(w, length);
        break;
    case ECHI_ACTION_DONE: echi_put32(w, c ? (uint32_t)c->status : 0); break;
    case ECHI_ACTION_LEAVE:
        echi_put8(w, a->msg.kind);
        echi_put16(w, a->msg.layer);
        echi_put16(w, a->msg.peer);
        put_text(w, a->msg.text);
        break;
    case ECHI_ACTION_DROP: echi_put16(w, a->to); break;
    case ECHI_ACTION_MEASURE:
    case ECHI_ACTION_SLOTS:
    case ECHI_ACTION_HOLD:
    case ECHI_ACTION_RELEASE:
    case ECHI_ACTION_FINAL: break;
    }
}

static void get_action_text(struct echi_reader *r, struct echi_traced_action *out) {
    out->meta = get_counted(r, &out->meta_len);
    if (out->meta_len >= sizeof out->action.msg.text) r->ok = false;
    if (r->ok) memcpy(out->action.msg.text, out->meta, out->meta_len);
}

static void get_plan(struct echi_reader *r, struct echi_traced_action *out) {
    struct echi_plan plan;
    if (r->ok && !echi_plan_decode(out->meta, out->meta_len, &plan)) r->ok = false;
    if (!r->ok) return;
    out->plan.sync = plan.sync;
    out->plan.n_groups = plan.n_groups;
    out->plan.round = plan.round;
}

bool echi_trace_next_action(struct echi_reader *r, struct echi_traced_action *out) {
    struct echi_action *a = &out->action;
    if (r->at == r->end) return false;
    memset(out, 0, sizeof *out);
    a->type = echi_get8(r);
    switch ((enum echi_action_type)a->type) {
    case ECHI_ACTION_SEND:
    case ECHI_ACTION_POST:
        a->to = echi_get16(r);
        a->kind = echi_get8(r);
        a->slot = get_slot(r);
        if (a->kind >= ECHI_KINDS) r->ok = false;
        if (a->type == ECHI_ACTION_POST) {
            a->only = echi_get16(r);
            break;
        }
        out->meta = get_counted(r, &out->meta_len);
        if (r->ok && !echi_msg_decode(a->kind, out->meta, out->meta_len, &a->msg)) r->ok = false;
        break;
    case ECHI_ACTION_COMPUTE: get_task(r, &a->task); break;
    case ECHI_ACTION_PLAN:
        out->meta = get_counted(r, &out->meta_len);
        get_plan(r, out);
        break;
    case ECHI_ACTION_FAULT:
        a->msg.layer = echi_get16(r);
        get_action_text(r, out);
        break;
    case ECHI_ACTION_DONE: out->status = echi_get32(r); break;
    case ECHI_ACTION_LEAVE:
        a->msg.kind = echi_get8(r);
        a->msg.layer = echi_get16(r);
        a->msg.peer = echi_get16(r);
        get_action_text(r, out);
        break;
    case ECHI_ACTION_DROP: a->to = echi_get16(r); break;
    case ECHI_ACTION_MEASURE:
    case ECHI_ACTION_SLOTS:
    case ECHI_ACTION_HOLD:
    case ECHI_ACTION_RELEASE:
    case ECHI_ACTION_FINAL: break;
    default: r->ok = false;
    }
    return r->ok;
}

void echi_trace_put_actions(struct echi_writer *w, const struct echi_actions *actions, const struct echi_coordinator *coordinator) {
    for (int i = 0; i < actions->count; i++) put_action(w, &actions->list[i], coordinator);
}

void echi_trace_put(struct echi_writer *w, enum echi_role role, const struct echi_event *e, const struct echi_actions *actions,
                    const struct echi_coordinator *coordinator) {
    echi_put8(w, (uint8_t)role);
    put_event(w, e);
    echi_trace_put_actions(w, actions, coordinator);
}

bool echi_trace_get(const uint8_t *bytes, size_t len, struct echi_traced *out) {
    struct echi_reader r = echi_reader_over(bytes, len);
    memset(out, 0, sizeof *out);
    out->role = echi_get8(&r);
    get_event(&r, out);
    if (!r.ok || !fits(out->role, out->event.type)) return false;
    out->actions = r.at;
    out->actions_len = (size_t)(r.end - r.at);
    struct echi_traced_action action;
    while (echi_trace_next_action(&r, &action)) {}
    return r.ok && r.at == r.end;
}

/* ------------------------------------------------ what a coordinator is given */

static void put_layers(struct echi_writer *w, const struct echi_layers *l) {
    echi_put16(w, l->count);
    echi_put16(w, l->cut);
    for (int i = 0; i < l->count; i++) {
        echi_put64(w, l->params[i]);
        echi_put8(w, l->joined[i]);
        echi_put8(w, l->norm[i]);
        echi_put32(w, l->width[i]);
    }
}

/* Sizes that the sum of all still fits in a word. */
static void get_layers(struct echi_reader *r, struct echi_layers *l) {
    l->count = echi_get16(r);
    l->cut = echi_get16(r);
    if (l->count > ECHI_UNITS_MAX || l->cut > l->count) r->ok = false;
    for (int i = 0; r->ok && i < l->count; i++) {
        l->params[i] = echi_get64(r);
        l->joined[i] = echi_get8(r) != 0;
        l->norm[i] = echi_get8(r) != 0;
        l->width[i] = echi_get32(r);
        if (l->params[i] == 0 || l->params[i] > UINT64_C(1) << 40) r->ok = false;
    }
}

static void put_evidence(struct echi_writer *w, const struct echi_evidence *s) {
    echi_put8(w, (uint8_t)s->count);
    for (int i = 0; i < s->count; i++) {
        echi_put8(w, s->of[i].sync);
        echi_put8(w, s->of[i].separated);
        echi_put_f64(w, s->of[i].behind);
        echi_put_f64(w, s->of[i].efficiency);
        echi_put_f64(w, s->of[i].error);
    }
}

static void get_evidence(struct echi_reader *r, struct echi_evidence *s) {
    s->count = echi_get8(r);
    if (s->count > ECHI_MEASURED_MAX) r->ok = false;
    for (int i = 0; r->ok && i < s->count; i++) {
        struct echi_measured *m = &s->of[i];
        m->sync = echi_get8(r);
        m->separated = echi_get8(r);
        m->behind = echi_get_f64(r);
        m->efficiency = echi_get_f64(r);
        m->error = echi_get_f64(r);
        const bool known = m->efficiency >= 1 / ECHI_MEASURED_LIMIT && m->efficiency <= ECHI_MEASURED_LIMIT;
        if (m->sync >= ECHI_SYNCS || m->separated > 1 || !(m->behind > 0 && m->behind < 1e9) || !known || !(m->error >= 0 && m->error < 1))
            r->ok = false;
    }
}

void echi_plan_request_put(struct echi_writer *w, const struct echi_plan_request *s) {
    echi_put8(w, (uint8_t)s->sync);
    echi_put16(w, (uint16_t)s->world);
    echi_put8(w, (uint8_t)(s->separate + 1));
    echi_put8(w, s->has_cut);
    echi_put8(w, s->shadow);
    echi_put8(w, (uint8_t)s->micro_batches);
    echi_put8(w, (uint8_t)s->heads);
    echi_put8(w, (uint8_t)s->activations);
    echi_put8(w, s->one_flight);
    echi_put8(w, (uint8_t)s->groups);
    echi_put8(w, (uint8_t)s->shares);
    for (int r = 0; r < s->world; r++) echi_put32(w, s->share[r]);
    echi_put32(w, s->batch);
    echi_put32(w, s->samples_per_step);
    echi_put32(w, s->staleness);
    echi_put_f64(w, s->lr);
    echi_put_f64(w, s->momentum);
    echi_put_f64(w, s->decay);
    echi_put8(w, s->lr_given);
    echi_put8(w, s->momentum_given);
    echi_put8(w, s->deterministic);
    echi_put8(w, s->sync_norm);
    echi_put16(w, (uint16_t)(s->shards - ECHI_SHARDS_AUTO));
    echi_put8(w, (uint8_t)s->exchange);
    echi_put8(w, s->shard_rank_given);
    for (int k = 0; k < s->shards && s->shard_rank_given; k++) echi_put16(w, s->shard_rank[k]);
    echi_put8(w, (uint8_t)s->codec);
    echi_put8(w, (uint8_t)s->ratios);
    echi_put64(w, s->params);
    echi_put64(w, s->trunk_params);
    put_layers(w, &s->layers);
    echi_put32(w, s->inner_steps);
    echi_put_f64(w, s->outer_lr);
    echi_put_f64(w, s->outer_momentum);
    echi_put_f64(w, s->drop_older);
    echi_put8(w, s->weigh_by_time);
    echi_put8(w, s->keep_all);
    echi_put8(w, s->choose);
    echi_put32(w, s->load.trunk);
    echi_put32(w, s->load.head);
    echi_put32(w, s->load.row);
    echi_put32(w, s->load.row_grad);
    echi_put32(w, s->load.layers);
    echi_put32(w, s->load.head_layers);
    echi_put32(w, s->rounds_apart);
    echi_put_f64(w, s->damping);
    echi_put64(w, (uint64_t)s->regroup_after);
    echi_put64(w, (uint64_t)s->ratios_after);
    echi_optimizer_put(w, (int)s->optimizer, &s->adam);
    echi_schedule_put(w, &s->schedule);
    put_evidence(w, &s->evidence);
}

bool echi_plan_request_get(struct echi_reader *r, struct echi_plan_request *s) {
    memset(s, 0, sizeof *s);
    const uint8_t sync = echi_get8(r);
    const uint16_t world = echi_get16(r);
    const uint8_t separate = echi_get8(r), has_cut = echi_get8(r), shadow = echi_get8(r), micros = echi_get8(r), heads = echi_get8(r);
    const uint8_t activations = echi_get8(r), one_flight = echi_get8(r);
    const uint8_t groups = echi_get8(r), shares = echi_get8(r);
    if (sync >= ECHI_SYNCS || world < 1 || world > ECHI_WORLD_MAX || separate > 2 || micros > ECHI_MICRO_MAX ||
        heads > ECHI_HEADS_MAX || activations >= ECHI_ACTIVATIONS || groups > ECHI_GROUPS_MAX || shares > ECHI_SHARES_LIST)
        r->ok = false;
    s->sync = (enum echi_sync)sync;
    s->world = world;
    s->separate = separate - 1;
    s->has_cut = has_cut != 0;
    s->shadow = shadow != 0;
    s->micro_batches = micros;
    s->heads = heads;
    s->activations = (enum echi_activations)activations;
    s->one_flight = one_flight != 0;
    s->groups = groups;
    s->shares = (enum echi_shares)shares;
    for (int i = 0; r->ok && i < world; i++) s->share[i] = echi_get32(r);
    s->batch = echi_get32(r);
    s->samples_per_step = echi_get32(r);
    s->staleness = echi_get32(r);
    s->lr = echi_get_f64(r);
    s->momentum = echi_get_f64(r);
    s->decay = echi_get_f64(r);
    s->lr_given = echi_get8(r) != 0;
    s->momentum_given = echi_get8(r) != 0;
    s->deterministic = echi_get8(r) != 0;
    s->sync_norm = echi_get8(r) != 0;
    s->shards = echi_get16(r) + ECHI_SHARDS_AUTO;
    const uint8_t exchange = echi_get8(r);
    if (exchange > ECHI_EXCHANGES) r->ok = false;
    s->exchange = (enum echi_exchange)exchange;
    s->shard_rank_given = echi_get8(r) != 0;
    if (s->shards > (s->shard_rank_given ? ECHI_SHARDS_MAX : ECHI_WORLD_MAX)) r->ok = false;
    for (int k = 0; r->ok && k < s->shards && s->shard_rank_given; k++) {
        s->shard_rank[k] = echi_get16(r);
        if (s->shard_rank[k] >= world) r->ok = false;
    }
    const uint8_t codec = echi_get8(r), ratios = echi_get8(r);
    if (codec >= ECHI_CODECS || ratios >= ECHI_RATIOS) r->ok = false;
    s->codec = (enum echi_codec)codec;
    s->ratios = (enum echi_ratios)ratios;
    s->params = echi_get64(r);
    s->trunk_params = echi_get64(r);
    if (s->params > UINT64_C(1) << 40 || s->trunk_params > s->params) r->ok = false;
    get_layers(r, &s->layers);
    s->inner_steps = echi_get32(r);
    s->outer_lr = echi_get_f64(r);
    s->outer_momentum = echi_get_f64(r);
    s->drop_older = echi_get_f64(r);
    s->weigh_by_time = echi_get8(r) != 0;
    s->keep_all = echi_get8(r) != 0;
    s->choose = echi_get8(r) != 0;
    s->load.trunk = echi_get32(r);
    s->load.head = echi_get32(r);
    s->load.row = echi_get32(r);
    s->load.row_grad = echi_get32(r);
    s->load.layers = echi_get32(r);
    s->load.head_layers = echi_get32(r);
    if (s->load.layers > ECHI_UNITS_MAX || s->load.head_layers > ECHI_UNITS_MAX - s->load.layers) r->ok = false;
    s->rounds_apart = echi_get32(r);
    s->damping = echi_get_f64(r);
    s->regroup_after = (int64_t)echi_get64(r);
    s->ratios_after = (int64_t)echi_get64(r);
    s->optimizer = (enum echi_optimizer)echi_optimizer_get(r, &s->adam);
    echi_schedule_get(r, &s->schedule);
    get_evidence(r, &s->evidence);
    const uint32_t most = 1u << 24;
    for (int i = 0; i < world; i++)
        if (r->ok && s->share[i] > most) r->ok = false;
    return r->ok && s->batch <= most && s->samples_per_step <= most && s->inner_steps <= ECHI_INNER_MAX;
}

void echi_goal_put(struct echi_writer *w, const struct echi_goal *g) {
    const struct echi_standing *s = &g->from;
    echi_put32(w, g->train_samples);
    echi_put64(w, g->samples);
    echi_put_f64(w, g->target_accuracy);
    echi_put32(w, g->eval_every);
    echi_put8(w, g->has_test);
    echi_put8(w, g->give_final);
    echi_put8(w, g->keep);
    echi_put64(w, g->keep_every);
    echi_put64(w, (uint64_t)g->rescue);
    echi_put64(w, (uint64_t)g->tick);
    echi_put64(w, (uint64_t)g->collect);
    echi_put8(w, g->resumed);
    echi_put32(w, s->epoch);
    echi_put32(w, s->start);
    echi_put64(w, s->samples);
    echi_put64(w, s->evals);
    echi_put64(w, (uint64_t)s->clock);
    echi_put64(w, (uint64_t)s->measuring);
    echi_put64(w, (uint64_t)s->keeping);
    echi_put_f64(w, s->accuracy);
    echi_put_f64(w, s->best_accuracy);
    echi_put_f64(w, s->loss);
    echi_put64(w, (uint64_t)s->target_at);
    echi_put64(w, s->target_samples);
}

bool echi_goal_get(struct echi_reader *r, struct echi_goal *g) {
    struct echi_standing *s = &g->from;
    memset(g, 0, sizeof *g);
    g->train_samples = echi_get32(r);
    g->samples = echi_get64(r);
    g->target_accuracy = echi_get_f64(r);
    g->eval_every = echi_get32(r);
    g->has_test = echi_get8(r) != 0;
    g->give_final = echi_get8(r) != 0;
    g->keep = echi_get8(r) != 0;
    g->keep_every = echi_get64(r);
    g->rescue = (int64_t)echi_get64(r);
    g->tick = (int64_t)echi_get64(r);
    g->collect = (int64_t)echi_get64(r);
    g->resumed = echi_get8(r) != 0;
    s->epoch = echi_get32(r);
    s->start = echi_get32(r);
    s->samples = echi_get64(r);
    s->evals = echi_get64(r);
    s->clock = (int64_t)echi_get64(r);
    s->measuring = (int64_t)echi_get64(r);
    s->keeping = (int64_t)echi_get64(r);
    s->accuracy = echi_get_f64(r);
    s->best_accuracy = echi_get_f64(r);
    s->loss = echi_get_f64(r);
    s->target_at = (int64_t)echi_get64(r);
    s->target_samples = echi_get64(r);
    const int64_t most = INT64_C(1) << 60;   /* ns; see TIME_MAX */
    if (s->clock < 0 || s->clock > most || s->measuring < 0 || s->measuring > most || s->keeping < 0 || s->keeping > most) return false;
    return r->ok && g->train_samples > 0 && s->start <= g->train_samples && s->target_at >= -1 && s->target_at <= most;
}
