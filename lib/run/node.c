/* SPDX-License-Identifier: Apache-2.0
 * The I/O thread of a node: joins the others, hosts the roles, watches deadlines, leaves. */
#include "echi_node.h"
#include "echi_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENTS_MAX 64
#define LINGER (2 * ECHI_SECOND)   /* for the last messages to leave */

void echi_node_log(struct echi_node *n, enum ech_log_level level, const char *fmt, ...) {
    if (!n->c->config->on_log) return;
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    n->c->config->on_log(n->c->config->user, level, line);
}

void echi_node_give_up(struct echi_node *n, ech_status status) {
    if (n->over) return;
    n->over = true;
    n->status = status;
}

void echi_node_check_recorder(struct echi_node *n) {
    const char *trouble = echi_recorder_trouble(n->recorder);
    if (!trouble) return;
    echi_node_log(n, ECH_LOG_WARN, "the recording in %s ends here: %s; the run goes on", n->c->config->record, trouble);
    echi_recorder_close(n->recorder);
    n->recorder = NULL;
}

static void check_deadlines(struct echi_node *n, int64_t now) {
    const int64_t deadline = (int64_t)(n->c->config->deadline * 1e9);
    if (!n->ready || (n->end_in && !n->coordinator)) return;
    /* A judge that was itself late cannot tell who is silent. */
    if (now - n->looped > deadline / 4)
        for (int r = 0; r < n->world; r++) n->heard[r] = now;
    if (now >= n->heartbeat_at) {
        n->heartbeat_at = now + deadline / 5;
        if (n->coordinator)
            for (int r = 1; r < n->world; r++) echi_node_send_plain(n, r, ECHI_KIND_HEARTBEAT, ECHI_ROLE_NODE);
        else echi_node_send_plain(n, 0, ECHI_KIND_HEARTBEAT, ECHI_ROLE_NODE);
    }
    for (int r = n->coordinator ? 1 : 0; r < (n->coordinator ? n->world : 1); r++) {
        if (now - n->heard[r] <= deadline || n->over) continue;
        char text[120];
        snprintf(text, sizeof text, "no word for %.3g seconds, see --deadline", n->c->config->deadline);
        echi_node_lost(n, r, false, text);
    }
    if (!n->over && n->lost >= 0 && now >= n->leave_by) {
        echi_fail_at(n->err, ECH_E_PEER_LOST, "run", n->lost, NULL, "rank %d%s was lost (%s): this node leaves", n->lost,
                     n->lost == 0 ? ", the coordinator," : "", n->lost_text);
        echi_node_give_up(n, ECH_E_PEER_LOST);
    }
}

static void check_stop(struct echi_node *n, bool *told) {
    const bool abandoned = n->c->abandoned && atomic_load(n->c->abandoned);
    if (*told || n->end_in || !(abandoned || (n->c->config->stop && *n->c->config->stop))) return;
    *told = true;
    if (!n->ready) {
        echi_fail(n->err, ECH_E_ABORTED, "run", "stopped while waiting for the other nodes");
        return echi_node_give_up(n, ECH_E_ABORTED);
    }
    if (abandoned) {
        /* Its leases will never be computed, so there is nothing to wait for. */
        echi_node_fault(n, ECH_E_ABORTED, n->rank, "the session was closed before the run was over");
    } else if (n->coordinator) {
        struct echi_event event = {.type = ECHI_EVENT_STOP};
        echi_node_event(n, ECHI_ROLE_COORDINATOR, &event);
    } else {
        echi_node_send_plain(n, 0, ECHI_KIND_STOP, ECHI_ROLE_COORDINATOR);
    }
}

static void notify(void *self) { echi_wire_wake(((struct echi_node *)self)->wire); }

static void loop(struct echi_node *n) {
    struct echi_net_event event[EVENTS_MAX];
    bool told = false;
    n->looped = n->began;
    while (!n->over) {
        int count = 0;
        int64_t now = echi_now(), wake_at = now + ECHI_SECOND / 5;
        if (n->ready && n->coordinator && n->coordinator->phase == ECHI_RUN_ENDS) wake_at = now + ECHI_SECOND / 50;
        ech_status status = echi_wire_poll(n->wire, wake_at, event, EVENTS_MAX, &count, n->err);
        if (status != ECH_OK) return echi_node_give_up(n, status);
        for (int i = 0; i < count && !n->over; i++) echi_node_on_net(n, &event[i]);
        echi_node_take_done(n);
        now = echi_now();
        check_deadlines(n, now);
        check_stop(n, &told);
        if (!n->over) echi_node_progress(n, now);
        n->looped = now;
    }
}

/* ------------------------------------------------------------- run it */

/* `about` is told what the coordinator begins with. */
static ech_status make_coordinator(struct echi_node *n, struct echi_about *about) {
    const struct ech_config *c = n->c->config;
    struct echi_wishes wishes;
    struct echi_goal goal = {.train_samples = n->job->train_samples, .target_accuracy = c->target_accuracy, .eval_every = c->eval_every,
                             .has_test = n->job->test_samples > 0, .give_final = n->c->user != NULL};
    ECHI_TRY(echi_wishes_from(c, n->job, &wishes, n->err));
    if (c->plan[0]) {
        ECHI_TRY(echi_plan_load(c->plan, &n->setup.plan, n->err));
        if (n->setup.plan.world != n->world)
            return echi_fail(n->err, ECH_E_ARGUMENT, "run.plan", "%s is a plan for %d nodes, but --world is %d", c->plan, n->setup.plan.world, n->world);
        if (n->setup.plan.separated && n->job->cut == 0)
            return echi_fail(n->err, ECH_E_ARGUMENT, "run.plan", "%s separates layers, but this model has no fully connected layers behind convolutions: give 'head none'", c->plan);
    }
    const uint32_t batch = c->plan[0] ? n->setup.plan.round : echi_wishes_round(&wishes);
    goal.samples = c->steps >= 0 ? (uint64_t)c->steps * batch : (uint64_t)(c->epochs * n->job->train_samples + 0.5);
    n->coordinator = calloc(1, sizeof *n->coordinator);
    if (!n->coordinator) return echi_fail_memory(n->err, "run.setup", "the coordinator");
    echi_coordinator_init(n->coordinator, &n->setup, &wishes, &goal, c->plan[0] != 0);
    about->wishes = wishes;
    about->goal = goal;
    about->plan_given = c->plan[0] != 0;
    about->plan = n->setup.plan;
    return ECH_OK;
}

static ech_status open_recorder(struct echi_node *n, struct echi_about *about) {
    const struct ech_config *c = n->c->config;
    if (!c->record[0]) return ECH_OK;
    snprintf(about->version, sizeof about->version, "%s", ECH_VERSION);
    snprintf(about->model, sizeof about->model, "%s", n->job->model ? n->job->model->name : "session");
    snprintf(about->data, sizeof about->data, "%s", n->job->data ? n->job->data->name : "session");
    echi_job_words(n->job, about->model_hash, about->data_hash);
    snprintf(about->device, sizeof about->device, "%s", c->device);
    snprintf(about->device_name, sizeof about->device_name, "%s", echi_device_describe(echi_exec_device(n->exec))->name);
    snprintf(about->isa, sizeof about->isa, "%s", echi_isa_name());
    snprintf(about->init, sizeof about->init, "%s", c->init);
    about->threads = (uint32_t)c->threads;
    about->seed = c->seed;
    about->rank = (uint8_t)n->rank;
    about->world = (uint8_t)n->world;
    about->shuffle = n->job->shuffle;
    about->session = n->job->model == NULL;
    about->train_samples = n->job->train_samples;
    about->test_samples = n->job->test_samples;
    if (n->rank == 0 && n->c->params) echi_weights_hash(n->c->params, n->job->n_params, about->initial);
    return echi_recorder_open(c->record, about, &n->recorder, n->err);
}

static void end_recording(struct echi_node *n) {
    if (!n->recorder) return;
    struct echi_recorded_end end = {.status = (uint32_t)n->status, .has_weights = n->coordinator && n->planned};
    if (end.has_weights) echi_weights_hash(echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL), n->job->n_params, end.weights);
    echi_recorder_end(n->recorder, &end);
    echi_node_check_recorder(n);
}

static ech_status open_wire(struct echi_node *n) {
    const struct ech_config *c = n->c->config;
    static const struct echi_net_kind kinds[ECHI_KINDS] = {
#define KIND(name, text, priority, payload) {text, priority, 2 + ECHI_PLAN_BYTES_MAX, (payload) ? UINT64_C(1) << 36 : 0, 0},
        ECHI_KIND_LIST(KIND)
#undef KIND
    };
    struct echi_net_fingerprint print[4] = {{"version", ECH_VERSION}, {"model", ""}, {"data", ""}, {"order", ""}};
    echi_job_words(n->job, print[1].value, print[2].value);
    if (n->job->shuffle) snprintf(print[3].value, sizeof print[3].value, "seed %llu", (unsigned long long)n->job->seed);
    else snprintf(print[3].value, sizeof print[3].value, "order of the file");
    const struct echi_net_config net = {.rank = n->rank, .world = n->world, .kinds = kinds, .n_kinds = ECHI_KINDS, .fingerprints = print,
        .n_fingerprints = 4, .coordinator = c->coordinator[0] ? c->coordinator : NULL, .bind = c->bind[0] ? c->bind : NULL,
        .join_timeout = (int64_t)(c->join_timeout * 1e9)};
    return echi_wire_open(&net, &n->wire, n->err);
}

ech_status echi_node_run(const struct echi_node_config *config, struct ech_report *report, struct ech_error *err) {
    struct ech_error own = {.peer = -1};
    struct echi_node *n = calloc(1, sizeof *n);
    if (!n) return echi_fail_memory(err, "run", "this node");
    n->c = config;
    n->job = config->job;
    n->report = report;
    n->err = err ? err : &own;
    n->rank = config->config->rank;
    n->world = config->config->world;
    n->lost = -1;
    n->began = echi_now();
    ech_status status;
    struct echi_about about = {0};
    ECHI_TRY_GOTO(echi_exec_create(n->job, config->config->device, config->config->threads, &n->exec, n->err), out);
    if (n->rank == 0) ECHI_TRY_GOTO(make_coordinator(n, &about), out);
    ECHI_TRY_GOTO(open_recorder(n, &about), out);
    ECHI_TRY_GOTO(open_wire(n), out);
    ECHI_TRY_GOTO(echi_lane_create(echi_exec_run, n->exec, notify, n, config->config->slow, &n->lane, n->err), out);
    echi_exec_use_lane(n->exec, n->lane);
    if (config->started) config->started(config->started_self, n->wire, NULL);
    if (n->rank == 0 && config->config->on_bound) config->config->on_bound(config->config->user, echi_wire_address(n->wire));
    loop(n);
    status = n->status;
    if (n->coordinator && n->planned && config->params && (status == ECH_OK || status == ECH_E_NOT_REACHED || status == ECH_E_ABORTED)) {
        size_t bytes = n->job->n_params * sizeof(float);
        memcpy(config->params, echi_exec_slot(n->exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL), bytes);
    }
    if (report) echi_node_report(n, report);
    end_recording(n);
out:
    if (config->started) config->started(config->started_self, NULL, NULL);
    echi_lane_destroy(n->lane);
    echi_wire_close(n->wire, LINGER);
    echi_recorder_close(n->recorder);
    echi_exec_destroy(n->exec);
    free(n->coordinator);
    free(n->worker);
    free(n->owner);
    free(n->head);
    free(n);
    return status;
}
