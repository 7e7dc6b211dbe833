/* SPDX-License-Identifier: Apache-2.0
 * A node is lost without which the run ends: before it does, the newest complete weights that are left come to rank 0 (PROTOCOL.md,
 * "Losses"). All are told of the loss and take nothing more from the lost node, and what they were asked
 * for before has come or never will, so that the places for parts are free. Then: an owner that lives has the newest; a lost
 * owner's weights of a round are with the workers that computed on them: all are asked how many samples are in theirs, and one
 * that has the most sends its copy. Nobody has a copy of a lost head: then the weights that were evaluated last are taken. */
#include "echi_coordinator_impl.h"

static bool is_worker(const struct echi_coordinator *c, int rank) {
    return !c->plan.lost[rank] && c->plan.group_of[rank] != ECHI_NONE;
}

/* False when there are none. */
static bool ask_workers(struct echi_coordinator *c, struct echi_actions *out) {
    c->rescue.from = ECHI_NO_RANK;
    c->rescue.samples = 0;
    c->waits_for = 0;
    for (int r = 0; r < plan_of(c)->world; r++) {
        c->mark[r] = !is_worker(c, r);
        if (c->mark[r]) continue;
        c->waits_for++;
        echi_act_send(out, r, ECHI_ROLE_WORKER, ECHI_ROLE_COORDINATOR, ECHI_KIND_ASK)->msg.flag = ECHI_ASK_NEWEST;
    }
    return c->waits_for > 0;
}

/* The head answers behind its last update, so that it is not a round behind the trunk. It is asked once it is certain that a trunk comes,
 * and of which round: else its newest layers would be put beside older ones. */
static void ask_head(struct echi_coordinator *c, struct echi_actions *out) {
    if (!c->rescue.head) echi_ask_copy(c, plan_of(c)->head, ECHI_ROLE_HEAD, ECHI_ASK_LAST, 2, out);
}

/* With shards it is written over what was evaluated last as it comes. */
static void ask_trunk(struct echi_coordinator *c, int rank, enum echi_role role, struct echi_actions *out) {
    c->rescue.from = (uint16_t)rank;
    c->evaluated = c->evaluated && plan_of(c)->shards == 0;
    echi_ask_copy(c, rank, role, ECHI_ASK_EVAL, 1, out);
}

/* What was evaluated last is what there is, if it is still whole. Always true: there is nothing to wait for. */
static bool nothing_newer(struct echi_coordinator *c) {
    c->final = c->evaluated;
    c->saved_samples = c->evaluated_at;
    return true;
}

/* All are told, and what is to be asked is asked, anew, once they know. */
static void tell(struct echi_coordinator *c, int rank, struct echi_actions *out) {
    c->members++;
    c->rescue.asked = false;
    c->waits_for = 0;
    for (int r = 0; r < plan_of(c)->world; r++) {
        c->mark[r] = plan_of(c)->lost[r] != 0;
        if (c->mark[r]) continue;
        c->waits_for++;
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_LOST);
        a->msg.peer = (uint16_t)rank;
        a->msg.members = c->members;
        a->msg.group = 1;
    }
}

/* A head that is held does not end its update. */
static void release(const struct echi_coordinator *c, struct echi_actions *out) {
    for (int r = 0; r < plan_of(c)->world; r++)
        if (!plan_of(c)->lost[r]) echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_RELEASE);
}

/* What a lost head had sent of its last round is at some of the others, or at none. */
static bool headless(const struct echi_plan *p) {
    for (int i = 0; i < echi_plan_heads(p); i++)
        if (p->lost[echi_plan_head_rank(p, i)]) return true;
    return false;
}

bool echi_rescue_begin(struct echi_coordinator *c, int rank, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    const bool evaluates = (c->phase == ECHI_RUN_EVALUATES || c->phase == ECHI_RUN_LAST_EVAL) && c->parts_out == 0;
    if (c->phase < ECHI_RUN_TRAINS || c->goal.give_final) return false;   /* in a session each node has what it computed on last */
    c->plan.lost[rank] = 1;
    if (c->met || evaluates || headless(p) || c->policy->local) {   /* under `local` a worker may be in the middle of taking weights over */
        nothing_newer(c);
        return false;
    }
    if (c->phase == ECHI_RUN_HOLDS || c->phase == ECHI_RUN_EVALUATES) release(c, out);
    c->phase = ECHI_RUN_RESCUES;
    c->rescue.trunk = false;
    c->rescue.head = !p->cut;
    tell(c, rank, out);
    return true;
}

/* Once the places for parts are free. True when there is nobody to ask. */
static bool ask(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    const int first = echi_plan_first_group(p);
    for (int place = 1; place <= 2; place++)
        if (c->part_from[place] != ECHI_NO_RANK && !p->lost[c->part_from[place]]) return false;
    if (c->waits_for > 0 || c->rescue.asked) return false;
    c->rescue.asked = true;
    /* Of several shards, some may be a round further on: each worker has all parts of one round. */
    if (!c->rescue.trunk && (p->shards || !echi_plan_group_lives(p, first))) return !ask_workers(c, out) && nothing_newer(c);
    if (c->rescue.trunk) ask_head(c, out);
    else ask_trunk(c, p->owner_of[first], ECHI_ROLE_OWNER, out);
    return false;
}

/* Weights with all samples up to some place in the data, as those of a round, are one from which training goes on; momentum starts at
 * zero. Without rounds they lack some samples before that place. */
static bool keep(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    const uint64_t samples = c->saved_samples;
    if (!c->goal.keep || !c->policy->rounds || (c->kept_samples != UINT64_MAX && samples <= c->kept_samples)) return false;
    c->standing = (struct echi_standing){.epoch = (uint32_t)(samples / c->goal.train_samples),
        .start = (uint32_t)(samples % c->goal.train_samples), .samples = samples, .evals = c->evals,
        .clock = echi_coordinator_clock(c, now), .measuring = c->measuring, .keeping = c->keeping, .accuracy = -1,
        .best_accuracy = c->best_accuracy, .loss = c->loss_of_run, .target_at = c->target_at, .target_samples = c->target_samples};
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_KEEP;
    t->role = ECHI_ROLE_COORDINATOR;
    t->weights = c->whole;
    c->writing = true;
    return true;
}

/* True when nothing is left to wait for. */
static bool go_on(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (!c->rescue.trunk || !c->rescue.head || c->writing) return false;
    if (c->final) return true;   /* and the checkpoint is written, or could not be */
    c->final = true;
    c->accuracy = -1;   /* nobody has evaluated them */
    return !keep(c, now, out);
}

/* The newest are those of rank 0's worker, which does nothing more: they stay where they are. */
static bool take_own(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    c->whole = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, c->rescue.place};
    c->evaluated = false;
    c->rescue.trunk = true;
    c->saved_samples = c->goal.from.samples + c->rescue.samples;
    return go_on(c, now, out);
}

/* All have said that they know of the loss, or how new their weights are. */
static bool all_have_answered(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (!c->rescue.asked) return ask(c, out);
    if (c->rescue.samples == 0) return nothing_newer(c);   /* nobody is left, or nobody has any that were trained */
    if (c->rescue.from == 0 && echi_plan_evaluates_own(plan_of(c))) return take_own(c, now, out);
    ask_head(c, out);
    ask_trunk(c, c->rescue.from, ECHI_ROLE_WORKER, out);
    return false;
}

static bool has_answered(struct echi_coordinator *c, int rank, int64_t now, struct echi_actions *out) {
    if (c->mark[rank]) return false;
    c->mark[rank] = true;
    return --c->waits_for == 0 && all_have_answered(c, now, out);
}

/* A part is here; some were asked for before the loss, or before another. */
static bool on_part(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (!echi_copy_is_whole(c, e)) return false;
    if (m->flag == ECHI_PARAMS_PART) {
        c->evaluated = false;   /* a part of it is another now */
        if (m->from_role == ECHI_ROLE_HEAD) {
            c->rescue.head = c->rescue.asked;   /* what an evaluation asked for may be a round behind the trunk */
        } else if (m->from_role == ECHI_ROLE_WORKER || (c->rescue.asked && e->from == c->rescue.from)) {
            if (echi_plan_evaluates_own(plan_of(c))) c->whole = (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 1};
            c->rescue.trunk = true;
            c->saved_samples = c->goal.from.samples + m->samples;
            c->rescue.samples = m->samples;
            if (m->from_role == ECHI_ROLE_OWNER) ask_head(c, out);
        }
    }
    return go_on(c, e->now, out) || (!c->final && ask(c, out));
}

static bool on_message(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (c->plan.lost[e->from]) return false;
    switch (m->kind) {
    case ECHI_KIND_READY: return !c->rescue.asked && m->members == c->members && has_answered(c, e->from, e->now, out);
    case ECHI_KIND_ASK:
        if (!c->rescue.asked || c->mark[e->from] || m->flag != ECHI_ASK_NEWEST) return false;
        if (m->samples > c->rescue.samples || (e->from == 0 && m->samples > 0 && m->samples == c->rescue.samples)) {
            c->rescue.samples = m->samples;
            c->rescue.from = e->from;
            c->rescue.place = m->part;
        }
        return has_answered(c, e->from, e->now, out);
    case ECHI_KIND_PARAMS: return on_part(c, e, out);
    default: return false;
    }
}

/* One more is lost. */
static bool on_lost(struct echi_coordinator *c, int rank, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    if (p->lost[rank]) return false;
    c->plan.lost[rank] = 1;
    if (headless(p) && !c->rescue.head) return nothing_newer(c);
    if (!c->rescue.trunk || !c->rescue.head) tell(c, rank, out);
    return false;
}

bool echi_rescue_step(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    switch (e->type) {
    case ECHI_EVENT_MESSAGE: return on_message(c, e, out);
    case ECHI_EVENT_LOST: return on_lost(c, e->from, out);
    case ECHI_EVENT_TIME: return c->wake_at != 0 && e->now >= c->wake_at && (c->final || nothing_newer(c));   /* not another's alarm */
    case ECHI_EVENT_COMPUTED:
        if (e->task->kind != ECHI_TASK_KEEP) return false;
        echi_keep_done(c, e);
        return go_on(c, e->now, out);
    default: return false;
    }
}
