/* SPDX-License-Identifier: Apache-2.0
 * Which nodes the run must do without, though rank 0 itself hears them.
 *
 * Complaints (PROTOCOL.md, "Broken links").
 * A node that cannot reach another says so. That is evidence, and no verdict: either of the two may be the one that others cannot reach
 * either. For a while complaints are collected, and the accused are asked whether they are there: who does not answer is lost, when
 * rank 0 has waited for it for long enough itself. Of those that answer the run does without as few as can be. */
#include "echi_coordinator_impl.h"

void echi_peers_complain(struct echi_coordinator *c, int from, int about, const char *reason, int64_t now, struct echi_actions *out) {
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
    /* An answer to an earlier question, still on its way, left before this complaint: it says nothing about it. */
    c->asked[about] = ++c->questions;
    echi_act_send(out, about, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_HEARTBEAT)->msg.number = c->questions;
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
    if (!echi_plan_can_lose(&c->plan, rank)) return COST_NEEDED;
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
    echi_lose(c, rank, ECH_E_PEER_LOST, text, now, out);
}

/* Returns when it is to be called again; 0: with the next event. */
static int64_t judge(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    uint16_t rank[ECHI_REACH_RANKS];
    uint32_t cost[ECHI_WORLD_MAX];
    for (forget_the_lost(c); c->n_apart > 0 && c->phase < ECHI_RUN_ENDS; forget_the_lost(c)) {
        for (int i = 0; i < c->n_apart; i++)
            if (c->asked[c->apart[i].a] || c->asked[c->apart[i].b]) return 0;   /* it answers, or rank 0 finds that it is lost */
        if (now < c->judge_at) return c->judge_at;
        for (int r = 0; r < c->request.world; r++) cost[r] = cost_of(c, r);
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
    for (int r = 1; r < c->request.world; r++)
        if (is_here(c, r) && owes(c, r) && ++c->quiet[r] > QUIET_MAX) {
            c->quiet[r] = 0;
            return echi_lose(c, r, ECH_E_TIMEOUT, "it is heard, but neither answers nor computes, for twelve times --deadline", now, out);
        }
}

/* When the next TIME is wanted: for a choice among complaints, or for a tick. */
void echi_peers_set_alarm(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (c->goal.tick > 0 && now >= c->tick_at) {
        if (c->tick_at > 0) tick(c, now, out);
        c->tick_at = now + c->goal.tick;
    }
    c->wake_at = judge(c, now, out);
    if (c->goal.tick > 0 && (c->wake_at == 0 || c->tick_at < c->wake_at)) c->wake_at = c->tick_at;
}
