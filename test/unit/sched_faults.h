/* SPDX-License-Identifier: Apache-2.0
 * What goes wrong in a simulated cluster (sched_sim.h), by rates that come from the seed: a first phase in which it does, and a
 * second, without faults, in which the rest must come to its end within so many events.
 *
 * What net promises is kept: within (sender, receiver, kind) all messages arrive, in order and once, until the link is lost for good.
 *   late       a message takes up to a thousand times as long
 *   slow       a link is 2 to 64 times as slow, in one direction
 *   twice      a word that says the same when it is said again comes twice, one behind the other. No transport does that; roles
 *              take it all the same. Payloads, leases and counts (APPLIED, dropped, STARTED, HELD, DRAINED) are said once: roles rely on it
 *   pause      a node handles nothing for a while, then all that has come, at once
 *   cut        a link ends. One of its nodes complains to the coordinator, or it is the coordinator; one of the two is then declared
 *              lost, but goes on with all others until each has dropped it, and leaves when rank 0 has. Where both may be lost, both
 *              complain; where one may not, the other must go, whoever complains
 *   wall       some nodes cannot reach the others. It heals, and what was sent arrives; or they are declared lost, one by one,
 *              and each of them leaves when it has missed rank 0 for long enough
 *   kill       a process ends
 *   fatal      one ends that the run cannot do without (but rank 0): the run must end with its name, and all must hear of it
 *   jump       a node's clock jumps forward. Clocks are set and run differently from the beginning, by a rate of their own
 *   stop       a node's user asks for an orderly end
 * The power goes by `cut_at`; resuming is in sched_runs.h. Nodes that join while a run goes are no part of the roles yet: they
 * are to be drawn in fault_now_and_then. */
#ifndef SCHED_FAULTS_H
#define SCHED_FAULTS_H
#include <math.h>

#include "sched_sim.h"

static void count_fault(struct sim *s, enum fault what, int a, int b) {
    if (s->counts) s->counts->fault[what]++;
    if (what == FAULT_TAIL || what == FAULT_TWICE || what == FAULT_SLOW || what == FAULT_SKEW) return;
    note(s, DUES_OF, a, b)->kind = (uint8_t)what;
}

/* ---- messages ---- */

/* How long a message is under way. */
static int64_t travel(struct sim *s, int from, int to, uint32_t scale) {
    int64_t delay = after(s, scale) - s->now;
    if (s->calm || !s->rates.safety || from == to) return delay;
    if (s->node[from].slow[to]) delay *= s->node[from].slow[to];
    if (!chance(s, s->rates.tails)) return delay;
    count_fault(s, FAULT_TAIL, from, to);
    for (int i = 0; i < 10; i++) {
        delay *= 2;
        if (below(s, 3) == 0) break;
    }
    return delay;
}

/* Words that may be said again. */
static bool comes_twice(struct sim *s, const struct echi_msg *m) {
    if (s->calm || !chance(s, s->rates.twice)) return false;
    switch (m->kind) {
    case ECHI_KIND_READY: if (m->members == 0) return false; break;
    case ECHI_KIND_REVOKE: if (m->lease.id == 0) return false; break;
    case ECHI_KIND_REVOKED: if (m->flag == ECHI_REVOKED_DROPPED) return false; break;
    case ECHI_KIND_STANDS: if (m->flag == ECHI_STANDS_TAKEN) return false; break;
    case ECHI_KIND_ENTER: case ECHI_KIND_STATE_ACK: case ECHI_KIND_RESUME: break;
    case ECHI_KIND_FAULT: case ECHI_KIND_STOP: case ECHI_KIND_LOST: break;
    default: return false;
    }
    count_fault(s, FAULT_TWICE, 0, 0);
    return true;
}

/* ---- nodes and links ---- */

/* A node that trains the separated layers, or is about to. */
static int a_home(struct sim *s) {
    const struct echi_plan *p = &s->coordinator.plan;
    const int home[] = {p->head, echi_plan_shadow(p), p->coming - 1};
    const int rank = home[below(s, 3)];
    return rank < 0 || rank >= p->world ? p->head : rank;
}

/* Of who may be lost an owner more often than by chance, and so a head. */
static int somebody(struct sim *s) {
    int owner = s->plan.n_groups > 1 && below(s, 2) ? victim(s, s->plan.owner_of[below(s, s->plan.n_groups)]) : -1;
    if (s->plan.shadow && below(s, 3) == 0) owner = victim(s, a_home(s));
    if (s->plan.shards && below(s, 2)) owner = victim(s, s->coordinator.plan.shard_owner[below(s, s->plan.shards)]);
    return owner >= 0 ? owner : victim(s, -1);
}

static void pause_node(struct sim *s) {
    const int rank = (int)below(s, s->plan.world);
    struct node *n = &s->node[rank];
    if (n->dead || n->paused > s->now) return;
    n->paused = s->now + 1 + below(s, 10u << below(s, 10));
    count_fault(s, FAULT_PAUSE, rank, rank);
}

/* The end of a link. `lost` may be lost; `other` may be too, and is then as likely to see it first, or the run needs it. */
static void cut_two(struct sim *s) {
    const int lost = somebody(s);
    if (lost < 0) return;
    const int other = (int)below(s, s->plan.world);
    if (other == lost || !linked(s, lost, other) || s->node[other].doomed) return;
    const bool made = s->coordinator.phase > ECHI_RUN_MEASURES, both = other != 0 && victim(s, other) == other;
    /* One that the run needs only because of others that are lost, and not known to be yet: either of the two could be chosen now. */
    if (other != 0 && !both && (!made || echi_plan_can_lose(&s->coordinator.plan, other))) return;
    /* Nor where the head may get a shadow, or move, before one is chosen. */
    if (other != 0 && !both && (s->plan.shadow || moves_head(s))) return;
    count_fault(s, FAULT_CUT, lost, other);
    doom(s, lost);
    cut_link(s, lost, other);
    if (other == 0) {
        due_at(s, after(s, below(s, 2) ? 20 : 1000), DUE_NOTICE, 0, lost);
        return due_at(s, after(s, 1000), DUE_DEATH, lost, 0);
    }
    const bool other_first = both || below(s, 2);
    due_at(s, after(s, below(s, 2) ? 20 : 1000), DUE_NOTICE, other_first ? other : lost, other_first ? lost : other);
    s->node[lost].rival = (uint8_t)(1 + other);
    if (!both) return;
    doom(s, other);
    s->node[other].rival = (uint8_t)(1 + lost);
    due_at(s, after(s, below(s, 2) ? 20 : 1000), DUE_NOTICE, lost, other);
}

/* One of two whose link is cut has been declared lost: the other stays. */
static void settle_cuts(struct sim *s) {
    for (int r = 0; r < s->plan.world; r++) {
        struct node *n = &s->node[r];
        if (!n->rival || s->coordinator.plan.lost[r] || !s->coordinator.plan.lost[n->rival - 1]) continue;
        n->rival = 0;
        n->doomed = false;
    }
}

/* A side of nodes without rank 0; it ends as a loss of them all, if they can be lost. */
static void raise_wall(struct sim *s) {
    const int count = 1 + (int)below(s, 3);
    const bool ends_as_loss = below(s, 2);
    int side[3], n = 0;
    for (int r = 0; r < s->plan.world; r++)
        if (s->node[r].walled > s->now) return;   /* one at a time */
    for (int i = 0; i < count; i++) {
        const int rank = ends_as_loss ? somebody(s) : (int)below(s, s->plan.world);
        if (rank <= 0 || s->node[rank].doomed || s->node[rank].wall) continue;
        if (ends_as_loss) doom(s, rank);
        s->node[rank].wall = 1;
        side[n++] = rank;
    }
    if (n == 0) return;
    const int64_t end = s->now + 1 + below(s, 10u << below(s, 10));
    count_fault(s, ends_as_loss ? FAULT_WALL_LOSS : FAULT_WALL, side[0], n);
    for (int r = 0; r < s->plan.world; r++) s->node[r].walled = end;
    for (int i = 0; i < n; i++) {
        if (!ends_as_loss) continue;
        for (int r = 0; r < s->plan.world; r++)
            if (!s->node[r].wall && linked(s, r, side[i])) cut_link(s, r, side[i]);
        due_at(s, end + below(s, 1000), DUE_NOTICE, 0, side[i]);
        due_at(s, end + below(s, 1000), DUE_DEATH, side[i], 0);
    }
    s->wall_ends = end;
}
static void lower_wall(struct sim *s) {
    for (int r = 0; r < s->plan.world; r++) s->node[r].wall = 0, s->node[r].walled = 0;
    s->wall_ends = 0;
}

static void kill_fatally(struct sim *s) {
    const int rank = (int)below(s, s->plan.world);
    const bool needed = rank != 0 && !echi_plan_can_lose(&s->coordinator.plan, rank);
    if (s->coordinator.phase < ECHI_RUN_TRAINS || s->node[rank].doomed || !needed) return;
    count_fault(s, FAULT_FATAL, rank, 0);
    s->fatal = true;
    kill_node(s, rank);
}

static void ask_to_stop(struct sim *s) {
    const int rank = (int)below(s, s->plan.world);
    if (!linked(s, rank, 0) || s->coordinator.phase < ECHI_RUN_TRAINS) return;
    struct echi_event stop = {.type = ECHI_EVENT_STOP, .flag = true};
    count_fault(s, FAULT_STOP, rank, 0);
    s->asked_to_stop = true;
    role_event(s, rank, ECHI_ROLE_NODE, &stop);
}

/* ---- rates of links ---- */

/* Drivers report any rates of any hosts, also such as no link has. With numbers of their own. */
static void tell_rate(struct sim *s) {
    static const double odd[] = {0, -1, NAN, INFINITY, 1e-300, 5e-324, 1e15, 1e300};
    struct echi_random *r = &s->told;
    if (echi_random_below(r, 4)) return;
    const int node = (int)echi_random_below(r, s->plan.world);
    struct echi_event e = {.type = ECHI_EVENT_RATE, .from = (uint16_t)echi_random_below(r, s->plan.world),
                           .flag = echi_random_below(r, 2) != 0, .rate = 1e4 * (double)(1u << echi_random_below(r, 16))};
    if (echi_random_below(r, 8) == 0) e.rate = odd[echi_random_below(r, 8)];
    if (s->node[node].dead) return;
    if (s->counts) s->counts->told_rates++;
    role_event(s, node, ECHI_ROLE_NODE, &e);
}

/* ---- phases ---- */

static void begin_faults(struct sim *s) {
    const struct rates *r = &s->rates;
    if (!r->safety) return;
    for (int a = 0; a < s->plan.world; a++) {
        struct node *n = &s->node[a];
        if (chance(s, r->skewed)) {
            count_fault(s, FAULT_SKEW, a, a);
            n->clock_at = (int64_t)below(s, 1u << 30) << below(s, 20);
            n->drift = (int32_t)below(s, 1000) - 500;
        }
        for (int b = 0; b < s->plan.world; b++)
            if (a != b && chance(s, r->slow)) {
                count_fault(s, FAULT_SLOW, a, b);
                n->slow[b] = (uint8_t)(2u << below(s, 6));
            }
    }
    s->next_fault = 1 + below(s, 2 * r->every);
}

/* Faults off: from here the rest must end within so many events. Pauses and walls that have begun end by themselves, and losses
 * that have happened are still to be seen. */
enum { LIVE_EVENTS = 8000, LIVE_EVENTS_A_SAMPLE = 200 };
static void calm_down(struct sim *s) {
    const uint64_t left = s->goal.samples - (s->coordinator.applied < s->goal.samples ? s->coordinator.applied : s->goal.samples);
    s->calm = true;
    s->calm_at = s->events;
    s->live_events = LIVE_EVENTS + LIVE_EVENTS_A_SAMPLE * left;
    if (s->counts) s->counts->calm++;
}

/* While the separated layers are on their way. */
static void kill_a_home(struct sim *s) {
    const int shadow = echi_plan_shadow(&s->coordinator.plan);   /* there is one where the head moves */
    const int rank = victim(s, shadow >= 0 && below(s, 2) ? shadow : a_home(s));
    if (rank < 0) return;
    count_fault(s, FAULT_KILL, rank, 0);
    kill_node(s, rank);
}

static void fault_now_and_then(struct sim *s) {
    const struct rates *r = &s->rates;
    if (s->wall_ends && s->now >= s->wall_ends) lower_wall(s);
    if (s->calm) {
        MUST(s, WAIT, s->events - s->calm_at <= s->live_events);
        return;
    }
    if (s->events >= r->safety) return calm_down(s);
    if (s->coordinator.phase == ECHI_RUN_HANDS_ON && r->kills && below(s, 12) == 0) return kill_a_home(s);
    if (s->events < s->next_fault || s->done) return;
    /* Troubles come together, now and then. */
    s->next_fault = s->events + 1 + (below(s, 4) ? below(s, 2 * r->every) : below(s, 8));
    const uint32_t all = r->pauses + r->cuts + r->walls + r->kills + r->fatal + r->jumps + r->stops;
    uint32_t which = all ? below(s, all) : 0;
    if (all == 0) return;
    if (which < r->pauses) return pause_node(s);
    which -= r->pauses;
    if (which < r->cuts) return cut_two(s);
    which -= r->cuts;
    if (which < r->walls) return raise_wall(s);
    which -= r->walls;
    if (which < r->kills) {
        const int rank = somebody(s);
        if (rank < 0) return;
        count_fault(s, FAULT_KILL, rank, 0);
        return kill_node(s, rank);
    }
    which -= r->kills;
    if (which < r->fatal) return kill_fatally(s);
    which -= r->fatal;
    if (which < r->jumps) {
        const int rank = (int)below(s, s->plan.world);
        count_fault(s, FAULT_JUMP, rank, 0);
        s->node[rank].clock_jump += (int64_t)below(s, 1u << 30);
        return;
    }
    ask_to_stop(s);
}
#endif
