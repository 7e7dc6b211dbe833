/* SPDX-License-Identifier: Apache-2.0
 * The end of an ask that waits: takes part in a run of no steps of a model that it has never seen, and goes back to waiting. */
#include "echi_address.h"
#include "echi_ask.h"
#include "echi_blank.h"
#include "echi_bytes.h"
#include "echi_config_log.h"
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_run.h"

#include <stdlib.h>

/* Whoever may ask could go on for ever. Measuring takes a second, or some tens of steps where one takes seconds. */
#define DEADLINES 30

/* What a run has of its node; stays where the node leaves a thread behind. */
struct answer {
    struct ech_config config;
    struct echi_job job;
    ech_model *model;
    ech_data *blank;
    size_t pixels;
};

static void forget(struct answer *a) {
    ech_data_destroy(a->blank);
    ech_model_destroy(a->model);
    free(a);
}

/* What the run would be refused for on this machine is found here, where whoever asks hears of it. */
static ech_status prepare(struct answer *a, const struct echi_meet *m, struct ech_error *err) {
    struct ech_config *c = &a->config;
    struct echi_exec *tried = NULL;
    ECHI_TRY(echi_ask_read(m->ask, m->ask_len, c, &a->model, err));
    c->record[0] = 0;
    c->local_rank = 0;
    ECHI_TRY(ech_config_check(c, err));
    ECHI_TRY(echi_blank_data(a->model, &a->pixels, &a->blank, err));
    ECHI_TRY(echi_job_make(a->model, a->blank, c, &a->job, err));
    echi_config_log(c, ECH_LOG_INFO, "asked to take part in a plan of %s, as rank %d of %d", a->model->name, c->rank, c->world);
    ECHI_TRY(echi_node_exec(c, &a->job, &tried, err));
    echi_exec_destroy(tried);
    return ECH_OK;
}

static ech_status answer(struct echi_meet *m, ech_status status, const struct ech_error *why, struct ech_error *err) {
    uint8_t bytes[ECHI_MEET_ANSWER_MOST];
    struct echi_writer w = echi_writer_over(bytes, sizeof bytes);
    echi_put32(&w, (uint32_t)status);
    if (status != ECH_OK) echi_put_bytes(&w, why->text, strlen(why->text));
    return echi_meet_tell(m, ECHI_MEET_ANSWER, bytes, (size_t)(w.at - bytes), NULL, 0, err);
}

/* The run waits at this port of the host that called: whoever asks can send this node nowhere else. */
static ech_status await_go(struct answer *a, struct echi_meet *m, struct ech_error *err) {
    uint8_t port[ECHI_MEET_GO_BYTES];
    size_t len;
    char caller[64];
    struct echi_addresses at;
    echi_net_peer_end(m->net, 1, caller);
    ECHI_TRY(echi_meet_await(m, ECHI_MEET_GO, echi_now() + (int64_t)(a->config.join_timeout * 1e9), port, &len, err));
    if (len != sizeof port) return echi_fail(err, ECH_E_FORMAT, "doctor.ask", "it named no port");
    ECHI_TRY(echi_address_parse(caller, "a caller's address", false, false, &at, err));
    echi_address_set_port(&at.list[0], echi_load16(port));
    echi_address_format(&at.list[0], a->config.coordinator, sizeof a->config.coordinator);
    return ECH_OK;
}

static ech_status take_part(struct answer *a, bool *stays, struct ech_error *err) {
    struct ech_error unrecorded = {.code = ECH_OK};
    const double most = a->config.join_timeout + DEADLINES * a->config.deadline;
    const struct echi_node_config node = {.config = &a->config, .job = &a->job, .unrecorded = &unrecorded, .stays = stays,
                                          .until = echi_now() + (int64_t)(most * 1e9)};
    return echi_node_run(&node, NULL, err);
}

ech_status echi_ask_answer(const struct ech_config *config, struct echi_meet *m, bool *stays, struct ech_error *err) {
    struct answer *a = calloc(1, sizeof *a);
    ech_status status = a ? ECH_OK : echi_fail_memory(err, "doctor.ask", "a plan's run");
    if (a) a->config = *config;
    if (a) status = prepare(a, m, err);
    const ech_status told = answer(m, status, err, status == ECH_OK ? err : NULL);
    if (status == ECH_OK) status = told;
    if (status == ECH_OK) status = await_go(a, m, err);
    echi_meet_close(m);
    if (status == ECH_OK) status = take_part(a, stays, err);
    if (a && !*stays) forget(a);
    return status;
}
