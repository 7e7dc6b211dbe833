/* SPDX-License-Identifier: Apache-2.0
 * Leases: ranges of each epoch's permutation, handed out once and taken in once (design, section 6, "Ledger"). */
#include "echi_ledger.h"

#include <string.h>

/* Samples that may still be leased from the current epoch, at most `want`; moves to the next epoch at the end of one. */
static uint32_t available(struct echi_coordinator *c, uint32_t want) {
    if (c->start == c->goal.train_samples) {
        c->epoch++;
        c->start = 0;
    }
    uint64_t left = c->goal.samples - c->issued, in_epoch = c->goal.train_samples - c->start;
    uint64_t most = left < in_epoch ? left : in_epoch;
    return want < most ? want : (uint32_t)most;
}

bool echi_ledger_unfinished(const struct echi_coordinator *c) { return !c->stopping && c->issued < c->goal.samples; }

/* Nothing is issued beyond the next checkpoint. */
static bool may_issue(const struct echi_coordinator *c) { return echi_ledger_unfinished(c) && c->issued < c->next_keep; }

static bool works(const struct echi_plan *p, int rank) { return !p->lost[rank] && p->group_of[rank] != ECHI_NONE; }

/* Hands a lease to a worker, with a number of its own. */
static void issue(struct echi_coordinator *c, int rank, struct echi_lease lease, struct echi_actions *out) {
    lease.id = c->next_lease++;
    lease.worker = (uint8_t)rank;
    lease.owner = c->plan.owner_of[c->plan.group_of[rank]];
    c->out[c->n_out].asked = c->out[c->n_out].earlier = false;
    c->out[c->n_out++].lease = lease;
    c->held[rank]++;
    struct echi_action *a = echi_act_send(out, rank, ECHI_ROLE_WORKER, ECHI_ROLE_COORDINATOR, ECHI_KIND_LEASE);
    a->msg.lease = lease;
    a->msg.members = c->members;
}

static void lease(struct echi_coordinator *c, int rank, uint32_t n, uint32_t round, uint32_t round_size,
                  struct echi_actions *out) {
    issue(c, rank, (struct echi_lease){.epoch = c->epoch, .start = c->start, .n = n, .round = round, .round_size = round_size}, out);
    c->start += n;
    c->issued += n;
}

/* The oldest of what is to be issued again, or as much of it as this worker has room for. */
static void lease_again(struct echi_coordinator *c, int rank, struct echi_actions *out) {
    const uint32_t room = c->policy->rounds ? echi_plan_room(&c->plan, rank) : c->size[rank];
    struct echi_lease *first = &c->again[0], part = *first;
    if (part.n > room) {
        part.n = room;
        first->start += room;
        first->n -= room;
    } else {
        c->n_again--;
        memmove(first, first + 1, (size_t)c->n_again * sizeof *first);
    }
    if (part.again) {
        c->again_leases++;
        c->again_samples += part.n;
    }
    issue(c, rank, part, out);
}

/* What is issued again because its worker or its owner is lost. */
static void put_again(struct echi_coordinator *c, const struct echi_lease *l) {
    c->again[c->n_again] = *l;
    c->again[c->n_again++].again = 1;
}

/* An owner's marks rise with the numbers of a worker's leases: none is dealt while one of an earlier stay in the group is out. */
static bool may_take(const struct echi_coordinator *c, int rank) {
    const uint8_t owner = c->plan.owner_of[c->plan.group_of[rank]];
    for (int i = 0; i < c->n_out && c->moved[rank] > 0; i++)
        if (c->out[i].earlier && c->out[i].lease.worker == rank && c->out[i].lease.owner == owner) return false;
    return true;
}

/* Parts of rounds whose workers are lost, in proportion to the shares of those who are left. */
static void deal_again(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = &c->plan;
    uint64_t load[ECHI_WORLD_MAX] = {0};
    while (c->n_again > 0 && c->n_out < ECHI_LEASES_OUT_MAX) {
        int to = -1;
        for (int r = 0; r < p->world; r++)
            if (works(p, r) && (to < 0 || (load[r] + 1) * p->n[to] < (load[to] + 1) * p->n[r])) to = r;
        const uint32_t room = echi_plan_room(p, to);
        load[to] += c->again[0].n < room ? c->again[0].n : room;
        lease_again(c, to, out);
    }
}

/* One round: shares as planned, or in proportion (largest remainder first) when an epoch ends with fewer samples or workers
 * are lost. It is dealt sample by sample, or in granules, of which the last may then be short; a share that is larger than its
 * worker has room for goes in parts. */
static void deal_round(struct echi_coordinator *c, uint32_t size, struct echi_actions *out) {
    const struct echi_plan *p = &c->plan;
    const uint32_t unit = p->deterministic ? ECHI_GRANULE : 1, units = (size + unit - 1) / unit;
    uint32_t n[ECHI_WORLD_MAX];
    uint64_t rest[ECHI_WORLD_MAX], all = 0;
    uint32_t dealt = 0;
    for (int r = 0; r < p->world; r++) all += works(p, r) ? p->n[r] : 0;
    for (int r = 0; r < p->world; r++) {
        uint64_t share = works(p, r) ? (uint64_t)p->n[r] * units : 0;
        n[r] = (uint32_t)(share / all);
        rest[r] = share % all;
        dealt += n[r];
    }
    for (; dealt < units; dealt++) {
        int most = 0;
        for (int r = 1; r < p->world; r++)
            if (rest[r] > rest[most]) most = r;
        n[most]++;
        rest[most] = 0;
    }
    uint32_t left = size;
    for (int r = 0; r < p->world; r++) {
        uint32_t own = n[r] * unit < left ? n[r] * unit : left;
        left -= own;
        for (uint32_t part; own > 0; own -= part) {
            part = own < echi_plan_room(p, r) ? own : echi_plan_room(p, r);
            lease(c, r, part, c->next_round, size, out);
        }
    }
    c->next_round++;
}

void echi_ledger_deal(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = &c->plan;
    if (c->policy->rounds) {
        deal_again(c, out);
        /* Nothing is out at a look that must find the same round each time. */
        const uint64_t most = p->deterministic && c->goal.has_test ? c->next_look : UINT64_MAX;
        while (may_issue(c) && c->issued < most && c->next_round < c->applied_rounds + 1 + p->strands)
            deal_round(c, available(c, p->round), out);
        return;
    }
    /* One each in turn, so that nobody takes two from the end of the data while another has none. */
    for (int ahead = 1; ahead <= p->strands + 1; ahead++)
        for (int r = 0; r < p->world; r++) {
            if (!works(p, r) || c->held[r] >= ahead || c->n_out == ECHI_LEASES_OUT_MAX || !may_take(c, r)) continue;
            if (c->n_again > 0) lease_again(c, r, out);
            else if (may_issue(c)) lease(c, r, available(c, c->size[r]), 0, p->round, out);
        }
}

static void forget(struct echi_coordinator *c, int at) {
    c->held[c->out[at].lease.worker]--;
    c->out[at] = c->out[--c->n_out];
}

/* In, but for now only as far as its owner lives. */
static void keep(struct echi_coordinator *c, const struct echi_lease *l, uint64_t version) {
    if (c->plan.n_groups == 1 || c->n_kept == ECHI_LEASES_KEPT_MAX) return;   /* owners stop before there are so many */
    c->kept[c->n_kept].lease = *l;
    c->kept[c->n_kept++].version = version;
}

/* The low-water mark of this owner's leases: all owners have this version of its state. */
static void release(struct echi_coordinator *c, int owner, uint64_t version) {
    int left = 0;
    for (int i = 0; i < c->n_kept; i++)
        if (c->kept[i].lease.owner != owner || c->kept[i].version > version) c->kept[left++] = c->kept[i];
    c->n_kept = left;
}

bool echi_ledger_in(struct echi_coordinator *c, const struct echi_msg *m, int owner) {
    const struct echi_lease *l = &m->lease;
    for (int i = 0; i < c->n_out; i++) {
        const struct echi_lease *o = &c->out[i].lease;
        if (o->id != l->id || o->owner != owner || o->worker != l->worker || o->n != l->n) continue;
        c->applied += l->n;
        if (c->applied_rounds <= l->round) c->applied_rounds = (uint64_t)l->round + 1;   /* a round is applied whole */
        keep(c, o, m->version);
        release(c, owner, m->acked);
        forget(c, i);
        return true;
    }
    return false;
}

/* ---- losses ---- */

void echi_ledger_ask(struct echi_coordinator *c, struct echi_actions *out) {
    for (int i = 0; i < c->n_out; i++) {
        const struct echi_lease *l = &c->out[i].lease;
        if (c->out[i].asked || !c->plan.lost[l->worker] || c->plan.lost[l->owner]) continue;
        c->out[i].asked = true;
        echi_act_send(out, l->owner, ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_REVOKE)->msg.lease = *l;
    }
}

void echi_ledger_answer(struct echi_coordinator *c, const struct echi_lease *l, bool in) {
    for (int i = 0; i < c->n_out; i++) {
        if (c->out[i].lease.id != l->id || !c->out[i].asked || in) continue;
        put_again(c, &c->out[i].lease);
        return forget(c, i);
    }
}

void echi_ledger_decide(struct echi_coordinator *c, int owner, const uint32_t mark[ECHI_WORLD_MAX]) {
    int left = 0;
    for (int i = 0; i < c->n_kept; i++) {
        const struct echi_lease *l = &c->kept[i].lease;
        if (l->owner != owner || l->id <= mark[l->worker]) {
            c->kept[left++] = c->kept[i];
            continue;
        }
        c->applied -= l->n;
        put_again(c, l);
    }
    c->n_kept = left;
    for (int i = c->n_out - 1; i >= 0; i--) {
        const struct echi_lease l = c->out[i].lease;
        if (l.owner != owner) continue;
        if (l.id <= mark[l.worker]) {
            c->applied += l.n;
            keep(c, &l, 0);
        } else {
            put_again(c, &l);
        }
        forget(c, i);
    }
}

void echi_ledger_settled(struct echi_coordinator *c, int owner) { release(c, owner, UINT64_MAX); }

/* ---- moves ---- */

void echi_ledger_moved(struct echi_coordinator *c, int rank) {
    c->moved[rank]++;
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].lease.worker == rank) c->out[i].earlier = true;
}

void echi_ledger_back(struct echi_coordinator *c, const struct echi_lease *l, int worker) {
    for (int i = 0; i < c->n_out; i++) {
        if (c->out[i].lease.id != l->id || c->out[i].lease.worker != worker || !c->out[i].earlier) continue;
        c->again[c->n_again++] = c->out[i].lease;
        return forget(c, i);
    }
}

bool echi_ledger_has_moved(const struct echi_coordinator *c, int rank) {
    int kept = 0;
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].earlier && c->out[i].lease.worker == rank) return false;
    for (int i = 0; i < c->n_kept; i++) kept += c->kept[i].lease.worker == rank;
    return kept + c->held[rank] <= ECHI_UNACKED_MAX;
}
