/* SPDX-License-Identifier: Apache-2.0
 * Recordings written, while a run goes. The I/O thread encodes each event into a buffer and writes that when it is
 * well filled, or a second old, and before it sends anything to another node. A failed write ends the recording, not the run,
 * whose status at the end reports it. */
#include "echi_recording.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER (ECHI_RECORD_MAX + 65536u)
#define WRITE_AT 65536u
#define WRITE_EVERY INT64_C(1000000000)

struct echi_recorder {
    int file, rank;
    bool failed, planned;
    size_t used;
    uint64_t check, events;
    int64_t written_at;
    struct ech_error why;
    char path[1200];
    uint8_t buffer[BUFFER];
};

void echi_weights_hash(const echi_real *weights, size_t count, uint8_t out[32]) {
    struct echi_sha256 sha;
    echi_sha256_begin(&sha);
    echi_sha256_add(&sha, weights, count * sizeof *weights);
    echi_sha256_end(&sha, out);
}

static void keep_failure(struct echi_recorder *r, ech_status status, const struct ech_error *why) {
    if (status == ECH_OK) return;
    r->failed = true;
    echi_fail(&r->why, status, "run.record", "'%s': %s", r->path, why->text);
}

static void flush(struct echi_recorder *r) {
    struct ech_error why;
    if (!r->failed && r->used) keep_failure(r, echi_file_append(r->file, r->buffer, r->used, &why), &why);
    r->used = 0;
}

/* Room for a body with a head before it; every body fits into an empty buffer. */
static struct echi_writer begin(struct echi_recorder *r) {
    return echi_writer_over(r->buffer + r->used + ECHI_RECORD_HEAD, BUFFER - r->used - ECHI_RECORD_HEAD - ECHI_RECORD_TAIL);
}
static void seal(struct echi_recorder *r, enum echi_record_kind kind, size_t len) {
    r->check = echi_record_seal(r->check, kind, r->buffer + r->used + ECHI_RECORD_HEAD, len);
    r->used += ECHI_RECORD_HEAD + len + ECHI_RECORD_TAIL;
}
static void too_long(struct echi_recorder *r, const char *what) {
    r->failed = true;
    echi_fail(&r->why, ECH_E_INTERNAL, "run.record", "%s does not fit into a record", what);
}

ech_status echi_recorder_open(const char *dir, const struct echi_about *about, struct echi_recorder **out, struct ech_error *err) {
    ECHI_TRY(echi_folder_make(dir, err));
    struct echi_recorder *r = calloc(1, sizeof *r);
    if (!r) return echi_fail_memory(err, "run.record", "the recording");
    snprintf(r->path, sizeof r->path, "%s/rank%d.events", dir, about->rank);
    ech_status status = echi_file_create(r->path, &r->file, err);
    if (status != ECH_OK) {
        free(r);
        return status;
    }
    r->rank = about->rank;
    memcpy(r->buffer, ECHI_RECORDING_MAGIC, 8);
    echi_store32(r->buffer + 8, ECHI_RECORDING_FORMAT);
    r->used = 12;
    r->check = echi_check(ECHI_CHECK_BEGIN, r->buffer, r->used);
    struct echi_writer w = begin(r);
    const size_t len = echi_about_encode(about, w.at, (size_t)(w.end - w.at));
    if (!len) too_long(r, "what is recorded");
    else seal(r, ECHI_RECORD_ABOUT, len);
    flush(r);   /* so that a disk without room is found before the run */
    if (r->failed) {
        status = r->why.code;
        if (err) *err = r->why;
        echi_recorder_close(r);
        return status;
    }
    *out = r;
    return ECH_OK;
}

void echi_recorder_setup(struct echi_recorder *r, const struct echi_setup *setup, const char *kernels) {
    if (r->failed) return;
    flush(r);
    struct echi_writer w = begin(r);
    const size_t len = echi_setup_encode(setup, kernels, w.at, (size_t)(w.end - w.at));
    if (!len) return too_long(r, "the plan");
    seal(r, ECHI_RECORD_SETUP, len);
    r->planned = true;
}

static bool sends(const struct echi_recorder *r, const struct echi_actions *actions) {
    for (int i = 0; i < actions->count; i++)
        if (actions->list[i].type == ECHI_ACTION_SEND && actions->list[i].to != r->rank) return true;
    return false;
}

void echi_recorder_event(struct echi_recorder *r, enum echi_role role, const struct echi_event *event, const struct echi_actions *actions,
                         const struct echi_coordinator *coordinator) {
    if (r->failed) return;
    struct echi_writer w = begin(r);
    uint8_t *body = w.at;
    echi_trace_put(&w, role, event, actions, coordinator);
    if (!w.ok && r->used > 0) {
        flush(r);
        w = begin(r);
        body = w.at;
        echi_trace_put(&w, role, event, actions, coordinator);
    }
    const size_t len = (size_t)(w.at - body);
    if (!w.ok || len > ECHI_RECORD_MAX) return too_long(r, "an event");
    seal(r, ECHI_RECORD_EVENT, len);
    r->events++;
    /* What others are sent stands in the file before they have it, so a node that is killed leaves all that they know of it. Also
     * when little happens: who looks at a recording finds all but its last second. */
    if (!sends(r, actions) && r->used < WRITE_AT && event->now - r->written_at < WRITE_EVERY) return;
    flush(r);
    r->written_at = event->now;
}

void echi_recorder_end(struct echi_recorder *r, const struct echi_recorded_end *end) {
    if (r->failed) return;
    struct echi_recorded_end e = *end;
    struct ech_error why;
    e.events = r->events;
    flush(r);
    struct echi_writer w = begin(r);
    seal(r, ECHI_RECORD_END, echi_end_encode(&e, w.at, (size_t)(w.end - w.at)));
    flush(r);
    if (!r->failed) keep_failure(r, echi_file_sync(r->file, &why), &why);   /* some disks say only here that they are full */
}

const char *echi_recorder_trouble(const struct echi_recorder *r) { return r->failed ? r->why.text : NULL; }

void echi_recorder_close(struct echi_recorder *r) {
    if (!r) return;
    flush(r);
    /* The run never began: the next may have the name. A rank that the plan leaves idle has no events, and replay asks for its file. */
    if (r->events == 0 && !r->planned) echi_file_remove(r->path, NULL);
    echi_file_close(r->file);
    free(r);
}
