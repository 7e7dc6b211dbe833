/* SPDX-License-Identifier: Apache-2.0
 * Priorities of messages. That what the next forward needs first should travel first: A. Jayarajan, J. Wei, G. Gibson, A. Fedorova,
 * G. Pekhimenko, "Priority-based parameter propagation for distributed DNN training", MLSys 2019, section 4. */
#include "echi_priority.h"

static int part_of(const struct echi_msg *m) { return m->part < ECHI_PARTS_MAX ? m->part : ECHI_PARTS_MAX - 1; }

uint16_t echi_msg_priority(const struct echi_msg *m) {
    switch ((enum echi_kind)m->kind) {
    case ECHI_KIND_NORM:
    case ECHI_KIND_NORM_ALL:
    case ECHI_KIND_ACT_GRAD: return ECHI_PRIORITY_ANSWER;
    case ECHI_KIND_ACT: return ECHI_PRIORITY_ROWS;
    case ECHI_KIND_WEIGHTS: return (uint16_t)(ECHI_PRIORITY_WEIGHTS + part_of(m));
    case ECHI_KIND_PUSH: return (uint16_t)(ECHI_PRIORITY_GRADIENTS + part_of(m));
    case ECHI_KIND_STATE:
    case ECHI_KIND_FROZEN: return ECHI_PRIORITY_STATES;
    case ECHI_KIND_PARAMS: return ECHI_PRIORITY_COPIES;
    default: return m->kind < ECHI_KINDS ? ECHI_PRIORITY_CONTROL : ECHI_PRIORITIES - 1;
    }
}
