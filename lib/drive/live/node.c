/* SPDX-License-Identifier: Apache-2.0
 * The I/O thread of a node: joins the others, hosts the roles, leaves. */
#include "echi_node.h"
#include "echi_address.h"
#include "echi_checkpoint.h"
#include "echi_curves.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_socket_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(ECH_LIVE_MAX == ECHI_NET_WORLD_MAX, "what the header promises, net takes");

#define EVENTS_MAX 64
#define LINKS_CHECK INT64_C(500000)   /* ns between two checks of what is queued while links are measured: nothing tells that it has left */
/* Of --deadline, from the first complaint about a link to the choice of whom to lose: those whose links fell silent at the same moment
 * find it out a few heartbeats apart. */
#define COLLECT 0.25
#define RESCUE 6                   /* of --deadline, to gather what is left of a run that cannot go on, from a node that is heard */
#define LINGER (2 * ECHI_SECOND)   /* for the last messages to leave */

int64_t echi_node_now(struct echi_node *n) {
    const int64_t now = echi_now();
    if (now < n->clock) n->clock_back += n->clock - now;
    n->clock = now;
    return now + n->clock_back;
}

void echi_node_give_up(struct echi_node *n, ech_status status) {
    if (n->over) return;
    n->over = true;
    n->status = status;
}

void echi_node_check_recorder(struct echi_node *n) {
    const char *trouble = echi_recorder_trouble(n->recorder);
    if (!trouble) return;
    echi_config_log(n->c->config, ECH_LOG_WARN, "the recording in %s ends here: %s; the run goes on", n->c->config->record, trouble);
    echi_fail(n->c->unrecorded, ECH_E_UNRECORDED, "run.record", "the run ended well, but its recording in %s breaks off: %s",
              n->c->config->record, trouble);
    echi_recorder_close(n->recorder);
    n->recorder = NULL;
}

/* A number that a signal handler, or another thread of the caller's, may change at any time. */
static int asked(const volatile int *number) { return number ? __atomic_load_n(number, __ATOMIC_RELAXED) : 0; }

/* *told: how often this node's user was heard: once, it leaves (rank 0: the run ends); twice, the run ends. */
static void check_stop(struct echi_node *n, int *told) {
    const bool abandoned = n->c->abandoned && atomic_load(n->c->abandoned);
    const int stop = abandoned ? 1 : asked(n->c->config->stop), most = n->role.coordinator || abandoned ? 1 : 2;
    const int stops = stop > 1 ? most : stop != 0;
    if (stops <= *told || n->role.ended) return;
    *told = stops;
    if (!n->ready) {
        echi_fail(n->err, ECH_E_ABORTED, "run", "stopped while waiting for the other nodes");
        return echi_node_give_up(n, ECH_E_ABORTED);
    }
    if (abandoned) {
        /* What it handed over before it closed is heard first: the reason may be there. Its other leases will never be computed,
         * so there is nothing to wait for. */
        echi_node_take_done(n);
        if (!n->over) echi_node_failed(n, ECH_E_ABORTED, "the session was closed before the run was over");
    } else {
        echi_node_event(n, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_STOP, .flag = *told > 1});
    }
}

/* The first evaluation behind a stop is that of the weights that are saved, which is worth a deadline. One that runs when the stop comes is
 * not waited for: an evaluation may take minutes. */
static void check_eval(struct echi_node *n, int told) {
    const struct echi_coordinator *c = n->role.coordinator;
    struct echi_lane_view v;
    if (!c || n->eval_ended || (told == 0 && c->status != ECH_E_ABORTED)) return;
    const int64_t now = echi_now();
    if (n->stopped_at == 0) n->stopped_at = now;
    echi_lane_look(n->lane, &v);
    if (!v.runs || v.task.kind != ECHI_TASK_EVAL) return;
    if (v.since > n->stopped_at && now - v.since <= n->patience.most) return;
    n->eval_ended = true;
    echi_exec_end_eval(n->exec);
    echi_config_log(n->c->config, ECH_LOG_WARN, "stopped: the evaluation ends after %u of %u test images, without an accuracy",
                    echi_exec_evaluated(n->exec), n->job->test_samples);
}

void echi_node_notify(void *self) { echi_wire_wake(((struct echi_node *)self)->wire); }

static void check_until(struct echi_node *n, int64_t now) {
    if (n->c->until == 0 || now < n->c->until) return;
    echi_fail(n->err, ECH_E_TIMEOUT, "run", "this node has given the run all the time that it gives one");
    echi_node_give_up(n, ECH_E_TIMEOUT);
}

static void check_tell(struct echi_node *n) {
    const int tells = asked(n->c->config->tell);
    if (tells == n->tells) return;
    n->tells = tells;
    echi_tell_all(n, echi_node_now(n));
}

static void loop(struct echi_node *n) {
    struct echi_net_event event[EVENTS_MAX];
    int told = 0;
    echi_fair_begin(&n->fair, n->began);
    while (!n->over) {
        int count = 0;
        ech_status status = echi_wire_poll(n->wire, n->fair.due - n->clock_back, event, EVENTS_MAX, &count, n->err);
        if (status != ECH_OK) return echi_node_give_up(n, status);
        int64_t now = echi_node_now(n);
        const int64_t beat = echi_watch_beat(n, now);
        echi_fair_check(&n->fair, now, n->measuring_links && beat > LINKS_CHECK ? LINKS_CHECK : beat);
        for (int i = 0; i < count && !n->over; i++) echi_node_on_net(n, &event[i]);
        if (!n->over) echi_node_measure_links(n);
        echi_node_take_done(n);
        echi_watch_judge(n);
        echi_watch_rates(n, now);
        if (n->role.coordinator && n->role.coordinator->wake_at && now >= n->role.coordinator->wake_at && !n->over)
            echi_node_event(n, ECHI_ROLE_COORDINATOR, &(struct echi_event){.type = ECHI_EVENT_TIME});
        check_stop(n, &told);
        if (!n->over) check_until(n, n->clock);
        if (!n->over) check_eval(n, told);
        check_tell(n);
        /* The time is asked for anew: since the loop waked an evaluation may have begun and ended. */
        if (!n->over) echi_node_progress(n, echi_node_now(n));
        now = echi_node_now(n);
        if (now - n->fair.checked > n->round_most) n->round_most = now - n->fair.checked;
    }
}

/* ------------------------------------------------------------- run it */

static void begin_at(struct echi_node *n, const struct echi_standing *at, struct echi_goal *goal) {
    goal->from = *at;
    echi_progress_begin(at, &n->shown);
    if (at->samples >= goal->samples)
        echi_config_log(n->c->config, ECH_LOG_INFO, "nothing left to do: the checkpoint has %llu samples, and %llu were asked for",
                        (unsigned long long)at->samples, (unsigned long long)goal->samples);
    else if (goal->target_accuracy > 0 && at->best_accuracy >= goal->target_accuracy)
        echi_config_log(n->c->config, ECH_LOG_INFO,
                        "%.2f %% was reached before the checkpoint, which has the weights that came after: they are evaluated first",
                        100 * goal->target_accuracy);
}

static ech_status make_coordinator(struct echi_node *n) {
    const struct ech_config *c = n->c->config;
    struct echi_plan_request request;
    struct echi_goal goal;
    ECHI_TRY(echi_plan_request_from(c, n->job, &request, n->err));
    ECHI_TRY(echi_curves_read(c, n->job, &request, n->err));
    ECHI_TRY(echi_goal_from(c, n->job, &request, &n->setup.plan, n->links.given, &goal, n->err));
    goal.give_final = n->c->user != NULL;
    goal.tick = (int64_t)(c->deadline * 1e9);
    goal.collect = (int64_t)(COLLECT * c->deadline * 1e9);
    goal.rescue = (int64_t)(RESCUE * c->deadline * 1e9);
    if (n->c->checkpoints) {
        const struct echi_checkpoint *from = echi_checkpoints_from(n->c->checkpoints);
        goal.keep = true;
        goal.keep_every = (uint64_t)c->every;
        goal.resumed = from != NULL;
        if (from) begin_at(n, &from->at, &goal);
    }
    n->role.coordinator = calloc(1, sizeof *n->role.coordinator);
    if (!n->role.coordinator) return echi_fail_memory(n->err, "run.setup", "the coordinator");
    echi_coordinator_init(n->role.coordinator, &n->setup, &request, &goal, c->plan[0] != 0);
    n->role.coordinator->work.between = echi_watch_between;
    n->role.coordinator->work.self = n;
    return ECH_OK;
}

static ech_status open_recorder(struct echi_node *n) {
    const struct ech_config *c = n->c->config;
    if (!c->record[0]) return ECH_OK;
    struct echi_about *about = calloc(1, sizeof *about);   /* with a plan in it, too large for the stack */
    if (!about) return echi_fail_memory(n->err, "run.record", "what a recording begins with");
    snprintf(about->version, sizeof about->version, "%s", ECH_VERSION);
    snprintf(about->model, sizeof about->model, "%s", n->job->session ? "session" : n->job->model->name);
    snprintf(about->data, sizeof about->data, "%s", n->job->data ? n->job->data->name : "session");
    echi_job_words(n->job, about->model_hash, about->data_hash);
    echi_node_device(c, about->device);
    snprintf(about->device_name, sizeof about->device_name, "%s", echi_device_describe(echi_exec_device(n->exec))->name);
    snprintf(about->isa, sizeof about->isa, "%s", echi_cpu_level_name(echi_device_level(echi_exec_device(n->exec))));
    snprintf(about->init, sizeof about->init, "%s", c->init);
    about->threads = (uint32_t)echi_device_threads(echi_exec_device(n->exec));
    about->seed = c->seed;
    about->rank = (uint16_t)n->rank;
    about->world = (uint16_t)n->world;
    about->real_bytes = sizeof(echi_real);
    about->deterministic = c->deterministic != 0;
    about->winograd = (uint8_t)c->winograd;
    const bool host = echi_device_describe(echi_exec_device(n->exec))->host_memory;
    if (strcmp(c->precision, "tf32") == 0) about->rounded = ECHI_RECORDED_TF32;
    if (strcmp(c->precision, "bf16") == 0) about->rounded = host ? (uint8_t)echi_cpu_bf16() : (uint8_t)ECHI_RECORDED_BF16_CARD;
    about->shuffle = n->job->shuffle;
    about->augment = n->job->augment;
    about->session = n->job->session;
    about->train_samples = n->job->train_samples;
    about->test_samples = n->job->test_samples;
    if (n->role.coordinator) {
        about->request = n->role.coordinator->request;
        about->goal = n->role.coordinator->goal;
        about->plan_given = n->role.coordinator->plan_given;
        about->plan = n->setup.plan;
    }
    if (n->rank == 0 && n->c->params) echi_weights_hash(n->c->params, n->job->n_params, about->initial);
    const ech_status status = echi_recorder_open(c->record, about, &n->recorder, n->err);
    free(about);
    return status;
}

static void end_recording(struct echi_node *n) {
    if (!n->recorder) return;
    struct echi_recorded_end end = {.status = (uint32_t)n->status, .has_weights = n->role.coordinator && n->role.planned};
    if (end.has_weights) end.whole = n->role.coordinator->whole;
    if (end.has_weights)
        echi_weights_hash(echi_exec_slot(n->exec, end.whole, NULL), n->job->n_params, end.weights);
    echi_recorder_end(n->recorder, &end);
    echi_node_check_recorder(n);
}

static ech_status open_wire(struct echi_node *n) {
    const struct ech_config *c = n->c->config;
    struct echi_net_fingerprint print[] = {{"version", ECH_VERSION}, {"model", ""}, {"data", ""}, {"order", ""}, {"augment", ""},
                                           {"arithmetic", ""}};
    echi_job_words(n->job, print[1].value, print[2].value);
    echi_job_order(n->job, print[3].value);
    echi_job_augment(n->job, print[4].value);
    if (c->deterministic) snprintf(print[5].value, sizeof print[5].value, "--deterministic, %zu bits", 8 * sizeof(echi_real));
    else snprintf(print[5].value, sizeof print[5].value, "as fast as each node can, --winograd %d, --precision %s, %zu bits", c->winograd,
                  c->precision, 8 * sizeof(echi_real));
    echi_wire_kinds(n->job, n->world, n->kinds);
    struct echi_net_config net;
    ECHI_TRY(echi_wire_options(c, &net, n->err));
    net.kinds = n->kinds;
    net.n_kinds = ECHI_KINDS;
    net.fingerprints = print;
    net.n_fingerprints = (int)(sizeof print / sizeof print[0]);
    ech_status status = echi_wire_open(&net, &n->wire, n->err);
    echi_wire_options_end(&net);
    return status;
}

/* Nodes on this machine, as far as this one knows. */
static int sharers(const struct ech_config *c) {
    return c->local_world > 0 ? c->local_world : echi_address_text_is_loopback(c->coordinator) ? c->world : 1;
}

static int own_processors(const struct ech_config *c) { return echi_cpu_count() / sharers(c); }

int echi_node_threads(const struct ech_config *c) {
    if (c->threads > 0) return c->threads;
    const int own = own_processors(c);
    return own < 1 ? 1 : own < ECHI_TEAM_MOST ? own : ECHI_TEAM_MOST;
}

/* Nodes that compute on all processors of a machine between them have an equal part each: the kernel moves threads that sleep often, and
 * then two compute on one processor while another rests. (Two nodes on two processors, LeNet-5, GSSP: 50,300 images/s unbound, 55,300
 * bound.) The thread that sends and receives is bound to none. */
static bool take_own_part(const struct ech_config *c, struct echi_cpu_set *before) {
    const int nodes = sharers(c), own = c->local_world > 0 ? c->local_rank : c->rank;
    return nodes > 1 && echi_node_threads(c) * nodes == echi_cpu_allowed() && echi_cpu_bind(own, nodes, before);
}

bool echi_node_has_spare(const struct ech_config *c) { return own_processors(c) > echi_node_threads(c); }

void echi_node_device(const struct ech_config *c, char out[ECHI_NODE_DEVICE]) {
    const int count = strchr(c->device, ':') ? 0 : echi_device_count(c->device);
    const int index = count > 0 ? c->local_rank % count : 0;
    if (index == 0) snprintf(out, ECHI_NODE_DEVICE, "%s", c->device);
    else snprintf(out, ECHI_NODE_DEVICE, "%.40s:%d", c->device, index);
}

ech_status echi_node_io(const struct ech_config *c, const struct echi_job *job, struct echi_cost_io *out, struct ech_error *err) {
    struct echi_socket_cost cost = {.byte = 0.15e-9, .message = 2.5e-6};   /* on a Sapphire Rapids */
    ECHI_TRY(echi_socket_cost(job->n_params * sizeof(echi_real), c->key[0] != 0, &cost, err));
    *out = (struct echi_cost_io){cost.message, cost.byte};
    return ECH_OK;
}

ech_status echi_node_exec(const struct ech_config *c, const struct echi_job *job, struct echi_exec **out, struct ech_error *err) {
    if (c->cache[0]) ECHI_TRY(echi_folder_make(c->cache, err));
    char device[ECHI_NODE_DEVICE];
    echi_node_device(c, device);
    ECHI_TRY(echi_exec_create(job, device, echi_node_threads(c), echi_config_level(c), c->cache[0] ? c->cache : NULL, out, err));
    const struct echi_device_info *info = echi_device_describe(echi_exec_device(*out));
    if (info->host_memory || (!c->sync_norm && c->slow <= 1)) return ECH_OK;
    const ech_status status =
        c->sync_norm ? echi_fail(err, ECH_E_UNSUPPORTED, "run.exec",
                                 "--sync-norm is for the device cpu, and this node has %s (%s): give --device cpu, or leave it out",
                                 info->backend, info->name)
                     : echi_fail(err, ECH_E_UNSUPPORTED, "run.exec",
                                 "--slow goes by the time that the processor computes, and this node computes on %s (%s): leave it out, "
                                 "or give --device cpu", info->backend, info->name);
    echi_exec_destroy(*out);
    *out = NULL;
    return status;
}

/* A target is met by weights that training leaves behind, and a recording ends with those that were evaluated last. */
void echi_node_params(const struct ech_config *c, struct echi_exec *exec, echi_real *params) {
    echi_exec_use_params(exec, params, c->target_accuracy <= 0 && !c->record[0]);
}

/* The weights that the run ends with, if there are any. */
static void hand_over(struct echi_node *n) {
    const struct echi_node_config *c = n->c;
    if (!n->role.coordinator || !n->role.coordinator->final) return;
    const echi_real *params = echi_exec_slot(n->exec, n->role.coordinator->whole, NULL);
    if (c->user) c->user->final(c->user->self, params);
    else if (c->params && c->params != params) memcpy(c->params, params, n->job->n_params * sizeof *params);
    if (c->trained) *c->trained = true;
}

/* What was sent last leaves before anything is waited for: the others hear the end from it, and not from its silence. */
static void send_last(struct echi_node *n) {
    struct echi_net_event event[EVENTS_MAX];
    int count;
    if (n->ready) (void)echi_wire_poll(n->wire, echi_now(), event, EVENTS_MAX, &count, NULL);
}

/* A thread of this node does not come back. It may still use what it had, so all of that is left as it is, this node too. */
static ech_status stay_behind(struct echi_node *n, ech_status status) {
    *n->c->stays = true;
    if (status == ECH_E_TIMEOUT) return status;
    return echi_fail_at(n->err, ECH_E_TIMEOUT, "run", n->rank, NULL,
                        "computing stands still and is left behind: a data callback that blocks, or a device that hangs?");
}

void echi_node_free(struct echi_node *n) {
    echi_exec_destroy(n->exec);
    free(n->role.coordinator);
    free(n->role.worker);
    free(n->role.owner);
    free(n->role.head);
    free(n);
}

ech_status echi_node_run(const struct echi_node_config *config, struct ech_report *report, struct ech_error *err) {
    struct ech_error own = {.peer = -1};
    const int64_t deadline = (int64_t)(config->config->deadline * 1e9);
    struct echi_cpu_set processors;
    bool bound = take_own_part(config->config, &processors);
    bool writes = false;   /* a step that nobody waits for may still write the run's array */
    struct echi_node *n = calloc(1, sizeof *n);
    if (!n) return echi_fail_memory(err, "run", "this node");
    n->c = config;
    n->job = config->job;
    n->report = report;
    n->err = err ? err : &own;
    n->rank = config->config->rank;
    n->world = config->config->world;
    n->tells = asked(config->config->tell);
    echi_node_role_init(&n->role, &n->setup, n->rank, n->world, config->user != NULL);
    n->began = echi_node_now(n);
    ech_status status;
    ECHI_TRY_GOTO(echi_node_exec(config->config, n->job, &n->exec, n->err), out);
    if (n->rank == 0) ECHI_TRY_GOTO(make_coordinator(n), out);
    ECHI_TRY_GOTO(open_recorder(n), out);
    ECHI_TRY_GOTO(open_wire(n), out);
    ECHI_TRY_GOTO(echi_lane_create(echi_exec_run, n->exec, echi_node_notify, n, config->config->slow, &n->lane, n->err), out);
    if (bound) echi_cpu_unbind(&processors);
    bound = false;
    echi_exec_use_lane(n->exec, n->lane);
    echi_exec_use_loans(n->exec, &n->role.loans);
    if (!config->user) echi_node_params(config->config, n->exec, config->params);
    if (config->started) config->started(config->started_self, n->wire, NULL);
    if (n->rank == 0 && config->config->on_bound) config->config->on_bound(config->config->user, echi_wire_address(n->wire));
    loop(n);
    send_last(n);
    status = n->status;
    writes = echi_exec_trains_in_params(n->exec, &n->setup.plan);
    if (!writes) hand_over(n);
    if (report) echi_node_report(n, report);
    end_recording(n);
out:
    if (bound) echi_cpu_unbind(&processors);
    if (config->started) config->started(config->started_self, NULL, NULL);
    if (n->exec) echi_exec_end_eval(n->exec);
    /* What stood still is not waited for as long again. */
    int64_t patience = deadline;
    if (n->ready && !n->measuring && !n->standing && !n->progress.stuck) {
        struct echi_lane_view v;
        echi_lane_look(n->lane, &v);
        patience = echi_watch_allowed(n, &v);
    }
    const bool stays = !echi_lane_destroy(n->lane, patience) || !echi_exec_rests(n->exec, patience);
    echi_checkpoints_stop(config->checkpoints);
    echi_wire_close(n->wire, LINGER);
    echi_recorder_close(n->recorder);
    if (stays) return stay_behind(n, status);
    if (writes) hand_over(n);
    echi_node_free(n);
    return status;
}
