/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints: no lease is issued beyond an agreed place; when those that are out are in and the owners have drained, weights
 * and momentum come to rank 0, and training goes on while they are written (PROTOCOL.md, "Checkpoints"). */
#include "echi_coordinator_impl.h"

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
    echi_drain(c, out);
    return true;
}

/* ---- the parts: the weights of the first group, shard by shard, the momentum of each that lives, then both of the head ---- */

static int of_owners(const struct echi_plan *p) { return echi_plan_shards(p) * (1 + p->n_groups); }
static int count_parts(const struct echi_plan *p) { return of_owners(p) + (p->cut ? 2 : 0); }

/* The parts from `part` on that are there. A group whose owner is lost has no momentum any more; who owns several shards sends them
 * together. */
static int there_is(const struct echi_plan *p, int part) {
    const int shards = echi_plan_shards(p);
    while (part < of_owners(p) && ((part >= shards && !echi_plan_group_lives(p, part / shards - 1)) ||
                                   (p->shards && !echi_plan_leads_shard(p, 0, part % shards)))) part++;
    return part;
}

/* Two places, so that one part travels while the next is asked for. Who answers first is as it may be; the driver puts each
 * part where its sender and its flag say. */
static void ask_next(struct echi_coordinator *c, uint8_t place, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    const int part = there_is(p, c->next_part), shards = echi_plan_shards(p);
    const bool of_head = part >= of_owners(p), weights = part < shards || part == of_owners(p);
    const int group = part < shards ? echi_plan_first_group(p) : part / shards - 1;
    const int rank = of_head ? p->head : echi_plan_shard_owner(p, group, part % shards);
    c->next_part = there_is(p, part + 1);
    echi_ask_copy(c, rank, of_head ? ECHI_ROLE_HEAD : ECHI_ROLE_OWNER, weights ? ECHI_ASK_KEEP : ECHI_ASK_MOMENTUM, place, out);
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

static void give_up(struct echi_coordinator *c, int64_t now) {
    c->keeping += now - c->keep_began;
    c->train_ended = 0;
    c->part_void = false;
    c->phase = ECHI_RUN_TRAINS;
}

/* What living nodes were asked for still comes, and is waited for. */
void echi_keep_lost(struct echi_coordinator *c, int rank, int64_t now) {
    const bool gathers = c->phase == ECHI_RUN_GATHERS || c->phase == ECHI_RUN_LAST_KEEP;
    for (int place = 1; gathers && place <= 2; place++) {
        if (c->parts_out == 0 || c->part_from[place] != rank) continue;
        c->part_from[place] = ECHI_NO_RANK;
        c->parts_out--;
    }
    c->part_void = gathers && c->parts_out > 0;
    if (c->phase == ECHI_RUN_QUIETS || (gathers && !c->part_void)) give_up(c, now);
}

void echi_keep_part(struct echi_coordinator *c, const struct echi_event *e, struct echi_actions *out) {
    c->parts_out--;
    if (!c->part_void && c->next_part < count_parts(plan_of(c))) ask_next(c, (uint8_t)e->slot.index, out);
    if (c->parts_out > 0) return;
    if (c->part_void) return give_up(c, e->now);
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
    c->standing = (struct echi_standing){.epoch = c->epoch, .start = c->start, .samples = c->applied, .evals = c->evals,
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
