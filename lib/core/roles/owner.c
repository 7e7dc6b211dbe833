/* SPDX-License-Identifier: Apache-2.0
 * The owner of the trunk (or of all layers) for one group: collects whole pushes, applies each once, answers with
 * weights. With several groups it keeps the sum of its own changes, the state A_g, and makes weights of all groups' states, which
 * owner_states.c exchanges. */
#include "echi_owner_impl.h"
#include "echi_ratio.h"

#include <string.h>

static void list_worker(struct echi_owner *o, int rank) {
    o->worker[o->workers++] = (uint16_t)rank;
    echi_ranks_add(&o->works, rank);
}

void echi_owner_init(struct echi_owner *o, const struct echi_setup *setup, int group) {
    memset(o, 0, offsetof(struct echi_owner, view));
    o->setup = setup;
    o->policy = echi_policy_of((enum echi_sync)setup->plan.sync);
    o->rules = echi_sync_rules_of((enum echi_sync)setup->plan.sync);
    o->group = group;
    o->shard = echi_plan_shard_owned(&setup->plan, setup->rank);
    o->parts = echi_post_parts(setup, ECHI_KIND_PUSH, setup->rank);
    o->weight_parts = echi_post_parts(setup, ECHI_KIND_WEIGHTS, setup->rank);
    o->end = echi_parts_before(&setup->plan.parts, setup->cut);
    o->state_sending = -1;
    o->least = UINT32_MAX;
    for (int r = 0; r < setup->plan.world; r++) {
        const bool member = setup->plan.group_of[r] == group;
        o->view[r] = (struct echi_worker_view){.member = member, .idle = true};   /* until it says that it has a lease */
        o->push[r] = (struct echi_push){0};
        o->entered[r] = o->last[r] = 0;
        o->answer[r] = 0;
        o->leaving[r] = o->trickling[r] = o->trickled[r] = 0;
        o->in_round[r] = 0;
        o->norm_in[r] = 0;
        o->known[r] = member;
        o->joins[r] = false;
        o->joined[r] = o->late[r] = 0;
        o->pushed_at[r] = o->answered_in[r] = 0;
        o->number[r] = 0;
        o->resumed[r].stay = 0;
        if (member) list_worker(o, r);
    }
    for (int g = 0; g < setup->plan.n_groups; g++) o->peer[g].from = ECHI_NO_RANK;
    echi_rounds_init(o);
    echi_owner_list_parts(o);
    o->ring.on = echi_plan_rings(&setup->plan);
    o->alone = setup->plan.reserve && setup->plan.n_groups == 2 && group == 0;
}

/* ---- views: how far workers are, and who is the slowest ---- */

static bool counts(const struct echi_worker_view *v) { return v->member && !v->idle; }

/* The slowest have moved on, which comes as often as the slowest worker steps: nobody looks at all workers at each event. Who
 * was held back because of them may be answered now. */
static void find_least(struct echi_owner *o) {
    o->least = UINT32_MAX;
    o->at_least = 0;
    for (int i = 0; i < o->workers; i++) {
        const struct echi_worker_view *v = &o->view[o->worker[i]];
        if (!counts(v) || v->steps > o->least) continue;
        o->at_least = v->steps < o->least ? 1 : o->at_least + 1;
        o->least = v->steps;
    }
    echi_ranks_join(&o->owed, &o->held_back);
    o->held_back = (struct echi_ranks){{0}};
}

static void set_view(struct echi_owner *o, int rank, struct echi_worker_view now) {
    struct echi_worker_view *v = &o->view[rank];
    const bool was_least = counts(v) && v->steps == o->least;
    *v = now;
    if (counts(v) && v->steps <= o->least) {
        o->at_least = v->steps < o->least ? 1 : o->at_least + 1;
        o->least = v->steps;
    }
    if (was_least && --o->at_least == 0) find_least(o);
}

/* Is this push, or word, of the worker's present stay in this group? */
static bool belongs(const struct echi_owner *o, int rank, uint32_t joined) { return o->view[rank].member && joined == o->joined[rank]; }

/* ---- weights out ---- */

void echi_owner_owe(struct echi_owner *o, int rank, int times) {
    o->answer[rank] = (uint8_t)(o->answer[rank] + times);
    echi_ranks_drop(&o->held_back, rank);
    echi_ranks_add(&o->owed, rank);
}

static void owe_nothing(struct echi_owner *o, int rank) {
    o->answer[rank] = 0;
    echi_ranks_drop(&o->held_back, rank);
    echi_ranks_drop(&o->owed, rank);
}

void echi_owner_send_part(struct echi_owner *o, int rank, uint8_t from, int part, uint64_t version, uint64_t samples,
                          struct echi_actions *out) {
    struct echi_action *a = echi_act_send(out, rank, ECHI_ROLE_WORKER, ECHI_ROLE_OWNER, echi_exchange_of(plan_of(o))->weights);
    a->slot = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, from};
    a->msg.part = (uint16_t)part;
    a->msg.version = version;
    a->msg.samples = samples;
    a->msg.members = o->joined[rank];
    o->in_flight[from]++;
}

static void send_weights(struct echi_owner *o, int rank, struct echi_actions *out) {
    for (int i = 0; i < o->weight_parts; i++)
        echi_owner_send_part(o, rank, o->current, echi_post_part(o->setup, ECHI_KIND_WEIGHTS, o->setup->rank, i), o->version, o->samples,
                             out);
    o->leaving[rank] = (uint16_t)(o->leaving[rank] + o->weight_parts);
    o->sends += rank != o->setup->rank;
    o->answer[rank]--;
}

/* A snapshot, or a part of it, has left: for the coordinator, or as one of the messages of an answer. The own worker keeps its answer
 * until it has the next (echi_loan.h), which takes no place from the others. */
static void weights_left(struct echi_owner *o, const struct echi_event *e) {
    o->in_flight[e->slot.index]--;
    if (e->kind != ECHI_KIND_PARAMS && o->trickling[e->from] > 0) echi_rounds_left(o, e->from);
    else if (e->kind == ECHI_KIND_PARAMS || (--o->leaving[e->from] % o->weight_parts == 0 && e->from != o->setup->rank)) o->sends--;
}

/* What has changed since the message before, in the order of this worker's link: a task, and then the message. What stays on this
 * node costs nothing, and goes whole. In rounds all others are owed the same, which is written once. */
static void encode_weights(struct echi_owner *o, int rank, struct echi_actions *out) {
    struct echi_task *t = compute(o, ECHI_TASK_ENCODE, out);
    const int known = echi_plan_known(plan_of(o), o->setup->rank, rank);
    uint8_t to = 0;
    while (o->coded_out >> to & 1) to++;
    o->encoding_for = (struct echi_ranks){{0}};
    o->encoding_stay = o->joined[rank];
    for (int r = echi_ranks_next(&o->owed, 0); r >= 0; r = echi_ranks_next(&o->owed, r + 1)) {
        if (echi_plan_known(plan_of(o), o->setup->rank, r) != known) continue;
        echi_ranks_add(&o->encoding_for, r);
        t->number = ++o->number[r];
        o->answer[r]--;
        o->coded_sends[to]++;
        o->sends++;
    }
    t->weights = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, o->current};
    t->state = (struct echi_slot){ECHI_SLOT_OWNER_KNOWN, (uint16_t)known};
    t->coded = (struct echi_slot){ECHI_SLOT_OWNER_CODED, to};
    t->ratio = rank == o->setup->rank || echi_whole_due(t->number) ? ECHI_RATIO_ONE : plan_of(o)->state_ratio;
    t->sample = echi_push_sample(plan_of(o), o->group);
    o->coded_out |= (uint8_t)(1u << to);
}

static void send_encoded(struct echi_owner *o, const struct echi_task *t, struct echi_actions *out) {
    for (int r = echi_ranks_next(&o->encoding_for, 0); r >= 0; r = echi_ranks_next(&o->encoding_for, r + 1)) {
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_WORKER, ECHI_ROLE_OWNER, ECHI_KIND_WEIGHTS);
        a->slot = t->coded;
        a->msg.flag = t->ratio == ECHI_RATIO_ONE;
        a->msg.number = t->number;
        a->msg.version = o->version;
        a->msg.samples = o->samples;
        a->msg.members = o->encoding_stay;
    }
}

/* Does this answer wait for a place among the sends? One that stays on this node does not, unless a codec writes it, which needs a slot. In
 * rounds part by part the own worker gets each part as it is applied (owner_rounds.c); what it is owed besides has its turn. */
static bool takes_place(const struct echi_owner *o, int rank) { return rank != o->setup->rank || coded(o) || o->round.by_part; }

/* Answers of the round under way go on until it is over and take no place: it may need who is owed the weights that are here. */
static bool has_place(const struct echi_owner *o) { return o->sends - echi_rounds_open(o) < ECHI_ANSWERS; }

/* Who is answered next, -1: nobody is owed an answer for which there is a place. */
static int next_owed(const struct echi_owner *o) {
    const int self = o->setup->rank;
    if (!takes_place(o, self) && echi_ranks_has(&o->owed, self)) return self;
    if (!has_place(o)) return -1;
    int next = echi_ranks_next(&o->owed, o->turn);
    if (next < 0) next = echi_ranks_next(&o->owed, 0);
    if (next < 0 || !o->policy->bounded) return next;
    for (int r = echi_ranks_next(&o->owed, 0); r >= 0; r = echi_ranks_next(&o->owed, r + 1))
        if (o->view[r].steps < o->view[next].steps) next = r;
    return next;
}

/* An answer waits for a place among the sends and then gets the newest weights. The ranks have their turn one after the other, of equals
 * under a bound as well: with few places and many workers nobody is passed for ever. The own worker has no turn: as often as it is answered
 * the ranks behind it would lose theirs. */
static void answer(struct echi_owner *o, int64_t now, struct echi_actions *out) {
    if (o->woke || o->takeover.still || o->takeover.takes) return;
    while (!(coded(o) && o->busy)) {
        const int r = next_owed(o);
        if (r < 0) return;
        const bool may = o->rules->before_reply(&o->view[r], o->least, plan_of(o)->staleness);
        struct echi_ranks to = {{0}};
        echi_ranks_add(&to, r);
        if (may) {
            if (coded(o)) encode_weights(o, r, out);
            else send_weights(o, r, out);
            if (coded(o)) to = o->encoding_for;
            if (takes_place(o, r)) o->turn = r + 1;
        } else {
            echi_ranks_add(&o->held_back, r);
        }
        for (int k = echi_ranks_next(&to, 0); k >= 0; k = echi_ranks_next(&to, k + 1)) {
            if (may) o->answered_in[k] = now - o->pushed_at[k];
            if (!may || o->answer[k] == 0) echi_ranks_drop(&o->owed, k);
        }
    }
}

uint8_t echi_owner_free_snapshot(const struct echi_owner *o) {
    const int self = o->setup->rank, count = echi_plan_snapshots(plan_of(o), o->workers > (int)o->view[self].member, o->known[self]);
    /* In place, once the coordinator has its copy, and nothing is out but what the own worker has pushed by now. */
    if (echi_plan_alone(plan_of(o))) return o->sends == 0 && o->in_flight[o->current] <= o->weight_parts ? o->current : ECHI_NONE;
    /* In place as well, part by part, once all that is owed has left. */
    if (count == 1) return echi_ranks_next(&o->owed, 0) < 0 && o->in_flight[o->current] == 0 ? o->current : ECHI_NONE;
    for (uint8_t i = 0; i < count; i++)
        if (i != o->current && o->in_flight[i] == 0) return i;
    return ECHI_NONE;   /* only while the coordinator's copy is on its way as well: the apply then waits for a SENT */
}

/* ---- tasks for weights ---- */

static uint8_t free_state(const struct echi_owner *o) {
    uint8_t i = 0;
    while (i == o->state_current || i == o->state_sending) i++;
    return i;
}

/* What is there now goes into the weights that this task makes. */
static void name_states(struct echi_owner *o, struct echi_task *t) {
    echi_states_name(o, t);
    o->stale = false;
    o->woke_next = o->woke && echi_states_caught_up(o) ? o->woke : 0;
}

struct echi_task *echi_owner_apply(struct echi_owner *o, struct echi_slot grads, const struct echi_lease *lease, uint32_t samples,
                                   uint32_t divisor, uint8_t to, struct echi_actions *out) {
    struct echi_task *t = compute(o, ECHI_TASK_APPLY, out);
    t->grads = grads;
    t->lease = *lease;
    t->samples = samples;
    t->divisor = divisor;
    t->weights = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, o->current};
    t->weights_out = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, to};
    name_states(o, t);
    o->next_samples = o->samples;
    if (keeps_state(o)) {
        t->state_out = (struct echi_slot){ECHI_SLOT_OWNER_STATE, free_state(o)};
        o->next_samples = echi_states_samples(o);
    }
    return t;
}

/* What a push weighs: less the staler it is (Zhang et al., "Staleness-aware async-SGD", IJCAI 2016, where it is 1 / staleness;
 * here a push that nothing overtook keeps its weight). */
static double damped(const struct echi_owner *o, double staleness) {
    return plan_of(o)->damping > 0 ? 1 / (1 + plan_of(o)->damping * staleness) : 0;
}

/* A push that is too old (Ringmaster ASGD, Maranjyan et al. 2025, arXiv 2501.16168, algorithm 4: `if delay < R apply, else ignore`).
 * The paper draws a new sample each time; here each sample counts once an epoch, so those of the push are issued again. The
 * run goes on all the same: a push grows old only while others' are applied. */
static bool drop_old(struct echi_owner *o, struct echi_actions *out) {
    const uint16_t rank = o->queue[0];
    struct echi_push *p = &o->push[rank];
    const double most = plan_of(o)->drop_older;
    if (most <= 0 || (double)(o->samples - p->seen) <= most * plan_of(o)->round) return false;
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_REVOKED);
    a->msg.lease = p->lease;
    a->msg.flag = ECHI_REVOKED_DROPPED;
    a->msg.members = o->members;
    const bool of_member = belongs(o, rank, p->joined);
    o->last[rank] = p->lease.id;
    *p = (struct echi_push){0};
    o->queued--;
    memmove(&o->queue[0], &o->queue[1], (size_t)o->queued * sizeof o->queue[0]);
    if (of_member) echi_owner_owe(o, rank, 1);
    if (o->known[rank]) echi_act_post(out, rank, ECHI_KIND_PUSH, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, rank});
    return true;
}

/* Weights of all states as they are here, without a push. */
static void refresh(struct echi_owner *o, uint8_t to, struct echi_actions *out) {
    struct echi_task *t = compute(o, ECHI_TASK_REFRESH, out);
    t->weights_out = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, to};
    name_states(o, t);
    o->next_samples = echi_states_samples(o);
}

/* Of a round's leases the one that stands first in the data: it says where the round is, whoever was the first to push. */
static const struct echi_lease *round_place(const struct echi_owner *o) {
    const struct echi_lease *first = &o->round_push[0].lease;
    for (int i = 1; i < o->round_count; i++)
        if (echi_lease_before(&o->round_push[i].lease, first)) first = &o->round_push[i].lease;
    return first;
}

static void pump(struct echi_owner *o, struct echi_actions *out) {
    if (o->busy || !o->started || o->takeover.still || o->takeover.takes) return;
    if (echi_norms_join(o, out) || o->momentum_sending || echi_states_decode(o, out)) return;
    if (echi_ranks_next(&o->away, 0) >= 0) return;   /* two rounds on nobody would have the weights that come after theirs */
    if (o->round.by_part) return echi_rounds_pump(o, out);
    const uint8_t to = echi_owner_free_snapshot(o);
    if (o->round_count) {
        if (o->round_in == o->round_push[0].lease.round_size) {
            if (to != ECHI_NONE)
                echi_owner_apply(o, (struct echi_slot){ECHI_SLOT_OWNER_SUM, 0}, round_place(o), o->round_in, o->round_in, to, out);
            return;
        }
    }
    if (o->queued) {
        const uint16_t rank = o->queue[0];
        struct echi_push *p = &o->push[rank];
        const struct echi_slot grads = {ECHI_SLOT_OWNER_GRADS, rank};
        if (o->rules->push_arrived(&p->lease) == ECHI_TAKE_ADD) {
            struct echi_task *t = compute(o, ECHI_TASK_ADD, out);
            p->staleness = (double)(o->samples - p->seen) / plan_of(o)->round;   /* under bsp 0 */
            t->grads = grads;
            t->lease = p->lease;
            t->first = o->round_count == 0;
            t->state = (struct echi_slot){ECHI_SLOT_OWNER_SUM, 0};
        } else {
            if (to == ECHI_NONE || echi_states_too_far_ahead(o)) return;
            struct echi_task *t = echi_owner_apply(o, grads, &p->lease, p->lease.n, plan_of(o)->round, to, out);
            /* What a lost group's running copy had beyond its complete one is in these weights no more. */
            p->staleness = p->seen < o->next_samples ? (double)(o->next_samples - p->seen) / plan_of(o)->round : 0;
            t->damping = damped(o, p->staleness);
        }
        o->queued--;
        memmove(&o->queue[0], &o->queue[1], (size_t)o->queued * sizeof o->queue[0]);
        return;
    }
    const bool asked = o->stale && o->asked && o->asked_as != ECHI_ASK_EVAL;
    if ((asked || (o->woke && echi_states_caught_up(o))) && to != ECHI_NONE) refresh(o, to, out);
}

static void applied(struct echi_owner *o, const struct echi_push *p, struct echi_actions *out) {
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_APPLIED);
    a->msg.lease = p->lease;
    a->msg.flag = p->more;
    a->msg.loss = p->loss;
    a->msg.correct = p->correct;
    a->msg.version = several(o) ? o->state_version : o->version;
    a->msg.acked = echi_states_safe(o);
    a->msg.staleness = p->staleness;
    a->msg.head = p->head;
    const uint64_t held = (uint64_t)p->held;   /* not the worker's doing */
    a->msg.compute = p->compute;
    a->msg.exchange = p->exchange > held ? p->exchange - held : 0;
}

static void start_training(struct echi_owner *o, int64_t now, struct echi_actions *out) {
    o->started = true;
    echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_STARTED);
    for (int i = 0; i < o->workers; i++) {
        const int r = o->worker[i];   /* who joins enters first */
        if (!o->joins[r] && answers(o, r)) echi_owner_owe(o, r, plan_of(o)->flights);
        o->pushed_at[r] = now;
    }
}

void echi_owner_end_round(struct echi_owner *o, const struct echi_ranks *have, struct echi_actions *out) {
    for (int i = 0; i < o->round_count; i++) {
        applied(o, &o->round_push[i], out);
        o->in_round[o->round_push[i].lease.worker] = 0;
    }
    for (int i = 0; i < o->workers; i++) {
        const int r = o->worker[i];
        if (o->answer[r] == 0 && !echi_ranks_has(have, r) && answers(o, r)) echi_owner_owe(o, r, 1);
    }
    echi_norms_applied(o, o->round_push[0].lease.round);
    o->round_count = 0;
    o->round_in = 0;
}

static void on_computed(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_task *t = e->task;
    o->busy = 0;
    if (t->kind == ECHI_TASK_NORM) return echi_norms_joined(o, out);
    if (t->kind == ECHI_TASK_TAKE) return;
    if (t->only) return echi_rounds_computed(o, e, out);
    if (t->kind == ECHI_TASK_DECODE) return echi_states_decoded(o, t->coded.index, out);
    if (t->kind == ECHI_TASK_ENCODE) {
        if (t->coded.kind == ECHI_SLOT_OWNER_CODED) send_encoded(o, t, out);
        else echi_states_send(o, t->coded, t->ratio == ECHI_RATIO_ONE, out);
        return;
    }
    if (t->kind == ECHI_TASK_STATE) {
        o->alone = false;
        return;
    }
    if (t->kind == ECHI_TASK_ADD) {
        const int rank = t->lease.worker;
        o->round_in += t->lease.n;
        o->round_push[o->round_count++] = o->push[rank];
        o->in_round[rank]++;
        o->push[rank] = (struct echi_push){0};
        if (o->view[rank].member) echi_act_post(out, rank, ECHI_KIND_PUSH, t->grads);
        return;
    }
    o->current = (uint8_t)t->weights_out.index;
    o->samples = o->next_samples + t->samples;
    if (o->woke == o->woke_next) o->woke = 0;
    if (t->kind == ECHI_TASK_REFRESH) {
        if (!o->started) start_training(o, e->now, out);
        return;
    }
    o->version++;
    if (o->round_count) return echi_owner_end_round(o, &(struct echi_ranks){{0}}, out);
    const int rank = t->lease.worker;
    const bool of_member = belongs(o, rank, o->push[rank].joined);
    const bool idle = of_member ? !o->push[rank].more && o->entered[rank] <= t->lease.id : o->view[rank].idle;
    o->last[rank] = t->lease.id;
    o->late[rank] += !of_member && !counts(&o->view[rank]);
    set_view(o, rank, (struct echi_worker_view){.member = o->view[rank].member, .steps = o->view[rank].steps + 1, .idle = idle});
    if (several(o)) {
        if (keeps_state(o)) o->state_current = (uint8_t)t->state_out.index;
        o->state_version++;
        o->state_samples += t->samples;
        o->since_send++;
    }
    applied(o, &o->push[rank], out);
    o->push[rank] = (struct echi_push){0};
    if (of_member) echi_owner_owe(o, rank, 1);
    if (o->known[rank]) echi_act_post(out, rank, ECHI_KIND_PUSH, t->grads);
}

/* A worker that had run out holds a lease again: it enters with the smallest count of those that have one, with the largest of all
 * where nobody has (else one that then enters with more would see many pushes of this one), or with its own where that is larger
 * (else one that runs out at every step would never be held back). Steps that it had begun when it left this group, and that came
 * since, the others have seen: of one that is back they count on top. */
static void enter(struct echi_owner *o, int rank) {
    uint32_t steps = o->view[rank].steps;
    if (o->least != UINT32_MAX && o->least + o->late[rank] > steps) steps = o->least + o->late[rank];
    o->late[rank] = 0;
    for (int i = 0; i < o->workers && o->least == UINT32_MAX; i++)
        if (o->view[o->worker[i]].steps > steps) steps = o->view[o->worker[i]].steps;
    set_view(o, rank, (struct echi_worker_view){.member = true, .steps = steps});
}

void echi_owner_enters(struct echi_owner *o, int rank, uint32_t joined) {
    if (o->view[rank].idle && belongs(o, rank, joined)) enter(o, rank);
}

/* Its word on that may be overtaken by pushes, in either direction; the numbers of the leases tell. */
static void on_enter(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_lease *l = &e->msg->lease;
    const bool current = belongs(o, e->from, e->msg->members);
    if (l->worker != e->from || !o->known[e->from] || e->msg->members > o->members ||
        (current && (l->owner != o->setup->rank || !echi_lease_valid(l, plan_of(o)))))
        return echi_act_fault(out, ECH_E_FORMAT, "a worker's lease does not fit the plan: do all nodes run the same version?");
    if (!current) return;   /* said before it was moved */
    if (o->joins[e->from]) {
        o->joins[e->from] = false;
        o->pushed_at[e->from] = e->now;
        echi_owner_owe(o, e->from, plan_of(o)->flights);
    }
    o->entered[e->from] = l->id;
    if (o->view[e->from].idle && l->id > o->last[e->from]) enter(o, e->from);
}

/* A push that is whole is applied, whatever becomes of its worker. */
bool echi_owner_has(const struct echi_owner *o, const struct echi_lease *l) {
    const struct echi_push *waits = &o->push[l->worker];
    if (waits->whole && waits->lease.id == l->id) return true;
    if (!o->policy->rounds) return l->id <= o->last[l->worker];
    for (int i = 0; i < o->round_count && o->in_round[l->worker] > 0; i++)
        if (o->round_push[i].lease.id == l->id) return true;
    return l->round < o->version;
}

/* A lease names the owner of shard 0. */
bool echi_owner_wants(const struct echi_owner *o, const struct echi_lease *l) {
    return l->owner == (plan_of(o)->shards ? plan_of(o)->owner_of[o->group] : o->setup->rank) && echi_lease_wanted(l, o->shard);
}

static bool push_fits(const struct echi_owner *o, const struct echi_event *e) {
    const struct echi_lease *l = &e->msg->lease;
    const struct echi_push *p = &o->push[e->from];
    const int part = e->msg->part;
    const uint32_t size = o->round_count ? o->round_push[0].lease.round_size : o->round.size;
    if (!o->started || !o->known[e->from] || l->worker != e->from) return false;
    if (!echi_owner_wants(o, l) || !echi_lease_valid(l, plan_of(o))) return false;
    if (part >= o->end || !echi_plan_owns_part(plan_of(o), o->setup->rank, part) || echi_part_in(&p->here, part)) return false;
    if (p->whole || (p->parts_in > 0 && p->lease.id != l->id)) return false;
    if (!o->policy->rounds) return l->id > o->last[e->from];
    return l->round == o->version && o->round_count < ECHI_ROUND_LEASES && (size == 0 || l->round_size == size) && !echi_owner_has(o, l);
}

void echi_owner_note_push(struct echi_push *p, const struct echi_msg *m) {
    p->more = m->flag;
    p->head = m->head;
    p->loss = m->loss;
    p->correct = m->correct;
    p->compute = m->compute;
    p->exchange = m->exchange;
}

static void on_push(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    struct echi_push *p = &o->push[e->from];
    if (echi_owner_passes_over(o, e, out)) return;
    if (!push_fits(o, e))
        return echi_act_fault(out, ECH_E_FORMAT, "a push does not fit the plan: do all nodes run the same version?");
    o->draining = false;   /* a lease after the drain: it was for a checkpoint */
    p->lease = m->lease;
    p->parts_in++;
    echi_part_add(&p->here, m->part);
    p->whole = p->parts_in == o->parts;
    if (m->part == echi_post_part(o->setup, ECHI_KIND_PUSH, o->setup->rank, o->parts - 1)) echi_owner_note_push(p, m);   /* it left last */
    if (!p->whole && o->round.by_part) echi_rounds_part(o, e->from, m->part, out);
    if (!p->whole) return;
    p->seen = m->samples <= o->samples ? m->samples : o->samples;
    p->joined = m->members;
    p->held = o->answered_in[e->from];
    o->pushed_at[e->from] = e->now;
    echi_owner_enters(o, e->from, p->joined);
    if (o->round.by_part) echi_rounds_part(o, e->from, m->part, out);
    else o->queue[o->queued++] = e->from;
}

/* ---- losses ---- */

static void on_revoke(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    const struct echi_lease *l = &m->lease;
    const bool of_group = l->id == 0;
    if (e->from != 0 || (of_group ? m->group >= plan_of(o)->n_groups || m->group == o->group || m->peer >= plan_of(o)->world
                                  : l->worker >= plan_of(o)->world))
        return echi_act_fault(out, ECH_E_FORMAT,
                              "an owner was told of a loss that does not fit the plan: do all nodes run the same version?");
    if (!of_group) {
        struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_REVOKED);
        a->msg.lease = *l;
        a->msg.flag = echi_owner_has(o, l) ? ECHI_REVOKED_IN : ECHI_REVOKED_OUT;
        a->msg.members = o->members;
        if (a->msg.flag == ECHI_REVOKED_OUT && o->shard == 0) echi_norms_revoke(o, l);
    } else {
        echi_states_last(o, m->group, m->peer, out);
    }
}

/* A worker of a lost owner, or one that was moved, joins; its steps for another may still go on. It gets weights, and enters, with
 * its first lease. One that was here before has kept its place for pushes, and its count. */
static void join(struct echi_owner *o, int rank, struct echi_actions *out) {
    set_view(o, rank, (struct echi_worker_view){.member = true, .idle = true, .steps = o->view[rank].steps});
    owe_nothing(o, rank);
    o->joins[rank] = true;
    o->joined[rank] = o->members;
    o->entered[rank] = 0;
    o->number[rank] = 0;   /* its first weights are complete */
    if (!o->known[rank]) echi_act_post(out, rank, ECHI_KIND_PUSH, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, (uint16_t)rank});
    o->known[rank] = true;
}

/* It is owed nothing any more and holds up nobody; steps that it has begun still come, and are applied. */
static void leave(struct echi_owner *o, int rank) {
    if (!o->view[rank].member) return;
    set_view(o, rank, (struct echi_worker_view){.idle = true, .steps = o->view[rank].steps});
    owe_nothing(o, rank);
    echi_ranks_drop(&o->away, rank);
}

/* The plan says who is of this group; those who are new join. */
static void list_workers(struct echi_owner *o, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(o);
    o->workers = 0;
    o->works = (struct echi_ranks){{0}};
    for (int r = 0; r < p->world; r++) {
        if (p->lost[r] || p->group_of[r] != o->group) continue;
        list_worker(o, r);
        if (!o->view[r].member) join(o, r, out);
    }
}

static void on_moved(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    o->members = e->msg->members;
    if (plan_of(o)->group_of[e->from] != o->group) leave(o, e->from);
    list_workers(o, out);
    echi_states_reserve(o);
}

static void on_lost(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    o->members = e->msg->members;
    leave(o, e->from);
    echi_rounds_lost(o, e->from);
    o->known[e->from] = false;
    if (!o->push[e->from].whole && !o->round.by_part) o->push[e->from] = (struct echi_push){0};
    list_workers(o, out);
    echi_states_reserve(o);
    echi_states_lost(o, e->from, out);
    echi_owner_stop(o);
    o->draining = o->drained = false;
}

/* At the end, or for a checkpoint. Everything is in, so no worker is ahead of another when it enters anew. */
static void on_drain(struct echi_owner *o) {
    uint32_t most = 0;
    for (int r = 0; r < plan_of(o)->world; r++)
        if (o->view[r].steps > most) most = o->view[r].steps;
    for (int r = 0; r < plan_of(o)->world; r++) o->view[r].steps = most;
    find_least(o);
    o->draining = true;
    o->drained = false;
}

static void on_message(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    switch (m->kind) {
    case ECHI_KIND_PARAMS:
        if (e->from != 0 || o->started || o->busy)
            return echi_act_fault(out, ECH_E_INTERNAL, "first weights came to an owner twice, or from a stranger");
        if (++o->fed <= plan_of(o)->resumed) break;   /* the momentum is still to come */
        if (several(o)) {
            refresh(o, 0, out);
        } else {
            start_training(o, e->now, out);
        }
        break;
    case ECHI_KIND_PUSH: on_push(o, e, out); break;
    case ECHI_KIND_ENTER: on_enter(o, e, out); break;
    case ECHI_KIND_RING_SUM:
    case ECHI_KIND_RING_LEASE: echi_ring_message(o, e, out); break;
    case ECHI_KIND_RESUME: echi_owner_resume(o, e, out); break;
    case ECHI_KIND_NORM: echi_norms_message(o, e, out); break;
    case ECHI_KIND_STATE:
    case ECHI_KIND_STATE_ACK:
    case ECHI_KIND_FROZEN: echi_states_message(o, e, out); break;
    case ECHI_KIND_REVOKE: on_revoke(o, e, out); break;
    case ECHI_KIND_ASK:
    case ECHI_KIND_DRAIN:
        if (e->from != 0) return echi_act_fault(out, ECH_E_INTERNAL, "an owner got a command that is not the coordinator's");
        if (m->kind == ECHI_KIND_DRAIN) {
            if (m->members == o->members) on_drain(o);   /* else said before a loss: it will be said again */
        } else if (m->flag == ECHI_ASK_MOMENTUM) {
            o->asked_momentum = true;
        } else {
            o->asked = true;
            o->asked_as = m->flag;
        }
        break;
    default: echi_act_fault(out, ECH_E_INTERNAL, "an owner got a message that is not for owners");
    }
}

static void on_start(struct echi_owner *o, struct echi_actions *out) {
    echi_act_post(out, 0, ECHI_KIND_PARAMS, (struct echi_slot){several(o) ? ECHI_SLOT_OWNER_W0 : ECHI_SLOT_OWNER_WEIGHTS, 0});
    if (plan_of(o)->resumed) echi_act_post(out, 0, ECHI_KIND_PARAMS, (struct echi_slot){ECHI_SLOT_OWNER_MOMENTUM, 0});
    if (o->ring.on) echi_ring_start(o, out);
    for (int i = 0; i < o->workers; i++)
        if (!o->ring.on || o->worker[i] == o->setup->rank)
            echi_act_post(out, o->worker[i], ECHI_KIND_PUSH, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, o->worker[i]});
    for (int i = 0; i < o->workers && o->setup->norms > 0 && o->shard == 0; i++)
        echi_act_post(out, o->worker[i], ECHI_KIND_NORM, (struct echi_slot){ECHI_SLOT_OWNER_NORM, o->worker[i]});
    for (int g = 0; g < plan_of(o)->n_groups; g++) o->peer[g].refresh = g != o->group;
}

void echi_owner_step(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    switch (e->type) {
    case ECHI_EVENT_START: on_start(o, out); break;
    case ECHI_EVENT_MESSAGE: on_message(o, e, out); break;
    case ECHI_EVENT_COMPUTED: on_computed(o, e, out); break;
    case ECHI_EVENT_SENT:
        if (e->slot.kind == ECHI_SLOT_OWNER_WEIGHTS) {
            weights_left(o, e);
        } else if (e->slot.kind == ECHI_SLOT_OWNER_MOMENTUM) {
            o->momentum_sending--;
        } else if (e->slot.kind == ECHI_SLOT_OWNER_NORM_ALL) {
            o->norm.sending--;
        } else if (e->slot.kind == ECHI_SLOT_OWNER_CODED) {
            if (--o->coded_sends[e->slot.index] == 0) o->coded_out &= (uint8_t) ~(1u << e->slot.index);
            o->sends--;
        } else {
            echi_states_sent(o, e->slot);
        }
        break;
    case ECHI_EVENT_LOST: on_lost(o, e, out); break;
    case ECHI_EVENT_MOVED: on_moved(o, e, out); break;
    case ECHI_EVENT_TAKEOVER: echi_owner_takeover(o, e, out); break;
    case ECHI_EVENT_HEADS: o->members = e->msg->members; break;
    default: break;
    }
    echi_states_post(o, out);
    echi_states_exchange(o, out);
    echi_owner_takes(o, out);
    while (o->queued && drop_old(o, out)) {}   /* in front of the answers: theirs are among them */
    if (o->started) answer(o, e->now, out);
    echi_rounds_answer(o, out);
    pump(o, out);
    echi_owner_report(o, out);
    echi_owner_stands(o, out);
}
