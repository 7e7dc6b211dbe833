/* SPDX-License-Identifier: Apache-2.0
 * Where the separated layers are (PROTOCOL.md, "The head moves"): another shadow for a head that has none any more, and another place for a
 * head whose node has become slow for good, or that is predicted to be clearly better elsewhere.
 *
 * Nothing new is dealt; when all that was dealt is in, and every owner has all states, nothing can be issued again of what is in. So the
 * head's weights and momentum are all that another node needs: the head sends them once, and only then all nodes are told whose rows go
 * where. Until that word the head and what shadow it has are as before, so whoever is lost meanwhile is lost as at any other time. */
#include "echi_coordinator_impl.h"

#define CHECKS 6        /* while a change lasts for as long as it must, at most */
#define ROUNDS 16       /* samples of so many rounds between two checks, at least: the head has been at 16 visits or more */
#define TRIED 8         /* places that are predicted: those that would train the rows the soonest */
#define IDLE 4          /* after each check that found nothing better twice as long, and so often doubled */

void echi_homes_planned(struct echi_coordinator *c) { c->homes.shadowed = plan_of(c)->shadow > 0; }

/* It lives, and has not said that it lacks the memory. */
static bool may_have(const struct echi_coordinator *c, int rank) { return is_here(c, rank) && !echi_ranks_has(&c->homes.full, rank); }
static bool has_layers(const struct echi_plan *p, int rank) { return rank == p->head || rank == echi_plan_shadow(p); }

static bool has_candidate(const struct echi_coordinator *c) {
    int r = 0;
    while (r < plan_of(c)->world && (has_layers(plan_of(c), r) || !may_have(c, r))) r++;
    return r < plan_of(c)->world;
}

/* ---- is another place better? ---- */

static double slower(const struct echi_coordinator *c) {
    if (c->homes.first > 0) return c->homes.pace.average / c->homes.first;
    return echi_follow_slower(&c->follow, plan_of(c)->head);
}

/* The machines as they are now: the head's by its own word. */
static void see(struct echi_coordinator *c, int64_t now) {
    struct echi_times *head = &c->work.now[plan_of(c)->head];
    const double by = slower(c) / echi_follow_slower(&c->follow, plan_of(c)->head);
    echi_machines_seen(&c->follow, plan_of(c), c->times, now, c->work.now);
    for (uint32_t i = 0; i < head->count; i++) {
        head->head[i] *= by;
        if (plan_of(c)->group_of[plan_of(c)->head] == ECHI_NONE) head->trunk[i] *= by;   /* nothing else is known of it */
    }
}

/* As when the plan was made, of the machines as they are now, beside this head; -1: there is none. */
static int best_shadow(const struct echi_coordinator *c, int head) {
    bool but[ECHI_WORLD_MAX];
    for (int r = 0; r < plan_of(c)->world; r++) but[r] = r == head || !may_have(c, r);
    return echi_plan_best_shadow(c->work.now, plan_of(c)->world, but, plan_of(c)->round);
}

/* The shadow beside a head at this place: that of now, where it is another node; -1: none. */
static int shadow_beside(const struct echi_coordinator *c, int head) {
    const int shadow = echi_plan_shadow(plan_of(c));
    if (!c->homes.shadowed) return -1;
    return shadow >= 0 && shadow != head ? shadow : best_shadow(c, head);
}

static void place_at(struct echi_coordinator *c, int head) {
    struct echi_plan *p = &c->work.tried;
    *p = *plan_of(c);
    memcpy(p->n, c->size, (size_t)p->world * sizeof *p->n);
    p->head = (uint16_t)head;
    p->shadow = (uint16_t)(1 + shadow_beside(c, head));
}

static double predicted(struct echi_coordinator *c, int head) {
    struct echi_prediction prediction;
    place_at(c, head);
    echi_predict(&c->work.tried, c->work.now, &c->request.load, 0, &c->work.predict, &prediction);
    return prediction.rate;
}

/* A head that has a shadow is where it may be lost. */
static bool may_move_to(struct echi_coordinator *c, int rank) {
    if (rank == plan_of(c)->head || !may_have(c, rank)) return false;
    place_at(c, rank);
    return !c->homes.shadowed || (c->work.tried.shadow > 0 && echi_plan_can_lose(&c->work.tried, rank));
}

/* The best of those that would train a round's rows the soonest; -1: there is none. */
static int best_place(struct echi_coordinator *c, double *out_rate) {
    bool but[ECHI_WORLD_MAX];
    int best = -1;
    *out_rate = 0;
    for (int r = 0; r < plan_of(c)->world; r++) but[r] = !may_move_to(c, r);
    for (int i = 0; i < TRIED; i++) {
        const int rank = echi_plan_best_shadow(c->work.now, plan_of(c)->world, but, plan_of(c)->round);
        if (rank < 0) break;
        but[rank] = true;
        const double rate = predicted(c, rank);
        if (rate <= *out_rate) continue;
        *out_rate = rate;
        best = rank;
    }
    return best;
}

void echi_homes_pace(struct echi_coordinator *c, const struct echi_event *e) {
    const struct echi_msg *m = e->msg;
    if (e->from != plan_of(c)->head || m->version == 0 || m->samples < m->version || m->compute >> 62 || m->samples >> 32) return;
    const double usual = (double)m->version * echi_times_head(&c->times[e->from], (uint32_t)(m->samples / m->version));
    if (!(usual > 0)) return;
    echi_speed_add(&c->homes.pace, (double)m->compute * 1e-9 / usual);
    if (c->homes.first <= 0 && echi_speed_known(&c->homes.pace)) c->homes.first = c->homes.pace.average;
}

/* Is it one that could move, and does it not already? */
static bool may_go(const struct echi_coordinator *c) {
    return plan_of(c)->cut && !plan_of(c)->heads && c->phase == ECHI_RUN_TRAINS && !c->homes.due && c->homes.to == 0;
}

/* Has any machine changed at all since the start? Nothing is predicted before. */
static bool has_changed(const struct echi_coordinator *c) {
    const double here = slower(c);
    bool changed = here > 1 + ECHI_REPLAN_GAIN || here * (1 + ECHI_REPLAN_GAIN) < 1;
    for (int r = 0; r < plan_of(c)->world && !changed; r++) {
        const double other = echi_follow_slower(&c->follow, r);
        changed = other > 1 + ECHI_REPLAN_GAIN || other * (1 + ECHI_REPLAN_GAIN) < 1;
    }
    return changed;
}

void echi_homes_follow(struct echi_coordinator *c, int64_t now) {
    const int64_t after = c->request.regroup_after;
    double there = 0;
    if (after <= 0 || now - c->homes.checked < (after / CHECKS) << c->homes.idle) return;
    if (c->applied - c->homes.at < (uint64_t)ROUNDS * plan_of(c)->round) return;
    if (!may_go(c) || c->n_lost > 0 || plan_of(c)->world > ECHI_WHAT_IF_WORLD) return;   /* behind a loss no plan is predicted */
    c->homes.checked = now;
    c->homes.at = c->applied;
    if (!has_changed(c)) {
        c->homes.idle = 0;
        return;
    }
    see(c, now);
    const double here = predicted(c, plan_of(c)->head);
    const int to = best_place(c, &there);
    const bool better = to >= 0 && here > 0 && there >= here * (1 + ECHI_REPLAN_GAIN);
    if (better) c->homes.idle = 0;
    else if (c->homes.idle < IDLE) c->homes.idle++;
    if (!echi_lasting_check(&c->homes.lasting, better, better ? there / here : 1, after, now)) return;
    echi_lasting_answered(&c->homes.lasting, false, after, now);
    c->homes.to = (uint16_t)(1 + to);
    c->homes.gain = there / here - 1;
    c->homes.slower = slower(c);
}

bool echi_coordinator_rehome(struct echi_coordinator *c, int rank) {
    if (!may_go(c)) return false;
    memcpy(c->work.now, c->times, (size_t)plan_of(c)->world * sizeof *c->times);
    if (!may_move_to(c, rank)) return false;
    c->homes.to = (uint16_t)(1 + rank);
    return true;
}

/* ---- the layers get other nodes ---- */

void echi_homes_wait(struct echi_coordinator *c, int64_t now) {
    const bool was_due = c->homes.due, lacks = c->homes.shadowed && plan_of(c)->shadow == 0 && has_candidate(c);
    c->homes.due = (lacks || c->homes.to > 0) && !c->met && echi_ledger_unfinished(c);
    if (c->homes.due && !was_due) c->homes.since = now;
    if (!c->homes.due && was_due) c->homes.held += now - c->homes.since;
}

bool echi_homes_begin(struct echi_coordinator *c, struct echi_actions *out) {
    if (!c->homes.due) return false;
    c->phase = ECHI_RUN_SETTLES;
    echi_drain(c, out);
    return true;
}

static void tell(struct echi_coordinator *c, enum echi_heads what, int rank, int shadow, struct echi_actions *out) {
    struct echi_msg m = {.kind = ECHI_KIND_HEADS, .flag = (uint8_t)what, .peer = (uint16_t)rank, .part = (uint16_t)shadow};
    m.members = ++c->members;
    c->calm = false;
    echi_plan_told(&c->plan, &m);
    for (int r = 0; r < c->request.world; r++) {
        if (is_lost(c, r)) continue;
        struct echi_msg *to = &echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_HEADS)->msg;
        to->flag = m.flag;
        to->peer = m.peer;
        to->part = m.part;
        to->members = m.members;
    }
}

/* All are told whose rows go where; the nodes that are named have all there is. */
static void tell_homes(struct echi_coordinator *c, int head, int shadow, struct echi_actions *out) {
    if (head != plan_of(c)->head) {
        c->homes.moves++;
        echi_follow_moved(&c->follow, plan_of(c)->head, head, slower(c));
        c->homes.pace = (struct echi_speed){0};
        c->homes.first = 0;
    }
    tell(c, ECHI_HEADS_HOMES, head, shadow, out);
    c->homes.to = 0;
    c->phase = ECHI_RUN_TRAINS;
}

/* Of the two nodes at most one has no layers yet: a shadow stays where it is, but where the head moves to it; and a head that has lost its
 * shadow gets another before it moves. */
void echi_homes_settled(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    see(c, now);
    c->homes.head = c->homes.to && (p->shadow || !c->homes.shadowed) ? (uint16_t)(c->homes.to - 1) : p->head;
    c->homes.shadow = (uint16_t)(1 + shadow_beside(c, c->homes.head));
    const int to = has_layers(p, c->homes.head) ? c->homes.shadow - 1 : c->homes.head;
    c->phase = ECHI_RUN_TRAINS;
    if (to < 0 || has_layers(p, to)) return tell_homes(c, c->homes.head, c->homes.shadow, out);
    tell(c, ECHI_HEADS_COPY, to, 0, out);
    c->homes.copy = c->members;
    c->homes.asked = c->homes.copied = false;
    c->phase = ECHI_RUN_HANDS_ON;
}

/* When all living nodes know of all that was told so far, and what a lost owner had is settled: that is told by the epoch of its loss. */
void echi_homes_go_on(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    if (c->phase != ECHI_RUN_HANDS_ON || !c->calm || !echi_losses_settled(c)) return;
    if (echi_ranks_has(&c->homes.full, p->coming - 1)) return tell_homes(c, p->head, p->shadow, out);
    if (c->homes.copied) {
        c->homes.shadows += p->coming == c->homes.shadow;
        return tell_homes(c, c->homes.head, c->homes.shadow, out);
    }
    if (c->homes.asked) return;
    c->homes.asked = true;
    struct echi_msg *m = &echi_act_send(out, p->head, ECHI_ROLE_HEAD, ECHI_ROLE_COORDINATOR, ECHI_KIND_ASK)->msg;
    m->flag = ECHI_ASK_HAND_ON;
    m->samples = echi_samples_at_head(c);
    m->members = c->homes.copy;
}

void echi_homes_full(struct echi_coordinator *c, int rank) {
    if (c->phase == ECHI_RUN_HANDS_ON && plan_of(c)->coming == 1 + rank) echi_ranks_add(&c->homes.full, rank);
}

void echi_homes_started(struct echi_coordinator *c, const struct echi_event *e) {
    c->homes.copied = c->phase == ECHI_RUN_HANDS_ON && e->msg->members == c->homes.copy && plan_of(c)->coming == 1 + e->from;
}

/* What had settled is dealt anew, and then comes another attempt; a copy between two that live goes on. Where the shadow is lost, who gets
 * it takes its place. */
void echi_homes_lost(struct echi_coordinator *c) {
    const struct echi_plan *p = plan_of(c);
    c->homes.to = 0;
    if (c->phase == ECHI_RUN_SETTLES || (c->phase == ECHI_RUN_HANDS_ON && p->coming == 0)) c->phase = ECHI_RUN_TRAINS;
    if (c->phase != ECHI_RUN_HANDS_ON || !c->homes.shadowed || p->shadow > 0) return;
    c->homes.head = p->head;
    c->homes.shadow = p->coming;
}
