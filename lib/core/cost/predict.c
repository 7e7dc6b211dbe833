/* SPDX-License-Identifier: Apache-2.0
 * A plan played on lanes and links. */
#include "echi_predict_impl.h"
#include "echi_predict_rounds.h"
#include "echi_ratio.h"

#include <string.h>

/* Steps a worker when nobody says how many: what repeats exactly needs few; what is random is played until the noise of a
 * candidate is about a percent, but no longer than a coordinator may be busy for (some ms a candidate). */
#define STEPS_EXACT 32
#define STEPS_RANDOM 1536
#define STEPS_LEAST 16
#define STEPS_IN_ALL 16384
/* A worker counts from when it has done so many steps, and all together a quarter of theirs; it does so many more at least. */
#define FIRST_STEPS 3
#define COUNTED_LEAST 3
/* ... unless it is so slow that the others would do so many times what was asked for. */
#define PATIENCE 4
#define MESSAGES ECHI_PREDICT_MESSAGES
#define COPY ECHI_PREDICT_COPY
#define APPLY ECHI_PREDICT_APPLY
/* In updates: weights, for each state that they are a sum of. */
#define SUMMAND 0.36
/* Under a codec what is sent is what is sent from this epoch on, when ratios have come to where they stay. */
#define LATE 5
/* ---- events: the earliest first ---- */

static bool before(const struct event *a, const struct event *b) { return a->at < b->at || (a->at == b->at && a->turn < b->turn); }

void echi_predict_tell(struct echi_play *p, double at, enum echi_play_what what, int who, int flight) {
    const struct event e = {at, p->turns++, (uint16_t)who, (uint8_t)what, (uint8_t)flight};
    int i = p->n_events++;
    for (; i > 0 && before(&e, &p->heap[(i - 1) / 2]); i = (i - 1) / 2) p->heap[i] = p->heap[(i - 1) / 2];
    p->heap[i] = e;
}

static struct event next(struct echi_play *p) {
    const struct event first = p->heap[0], last = p->heap[--p->n_events];
    int i = 0;
    for (int child; (child = 2 * i + 1) < p->n_events; i = child) {
        if (child + 1 < p->n_events && before(&p->heap[child + 1], &p->heap[child])) child++;
        if (!before(&p->heap[child], &last)) break;
        p->heap[i] = p->heap[child];
    }
    p->heap[i] = last;
    return first;
}

/* ---- resources ---- */

/* Where units are known. */
static double unit_takes(const struct echi_play *p, const struct node *n, int unit, enum echi_pass pass) {
    return n->a_share[unit >= (int)p->load->layers] * n->share[unit].of[pass];
}

/* Until a compute thread with a worker's task comes to the end of a unit of it. */
static double unit_left(const struct echi_play *p, const struct node *n, double at) {
    const double done = at - n->begun - (n->stolen - n->stolen_begun);
    double end = 0;
    if (!n->busy || done <= 0) return 0;
    if (!n->share) {   /* all alike */
        const double units = done / n->longer;
        return units < (n->task == STEP ? 2 : 1) * p->units ? (double)((int)units + 1) * n->longer - done : 0;
    }
    for (int u = 0; u < p->units && n->task != BACKWARD; u++)
        if ((end += n->longer * unit_takes(p, n, u, ECHI_FORWARD)) > done) return end - done;
    for (int u = p->units - 1; u >= 0 && n->task != FORWARD; u--)
        if ((end += n->longer * unit_takes(p, n, u, ECHI_BACKWARD)) > done) return end - done;
    return 0;
}

/* Work of the head or of an owner: it waits for what is as urgent, and for the end of a unit. Returns when it is done. */
static double urgent(const struct echi_play *p, struct node *n, double at, double seconds) {
    if (at > n->urgent_until) n->urgent_until = at + unit_left(p, n, at);
    n->urgent_until += seconds;
    n->stolen += seconds;
    return n->urgent_until;
}

/* The coordinator's: not on the lane, which only stands still meanwhile. */
static double beside(struct node *n, double at, double seconds) {
    n->beside_until = (at > n->beside_until ? at : n->beside_until) + seconds;
    n->urgent_until += n->urgent_until > at ? seconds : 0;
    n->stolen += seconds;
    return n->beside_until;
}

/* ---- worker ---- */

/* The lane's worker: backward before forward. */
static void work(struct echi_play *p, int r) {
    struct node *n = &p->node[r];
    struct worker *w = &p->worker[r];
    if (n->busy) return;
    int at = -1;
    for (int s = 0; s < p->plan->flights; s++)
        if (w->flight[s].wants == WANTS_BACKWARD || (w->flight[s].wants == WANTS_FORWARD && at < 0)) at = s;
    if (at < 0) return;
    struct flight *s = &w->flight[at];
    const bool forward = s->wants == WANTS_FORWARD;
    s->wants = AWAY;
    n->busy = true;
    n->stolen_before = n->stolen_begun = n->stolen;
    n->begun = p->now > n->urgent_until ? p->now : n->urgent_until;
    const double seconds = s->factor * (forward ? n->forward : n->backward);
    n->task = !p->plan->separated ? STEP : forward ? FORWARD : BACKWARD;
    n->longer = n->units_take[n->task] > 0 ? seconds / n->units_take[n->task] : 0;
    const double end = n->begun + seconds;
    n->head_before = n->stolen;
    if (n->task == STEP && p->load->head > 0 && p->plan->owner_of[p->plan->group_of[r]] != r)
        echi_predict_tell(p, end - s->factor * n->backward, HEAD_LEAVES, r, at);
    echi_predict_tell(p, end, forward && p->plan->separated ? FORWARD_DONE : STEP_DONE, r, at);
}

/* Urgent work came in between: the task ends so much later. */
static bool put_off(struct echi_play *p, const struct event *e) {
    struct node *n = &p->node[e->who];
    const double late = n->stolen - n->stolen_before;
    n->busy = late > 0;
    if (!n->busy) return false;
    n->stolen_before = n->stolen;
    echi_predict_tell(p, p->now + late, (enum echi_play_what)e->what, e->who, e->flight);
    return true;
}

static void begin(struct echi_play *p, int r, int flight) {
    struct worker *w = &p->worker[r];
    w->flight[flight].wants = WANTS_LEASE;
    if (!p->policy->rounds && w->leases == 0) return;
    w->leases--;
    w->flight[flight].factor = echi_predict_factor(&p->times[r], r, w->begun++);
    w->flight[flight].wants = WANTS_FORWARD;
    work(p, r);
}

static void lease_in(struct echi_play *p, int r) {
    struct worker *w = &p->worker[r];
    w->leases++;
    for (int s = 0; s < p->plan->flights; s++)
        if (w->flight[s].wants == WANTS_LEASE && w->leases > 0) begin(p, r, s);
}

/* ---- head ---- */

/* One visit takes all rows that wait, up to as many as a head merges. Under BSP the update comes once a round, and is left out. */
static void visit(struct echi_play *p) {
    const int h = p->plan->head;
    uint32_t rows = 0;
    for (p->visiting = 0; p->visiting < p->queued; p->visiting++) {
        const uint32_t n = p->plan->n[p->queue[p->visiting].who];
        if (rows > 0 && rows + n > ECHI_MERGE_ROWS) break;
        rows += n;
    }
    const struct echi_times *t = &p->times[h];
    const double answered = urgent(p, &p->node[h], p->now,
                                   echi_times_head(t, rows) + p->visiting * 2 * p->node[h].message + rows * p->node[h].row);
    echi_predict_tell(p, answered, HEAD_ANSWERS, h, 0);
    echi_predict_tell(p, p->policy->rounds ? answered : urgent(p, &p->node[h], p->now, p->node[h].update), HEAD_FREE, h, 0);
    p->head_busy = true;
}

static void answer(struct echi_play *p) {
    for (int i = 0; i < p->visiting; i++) {
        const int r = p->queue[i].who;
        echi_predict_carry(p, p->plan->head, r, (double)p->plan->n[r] * p->load->row_grad,
                           &(struct echi_play_note){ANSWER_IN, r, p->queue[i].flight, 0, 0, 0});
    }
    p->queued -= p->visiting;
    memmove(&p->queue[0], &p->queue[p->visiting], (size_t)p->queued * sizeof p->queue[0]);
}

/* ---- owner ---- */

/* Messages that layers of a push are: those told of together go as one. */
static double messages(uint64_t bytes, uint32_t layers) {
    const double many = (double)(bytes / ECHI_WORTH_A_WAKE);
    return bytes == 0 ? 0 : many < 1 ? 1 : many > layers ? layers : many;
}
static double head_messages(const struct echi_play *p) { return p->plan->separated ? 0 : messages(p->load->head, p->load->head_layers); }
static double all_messages(const struct echi_play *p) { return messages(p->load->trunk, p->load->layers) + head_messages(p); }
static double travels(const struct echi_play *p) { return (double)p->load->trunk + (p->plan->separated ? 0 : p->load->head); }

/* An owner's node copies so much of a push out of its socket, from another node. */
static double taking_in(const struct echi_play *p, int r, double bytes, double messages) {
    const int g = p->plan->group_of[r];
    const struct node *n = &p->node[p->plan->owner_of[g]];
    return COPY * p->gradients[g].part * n->exchange * (travels(p) > 0 ? bytes / travels(p) : 1) + messages * n->message;
}

/* With nothing apart the layers behind the cut leave while those before it are computed backward. */
static void push_head(struct echi_play *p, const struct event *e) {
    struct node *n = &p->node[e->who];
    const int r = e->who, g = p->plan->group_of[r];
    const double late = n->stolen - n->head_before;
    if (late > 0) {   /* urgent work came in between */
        n->head_before = n->stolen;
        return echi_predict_tell(p, p->now + late, HEAD_LEAVES, r, e->flight);
    }
    p->worker[r].flight[e->flight].head_out = true;
    echi_predict_carry(p, r, p->plan->owner_of[g], p->gradients[g].part * p->load->head,
                       &(struct echi_play_note){HEAD_IN, r, e->flight, 0, 0, 0});
}

static void push(struct echi_play *p, int r, int flight) {
    const int g = p->plan->group_of[r];
    echi_predict_carry(p, r, p->plan->owner_of[g], p->gradients[g].part * p->load->trunk,
                       &(struct echi_play_note){PUSH_IN, r, flight, 0, 0, 0});
}

/* An owner's sends at once: the others wait, and get what is the newest then. */
#define SENDS ECHI_ANSWERS

static bool held_back(const struct echi_play *p, int r) {
    const struct group *a = &p->group[p->plan->group_of[r]];
    return p->bound && p->worker[r].applied > (uint64_t)a->least + p->plan->staleness;
}

static void weights_leave(struct echi_play *p, int r, int flight, enum echi_play_what sent) {
    const int g = p->plan->group_of[r];
    echi_predict_carry(p, p->plan->owner_of[g], r, p->states.part * travels(p),
                       &(struct echi_play_note){WEIGHTS_IN, r, flight, sent, g, 0});
}

static void send_weights(struct echi_play *p, int r, int flight) {
    const int g = p->plan->group_of[r], o = p->plan->owner_of[g];
    p->worker[r].owed[flight] = false;
    p->group[g].owed--;
    p->worker[r].flight[flight].seen = p->group[g].weights;
    struct node *n = &p->node[o];
    const double work = o == r ? p->own.write * n->apply : p->states.write * n->apply + COPY * p->states.part * n->exchange + n->message;
    const double ready = o != r || work > 0 ? urgent(p, n, p->now, work) : p->now;
    if (o == r) return echi_predict_tell(p, ready, WEIGHTS_IN, r, flight);
    if (ready <= p->now && p->times[o].link.out.rate <= 0) return weights_leave(p, r, flight, ECHI_PLAY_NOTHING);   /* at once */
    p->group[g].sending++;
    if (ready > p->now) echi_predict_tell(p, ready, WEIGHTS_READY, r, flight);
    else weights_leave(p, r, flight, SENT);
}

/* What is owed, rank by rank, while there are places for sends, to those whom the bound does not hold back. */
static void answer_owed(struct echi_play *p, int g) {
    struct group *a = &p->group[g];
    const int count = a->workers, first = a->turn;
    for (int i = 0; i < count && a->owed > 0 && a->sending < SENDS; i++) {
        const int at = first + i < count ? first + i : first + i - count, r = p->member[a->first + at];
        for (int s = 0; s < p->plan->flights; s++) {
            if (!p->worker[r].owed[s] || a->sending == SENDS || held_back(p, r)) continue;
            send_weights(p, r, s);
            a->turn = at + 1 < count ? at + 1 : 0;
        }
    }
}

static void reply(struct echi_play *p, int r, int flight) {
    p->worker[r].owed[flight] = true;
    p->group[p->plan->group_of[r]].owed++;
}

static void count(struct echi_play *p, int r) {
    struct worker *w = &p->worker[r];
    w->applied++;
    p->pushes++;
    if (p->pushes <= p->warm || w->applied <= FIRST_STEPS) return;
    if (w->first == 0) w->first = p->now;
    else w->counted++;
    w->last = p->now;
}

/* R (PROTOCOL.md, "States"): it applies nothing until the others have more of what it did. */
static bool too_far_ahead(const struct echi_play *p, int g) {
    for (int h = 0; h < p->plan->n_groups; h++)
        if (h != g && p->group[h].workers > 0 &&
            p->group[g].own - p->group[g].acked[h] > (double)p->plan->rounds_apart * p->plan->round)
            return true;
    return false;
}

static void state_leaves(struct echi_play *p, int g, int h) {
    echi_predict_carry(p, p->plan->owner_of[g], p->plan->owner_of[h], p->states.part * travels(p),
                       &(struct echi_play_note){STATE_IN, g, h, STATE_OUT, g, 1});
}

/* A state leaves when its owner's link has nothing else to carry, and when the one before it has come where it is to go. */
static void send_states(struct echi_play *p, int g) {
    struct group *a = &p->group[g];
    const int o = p->plan->owner_of[g];
    if (a->sends == 0 || a->state_out) return;
    a->waits = a->state_out = echi_predict_link_busy(p, o);
    if (a->waits) return;
    for (int h = 0; h < p->plan->n_groups; h++) {
        if (!a->due[h] || a->carried[h] > 0) continue;
        a->due[h] = false;
        a->carried[h] = a->sent;
        a->state_out = true;
        echi_predict_tell(p, urgent(p, &p->node[o], p->now, COPY * p->states.part * p->node[o].exchange + p->node[o].message),
                          STATE_READY, g, h);
        return;
    }
}

/* Its state to the other owners, once as many pushes as it has workers are in and the last is out (PROTOCOL.md, "States"). */
static void exchange(struct echi_play *p, int g) {
    struct group *a = &p->group[g];
    if (p->plan->n_groups == 1 || a->sends > 0 || a->since_send == 0 || (a->since_send < a->workers && !too_far_ahead(p, g))) return;
    a->since_send = 0;
    a->sent = a->own;
    struct node *n = &p->node[p->plan->owner_of[g]];
    if (p->states.write > 0) urgent(p, n, p->now, p->states.write * n->apply);
    for (int h = 0; h < p->plan->n_groups; h++) {
        const bool takes_part = h != g && p->group[h].workers > 0;   /* the reserve may sleep */
        a->due[h] = takes_part;
        a->sends += takes_part;
    }
    send_states(p, g);
}

void echi_predict_idle(struct echi_play *p, int host) {
    for (int g = 0; g < p->plan->n_groups; g++) {
        if (!p->group[g].waits || p->plan->owner_of[g] != host) continue;
        p->group[g].waits = false;
        echi_predict_tell(p, p->now, STATE_OUT, g, 0);
    }
}

/* The link is free: of a state that left it, if one did. */
static void state_out(struct echi_play *p, int g, bool left) {
    p->group[g].state_out = false;
    if (left && --p->group[g].sends == 0) exchange(p, g);
    else send_states(p, g);
}

/* Taken in layer by layer, then applied, with several groups to the sum of w0 and all states; the coordinator is told. */
static void push_in(struct echi_play *p, int r, int flight) {
    const int o = p->plan->owner_of[p->plan->group_of[r]];
    struct node *n = &p->node[o];
    const struct coding *c = o == r ? &p->own : &p->gradients[p->plan->group_of[r]];
    const double head = p->plan->separated ? 0 : p->load->head;   /* which was taken in before */
    const double left = travels(p) - head, of = all_messages(p) - head_messages(p);
    const double copied = o == r ? n->message : taking_in(p, r, left, of + 1);
    const double here = copied + c->read * n->apply;
    if (p->policy->rounds) {
        urgent(p, n, p->now, here + (1 - COPY) * n->exchange);
        if (++p->round_in < p->group[0].workers) return;
        echi_predict_tell(p, urgent(p, n, p->now, n->apply), APPLIED, r, flight);
    } else {
        const double sum = p->plan->n_groups > 1 ? SUMMAND * (p->groups + 1) * n->apply : 0;
        echi_predict_tell(p, urgent(p, n, p->now, here + n->apply + sum), APPLIED, r, flight);
    }
}

/* A part of a push: behind the cut, or before it. */
static void part_in(struct echi_play *p, int r, int flight, bool head) {
    struct flight *s = &p->worker[r].flight[flight];
    const int o = p->plan->owner_of[p->plan->group_of[r]];
    if (head) urgent(p, &p->node[o], p->now, taking_in(p, r, p->load->head, head_messages(p)));
    if (head) s->head_out = false;
    else s->trunk_in = true;
    if (s->head_out || !s->trunk_in) return;
    s->trunk_in = false;
    push_in(p, r, flight);
}

static void round_applied(struct echi_play *p) {
    p->round_in = 0;
    for (int r = 0; r < p->plan->world; r++) {
        if (p->plan->group_of[r] == ECHI_NONE) continue;
        count(p, r);
        reply(p, r, 0);
    }
    answer_owed(p, 0);
}

static void recount(struct echi_play *p, int g) {
    struct group *a = &p->group[g];
    a->least = UINT32_MAX;
    a->at_least = 0;
    for (int i = 0; i < a->workers; i++) {
        const int r = p->member[a->first + i];
        if (p->worker[r].applied > a->least) continue;
        a->at_least = p->worker[r].applied < a->least ? 1 : a->at_least + 1;
        a->least = p->worker[r].applied;
    }
}

/* Its owner's word that a push is in goes to the coordinator, which deals its worker another lease. */
static void word_in(struct echi_play *p, int r) {
    echi_predict_word(p, 0, r, beside(&p->node[0], p->now, 2 * p->node[0].message), LEASE_IN, r);
}

static void applied(struct echi_play *p, int r, int flight) {
    const int g = p->plan->group_of[r];
    struct group *a = &p->group[g];
    struct worker *w = &p->worker[r];
    if (p->pushes > p->warm) {
        p->stale += a->weights - w->flight[flight].seen;
        a->behind += p->all - w->flight[flight].seen;
        a->behind_count++;
        p->behind += p->all - w->flight[flight].seen;
        p->stale_count++;
    }
    a->weights += p->plan->n[r];
    a->own += p->plan->n[r];
    p->all += p->plan->n[r];
    a->since_send++;
    count(p, r);
    if (w->applied == a->least + 1 && --a->at_least == 0) recount(p, g);
    reply(p, r, flight);
    echi_predict_word(p, p->plan->owner_of[g], 0, p->now, WORD_IN, r);
    answer_owed(p, g);
    exchange(p, g);
}

static void state_in(struct echi_play *p, int from, int to) {
    const int o = p->plan->owner_of[to];
    struct group *b = &p->group[to];
    struct node *n = &p->node[o];
    urgent(p, n, p->now, COPY * p->states.part * n->exchange + p->states.read * n->apply + 2 * n->message);
    struct group *a = &p->group[from];
    b->weights += a->carried[to] - b->peer[from];
    b->peer[from] = a->acked[to] = a->carried[to];
    a->carried[to] = 0;
    int left = 0, count = p->n_stuck;
    bool stops = too_far_ahead(p, from);
    for (int i = 0; i < count; i++) {
        const struct step s = p->stuck[i];
        if (stops || p->plan->group_of[s.who] != from) {
            p->stuck[left++] = s;
            continue;
        }
        applied(p, s.who, s.flight);
        stops = too_far_ahead(p, from);
    }
    p->n_stuck = left;
    send_states(p, from);
}

/* ---- the play ---- */

static void happens(struct echi_play *p, const struct event *e) {
    const int r = e->who;
    switch ((enum echi_play_what)e->what) {
    case FORWARD_DONE:
        if (put_off(p, e)) return;
        echi_predict_carry(p, r, p->plan->head, (double)p->plan->n[r] * p->load->row,
                           &(struct echi_play_note){ROWS_IN, r, e->flight, 0, 0, 0});
        return work(p, r);
    case ROWS_IN:
        p->queue[p->queued++] = (struct step){e->who, e->flight};
        if (!p->head_busy) visit(p);
        return;
    case HEAD_ANSWERS: return answer(p);
    case HEAD_FREE:
        p->head_busy = false;
        if (p->queued > 0) visit(p);
        return;
    case ANSWER_IN:
        p->worker[r].flight[e->flight].wants = WANTS_BACKWARD;
        return work(p, r);
    case STEP_DONE:
        if (put_off(p, e)) return;
        push(p, r, e->flight);
        return work(p, r);
    case HEAD_LEAVES: return push_head(p, e);
    case HEAD_IN: return part_in(p, r, e->flight, true);
    case PUSH_IN: return part_in(p, r, e->flight, false);
    case APPLIED:
        if (p->policy->rounds) round_applied(p);
        else if (too_far_ahead(p, p->plan->group_of[r])) p->stuck[p->n_stuck++] = (struct step){e->who, e->flight};
        else applied(p, r, e->flight);
        return;
    case SENT:
        p->group[r].sending--;
        return answer_owed(p, r);
    case WEIGHTS_READY: return weights_leave(p, r, e->flight, SENT);
    case STATE_READY: return state_leaves(p, r, e->flight);
    case WORD_IN: return word_in(p, r);
    case LEASE_IN: return lease_in(p, r);
    case WEIGHTS_IN: return begin(p, r, e->flight);
    case STATE_OUT: return state_out(p, r, e->flight);
    case STATE_IN: return state_in(p, r, e->flight);
    case ECHI_PLAY_NOTHING: return;
    }
}

/* The units of a worker's tasks, as they divide steps of about so many samples. */
static void set_up_units(struct echi_play *p, int r) {
    const struct echi_times *t = &p->times[r];
    struct node *n = &p->node[r];
    const uint32_t samples = p->plan->n[r];
    n->share = (uint32_t)t->units == p->load->layers + p->load->head_layers ? t->share[echi_times_nearest(t, samples)] : NULL;
    n->a_share[0] = echi_times_trunk(t, samples) / ECHI_SHARE_ALL;
    n->a_share[1] = echi_times_head(t, samples) / ECHI_SHARE_ALL;
    if (!n->share) n->units_take[FORWARD] = n->units_take[BACKWARD] = p->units;
    for (int u = 0; n->share && u < p->units; u++) {
        n->units_take[FORWARD] += unit_takes(p, n, u, ECHI_FORWARD);
        n->units_take[BACKWARD] += unit_takes(p, n, u, ECHI_BACKWARD);
    }
    n->units_take[STEP] = n->units_take[FORWARD] + n->units_take[BACKWARD];
}

/* What a worker's tasks take on its node, its messages and the bytes through its sockets included. */
static void set_up(struct echi_play *p, int r) {
    const struct echi_plan *plan = p->plan;
    const struct echi_times *t = &p->times[r];
    struct node *n = &p->node[r];
    const double all = (double)p->load->trunk + p->load->head;
    n->exchange = all > 0 ? t->exchange * travels(p) / all : t->exchange;
    const double update = t->update > 0 ? t->update : APPLY * t->exchange;
    n->apply = all > 0 ? update * travels(p) / all : update;
    n->message = t->messages / MESSAGES;
    n->row = all > 0 ? COPY * t->exchange / all * (p->load->row + p->load->row_grad) : 0;
    n->update = update - (plan->separated ? n->apply : 0);
    if (plan->group_of[r] == ECHI_NONE) return;
    const bool elsewhere = plan->owner_of[plan->group_of[r]] != r;
    /* A lease; a push and weights; rows and their answer. */
    double around = plan->world > 1 ? n->message : 0;
    const struct coding *out = elsewhere ? &p->gradients[plan->group_of[r]] : &p->own, *back = elsewhere ? &p->states : &p->own;
    if (elsewhere) around += COPY * (out->part + back->part) * n->exchange + (all_messages(p) + 1) * n->message;
    around += (out->write + back->read) * n->apply;
    if (plan->separated && plan->head != r) around += 2 * n->message + plan->n[r] * n->row;
    n->forward = echi_times_forward(t, plan->n[r]);
    n->backward = echi_times_trunk(t, plan->n[r]) - n->forward;
    if (plan->separated) n->backward += around;
    else n->forward += n->backward + echi_times_head(t, plan->n[r]) + around;   /* all of a step is one task */
    set_up_units(p, r);
    p->group[plan->group_of[r]].workers++;
    p->group[plan->group_of[r]].at_least++;
}

static struct coding coding_of(uint64_t count, uint32_t ratio) {
    return (struct coding){(double)echi_coded_bytes(count, ratio) / (4.0 * (double)count), echi_write_cost(ratio), echi_read_cost(ratio)};
}

/* What a codec makes of what travels, a complete state in 32 counted in. */
static void set_up_codec(struct echi_play *p) {
    const uint64_t count = (uint64_t)travels(p) / 4;
    const bool dense = p->plan->codec == ECHI_CODEC_DENSE || count == 0;
    const struct coding all = dense ? (struct coding){1, 0, 0} : coding_of(count, ECHI_RATIO_ONE);
    p->own = p->states = all;
    for (int g = 0; g < p->plan->n_groups; g++) p->gradients[g] = dense ? all : coding_of(count, echi_push_ratio(p->plan, g, LATE));
    if (dense) return;
    const struct coding some = coding_of(count, p->plan->state_ratio);
    p->states = some;
    p->states.part += (all.part - some.part) / ECHI_WHOLE_EVERY;
}

static void set_up_groups(struct echi_play *p) {
    int n = 0;
    for (int g = 0; g < p->plan->n_groups; g++) {
        p->group[g].first = n;
        const int before = n;
        for (int r = 0; r < p->plan->world; r++)
            if (p->plan->group_of[r] == g) p->member[n++] = (uint16_t)r;
        p->groups += n > before;
    }
}

static bool enough(const struct echi_play *p, uint64_t wanted) {
    if (p->pushes < wanted) return false;
    if (p->pushes >= PATIENCE * wanted) return true;
    for (int r = 0; r < p->plan->world; r++)
        if (p->plan->group_of[r] != ECHI_NONE && p->worker[r].counted < COUNTED_LEAST) return false;
    return true;
}

void echi_predict(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                  uint32_t steps, struct echi_predict_work *work, struct echi_prediction *out) {
    _Static_assert(sizeof(struct echi_play) <= sizeof *work && _Alignof(struct echi_play) <= _Alignof(struct echi_predict_work),
                   "a play fits into what callers keep for it");
    struct echi_play *p = (struct echi_play *)(void *)work;
    if (echi_predict_by_part(plan) && echi_predict_rounds(plan, times, load, steps, work, out)) return;
    memset(p, 0, sizeof *p);
    p->plan = plan;
    p->times = times;
    p->load = load;
    p->policy = echi_policy_of((enum echi_sync)plan->sync);
    p->bound = plan->sync == ECHI_SYNC_SSP || plan->sync == ECHI_SYNC_GSSP;
    p->units = (int)(load->layers + (plan->separated ? 0 : load->head_layers));
    set_up_codec(p);
    set_up_groups(p);
    echi_predict_links(p);
    bool random = false;
    uint64_t workers = 0;
    for (int r = 0; r < plan->world; r++) {
        set_up(p, r);
        if (plan->group_of[r] == ECHI_NONE) continue;
        workers++;
        p->worker[r].leases = plan->flights + ECHI_LEASES_AHEAD;
        random = random || echi_predict_random(&times[r]);
    }
    if (steps == 0) {
        const uint64_t most = STEPS_IN_ALL / workers;
        steps = !random ? STEPS_EXACT : most > STEPS_RANDOM ? STEPS_RANDOM : most < STEPS_LEAST ? STEPS_LEAST : (uint32_t)most;
    }
    const uint64_t wanted = steps * workers;
    p->warm = wanted / 4;
    for (int r = 0; r < plan->world; r++)
        for (int s = 0; plan->group_of[r] != ECHI_NONE && s < plan->flights; s++) begin(p, r, s);
    while ((p->n_events > 0 || p->n_due > 0) && !enough(p, wanted)) {
        if (p->n_events == 0 || (p->n_due > 0 && p->due[0].at < p->heap[0].at)) {
            echi_predict_link(p);
            continue;
        }
        const struct event e = next(p);
        p->now = e.at;
        happens(p, &e);
    }
    /* Worker by worker, each from one of its pushes to another: what repeats exactly is then counted exactly. */
    out->rate = 0;
    for (int r = 0; r < plan->world; r++) {
        const struct worker *w = &p->worker[r];
        if (w->counted > 0) out->rate += plan->n[r] * (double)w->counted / (w->last - w->first);
        else if (w->applied > 0) out->rate += plan->n[r] * (double)w->applied / p->now;
    }
    out->oldest = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        const double behind = p->group[g].behind_count ? p->group[g].behind / (double)p->group[g].behind_count / plan->round : 0;
        if (behind > out->oldest) out->oldest = behind;
    }
    out->staleness = p->stale_count ? p->stale / (double)p->stale_count / plan->round : 0;
    out->behind = p->stale_count ? p->behind / (double)p->stale_count / plan->round : 0;
}
