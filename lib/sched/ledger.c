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

static void lease(struct echi_coordinator *c, int rank, uint32_t n, uint32_t round, uint32_t round_size,
                  struct echi_actions *out) {
    const struct echi_plan *p = &c->setup->plan;
    struct echi_lease *l = &c->out[c->n_out++];
    *l = (struct echi_lease){.id = c->next_lease++, .epoch = c->epoch, .start = c->start, .n = n, .round = round,
                             .round_size = round_size, .worker = (uint8_t)rank, .owner = p->owner_of[p->group_of[rank]]};
    c->start += n;
    c->issued += n;
    c->held[rank]++;
    echi_act_send(out, rank, ECHI_ROLE_WORKER, ECHI_ROLE_COORDINATOR, ECHI_KIND_LEASE)->msg.lease = *l;
}

/* One round: shares as planned, or in proportion (largest remainder first) when an epoch ends with fewer samples. It is dealt
 * sample by sample, or in granules, of which the last may then be short. */
static void deal_round(struct echi_coordinator *c, uint32_t size, struct echi_actions *out) {
    const struct echi_plan *p = &c->setup->plan;
    const uint32_t unit = p->deterministic ? ECHI_GRANULE : 1, units = (size + unit - 1) / unit;
    uint32_t n[ECHI_WORLD_MAX];
    uint64_t rest[ECHI_WORLD_MAX];
    uint32_t dealt = 0;
    for (int r = 0; r < p->world; r++) {
        uint64_t share = (uint64_t)p->n[r] * units;
        n[r] = (uint32_t)(share / p->round);
        rest[r] = share % p->round;
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
        const uint32_t own = n[r] * unit < left ? n[r] * unit : left;
        if (own) lease(c, r, own, c->next_round, size, out);
        left -= own;
    }
    c->next_round++;
}

void echi_ledger_deal(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = &c->setup->plan;
    if (c->policy->rounds) {
        /* Nothing is out at a look that must find the same round each time. */
        const uint64_t most = p->deterministic && c->goal.has_test ? c->next_look : UINT64_MAX;
        while (may_issue(c) && c->issued < most && c->next_round < c->applied_rounds + 1 + p->strands)
            deal_round(c, available(c, p->round), out);
        return;
    }
    /* One each in turn, so that nobody takes two from the end of the data while another has none. */
    for (int ahead = 1; ahead <= p->strands + 1; ahead++)
        for (int r = 0; r < p->world; r++)
            if (may_issue(c) && p->group_of[r] != ECHI_NONE && c->held[r] < ahead)
                lease(c, r, available(c, p->n[r]), 0, p->round, out);
}

bool echi_ledger_in(struct echi_coordinator *c, const struct echi_lease *l, int owner) {
    for (int i = 0; i < c->n_out; i++) {
        if (c->out[i].id != l->id || c->out[i].owner != owner || c->out[i].worker != l->worker || c->out[i].n != l->n) continue;
        c->held[l->worker]--;
        c->applied += l->n;
        if (c->applied_rounds <= l->round) c->applied_rounds = (uint64_t)l->round + 1;   /* a round is applied whole */
        c->out[i] = c->out[--c->n_out];
        return true;
    }
    return false;
}
