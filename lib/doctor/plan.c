/* SPDX-License-Identifier: Apache-2.0
 * ech_doctor_plan: a plan for this machine and those that wait. They are asked one after the other, and begin when all have answered that
 * they will: so none of them waits for a run that does not come about. Two who ask cannot hold each other up, in whatever order and by
 * whatever names they ask: see ask_all. */
#include "echi_address.h"
#include "echi_ask.h"
#include "echi_blank.h"
#include "echi_bytes.h"
#include "echi_config_log.h"
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_interfaces.h"
#include "echi_os.h"
#include "echi_run.h"

#include <stdlib.h>

struct doctor { struct ech_config config; struct echi_meet *meet; };   /* rank 1 and up; as a caller of its listener */
struct asker {
    struct ech_config config;
    struct echi_job job;
    ech_data *blank;
    size_t pixels;
    float *weights;
    struct ech_report report;
    char ask[ECHI_MEET_ASK_MOST];
    int count;
    struct doctor doctor[ECH_LIVE_MAX - 1];
};

static ech_status take_names(struct asker *a, const char *names, struct ech_error *err) {
    for (const char *at = names;;) {
        struct doctor *d = &a->doctor[a->count];
        const size_t len = strcspn(at, ",");
        if (a->count == ECH_LIVE_MAX - 1)
            return echi_fail(err, ECH_E_ARGUMENT, "doctor.plan", "--doctors names more than %d: a run has %d nodes at most, with this one",
                             ECH_LIVE_MAX - 1, ECH_LIVE_MAX);
        if (len == 0 || len >= sizeof d->config.coordinator)
            return echi_fail(err, ECH_E_ARGUMENT, "doctor.plan",
                             "--doctors '%.80s': give HOST:PORT of each `echelon doctor --listen`, with commas between them", names);
        d->config = a->config;
        memcpy(d->config.coordinator, at, len);
        d->config.coordinator[len] = 0;
        a->count++;
        if (!at[len]) return ECH_OK;
        at += len + 1;
    }
}

/* Where the run waits, unless options say so: at the address by which this machine is left for the first of them. */
static ech_status choose_address(struct asker *a, struct ech_error *err) {
    struct ech_config *c = &a->config;
    struct echi_addresses first;
    struct echi_address own;
    if (c->coordinator[0]) return ECH_OK;
    ECHI_TRY(echi_address_parse(a->doctor[0].config.coordinator, "--doctors", true, false, &first, err));
    if (!echi_route_from(&first.list[0], &own))
        return echi_fail(err, ECH_E_IO, "doctor.plan",
                         "no network of this machine leads to --doctors %s: connect it, or correct the address",
                         a->doctor[0].config.coordinator);
    echi_address_format(&own, c->coordinator, sizeof c->coordinator);
    return ECH_OK;
}

/* What a listener has answered, which nobody believes. */
static ech_status take_answer(const uint8_t *bytes, size_t len, struct ech_error *err) {
    struct echi_reader r = echi_reader_over(bytes, len);
    const uint32_t status = echi_get32(&r);
    if (!r.ok || status > ECH_E_UNRECORDED) return echi_fail(err, ECH_E_FORMAT, "doctor.plan", "it answered what is no answer");
    if (status == ECH_OK) return ECH_OK;
    return echi_fail(err, (ech_status)status, "doctor.plan", "%.*s", (int)(r.end - r.at), (const char *)r.at);
}

static ech_status ask(struct asker *a, int i, const ech_model *model, int64_t until, struct ech_error *err) {
    struct doctor *d = &a->doctor[i];
    uint8_t bytes[ECHI_MEET_ANSWER_MOST];
    size_t len = echi_ask_write(&a->config, i + 1, model, a->ask, sizeof a->ask);
    if (len > sizeof a->ask)
        return echi_fail(err, ECH_E_UNSUPPORTED, "doctor.plan", "the model's text has %zu bytes: %u at most can be asked for", len,
                         ECHI_MEET_ASK_MOST);
    ECHI_TRY(echi_meet_open(&d->config, 1, 2, ECHI_DOCTOR_MEET_LISTENER, until - echi_now(), &d->meet, err));
    ECHI_TRY(echi_meet_await(d->meet, -1, INT64_MAX, NULL, NULL, err));   /* joining ends by itself */
    ECHI_TRY(echi_meet_tell(d->meet, ECHI_MEET_ASK, NULL, 0, a->ask, len, err));
    ECHI_TRY(echi_meet_await(d->meet, ECHI_MEET_ANSWER, until, bytes, &len, err));
    return take_answer(bytes, len, err);
}

static void leave(struct doctor *d) {
    echi_meet_close(d->meet);
    d->meet = NULL;
}

static void leave_all(struct asker *a) {
    for (int i = 0; i < a->count; i++) leave(&a->doctor[i]);
}

/* Whoever has the busy one may wait for one that is held here. So nothing is held while one is waited for, and the next attempt begins with
 * that one. */
static ech_status ask_all(struct asker *a, const ech_model *model, struct ech_error *err) {
    const int64_t until = echi_now() + (int64_t)(a->config.join_timeout * 1e9);
    int64_t since = echi_now();
    int first = 0, held = 0, mismatches = 0, busy = -1;
    while (held < a->count) {
        const int i = (first + held) % a->count;
        struct doctor *d = &a->doctor[i];
        struct ech_error why = {.peer = -1};
        const ech_status status = ask(a, i, model, until, &why);
        if (status == ECH_OK) {
            echi_config_log(&a->config, ECH_LOG_INFO, "rank %d is %s", i + 1, d->config.coordinator);
            held++;
            mismatches = 0;
            continue;
        }
        leave_all(a);
        if (status == ECH_E_BUSY && busy != i) echi_config_log(&a->config, ECH_LOG_INFO, "waiting for rank %d: %s", i + 1, why.text);
        if (status == ECH_E_BUSY) busy = i;
        if (!echi_meet_again(status, since, &mismatches, until)) {
            echi_doctor_no_listener(&d->config, "--doctors", status, &why);
            return echi_fail_at(err, status, "doctor.plan", i + 1, NULL, "%.70s: %.320s", d->config.coordinator, why.text);
        }
        since = echi_now();
        first = i;
        held = 0;
    }
    return ECH_OK;
}

/* The run waits for its nodes: they come. Called once more when it ends. */
static void begin(void *self, struct echi_wire *wire, struct echi_exec *exec) {
    struct asker *a = self;
    uint8_t port[ECHI_MEET_GO_BYTES];
    if (!wire || exec) return;
    echi_store16(port, (uint16_t)strtoul(strrchr(echi_wire_address(wire), ':') + 1, NULL, 10));
    for (int i = 0; i < a->count; i++) {   /* who is gone does not come, and the run reports it */
        (void)echi_meet_tell(a->doctor[i].meet, ECHI_MEET_GO, port, sizeof port, NULL, 0, NULL);
        leave(&a->doctor[i]);
    }
}

static ech_status set_up(struct asker *a, const ech_model *model, const char *names, struct ech_error *err) {
    struct ech_config *c = &a->config;
    c->rank = 0;
    c->steps = 0;
    c->eval_every = 0;
    c->save[0] = c->checkpoint[0] = c->record[0] = 0;
    c->on_progress = NULL;
    ECHI_TRY(take_names(a, names, err));
    ECHI_TRY(choose_address(a, err));
    c->world = a->count + 1;
    ECHI_TRY(ech_config_check(c, err));
    ECHI_TRY(echi_blank_data(model, &a->pixels, &a->blank, err));
    ECHI_TRY(echi_job_make(model, a->blank, c, &a->job, err));
    echi_report_begin(&a->report, model->name, a->blank->name, c);
    ECHI_TRY(echi_first_weights(model, c, &a->weights, err));
    a->job.first_weights = a->weights;
    return ask_all(a, model, err);
}

ech_status ech_doctor_plan(const ech_model *model, const struct ech_config *given, const char *doctors, struct ech_report *out_report,
                           struct ech_error *err) {
    if (!model || !given || !doctors)
        return echi_fail(err, ECH_E_ARGUMENT, "doctor.plan",
                         "ech_doctor_plan needs a model, a config and the addresses of nodes that wait");
    struct asker *a = calloc(1, sizeof *a);
    struct ech_error unrecorded = {.code = ECH_OK};
    bool trained = false, stays = false;
    if (!a) return echi_fail_memory(err, "doctor.plan", "a plan's run");
    ech_status status = echi_config_whole(given, &a->config, err);
    if (status == ECH_OK) status = set_up(a, model, doctors, err);
    if (status == ECH_OK) {
        const struct echi_node_config node = {.config = &a->config, .job = &a->job, .params = a->weights, .trained = &trained,
                                              .unrecorded = &unrecorded, .stays = &stays, .started = begin, .started_self = a};
        status = echi_node_run(&node, &a->report, err);
        if (status == ECH_OK) status = echi_outcome_write(model, &a->config, a->weights, &a->report, err);
        if (out_report) *out_report = a->report;
    }
    leave_all(a);
    if (stays) return status;   /* what its thread may use stays, too */
    echi_free_aligned(a->weights);
    ech_data_destroy(a->blank);
    free(a);
    return status;
}
