/* SPDX-License-Identifier: Apache-2.0
 * Local SGD with an outer Nesterov step: DiLoCo (Douillard et al., arXiv 2311.08105, algorithm 1), with steps by speed, and
 * with the exchange beside the computing (the delayed outer step of arXiv 2502.12996, section 3, in its simplest exact form).
 *
 * What it computes. Worker i has weights L of its own and a momentum of its own. In a round it takes H_i steps of n_i samples:
 *     v = m v + (sum of the step's gradients) / B + (n_i / B) wd L;   L = L - lr v
 * the very step of a node that trains alone: a sample moves its worker's weights by lr / B, so lr means what it means under the
 * other policies, whatever n_i, H_i and the number of workers. Then it pushes
 *     D_i = (s_i / S) (what its steps of this lease have moved L by, downwards)
 * where s_i are the lease's samples and S those of the round. The owner adds the D of a round to G and takes one step
 *     V = M V + G;   w = w - outer_lr (G + M V)
 * with Nesterov's momentum as PyTorch has it. The weights s_i / S sum to 1, whoever computed what and in how many leases: G is
 * how far the workers' weights lie, in the mean by samples (McMahan et al. 2017, algorithm 1), from where they began. So
 * outer_lr and M mean what they mean in the paper (0.7 and 0.9), and with outer_lr 1 and M 0 the new weights are that mean.
 * This is the one place where Echelon averages: with W workers of equal shares a round moves w by a W-th of what the same
 * samples move it by under bsp at the same lr (outer_lr W would make up for it, and M 0.9 does: it sums to ten times G).
 * A sample's share of G grows with its worker's steps, which have gone further: it is lr / B * s_i / S.
 *
 * What waits. A worker goes on with its next lease on L, at once, while its push is under way. When the round's weights w come,
 *     L = w + (what its own steps have moved L by since its last D was made)
 * so each step is in exactly one D, and is lost or counted twice nowhere. It is at most one round ahead: at the end of its lease of
 * the next round it waits for this round's weights. Owner, ledger and losses are those of bsp: a lease is pushed whole. */
#include "echi_sync.h"

/* On the round's own weights, or one round ahead of them. */
static bool may_begin(const struct echi_lease *lease, uint64_t weights_version) {
    return lease->round == weights_version || lease->round == weights_version + 1;
}

static enum echi_take push_arrived(const struct echi_lease *lease) {
    (void)lease;
    return ECHI_TAKE_ADD;
}

static bool before_reply(const struct echi_worker_view *view, uint32_t least, uint32_t staleness) {
    (void)view, (void)least, (void)staleness;
    return true;
}

const struct echi_sync_rules echi_sync_local = {may_begin, push_arrived, before_reply};
