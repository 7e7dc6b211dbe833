/* SPDX-License-Identifier: Apache-2.0
 * States between the owners of several groups (PROTOCOL.md, "States"): the group's own, A_g, goes to all others when
 * enough has changed, theirs come in and are acknowledged; what survives of a group whose owner is lost. owner.c makes weights of them. */
#include "echi_owner_impl.h"
#include "echi_ratio.h"

#include <string.h>

#define STATE_EVERY (ECHI_UNACKED_MAX / 4)   /* pushes, at most: then another state goes out */

/* ---- out ---- */

uint64_t echi_states_samples(const struct echi_owner *o) {
    uint64_t sum = o->state_samples;
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group) sum += o->peer[g].samples;
    return sum;
}

bool echi_states_too_far_ahead(const struct echi_owner *o) {
    if (!several(o)) return false;
    const uint64_t most = (uint64_t)plan_of(o)->rounds_apart * plan_of(o)->round;
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group && lives(o, g) && (g != reserve_of(o) || o->reserve == ECHI_RESERVE_SHARES) &&
            (o->state_samples - o->peer[g].acked_samples > most || o->state_version - o->peer[g].acked_whole >= ECHI_UNACKED_MAX))
            return true;
    return false;
}

/* A drain leaves complete copies, and what others lack of those is bounded: half of it brings one with the next exchange. */
static bool whole_wanted(const struct echi_owner *o) {
    return o->sent_whole != o->state_version && (o->draining || o->state_version - o->sent_whole >= ECHI_UNACKED_MAX / 2);
}

/* Does the message that leaves go to the reserve as well? Its first since it woke is a complete one. */
static bool reserve_gets(struct echi_owner *o, bool whole) {
    if (o->reserve == ECHI_RESERVE_SLEEPS || (o->reserve == ECHI_RESERVE_LACKS && !whole)) return false;
    if (o->reserve != ECHI_RESERVE_LACKS) return true;
    o->reserve = ECHI_RESERVE_TOLD;
    o->reserve_told = o->state_version;
    return true;
}

void echi_states_send(struct echi_owner *o, struct echi_slot slot, bool whole, struct echi_actions *out) {
    const struct echi_marks marks = echi_marks_of(o->last, plan_of(o)->world, o->own_marks);
    for (int g = 0; g < plan_of(o)->n_groups; g++) {
        if (g == o->group || !lives(o, g) || (g == reserve_of(o) ? !reserve_gets(o, whole) : o->for_reserve)) continue;
        struct echi_action *a = echi_act_send(out, plan_of(o)->owner_of[g], ECHI_ROLE_OWNER, ECHI_ROLE_OWNER, ECHI_KIND_STATE);
        a->slot = slot;
        a->msg.flag = whole;
        a->msg.members = o->members;
        a->msg.number = o->state_number;
        a->msg.group = (uint8_t)o->group;
        a->msg.version = o->state_version;
        a->msg.samples = o->state_samples;
        a->msg.marks = marks;
        o->state_out++;
    }
    o->state_sending = o->state_out > 0 ? (int8_t)o->state_current : -1;
}

/* Is there anybody to send to? */
static bool has_others(const struct echi_owner *o) {
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group && lives(o, g) && (g != reserve_of(o) || o->reserve != ECHI_RESERVE_SLEEPS)) return true;
    return false;
}

/* Has somebody not said yet that the last message is there? His place for the next is not free before: what were written now would be old
 * when it leaves, and R counts from when it was written. */
static bool awaits_acknowledgement(const struct echi_owner *o) {
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group && lives(o, g) && (g != reserve_of(o) || o->reserve >= ECHI_RESERVE_TOLD) && o->peer[g].acked < o->sent_version)
            return true;
    return false;
}

/* All other owners have taken the same messages, so what they know is one array, and what goes to them is written once. */
void echi_states_exchange(struct echi_owner *o, struct echi_actions *out) {
    const bool lacks = o->reserve == ECHI_RESERVE_LACKS;
    if (!several(o) || o->state_sending >= 0 || (o->state_version == o->sent_version && !whole_wanted(o) && !lacks)) return;
    /* A push of each worker; of a large group's some, so that the next leave before it has to wait for the acknowledgement. */
    const uint32_t enough = o->workers < STATE_EVERY ? (uint32_t)o->workers : STATE_EVERY;
    if (o->since_send < enough && !o->draining && !lacks && !echi_states_too_far_ahead(o)) return;
    if ((coded(o) && o->busy) || !has_others(o) || awaits_acknowledgement(o)) return;
    if (o->alone) {
        if (o->busy) return;
        struct echi_task *t = compute(o, ECHI_TASK_STATE, out);
        t->weights = (struct echi_slot){ECHI_SLOT_OWNER_WEIGHTS, o->current};
        t->state_out = (struct echi_slot){ECHI_SLOT_OWNER_STATE, o->state_current};
        return;
    }
    const bool whole = !coded(o) || whole_wanted(o) || lacks || echi_whole_due(o->state_number + 1);
    const struct echi_slot state = {ECHI_SLOT_OWNER_STATE, o->state_current};
    /* What all others have complete already is no message to them, and gets no number. */
    o->for_reserve = o->sent_whole == o->state_version;
    if (!o->for_reserve) o->state_number++;
    o->sent_version = o->state_version;
    o->sent_samples = o->state_samples;
    if (whole) o->sent_whole = o->state_version;
    o->since_send = 0;
    if (!coded(o)) return echi_states_send(o, state, whole, out);
    struct echi_task *t = compute(o, ECHI_TASK_ENCODE, out);
    t->weights = state;
    t->state = (struct echi_slot){ECHI_SLOT_OWNER_STATE_KNOWN, 0};
    t->coded = (struct echi_slot){ECHI_SLOT_OWNER_STATE_CODED, 0};
    t->number = o->state_number;
    t->ratio = whole ? ECHI_RATIO_ONE : plan_of(o)->state_ratio;
    t->sample = echi_push_sample(plan_of(o), o->group);
    o->state_sending = (int8_t)o->state_current;
}

/* An owner hands on what survives of several groups in the order of the coordinator's words, and each comes to the first place that
 * waits for it: is there another that must have its place before this group's? */
static bool another_is_first(const struct echi_owner *o, int group) {
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group && !lives(o, g) && o->peer[g].refresh && o->peer[g].from == o->peer[group].from &&
            o->peer[g].word < o->peer[group].word)
            return true;
    return false;
}

/* Where the next state of group g is received: never the copy that weights are made of, and not while a task reads, or it is
 * handed on. Another's is received meanwhile: two owners may each hand on what the other waits for. */
void echi_states_post(struct echi_owner *o, struct echi_actions *out) {
    if (o->busy) return;
    for (int g = 0; g < plan_of(o)->n_groups; g++) {
        if (!o->peer[g].refresh || o->peer[g].handed_on > 0 || (!lives(o, g) && another_is_first(o, g))) continue;
        o->peer[g].refresh = false;
        const uint8_t spare = (uint8_t)(o->peer[g].there ? !o->peer[g].current : 0);
        if (coded(o) && lives(o, g)) {
            echi_act_post(out, plan_of(o)->owner_of[g], ECHI_KIND_STATE, (struct echi_slot){ECHI_SLOT_OWNER_PEER_CODED, (uint8_t)g});
            continue;
        }
        echi_act_post(out, lives(o, g) ? plan_of(o)->owner_of[g] : o->peer[g].from, lives(o, g) ? ECHI_KIND_STATE : ECHI_KIND_FROZEN,
                      (struct echi_slot){ECHI_SLOT_OWNER_PEER, (uint8_t)(2 * g + spare)});
        if (!lives(o, g)) g = -1;   /* one before it may have waited for it */
    }
}

uint64_t echi_states_safe(const struct echi_owner *o) {
    uint64_t least = o->state_version;
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group && g != reserve_of(o) && lives(o, g) && o->peer[g].acked_whole < least) least = o->peer[g].acked_whole;
    return least;
}

bool echi_states_all_have(const struct echi_owner *o) {
    const int g = reserve_of(o);
    if (g >= 0 && g != o->group && o->reserve != ECHI_RESERVE_SLEEPS && o->peer[g].acked_whole != o->state_version) return false;
    return echi_states_safe(o) == o->state_version;
}

/* ---- the reserve ---- */

void echi_states_reserve(struct echi_owner *o) {
    const int g = reserve_of(o);
    if (g < 0) return;
    const bool awake = lives(o, g) && echi_plan_workers(plan_of(o), g) > 0, was = o->reserve != ECHI_RESERVE_SLEEPS;
    if (awake == was) return;
    const bool own = g == o->group;   /* its owner lacks nothing of its own */
    o->reserve = !awake ? ECHI_RESERVE_SLEEPS : own ? ECHI_RESERVE_SHARES : ECHI_RESERVE_LACKS;
    if (own) o->woke = awake ? o->members : 0;
}

bool echi_states_caught_up(const struct echi_owner *o) {
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group && lives(o, g) && o->peer[g].told < o->woke) return false;
    return true;
}

/* ---- into tasks ---- */

void echi_states_name(const struct echi_owner *o, struct echi_task *t) {
    memset(t->peer, ECHI_NONE, sizeof t->peer);
    if (!keeps_state(o) && o->started) return;   /* at first w0 is all there is */
    for (int g = 0; g < plan_of(o)->n_groups; g++)
        if (g != o->group && o->peer[g].there) t->peer[g] = (uint8_t)(2 * g + o->peer[g].current);
    t->state = (struct echi_slot){ECHI_SLOT_OWNER_STATE, o->state_current};
}

/* Values of another group's state that have come are set in its running copy; a complete one is kept beside it. */
bool echi_states_decode(struct echi_owner *o, struct echi_actions *out) {
    for (int g = 0; g < plan_of(o)->n_groups; g++) {
        if (!o->peer[g].arrived) continue;
        struct echi_task *t = compute(o, ECHI_TASK_DECODE, out);
        t->coded = (struct echi_slot){ECHI_SLOT_OWNER_PEER_CODED, (uint8_t)g};
        t->state = (struct echi_slot){ECHI_SLOT_OWNER_PEER, (uint8_t)(2 * g)};
        if (o->peer[g].coming.whole) t->weights_out = (struct echi_slot){ECHI_SLOT_OWNER_PEER, (uint8_t)(2 * g + 1)};
        o->peer[g].arrived = false;
        o->peer[g].decoding = true;
        return true;
    }
    return false;
}

/* ---- in ---- */

/* A complete copy of a group's state has come to place 0 or 1. */
static void take_whole(struct echi_owner *o, int group, uint8_t place, uint64_t version, uint64_t samples, struct echi_marks marks) {
    o->peer[group].whole = place;
    o->peer[group].whole_there = true;
    o->peer[group].whole_version = version;
    o->peer[group].whole_samples = samples;
    o->peer[group].marks = marks.count;
    if (marks.count) memcpy(o->peer_marks[group], marks.at, (size_t)marks.count * ECHI_MARK_BYTES);
}

/* Weights are made of the copy in this place from now on. */
static void take_state(struct echi_owner *o, int group, uint8_t place, uint64_t version, uint64_t samples) {
    o->peer[group].current = place;
    o->peer[group].there = true;
    o->peer[group].version = version;
    o->peer[group].samples = samples;
    o->stale = true;
}

static void acknowledge(const struct echi_owner *o, int group, bool whole, struct echi_actions *out) {
    struct echi_action *a =
        echi_act_send(out, plan_of(o)->owner_of[group], ECHI_ROLE_OWNER, ECHI_ROLE_OWNER, ECHI_KIND_STATE_ACK);
    a->msg.group = (uint8_t)group;
    a->msg.version = o->peer[group].version;
    a->msg.samples = o->peer[group].samples;
    a->msg.flag = whole;
}

/* Is the state that has come newer than what is here? What is here in parts may come once more, complete. */
static bool is_news(const struct echi_owner *o, const struct echi_msg *m) {
    if (m->version != o->peer[m->group].version) return m->version > o->peer[m->group].version;
    if (m->flag && o->group == reserve_of(o)) return true;   /* it woke, and nothing had changed */
    return coded(o) && m->flag && o->peer[m->group].whole_version < m->version;
}

static void on_state(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (m->group >= plan_of(o)->n_groups || m->group == o->group || e->from != plan_of(o)->owner_of[m->group] || !is_news(o, m) ||
        m->samples < o->peer[m->group].samples || (!m->flag && (!coded(o) || m->number != o->peer[m->group].number + 1)))
        return echi_act_fault(out, ECH_E_FORMAT, "a group's state does not fit the plan: do all nodes run the same version?");
    o->peer[m->group].number = m->number;
    if (coded(o)) {
        o->peer[m->group].arrived = true;
        o->peer[m->group].coming.whole = m->flag;
        o->peer[m->group].coming.members = m->members;
        o->peer[m->group].coming.version = m->version;
        o->peer[m->group].coming.samples = m->samples;
        if (!m->flag) return;
        o->peer[m->group].coming.marks = m->marks.count;
        if (m->marks.count) memcpy(o->coming_marks[m->group], m->marks.at, (size_t)m->marks.count * ECHI_MARK_BYTES);
        return;
    }
    const uint8_t place = e->slot.index & 1;
    take_whole(o, m->group, place, m->version, m->samples, m->marks);
    take_state(o, m->group, place, m->version, m->samples);
    o->peer[m->group].told = m->members;
    o->peer[m->group].refresh = true;
    acknowledge(o, m->group, true, out);
}

static void on_ack(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (m->group != o->group || m->version > o->sent_version || m->samples > o->sent_samples)
        return echi_act_fault(out, ECH_E_FORMAT,
                              "a state was acknowledged that was never sent: do all nodes run the same version?");
    for (int g = 0; g < plan_of(o)->n_groups; g++) {
        if (plan_of(o)->owner_of[g] != e->from) continue;
        if (m->version > o->peer[g].acked) {
            o->peer[g].acked = m->version;
            o->peer[g].acked_samples = m->samples;
        }
        if (m->flag && m->version > o->peer[g].acked_whole) o->peer[g].acked_whole = m->version;
        if (g == reserve_of(o) && o->reserve == ECHI_RESERVE_TOLD && m->flag && m->version >= o->reserve_told)
            o->reserve = ECHI_RESERVE_SHARES;
    }
}

/* ---- losses ---- */

static struct echi_marks marks_of(const struct echi_owner *o, int group) {
    return (struct echi_marks){o->peer_marks[group], o->peer[group].marks};
}

/* To the coordinator: which version of a lost group's state is here, and which leases are in it. */
static void tell_copy(const struct echi_owner *o, int group, struct echi_actions *out) {
    struct echi_action *a = echi_act_send(out, 0, ECHI_ROLE_COORDINATOR, ECHI_ROLE_OWNER, ECHI_KIND_REVOKED);
    a->msg.group = (uint8_t)group;
    a->msg.version = o->peer[group].whole_version;
    a->msg.members = o->members;
    a->msg.marks = marks_of(o, group);
}

/* What survives a group's owner is the last complete copy: the running one may have values that nobody else has. */
static void fall_back(struct echi_owner *o, int group) {
    if (!coded(o)) return;
    o->peer[group].arrived = false;
    if (!o->peer[group].there && !o->peer[group].whole_there) return;
    take_state(o, group, o->peer[group].whole, o->peer[group].whole_version, o->peer[group].whole_samples);
    o->peer[group].there = o->peer[group].whole_there;
}

void echi_states_decoded(struct echi_owner *o, int group, struct echi_actions *out) {
    const bool whole = o->peer[group].coming.whole;
    o->peer[group].decoding = false;
    if (whole)
        take_whole(o, group, 1, o->peer[group].coming.version, o->peer[group].coming.samples,
                   (struct echi_marks){o->coming_marks[group], o->peer[group].coming.marks});
    if (whole) o->peer[group].told = o->peer[group].coming.members;
    if (lives(o, group)) {
        take_state(o, group, 0, o->peer[group].coming.version, o->peer[group].coming.samples);
        o->peer[group].refresh = true;
        acknowledge(o, group, whole, out);
    } else {
        fall_back(o, group);
    }
    if (o->peer[group].tell) tell_copy(o, group, out);
    o->peer[group].tell = false;
}

static void on_frozen(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    const struct echi_msg *m = e->msg;
    if (m->group >= plan_of(o)->n_groups || m->group == o->group || e->from != o->peer[m->group].from || e->slot.index / 2 != m->group ||
        m->version < o->peer[m->group].whole_version || m->samples < o->peer[m->group].whole_samples)
        return echi_act_fault(out, ECH_E_FORMAT, "a lost group's state does not fit the plan: do all nodes run the same version?");
    take_whole(o, m->group, e->slot.index & 1, m->version, m->samples, m->marks);
    take_state(o, m->group, e->slot.index & 1, m->version, m->samples);
    o->peer[m->group].from = ECHI_NO_RANK;
    tell_copy(o, m->group, out);
}

/* Hands the last state of a lost group to all other owners. */
static void hand_on(struct echi_owner *o, int group, struct echi_actions *out) {
    for (int g = 0; g < plan_of(o)->n_groups; g++) {
        if (g == o->group || !lives(o, g)) continue;
        struct echi_action *a = echi_act_send(out, plan_of(o)->owner_of[g], ECHI_ROLE_OWNER, ECHI_ROLE_OWNER, ECHI_KIND_FROZEN);
        a->slot = (struct echi_slot){ECHI_SLOT_OWNER_PEER, (uint8_t)(2 * group + o->peer[group].whole)};
        a->msg.group = (uint8_t)group;
        a->msg.version = o->peer[group].whole_version;
        a->msg.samples = o->peer[group].whole_samples;
        a->msg.marks = marks_of(o, group);
        o->peer[group].handed_on++;
    }
}

void echi_states_last(struct echi_owner *o, int group, uint16_t from, struct echi_actions *out) {
    if (from == o->setup->rank) return hand_on(o, group, out);
    if (plan_of(o)->lost[from]) return;
    o->peer[group].from = from;
    o->peer[group].word = ++o->words;
    o->peer[group].refresh = true;
}

void echi_states_lost(struct echi_owner *o, int rank, struct echi_actions *out) {
    const struct echi_plan *p = plan_of(o);
    for (int g = 0; g < p->n_groups; g++) {
        if (g == o->group || lives(o, g)) continue;
        if (p->owner_of[g] == rank || o->peer[g].from == rank) {
            o->peer[g].from = ECHI_NO_RANK;
            o->peer[g].refresh = false;
        }
        if (p->owner_of[g] == rank && !o->peer[g].decoding) fall_back(o, g);
        if (o->peer[g].decoding) o->peer[g].tell = true;
        else tell_copy(o, g, out);
    }
}

void echi_states_sent(struct echi_owner *o, struct echi_slot slot) {
    if (slot.kind == ECHI_SLOT_OWNER_PEER) o->peer[slot.index / 2].handed_on--;
    else if ((slot.kind == ECHI_SLOT_OWNER_STATE || slot.kind == ECHI_SLOT_OWNER_STATE_CODED) && --o->state_out == 0) o->state_sending = -1;
}

void echi_states_message(struct echi_owner *o, const struct echi_event *e, struct echi_actions *out) {
    switch (e->msg->kind) {
    case ECHI_KIND_STATE: return on_state(o, e, out);
    case ECHI_KIND_FROZEN: return on_frozen(o, e, out);
    default: return on_ack(o, e, out);
    }
}
