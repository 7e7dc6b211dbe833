/* SPDX-License-Identifier: Apache-2.0
 * The coordinator: the plan, first weights, what is next, and to which of its files each message goes. */
#include "echi_coordinator_impl.h"

/* What a checkpoint kept is the beginning of this run. A round's number counts from the resume. */
static void stand_on(struct echi_coordinator *c, const struct echi_standing *s) {
    c->epoch = s->epoch;
    c->start = s->start;
    c->issued = c->applied = c->kept_samples = s->samples;
    c->evals = s->evals;
    c->measuring = s->measuring;
    c->keeping = s->keeping;
    c->accuracy = s->accuracy;
    c->best_accuracy = s->best_accuracy;
    c->loss_of_run = s->loss;
    echi_eval_next_after(c, c->applied);
    /* The target may be another than it was. A checkpoint holds the weights behind a drain, and not those that reached the target: so
     * what is here is evaluated before anything is trained. */
    if (c->goal.target_accuracy <= 0 || s->best_accuracy < c->goal.target_accuracy) return;
    c->target_at = s->target_at >= 0 ? s->target_at : s->clock;
    c->target_samples = s->target_at >= 0 ? s->target_samples : s->samples;
    c->next_eval = c->applied;
}

void echi_coordinator_init(struct echi_coordinator *c, struct echi_setup *setup, const struct echi_plan_request *request,
                           const struct echi_goal *goal, bool plan_given) {
    memset(c, 0, offsetof(struct echi_coordinator, times));
    c->setup = setup;
    c->request = *request;
    c->goal = *goal;
    c->plan_given = plan_given;
    c->next_lease = 1;
    echi_eval_next_after(c, 0);
    c->lost_peer = c->at_fault = -1;
    c->choice.net_negative = c->choice.alone = -1;
    c->work.between = NULL;
    c->work.memo.count = 0;
    c->source = c->part_from[1] = c->part_from[2] = ECHI_NO_RANK;
    c->whole = (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0};
    c->calm = true;
    c->target_at = -1;
    c->accuracy = c->best_accuracy = -1;
    c->next_keep = c->kept_samples = UINT64_MAX;
    for (int r = 0; r < request->world; r++) {
        c->times[r] = (struct echi_times){0};
        c->ready[r] = 0;
        c->in_at[r] = -1;
        c->arriving[r] = false;
        c->paused[r] = 0;
        c->asked[r] = 0;
        c->stopped[r].members = c->stopped_owner[r].members = 0;
        c->outlook.seen[r] = (struct echi_machine_seen){1, 0, 0};
    }
    memset(&c->outlook, 0, offsetof(struct echi_outlook, seen));
    echi_regroup_init(&c->regroup, request->world, request->regroup_after);
    echi_follow_init(&c->follow, request->world);
    echi_ledger_begin(c);
    if (goal->resumed) stand_on(c, &goal->from);
}

int64_t echi_coordinator_clock(const struct echi_coordinator *c, int64_t now) {
    const struct echi_standing *from = &c->goal.from;
    if (c->train_began == 0) return from->clock;
    int64_t at = c->train_ended ? c->train_ended : now, held = c->measuring - from->measuring + c->keeping - from->keeping;
    if (c->phase == ECHI_RUN_HOLDS || c->phase == ECHI_RUN_EVALUATES) held += now - c->hold_began;
    if (c->phase == ECHI_RUN_QUIETS || c->phase == ECHI_RUN_GATHERS) held += now - c->keep_began;
    return from->clock + at - c->train_began - held;
}

/* ---- start: times, plan, first weights ---- */

void echi_make_plan(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    echi_plan_times_cut(&c->request, c->request.layers.cut, c->times);   /* who measured at another is as the others are */
    echi_times_pool(c->times, c->request.world);
    if (!c->plan_given) {
        char text[240];
        ech_status status = echi_plan_choose(&c->request, c->times, &c->work, &c->setup->plan, &c->choice, text, sizeof text);
        if (status != ECH_OK) return echi_end_with(c, status, -1, text, out);
    }
    /* All that is predicted from here on is of this plan, and of others that are cut there and send as it does. */
    const bool as_asked = c->setup->plan.cut == c->request.layers.cut && c->setup->plan.activations == c->request.activations;
    if (c->setup->plan.cut && !as_asked && c->request.layers.count > 0) {
        c->request.activations = (enum echi_activations)c->setup->plan.activations;
        echi_plan_request_cut(&c->request, c->setup->plan.cut);
        echi_plan_times_cut(&c->request, c->setup->plan.cut, c->times);
    }
    if (!c->plan_given && c->request.regroup_after > 0) echi_plan_add_reserve(&c->request, c->times, &c->setup->plan);
    echi_plan_parts(&c->request, c->times, &c->setup->plan);
    c->setup->plan.resumed = c->goal.resumed;
    c->plan = c->setup->plan;
    memset(c->plan.lost, 0, sizeof c->plan.lost);
    c->policy = echi_policy_of((enum echi_sync)plan_of(c)->sync);
    echi_ledger_planned(c);
    echi_homes_planned(c);
    c->phase = ECHI_RUN_PLANNED;
    echi_act(out, ECHI_ACTION_PLAN);
    wait_for(c, c->request.world);
    for (int r = 0; r < c->request.world; r++)   /* whom the plan leaves out, unless it came from a file */
        if (c->request.absent[r] && c->phase == ECHI_RUN_PLANNED)
            echi_lose(c, r, ECH_E_PEER_LOST, "it left while step times were measured", now, out);
}

void echi_coordinator_judge(struct echi_coordinator *c) {
    if (c->plan_given) echi_plan_judge(&c->request, c->times, &c->setup->plan, &c->work, &c->choice);
}

/* A plan of a few nodes of which none was lost, by times that are known. */
static bool is_predicted(const struct echi_coordinator *c) {
    return c->choice.count > 0 && c->n_lost == 0 && plan_of(c)->world <= ECHI_WHAT_IF_WORLD;
}

bool echi_coordinator_line(struct echi_coordinator *c, struct echi_timeline *line) {
    struct echi_prediction p;
    if (!is_predicted(c)) return false;
    echi_predict_line(plan_of(c), c->times, &c->request.load, 0, &c->work.predict, line, &p);
    return true;
}

bool echi_coordinator_sweep(struct echi_coordinator *c, const double *factor, int count, double *out_rate) {
    return is_predicted(c) && plan_of(c)->world > 1 &&
           echi_link_sweep(plan_of(c), c->times, &c->request.load, &c->work, factor, count, out_rate);
}

bool echi_coordinator_node_sweep(struct echi_coordinator *c, const int *nodes, int count, double *out_rate) {
    c->work.between = NULL;
    if (!is_predicted(c)) return false;
    echi_node_sweep(&c->request, c->times, plan_of(c), &c->work, nodes, count, out_rate);
    return true;
}

int echi_coordinator_what_if(struct echi_coordinator *c, struct echi_timeline *line, struct echi_traffic traffic[ECHI_WHAT_IF_WORLD],
                             struct echi_what_if out[ECHI_WHATS]) {
    const struct echi_plan *plan = plan_of(c);
    struct echi_prediction p;
    c->work.between = NULL;
    if (!is_predicted(c)) return 0;
    echi_predict_line(plan, c->times, &c->request.load, 0, &c->work.predict, line, &p);
    if (plan->world < 2) return 0;
    memcpy(traffic, c->work.predict.traffic, (size_t)plan->world * sizeof *traffic);
    return echi_what_if(plan, c->times, &c->request.load, p.rate, &c->work, out);
}

/* First weights and, in a resumed run, the momentum of group `g`. */
static void feed_one(struct echi_coordinator *c, int rank, enum echi_role role, int g, struct echi_actions *out) {
    send_params(echi_act_send(out, rank, role, ECHI_ROLE_COORDINATOR, ECHI_KIND_PARAMS), ECHI_PARAMS_PART,
                (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0});
    if (c->goal.resumed)
        send_params(echi_act_send(out, rank, role, ECHI_ROLE_COORDINATOR, ECHI_KIND_PARAMS), ECHI_PARAMS_MOMENTUM,
                    (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)(1 + g)});
}

void echi_feed(struct echi_coordinator *c, struct echi_actions *out) {
    c->phase = ECHI_RUN_FEEDS;
    const struct echi_plan *p = plan_of(c);
    const int shards = echi_plan_shards(p);
    int fed = 0;
    for (int g = 0; g < p->n_groups; g++)
        for (int k = 0; k < shards; k++) {
            const int owner = echi_plan_shard_owner(p, g, k);
            if (is_lost(c, owner)) continue;   /* its parts go to others before the first lease */
            feed_one(c, owner, ECHI_ROLE_OWNER, g, out);
            fed++;
        }
    for (int r = 0; r < p->world && p->cut; r++) {
        if (!echi_plan_hosts(p, r, ECHI_ROLE_HEAD)) continue;
        feed_one(c, r, ECHI_ROLE_HEAD, 0, out);
        fed++;
    }
    /* Each says that it has started, and what it is sent leaves its slot, which evaluations and checkpoints will write. */
    wait_for(c, (2 + c->goal.resumed) * fed);
}

static void fed(struct echi_coordinator *c, int64_t now) {
    if (c->phase != ECHI_RUN_FEEDS || --c->waits_for > 0) return;
    c->phase = ECHI_RUN_TRAINS;
    c->train_began = now;
    echi_keep_begin(c);
}

/* What was sent to a lost owner or head comes back as sent; that it has started it cannot say any more. */
void echi_feed_lost(struct echi_coordinator *c, int rank, bool head, int64_t now) {
    if (c->phase == ECHI_RUN_FEEDS && echi_plan_group_owned(plan_of(c), rank) >= 0 && !c->mark[rank]) fed(c, now);
    if (c->phase == ECHI_RUN_FEEDS && head && !echi_ranks_has(&c->heads_started, rank)) fed(c, now);
}

/* ---- progress ---- */

static void next(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    echi_homes_go_on(c, out);
    if (c->phase != ECHI_RUN_TRAINS) return;
    if (echi_takeover(c, out)) return;
    if (c->goal.has_test && !c->met && c->applied >= c->next_eval) return echi_eval_hold(c, e->now, out);
    if (!c->calm || echi_moves_change(c, out)) return;
    echi_homes_wait(c, e->now);
    echi_ledger_deal(c, out);
    if (c->n_out > 0 || c->n_again > 0 || !echi_losses_settled(c)) return;
    if (echi_homes_begin(c, out) || echi_keep_quiet(c, e->now, out)) return;
    c->phase = ECHI_RUN_DRAINS;
    echi_drain(c, out);
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
    echi_moves_watch(c, m, e->now);
    echi_rates_follow(c, e->now);
    echi_shares_follow(c, e->now);
    echi_homes_follow(c, e->now);
    c->loss_sum += m->loss;
    if (m->lease.epoch == 0) echi_curve_add(&c->curve, plan_of(c)->round, c->applied, m->loss, m->lease.n);
    if (c->policy->rounds) {   /* whoever did which part */
        c->round_loss += m->loss;
        c->round_in += m->lease.n;
        if (c->round_in >= m->lease.round_size) {
            c->loss_noted = true;
            c->loss_round = m->lease.round;
            c->loss_before = c->loss_of_run;
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
    if (!plan_of(c)->cut) return;
    if (m->head > c->head_newest) c->head_newest = m->head;
    c->head_bins[echi_staleness_bin((double)(c->head_newest - m->head) / plan_of(c)->round)]++;
}

static void on_fault(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    ech_status status = ECH_E_INTERNAL;   /* what the node says, if that is a failure at all */
#define FAILURE(name, number, text, retry, remake) if (m->layer == (number) && (number) != 0) status = name;
    ECH_STATUS_LIST(FAILURE)
#undef FAILURE
    const int peer = m->peer < c->request.world ? m->peer : e->from;
    const bool gone = status == ECH_E_PEER_LOST || status == ECH_E_TIMEOUT;
    if (gone && peer == e->from) echi_lose(c, peer, status, m->text, e->now, out);
    else if (status == ECH_E_PEER_LOST) echi_peers_complain(c, e->from, peer, m->text, e->now, out);
    else echi_end_with(c, status, peer, m->text, out);
}

static void on_message(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (is_lost(c, e->from) || c->request.absent[e->from]) return;   /* it still came, but nobody counts on it any more */
    if (m->kind != ECHI_KIND_RATE) c->quiet[e->from] = 0;   /* an I/O thread says so by itself */
    switch (m->kind) {
    case ECHI_KIND_HEARTBEAT:
        if (m->number == c->asked[e->from]) c->asked[e->from] = 0;
        break;
    case ECHI_KIND_MEASURED:
        if (c->phase != ECHI_RUN_MEASURES) break;
        if (!echi_times_decode(e->bytes, e->len, &c->times[e->from]))
            return echi_act_fault(out, ECH_E_FORMAT, "a node sent step times that make no sense");
        if (last_answer(c, e->from)) echi_make_plan(c, e->now, out);
        break;
    case ECHI_KIND_READY:
        if (m->members > 0) echi_losses_ready(c, e, out);
        else if (c->phase == ECHI_RUN_PLANNED && last_answer(c, e->from)) echi_feed(c, out);
        break;
    case ECHI_KIND_REVOKED: echi_losses_revoked(c, e, out); break;
    case ECHI_KIND_STANDS: echi_takeover_stands(c, e); break;
    case ECHI_KIND_STARTED:
        if (m->members > 0) {
            echi_homes_started(c, e);
            break;
        }
        if (m->from_role == ECHI_ROLE_HEAD) echi_ranks_add(&c->heads_started, e->from);
        else c->mark[e->from] = true;
        fed(c, e->now);
        break;
    case ECHI_KIND_APPLIED: on_applied(c, e, out); break;
    case ECHI_KIND_HELD:
        if (c->phase == ECHI_RUN_HOLDS && last_answer(c, e->from)) echi_eval_held(c, e->now, out);
        break;
    case ECHI_KIND_PARAMS:
        if (!echi_copy_is_whole(c, e)) break;
        if (m->from_role == ECHI_ROLE_OWNER) c->source = ECHI_NO_RANK;
        if (c->phase == ECHI_RUN_EVALUATES || c->phase == ECHI_RUN_LAST_EVAL) echi_eval_copy(c, e, out);
        else if (c->phase == ECHI_RUN_GATHERS || c->phase == ECHI_RUN_LAST_KEEP) echi_keep_part(c, e, out);
        break;
    case ECHI_KIND_ASK: echi_eval_whole(c, e, out); break;
    case ECHI_KIND_DRAINED:
        if (m->members != c->members || echi_plan_group_owned(plan_of(c), e->from) < 0) break;
        if (c->phase == ECHI_RUN_QUIETS && last_answer(c, e->from)) {
            echi_keep_gather(c, e->now, out);
        } else if (c->phase == ECHI_RUN_SETTLES && last_answer(c, e->from)) {
            echi_homes_settled(c, e->now, out);
        } else if (c->phase == ECHI_RUN_DRAINS && last_answer(c, e->from)) {
            c->train_ended = e->now;
            echi_end_drained(c, e->now, out);
        }
        break;
    case ECHI_KIND_RATE: echi_rates_heard(c, e, out); break;
    case ECHI_KIND_PACE: echi_homes_pace(c, e); break;
    case ECHI_KIND_FAULT: on_fault(c, e, out); break;
    case ECHI_KIND_STOP: echi_leave(c, e->from, m->flag != 0, e->now, out); break;
    case ECHI_KIND_STATS: echi_end_said(c, e->from, out); break;
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
        if (echi_rescue_step(c, e, out)) echi_end_failed(c, out);
        return;
    }
    switch (e->type) {
    case ECHI_EVENT_START: wait_for(c, c->request.world); break;
    case ECHI_EVENT_MESSAGE: on_message(c, e, out); break;
    case ECHI_EVENT_COMPUTED:
        if (e->task->kind == ECHI_TASK_EVAL) echi_eval_done(c, e, out);
        else if (echi_keep_done(c, e)) echi_end_drained(c, e->now, out);
        break;
    case ECHI_EVENT_SENT: fed(c, e->now); break;
    case ECHI_EVENT_LOST: echi_lose(c, e->from, ECH_E_PEER_LOST, e->msg ? e->msg->text : "", e->now, out); break;
    case ECHI_EVENT_STOP: echi_stop(c, out); break;
    default: break;
    }
    if (is_of_peers(e)) echi_peers_set_alarm(c, e->now, out);
    if (c->phase == ECHI_RUN_RESCUES) c->wake_at = c->goal.rescue ? e->now + c->goal.rescue : 0;
    next(c, e, out);
}

void echi_coordinator_step(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    if (c->phase == ECHI_RUN_ENDED) return;
    step(c, e, out);
    if (c->phase == ECHI_RUN_ENDED) c->wake_at = 0;   /* a complaint's window may still be open */
}
