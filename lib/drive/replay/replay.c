/* SPDX-License-Identifier: Apache-2.0
 * Roles replayed: a node's recorded events into fresh roles, whose actions must be the recorded ones byte for byte.
 *
 * Beside that every event must answer an action: a task that is done was asked for in the same words, a slot that was sent
 * was named by a send, a payload came where a post said. So a driver that chose anything by itself is found, and a role is
 * never given what it has not asked for, whatever is in the file. */
#include "echi_recording.h"
#include "echi_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASK_BYTES 1152   /* of a head's with rows of ECHI_MERGE_STEPS workers */

/* What a role has asked for and not been answered yet. */
struct owed { uint8_t what, role, kind, slot_kind; uint16_t peer, slot_index, len; int times; uint8_t task[TASK_BYTES]; };
enum { OWED_TASK, OWED_SENT, OWED_PAYLOAD, OWED_MEASURED, OWED_SLOTS, OWED_HELD };

struct stage {
    struct echi_setup setup;
    struct echi_node_role node;
    struct echi_coordinator coordinator;
    struct echi_worker worker;
    struct echi_owner owner;
    struct echi_head head;
    bool stands;
    struct echi_plan next;
    struct echi_action action[ECHI_ACTIONS_MAX];
    uint8_t encoded[ECHI_RECORD_MAX];
    struct owed *owed; size_t n_owed, room;
    struct echi_record record;
};

static bool same_plan(struct stage *s, const struct echi_plan *a, const struct echi_plan *b) {
    uint8_t *x = s->encoded, *y = s->encoded + ECHI_PLAN_BYTES_MAX;
    const size_t len = echi_plan_encode(a, x, ECHI_PLAN_BYTES_MAX);
    return len == echi_plan_encode(b, y, ECHI_PLAN_BYTES_MAX) && memcmp(x, y, len) == 0;
}

/* What the driver made of the plan that the node role has taken. False when that was no such plan. */
static bool stand(struct stage *s, const struct echi_setup *setup) {
    const struct echi_plan *p = &s->setup.plan;
    const int rank = s->node.rank;
    if (s->stands || !s->node.making || !same_plan(s, &setup->plan, &s->setup.plan)) return false;
    s->setup = *setup;
    s->stands = true;
    if (echi_plan_hosts(p, rank, ECHI_ROLE_WORKER)) s->node.worker = &s->worker;
    if (echi_plan_hosts(p, rank, ECHI_ROLE_OWNER)) s->node.owner = &s->owner;
    if (echi_plan_hosts(p, rank, ECHI_ROLE_HEAD)) s->node.head = &s->head;
    return true;
}

/* What the driver made in mid-run: memory for the role of a head, where its layers are about to come here. */
static void make_head(struct stage *s, const struct echi_event *e) {
    struct echi_plan *next = &s->next;
    if (e->type != ECHI_EVENT_SLOTS || e->flag || !s->node.planned) return;
    echi_node_role_next(&s->node, next);
    if (echi_plan_hosts(next, s->node.rank, ECHI_ROLE_HEAD)) s->node.head = &s->head;
}

/* ------------------------------------------------- what roles have asked for */

static size_t encode_task(const struct echi_task *t, uint8_t out[TASK_BYTES]) {
    struct echi_writer w = echi_writer_over(out, TASK_BYTES);
    echi_task_put(&w, t);
    return (size_t)(w.at - out);
}

static struct owed owed_task(const struct echi_task *t) {
    struct owed o = {.what = OWED_TASK, .role = t->role};
    o.len = (uint16_t)encode_task(t, o.task);
    return o;
}
static struct owed owed_slot(int what, int role, int peer, int kind, struct echi_slot slot) {
    return (struct owed){.what = (uint8_t)what, .role = (uint8_t)role, .peer = (uint16_t)peer, .kind = (uint8_t)kind,
                         .slot_kind = slot.kind, .slot_index = slot.index};
}

static bool owe(struct stage *s, struct owed o, int times) {
    if (s->n_owed == s->room) {
        const size_t room = s->room ? 2 * s->room : 64;
        struct owed *larger = realloc(s->owed, room * sizeof *larger);
        if (!larger) return false;
        s->owed = larger;
        s->room = room;
    }
    o.times = times;
    s->owed[s->n_owed++] = o;
    return true;
}

/* False when it is not owed. A task stays owed while its gradients come. */
static bool pay(struct stage *s, struct owed o, bool whole) {
    for (size_t i = 0; i < s->n_owed; i++) {
        struct owed *e = &s->owed[i];
        if (e->what != o.what || e->role != o.role || e->peer != o.peer || e->kind != o.kind || e->slot_kind != o.slot_kind ||
            e->slot_index != o.slot_index || e->len != o.len || memcmp(e->task, o.task, o.len) != 0)
            continue;
        if (whole && --e->times == 0) *e = s->owed[--s->n_owed];
        return true;
    }
    return false;
}

/* Does a task name all slots that one of its kind reads and writes? */
static bool names_slots(const struct echi_task *t) {
    const bool weights = t->weights.kind, out = t->weights_out.kind, grads = t->grads.kind, act = t->act.kind, state = t->state.kind;
    const bool coded = t->coded.kind;
    switch ((enum echi_task_kind)t->kind) {
    case ECHI_TASK_HEAD: return weights && grads && !(out && state) && t->n_rows > 0;
    case ECHI_TASK_HEAD_APPLY: return weights && out && grads && (t->grads.kind == ECHI_SLOT_HEAD_SUM) == (t->n_rows == 0);
    case ECHI_TASK_ADD: return (t->only && !grads ? t->n_rows > 0 || t->ring.kind : grads) && state;
    case ECHI_TASK_APPLY: return weights && out && grads && state == (t->state_out.kind != ECHI_SLOT_NONE);
    case ECHI_TASK_ENCODE: return weights && state && coded;
    case ECHI_TASK_DECODE: return state && coded;
    case ECHI_TASK_REFRESH: return out && state;
    case ECHI_TASK_TAKE: return weights == out && weights == (t->only > 0);
    case ECHI_TASK_STATE: return weights && t->state_out.kind;
    case ECHI_TASK_BACKWARD: return weights && grads && act && state == coded;
    case ECHI_TASK_STEP: return weights && (grads || t->until > 0) && state == coded;
    case ECHI_TASK_FORWARD: return weights && (act || t->until > 0);
    case ECHI_TASK_NORM: return t->sums.kind && t->n_rows > 0;
    case ECHI_TASK_EVAL: return weights;
    case ECHI_TASK_KEEP: return true;   /* all COORD_KEPT */
    case ECHI_TASK_LOCAL_APPLY: return weights && out && grads && state;
    case ECHI_TASK_LOCAL_DELTA: return weights && grads && state;
    case ECHI_TASK_LOCAL_JOIN: return weights && out && t->state_out.kind;
    case ECHI_TASKS: break;
    }
    return false;
}

/* What this action makes others owe; false with a reason when it does not say all that a driver must know, and without one
 * when there is no memory to note it. */
static bool note_action(struct stage *s, const struct echi_action *a, const char **why) {
    *why = NULL;
    switch ((enum echi_action_type)a->type) {
    case ECHI_ACTION_SEND:
        if (!echi_kind_has_payload(a->kind)) return true;
        if (a->slot.kind == ECHI_SLOT_NONE) return *why = "it names no slot to send from", false;
        return owe(s, owed_slot(OWED_SENT, a->msg.from_role, 0, a->kind, a->slot), 1);
    case ECHI_ACTION_POST:
        if (a->slot.kind == ECHI_SLOT_NONE) return *why = "it names no slot to receive into", false;
        if (a->only > s->setup.plan.parts.count) return *why = "it is for a part that the plan does not have", false;
        return owe(s, owed_slot(OWED_PAYLOAD, 0, a->to, a->kind, a->slot), echi_posts(&s->setup, a));
    case ECHI_ACTION_COMPUTE:
        if (a->task.until > s->setup.cut || (a->task.until > 0 && a->task.from >= a->task.until) || a->task.from > s->setup.cut)
            return *why = "it is about layers that the plan does not have", false;
        if (a->task.only > s->setup.plan.parts.count) return *why = "it is about a part that the plan does not have", false;
        if (!names_slots(&a->task)) return *why = "it does not name every slot that such a task reads and writes", false;
        return owe(s, owed_task(&a->task), 1);
    case ECHI_ACTION_MEASURE: return owe(s, (struct owed){.what = OWED_MEASURED}, 1);
    case ECHI_ACTION_SLOTS: return owe(s, (struct owed){.what = OWED_SLOTS}, 1);
    case ECHI_ACTION_HOLD: return owe(s, (struct owed){.what = OWED_HELD}, 1);
    case ECHI_ACTION_PLAN:
    case ECHI_ACTION_FAULT:
    case ECHI_ACTION_DONE:
    case ECHI_ACTION_RELEASE:
    case ECHI_ACTION_DROP:
    case ECHI_ACTION_FINAL:
    case ECHI_ACTION_LEAVE: break;
    }
    return true;
}

/* NULL when the event is one that this node's roles wait for; else what is wrong with it. */
static const char *unasked(struct stage *s, const struct echi_traced *t) {
    const struct echi_event *e = &t->event;
    switch ((enum echi_event_type)e->type) {
    case ECHI_EVENT_MESSAGE:
        if (e->msg->to_role != t->role) return "the message is for another role";
        if (!echi_kind_has_payload(e->msg->kind))
            return e->slot.kind == ECHI_SLOT_NONE ? NULL : "a message without a payload cannot be in a slot";
        return pay(s, owed_slot(OWED_PAYLOAD, 0, e->from, e->msg->kind, e->slot), true)
                   ? NULL : "no role has asked for that payload in that slot";
    case ECHI_EVENT_SENT:
        return pay(s, owed_slot(OWED_SENT, t->role, 0, e->kind, e->slot), true) ? NULL : "no role has sent anything from that slot";
    case ECHI_EVENT_GRADIENT:
        if (e->layer >= s->setup.n_layers || e->task->role != t->role) return "it does not fit its task";
        return pay(s, owed_task(e->task), false) ? NULL : "no role has asked for that task";
    case ECHI_EVENT_COMPUTED:
        if (e->task->role != t->role) return "it does not fit its task";
        return pay(s, owed_task(e->task), true) ? NULL : "no role has asked for that task";
    case ECHI_EVENT_MEASURED: return pay(s, (struct owed){.what = OWED_MEASURED}, true) ? NULL : "nobody has asked for step times";
    case ECHI_EVENT_SLOTS:
        return s->stands && pay(s, (struct owed){.what = OWED_SLOTS}, true) ? NULL : "nobody has asked for slots";
    case ECHI_EVENT_HELD: return pay(s, (struct owed){.what = OWED_HELD}, true) ? NULL : "nobody has asked it to hold";
    case ECHI_EVENT_START:
    case ECHI_EVENT_LOST:
    case ECHI_EVENT_RATE:
    case ECHI_EVENT_TIME:
    case ECHI_EVENT_STOP:
    case ECHI_EVENT_BROKE:
    case ECHI_EVENT_FAILED:
    case ECHI_EVENT_TAKEOVER:
    case ECHI_EVENT_HEADS:
    case ECHI_EVENT_MOVED: break;
    }
    return NULL;
}

/* -------------------------------------------------------------- comparison */

static ech_status fail_at(const struct echi_recording *r, const struct echi_traced *t, struct ech_error *err, const char *what,
                          const char *detail) {
    char event[100];
    echi_event_text(t, event, sizeof event);
    return echi_fail_at(err, ECH_E_MISMATCH, "replay.roles", r->about.rank, NULL, "rank %d, event %llu, %s (%s): %s%s", r->about.rank,
                        (unsigned long long)r->events, echi_role_name(t->role), event, what, detail);
}

/* Leaves of a text its beginning and what is near to place `at`: there it differs from another one. */
static void shorten(char *text, size_t at) {
    enum { BEGINNING = 36, BEFORE = 12, MOST = 100 };
    const char *gap = " ... ";
    if (at > BEGINNING + BEFORE + strlen(gap)) {
        memcpy(text + BEGINNING, gap, strlen(gap));
        memmove(text + BEGINNING + strlen(gap), text + at - BEFORE, strlen(text + at - BEFORE) + 1);
    }
    if (strlen(text) > MOST) text[MOST] = 0;
}

/* The first action in which the two lists differ, both in words. */
static ech_status fail_differ(const struct echi_recording *r, const struct echi_traced *t, const uint8_t *now, size_t now_len,
                              struct ech_error *err) {
    struct echi_reader was_at = echi_reader_over(t->actions, t->actions_len), now_at = echi_reader_over(now, now_len);
    struct echi_traced_action was, is;
    char was_text[320] = "nothing", now_text[320] = "nothing", detail[400];
    bool more_was, more_is;
    do {
        const uint8_t *was_from = was_at.at, *now_from = now_at.at;
        more_was = echi_trace_next_action(&was_at, &was);
        more_is = echi_trace_next_action(&now_at, &is);
        const size_t len = (size_t)(was_at.at - was_from);
        if (more_was && more_is && len == (size_t)(now_at.at - now_from) && memcmp(was_from, now_from, len) == 0) continue;
        break;
    } while (more_was || more_is);
    if (more_was) echi_action_text(&was, was_text, sizeof was_text);
    if (more_is) echi_action_text(&is, now_text, sizeof now_text);
    size_t common = 0;
    while (was_text[common] && was_text[common] == now_text[common]) common++;
    shorten(was_text, common);
    shorten(now_text, common);
    snprintf(detail, sizeof detail, "'%.160s' was recorded, '%.160s' is what fresh roles ask for", was_text, now_text);
    return fail_at(r, t, err, "the actions differ: ", detail);
}

static ech_status replay_event(struct stage *s, struct echi_recording *r, const struct echi_traced *t, uint64_t *out_actions,
                               struct ech_error *err) {
    struct echi_actions list = {s->action, 0, (int)(sizeof s->action / sizeof s->action[0]), false};
    const char *why = unasked(s, t);
    if (why) return fail_at(r, t, err, why, "");
    make_head(s, &t->event);
    if (!echi_node_role_step(&s->node, (enum echi_role)t->role, &t->event, &list))
        return fail_at(r, t, err, "this node has no role that takes it", "");
    struct echi_writer w = echi_writer_over(s->encoded, sizeof s->encoded);
    echi_trace_put_actions(&w, &list, s->node.coordinator);
    const size_t len = (size_t)(w.at - s->encoded);
    if (!w.ok || len != t->actions_len || memcmp(s->encoded, t->actions, len) != 0) return fail_differ(r, t, s->encoded, len, err);
    *out_actions += (uint64_t)list.count;
    for (int i = 0; i < list.count; i++) {
        if (note_action(s, &list.list[i], &why)) continue;
        if (!why) return echi_fail_memory(err, "replay.roles", "what a node's roles wait for");
        struct echi_reader at = echi_reader_over(t->actions, t->actions_len);
        struct echi_traced_action action;
        char text[204] = ": ";
        for (int k = 0; k <= i && echi_trace_next_action(&at, &action); k++) {}
        echi_action_text(&action, text + 2, sizeof text - 2);
        return fail_at(r, t, err, why, text);
    }
    return ECH_OK;
}

ech_status echi_replay_roles(struct echi_recording *r, uint64_t *out_events, uint64_t *out_actions, struct ech_error *err) {
    struct stage *s = malloc(sizeof *s);
    if (!s) return echi_fail_memory(err, "replay.roles", "the roles of a node");
    memset(&s->setup, 0, sizeof s->setup);   /* the roles are left as they lie: their inits set what they read */
    s->stands = false;
    s->owed = NULL;
    s->n_owed = s->room = 0;
    echi_node_role_init(&s->node, &s->setup, r->about.rank, r->about.world, r->about.session);
    if (r->about.plan_given) s->setup.plan = r->about.plan;
    if (r->about.rank == 0) {
        echi_coordinator_init(&s->coordinator, &s->setup, &r->about.request, &r->about.goal, r->about.plan_given);
        s->node.coordinator = &s->coordinator;
    }
    ech_status status = ECH_OK;
    *out_events = *out_actions = 0;
    echi_recording_rewind(r);
    for (;;) {
        status = echi_recording_read(r, &s->record, err);
        if (status != ECH_OK || s->record.kind == 0 || s->record.kind == ECHI_RECORD_END) break;
        if (s->record.kind == ECHI_RECORD_SETUP && !stand(s, &s->record.setup.setup)) {
            status = echi_fail_at(err, ECH_E_MISMATCH, "replay.roles", r->about.rank, NULL,
                                  "rank %d, behind event %llu: it stands by a plan that did not come", r->about.rank,
                                  (unsigned long long)r->events);
            break;
        }
        if (s->record.kind != ECHI_RECORD_EVENT) continue;
        status = replay_event(s, r, &s->record.event, out_actions, err);
        if (status != ECH_OK) break;
        (*out_events)++;
    }
    if (status == ECH_OK && s->record.kind == ECHI_RECORD_END) {   /* nothing may stand behind it */
        int kind;
        const uint8_t *body;
        size_t len;
        status = echi_recording_next(r, &kind, &body, &len, err);
    }
    free(s->owed);
    free(s);
    return status;
}
