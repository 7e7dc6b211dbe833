/* SPDX-License-Identifier: Apache-2.0
 * What the coordinator asks of an owner: a copy of its weights or its momentum, and the word that it has drained.
 *
 * In the middle of a run the current snapshot answers at once: the cluster is held, so a task of ours may be waiting for the release. After
 * the drain the answer waits until all states are in the weights. Momentum follows weights that were asked for before it: their first part
 * and momentum have one name. */
#include "echi_owner_impl.h"

/* The current snapshot for the coordinator: of an owner of shards its own parts, each by itself. */
static void send_copy(struct echi_owner *o, struct echi_actions *out) {
    const int messages = plan_of(o)->shards ? o->weight_parts : 1;
    for (int i = 0; i < messages; i++) {
        struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_PARAMS);
        a->slot = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, o->current};
        a->msg.part = (uint16_t)(plan_of(o)->shards ? echi_post_part(o->setup, ECHI_KIND_WEIGHTS, o->setup->rank, i) : 0);
        a->msg.flag = o->asked_as == ECHI_ASK_KEEP ? ECHI_PARAMS_KEPT : ECHI_PARAMS_PART;
        a->msg.samples = o->samples;
    }
    o->in_flight[o->current] = (uint16_t)(o->in_flight[o->current] + messages);
    o->sends += messages;
    o->asked = false;
}

void echi_owner_report(struct echi_owner *o, struct echi_actions *out) {
    if (!o->started) return;
    if (o->asked && (o->asked_as == ECHI_ASK_EVAL || (!o->stale && !o->busy))) send_copy(o, out);
    if (o->asked_momentum && !o->asked && !o->busy) {
        struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_PARAMS);
        a->slot = (struct echi_slot){ECHI_SLOT_OWNER_MOMENTUM, 0};
        a->msg.flag = ECHI_PARAMS_MOMENTUM;
        o->momentum_sending++;
        o->asked_momentum = false;
    }
    if (o->draining && !o->drained && o->queued == 0 && !o->busy && !o->woke) {
        if (!echi_states_all_have(o)) return;
        o->drained = true;
        echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_DRAINED)->msg.members = o->members;
    }
}
