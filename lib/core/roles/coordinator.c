/* SPDX-License-Identifier: Apache-2.0
 * The coordinator: membership, the plan, the clock of looks and the end of a run. Its ledger is in ledger.c. */
#include "echi_ledger.h"

#include <string.h>

static const struct echi_plan *plan_of(const struct echi_coordinator *c) { return &c->plan; }
static bool lost(const struct echi_coordinator *c, int rank) { return c->plan.lost[rank]; }
static int living(const struct echi_coordinator *c) { return c->wishes.world - c->n_lost; }
static int living_owners(const struct echi_coordinator *c) {
    int count = 0;
    for (int g = 0; g < c->plan.n_groups; g++)
        for (int k = 0; k < echi_plan_shards(&c->plan) && echi_plan_group_lives(&c->plan, g); k++)
            count += !c->plan.shards || echi_plan_leads_shard(&c->plan, g, k);
    return count;
}

/* The next evaluation is due at the first multiple of eval_every behind so many samples. */
static void next_look_after(struct echi_coordinator *c, uint64_t samples) {
    const uint32_t every = c->goal.eval_every;
    c->next_look = every ? (samples / every + 1) * every : UINT64_MAX;
}

/* What a checkpoint kept is the beginning of this run. A round's number counts from the resume. */
static void stand_on(struct echi_coordinator *c, const struct echi_standing *s) {
    c->epoch = s->epoch;
    c->start = s->start;
    c->issued = c->applied = c->kept_samples = s->samples;
    c->looks = s->looks;
    c->measuring = s->measuring;
    c->keeping = s->keeping;
    c->accuracy = s->accuracy;
    c->best_accuracy = s->best_accuracy;
    c->loss_of_run = s->loss;
    next_look_after(c, c->applied);
    /* The target may be another than it was. A checkpoint holds the weights behind a drain, and not those that reached the target: so
     * what is here is evaluated before anything is trained. */
    if (c->goal.target_accuracy <= 0 || s->best_accuracy < c->goal.target_accuracy) return;
    c->target_at = s->target_at >= 0 ? s->target_at : s->clock;
    c->target_samples = s->target_at >= 0 ? s->target_samples : s->samples;
    c->next_look = c->applied;
}

void echi_coordinator_init(struct echi_coordinator *c, struct echi_setup *setup, const struct echi_wishes *wishes,
                           const struct echi_goal *goal, bool plan_given) {
    memset(c, 0, offsetof(struct echi_coordinator, times));
    c->setup = setup;
    c->wishes = *wishes;
    c->goal = *goal;
    c->plan_given = plan_given;
    c->next_lease = 1;
    next_look_after(c, 0);
    c->lost_peer = c->at_fault = -1;
    c->choice.useless = -1;
    c->work.between = NULL;
    c->source = c->part_from[1] = c->part_from[2] = ECHI_NO_RANK;
    c->calm = true;
    c->target_at = -1;
    c->accuracy = c->best_accuracy = -1;
    c->next_keep = c->kept_samples = UINT64_MAX;
    for (int r = 0; r < wishes->world; r++) {
        c->times[r] = (struct echi_times){0};
        c->ready[r] = 0;
        c->in_at[r] = -1;
        c->arriving[r] = false;
        c->paused[r] = 0;
        c->asked[r] = false;
        c->stopped[r].members = c->stopped_owner[r].members = 0;
    }
    echi_regroup_init(&c->regroup, wishes->world, wishes->regroup_after);
    echi_ledger_begin(c);
    if (goal->resumed) stand_on(c, &goal->from);
}

int64_t echi_coordinator_clock(const struct echi_coordinator *c, int64_t now) {
    const struct echi_standing *from = &c->goal.from;
    if (c->train_began == 0) return from->clock;
    int64_t at = c->train_ended ? c->train_ended : now, held = c->measuring - from->measuring + c->keeping - from->keeping;
    if (c->phase == ECHI_RUN_HOLDS || c->phase == ECHI_RUN_LOOKS) held += now - c->hold_began;
    if (c->phase == ECHI_RUN_QUIETS || c->phase == ECHI_RUN_GATHERS) held += now - c->keep_began;
    return from->clock + at - c->train_began - held;
}

/* ---- asking all and waiting for each ---- */

static void tell_all(struct echi_coordinator *c, enum echi_kind kind, struct echi_actions *out) {
    for (int r = 0; r < c->wishes.world; r++)
        if (!lost(c, r)) echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, kind);
}

static void wait_for(struct echi_coordinator *c, int answers) {
    memset(c->mark, 0, sizeof c->mark);
    memset(c->quiet, 0, sizeof c->quiet);
    c->waits_for = answers;
}

/* True when this was the last answer; each node counts once. */
static bool last_answer(struct echi_coordinator *c, int from) {
    if (c->mark[from]) return false;
    c->mark[from] = true;
    return --c->waits_for == 0;
}

/* The run is over for `rank`, and not as it was asked for. */
static void send_end(struct echi_actions *out, int rank, ech_status status, int peer, const char *text) {
    struct echi_action *a = echi_act_send(out, rank, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_END);
    a->msg.layer = (uint16_t)status;
    a->msg.peer = peer < 0 ? ECHI_NO_RANK : (uint16_t)peer;
    memcpy(a->msg.text, text, strlen(text));
}

/* All that are left hear why the run ends. */
static void end_failed(struct echi_coordinator *c, struct echi_actions *out) {
    const int peer = c->lost_peer >= 0 ? c->lost_peer : c->at_fault;
    c->phase = ECHI_RUN_ENDED;
    for (int r = 1; r < c->wishes.world; r++)
        if (!lost(c, r) && r != c->lost_peer) send_end(out, r, c->status, peer, c->text);
    echi_act(out, ECHI_ACTION_DONE);
}

static void fail(struct echi_coordinator *c, ech_status status, int peer, const char *text, struct echi_actions *out) {
    if (c->phase == ECHI_RUN_ENDED) return;
    c->status = status;
    const bool gone = status == ECH_E_PEER_LOST || status == ECH_E_TIMEOUT;
    c->lost_peer = gone ? peer : -1;
    c->at_fault = gone ? -1 : peer;
    memcpy(c->text, text, strlen(text) < sizeof c->text ? strlen(text) + 1 : sizeof c->text);
    c->text[sizeof c->text - 1] = 0;
    if (gone && peer > 0) send_end(out, peer, status, peer, c->text);   /* it may be alive, and not know why */
    if (!gone || !echi_rescue_begin(c, peer, out)) end_failed(c, out);
}

/* ---- start: times, plan, first weights ---- */

static void lose(struct echi_coordinator *c, int rank, ech_status status, const char *text, int64_t now, struct echi_actions *out);

static void make_plan(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (!c->plan_given) {
        char text[240];
        ech_status status = echi_plan_choose(&c->wishes, c->times, &c->work, &c->setup->plan, &c->choice, text, sizeof text);
        if (status != ECH_OK) return fail(c, status, -1, text, out);
    } else {
        echi_plan_parts(&c->wishes, c->times, &c->setup->plan);
        echi_plan_judge(&c->wishes, c->times, &c->setup->plan, &c->work, &c->choice);
    }
    if (!c->plan_given && c->wishes.regroup_after > 0) echi_plan_add_reserve(&c->wishes, c->times, &c->setup->plan);
    echi_plan_parts(&c->wishes, c->times, &c->setup->plan);
    c->setup->plan.resumed = c->goal.resumed;
    c->plan = c->setup->plan;
    memset(c->plan.lost, 0, sizeof c->plan.lost);
    c->policy = echi_policy_of((enum echi_sync)plan_of(c)->sync);
    echi_ledger_planned(c);
    c->phase = ECHI_RUN_PLANNED;
    echi_act(out, ECHI_ACTION_PLAN);
    wait_for(c, c->wishes.world);
    for (int r = 0; r < c->wishes.world; r++)   /* whom the plan leaves out, unless it came from a file */
        if (c->wishes.absent[r] && c->phase == ECHI_RUN_PLANNED)
            lose(c, r, ECH_E_PEER_LOST, "it left while step times were measured", now, out);
}

static void send_params(struct echi_action *a, enum echi_params what, struct echi_slot slot) {
    a->slot = slot;
    a->msg.flag = (uint8_t)what;
}

/* First weights and, in a resumed run, the momentum of group `g`. */
static void feed_one(struct echi_coordinator *c, int rank, enum echi_role role, int g, struct echi_actions *out) {
    send_params(echi_act_send(out, rank, role, ECHI_ROLE_COORDINATOR, ECHI_KIND_PARAMS), ECHI_PARAMS_PART,
                (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0});
    if (c->goal.resumed)
        send_params(echi_act_send(out, rank, role, ECHI_ROLE_COORDINATOR, ECHI_KIND_PARAMS), ECHI_PARAMS_MOMENTUM,
                    (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)(1 + g)});
}

static void feed(struct echi_coordinator *c, struct echi_actions *out) {
    c->phase = ECHI_RUN_FEEDS;
    const struct echi_plan *p = plan_of(c);
    const int shards = echi_plan_shards(p);
    for (int g = 0; g < p->n_groups; g++)
        for (int k = 0; k < shards; k++) feed_one(c, echi_plan_shard_owner(p, g, k), ECHI_ROLE_OWNER, g, out);
    if (p->separated) feed_one(c, p->head, ECHI_ROLE_HEAD, 0, out);
    /* Each says that it has started, and what it is sent leaves its slot, which looks and checkpoints will write. */
    c->waits_for = (2 + c->goal.resumed) * (p->n_groups * shards + p->separated);
}

static void fed(struct echi_coordinator *c, int64_t now) {
    if (c->phase != ECHI_RUN_FEEDS || --c->waits_for > 0) return;
    c->phase = ECHI_RUN_TRAINS;
    c->train_began = now;
    echi_keep_begin(c);
}

/* ---- looks ---- */

static void hold(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    next_look_after(c, c->applied);
    c->phase = ECHI_RUN_HOLDS;
    c->hold_began = now;
    tell_all(c, ECHI_KIND_HOLD, out);
    wait_for(c, living(c));
}

static uint8_t asked_as(const struct echi_coordinator *c) { return c->phase == ECHI_RUN_LAST_LOOK ? ECHI_ASK_LAST : ECHI_ASK_LOOK; }

/* The trunk of group 0, or of the fastest that is left; of several shards one after the other. */
static void ask_trunk(struct echi_coordinator *c, int shard, uint16_t place, struct echi_actions *out) {
    c->source = (uint16_t)echi_plan_shard_owner(plan_of(c), echi_plan_first_group(plan_of(c)), shard);
    c->part_from[place] = c->source;
    echi_act_post(out, c->source, ECHI_KIND_PARAMS, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, place});
    echi_act_send(out, c->source, ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_ASK)->msg.flag = asked_as(c);
}

/* Copies group 0's trunk and the head. The two may live on one node and answer in either order, so each is received in a
 * place of its own; the driver puts it where its sender's role says. */
static void ask(struct echi_coordinator *c, enum echi_run_phase phase, struct echi_actions *out) {
    c->phase = phase;
    c->evaluated = false;
    c->parts_out = plan_of(c)->shards ? living_owners(c) : 1;
    ask_trunk(c, 0, 1, out);
    if (plan_of(c)->separated) {
        c->parts_out++;
        c->part_from[2] = plan_of(c)->head;
        echi_act_post(out, plan_of(c)->head, ECHI_KIND_PARAMS, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 2});
        echi_act_send(out, plan_of(c)->head, ECHI_ROLE_HEAD, ECHI_ROLE_COORDINATOR, ECHI_KIND_ASK)->msg.flag = asked_as(c);
    }
}

static void end(struct echi_coordinator *c, struct echi_actions *out) {
    c->phase = ECHI_RUN_ENDS;
    c->final = true;
    if (c->status == ECH_OK && c->goal.target_accuracy > 0 && !c->met) c->status = ECH_E_NOT_REACHED;
    for (int r = 0; r < c->wishes.world; r++) {
        if (lost(c, r)) continue;
        if (r > 0 && c->goal.give_final)
            send_params(echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_PARAMS), ECHI_PARAMS_FINAL,
                        (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0});
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_END);
        a->msg.layer = (uint16_t)c->status;
        a->msg.peer = ECHI_NO_RANK;
        a->msg.flag = 1;
    }
    wait_for(c, living(c));
}

static void look(struct echi_coordinator *c, struct echi_actions *out) {
    const bool fresh = c->goal.has_test && (c->looks == 0 || c->looked_at != c->applied || plan_of(c)->n_groups > 1);
    if (c->phase == ECHI_RUN_LAST_LOOK && !fresh) return end(c, out);
    c->evaluated = true;
    c->looked_at = c->applied;
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_EVAL;
    t->role = ECHI_ROLE_COORDINATOR;
    t->weights = (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0};
}

/* An owner of a shard is lost, and its copy will not come: training goes on, and the evaluation begins anew. */
static void give_up_look(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (c->phase == ECHI_RUN_LAST_LOOK) {
        c->train_ended = 0;
    } else {
        c->measuring += now - c->hold_began;
        c->next_look = c->applied;
        tell_all(c, ECHI_KIND_RELEASE, out);
    }
    c->parts_out = 0;
    c->phase = ECHI_RUN_TRAINS;
}

static void all_held(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (echi_plan_orphaned(plan_of(c))) give_up_look(c, now, out);
    else ask(c, ECHI_RUN_LOOKS, out);
}

/* What living nodes were asked for still comes, and is waited for. */
static void look_lost(struct echi_coordinator *c, int rank, int64_t now, struct echi_actions *out) {
    const bool gathers = (c->phase == ECHI_RUN_LOOKS || c->phase == ECHI_RUN_LAST_LOOK) && c->parts_out > 0;
    if (!gathers || !echi_plan_orphaned(plan_of(c)) || c->source != rank) return;
    c->source = c->part_from[1] = ECHI_NO_RANK;
    give_up_look(c, now, out);
}

/* A copy that an evaluation waits for is here. The next is asked for into the place that is free: to the other the head may still answer,
 * which may be on that node. */
static void on_copy_of_look(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    int next = e->msg->from_role == ECHI_ROLE_OWNER ? echi_plan_shard_owned(plan_of(c), e->from) + 1 : 0;
    while (next > 0 && next < plan_of(c)->shards && !echi_plan_leads_shard(plan_of(c), 0, next)) next++;
    if (echi_plan_orphaned(plan_of(c))) return give_up_look(c, e->now, out);
    if (--c->parts_out == 0) look(c, out);
    else if (next > 0 && next < plan_of(c)->shards) ask_trunk(c, next, e->slot.index, out);
}

static void looked(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    c->accuracy = e->result->accuracy;
    if (c->accuracy > c->best_accuracy) c->best_accuracy = c->accuracy;
    c->looks++;
    if (c->goal.target_accuracy > 0 && c->accuracy >= c->goal.target_accuracy) {
        if (c->target_at < 0) {
            c->target_at = echi_coordinator_clock(c, e->now);
            c->target_samples = c->applied;
        }
        c->met = c->stopping = true;
    }
    if (c->phase == ECHI_RUN_LAST_LOOK) return end(c, out);
    c->measuring += e->now - c->hold_began;
    c->phase = ECHI_RUN_TRAINS;
    tell_all(c, ECHI_KIND_RELEASE, out);
}

/* ---- progress ---- */

static bool all_settled(const struct echi_coordinator *c) {
    for (int g = 0; g < c->plan.n_groups; g++)
        if (c->frozen[g].lost && !c->frozen[g].settled) return false;
    return true;
}

void echi_drain(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    for (int g = 0; g < p->n_groups; g++)
        for (int k = 0; k < echi_plan_shards(p) && echi_plan_group_lives(p, g); k++)
            if (!p->shards || echi_plan_leads_shard(p, g, k))
                echi_act_send(out, echi_plan_shard_owner(p, g, k), ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_DRAIN)->msg.members =
                c->members;
    wait_for(c, living_owners(c));
}

/* ---- moves (PROTOCOL.md, "Regrouping") ----
 * Told like a loss: no lease is dealt before every living node has said READY, so that none overtakes the word that it names a new
 * owner. Owners stay who they are, the reserve's too, so no state freezes. */

bool echi_coordinator_move(struct echi_coordinator *c, int rank, int group, struct echi_actions *out) {
    struct echi_plan *p = &c->plan;
    if (c->phase != ECHI_RUN_TRAINS || !c->calm || !all_settled(c) || c->policy->rounds) return false;
    if (!echi_plan_may_move(p, rank, group) || p->group_of[rank] == group || c->arriving[rank] || !echi_ledger_has_moved(c, rank))
        return false;
    echi_plan_move(p, rank, group);
    echi_ledger_moved(c, rank);
    c->arriving[rank] = true;
    c->moves++;
    c->members++;
    c->calm = false;
    for (int r = 0; r < c->wishes.world; r++) {
        if (lost(c, r)) continue;
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_REGROUP);
        a->msg.peer = (uint16_t)rank;
        a->msg.group = (uint8_t)group;
        a->msg.members = c->members;
    }
    return true;
}

/* Is a move worth it by what links carry as well, where all are known? By the times of its steps alone a worker beside its owner is
 * fast, and others of its group are slow because of the link that they share; neither would be so elsewhere. */
static bool is_worth_it(struct echi_coordinator *c, const struct echi_change *change) {
    struct echi_plan *plan = &c->work.tried;
    struct echi_times *t = &c->times[change->rank];
    const struct echi_times was = *t;
    const uint32_t n = c->size[change->rank];
    struct echi_prediction here, there;
    *plan = *plan_of(c);
    for (int r = 0; r < plan->world; r++) {
        if (lost(c, r) || c->wishes.absent[r] || (plan->group_of[r] != ECHI_NONE && !echi_link_known(&c->times[r].link))) return true;
        plan->n[r] = c->size[r];
    }
    /* It computes as it does now. */
    const double usual = plan->separated ? echi_times_trunk(t, n) : echi_times_whole(t, n);
    const double slower = echi_regroup_computes(&c->regroup, change->rank) / usual;
    for (uint32_t i = 0; i < t->count; i++) {
        t->trunk[i] *= slower;
        t->head[i] *= slower;
    }
    echi_predict(plan, c->times, &c->wishes.load, 0, &c->work.predict, &here);
    plan->group_of[change->rank] = (uint8_t)change->to;
    echi_predict(plan, c->times, &c->wishes.load, 0, &c->work.predict, &there);
    *t = was;
    return there.rate > here.rate * (1 + (change->from == echi_plan_reserve(plan) ? -ECHI_REGROUP_GAIN : ECHI_REGROUP_GAIN));
}

/* What a step took, by its worker's word; not what a look or a checkpoint did, nor a step of another size. */
static void watch_speed(struct echi_coordinator *c, const struct echi_msg *m) {
    const int rank = m->lease.worker, group = c->plan.group_of[rank];
    const int64_t paused = c->measuring + c->keeping;
    const bool same = c->paused[rank] == paused;
    c->paused[rank] = paused;
    if (m->lease.owner != c->plan.owner_of[group]) return;
    c->arriving[rank] = false;
    if (c->wishes.regroup_after <= 0 || !c->policy->grouped || !same || m->lease.n != c->size[rank] || m->compute >> 62 ||
        m->exchange >> 62)
        return;
    struct echi_change change = echi_regroup_step(&c->regroup, &c->plan, c->size, rank, &c->times[rank], (double)m->compute,
                                                  (double)m->exchange);
    if (change.kind == ECHI_CHANGE_GROUP && !is_worth_it(c, &change)) {
        echi_regroup_refused(&c->regroup, change.rank);
        change.kind = ECHI_CHANGE_NONE;
    }
    if (change.kind != ECHI_CHANGE_NONE) c->change = change;
    else if (c->change.rank == rank) c->change.kind = ECHI_CHANGE_NONE;
}

/* Does the change that is due, if it can be now. True when all nodes are being told. */
static bool regroup(struct echi_coordinator *c, struct echi_actions *out) {
    if (c->change.kind == ECHI_CHANGE_NONE || !echi_ledger_unfinished(c)) return false;
    const struct echi_change change = c->change;
    const bool moves = change.kind == ECHI_CHANGE_GROUP;
    if (moves && !echi_coordinator_move(c, change.rank, change.to, out)) return false;
    if (!moves) {
        c->size[change.rank] = change.n;
        c->sizes++;
    }
    c->told = change;
    c->change.kind = ECHI_CHANGE_NONE;
    echi_regroup_done(&c->regroup, &c->plan, &change);
    return moves;
}

static void next(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    if (c->phase != ECHI_RUN_TRAINS) return;
    if (echi_takeover(c, out)) return;
    if (c->goal.has_test && !c->met && c->applied >= c->next_look) return hold(c, e->now, out);
    if (!c->calm || regroup(c, out)) return;
    echi_ledger_deal(c, out);
    if (c->n_out > 0 || c->n_again > 0 || !all_settled(c) || echi_keep_quiet(c, e->now, out)) return;
    c->phase = ECHI_RUN_DRAINS;
    echi_drain(c, out);
}

/* An orderly end: what is out is trained, the last look taken, and all of it kept. */
static void stop(struct echi_coordinator *c, struct echi_actions *out) {
    if (c->phase < ECHI_RUN_TRAINS) return fail(c, ECH_E_ABORTED, -1, "the run was stopped before training began", out);
    if (c->met || c->phase >= ECHI_RUN_DRAINS) return;   /* it ends by itself, with all that it was to do */
    c->stopping = true;
    c->status = ECH_E_ABORTED;
}

/* The loss that the report gives leans on the last hundred or so, of which this is `times`. */
static void note_loss(struct echi_coordinator *c, double of_a_sample, double times) {
    const double part = 0.01 * times < 1 ? 0.01 * times : 1;
    c->loss_of_run += c->loss_of_run == 0 ? of_a_sample : part * (of_a_sample - c->loss_of_run);
}

/* How long a worker takes from one push to the next, whatever it waits for: by group, since groups are what goes at its own pace. */
static void note_iteration(struct echi_coordinator *c, const struct echi_lease *l, int64_t now) {
    const int group = echi_plan_group_owned(plan_of(c), l->owner);
    const int64_t clock = echi_coordinator_clock(c, now), before = c->in_at[l->worker];
    c->in_at[l->worker] = clock;
    if (before < 0 || group < 0) return;
    c->iterated[group] += (double)(clock - before);
    c->iterations[group]++;
}

static void on_applied(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    struct echi_msg told = *e->msg, *m = &told;
    if (m->lease.id < c->takeover.first_lease) return;   /* of before a takeover: its round is dealt anew, where it is not in */
    if (!echi_ledger_in(c, m, e->from))
        return echi_act_fault(out, ECH_E_FORMAT, "an owner applied a lease that is not out");
    if (echi_plan_shard_owned(plan_of(c), e->from) > 0) return;   /* the loss came with part 0 */
    note_iteration(c, &m->lease, e->now);
    watch_speed(c, m);
    c->loss_sum += m->loss;
    if (c->policy->rounds) {   /* whoever did which part */
        c->round_loss += m->loss;
        c->round_in += m->lease.n;
        if (c->round_in >= m->lease.round_size) {
            /* A round of `local` is many steps of each worker. */
            note_loss(c, c->round_loss / c->round_in, c->policy->local ? (double)c->round_in / plan_of(c)->round : 1);
            c->round_loss = c->round_in = 0;
        }
    } else {
        note_loss(c, m->loss / m->lease.n, 1);
    }
    c->loss_samples += m->lease.n;
    c->stale_sum += m->staleness;
    c->stale_count++;
    c->stale_of_run += m->staleness;
    c->stale_of_run_count++;
    if (m->staleness > c->stale_max) c->stale_max = m->staleness;
    c->trunk_bins[echi_staleness_bin(m->staleness)]++;
    if (!plan_of(c)->separated) return;
    if (m->head > c->head_newest) c->head_newest = m->head;
    c->head_bins[echi_staleness_bin((double)(c->head_newest - m->head) / plan_of(c)->round)]++;
}

/* Once: a checkpoint that is being written is waited for, and what it lacks is kept by another. Weights that met the target are the run's,
 * whatever the drain has done to the owners' since; the checkpoint has the owners', with which training can go on. */
static void end_drained(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (echi_keep_gather(c, now, out)) return;
    if (c->met) end(c, out);
    else ask(c, ECHI_RUN_LAST_LOOK, out);
}

static void all_said(struct echi_coordinator *c, int from, struct echi_actions *out) {
    if (c->phase != ECHI_RUN_ENDS || !last_answer(c, from)) return;
    c->phase = ECHI_RUN_ENDED;
    echi_act(out, ECHI_ACTION_DONE);
}

/* ---- losses (PROTOCOL.md, "Losses") ----
 * All living nodes are told, and say when they take nothing more from the lost one (READY with the new membership epoch). Only
 * then owners are asked what is in, and leases are dealt again: what a node says afterwards cannot be overtaken. */

/* Does every living owner's word on the group's last state stand? */
static bool all_known(const struct echi_coordinator *c, const struct echi_frozen *f) {
    for (int g = 0; g < c->plan.n_groups; g++)
        if (echi_plan_group_lives(&c->plan, g) && !f->known[g]) return false;
    return true;
}

static bool all_have(const struct echi_coordinator *c, const struct echi_frozen *f) {
    for (int g = 0; g < c->plan.n_groups; g++)
        if (echi_plan_group_lives(&c->plan, g) && f->have[g] != f->version) return false;
    return true;
}

/* An owner's copy of a lost group's state. The highest version is kept; its holder hands it to all. */
static void on_copy(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const int teller = echi_plan_group_owned(&c->plan, e->from);
    if (m->group >= c->plan.n_groups || m->members != c->members || teller < 0) return;
    struct echi_frozen *f = &c->frozen[m->group];
    if (!f->lost || f->settled) return;
    f->known[teller] = true;
    f->have[teller] = m->version;
    if (!f->decided && (f->holder == ECHI_NO_RANK || m->version > f->version)) {
        f->holder = e->from;
        f->version = m->version;
        echi_marks_get(m->marks, f->mark, c->wishes.world);
    }
    if (!all_known(c, f)) return;
    const bool news = !f->decided;
    if (news) echi_ledger_decide(c, c->plan.owner_of[m->group], f->mark);
    f->decided = true;
    if (all_have(c, f)) {
        f->settled = true;
        echi_ledger_settled(c, c->plan.owner_of[m->group]);
        return;
    }
    for (int g = 0; g < c->plan.n_groups && news; g++) {
        if (!echi_plan_group_lives(&c->plan, g)) continue;
        struct echi_action *a = echi_act_send(out, c->plan.owner_of[g], ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_REVOKE);
        a->msg.group = m->group;
        a->msg.peer = f->holder;
    }
}

static void on_revoked(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    if (e->msg->from_role == ECHI_ROLE_WORKER) echi_ledger_back(c, &e->msg->lease, e->from);
    else if (e->msg->lease.id == 0) on_copy(c, e, out);
    else if (e->msg->flag != ECHI_REVOKED_DROPPED) echi_ledger_answer(c, &e->msg->lease, e->from, e->msg->flag == ECHI_REVOKED_IN);
    else if (plan_of(c)->drop_older <= 0 || !echi_ledger_dropped(c, &e->msg->lease, e->from))
        echi_act_fault(out, ECH_E_FORMAT, "an owner dropped a lease that is not out");
}

/* A node knows of all losses up to an epoch. */
static void on_ready(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    c->ready[e->from] = e->msg->members;
    for (int r = 0; r < c->wishes.world; r++)
        if (!lost(c, r) && c->ready[r] != c->members) return;
    c->calm = true;
    echi_ledger_ask(c, out);
    if (c->source != ECHI_NO_RANK && lost(c, c->source)) ask_trunk(c, 0, 1, out);   /* with shards it begins anew (look_lost) */
}

/* The states that are not agreed on yet: who holds what is asked again. */
static void doubt(struct echi_coordinator *c, int rank) {
    for (int g = 0; g < c->plan.n_groups; g++) {
        struct echi_frozen *f = &c->frozen[g];
        if (!f->lost || f->settled) continue;
        memset(f->known, 0, sizeof f->known);
        if (f->decided && f->holder != rank) continue;
        f->decided = false;
        f->holder = ECHI_NO_RANK;
    }
}

/* Is there no run without this rank? An owner that has not begun leaves nothing that could go on. */
static bool ends_with(const struct echi_coordinator *c, int rank) {
    if (c->phase == ECHI_RUN_MEASURES) return rank == 0;
    return (c->phase < ECHI_RUN_TRAINS && echi_plan_group_owned(&c->plan, rank) >= 0) || !echi_plan_can_lose(&c->plan, rank);
}

/* Goes on without a node, or ends the run with this status. It is told itself, too: it may be alive, and not know why. */
static void lose(struct echi_coordinator *c, int rank, ech_status status, const char *text, int64_t now, struct echi_actions *out) {
    if (lost(c, rank)) return;
    const int group = echi_plan_group_owned(&c->plan, rank);
    if (c->phase == ECHI_RUN_ENDS) {
        /* The run has ended well: whoever leaves without its last word only leaves a gap in the report. */
        return all_said(c, rank, out);
    }
    if (c->phase == ECHI_RUN_MEASURES && rank != 0) {
        if (c->wishes.absent[rank]) return;
        c->wishes.absent[rank] = true;
        send_end(out, rank, status, rank, text);
        if (last_answer(c, rank)) make_plan(c, now, out);
        return;
    }
    if (ends_with(c, rank)) return fail(c, status, rank, text, out);
    echi_plan_lose(&c->plan, rank);
    send_end(out, rank, status, rank, text);
    c->lost_rank[c->n_lost++] = (uint16_t)rank;
    c->members++;
    c->calm = false;
    memset(c->quiet, 0, sizeof c->quiet);
    if (group >= 0 && !c->plan.shards) c->frozen[group] = (struct echi_frozen){.lost = true, .holder = ECHI_NO_RANK};
    echi_regroup_anew(&c->regroup, &c->plan);
    c->change.kind = ECHI_CHANGE_NONE;   /* it was for another cluster */
    doubt(c, rank);
    for (int r = 0; r < c->wishes.world; r++) {
        if (lost(c, r)) continue;
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_LOST);
        a->msg.peer = (uint16_t)rank;
        a->msg.members = c->members;
        memcpy(a->msg.text, text, strlen(text));
    }
    if (c->phase == ECHI_RUN_PLANNED && last_answer(c, rank)) feed(c, out);
    if (c->phase == ECHI_RUN_HOLDS && last_answer(c, rank)) all_held(c, now, out);
    look_lost(c, rank, now, out);
    echi_keep_lost(c, rank, now);
    if (c->phase == ECHI_RUN_DRAINS) c->phase = ECHI_RUN_TRAINS;   /* drained anew once all that was lost is back */
}

/* A node's user wants it to leave. Its work is handed on as that of a lost node is, without a wait for its silence. One without which there
 * is no run ends it, in order, and so does a user who means the run; who asks while it ends anyway stays to the end. */
static void leave(struct echi_coordinator *c, int rank, bool run, int64_t now, struct echi_actions *out) {
    if (c->stopping || c->phase >= ECHI_RUN_DRAINS) return;
    if (run || ends_with(c, rank)) stop(c, out);
    else lose(c, rank, ECH_E_ABORTED, "it left the run, as its user asked", now, out);
}

/* ---- complaints (PROTOCOL.md, "Broken links") ----
 * A node that cannot reach another says so. That is evidence, and no verdict: either of the two may be the one that others cannot reach
 * either. For a while complaints are collected, and the accused are asked whether they are there: who does not answer is lost, when
 * rank 0 has waited for it for long enough itself. Of those that answer the run does without as few as can be. */

static bool is_here(const struct echi_coordinator *c, int rank) { return !lost(c, rank) && !c->wishes.absent[rank]; }

static void complain(struct echi_coordinator *c, int from, int about, const char *reason, int64_t now, struct echi_actions *out) {
    if (from == about || !is_here(c, about) || c->phase >= ECHI_RUN_ENDS) return;
    for (int i = 0; i < c->n_apart; i++)
        if ((c->apart[i].a == from && c->apart[i].b == about) || (c->apart[i].a == about && c->apart[i].b == from)) return;
    if (c->n_apart == ECHI_PAIRS_MAX) return;   /* what is known is enough to choose by */
    if (c->n_apart == 0) {
        const size_t len = strlen(reason), most = sizeof c->apart_reason - 1;
        c->judge_at = now + c->goal.collect;
        memset(c->apart_reason, 0, sizeof c->apart_reason);
        memcpy(c->apart_reason, reason, len < most ? len : most);
    }
    c->apart[c->n_apart++] = (struct echi_pair){(uint16_t)from, (uint16_t)about};
    if (c->asked[about]) return;
    c->asked[about] = true;
    echi_act_send(out, about, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_HEARTBEAT);
}

static void forget_the_lost(struct echi_coordinator *c) {
    int left = 0;
    for (int i = 0; i < c->n_apart; i++)
        if (is_here(c, c->apart[i].a) && is_here(c, c->apart[i].b)) c->apart[left++] = c->apart[i];
    c->n_apart = left;
}

/* What the loss of a node costs: as few as can be, of these rather workers than owners, rather anybody than one whose loss ends the run,
 * and never rank 0. */
enum { COST_IDLE = 1023, COST_WORKER = 1024, COST_OWNER = 1025, COST_NEEDED = 1 << 20, COST_RANK0 = 1 << 28 };
static uint32_t cost_of(const struct echi_coordinator *c, int rank) {
    if (rank == 0) return COST_RANK0;
    if (c->phase == ECHI_RUN_MEASURES) return COST_WORKER;
    const bool owns = echi_plan_group_owned(&c->plan, rank) >= 0;
    if (!echi_plan_can_lose(&c->plan, rank) || (owns && c->phase < ECHI_RUN_TRAINS)) return COST_NEEDED;
    return owns ? COST_OWNER : c->plan.group_of[rank] == ECHI_NONE ? COST_IDLE : COST_WORKER;
}

static void add_text(char *to, size_t cap, const char *text) {
    const size_t at = strlen(to), len = strlen(text);
    memcpy(to + at, text, at + len < cap ? len : cap - 1 - at);
}
static void add_rank(char *to, size_t cap, int rank) {
    char digits[8] = {0};
    size_t at = sizeof digits - 1;
    do digits[--at] = (char)('0' + rank % 10);
    while ((rank /= 10) > 0);
    add_text(to, cap, "rank ");
    add_text(to, cap, digits + at);
}

/* Whom it and another cannot reach, as a sentence that says which two they are. */
static void lose_apart(struct echi_coordinator *c, int rank, int64_t now, struct echi_actions *out) {
    char text[sizeof((struct echi_msg *)0)->text] = {0};
    int i = 0;
    while (c->apart[i].a != rank && c->apart[i].b != rank) i++;
    add_rank(text, sizeof text, c->apart[i].a);
    add_text(text, sizeof text, " and ");
    add_rank(text, sizeof text, c->apart[i].b);
    add_text(text, sizeof text, " cannot reach each other");
    if (c->apart_reason[0]) add_text(text, sizeof text, ": ");
    add_text(text, sizeof text, c->apart_reason);
    lose(c, rank, ECH_E_PEER_LOST, text, now, out);
}

/* Returns when it is to be called again; 0: with the next event. */
static int64_t judge(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    uint16_t rank[ECHI_REACH_RANKS];
    uint32_t cost[ECHI_WORLD_MAX];
    for (forget_the_lost(c); c->n_apart > 0 && c->phase < ECHI_RUN_ENDS; forget_the_lost(c)) {
        for (int i = 0; i < c->n_apart; i++)
            if (c->asked[c->apart[i].a] || c->asked[c->apart[i].b]) return 0;   /* it answers, or rank 0 finds that it is lost */
        if (now < c->judge_at) return c->judge_at;
        for (int r = 0; r < c->wishes.world; r++) cost[r] = cost_of(c, r);
        /* One at a time: a loss may make another node needed. */
        if (echi_reach_choose(c->apart, c->n_apart, cost, rank) == 0) break;
        lose_apart(c, rank[0], now, out);
    }
    return 0;
}

/* ---- who is heard, and does not answer ----
 * Heartbeats say that a node's I/O thread lives. One that computes sends them to this role; its other messages come here as well. Whoever
 * owes an answer at which nothing has to be waited for, and does neither for QUIET_MAX ticks, is lost. Ticks are counted, not time: while
 * rank 0 itself is held up there are none. A node that finds its own computing stuck says so sooner. Rank 0 judges itself so alone. */
enum { QUIET_MAX = 12 };

/* Not judged: leases, since their workers may have to wait for others; in a session what its program computes, and final weights. */
static bool owes(const struct echi_coordinator *c, int rank) {
    switch (c->phase) {
    case ECHI_RUN_MEASURES:
    case ECHI_RUN_ENDS: return !c->mark[rank] && !c->goal.give_final;
    case ECHI_RUN_PLANNED:
    case ECHI_RUN_HOLDS: return !c->mark[rank];
    case ECHI_RUN_RESCUES:
    case ECHI_RUN_ENDED: return false;
    default: return !c->calm && c->ready[rank] != c->members;
    }
}

static void tick(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    for (int r = 1; r < c->wishes.world; r++)
        if (is_here(c, r) && owes(c, r) && ++c->quiet[r] > QUIET_MAX) {
            c->quiet[r] = 0;
            return lose(c, r, ECH_E_TIMEOUT, "it is heard, but neither answers nor computes, for twelve times --deadline", now, out);
        }
}

/* When the next TIME is wanted: for a choice among complaints, or for a tick. */
static void set_alarm(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (c->goal.tick > 0 && now >= c->tick_at) {
        if (c->tick_at > 0) tick(c, now, out);
        c->tick_at = now + c->goal.tick;
    }
    c->wake_at = judge(c, now, out);
    if (c->goal.tick > 0 && (c->wake_at == 0 || c->tick_at < c->wake_at)) c->wake_at = c->tick_at;
}

static void on_fault(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    ech_status status = ECH_E_INTERNAL;   /* what the node says, if that is a failure at all */
#define FAILURE(name, number, text, retry, remake) if (m->layer == (number) && (number) != 0) status = name;
    ECH_STATUS_LIST(FAILURE)
#undef FAILURE
    const int peer = m->peer < c->wishes.world ? m->peer : e->from;
    const bool gone = status == ECH_E_PEER_LOST || status == ECH_E_TIMEOUT;
    if (gone && peer == e->from) lose(c, peer, status, m->text, e->now, out);
    else if (status == ECH_E_PEER_LOST) complain(c, e->from, peer, m->text, e->now, out);
    else fail(c, status, peer, m->text, out);
}

static void on_message(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (lost(c, e->from) || c->wishes.absent[e->from]) return;   /* it still came, but nobody counts on it any more */
    c->quiet[e->from] = 0;
    switch (m->kind) {
    case ECHI_KIND_HEARTBEAT: c->asked[e->from] = false; break;
    case ECHI_KIND_MEASURED:
        if (c->phase != ECHI_RUN_MEASURES) break;
        if (!echi_times_decode(e->bytes, e->len, &c->times[e->from]))
            return echi_act_fault(out, ECH_E_FORMAT, "a node sent step times that make no sense");
        if (last_answer(c, e->from)) make_plan(c, e->now, out);
        break;
    case ECHI_KIND_READY:
        if (m->members > 0) on_ready(c, e, out);
        else if (c->phase == ECHI_RUN_PLANNED && last_answer(c, e->from)) feed(c, out);
        break;
    case ECHI_KIND_REVOKED: on_revoked(c, e, out); break;
    case ECHI_KIND_STANDS: echi_takeover_stands(c, e); break;
    case ECHI_KIND_STARTED: fed(c, e->now); break;
    case ECHI_KIND_APPLIED: on_applied(c, e, out); break;
    case ECHI_KIND_HELD:
        if (c->phase == ECHI_RUN_HOLDS && last_answer(c, e->from)) all_held(c, e->now, out);
        break;
    case ECHI_KIND_PARAMS:
        if (m->from_role == ECHI_ROLE_OWNER) c->source = ECHI_NO_RANK;
        c->part_from[e->slot.index] = ECHI_NO_RANK;
        if (c->phase == ECHI_RUN_LOOKS || c->phase == ECHI_RUN_LAST_LOOK) on_copy_of_look(c, e, out);
        else if (c->phase == ECHI_RUN_GATHERS || c->phase == ECHI_RUN_LAST_KEEP) echi_keep_part(c, e, out);
        break;
    case ECHI_KIND_DRAINED:
        if (m->members != c->members || echi_plan_group_owned(plan_of(c), e->from) < 0) break;
        if (c->phase == ECHI_RUN_QUIETS && last_answer(c, e->from)) {
            echi_keep_gather(c, e->now, out);
        } else if (c->phase == ECHI_RUN_DRAINS && last_answer(c, e->from)) {
            c->train_ended = e->now;
            end_drained(c, e->now, out);
        }
        break;
    case ECHI_KIND_FAULT: on_fault(c, e, out); break;
    case ECHI_KIND_STOP: leave(c, e->from, m->flag != 0, e->now, out); break;
    case ECHI_KIND_STATS: all_said(c, e->from, out); break;
    default: echi_act_fault(out, ECH_E_FORMAT, "the coordinator got a message that is not for it");
    }
}

/* Whom to lose is decided in a step of its own, never beside what another event began, such as a checkpoint of all that are here. */
static bool is_of_peers(const struct echi_event *e) {
    if (e->type == ECHI_EVENT_MESSAGE) return e->msg->kind == ECHI_KIND_HEARTBEAT || e->msg->kind == ECHI_KIND_FAULT;
    return e->type == ECHI_EVENT_START || e->type == ECHI_EVENT_TIME || e->type == ECHI_EVENT_LOST;
}

static void step(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    if (c->phase == ECHI_RUN_RESCUES) {
        if (echi_rescue_step(c, e, out)) end_failed(c, out);
        return;
    }
    switch (e->type) {
    case ECHI_EVENT_START: wait_for(c, c->wishes.world); break;
    case ECHI_EVENT_MESSAGE: on_message(c, e, out); break;
    case ECHI_EVENT_COMPUTED:
        if (e->task->kind == ECHI_TASK_EVAL) looked(c, e, out);
        else if (echi_keep_done(c, e)) end_drained(c, e->now, out);
        break;
    case ECHI_EVENT_SENT: fed(c, e->now); break;
    case ECHI_EVENT_LOST: lose(c, e->from, ECH_E_PEER_LOST, e->msg ? e->msg->text : "", e->now, out); break;
    case ECHI_EVENT_STOP: stop(c, out); break;
    default: break;
    }
    if (is_of_peers(e)) set_alarm(c, e->now, out);
    if (c->phase == ECHI_RUN_RESCUES && c->goal.rescue) c->wake_at = e->now + c->goal.rescue;
    next(c, e, out);
}

void echi_coordinator_step(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    if (c->phase == ECHI_RUN_ENDED) return;
    step(c, e, out);
    if (c->phase == ECHI_RUN_ENDED) c->wake_at = 0;   /* a complaint's window may still be open */
}
