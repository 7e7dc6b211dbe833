/* SPDX-License-Identifier: Apache-2.0
 * A whole cluster in one thread: all roles of all nodes, a queue of things that are due in virtual time, and a toy model.
 *
 * The model has 5 layers of 3 words; its arithmetic wraps, so that sums are exact in any order and results compare with ==.
 * A message arrives when it is due, in order only within (sender, receiver, kind), and a payload only into a posted place.
 * "Sent" comes at a time of its own, before or after the message. Tasks end in any order. Every message goes through its
 * byte form. Each part of a slot knows who reads or writes it, from the action that says so to the event that ends it: two
 * writers, or a writer beside a reader, is a race and fails, whether or not a byte went wrong in this run. */
#ifndef SCHED_SIM_H
#define SCHED_SIM_H
#include "echi_random.h"
#include "echi_roles.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum {
    LAYERS = 5,
    WORDS = 3,
    PARAMS = LAYERS * WORDS,
    CUT = 3,
    NODES = 7,
    INDICES = 2 * NODES,
    N_MAX = 40,
    ROOM = 2 * N_MAX,
    SAMPLES_MAX = 128,
    MESSAGES = 1024,
    TASKS = 64,
    POSTS = 8,
    ACTIONS = 512,
    LEASES = 4096,
    KILLS = 4,
    META = 1024
};

/* ---- the toy model ---- */

static uint32_t mix(uint32_t a, uint32_t b) {
    uint32_t x = a * 2654435761u + b * 2246822519u + 374761393u;
    x = (x ^ x >> 15) * 2246822519u;
    return (x ^ x >> 13) * 3266489917u;
}
static uint32_t fold(const uint32_t *w, int first, int end) {
    uint32_t sum = 0;
    for (int i = first * WORDS; i < end * WORDS; i++) sum = mix(sum, w[i]);
    return sum;
}
static uint32_t label_of(uint32_t sample) { return sample * 7 & 255; }
static uint32_t loss_of(uint32_t label) { return label % 5; }
static uint32_t toy_forward(const uint32_t *w, uint32_t sample) { return mix(sample, fold(w, 0, CUT)); }
/* One row through the head: adds to the gradients of its layers, gives the gradient of the activation. */
static uint32_t toy_head(const uint32_t *w, uint32_t *grads, uint32_t act, uint32_t label, uint32_t divisor) {
    const uint32_t signal = mix(mix(act, label), fold(w, CUT, LAYERS) + divisor);
    for (int i = CUT * WORDS; i < PARAMS; i++) grads[i] += mix(signal, (uint32_t)i);
    return mix(signal, 99);
}
static void toy_backward(const uint32_t *w, uint32_t *grads, uint32_t sample, uint32_t act_grad) {
    for (int i = 0; i < CUT * WORDS; i++) grads[i] += mix(mix(act_grad, sample), w[i] + (uint32_t)i);
}
static void toy_step(const uint32_t *w, uint32_t *grads, const struct echi_lease *l) {
    memset(grads, 0, PARAMS * sizeof *grads);
    for (uint32_t s = l->start; s < l->start + l->n; s++)
        toy_backward(w, grads, s, toy_head(w, grads, toy_forward(w, s), label_of(s), l->round_size));
}
static uint32_t toy_velocity(uint32_t *v, uint32_t w, uint32_t g, uint32_t samples) { return *v = 3 * *v + g + 5 * samples * w; }

/* ---- the cluster ---- */

struct place { uint32_t word[ROOM]; uint8_t readers[LAYERS]; bool writer[LAYERS]; };
struct message {
    uint16_t from, to;
    uint8_t kind, meta[META];
    size_t meta_len;
    int words;
    uint32_t word[ROOM];
    bool going;
    int64_t due;
};
struct sent { uint16_t node; uint8_t role; struct echi_slot slot; int first, end; int64_t due; };
struct work { uint16_t node; int layer; struct echi_task task; struct echi_result result; int64_t due; };
struct posted { struct echi_slot slot; uint8_t role; int first, end; };
struct node {
    struct echi_setup setup;
    bool has_worker, has_owner, has_head, held, ended;
    uint32_t speed;
    struct place place[ECHI_SLOT_KINDS][INDICES];
    struct posted post[NODES][ECHI_KINDS][POSTS];
    uint8_t posts[NODES][ECHI_KINDS], going[NODES][ECHI_KINDS];   /* places, and payloads on their way to them */
    bool dead, gone[NODES];                 /* killed; who is lost, as this node was told */
    struct echi_msg loss[NODES];            /* of which its roles are not told yet */
    int losses;
    int64_t tell_at;                        /* when the first of them is told */
    int64_t last_due[NODES][ECHI_KINDS];    /* of messages to each node */
    /* Left as they were by sim_clear: made for large worlds, and their init sets what a role reads. */
    struct echi_worker worker;
    struct echi_owner owner;
    struct echi_head head;
};
/* A checkpoint, as the driver would write it: weights, then the momentum of each group. */
struct kept { bool there; struct echi_standing at; int groups; uint32_t word[1 + ECHI_GROUPS_MAX][PARAMS]; };
struct sim {
    uint64_t seed;
    struct echi_random random;
    struct echi_plan plan;                  /* given, unless `wishes` is to be planned */
    struct echi_wishes wishes;
    struct echi_goal goal;
    bool plan_given;
    uint64_t kill_at[KILLS];                /* after so many events one that may be lost is killed; 0: none */
    int kill_rank[KILLS], killed;           /* -1: any */
    bool owner_killed;
    int64_t notice[NODES];                  /* when the coordinator sees that a killed node is gone */
    int64_t stop_at;                        /* 0: never */
    int64_t cut_at;                         /* the power goes; 0: never */
    struct kept from;                       /* what a resumed run begins with */
    struct kept writing, kept; int keeps;   /* the one that is being written, the last that is whole */
    int64_t now;
    uint64_t events;
    struct message *queue[MESSAGES], pool[MESSAGES]; int messages;
    struct sent sents[MESSAGES]; int n_sents;
    struct work work[TASKS]; int works;
    struct echi_action action[ACTIONS];
    bool done;
    /* what is watched */
    uint8_t leased[SAMPLES_MAX], computed[SAMPLES_MAX], applied[SAMPLES_MAX], headed[SAMPLES_MAX];
    bool lease_applied[LEASES];
    struct echi_lease applied_lease[LEASES]; uint64_t applied_version[LEASES];   /* in its owner's state from this version on */
    uint64_t repeats, handed_on;            /* rows answered again; states of lost groups handed on */
    uint32_t began_on[LEASES][PARAMS];      /* weights that a lease was computed on */
    uint64_t applied_samples;               /* in the weights of a single group */
    uint32_t moved[LEASES][PARAMS], stepped[LEASES];   /* `local`: by the own steps of a lease; samples of those */
    uint64_t in_own[NODES];                 /* `local`: samples in a worker's own weights */
    uint64_t slot_samples[NODES][2 * ECHI_STRANDS], seen[LEASES];   /* in a worker's weights; in those a lease began on */
    double staleness[LEASES];
    /* Samples in each copy of the head's weights, in those that a lease's rows met, in the newest of applied pushes; the pushes
     * by how many rounds these lie apart, in quarters of a round up to two. */
    uint64_t head_in[3], head_met[LEASES], head_newest, head_apart[8], pushes;
    /* The bound: pushes of others since a worker was answered, if its owner knows that it computes. */
    bool answered[NODES], tracked[NODES], more[NODES]; uint32_t entered[NODES], others[NODES][NODES];
    int looks;
    /* Sees each event with what the role asked for; with role NODE and no event: the node has taken the plan. May be NULL. */
    void (*watch)(struct sim *s, int node, enum echi_role role, const struct echi_event *event, const struct echi_actions *actions);
    struct node node[NODES];
    struct echi_coordinator coordinator;
};

static void sim_clear(struct sim *s) {
    memset(s, 0, offsetof(struct sim, node));
    for (int r = 0; r < NODES; r++) memset(&s->node[r], 0, offsetof(struct node, worker));
    s->coordinator.phase = ECHI_RUN_MEASURES;
}

static void die(struct sim *s, const char *what) {
    static const char *const run[] = {"measures", "planned", "feeds",     "trains",    "holds",     "looks",
                                      "quiets",   "gathers", "drains", "last keep", "last look", "ends",  "ended"};
    static const char *const worker[] = {"waits for weights", "idle", "forward", "waits for the head", "answered", "backward"};
    print_error("seed %llu, after %llu events: %s\n  sync %d world %d groups %d separated %d round %u; coordinator %s, %d leases "
                "out, %llu of %llu samples in\n",
                (unsigned long long)s->seed, (unsigned long long)s->events, what, s->plan.sync, s->plan.world, s->plan.n_groups,
                s->plan.separated, s->plan.round, run[s->coordinator.phase], s->coordinator.n_out,
                (unsigned long long)s->coordinator.applied, (unsigned long long)s->goal.samples);
    for (int r = 0; r < s->plan.world; r++) {
        const struct node *n = &s->node[r];
        print_error("  rank %d%s:", r, n->held ? " (held)" : "");
        for (int i = 0; n->has_worker && i < s->plan.strands; i++)
            print_error(" worker %s, %d leases, %d sends;", worker[n->worker.strand[i].phase], n->worker.n_leases, n->worker.strand[i].sending);
        if (n->has_owner)
            print_error(" owner of %d%s%s, %d queued, busy %d, %d sends, state %llu;", n->owner.group,
                        n->owner.draining ? " draining" : "", n->owner.drained ? " drained" : "", n->owner.queued, n->owner.busy,
                        n->owner.sends, (unsigned long long)n->owner.state_version);
        if (n->has_head) print_error(" head, %d queued, busy %d;", n->head.queued, n->head.busy);
        print_error("\n");
    }
    for (int i = 0; i < s->messages; i++)
        print_error("  %s from %d to %d\n", echi_kind_name(s->queue[i]->kind), s->queue[i]->from, s->queue[i]->to);
    fail();
}
#define CHECK(s, condition)                                                                                                      \
    do {                                                                                                                         \
        if (!(condition)) {                                                                                                      \
            char text_[200];                                                                                                     \
            snprintf(text_, sizeof text_, "line %d: %s", __LINE__, #condition);                                                  \
            die(s, text_);                                                                                                       \
        }                                                                                                                        \
    } while (0)

static bool in_rounds(const struct sim *s) { return echi_policy_of((enum echi_sync)s->plan.sync)->rounds; }
static int cut_of(const struct sim *s) { return s->plan.separated ? CUT : LAYERS; }
/* Mostly about `scale`, now and then far longer: slow links, a machine that pages. */
static int64_t after(struct sim *s, uint32_t scale) {
    int64_t delay = 1 + echi_random_below(&s->random, 2 * scale + 1);
    if (echi_random_below(&s->random, 40) == 0) delay *= 20;
    return s->now + delay;
}

/* ---- slots ---- */

static struct place *place(struct sim *s, int node, struct echi_slot slot) {
    CHECK(s, slot.kind > ECHI_SLOT_NONE && slot.kind < ECHI_SLOT_KINDS && slot.index < INDICES);
    return &s->node[node].place[slot.kind][slot.index];
}
static void race(struct sim *s, int node, struct echi_slot slot, int layer, const char *what) {
    char text[160];
    snprintf(text, sizeof text, "race on node %d, slot kind %d index %d, layer %d: %s", node, slot.kind, slot.index, layer, what);
    die(s, text);
}
static void read_begins(struct sim *s, int node, struct echi_slot slot, int first, int end) {
    struct place *p = place(s, node, slot);
    for (int l = first; l < end; l++) {
        if (p->writer[l]) race(s, node, slot, l, "read while it is written");
        p->readers[l]++;
    }
}
static void read_ends(struct sim *s, int node, struct echi_slot slot, int first, int end) {
    for (int l = first; l < end; l++) place(s, node, slot)->readers[l]--;
}
static void write_begins(struct sim *s, int node, struct echi_slot slot, int first, int end) {
    struct place *p = place(s, node, slot);
    for (int l = first; l < end; l++) {
        if (p->writer[l]) race(s, node, slot, l, "written by two");
        if (p->readers[l]) race(s, node, slot, l, "written while it is read");
        p->writer[l] = true;
    }
}
static void write_ends(struct sim *s, int node, struct echi_slot slot, int first, int end) {
    for (int l = first; l < end; l++) place(s, node, slot)->writer[l] = false;
}

/* What a task reads and writes, and in which layers; gradients of a worker are let go layer by layer, not here. */
static void touch(struct sim *s, int node, const struct echi_task *t, bool begins) {
    void (*reads)(struct sim *, int, struct echi_slot, int, int) = begins ? read_begins : read_ends;
    void (*writes)(struct sim *, int, struct echi_slot, int, int) = begins ? write_begins : write_ends;
    const int cut = cut_of(s);
    const struct echi_slot w0 = {ECHI_SLOT_OWNER_W0, 0}, momentum = {ECHI_SLOT_OWNER_MOMENTUM, 0}, head_momentum = {ECHI_SLOT_HEAD_MOMENTUM, 0};
    switch ((enum echi_task_kind)t->kind) {
    case ECHI_TASK_STEP:
        reads(s, node, t->weights, 0, cut);
        if (begins) writes(s, node, t->grads, 0, cut);
        break;
    case ECHI_TASK_FORWARD:
        reads(s, node, t->weights, 0, cut);
        writes(s, node, t->act, 0, 1);
        break;
    case ECHI_TASK_BACKWARD:
        reads(s, node, t->weights, 0, cut);
        reads(s, node, t->act, 0, 1);
        if (begins) writes(s, node, t->grads, 0, cut);
        break;
    case ECHI_TASK_HEAD:
        reads(s, node, t->weights, CUT, LAYERS);
        writes(s, node, t->grads, CUT, LAYERS);
        if (t->weights_out.kind) {
            writes(s, node, t->weights_out, CUT, LAYERS);
            writes(s, node, head_momentum, CUT, LAYERS);
        }
        if (!begins && t->weights_out.kind) break;   /* the rows were let go when their gradients were there */
        for (int i = 0; i < t->n_rows; i++) {
            reads(s, node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, t->rows[i]}, 0, 1);
            writes(s, node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, t->rows[i]}, 0, 1);
        }
        if (t->state.kind) writes(s, node, t->state, CUT, LAYERS);
        break;
    case ECHI_TASK_HEAD_APPLY:
        reads(s, node, t->weights, CUT, LAYERS);
        reads(s, node, t->grads, CUT, LAYERS);
        writes(s, node, t->weights_out, CUT, LAYERS);
        writes(s, node, head_momentum, CUT, LAYERS);
        break;
    case ECHI_TASK_ADD:
        reads(s, node, t->grads, 0, cut);
        writes(s, node, t->state, 0, cut);
        break;
    case ECHI_TASK_APPLY:
    case ECHI_TASK_REFRESH:
        if (t->kind == ECHI_TASK_APPLY) {
            reads(s, node, t->weights, 0, cut);
            reads(s, node, t->grads, 0, cut);
            writes(s, node, momentum, 0, cut);
        }
        if (s->plan.n_groups > 1) {
            reads(s, node, w0, 0, cut);
            reads(s, node, t->state, 0, cut);
            for (int g = 0; g < s->plan.n_groups; g++)
                if (t->peer[g] != ECHI_NONE) reads(s, node, (struct echi_slot){ECHI_SLOT_OWNER_PEER, t->peer[g]}, 0, cut);
        }
        writes(s, node, t->weights_out, 0, cut);
        if (t->state_out.kind) writes(s, node, t->state_out, 0, cut);
        break;
    case ECHI_TASK_EVAL: reads(s, node, t->weights, 0, LAYERS); break;
    case ECHI_TASK_KEEP:
        for (int i = 0; i <= s->plan.n_groups; i++) reads(s, node, (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)i}, 0, LAYERS);
        break;
    case ECHI_TASK_LOCAL_APPLY:
        reads(s, node, t->grads, 0, cut);
        writes(s, node, t->weights, 0, cut);
        writes(s, node, t->state, 0, cut);
        break;
    case ECHI_TASK_LOCAL_DELTA:
        reads(s, node, t->weights, 0, cut);
        writes(s, node, t->state, 0, cut);
        writes(s, node, t->grads, 0, cut);
        break;
    case ECHI_TASK_LOCAL_JOIN:
        reads(s, node, t->weights, 0, cut);
        writes(s, node, t->weights_out, 0, cut);
        writes(s, node, t->state_out, 0, cut);
        break;
    case ECHI_TASK_ENCODE:
    case ECHI_TASK_DECODE:   /* all is dense here */
    case ECHI_TASKS: break;
    }
}

/* ---- messages ---- */

/* Layers (or [0, 1) for rows) and words of a slot that a message carries. */
static void extent(const struct sim *s, int kind, const struct echi_msg *m, bool head, int *first, int *end, int *at,
                   int *words) {
    *first = 0;
    *end = cut_of(s);
    if (kind == ECHI_KIND_PUSH) { *first = m->layer; *end = m->layer + 1; }
    if (kind == ECHI_KIND_PARAMS && m->flag == ECHI_PARAMS_FINAL) *end = LAYERS;
    else if (kind == ECHI_KIND_PARAMS && head) { *first = CUT; *end = LAYERS; }
    *at = *first * WORDS;
    *words = (*end - *first) * WORDS;
    if (kind == ECHI_KIND_ACT || kind == ECHI_KIND_ACT_GRAD) {
        *end = 1;
        *words = (int)m->lease.n * (kind == ECHI_KIND_ACT ? 2 : 1);
    }
}

static int64_t never(int to, int kind) { return INT64_MAX - to * ECHI_KINDS - kind; }

static struct message *queue_message(struct sim *s, int from, int to, int kind) {
    CHECK(s, s->messages < MESSAGES);
    struct message *m = s->queue[s->messages++];
    /* HOLD and RELEASE are equally urgent, PLAN and LOST as well, and a link gives the older of equals first. */
    const int behind = kind == ECHI_KIND_RELEASE ? ECHI_KIND_HOLD : kind == ECHI_KIND_LOST ? ECHI_KIND_PLAN : kind;
    int64_t *last = &s->node[from].last_due[to][behind];
    int64_t due = after(s, echi_kind_has_payload(kind) ? 30 : 10);
    if (due <= *last) due = *last + 1;
    *last = due;
    m->from = (uint16_t)from;
    m->to = (uint16_t)to;
    m->kind = (uint8_t)kind;
    m->words = 0;
    m->going = false;
    m->due = due;
    return m;
}

static void send_body(struct sim *s, int from, int to, int kind, enum echi_role role, const uint8_t *body, size_t len) {
    if (s->node[to].dead) return;
    struct message *m = queue_message(s, from, to, kind);
    CHECK(s, 2 + len <= sizeof m->meta);
    m->meta[0] = (uint8_t)role;
    m->meta[1] = ECHI_ROLE_NODE;
    if (len) memcpy(m->meta + 2, body, len);
    m->meta_len = 2 + len;
}

static void note_applied(struct sim *s, const struct echi_lease *l, uint64_t version) {
    CHECK(s, !s->lease_applied[l->id]);
    s->lease_applied[l->id] = true;
    s->applied_lease[l->id] = *l;
    s->applied_version[l->id] = version;
}

static void watch_send(struct sim *s, const struct echi_action *a) {
    const struct echi_lease *l = &a->msg.lease;
    if (a->kind == ECHI_KIND_LEASE) {
        CHECK(s, l->n >= 1 && l->start + l->n <= s->goal.train_samples && l->id < LEASES);
        for (uint32_t i = l->start; i < l->start + l->n; i++) s->leased[i]++;
    } else if (a->kind == ECHI_KIND_WEIGHTS) {
        s->answered[a->to] = true;
        s->tracked[a->to] = s->more[a->to] || s->entered[a->to];
        memset(s->others[a->to], 0, sizeof s->others[a->to]);
        CHECK(s, s->plan.n_groups > 1 || a->msg.samples == s->applied_samples);
    } else if (a->kind == ECHI_KIND_REVOKED && l->id && a->msg.flag == ECHI_REVOKED_DROPPED) {
        CHECK(s, (double)(s->applied_samples - s->seen[l->id]) > s->plan.drop_older * s->plan.round && s->plan.drop_older > 0);
    } else if (a->kind == ECHI_KIND_APPLIED) {
        CHECK(s, l->id < LEASES);
        if (in_rounds(s)) note_applied(s, l, 0);
        if (s->plan.n_groups == 1) CHECK(s, a->msg.staleness == s->staleness[l->id]);
    }
}

static void send_action(struct sim *s, int node, const struct echi_action *a) {
    CHECK(s, a->to < s->plan.world && a->kind == a->msg.kind);
    watch_send(s, a);
    int first, end, at, words;
    extent(s, a->kind, &a->msg, a->msg.to_role == ECHI_ROLE_HEAD || a->msg.from_role == ECHI_ROLE_HEAD, &first, &end, &at, &words);
    if (s->node[a->to].dead) {   /* nobody reads it: a payload comes back */
        if (!echi_kind_has_payload(a->kind)) return;
        read_begins(s, node, a->slot, first, end);
        CHECK(s, s->n_sents < MESSAGES);
        s->sents[s->n_sents++] = (struct sent){(uint16_t)node, a->msg.from_role, a->slot, first, end, after(s, 30)};
        return;
    }
    struct message *m = queue_message(s, node, a->to, a->kind);
    m->meta_len = echi_msg_encode(&a->msg, m->meta, sizeof m->meta);
    CHECK(s, m->meta_len > 0);
    if (!echi_kind_has_payload(a->kind)) return;
    m->words = words;
    read_begins(s, node, a->slot, first, end);
    memcpy(m->word, place(s, node, a->slot)->word + at, (size_t)m->words * sizeof m->word[0]);
    CHECK(s, s->n_sents < MESSAGES);
    /* Until there is a place for it, it is due never: a number that says whose it is. */
    s->sents[s->n_sents++] = (struct sent){(uint16_t)node, a->msg.from_role, a->slot, first, end, never(a->to, a->kind)};
}

static void post_one(struct sim *s, int node, const struct echi_action *a, enum echi_role role, int first, int end) {
    if (s->node[node].gone[a->to]) return;
    write_begins(s, node, a->slot, first, end);
    uint8_t *count = &s->node[node].posts[a->to][a->kind];
    CHECK(s, *count < POSTS);
    s->node[node].post[a->to][a->kind][(*count)++] = (struct posted){a->slot, (uint8_t)role, first, end};
}
static void post_action(struct sim *s, int node, const struct echi_action *a) {
    const int cut = cut_of(s);
    switch (a->slot.kind) {
    case ECHI_SLOT_OWNER_GRADS:
        for (int l = cut - 1; l >= 0; l--) post_one(s, node, a, ECHI_ROLE_OWNER, l, l + 1);
        break;
    case ECHI_SLOT_HEAD_ROWS: post_one(s, node, a, ECHI_ROLE_HEAD, 0, 1); break;
    case ECHI_SLOT_HEAD_MOMENTUM:
    case ECHI_SLOT_HEAD_WEIGHTS: post_one(s, node, a, ECHI_ROLE_HEAD, CUT, LAYERS); break;
    case ECHI_SLOT_WORKER_ACT_GRAD: post_one(s, node, a, ECHI_ROLE_WORKER, 0, 1); break;
    case ECHI_SLOT_WORKER_WEIGHTS: post_one(s, node, a, ECHI_ROLE_WORKER, 0, cut); break;
    case ECHI_SLOT_COORD_PARAMS: post_one(s, node, a, ECHI_ROLE_COORDINATOR, 0, LAYERS); break;
    case ECHI_SLOT_NODE_FINAL: post_one(s, node, a, ECHI_ROLE_NODE, 0, LAYERS); break;
    default: post_one(s, node, a, ECHI_ROLE_OWNER, 0, cut); break;
    }
}

/* ---- checkpoints ---- */

static int group_of_owner(const struct sim *s, int rank) {
    for (int g = 0; g < s->plan.n_groups; g++)
        if (s->plan.owner_of[g] == rank) return g;
    return -1;
}

/* Where the driver puts a part that has come to the coordinator. */
static struct echi_slot place_of(struct sim *s, int from, const struct echi_msg *m) {
    if (m->flag == ECHI_PARAMS_PART) return (struct echi_slot){ECHI_SLOT_COORD_PARAMS, 0};
    if (m->flag == ECHI_PARAMS_KEPT) return (struct echi_slot){ECHI_SLOT_COORD_KEPT, 0};
    CHECK(s, m->flag == ECHI_PARAMS_MOMENTUM);
    const int g = m->from_role == ECHI_ROLE_HEAD ? 0 : group_of_owner(s, from);
    return (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)(1 + g)};
}

/* A checkpoint is of one moment: nothing is out, and what was gathered is what owners and head have now. */
static void begin_keep(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    const struct node *n = s->node, *h = s->plan.separated ? &n[s->plan.head] : NULL;
    const int words = cut_of(s) * WORDS;
    struct kept *k = &s->writing;
    CHECK(s, c->writing && (s->owner_killed || c->standing.samples == s->from.at.samples + s->applied_samples));
    CHECK(s, c->standing.samples == (uint64_t)c->standing.epoch * s->goal.train_samples + c->standing.start);
    *k = (struct kept){.there = true, .at = c->standing, .groups = s->plan.n_groups};
    for (int g = 0; g < k->groups; g++)   /* the driver's part: the momentum of a lost owner is lost with it */
        if (!echi_plan_group_lives(&c->plan, g)) memset(s->node[0].place[ECHI_SLOT_COORD_KEPT][1 + g].word, 0, (size_t)words * 4);
    for (int i = 0; i <= k->groups; i++) memcpy(k->word[i], n->place[ECHI_SLOT_COORD_KEPT][i].word, sizeof k->word[i]);
    for (int g = 0; g < k->groups; g++) {
        const struct node *o = &n[s->plan.owner_of[g]];
        if (!echi_plan_group_lives(&c->plan, g)) continue;
        CHECK(s, !o->owner.busy && o->owner.queued == 0);
        if (g == echi_plan_first_group(&c->plan)) CHECK(s, memcmp(k->word[0], o->place[ECHI_SLOT_OWNER_WEIGHTS][o->owner.current].word, (size_t)words * 4) == 0);
        CHECK(s, memcmp(k->word[1 + g], o->place[ECHI_SLOT_OWNER_MOMENTUM][0].word, (size_t)words * 4) == 0);
    }
    if (!h) return;
    CHECK(s, !h->head.busy && !h->head.apply_due);
    CHECK(s, memcmp(k->word[0] + words, h->place[ECHI_SLOT_HEAD_WEIGHTS][h->head.current].word + words, (size_t)(PARAMS - words) * 4) == 0);
    CHECK(s, memcmp(k->word[1] + words, h->place[ECHI_SLOT_HEAD_MOMENTUM][0].word + words, (size_t)(PARAMS - words) * 4) == 0);
}

static void end_keep(struct sim *s, struct echi_result *result) {
    result->kept = echi_random_below(&s->random, 8) != 0;   /* else the disk was full */
    if (!result->kept) return;
    s->kept = s->writing;
    s->keeps++;
}

/* The momentum of a checkpoint for the groups of the plan: the sum over all groups stays what it was. */
static void share_momentum(struct sim *s) {
    for (int from = 0; from < s->from.groups; from++)
        for (int i = 0; i < PARAMS; i++) {
            const int groups = i >= cut_of(s) * WORDS ? 1 : s->plan.n_groups;
            s->node[0].place[ECHI_SLOT_COORD_KEPT][1 + (from < groups ? from : 0)].word[i] += s->from.word[1 + from][i];
        }
}

/* ---- roles ---- */

static void role_event(struct sim *s, int node, enum echi_role role, struct echi_event *e) {
    struct echi_actions list = {s->action, 0, ACTIONS, false};
    struct node *n = &s->node[node];
    e->now = s->now;
    if (role == ECHI_ROLE_COORDINATOR && node == 0) echi_coordinator_step(&s->coordinator, e, &list);
    else if (role == ECHI_ROLE_WORKER && n->has_worker) echi_worker_step(&n->worker, e, &list);
    else if (role == ECHI_ROLE_OWNER && n->has_owner) echi_owner_step(&n->owner, e, &list);
    else if (role == ECHI_ROLE_HEAD && n->has_head) echi_head_step(&n->head, e, &list);
    else die(s, "an event for a role that is not here");
    CHECK(s, !list.overflow);
    if (s->watch) s->watch(s, node, role, e, &list);
    for (int i = 0; i < list.count; i++) {
        const struct echi_action *a = &list.list[i];
        switch ((enum echi_action_type)a->type) {
        case ECHI_ACTION_SEND: send_action(s, node, a); break;
        case ECHI_ACTION_POST: post_action(s, node, a); break;
        case ECHI_ACTION_COMPUTE:
            CHECK(s, s->works < TASKS);
            touch(s, node, &a->task, true);
            if (a->task.kind == ECHI_TASK_KEEP) begin_keep(s);
            s->work[s->works++] =
                (struct work){.node = (uint16_t)node, .layer = cut_of(s), .task = a->task, .due = after(s, n->speed)};
            break;
        case ECHI_ACTION_PLAN: {
            uint8_t body[META];
            s->plan = n->setup.plan;
            if (s->goal.resumed) share_momentum(s);
            size_t len = echi_plan_encode(&s->plan, body, sizeof body);
            CHECK(s, len > 0);
            for (int r = 0; r < s->plan.world; r++) send_body(s, 0, r, ECHI_KIND_PLAN, ECHI_ROLE_NODE, body, len);
            break;
        }
        case ECHI_ACTION_FAULT: die(s, a->msg.text); break;
        case ECHI_ACTION_DONE: s->done = true; break;
        }
    }
}

static void send_ready(struct sim *s, int node, uint32_t members) {
    struct echi_action a = {.type = ECHI_ACTION_SEND, .to = 0, .kind = ECHI_KIND_READY};
    a.msg = (struct echi_msg){.kind = ECHI_KIND_READY, .to_role = ECHI_ROLE_COORDINATOR, .members = members};
    send_action(s, node, &a);
}

/* Takes a message out of the queue that will not arrive. */
static void drop(struct sim *s, int at) {
    struct message *m = s->queue[at];
    if (m->going) s->node[m->to].going[m->from][m->kind]--;
    memmove(&s->queue[at], &s->queue[at + 1], (size_t)(--s->messages - at) * sizeof s->queue[0]);
    s->queue[s->messages] = m;
}

static void stand(struct sim *s, int node, const struct message *m) {
    struct node *n = &s->node[node];
    CHECK(s, echi_plan_decode(m->meta + 2, m->meta_len - 2, &n->setup.plan));
    n->setup.rank = node;
    n->setup.n_layers = LAYERS;
    n->setup.cut = cut_of(s);
    n->setup.cut_width = 1;
    if (s->watch) s->watch(s, node, ECHI_ROLE_NODE, NULL, NULL);
    struct echi_event start = {.type = ECHI_EVENT_START};
    for (int g = 0; g < s->plan.n_groups; g++) {
        if (s->plan.owner_of[g] != node) continue;
        n->has_owner = true;
        echi_owner_init(&n->owner, &n->setup, g);
        role_event(s, node, ECHI_ROLE_OWNER, &start);
    }
    if (s->plan.separated && s->plan.head == node) {
        n->has_head = true;
        echi_head_init(&n->head, &n->setup);
        role_event(s, node, ECHI_ROLE_HEAD, &start);
    }
    if (s->plan.group_of[node] != ECHI_NONE) {
        n->has_worker = true;
        echi_worker_init(&n->worker, &n->setup);
        role_event(s, node, ECHI_ROLE_WORKER, &start);
    }
    if (s->goal.give_final && node != 0) {
        const struct echi_action a = {.to = 0, .kind = ECHI_KIND_PARAMS, .slot = {ECHI_SLOT_NODE_FINAL, 0}};
        post_action(s, node, &a);
    }
    send_ready(s, node, 0);
}

/* The roles are told of the first loss. */
static void tell_loss(struct sim *s, int node) {
    struct node *n = &s->node[node];
    const struct echi_msg m = n->loss[0];
    memmove(&n->loss[0], &n->loss[1], (size_t)(--n->losses) * sizeof n->loss[0]);
    n->tell_at = after(s, 100);
    echi_plan_lose(&n->setup.plan, m.peer);
    struct echi_event e = {.type = ECHI_EVENT_LOST, .from = m.peer, .msg = &m};
    if (n->has_owner) role_event(s, node, ECHI_ROLE_OWNER, &e);
    if (n->has_head) role_event(s, node, ECHI_ROLE_HEAD, &e);
    if (n->has_worker) role_event(s, node, ECHI_ROLE_WORKER, &e);
    send_ready(s, node, m.members);
}

/* The word that a node is lost: what came from it and waits is dropped, places for it are free. The roles are told at once, or
 * later: the driver may have to make slots first. */
static void lose(struct sim *s, int node, const struct echi_msg *m) {
    struct node *n = &s->node[node];
    CHECK(s, s->node[m->peer].dead && !n->gone[m->peer]);
    n->gone[m->peer] = true;
    for (int i = s->messages - 1; i >= 0; i--)
        if (s->queue[i]->from == m->peer && s->queue[i]->to == node) drop(s, i);
    for (int k = 0; k < ECHI_KINDS; k++) {
        for (int i = 0; i < n->posts[m->peer][k]; i++) {
            const struct posted *p = &n->post[m->peer][k][i];
            write_ends(s, node, p->slot, p->first, p->end);
        }
        n->posts[m->peer][k] = 0;
    }
    n->loss[n->losses++] = *m;
    if (n->losses > 1) return;
    if (echi_random_below(&s->random, 2)) tell_loss(s, node);
    else n->tell_at = after(s, echi_random_below(&s->random, 2) ? 100 : 3000);
}

static void node_message(struct sim *s, int node, const struct message *m, const struct echi_msg *msg) {
    struct node *n = &s->node[node];
    switch (m->kind) {
    case ECHI_KIND_PLAN: stand(s, node, m); break;
    case ECHI_KIND_HOLD:
        CHECK(s, !n->held);
        n->held = true;
        send_body(s, node, 0, ECHI_KIND_HELD, ECHI_ROLE_COORDINATOR, NULL, 0);
        break;
    case ECHI_KIND_RELEASE: n->held = false; break;
    case ECHI_KIND_LOST: lose(s, node, msg); break;
    case ECHI_KIND_PARAMS: break;
    case ECHI_KIND_END:
        n->ended = true;
        send_body(s, node, 0, ECHI_KIND_STATS, ECHI_ROLE_COORDINATOR, NULL, 0);
        break;
    default: die(s, "a message that is not for nodes");
    }
}

static void note_apart(struct sim *s, uint32_t id) {
    s->pushes++;
    if (s->head_met[id] > s->head_newest) s->head_newest = s->head_met[id];
    const uint64_t quarters = (4 * (s->head_newest - s->head_met[id]) + s->plan.round - 1) / s->plan.round;
    if (quarters < 8) s->head_apart[quarters]++;
}

static void deliver(struct sim *s, const struct message *m) {
    struct node *n = &s->node[m->to];
    struct echi_msg msg;
    struct posted post = {0};
    CHECK(s, echi_msg_decode(m->kind, m->meta, m->meta_len, &msg));
    if (m->words) {
        int first, end, at, words;
        uint8_t *count = &n->posts[m->from][m->kind];
        post = n->post[m->from][m->kind][0];
        memmove(&n->post[m->from][m->kind][0], &n->post[m->from][m->kind][1], --*count * sizeof post);
        n->going[m->from][m->kind]--;
        extent(s, m->kind, &msg, msg.to_role == ECHI_ROLE_HEAD || msg.from_role == ECHI_ROLE_HEAD, &first, &end, &at, &words);
        CHECK(s, words == m->words && post.role == msg.to_role && first >= post.first && end <= post.end);
        memcpy(place(s, m->to, post.slot)->word + at, m->word, (size_t)words * sizeof m->word[0]);
        write_ends(s, m->to, post.slot, post.first, post.end);
        if (post.slot.kind == ECHI_SLOT_COORD_PARAMS) {   /* the driver puts a part where it belongs */
            const struct echi_slot whole = place_of(s, m->from, &msg);
            write_begins(s, m->to, whole, first, end);
            memcpy(place(s, m->to, whole)->word + at, m->word, (size_t)words * sizeof m->word[0]);
            write_ends(s, m->to, whole, first, end);
        }
    }
    s->handed_on += m->kind == ECHI_KIND_FROZEN;
    if (m->kind == ECHI_KIND_WEIGHTS) s->slot_samples[m->to][post.slot.index] = msg.samples;
    if (m->kind == ECHI_KIND_APPLIED) note_apart(s, msg.lease.id);
    if (m->kind == ECHI_KIND_PUSH) s->more[m->from] = msg.flag;
    if (m->kind == ECHI_KIND_ENTER && !s->lease_applied[msg.lease.id]) s->entered[m->from] = msg.lease.id;
    /* One that its push has overtaken says nothing any more: the worker may have run out since. */
    if (m->kind == ECHI_KIND_ENTER && s->answered[m->from] && !s->tracked[m->from] && !s->lease_applied[msg.lease.id]) {
        s->tracked[m->from] = true;
        memset(s->others[m->from], 0, sizeof s->others[m->from]);
    }
    if (msg.to_role == ECHI_ROLE_NODE) return node_message(s, m->to, m, &msg);
    struct echi_event e = {.type = ECHI_EVENT_MESSAGE,
                           .from = m->from,
                           .msg = &msg,
                           .bytes = m->meta + 2,
                           .len = m->meta_len - 2,
                           .slot = post.slot};
    role_event(s, m->to, (enum echi_role)msg.to_role, &e);
}

/* ---- tasks ---- */

static void note_begin(struct sim *s, const struct work *w, const uint32_t *weights) {
    const struct echi_lease *l = &w->task.lease;
    CHECK(s, w->task.divisor == echi_plan_divisor(&s->plan, l));
    memcpy(s->began_on[l->id], weights, PARAMS * sizeof weights[0]);
    if (s->plan.sync != ECHI_SYNC_LOCAL) s->seen[l->id] = s->slot_samples[w->node][w->task.weights.index];
    else if (s->stepped[l->id] == 0) s->seen[l->id] = s->in_own[w->node];
    for (uint32_t i = l->start; i < l->start + l->n; i++) s->computed[i]++;
}

static void run_head(struct sim *s, struct work *w) {
    const struct echi_task *t = &w->task;
    const uint32_t *weights = place(s, w->node, t->weights)->word;
    uint32_t *grads = place(s, w->node, t->grads)->word, samples = 0;
    memset(grads, 0, PARAMS * sizeof *grads);
    for (int i = 0; i < t->n_rows; i++) {
        const uint32_t *rows = place(s, w->node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, t->rows[i]})->word;
        uint32_t *out = place(s, w->node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, t->rows[i]})->word;
        const struct echi_lease *l = &s->node[w->node].head.lease[t->rows[i]];
        CHECK(s, t->row_count[i] == l->n && l->round_size == t->divisor);
        s->head_met[l->id] = s->head_in[t->weights.index];
        for (uint32_t k = 0; k < t->row_count[i]; k++) {
            out[k] = toy_head(weights, grads, rows[2 * k], rows[2 * k + 1], t->divisor);
            w->result.loss[i] += loss_of(rows[2 * k + 1]);
            if (t->weights_out.kind || t->state.kind) s->headed[l->start + k]++;
            else s->repeats++;
        }
        samples += t->row_count[i];
    }
    CHECK(s, samples == t->samples && (samples <= 256 || t->n_rows == 1));
    if (!t->state.kind) return;   /* trained in its second half, or not at all */
    uint32_t *sum = place(s, w->node, t->state)->word;
    for (int i = CUT * WORDS; i < PARAMS; i++) sum[i] = (t->first ? 0 : sum[i]) + grads[i];
}

static void count_push(struct sim *s, const struct echi_lease *l) {
    if (s->plan.sync != ECHI_SYNC_SSP && s->plan.sync != ECHI_SYNC_GSSP) return;
    if (s->owner_killed) return;
    for (int r = 0; r < s->plan.world; r++) {
        if (r == l->worker || !s->tracked[r] || s->node[r].dead || s->plan.group_of[r] != s->plan.group_of[l->worker]) continue;
        /* Answered at a count s, with all others at least at s - S, none of whom is answered beyond s + S. With several
         * strands a worker is answered again before its push: what is counted here is then of no one step. */
        CHECK(s, ++s->others[r][l->worker] <= 2 * s->plan.staleness + 1 || s->plan.strands > 1);
    }
    s->answered[l->worker] = s->tracked[l->worker] = false;
    if (s->entered[l->worker] <= l->id) s->entered[l->worker] = 0;
}

/* `local`: a round's sum is what the own steps of its leases have moved, each step once. */
static void check_round(struct sim *s, const struct echi_owner *o, const uint32_t *sum) {
    uint32_t expected[PARAMS] = {0};
    for (int k = 0; k < o->round_count; k++) {
        const uint32_t id = o->round_push[k].lease.id;
        CHECK(s, s->stepped[id] == o->round_push[k].lease.n);
        for (int i = 0; i < PARAMS; i++) expected[i] += s->moved[id][i];
        s->staleness[id] = s->seen[id] < s->applied_samples ? (double)(s->applied_samples - s->seen[id]) / s->plan.round : 0;
    }
    CHECK(s, memcmp(sum, expected, sizeof expected) == 0);
}

/* `local`: what a worker does with weights of its own. */
static void run_local(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    uint32_t *own = place(s, w->node, t->kind == ECHI_TASK_LOCAL_JOIN ? t->weights_out : t->weights)->word;
    uint32_t *origin = t->kind == ECHI_TASK_LOCAL_APPLY ? NULL : place(s, w->node, t->kind == ECHI_TASK_LOCAL_JOIN ? t->state_out : t->state)->word;
    for (int i = 0; i < PARAMS; i++) {
        if (t->kind == ECHI_TASK_LOCAL_APPLY) {
            const uint32_t step = toy_velocity(&place(s, w->node, t->state)->word[i], own[i], place(s, w->node, t->grads)->word[i], t->samples);
            own[i] -= step;
            s->moved[t->lease.id][i] += step;
        } else if (t->kind == ECHI_TASK_LOCAL_DELTA) {
            place(s, w->node, t->grads)->word[i] = origin[i] - own[i];
            CHECK(s, origin[i] - own[i] == s->moved[t->lease.id][i]);
            origin[i] = own[i];
        } else {
            const uint32_t from = place(s, w->node, t->weights)->word[i];
            own[i] = from + (own[i] - origin[i]);
            origin[i] = from;
        }
    }
    if (t->kind == ECHI_TASK_LOCAL_APPLY) {
        CHECK(s, t->samples == t->lease.n && t->divisor == s->plan.round && t->weights.index == t->weights_out.index);
        s->stepped[t->lease.id] += t->lease.n;
    } else if (t->kind == ECHI_TASK_LOCAL_DELTA) {
        CHECK(s, t->samples == t->lease.n && t->divisor == t->lease.round_size && s->stepped[t->lease.id] == t->lease.n);
        s->in_own[w->node] += t->lease.n;
    } else {
        s->in_own[w->node] = s->slot_samples[w->node][t->weights.index];
    }
}

static void run_apply(struct sim *s, struct work *w, bool of_head) {
    const struct echi_task *t = &w->task;
    const int first = of_head ? CUT * WORDS : 0, end = of_head ? PARAMS : cut_of(s) * WORDS;
    const uint32_t *weights = place(s, w->node, t->weights)->word, *grads = place(s, w->node, t->grads)->word;
    uint32_t *to = place(s, w->node, t->weights_out)->word;
    uint32_t *v = s->node[w->node].place[of_head ? ECHI_SLOT_HEAD_MOMENTUM : ECHI_SLOT_OWNER_MOMENTUM][0].word;
    if (of_head) s->head_in[t->weights_out.index] = s->head_in[t->weights.index] + t->samples;
    if (!of_head) {
        if (in_rounds(s)) {
            CHECK(s, t->samples == t->divisor && t->divisor == t->lease.round_size);
            if (s->plan.sync == ECHI_SYNC_LOCAL) check_round(s, &s->node[w->node].owner, grads);
        } else {
            CHECK(s, t->samples == t->lease.n && t->divisor == s->plan.round && t->lease.round_size == s->plan.round);
            count_push(s, &t->lease);
            note_applied(s, &t->lease, s->node[w->node].owner.state_version + 1);
            s->staleness[t->lease.id] = (double)(s->applied_samples - s->seen[t->lease.id]) / s->plan.round;
            CHECK(s, s->plan.drop_older == 0 || s->staleness[t->lease.id] <= s->plan.drop_older);
            if (!s->plan.separated) {
                uint32_t expected[PARAMS];
                struct echi_lease l = t->lease;
                if (s->plan.divisor[l.worker]) l.round_size = s->plan.divisor[l.worker];
                toy_step(s->began_on[l.id], expected, &l);
                CHECK(s, memcmp(expected, grads, sizeof expected) == 0);
            }
        }
        s->applied_samples += t->samples;
    }
    for (int i = first; i < end; i++) {
        if (s->plan.sync == ECHI_SYNC_LOCAL) {   /* the outer step; without momentum that of outer_lr 1 */
            v[i] = s->plan.outer_momentum > 0 ? 3 * v[i] + grads[i] : 0;
            to[i] = weights[i] - (grads[i] + 3 * v[i]);
            continue;
        }
        const uint32_t step = toy_velocity(&v[i], weights[i], grads[i], t->samples);
        if (t->state_out.kind) place(s, w->node, t->state_out)->word[i] = place(s, w->node, t->state)->word[i] - step;
        else to[i] = weights[i] - step;
    }
}

/* w0 and all states, in the order of the groups. */
static void sum_states(struct sim *s, int node, struct echi_slot own, const uint8_t *peer, uint32_t *out) {
    memcpy(out, s->node[node].place[ECHI_SLOT_OWNER_W0][0].word, PARAMS * sizeof *out);
    for (int g = 0; g < s->plan.n_groups; g++) {
        if (g != s->node[node].owner.group && peer[g] == ECHI_NONE) continue;
        const uint32_t *state =
            g == s->node[node].owner.group ? place(s, node, own)->word : s->node[node].place[ECHI_SLOT_OWNER_PEER][peer[g]].word;
        for (int i = 0; i < cut_of(s) * WORDS; i++) out[i] += state[i];
    }
}

static void run_look(struct sim *s, struct work *w) {
    /* The copy is what group 0's owner and the head have now: nothing has moved since they were held. */
    const struct echi_plan *now = &s->coordinator.plan;
    const struct node *o = &s->node[now->owner_of[echi_plan_first_group(now)]], *h = s->plan.separated ? &s->node[s->plan.head] : NULL;
    const uint32_t *copy = place(s, 0, w->task.weights)->word;
    for (int r = 0; r < s->plan.world; r++)
        CHECK(s, s->node[r].held || s->node[r].dead || s->coordinator.phase == ECHI_RUN_LAST_LOOK);
    CHECK(s, s->owner_killed ||   /* its copy may be that of a node that is lost by now */
          memcmp(copy, o->place[ECHI_SLOT_OWNER_WEIGHTS][o->owner.current].word, (size_t)cut_of(s) * WORDS * sizeof *copy) == 0);
    if (h)
        CHECK(s, memcmp(copy + CUT * WORDS, h->place[ECHI_SLOT_HEAD_WEIGHTS][h->head.current].word + CUT * WORDS,
                        (PARAMS - CUT * WORDS) * sizeof *copy) == 0);
    w->result.accuracy = echi_random_unit(&s->random);
    s->looks++;
}

static void run_task(struct sim *s, struct work *w) {
    const struct echi_task *t = &w->task;
    switch ((enum echi_task_kind)t->kind) {
    case ECHI_TASK_STEP:
        note_begin(s, w, place(s, w->node, t->weights)->word);
        toy_step(place(s, w->node, t->weights)->word, place(s, w->node, t->grads)->word, &(struct echi_lease){.start = t->lease.start, .n = t->lease.n, .round_size = t->divisor});
        for (uint32_t i = 0; i < t->lease.n; i++) w->result.loss[0] += loss_of(label_of(t->lease.start + i));
        break;
    case ECHI_TASK_FORWARD: {
        uint32_t *rows = place(s, w->node, t->act)->word;
        note_begin(s, w, place(s, w->node, t->weights)->word);
        for (uint32_t i = 0; i < t->lease.n; i++) {
            rows[2 * i] = toy_forward(place(s, w->node, t->weights)->word, t->lease.start + i);
            rows[2 * i + 1] = label_of(t->lease.start + i);
        }
        break;
    }
    case ECHI_TASK_BACKWARD: {
        uint32_t *grads = place(s, w->node, t->grads)->word;
        memset(grads, 0, CUT * WORDS * sizeof *grads);
        CHECK(s, memcmp(s->began_on[t->lease.id], place(s, w->node, t->weights)->word, CUT * WORDS * sizeof *grads) == 0);
        for (uint32_t i = 0; i < t->lease.n; i++)
            toy_backward(place(s, w->node, t->weights)->word, grads, t->lease.start + i,
                         place(s, w->node, t->act)->word[i]);
        break;
    }
    case ECHI_TASK_HEAD:
        if (t->weights_out.kind) run_apply(s, w, true);
        else run_head(s, w);
        break;
    case ECHI_TASK_HEAD_APPLY: run_apply(s, w, true); break;
    case ECHI_TASK_ADD: {
        uint32_t *sum = place(s, w->node, t->state)->word;
        for (int i = 0; i < cut_of(s) * WORDS; i++) sum[i] = (t->first ? 0 : sum[i]) + place(s, w->node, t->grads)->word[i];
        break;
    }
    case ECHI_TASK_APPLY:
        run_apply(s, w, false);
        if (t->state_out.kind) sum_states(s, w->node, t->state_out, t->peer, place(s, w->node, t->weights_out)->word);
        break;
    case ECHI_TASK_REFRESH: sum_states(s, w->node, t->state, t->peer, place(s, w->node, t->weights_out)->word); break;
    case ECHI_TASK_EVAL: run_look(s, w); break;
    case ECHI_TASK_KEEP: end_keep(s, &w->result); break;
    case ECHI_TASK_LOCAL_APPLY:
    case ECHI_TASK_LOCAL_DELTA:
    case ECHI_TASK_LOCAL_JOIN: run_local(s, w); break;
    case ECHI_TASK_ENCODE:
    case ECHI_TASK_DECODE:   /* all is dense here */
    case ECHI_TASKS: break;
    }
}

/* A head with an update of its own to make lets its rows go first. */
static void answer_rows(struct sim *s, struct work *w) {
    run_head(s, w);
    for (int i = 0; i < w->task.n_rows; i++) {
        read_ends(s, w->node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, w->task.rows[i]}, 0, 1);
        write_ends(s, w->node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, w->task.rows[i]}, 0, 1);
    }
    w->layer = 0;
    w->due = after(s, s->node[w->node].speed / LAYERS);
    struct work now = *w;
    struct echi_event e = {.type = ECHI_EVENT_GRADIENT, .task = &now.task, .result = &now.result};
    role_event(s, now.node, ECHI_ROLE_HEAD, &e);
}

/* The next thing of a task: the gradient of one layer, of the rows, or its end. */
static void work_on(struct sim *s, int at) {
    struct work *w = &s->work[at];
    if (w->task.kind == ECHI_TASK_HEAD && w->task.weights_out.kind && w->layer > 0) return answer_rows(s, w);
    const bool layered = w->task.kind == ECHI_TASK_STEP || w->task.kind == ECHI_TASK_BACKWARD;
    if (!layered || w->layer == cut_of(s)) run_task(s, w);
    if (layered && w->layer > 0) {
        w->layer--;
        w->due = after(s, s->node[w->node].speed / LAYERS);
        write_ends(s, w->node, w->task.grads, w->layer, w->layer + 1);
        struct work now = *w;
        struct echi_event e = {.type = ECHI_EVENT_GRADIENT, .layer = now.layer, .task = &now.task, .result = &now.result};
        return role_event(s, now.node, ECHI_ROLE_WORKER, &e);
    }
    struct work now = *w;
    *w = s->work[--s->works];
    touch(s, now.node, &now.task, false);
    struct echi_event e = {.type = ECHI_EVENT_COMPUTED, .task = &now.task, .result = &now.result};
    role_event(s, now.node, (enum echi_role)now.task.role, &e);
}

/* ---- time ---- */

/* Payloads whose place is there are on their way; from now on their SENT may come, before or after the message. */
static void set_going(struct sim *s) {
    for (int i = 0; i < s->messages; i++) {
        struct message *m = s->queue[i];
        uint8_t *going = &s->node[m->to].going[m->from][m->kind];
        if (m->words == 0 || m->going || *going == s->node[m->to].posts[m->from][m->kind]) continue;
        m->going = true;
        ++*going;
        int k = 0;
        while (k < s->n_sents && (s->sents[k].node != m->from || s->sents[k].due != never(m->to, m->kind))) k++;
        CHECK(s, k < s->n_sents);
        s->sents[k].due = after(s, 30);
    }
}

/* ---- kills ---- */

/* A node is gone from one moment to the next. Of what it had sent a part still comes, by each link up to a moment of its own;
 * what was sent to it comes back. The coordinator sees it some time later, or is told by another node. */
static void kill_node(struct sim *s, int rank) {
    struct node *n = &s->node[rank];
    int64_t cut[NODES];
    n->dead = true;
    s->killed++;
    s->tracked[rank] = s->answered[rank] = false;
    if (echi_plan_group_owned(&s->coordinator.plan, rank) >= 0) s->owner_killed = true;
    for (int r = 0; r < NODES; r++) cut[r] = s->now + (echi_random_below(&s->random, 2) ? echi_random_below(&s->random, 300) : 0);
    for (int i = s->messages - 1; i >= 0; i--) {
        const struct message *m = s->queue[i];
        if (m->to == rank) {
            for (int k = 0; k < s->n_sents && m->words && !m->going; k++)
                if (s->sents[k].node == m->from && s->sents[k].due == never(rank, m->kind)) s->sents[k].due = after(s, 30);
            drop(s, i);
        } else if (m->from == rank && ((m->words && !m->going) || m->due > cut[m->to])) {
            drop(s, i);
        }
    }
    for (int i = s->n_sents - 1; i >= 0; i--)
        if (s->sents[i].node == rank) s->sents[i] = s->sents[--s->n_sents];
    for (int i = s->works - 1; i >= 0; i--)
        if (s->work[i].node == rank) s->work[i] = s->work[--s->works];
    s->notice[rank] = after(s, echi_random_below(&s->random, 2) ? 20 : 1000);
    const int other = (int)echi_random_below(&s->random, s->plan.world);
    if (echi_random_below(&s->random, 3) == 0 && !s->node[other].dead) {
        struct echi_action a = {.type = ECHI_ACTION_SEND, .to = 0, .kind = ECHI_KIND_FAULT};
        a.msg = (struct echi_msg){.kind = ECHI_KIND_FAULT, .to_role = ECHI_ROLE_COORDINATOR, .layer = ECH_E_PEER_LOST, .peer = (uint16_t)rank};
        send_action(s, other, &a);
    }
}

/* A rank whose loss is survived, of those that live; -1: there is none now. */
static int victim(struct sim *s, int wanted) {
    const enum echi_run_phase phase = s->coordinator.phase;
    struct echi_plan plan = phase == ECHI_RUN_MEASURES ? s->node[0].setup.plan : s->coordinator.plan;
    const bool made = phase > ECHI_RUN_MEASURES || s->plan_given;   /* else there is no plan yet in which it could matter */
    if (phase == ECHI_RUN_ENDED) return -1;
    plan.world = s->plan.world;
    for (int r = 0; r < plan.world; r++)
        if (s->node[r].dead && !plan.lost[r]) echi_plan_lose(&plan, r);
    const uint32_t first = wanted >= 0 ? (uint32_t)wanted : echi_random_below(&s->random, plan.world);
    for (uint32_t i = 0; i < (wanted >= 0 ? 1u : plan.world); i++) {
        const int r = (int)((first + i) % plan.world);
        if (plan.lost[r] || r == 0 || (made && !echi_plan_can_lose(&plan, r))) continue;
        if (made && phase < ECHI_RUN_TRAINS && echi_plan_group_owned(&plan, r) >= 0) continue;
        return r;
    }
    return -1;
}

/* Does the earliest thing that can happen; false when nothing can. */
static bool step(struct sim *s) {
    enum { NOTHING, MESSAGE, SENT, WORK, NOTICE, TELL } what = NOTHING;
    int at = 0;
    int64_t due = INT64_MAX / 2;
    set_going(s);
    for (int i = 0; i < s->messages; i++)
        if (s->queue[i]->due < due && (s->queue[i]->going || s->queue[i]->words == 0)) {
            what = MESSAGE;
            at = i;
            due = s->queue[i]->due;
        }
    for (int i = 0; i < s->n_sents; i++)
        if (s->sents[i].due < due) { what = SENT; at = i; due = s->sents[i].due; }
    for (int i = 0; i < s->works; i++)
        if (s->work[i].due < due && (!s->node[s->work[i].node].held || s->work[i].task.kind == ECHI_TASK_EVAL || s->work[i].task.kind == ECHI_TASK_KEEP)) {
            what = WORK;
            at = i;
            due = s->work[i].due;
        }
    for (int r = 0; r < NODES; r++)
        if (s->notice[r] && s->notice[r] < due) {
            what = NOTICE;
            at = r;
            due = s->notice[r];
        }
    for (int r = 0; r < NODES; r++)
        if (s->node[r].losses && !s->node[r].dead && s->node[r].tell_at < due) {
            what = TELL;
            at = r;
            due = s->node[r].tell_at;
        }
    if (what == NOTHING) return false;
    if (due > s->now) s->now = due;
    s->events++;
    if (what == MESSAGE) {
        struct message *m = s->queue[at];
        memmove(&s->queue[at], &s->queue[at + 1], (size_t)(--s->messages - at) * sizeof s->queue[0]);
        s->queue[s->messages] = m;
        struct message now = *m;
        deliver(s, &now);
    } else if (what == SENT) {
        const struct sent now = s->sents[at];
        memmove(&s->sents[at], &s->sents[at + 1], (size_t)(--s->n_sents - at) * sizeof s->sents[0]);
        read_ends(s, now.node, now.slot, now.first, now.end);
        struct echi_event e = {.type = ECHI_EVENT_SENT, .slot = now.slot};
        role_event(s, now.node, (enum echi_role)now.role, &e);
    } else if (what == TELL) {
        tell_loss(s, at);
    } else if (what == NOTICE) {
        s->notice[at] = 0;
        struct echi_event e = {.type = ECHI_EVENT_LOST, .from = (uint16_t)at};
        role_event(s, 0, ECHI_ROLE_COORDINATOR, &e);
    } else {
        work_on(s, at);
    }
    return true;
}

/* Runs from the start to the end, and on until nothing moves any more, or until the power goes. The caller has filled plan or wishes, and goal. */
static void sim_run(struct sim *s) {
    static const uint32_t speeds[] = {10, 40, 160, 1000};
    uint32_t *initial = s->node[0].place[ECHI_SLOT_COORD_PARAMS][0].word;
    const int world = s->plan_given ? s->plan.world : s->wishes.world;
    s->now = 1;
    s->wishes.world = world;
    s->plan.world = (uint16_t)world;
    for (int i = 0; i < MESSAGES; i++) s->queue[i] = &s->pool[i];
    for (int i = 0; i < PARAMS; i++) initial[i] = s->goal.resumed ? s->from.word[0][i] : mix((uint32_t)s->seed, (uint32_t)i);
    s->node[0].setup.plan = s->plan;
    echi_coordinator_init(&s->coordinator, &s->node[0].setup, &s->wishes, &s->goal, s->plan_given);
    struct echi_event start = {.type = ECHI_EVENT_START};
    role_event(s, 0, ECHI_ROLE_COORDINATOR, &start);
    for (int r = 0; r < world; r++) {
        struct echi_times times = {.count = 2, .n = {1, 16}};
        uint8_t body[ECHI_TIMES_BYTES_MAX];
        s->node[r].speed = speeds[echi_random_below(&s->random, 4)];
        for (int i = 0; i < 2; i++) {
            times.trunk[i] = (4 + times.n[i]) * 1e-4 * s->node[r].speed;
            times.head[i] = times.trunk[i] / 8;
        }
        send_body(s, r, 0, ECHI_KIND_MEASURED, ECHI_ROLE_COORDINATOR, body, echi_times_encode(&times, body, sizeof body));
    }
    bool stopped = false;
    while (!s->done) {
        if (!step(s)) die(s, "nothing moves any more, and the run has not ended");
        if (s->cut_at && s->now >= s->cut_at) return;
        CHECK(s, s->events < 200000);
        for (int i = 0; i < KILLS && !s->done; i++)
            if (s->kill_at[i] == s->events) {
                const int rank = victim(s, s->kill_rank[i]);
                if (rank >= 0) kill_node(s, rank);
            }
        if (s->stop_at && !stopped && s->now >= s->stop_at && !s->done) {
            struct echi_event stop = {.type = ECHI_EVENT_STOP};
            stopped = true;
            role_event(s, 0, ECHI_ROLE_COORDINATOR, &stop);
        }
    }
    while (step(s)) {}
}
#endif
