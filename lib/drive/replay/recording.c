/* SPDX-License-Identifier: Apache-2.0
 * Recordings read: bytes to records. Every length is checked before it is used; the bytes may be anybody's. */
#include "echi_recording.h"
#include "echi_error.h"

#include <string.h>

#define MAGIC_LEN 8u
#define HEAD_LEN (MAGIC_LEN + 4u)

/* Eight bytes at a time: each step can be undone, so that one changed word always changes the end. */
uint64_t echi_check(uint64_t check, const uint8_t *bytes, size_t len) {
    uint8_t last[8] = {0};
    for (; len >= 8; bytes += 8, len -= 8) {
        check = (check ^ echi_load64(bytes)) * UINT64_C(0x100000001b3);
        check ^= check >> 29;
    }
    memcpy(last, bytes, len);
    check = (check ^ echi_load64(last) ^ (uint64_t)len << 56) * UINT64_C(0x100000001b3);
    return check ^ check >> 29;
}

uint64_t echi_record_seal(uint64_t check, enum echi_record_kind kind, uint8_t *body, size_t len) {
    echi_store32(body - 5, (uint32_t)len);
    body[-1] = (uint8_t)kind;
    check = echi_check(check, body - 5, len + 5);
    echi_store64(body + len, check);
    return check;
}

/* ------------------------------------------------------- records of all kinds */

static void put_text(struct echi_writer *w, const char *text) {
    const size_t len = strlen(text);
    echi_put16(w, (uint16_t)len);
    echi_put_bytes(w, text, len);
}
static void get_text(struct echi_reader *r, char *out, size_t cap) {
    const size_t len = echi_get16(r);
    const uint8_t *bytes = echi_reader_take(r, len);
    if (!bytes || len >= cap || memchr(bytes, 0, len)) r->ok = false;
    else memcpy(out, bytes, len);
}

size_t echi_about_encode(const struct echi_about *a, uint8_t *out, size_t cap) {
    struct echi_writer w = echi_writer_over(out, cap);
    put_text(&w, a->version);
    echi_put16(&w, a->rank);
    echi_put16(&w, a->world);
    put_text(&w, a->model);
    put_text(&w, a->model_hash);
    put_text(&w, a->data);
    put_text(&w, a->data_hash);
    put_text(&w, a->device);
    put_text(&w, a->device_name);
    put_text(&w, a->isa);
    echi_put32(&w, a->threads);
    echi_put64(&w, a->seed);
    echi_put8(&w, a->real_bytes);
    echi_put8(&w, a->deterministic);
    echi_put8(&w, a->winograd);
    echi_put8(&w, a->rounded);
    echi_put8(&w, a->shuffle);
    echi_put8(&w, a->augment);
    echi_put8(&w, a->session);
    echi_put32(&w, a->train_samples);
    echi_put32(&w, a->test_samples);
    if (a->rank == 0) {
        put_text(&w, a->init);
        echi_put_bytes(&w, a->initial, sizeof a->initial);
        echi_plan_request_put(&w, &a->request);
        echi_goal_put(&w, &a->goal);
        uint8_t plan[ECHI_PLAN_BYTES_MAX];
        const size_t len = a->plan_given ? echi_plan_encode(&a->plan, plan, sizeof plan) : 0;
        if (a->plan_given && !len) return 0;
        echi_put16(&w, (uint16_t)len);
        echi_put_bytes(&w, plan, len);
    }
    return w.ok ? (size_t)(w.at - out) : 0;
}

bool echi_about_decode(const uint8_t *bytes, size_t len, struct echi_about *a) {
    struct echi_reader r = echi_reader_over(bytes, len);
    memset(a, 0, sizeof *a);
    get_text(&r, a->version, sizeof a->version);
    a->rank = echi_get16(&r);
    a->world = echi_get16(&r);
    get_text(&r, a->model, sizeof a->model);
    get_text(&r, a->model_hash, sizeof a->model_hash);
    get_text(&r, a->data, sizeof a->data);
    get_text(&r, a->data_hash, sizeof a->data_hash);
    get_text(&r, a->device, sizeof a->device);
    get_text(&r, a->device_name, sizeof a->device_name);
    get_text(&r, a->isa, sizeof a->isa);
    a->threads = echi_get32(&r);
    a->seed = echi_get64(&r);
    a->real_bytes = echi_get8(&r);
    a->deterministic = echi_get8(&r) != 0;
    a->winograd = echi_get8(&r);
    a->rounded = echi_get8(&r);
    a->shuffle = echi_get8(&r) != 0;
    a->augment = echi_get8(&r) != 0;
    a->session = echi_get8(&r) != 0;
    a->train_samples = echi_get32(&r);
    a->test_samples = echi_get32(&r);
    if (a->world < 1 || a->world > ECHI_WORLD_MAX || a->rank >= a->world || a->threads < 1 || a->threads > 1024 || a->train_samples < 1 ||
        a->rounded > ECHI_RECORDED_TF32)
        return false;
    if (a->rank == 0) {
        get_text(&r, a->init, sizeof a->init);
        echi_get_bytes(&r, a->initial, sizeof a->initial);
        if (!echi_plan_request_get(&r, &a->request) || !echi_goal_get(&r, &a->goal)) return false;
        if (a->request.world != a->world || a->goal.train_samples != a->train_samples) return false;
        const size_t plan_len = echi_get16(&r);
        const uint8_t *plan = echi_reader_take(&r, plan_len);
        a->plan_given = plan_len > 0;
        if (a->plan_given && (!plan || !echi_plan_decode(plan, plan_len, &a->plan) || a->plan.world != a->world)) return false;
    }
    return r.ok && r.at == r.end;
}

size_t echi_setup_encode(const struct echi_setup *s, const char *kernels, uint8_t *out, size_t cap) {
    uint8_t plan[ECHI_PLAN_BYTES_MAX];
    const size_t len = echi_plan_encode(&s->plan, plan, sizeof plan);
    struct echi_writer w = echi_writer_over(out, cap);
    echi_put16(&w, (uint16_t)len);
    echi_put_bytes(&w, plan, len);
    echi_put16(&w, (uint16_t)s->rank);
    echi_put16(&w, (uint16_t)s->n_layers);
    echi_put16(&w, (uint16_t)s->cut);
    echi_put32(&w, s->cut_width);
    echi_put16(&w, (uint16_t)s->norms);
    echi_put_bytes(&w, s->norm, (size_t)s->norms);
    echi_put8(&w, s->whole_steps);
    put_text(&w, kernels);
    return w.ok && len ? (size_t)(w.at - out) : 0;
}

bool echi_setup_decode(const uint8_t *bytes, size_t len, struct echi_recorded_setup *out) {
    struct echi_reader r = echi_reader_over(bytes, len);
    memset(out, 0, sizeof *out);
    const size_t plan_len = echi_get16(&r);
    const uint8_t *plan = echi_reader_take(&r, plan_len);
    if (!plan || !echi_plan_decode(plan, plan_len, &out->setup.plan)) return false;
    out->setup.rank = echi_get16(&r);
    out->setup.n_layers = echi_get16(&r);
    out->setup.cut = echi_get16(&r);
    out->setup.cut_width = echi_get32(&r);
    out->setup.norms = echi_get16(&r);
    if (out->setup.norms > ECHI_LAYERS_MAX) return false;
    echi_get_bytes(&r, out->setup.norm, (size_t)out->setup.norms);
    for (int i = 0; i < out->setup.norms; i++)   /* of layers in front of the cut, ascending */
        if (out->setup.norm[i] >= out->setup.cut || (i > 0 && out->setup.norm[i] <= out->setup.norm[i - 1])) return false;
    out->setup.whole_steps = echi_get8(&r) != 0;
    get_text(&r, out->kernels, sizeof out->kernels);
    return r.ok && r.at == r.end && out->setup.rank < out->setup.plan.world && out->setup.n_layers >= 1 &&
        out->setup.n_layers <= ECHI_LAYERS_MAX && out->setup.cut >= 1 && out->setup.cut <= out->setup.n_layers;
}

size_t echi_end_encode(const struct echi_recorded_end *e, uint8_t *out, size_t cap) {
    struct echi_writer w = echi_writer_over(out, cap);
    echi_put32(&w, e->status);
    echi_put64(&w, e->events);
    echi_put8(&w, e->has_weights);
    if (e->has_weights) {
        echi_put8(&w, e->whole.kind);
        echi_put16(&w, e->whole.index);
        echi_put_bytes(&w, e->weights, sizeof e->weights);
    }
    return w.ok ? (size_t)(w.at - out) : 0;
}

bool echi_end_decode(const uint8_t *bytes, size_t len, struct echi_recorded_end *e) {
    struct echi_reader r = echi_reader_over(bytes, len);
    memset(e, 0, sizeof *e);
    e->status = echi_get32(&r);
    e->events = echi_get64(&r);
    e->has_weights = echi_get8(&r) != 0;
    if (e->has_weights) {
        e->whole.kind = echi_get8(&r);
        e->whole.index = echi_get16(&r);
        echi_get_bytes(&r, e->weights, sizeof e->weights);
    }
    return r.ok && r.at == r.end;
}

/* ---------------------------------------------------------------- the file */

static ech_status damaged(const struct echi_recording *r, const char *what, struct ech_error *err) {
    return echi_fail(err, ECH_E_FORMAT, "replay.read",
                     "'%s' is damaged at byte %zu: %s; record the run again, or copy the file again from its node", r->name, r->at, what);
}

void echi_recording_rewind(struct echi_recording *r) {
    r->at = HEAD_LEN;
    r->check = echi_check(ECHI_CHECK_BEGIN, r->bytes, HEAD_LEN);
    r->events = 0;
    r->now = 0;
    r->ended = false;
}

ech_status echi_recording_open(const uint8_t *bytes, size_t len, const char *name, struct echi_recording *out, struct ech_error *err) {
    *out = (struct echi_recording){.name = name, .bytes = bytes, .len = len};
    if (len < HEAD_LEN || memcmp(bytes, ECHI_RECORDING_MAGIC, MAGIC_LEN) != 0)
        return echi_fail(err, ECH_E_FORMAT, "replay.read", "'%s' is no recording: give a folder that `echelon train --record` has written",
                         name);
    const uint32_t format = echi_load32(bytes + MAGIC_LEN);
    if (format != ECHI_RECORDING_FORMAT)
        return echi_fail(err, ECH_E_MISMATCH, "replay.read",
                         "'%s' is a recording of format %u, but this echelon (%s) reads format %u: replay it with the version "
                         "that wrote it", name, format, ECH_VERSION, ECHI_RECORDING_FORMAT);
    echi_recording_rewind(out);
    int kind;
    const uint8_t *body;
    size_t body_len;
    ECHI_TRY(echi_recording_next(out, &kind, &body, &body_len, err));
    if (kind != ECHI_RECORD_ABOUT)
        return echi_fail(err, ECH_E_FORMAT, "replay.read",
                         "'%s' ends before it says what was recorded: its node was killed at once, or its disk was full", name);
    /* The version comes first: another one may have written the rest otherwise. */
    struct echi_reader r = echi_reader_over(body, body_len);
    char version[sizeof out->about.version] = "";
    get_text(&r, version, sizeof version);
    if (r.ok && strcmp(version, ECH_VERSION) != 0)
        return echi_fail(err, ECH_E_MISMATCH, "replay.read",
                         "'%s' was recorded by echelon %s, but this is %s: replay it with the version that wrote it", name, version,
                         ECH_VERSION);
    if (!echi_about_decode(body, body_len, &out->about)) return damaged(out, "what was recorded makes no sense", err);
    return ECH_OK;
}

ech_status echi_recording_next(struct echi_recording *r, int *out_kind, const uint8_t **out_body, size_t *out_len, struct ech_error *err) {
    const size_t left = r->len - r->at;
    *out_kind = 0;
    if (left == 0) return ECH_OK;
    if (r->ended) return damaged(r, "something stands behind the end", err);
    /* A node that is killed, or a full disk, leaves a part of a record. */
    if (left < ECHI_RECORD_HEAD) {
        r->at = r->len;
        return ECH_OK;
    }
    const uint8_t *head = r->bytes + r->at;
    const size_t len = echi_load32(head);
    if (len > ECHI_RECORD_MAX) return damaged(r, "a record is longer than any can be", err);
    if (left < ECHI_RECORD_HEAD + len + ECHI_RECORD_TAIL) {
        r->at = r->len;
        return ECH_OK;
    }
    const uint64_t check = echi_check(r->check, head, ECHI_RECORD_HEAD + len);
    if (check != echi_load64(head + ECHI_RECORD_HEAD + len)) return damaged(r, "a record does not check", err);
    if (head[4] < ECHI_RECORD_ABOUT || head[4] > ECHI_RECORD_END || (head[4] == ECHI_RECORD_ABOUT) != (r->at == HEAD_LEN))
        return damaged(r, "a record is of a kind that cannot be here", err);
    r->check = check;
    r->at += ECHI_RECORD_HEAD + len + ECHI_RECORD_TAIL;
    *out_kind = head[4];
    *out_body = head + ECHI_RECORD_HEAD;
    *out_len = len;
    if (*out_kind == ECHI_RECORD_EVENT) r->events++;
    if (*out_kind != ECHI_RECORD_END) return ECH_OK;
    if (!echi_end_decode(*out_body, len, &r->end) || r->end.events != r->events)
        return damaged(r, "the end does not fit what stands before it", err);
    r->ended = true;
    return ECH_OK;
}

ech_status echi_recording_read(struct echi_recording *r, struct echi_record *out, struct ech_error *err) {
    const uint8_t *body = NULL;
    size_t len = 0;
    ECHI_TRY(echi_recording_next(r, &out->kind, &body, &len, err));
    if (out->kind == ECHI_RECORD_ABOUT) return echi_recording_read(r, out, err);   /* once, when read from the top */
    if (out->kind == ECHI_RECORD_SETUP && (!echi_setup_decode(body, len, &out->setup) || out->setup.setup.plan.world != r->about.world ||
                                           out->setup.setup.rank != r->about.rank))
        return damaged(r, "a plan makes no sense", err);
    if (out->kind == ECHI_RECORD_EVENT && (!echi_trace_get(body, len, &out->event) || out->event.event.from >= r->about.world))
        return damaged(r, "an event makes no sense", err);
    if (out->kind != ECHI_RECORD_EVENT) return ECH_OK;
    if (out->event.event.now < r->now) return damaged(r, "its clock goes back", err);
    r->now = out->event.event.now;
    return ECH_OK;
}
