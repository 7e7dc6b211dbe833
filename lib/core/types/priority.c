/* SPDX-License-Identifier: Apache-2.0
 * Priorities of messages. That what the next forward needs first should travel first: A. Jayarajan, J. Wei, G. Gibson, A. Fedorova,
 * G. Pekhimenko, "Priority-based parameter propagation for distributed DNN training", MLSys 2019, section 4. */
#include "echi_priority.h"

/* Of gradients and weights those of the first layers go first, since forward waits for them: the gradients before weights of late layers,
 * which would else keep a link from them. But weights that are there are what somebody computes next, so those of a part go with the
 * gradients of one a quarter as far from the input. Simulated, ResNet-18, 1 Gb/s, batch 64 a host: 8 hosts with 4 shards make 266 images/s
 * where all weights go before all gradients, 328 where a part's go before its gradients, 335 so; a step of 8 hosts with one at half its
 * bandwidth, links alone, takes 0.83, 1.07 and 0.84 s.
 *
 * Round a ring all weights go before all sums: what a node holds back all behind it wait for, and sums of first layers that stand in front
 * of weights of late ones keep the next round's forward from its end everywhere. Simulated rings, images/s with the rule above, so, and in
 * the order in which messages were made: ResNet-18, 4 hosts, links alone, 1 Gb/s 53, 58, 60; VGG-19 26, 32, 33; 8 hosts, 300 Mb/s
 * 23, 29, 31 and 15, 16, 17; 8 hosts of 45 images/s, batch 64 a host, 346, 328, 341 and 329, 301, 272. */
uint16_t echi_part_priority(enum echi_kind kind, int part) {
    const int at = part < ECHI_PARTS_MAX ? part : ECHI_PARTS_MAX - 1;
    switch ((int)kind) {
    case ECHI_KIND_WEIGHTS: return (uint16_t)(ECHI_PRIORITY_PARTS + at / 2);
    case ECHI_KIND_RING_WEIGHTS: return (uint16_t)(ECHI_PRIORITY_PARTS + at);
    case ECHI_KIND_RING_SUM: return (uint16_t)(ECHI_PRIORITY_PARTS + ECHI_PARTS_MAX + at);
    default: return (uint16_t)(ECHI_PRIORITY_PARTS + 2 * at + 1);
    }
}

/* Where a whole push is applied, and whole weights are waited for, its parts do not overtake those of others. */
static int part_of(const struct echi_plan *plan, const struct echi_msg *m) { return echi_plan_rounds_by_part(plan) ? m->part : 0; }

uint16_t echi_msg_priority(const struct echi_plan *plan, const struct echi_msg *m) {
    switch ((enum echi_kind)m->kind) {
    case ECHI_KIND_NORM:
    case ECHI_KIND_NORM_ALL:
    case ECHI_KIND_ACT_GRAD: return ECHI_PRIORITY_ANSWER;
    case ECHI_KIND_ACT: return ECHI_PRIORITY_ROWS;
    case ECHI_KIND_WEIGHTS:
    case ECHI_KIND_RING_WEIGHTS:
    case ECHI_KIND_RING_SUM:
    case ECHI_KIND_PUSH: return echi_part_priority((enum echi_kind)m->kind, part_of(plan, m));
    case ECHI_KIND_HEAD_SUM: return echi_part_priority(ECHI_KIND_PUSH, plan->parts.count);   /* as the last part's gradients */
    case ECHI_KIND_STATE:
    case ECHI_KIND_FROZEN: return ECHI_PRIORITY_STATES;
    case ECHI_KIND_HEAD_COPY:
    case ECHI_KIND_PARAMS: return ECHI_PRIORITY_COPIES;
    default: return m->kind < ECHI_KINDS ? ECHI_PRIORITY_CONTROL : ECHI_PRIORITIES - 1;
    }
}
