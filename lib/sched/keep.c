/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints: no lease is issued beyond an agreed place; when those that are out are in and the owners have drained, weights
 * and momentum come to rank 0, and training goes on while they are written (design, section 6, "Checkpoints"). */
#include "echi_ledger.h"

#include <string.h>

static const struct echi_plan *plan_of(const struct echi_coordinator *c) { return &c->setup->plan; }

/* Always multiples of B * every, so that a run and the rest of it that is resumed keep at the same places. */
static void move_on(struct echi_coordinator *c) {
    if (!c->goal.keep || c->goal.keep_every == 0) return;
    uint64_t step;
    if (__builtin_mul_overflow(c->goal.keep_every, plan_of(c)->round, &step)) return;   /* beyond any run */
    c->next_keep = (c->issued / step + 1) * step;
}

void echi_keep_begin(struct echi_coordinator *c) { move_on(c); }

bool echi_keep_quiet(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (!echi_ledger_unfinished(c) || c->issued < c->next_keep) return false;
    if (c->writing) {   /* a disk slower than the training between two checkpoints holds nobody up */
        move_on(c);
        echi_ledger_deal(c, out);
        return true;
    }
    c->phase = ECHI_RUN_QUIETS;
    c->keep_began = now;
    for (int g = 0; g < plan_of(c)->n_groups; g++)
        echi_act_send(out, plan_of(c)->owner_of[g], ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_DRAIN);
    memset(c->mark, 0, sizeof c->mark);
    c->waits_for = plan_of(c)->n_groups;
    return true;
}

/* ---- the parts: the weights of group 0, the momentum of each group, then both of the head ---- */

static int count_parts(const struct echi_plan *p) { return 1 + p->n_groups + (p->separated ? 2 : 0); }

/* Two places, so that one part travels while the next is asked for. Who answers first is as it may be; the driver puts each
 * part where its sender and its flag say. */
static void ask_next(struct echi_coordinator *c, uint8_t place, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    const int part = c->next_part++;
    const bool of_head = part > p->n_groups, weights = part == 0 || part == p->n_groups + 1;
    const int rank = of_head ? p->head : p->owner_of[part == 0 ? 0 : part - 1];
    echi_act_post(out, rank, ECHI_KIND_PARAMS, (struct echi_slot){ECHI_SLOT_COORD_PARAMS, place});
    echi_act_send(out, rank, of_head ? ECHI_ROLE_HEAD : ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_ASK)->msg.flag =
        weights ? ECHI_ASK_KEEP : ECHI_ASK_MOMENTUM;
    c->parts_out++;
}

bool echi_keep_gather(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    const bool end = c->phase >= ECHI_RUN_DRAINS;
    const bool tried = c->phase == ECHI_RUN_LAST_KEEP && c->standing.samples == c->applied;   /* and it could not be written */
    if (!c->goal.keep) return false;
    if (c->phase == ECHI_RUN_DRAINS) c->keep_began = now;
    if (end && !c->writing && (tried || c->kept_samples == c->applied)) return false;
    c->phase = end ? ECHI_RUN_LAST_KEEP : ECHI_RUN_GATHERS;
    if (c->writing) return true;   /* until it is done nothing new can be gathered */
    c->next_part = 0;
    ask_next(c, 1, out);
    ask_next(c, 2, out);
    return true;
}

void echi_keep_part(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    c->parts_out--;
    if (c->next_part < count_parts(plan_of(c))) ask_next(c, e->slot.index, out);
    if (c->parts_out > 0) return;
    struct echi_task *t = &echi_act(out, ECHI_ACTION_COMPUTE)->task;
    t->kind = ECHI_TASK_KEEP;
    t->role = ECHI_ROLE_COORDINATOR;
    t->weights = (struct echi_slot){ECHI_SLOT_COORD_KEPT, 0};
    c->writing = true;
    if (c->phase == ECHI_RUN_GATHERS) {
        c->keeping += e->now - c->keep_began;
        c->phase = ECHI_RUN_TRAINS;
        move_on(c);
    }
    c->standing = (struct echi_standing){.epoch = c->epoch, .start = c->start, .samples = c->applied, .looks = c->looks,
        .clock = echi_coordinator_clock(c, e->now), .measuring = c->measuring, .keeping = c->keeping, .accuracy = c->accuracy,
        .best_accuracy = c->best_accuracy, .loss = c->loss_of_run, .target_at = c->target_at, .target_samples = c->target_samples};
}

bool echi_keep_done(struct echi_coordinator *c, const struct echi_event *e) {
    c->writing = false;
    if (e->result->kept) c->kept_samples = c->standing.samples;
    if (c->phase != ECHI_RUN_LAST_KEEP) return false;
    c->last_keeping = e->now - c->keep_began;
    return true;
}
