/* SPDX-License-Identifier: Apache-2.0
 * A simulated run, from its beginning to its end. */
#include "echi_sim.h"
#include "echi_config_log.h"
#include "echi_curves.h"
#include "echi_error.h"
#include "echi_node.h"
#include "echi_print.h"

#include <stdlib.h>
#include <string.h>

/* Events between two checks of the real clock and of what the caller wants: without arithmetic, and with it. */
#define CHECK_EVERY_COST 4096
#define CHECK_EVERY_REAL 64

void echi_sim_end(struct echi_sim *s, ech_status status) {
    if (s->over) return;
    s->over = true;
    s->status = status;
}

void echi_sim_no_memory(struct echi_sim *s) {
    if (!s->over) echi_fail_memory(s->err, "sim", "the simulated cluster");
    echi_sim_end(s, ECH_E_MEMORY);
}

void *echi_sim_params(const struct echi_sim *s) {
    return echi_exec_slot(s->node[0].exec, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0}, NULL);
}

/* --------------------------------------------------------------- progress */

static void show_progress(struct echi_sim *s) {
    struct echi_coordinator *c = s->coordinator;
    if (!s->config->on_progress || c->phase < ECHI_RUN_TRAINS || c->phase == ECHI_RUN_ENDED) return;
    const bool new_accuracy = c->evals != s->shown.evals;
    const int64_t now = echi_now(), clock = echi_coordinator_clock(c, echi_sim_now(s));
    uint64_t bytes = 0;
    if (now < s->shown_at && !new_accuracy) return;
    for (int k = 0; k <= ECHI_KINDS; k++) bytes += s->sent[k];
    echi_progress_make(c, s->job, s->node[0].setup.plan.round, clock, new_accuracy, bytes, &s->shown);
    s->shown_at = now + ECHI_SECOND;
    s->config->on_progress(s->config->user, &s->shown.progress);
}

static void check_stop(struct echi_sim *s) {
    if (s->stop_told || !s->config->stop || !__atomic_load_n(s->config->stop, __ATOMIC_RELAXED)) return;
    s->stop_told = true;
    echi_sim_event(s, 0, ECHI_ROLE_NODE, &(struct echi_event){.type = ECHI_EVENT_STOP});
}

/* ------------------------------------------------------------------- stuck */

struct told { struct echi_sim *s; int rank, lines; struct echi_print sentence; };

static void tell_line(void *self, const char *line) {
    struct told *t = self;
    char text[560];
    struct echi_print p = {text, sizeof text, 0};
    echi_print(&p, "rank %d: %s", t->rank, line);
    echi_config_log(t->s->config, ECH_LOG_ERROR, "%s", text);
    if (t->lines++ < 3) echi_print(&t->sentence, "%s%.110s", t->lines > 1 ? "; " : "", text);
}

/* Nothing is due any more, and the run has not ended: who waits for whom, of every node to the log, of the first in the sentence. */
static void stuck(struct echi_sim *s) {
    char sentence[340] = "";
    struct told told = {.s = s, .sentence = {sentence, sizeof sentence, 0}};
    struct ech_config config = *s->config;
    const struct echi_node_config node = {.config = &config, .job = s->job};
    struct echi_node *n = calloc(1, sizeof *n);
    config.on_tell = tell_line;
    config.user = &told;
    for (int r = 0; n && r < s->world; r++) {
        const struct echi_sim_node *from = &s->node[r];
        if (from->dead) continue;
        told.rank = r;
        n->c = &node;
        n->job = s->job;
        n->rank = r;
        n->world = s->world;
        n->setup = from->setup;
        n->role = from->role;
        n->told_run.at = from->at;
        for (int i = 0; i < ECHI_FLIGHTS; i++) n->told_flight[i].at = from->at;
        echi_tell_roles(n, echi_sim_now(s));
    }
    free(n);
    echi_fail(s->err, ECH_E_TIMEOUT, "sim", "after %.6g s nothing moves any more, and the run has not ended: %s",
              (double)echi_sim_now(s) * 1e-9, sentence);
    echi_sim_end(s, ECH_E_TIMEOUT);
}

/* ----------------------------------------------------------------- the run */

static ech_status open_coordinator(struct echi_sim *s) {
    struct echi_plan_request request;
    struct echi_goal goal;
    ECHI_TRY(echi_plan_request_from(s->config, s->job, &request, s->err));
    ECHI_TRY(echi_curves_read(s->config, s->job, &request, s->err));
    ECHI_TRY(echi_goal_from(s->config, s->job, &request, &s->node[0].setup.plan, s->link, &goal, s->err));
    if (!s->real) goal.has_test = false;   /* there are no weights to look at */
    s->coordinator = calloc(1, sizeof *s->coordinator);
    if (!s->coordinator) return echi_fail_memory(s->err, "sim", "the coordinator");
    echi_coordinator_init(s->coordinator, &s->node[0].setup, &request, &goal, s->config->plan[0] != 0);
    s->node[0].role.coordinator = s->coordinator;
    return ECH_OK;
}

static void *from_heap(void *self, void *block, size_t size) {
    (void)self;
    if (size > 0) return realloc(block, size);
    free(block);
    return NULL;
}
const struct echi_supply echi_sim_heap = {from_heap, NULL};

static ech_status open_all(struct echi_sim *s) {
    const struct echi_cost_io io = {s->profile->message, s->profile->copy};
    double joined = 0;
    s->actions_room = ECHI_ACTIONS_MAX;
    s->node = calloc((size_t)s->world, sizeof *s->node);
    s->action = malloc((size_t)s->actions_room * sizeof *s->action);
    if (!s->node || !s->action) return echi_fail_memory(s->err, "sim", "the nodes");
    echi_records_init(&s->transits, sizeof(struct echi_transit), echi_sim_heap);
    echi_records_init(&s->posts, sizeof(struct echi_post), echi_sim_heap);
    echi_records_init(&s->tasks, sizeof(struct echi_sim_task), echi_sim_heap);
    s->cost = echi_cost_create(s->hosts, io, s->io_speed, s->config->seed, echi_sim_heap);
    if (!s->cost) return echi_fail_memory(s->err, "sim.cost", "the hosts");
    for (int r = 0; r < s->world; r++) {
        const struct echi_host *h = &s->hosts->host[r];
        echi_node_role_init(&s->node[r].role, &s->node[r].setup, r, s->world, false);
        if (h->joins > joined) joined = h->joins;
        if (h->dies >= 0) echi_cost_timer(s->cost, 1 + (int64_t)(h->dies * 1e9), r, echi_sim_timer(ECHI_SIM_DIES, (uint32_t)r));
        if (!s->real) continue;
        ECHI_TRY(echi_exec_create(s->job, "cpu", 1, echi_config_level(s->config), NULL, &s->node[r].exec, s->err));
        echi_exec_use_loans(s->node[r].exec, &s->node[r].role.loans);
    }
    echi_cost_timer(s->cost, 1 + (int64_t)(joined * 1e9), 0, echi_sim_timer(ECHI_SIM_READY, 0));
    return open_coordinator(s);
}

static void loop(struct echi_sim *s) {
    const uint64_t every = s->real ? CHECK_EVERY_REAL : CHECK_EVERY_COST;
    struct echi_happening what;
    for (uint64_t i = 1; !s->over && echi_cost_next(s->cost, &what); i++) {
        echi_sim_happened(s, &what);
        if (i % every == 0) check_stop(s);
        if (i % every == 0 || s->coordinator->evals != s->shown.evals) show_progress(s);
    }
    if (s->over) return;
    if (echi_cost_failed(s->cost)) echi_sim_no_memory(s);
    else stuck(s);
}

static void fill_report(const struct echi_sim *s, struct ech_report *r) {
    const struct echi_sim_node *first = &s->node[0];
    echi_report_run(r, s->coordinator, first->role.planned ? &first->setup.plan : NULL, s->job, 1, echi_sim_now(s));
    for (int k = 0; k < ECHI_KINDS; k++) r->kind_name[k] = echi_kind_name(k);
    r->kind_name[ECHI_KINDS] = "other";
    memcpy(r->bytes_sent, s->sent, sizeof s->sent);
    r->push_ratio = s->coded[1] ? (double)s->coded[0] / (double)s->coded[1] : 1;
    r->state_ratio = s->coded[3] ? (double)s->coded[2] / (double)s->coded[3] : 1;
    for (int i = 0; i < s->world; i++)
        if (s->node[i].role.head) r->head_repeats += s->node[i].role.head->repeats;
    r->simulated = 1;
    for (int i = 0; i < s->world; i++) {
        double seconds[ECHI_USES];
        for (int use = 0; use < ECHI_USES; use++) seconds[use] = 1e-9 * (double)s->node[i].role.usage.ns[use];
        echi_report_usage(r, i, seconds);
    }
    for (int i = 0; i < s->world; i++)
        if (s->node[i].role.worker) r->residuals_lost += s->node[i].role.worker->residuals_cleared;
}

static void close_all(struct echi_sim *s) {
    for (uint32_t id = 0; id < s->transits.count; id++) free(((struct echi_transit *)echi_records_at(&s->transits, id))->more);
    for (int r = 0; s->node && r < s->world; r++) {
        echi_exec_destroy(s->node[r].exec);
        free(s->node[r].role.worker);
        free(s->node[r].role.owner);
        free(s->node[r].role.head);
    }
    echi_records_free(&s->transits);
    echi_records_free(&s->posts);
    echi_records_free(&s->tasks);
    echi_channels_free(&s->channels);
    echi_cost_destroy(s->cost);
    free(s->coordinator);
    free(s->action);
    free(s->node);
}

ech_status echi_sim_run(const struct echi_sim_run *run, struct ech_report *report, struct ech_sim_counts *counts, struct ech_error *err) {
    struct ech_error own = {.peer = -1};
    struct echi_sim *s = calloc(1, sizeof *s);
    if (!s) return echi_fail_memory(err, "sim", "the simulated cluster");
    s->config = run->config;
    s->job = run->job;
    s->profile = run->profile;
    s->hosts = run->hosts;
    s->io_speed = run->io_speed;
    s->real = run->real;
    s->params = run->params;
    s->report = report;
    s->err = err ? err : &own;
    s->world = run->hosts->count;
    s->rank_died = -1;
    ech_status status = open_all(s);
    if (status == ECH_OK) {
        loop(s);
        status = s->status;
        fill_report(s, report);
        if (status == ECH_OK) status = echi_sim_memory(s, report, s->err);
        if (run->timeline) echi_sim_timeline(s->coordinator, run->timeline);
        if (s->real && s->node[0].role.planned && (status == ECH_OK || status == ECH_E_NOT_REACHED || status == ECH_E_ABORTED))
            memcpy(s->params, echi_exec_slot(s->node[0].exec, s->coordinator->whole, NULL), s->job->n_params * sizeof(echi_real));
        if (counts) *counts = (struct ech_sim_counts){echi_cost_events(s->cost), s->role_events};
    }
    close_all(s);
    free(s);
    return status;
}
