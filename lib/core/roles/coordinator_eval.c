/* SPDX-License-Identifier: Apache-2.0
 * Evaluations (PROTOCOL.md, "Evaluations"): all nodes hold, the newest weights come to rank 0, their accuracy is measured, and all
 * are released. The last one is behind the drain. Where rank 0's worker gets all weights of each round they are evaluated there. */
#include "echi_coordinator_impl.h"

/* The next evaluation is due at the first multiple of eval_every behind so many samples. */
void echi_eval_next_after(struct echi_coordinator *c, uint64_t samples) {
    const uint32_t every = c->goal.eval_every;
    c->next_eval = every ? (samples / every + 1) * every : UINT64_MAX;
}

void echi_eval_hold(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    echi_eval_next_after(c, c->applied);
    c->phase = ECHI_RUN_HOLDS;
    c->hold_began = now;
    tell_all(c, ECHI_KIND_HOLD, out);
    wait_for(c, living(c));
}

uint64_t echi_samples_at_head(const struct echi_coordinator *c) {
    if (!c->policy->rounds) return 0;
    return c->phase == ECHI_RUN_RESCUES ? c->rescue.samples : c->applied - c->goal.from.samples;
}

/* Places for the head's have a name of their own, and those for parts of shards one each. */
void echi_ask_copy(struct echi_coordinator *c, int rank, enum echi_role role, enum echi_ask what, uint8_t place, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    const struct echi_slot slot = {ECHI_SLOT_COORD_PARAMS, place};
    const int cut = echi_parts_before(&p->parts, c->setup->cut);
    const bool by_part = p->shards && role == ECHI_ROLE_OWNER && what != ECHI_ASK_MOMENTUM;
    c->part_from[place] = (uint16_t)rank;
    c->messages_out[place] = !by_part;
    for (int part = 0; part < cut && by_part; part++) {
        if (!echi_plan_owns_part(p, rank, part)) continue;
        echi_act_post_part(out, rank, ECHI_KIND_PARAMS, slot, part);
        c->messages_out[place]++;
    }
    if (role == ECHI_ROLE_HEAD) echi_act_post_part(out, rank, ECHI_KIND_PARAMS, slot, cut);
    else if (!by_part) echi_act_post(out, rank, ECHI_KIND_PARAMS, slot);
    struct echi_action *a = echi_act_send(out, rank, role, ECHI_ROLE_COORDINATOR, ECHI_KIND_ASK);
    a->msg.flag = (uint8_t)what;
    if (role == ECHI_ROLE_HEAD && what != ECHI_ASK_EVAL) a->msg.samples = echi_samples_at_head(c);
}

bool echi_copy_is_whole(struct echi_coordinator *c, const struct echi_event *e) {
    if (--c->messages_out[e->slot.index] > 0) return false;
    c->part_from[e->slot.index] = ECHI_NO_RANK;
    return true;
}

static enum echi_ask asked_as(const struct echi_coordinator *c) {
    return c->phase == ECHI_RUN_LAST_EVAL ? ECHI_ASK_LAST : ECHI_ASK_EVAL;
}

/* Are weights that an evaluation reads still to come? */
static bool gathers(const struct echi_coordinator *c) {
    return (c->phase == ECHI_RUN_EVALUATES || c->phase == ECHI_RUN_LAST_EVAL) && c->parts_out > 0;
}

/* The trunk of group 0, or of the fastest that is left; of several shards one after the other. */
void echi_eval_ask_trunk(struct echi_coordinator *c, int shard, struct echi_actions *out) {
    c->source = (uint16_t)echi_plan_shard_owner(plan_of(c), echi_plan_first_group(plan_of(c)), shard);
    echi_ask_copy(c, c->source, ECHI_ROLE_OWNER, asked_as(c), 1, out);
}

static void ask_head(struct echi_coordinator *c, struct echi_actions *out) {
    echi_ask_copy(c, plan_of(c)->head, ECHI_ROLE_HEAD, asked_as(c), 2, out);
}

void echi_eval_ask_new_head(struct echi_coordinator *c, struct echi_actions *out) {
    if (gathers(c) && c->part_from[2] != ECHI_NO_RANK && plan_of(c)->lost[c->part_from[2]]) ask_head(c, out);
}

/* The last round that was dealt is over wherever a lease of it was applied, though the coordinator may not have heard of all of them. */
bool echi_coordinator_evaluates_own(const struct echi_coordinator *c) {
    return echi_plan_evaluates_own(plan_of(c)) && !c->goal.give_final && c->applied > c->goal.from.samples;
}

/* Copies group 0's trunk and the head. The two may live on one node and answer in either order, so each is received in a
 * place of its own; the driver puts it where its sender's role says. */
void echi_eval_ask(struct echi_coordinator *c, enum echi_run_phase phase, struct echi_actions *out) {
    c->phase = phase;
    c->evaluated = false;
    if (echi_coordinator_evaluates_own(c)) {
        struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_WORKER, ECHI_ROLE_COORDINATOR, ECHI_KIND_ASK);
        a->msg.flag = ECHI_ASK_WHOLE;
        a->msg.samples = c->issued - c->goal.from.samples;
        c->parts_out = 1;
        return;
    }
    c->whole = (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0};   /* not that of a round which was lost since */
    c->parts_out = plan_of(c)->shards ? echi_living_owners(c) : 1;
    echi_eval_ask_trunk(c, 0, out);
    if (!plan_of(c)->cut) return;
    c->parts_out++;
    ask_head(c, out);
}

static void evaluate(struct echi_coordinator *c, struct echi_actions *out) {
    const bool fresh = c->goal.has_test && (c->evals == 0 || c->evaluated_at != c->applied || plan_of(c)->n_groups > 1);
    if (c->phase == ECHI_RUN_LAST_EVAL && !fresh) return echi_end_run(c, out);
    c->evaluated = true;
    c->evaluated_at = echi_coordinator_evaluates_own(c) ? c->issued : c->applied;
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_EVAL;
    t->role = ECHI_ROLE_COORDINATOR;
    t->weights = c->whole;
}

/* An owner of a shard is lost, and its copy will not come: training goes on, and the evaluation begins anew. */
static void give_up(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (c->phase == ECHI_RUN_LAST_EVAL) {
        c->train_ended = 0;
    } else {
        c->measuring += now - c->hold_began;
        c->next_eval = c->applied;
        tell_all(c, ECHI_KIND_RELEASE, out);
    }
    c->parts_out = 0;
    c->phase = ECHI_RUN_TRAINS;
}

void echi_eval_held(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (echi_plan_orphaned(plan_of(c))) give_up(c, now, out);
    else echi_eval_ask(c, ECHI_RUN_EVALUATES, out);
}

/* What living nodes were asked for still comes, and is waited for. */
void echi_eval_lost(struct echi_coordinator *c, int rank, int64_t now, struct echi_actions *out) {
    if (!gathers(c) || !echi_plan_orphaned(plan_of(c)) || (c->source != rank && !echi_coordinator_evaluates_own(c))) return;
    c->source = c->part_from[1] = ECHI_NO_RANK;
    give_up(c, now, out);
}

/* An answer to what was asked for before an owner was lost is not waited for any more. */
void echi_eval_whole(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    if (e->from != 0 || e->msg->flag != ECHI_ASK_WHOLE || e->msg->part >= ECHI_WORKER_PLACES)
        return echi_act_fault(out, ECH_E_FORMAT, "a node said that it has weights that nobody asked for");
    if (!gathers(c) || !echi_coordinator_evaluates_own(c) || e->msg->samples != c->issued - c->goal.from.samples) return;
    c->whole = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, e->msg->part};
    c->parts_out = 0;
    evaluate(c, out);
}

/* A copy that an evaluation waits for is here. Where it is an owner's the next owner is asked. */
void echi_eval_copy(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    int next = e->msg->from_role == ECHI_ROLE_OWNER ? echi_plan_shard_owned(plan_of(c), e->from) + 1 : 0;
    while (next > 0 && next < plan_of(c)->shards && !echi_plan_leads_shard(plan_of(c), 0, next)) next++;
    if (echi_plan_orphaned(plan_of(c))) return give_up(c, e->now, out);
    if (--c->parts_out == 0) evaluate(c, out);
    else if (next > 0 && next < plan_of(c)->shards) echi_eval_ask_trunk(c, next, out);
}

void echi_eval_done(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    c->accuracy = e->result->accuracy;
    if (c->accuracy > c->best_accuracy) c->best_accuracy = c->accuracy;
    c->evals++;
    if (c->goal.target_accuracy > 0 && c->accuracy >= c->goal.target_accuracy) {
        if (c->target_at < 0) {
            c->target_at = echi_coordinator_clock(c, e->now);
            c->target_samples = c->applied;
        }
        c->met = c->stopping = true;
    }
    if (c->phase == ECHI_RUN_LAST_EVAL) return echi_end_run(c, out);
    c->measuring += e->now - c->hold_began;
    c->evaluated = c->met || !echi_coordinator_evaluates_own(c);   /* the worker's are another round's soon */
    c->phase = ECHI_RUN_TRAINS;
    tell_all(c, ECHI_KIND_RELEASE, out);
}
