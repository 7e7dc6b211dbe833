/* SPDX-License-Identifier: Apache-2.0
 * The end of a run: in order, behind a drain and a last evaluation, or with a status that all are told (PROTOCOL.md, "End"). */
#include "echi_coordinator_impl.h"

/* The run is over for `rank`, and not as it was asked for. */
void echi_end_send(struct echi_actions *out, int rank, ech_status status, int peer, const char *text) {
    struct echi_action *a = echi_act_send(out, rank, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_END);
    a->msg.layer = (uint16_t)status;
    a->msg.peer = peer < 0 ? ECHI_NO_RANK : (uint16_t)peer;
    memcpy(a->msg.text, text, strlen(text));
}

/* All that are left hear why the run ends. */
void echi_end_failed(struct echi_coordinator *c, struct echi_actions *out) {
    const int peer = c->lost_peer >= 0 ? c->lost_peer : c->at_fault;
    c->phase = ECHI_RUN_ENDED;
    for (int r = 1; r < c->request.world; r++)
        if (!is_lost(c, r) && r != c->lost_peer) echi_end_send(out, r, c->status, peer, c->text);
    echi_act(out, ECHI_ACTION_DONE);
}

void echi_end_with(struct echi_coordinator *c, ech_status status, int peer, const char *text, struct echi_actions *out) {
    if (c->phase == ECHI_RUN_ENDED) return;
    c->status = status;
    const bool gone = status == ECH_E_PEER_LOST || status == ECH_E_TIMEOUT;
    c->lost_peer = gone ? peer : -1;
    c->at_fault = gone ? -1 : peer;
    memcpy(c->text, text, strlen(text) < sizeof c->text ? strlen(text) + 1 : sizeof c->text);
    c->text[sizeof c->text - 1] = 0;
    if (gone && peer > 0) echi_end_send(out, peer, status, peer, c->text);   /* it may be alive, and not know why */
    if (!gone || !echi_rescue_begin(c, peer, out)) echi_end_failed(c, out);
}

/* An orderly end: what is out is trained, the last evaluation taken, and all of it kept. */
void echi_stop(struct echi_coordinator *c, struct echi_actions *out) {
    if (c->phase < ECHI_RUN_TRAINS) return echi_end_with(c, ECH_E_ABORTED, -1, "the run was stopped before training began", out);
    if (c->met || c->phase >= ECHI_RUN_DRAINS) return;   /* it ends by itself, with all that it was to do */
    c->stopping = true;
    c->status = ECH_E_ABORTED;
}

int echi_living_owners(const struct echi_coordinator *c) {
    int count = 0;
    for (int g = 0; g < c->plan.n_groups; g++)
        for (int k = 0; k < echi_plan_shards(&c->plan) && echi_plan_group_lives(&c->plan, g); k++)
            count += !c->plan.shards || echi_plan_leads_shard(&c->plan, g, k);
    return count;
}

void echi_drain(struct echi_coordinator *c, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(c);
    for (int g = 0; g < p->n_groups; g++)
        for (int k = 0; k < echi_plan_shards(p) && echi_plan_group_lives(p, g); k++)
            if (!p->shards || echi_plan_leads_shard(p, g, k))
                echi_act_send(out, echi_plan_shard_owner(p, g, k), ECHI_ROLE_OWNER, ECHI_ROLE_COORDINATOR, ECHI_KIND_DRAIN)->msg.members =
                c->members;
    wait_for(c, echi_living_owners(c));
}

/* Once: a checkpoint that is being written is waited for, and what it lacks is kept by another. Weights that met the target are the run's,
 * whatever the drain has done to the owners' since; the checkpoint has the owners', with which training can go on. */
void echi_end_drained(struct echi_coordinator *c, int64_t now, struct echi_actions *out) {
    if (echi_keep_gather(c, now, out)) return;
    if (c->met) echi_end_run(c, out);
    else echi_eval_ask(c, ECHI_RUN_LAST_EVAL, out);
}

void echi_end_run(struct echi_coordinator *c, struct echi_actions *out) {
    c->phase = ECHI_RUN_ENDS;
    c->final = true;
    if (c->status == ECH_OK && c->goal.target_accuracy > 0 && !c->met) c->status = ECH_E_NOT_REACHED;
    for (int r = 0; r < c->request.world; r++) {
        if (is_lost(c, r)) continue;
        if (r > 0 && c->goal.give_final)
            send_params(echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_PARAMS), ECHI_PARAMS_FINAL, c->whole);
        struct echi_action *a = echi_act_send(out, r, ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_KIND_END);
        a->msg.layer = (uint16_t)c->status;
        a->msg.peer = ECHI_NO_RANK;
        a->msg.flag = 1;
    }
    wait_for(c, living(c));
}

void echi_end_said(struct echi_coordinator *c, int from, struct echi_actions *out) {
    if (c->phase != ECHI_RUN_ENDS || !last_answer(c, from)) return;
    c->phase = ECHI_RUN_ENDED;
    echi_act(out, ECHI_ACTION_DONE);
}
