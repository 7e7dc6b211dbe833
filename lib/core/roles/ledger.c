/* SPDX-License-Identifier: Apache-2.0
 * Leases: ranges of each epoch's permutation, handed out once and taken in once (PROTOCOL.md, "Leases"). */
#include "echi_coordinator_impl.h"

#include <string.h>

void echi_ledger_begin(struct echi_coordinator *c) {
    for (int r = 0; r < c->request.world; r++) {
        c->held[r] = 0;
        c->ahead[r] = 1;
        c->longer[r] = 0;
        c->size[r] = c->moved[r] = 0;
        c->out_of[r] = ECHI_NO_LEASE;
    }
    for (int g = 0; g < ECHI_GROUPS_MAX; g++) c->kept_first[g] = ECHI_NO_LEASE;
    c->kept_free = ECHI_NO_LEASE;
}

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

/* Nothing is issued beyond the next checkpoint, nor before the separated layers are where they are to be. */
static bool may_issue(const struct echi_coordinator *c) { return echi_ledger_unfinished(c) && !c->homes.due && c->issued < c->next_keep; }

static bool works(const struct echi_plan *p, int rank) { return !p->lost[rank] && p->group_of[rank] != ECHI_NONE; }

/* Leases that a worker holds, at most, where no rounds are dealt. */
static int most_held(const struct echi_coordinator *c, int rank) { return c->plan.flights + c->ahead[rank]; }

void echi_ledger_planned(struct echi_coordinator *c) {
    for (int k = 0; k < ECHI_SHARDS_MAX; k++) c->applied_by[k] = c->applied;
    for (int r = 0; r < c->plan.world; r++) {
        c->size[r] = c->plan.n[r];
        if (works(&c->plan, r)) echi_ranks_add(&c->hungry, r);
    }
}

/* Hands a lease to a worker, with a number of its own. */
static void issue(struct echi_coordinator *c, int rank, struct echi_lease lease, struct echi_actions *out) {
    lease.id = c->next_lease++;
    lease.worker = (uint16_t)rank;
    lease.owner = c->plan.owner_of[c->plan.group_of[rank]];
    lease.base = echi_rates_base(c, c->plan.group_of[rank]);
    c->out[c->n_out].earlier = c->out[c->n_out].told = false;
    c->out[c->n_out].in = c->out[c->n_out].asked = c->out[c->n_out].gone = 0;
    c->out[c->n_out].next = c->out_of[rank];
    c->out_of[rank] = (uint16_t)c->n_out;
    c->out[c->n_out++].lease = lease;
    if (++c->held[rank] >= most_held(c, rank)) echi_ranks_drop(&c->hungry, rank);
    struct echi_action *a = echi_act_send(out, rank, ECHI_ROLE_WORKER, ECHI_ROLE_COORDINATOR, ECHI_KIND_LEASE);
    a->msg.lease = lease;
    a->msg.members = c->members;
}

/* The next n samples of the epoch. */
static void lease(struct echi_coordinator *c, int rank, uint32_t n, struct echi_lease of, struct echi_actions *out) {
    of.epoch = c->epoch;
    of.start = c->start;
    of.n = n;
    issue(c, rank, of, out);
    c->start += n;
    c->issued += n;
}

/* Samples of one lease that is issued again to this worker, at most. It is not cut, so in its stacks it takes the room of a micro-batch. */
static uint32_t room_again(const struct echi_coordinator *c, int rank) {
    return c->policy->rounds ? echi_micro_most(&c->plan, echi_plan_room(&c->plan, rank)) : c->size[rank];
}

/* The oldest of what is to be issued again, or as much of it as this worker has room for. */
static void lease_again(struct echi_coordinator *c, int rank, struct echi_actions *out) {
    const uint32_t room = room_again(c, rank);
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

/* What is issued again because its worker or its owner is lost, or because it was dropped. Those that it was computed together with do not
 * wait for it. Each of its micro-batches is a lease now: the head may have trained some of them. */
static void put_again(struct echi_coordinator *c, const struct echi_lease *l) {
    const int micros = echi_lease_micros(&c->plan, l);
    for (int i = 0; i < micros; i++) {
        struct echi_lease *again = &c->again[c->n_again++];
        *again = echi_lease_micro(&c->plan, l, i);
        again->again = 1;
        again->part = 0;
        again->together = 0;
    }
}

/* An owner's marks rise with the numbers of a worker's leases: none is dealt while one of an earlier stay in the group is out. */
static bool may_take(const struct echi_coordinator *c, int rank) {
    const uint16_t owner = c->plan.owner_of[c->plan.group_of[rank]];
    for (int i = c->out_of[rank]; i != ECHI_NO_LEASE; i = c->out[i].next)
        if (c->out[i].earlier && c->out[i].lease.owner == owner) return false;
    return true;
}

static bool may_compute(const struct echi_coordinator *c, int rank, const struct echi_lease *l) {
    return works(&c->plan, rank) && (l->round != c->takeover.round || !echi_ranks_has(&c->takeover.behind, rank));
}

/* Parts of rounds whose workers are lost, in proportion to the shares of those who are left. */
static void deal_again(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = &c->plan;
    uint64_t load[ECHI_WORLD_MAX];
    if (c->n_again == 0) return;
    memset(load, 0, p->world * sizeof load[0]);
    while (c->n_again > 0 && c->n_out < ECHI_LEASES_OUT_MAX) {
        const struct echi_lease *first = &c->again[0];
        int to = !first->again && works(p, first->worker) ? first->worker : -1;   /* it has the gradients of these */
        const bool kept = to >= 0;
        for (int r = 0; r < p->world && !kept; r++)
            if (may_compute(c, r, first) &&
                (to < 0 || (load[r] + 1) * echi_plan_share(p, to) < (load[to] + 1) * echi_plan_share(p, r))) to = r;
        const uint32_t room = room_again(c, to);
        load[to] += c->again[0].n < room ? c->again[0].n : room;
        lease_again(c, to, out);
    }
}

/* By the shares that hold. All nodes know from the plan who has a part of a round (worker_ring.c): where others would have one of an
 * epoch's short round, it is dealt as planned. */
static void deal(const struct echi_coordinator *c, uint32_t size, uint32_t *n) {
    uint32_t now[ECHI_WORLD_MAX];
    const int world = c->plan.world;
    echi_plan_deal(&c->plan, size, n);
    if (c->shares.changes == 0) return;
    echi_plan_deal_by(&c->plan, c->size, size, now);
    for (int r = 0; r < world; r++)
        if ((n[r] > 0) != (now[r] > 0)) return;
    memcpy(n, now, (size_t)world * sizeof *n);
}

/* One round. A share that is larger than its worker has room for goes in parts: first a part of each share, which are computed together,
 * then another of each that is larger. The reduction block that an epoch's end cuts short is dealt last: it is at the round's end. */
static void deal_round(struct echi_coordinator *c, uint32_t size, struct echi_actions *out) {
    const struct echi_plan *p = &c->plan;
    const uint32_t unit = p->deterministic ? ECHI_REDUCTION_BLOCK : 1;
    uint32_t n[ECHI_WORLD_MAX], part[ECHI_WORLD_MAX], left = size;
    deal(c, size, n);
    c->dealt[c->next_round % ECHI_ROUNDS_KEPT].epoch = c->epoch;
    c->dealt[c->next_round % ECHI_ROUNDS_KEPT].start = c->start;
    c->dealt[c->next_round % ECHI_ROUNDS_KEPT].size = size;
    c->dealt[c->next_round % ECHI_ROUNDS_KEPT].before = c->issued;
    struct echi_lease of = {.round = c->next_round++, .round_size = size};
    uint32_t at_head[ECHI_HEADS_MAX] = {0};
    for (int r = 0; r < p->world; r++) n[r] = (n[r] + unit - 1) / unit * unit;
    for (int r = 0; r < p->world && p->heads; r++) at_head[p->head_of[r]] += n[r];
    for (; left > 0; of.part++) {
        uint32_t together = 0;
        for (int r = 0; r < p->world; r++) {
            part[r] = n[r] < echi_plan_room(p, r) ? n[r] : echi_plan_room(p, r);
            n[r] -= part[r];
            together += part[r];
        }
        of.together = p->sync_norm ? together : 0;
        for (int r = 0; r < p->world; r++) {
            if (part[r] > left) part[r] = left;
            left -= part[r];
            of.head = p->head_of[r];
            of.head_rows = at_head[of.head];
            if (part[r] > 0) lease(c, r, part[r], of, out);
        }
    }
}

void echi_ledger_deal(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = &c->plan;
    if (c->policy->rounds) {
        deal_again(c, out);
        /* Nothing is out at an evaluation that must find the same round each time, or in all shards. */
        const uint64_t most = (p->deterministic || p->shards) && c->goal.has_test ? c->next_eval : UINT64_MAX;
        while (may_issue(c) && c->issued < most && c->next_round < c->applied_rounds + 1 + p->flights)
            deal_round(c, available(c, echi_plan_round(p)), out);
        return;
    }
    /* One each in turn, so that nobody takes two from the end of the data while another has none. */
    for (int each = 1; echi_ranks_next(&c->hungry, 0) >= 0 && each <= p->flights + ECHI_LEASES_AHEAD; each++)
        for (int r = echi_ranks_next(&c->hungry, 0); r >= 0; r = echi_ranks_next(&c->hungry, r + 1)) {
            if (c->n_out == ECHI_LEASES_OUT_MAX || (c->n_again == 0 && !may_issue(c))) return;
            if (!works(p, r)) echi_ranks_drop(&c->hungry, r);   /* lost */
            else if (c->held[r] >= each || !may_take(c, r)) continue;
            else if (c->n_again > 0) lease_again(c, r, out);
            else lease(c, r, available(c, c->size[r]), (struct echi_lease){.round_size = p->round}, out);
        }
}

/* Where the number of an entry of out[] stands: in the list of its worker's leases, which are few. */
static uint16_t *link_to(struct echi_coordinator *c, int at) {
    uint16_t *link = &c->out_of[c->out[at].lease.worker];
    while (*link != at) link = &c->out[*link].next;
    return link;
}

static void forget(struct echi_coordinator *c, int at) {
    const int rank = c->out[at].lease.worker;
    *link_to(c, at) = c->out[at].next;
    if (--c->held[rank] < most_held(c, rank)) echi_ranks_add(&c->hungry, rank);
    if (at == --c->n_out) return;
    *link_to(c, c->n_out) = (uint16_t)at;   /* the last takes its place */
    c->out[at] = c->out[c->n_out];
}

static void append(struct echi_coordinator *c, int group, uint16_t at) {
    c->kept[at].next = ECHI_NO_LEASE;
    if (c->kept_first[group] == ECHI_NO_LEASE) c->kept_first[group] = at;
    else c->kept[c->kept_last[group]].next = at;
    c->kept_last[group] = at;
}

static void let_go(struct echi_coordinator *c, uint16_t at) {
    c->kept[at].next = c->kept_free;
    c->kept_free = at;
}

/* In, but for now only as far as its owner lives. Versions of one owner come in order: its list is one to take from the front of. */
static void keep(struct echi_coordinator *c, const struct echi_lease *l, uint64_t version) {
    if (c->plan.n_groups == 1) return;
    const int g = echi_plan_group_owned(&c->plan, l->owner);
    uint16_t at = c->kept_free;
    if (at != ECHI_NO_LEASE) c->kept_free = c->kept[at].next;
    else if (c->n_kept < ECHI_LEASES_KEPT_MAX) at = (uint16_t)c->n_kept++;
    else return;   /* owners stop before there are so many */
    c->kept[at].lease = *l;
    c->kept[at].version = version;
    append(c, g, at);
}

/* The low-water mark of this owner's leases: all owners have this version of its state. */
static void release(struct echi_coordinator *c, int owner, uint64_t version) {
    const int g = echi_plan_group_owned(&c->plan, owner);
    for (uint16_t at = c->kept_first[g]; at != ECHI_NO_LEASE && c->kept[at].version <= version; at = c->kept_first[g]) {
        c->kept_first[g] = c->kept[at].next;
        let_go(c, at);
    }
}

/* A worker had no lease left when its step was done, while the next was on its way: the way is longer than what it had lasts. It is
 * dealt one more ahead. Only a lease dealt since then can say so again. */
static void deal_further_ahead(struct echi_coordinator *c, const struct echi_msg *m) {
    const int rank = m->lease.worker;
    if (m->flag || c->policy->rounds || c->held[rank] < 2 || m->lease.id < c->longer[rank] || c->ahead[rank] == ECHI_LEASES_AHEAD) return;
    c->ahead[rank]++;
    c->longer[rank] = c->next_lease;
    echi_ranks_add(&c->hungry, rank);
}

/* The shards that this lease's gradients go to. */
static uint64_t wanted(const struct echi_coordinator *c, const struct echi_lease *l) {
    return l->shards ? l->shards : echi_plan_all_shards(&c->plan);
}

/* This shard has applied a lease, and with it the lease's round. */
static void count_in(struct echi_coordinator *c, const struct echi_lease *l, int shard) {
    c->applied_by[shard] += l->n;
    if (c->rounds_by[shard] <= l->round) c->rounds_by[shard] = (uint64_t)l->round + 1;
    c->applied_rounds = c->rounds_by[0];
    if (c->plan.shards == 0) {
        c->applied += l->n;   /* what is lost with an owner is taken off again */
        return;
    }
    c->applied = c->applied_by[0];
    for (int k = 1; k < c->plan.shards; k++) {
        if (c->applied_by[k] < c->applied) c->applied = c->applied_by[k];
        if (c->rounds_by[k] < c->applied_rounds) c->applied_rounds = c->rounds_by[k];
    }
}

/* Is an entry behind us? Shards that will never have it get its samples again, as soon as all have answered: the others may be waiting for
 * what they lack of another lease, in a round that is whole at none of them. */
static void settle(struct echi_coordinator *c, int at) {
    struct echi_lease *l = &c->out[at].lease;
    const uint64_t all = wanted(c, l), gone = c->out[at].gone;
    if (c->out[at].asked) return;
    if (gone) {
        struct echi_lease part = *l;
        part.shards = c->plan.shards ? gone : 0;
        put_again(c, &part);
        c->out[at].gone = 0;
        l->shards = all & ~gone;
    }
    if (c->out[at].in == (all & ~gone)) forget(c, at);
}

bool echi_ledger_in(struct echi_coordinator *c, struct echi_msg *m, int owner) {
    struct echi_lease *l = &m->lease;
    const uint64_t owned = echi_plan_shards_of(&c->plan, owner);
    const int lead = c->plan.shards ? c->plan.owner_of[0] : owner;
    if (l->worker >= c->plan.world || owned == 0) return false;
    for (int i = c->out_of[l->worker]; i != ECHI_NO_LEASE; i = c->out[i].next) {
        const struct echi_lease *o = &c->out[i].lease;
        const uint64_t bits = wanted(c, o) & ~(c->out[i].in | c->out[i].gone) & owned;
        if (o->id != l->id || o->owner != lead || bits == 0) continue;
        *l = *o;
        for (uint64_t left = bits; left; left &= left - 1) count_in(c, l, __builtin_ctzll(left));
        keep(c, o, m->version);
        release(c, owner, m->acked);
        deal_further_ahead(c, m);
        c->out[i].in |= bits;
        c->out[i].asked &= ~bits;   /* that is the answer */
        settle(c, i);
        return true;
    }
    return false;
}

/* ---- losses ---- */

void echi_ledger_ask(struct echi_coordinator *c, struct echi_actions *out) {
    for (int i = 0; i < c->n_out; i++) {
        const struct echi_lease *l = &c->out[i].lease;
        const uint64_t left = wanted(c, l) & ~(c->out[i].in | c->out[i].gone);
        if (c->out[i].told || !c->plan.lost[l->worker] || c->plan.lost[l->owner]) continue;
        c->out[i].told = true;
        c->out[i].asked = left;
        for (int k = 0; k < echi_plan_shards(&c->plan); k++) {
            if (!(left >> k & 1) || (k && !echi_plan_leads_shard(&c->plan, 0, k))) continue;
            const int owner = k ? c->plan.shard_owner[k] : l->owner;
            echi_act_send(out, owner, ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_REVOKE)->msg.lease = *l;
        }
    }
}

void echi_ledger_answer(struct echi_coordinator *c, const struct echi_lease *l, int owner, bool in) {
    for (int i = 0; i < c->n_out; i++) {
        const uint64_t bits = c->out[i].asked & echi_plan_shards_of(&c->plan, owner);
        if (c->out[i].lease.id != l->id || bits == 0) continue;
        c->out[i].asked &= ~bits;
        if (!in) c->out[i].gone |= bits;
        settle(c, i);
        return;
    }
}

bool echi_ledger_dropped(struct echi_coordinator *c, const struct echi_lease *l, int owner) {
    if (l->worker >= c->plan.world) return false;
    for (int i = c->out_of[l->worker]; i != ECHI_NO_LEASE; i = c->out[i].next) {
        const struct echi_lease *o = &c->out[i].lease;
        if (o->id != l->id || o->owner != owner) continue;
        c->dropped_leases++;
        c->dropped_samples += o->n;
        put_again(c, o);
        forget(c, i);
        return true;
    }
    return false;
}

void echi_ledger_decide(struct echi_coordinator *c, int owner, const uint32_t *mark) {
    const int g = echi_plan_group_owned(&c->plan, owner);
    uint16_t at = c->kept_first[g];
    c->kept_first[g] = ECHI_NO_LEASE;
    while (at != ECHI_NO_LEASE) {
        const struct echi_lease *l = &c->kept[at].lease;
        const uint16_t next = c->kept[at].next;
        if (l->id <= mark[l->worker]) {
            append(c, g, at);
        } else {
            c->applied -= l->n;
            put_again(c, l);
            let_go(c, at);
        }
        at = next;
    }
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
    for (int i = c->out_of[rank]; i != ECHI_NO_LEASE; i = c->out[i].next) c->out[i].earlier = true;
}

void echi_ledger_back(struct echi_coordinator *c, const struct echi_lease *l, int worker) {
    for (int i = c->out_of[worker]; i != ECHI_NO_LEASE; i = c->out[i].next) {
        if (c->out[i].lease.id != l->id || !c->out[i].earlier) continue;
        c->again[c->n_again++] = c->out[i].lease;
        return forget(c, i);
    }
}

bool echi_ledger_has_moved(const struct echi_coordinator *c, int rank) {
    int kept = 0;
    for (int i = c->out_of[rank]; i != ECHI_NO_LEASE; i = c->out[i].next)
        if (c->out[i].earlier) return false;
    for (int g = 0; g < c->plan.n_groups; g++)
        for (int i = c->kept_first[g]; i != ECHI_NO_LEASE; i = c->kept[i].next) kept += c->kept[i].lease.worker == rank;
    return kept + c->held[rank] <= ECHI_UNACKED_MAX;
}

/* ---- takeover: a round is dealt anew ---- */

static bool overlaps(const struct echi_lease *a, const struct echi_lease *b) {
    return a->start < b->start + b->n && b->start < a->start + a->n;
}

/* Puts a lease among those to be issued, in the order of the data. False where another has some of its samples. */
static bool put_kept(struct echi_coordinator *c, const struct echi_lease *l) {
    int at = 0;
    for (int i = 0; i < c->n_again; i++) {
        if (overlaps(&c->again[i], l)) return false;
        at += c->again[i].start < l->start;
    }
    memmove(&c->again[at + 1], &c->again[at], (size_t)(c->n_again++ - at) * sizeof *l);
    c->again[at] = *l;
    return true;
}

/* What nobody has the gradients of. Of the first of it each of those that `lack` a part of the round gets one, but leaves a unit to each
 * behind it. */
static void put_rest(struct echi_coordinator *c, struct echi_lease rest, uint32_t left, struct echi_ranks *lack, uint32_t lacking) {
    const int kept = c->n_again;
    const uint32_t end = rest.start + rest.n, unit = c->plan.deterministic ? ECHI_REDUCTION_BLOCK : 1;
    for (int i = 0; i <= kept; i++) {
        const uint32_t to = i < kept ? c->again[i].start : end;
        rest.n = to - rest.start;
        for (int r = echi_ranks_next(lack, 0); r >= 0 && rest.n > 0; r = echi_ranks_next(lack, 0)) {
            const uint32_t room = echi_plan_room(&c->plan, r), others = --lacking * unit;
            const uint32_t most = left > others + unit ? (left - others) / unit * unit : unit;
            struct echi_lease first = rest;
            first.n = rest.n < room ? rest.n : room;
            if (first.n > most) first.n = most;
            first.again = 0;
            first.worker = (uint16_t)r;
            c->again[c->n_again++] = first;
            rest.start += first.n;
            rest.n -= first.n;
            left -= first.n;
            echi_ranks_drop(lack, r);
        }
        left -= rest.n;
        if (rest.n > 0) put_again(c, &rest);
        if (i < kept) rest.start = c->again[i].start + c->again[i].n;
    }
}

static bool is_kept(const struct echi_coordinator *c, int rank, uint32_t round) {
    const struct echi_stop *s = &c->stopped[rank];
    const struct echi_lease *l = &s->lease;
    const uint32_t at = round % ECHI_ROUNDS_KEPT, start = c->dealt[at].start, size = c->dealt[at].size;
    return !c->plan.lost[rank] && s->has && s->version == round && l->id > 0 && l->round == round && l->epoch == c->dealt[at].epoch &&
           l->start >= start && l->n <= size && l->start - start <= size - l->n && l->n <= echi_plan_room(&c->plan, rank);
}

/* Heirs that have the round's weights and none of its gradients that are kept, so what they were dealt is left. Returns how many. */
static uint32_t find_lacking(const struct echi_coordinator *c, const struct echi_ranks *kept, struct echi_ranks *out) {
    uint32_t count = 0;
    *out = (struct echi_ranks){{0}};
    for (int r = 0; r < c->plan.world; r++) {
        if (!echi_plan_is_heir(&c->plan, r) || echi_ranks_has(kept, r) || echi_ranks_has(&c->takeover.behind, r)) continue;
        echi_ranks_add(out, r);
        count++;
    }
    return count;
}

/* Samples of a round that are not among what is kept. */
static uint32_t left_of(const struct echi_coordinator *c, uint32_t size) {
    for (int i = 0; i < c->n_again; i++) size -= c->again[i].n;
    return size;
}

void echi_ledger_restart(struct echi_coordinator *c, uint32_t round, uint64_t lacking) {
    const struct echi_plan *p = &c->plan;
    const uint32_t at = round % ECHI_ROUNDS_KEPT;
    const bool dealt = round < c->next_round, open = dealt && lacking;   /* a ring that broke may leave a round that all shards have */
    c->n_out = c->n_again = 0;
    for (int r = 0; r < p->world; r++) {
        c->held[r] = 0;
        c->out_of[r] = ECHI_NO_LEASE;
    }
    if (dealt) {
        c->epoch = c->dealt[at].epoch;
        c->start = c->dealt[at].start + c->dealt[at].size;
        c->issued = c->dealt[at].before + c->dealt[at].size;
        c->next_round = round + 1;
    }
    for (int k = 0; k < p->shards; k++) {
        const bool in = !dealt || !(lacking >> k & 1);
        c->rounds_by[k] = round + (dealt && in);
        c->applied_by[k] = in ? c->issued : c->dealt[at].before;
    }
    c->applied_rounds = round + (dealt && !open);
    c->applied = open ? c->dealt[at].before : c->issued;
    if (!open) return;
    struct echi_lease l = {.epoch = c->dealt[at].epoch, .start = c->dealt[at].start, .n = c->dealt[at].size, .round = round,
        .round_size = c->dealt[at].size, .shards = lacking == echi_plan_all_shards(p) ? 0 : lacking};
    struct echi_ranks kept = {{0}}, lack = {{0}};
    for (int r = 0; r < p->world; r++) {
        struct echi_lease of = l;
        if (!is_kept(c, r, round)) continue;
        of.start = c->stopped[r].lease.start;
        of.n = c->stopped[r].lease.n;
        of.worker = (uint16_t)r;
        if (put_kept(c, &of)) echi_ranks_add(&kept, r);
    }
    const uint32_t count = find_lacking(c, &kept, &lack);
    put_rest(c, l, left_of(c, l.n), &lack, count);
}
