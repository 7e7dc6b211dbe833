/* SPDX-License-Identifier: Apache-2.0
 * A whole cluster in one thread: all roles of all nodes, a queue of things that are due in virtual time, and a toy model.
 *
 * The model has 5 layers of 3 words; its arithmetic wraps, so that sums are exact in any order and results compare with ==.
 * The last word of each layer is a *tally*: it has no momentum and no decay, and its gradient is a number of the samples alone,
 * so it says of any copy of weights, or of a state, which samples are in it, however they came there.
 * A message arrives when it is due, in order only within (sender, receiver, kind), and a payload only into a posted place.
 * "Sent" comes at a time of its own, before or after the message. Tasks end in any order. Every message goes through its
 * byte form. Each word of a slot knows who reads or writes it, from the action that says so to the event that ends it: two
 * writers, or a writer beside a reader, is a race and fails, whether or not a byte went wrong in this run.
 *
 * sched_watch.h: what must hold at each event. sched_faults.h: what goes wrong. sched_runs.h: runs made from a seed.
 * sched_suites.h: thousands of them. */
#ifndef SCHED_SIM_H
#define SCHED_SIM_H
#include "echi_random.h"
#include "echi_ratio.h"
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
    N_MAX = 40,                             /* samples of a share, of a lease half more */
    LEASE_MAX = N_MAX + N_MAX / 2,
    ROOM = 2 * LEASE_MAX,
    SAMPLES_MAX = 128,
    EPOCHS_MAX = 8,
    MESSAGES = 2048,
    TASKS = 64,
    DUES = 2 * MESSAGES + TASKS + 64,
    POSTS = 24,             /* places for one kind from one node at most: one for each part of two flights' weights */
    PAYLOADS = 14,          /* kinds of messages that carry one, at most */
    ACTIONS = 8 * 64,
    LEASES = 4096,
    VERSIONS = 2048,
    KILLS = 4,
    MOVES = 6,
    RESETS = 64,            /* takeovers, of this run and those before */
    META = 1024,            /* bytes of a message's words */
    ANSWERS = 64,           /* weights on their way to a worker, or computed on, at most: of each owner that it had, too */
    ALONE = 16,             /* rounds of one node that are kept: a shadow may be some behind */
    NOTES = 40              /* events that a failure tells */
};

/* ---- the toy model ---- */

static uint32_t mix(uint32_t a, uint32_t b) {
    uint32_t x = a * 2654435761u + b * 2246822519u + 374761393u;
    x = (x ^ x >> 15) * 2246822519u;
    return (x ^ x >> 13) * 3266489917u;
}
static bool is_tally(int i) { return i % WORDS == WORDS - 1; }
static uint32_t label_of(uint32_t sample) { return sample * 7 & 255; }   /* another for each of 256 samples */
static uint32_t loss_of(uint32_t label) { return label % 5; }
static uint32_t tally_of(uint32_t label, int i) { return mix(label + 1000, (uint32_t)i); }

static uint32_t fold(const uint32_t *w, int first, int end) {
    uint32_t sum = 0;
    for (int i = first * WORDS; i < end * WORDS; i++) sum = mix(sum, w[i]);
    return sum;
}
/* An activation. `trunk` is the fold of the trunk's weights, `head` below that of the head's. */
static uint32_t toy_forward(uint32_t trunk, uint32_t sample) { return mix(sample, trunk); }
/* One row through the head: adds to the gradients of its layers, gives the gradient of the activation. */
static uint32_t toy_head(uint32_t head, uint32_t *grads, uint32_t act, uint32_t label, uint32_t divisor) {
    const uint32_t signal = mix(mix(act, label), head + divisor);
    for (int i = CUT * WORDS; i < PARAMS; i++) grads[i] += is_tally(i) ? tally_of(label, i) : mix(signal, (uint32_t)i);
    return mix(signal, 99);
}
static void toy_backward(const uint32_t *w, uint32_t *grads, uint32_t sample, uint32_t act_grad) {
    const uint32_t signal = mix(act_grad, sample), label = label_of(sample);
    for (int i = 0; i < CUT * WORDS; i++) grads[i] += is_tally(i) ? tally_of(label, i) : mix(signal, w[i] + (uint32_t)i);
}
static void toy_step(const uint32_t *w, uint32_t *grads, const struct echi_lease *l, uint32_t divisor) {
    const uint32_t trunk = fold(w, 0, CUT), head = fold(w, CUT, LAYERS);
    memset(grads, 0, PARAMS * sizeof *grads);
    for (uint32_t s = l->start; s < l->start + l->n; s++)
        toy_backward(w, grads, s, toy_head(head, grads, toy_forward(trunk, s), label_of(s), divisor));
}
/* What word i moves by: momentum and decay where the gradient arrives, once. */
static uint32_t toy_velocity(int i, uint32_t *v, uint32_t w, uint32_t g, uint32_t samples) {
    return is_tally(i) ? g : (*v = 3 * *v + g + 5 * samples * w);
}
/* `local`: what a change weighs, all of a round 1; and what word i moves by when the sum of a round's changes arrives. */
static uint32_t toy_weight(int i, uint32_t samples, uint32_t divisor) {
    return is_tally(i) || samples == divisor ? 1 : mix(samples, divisor) | 1;
}
static uint32_t toy_outer(int i, uint32_t *v, uint32_t sum, bool momentum) {
    if (is_tally(i) || !momentum) return sum;
    *v = 3 * *v + sum;
    return sum + 3 * *v;
}

/* ---- the cluster ---- */

/* holds: of a state or another group's state its version; of weights the samples in them. answer: a worker's weights, the number
 * under which they were sent. round: of a worker's weights under `local`, the rounds in them. of: of a worker's weights, by word, 1 and
 * what the copy held that it came from. */
struct place {
    uint32_t word[ROOM]; uint64_t holds, round; uint32_t answer, of[PARAMS]; uint8_t readers[PARAMS];
    uint32_t written;                            /* the words that somebody writes, a bit each */
    uint16_t lent[LAYERS * WORDS]; int n_lent;   /* messages that it borrows: their SENT is held back */
};
/* name: of what comes by part its first word, else 0; writes: from now on its payload may be written there. */
struct posted { struct echi_slot slot; uint8_t role, first, end, name; bool writes; };
enum { NOBODY = 0xffff };
/* One message, with what its sender waits for: a payload's slot until SENT. */
struct message {
    uint16_t from, to, next;                /* next: in its channel, or of those that are free */
    uint8_t kind, refs;                     /* refs: its delivery and its SENT, as far as they are still to come */
    bool going, dropped, left;              /* left: nothing reads the sender's slot any more */
    uint8_t role, first, end;               /* of the sender's slot */
    struct echi_slot slot;
    uint32_t answer, holds;
    int words;
    int64_t due;
    size_t meta_len;
    uint32_t word[ROOM];
    uint8_t meta[META];
};
/* Payloads of one kind from one node: places for them, and those that wait for one. */
struct channel {
    uint8_t posts, going[PARAMS];           /* going: payloads on their way to one of the places, by name */
    uint16_t waits, last;                   /* messages without a place */
    struct posted post[POSTS];              /* the older first */
};
struct work { uint16_t node; int layer; struct echi_task task; struct echi_result result; };
struct node {
    struct echi_setup setup;
    bool measures, holding, held;           /* it was asked for step times, to hold; and no task runs */
    uint32_t speed;
    bool dead;                              /* its process is no more */
    uint32_t final[PARAMS];                 /* the weights that its user was given */
    bool doomed, doomed_early;              /* it will be lost, or may be: what it has is not counted on; since before training */
    bool cut[NODES];                        /* no link to that node any more */
    uint8_t rival;                          /* 1 + the node at the other end of such a link, while it is open which of the two is lost */
    int64_t paused, walled; int wall;       /* it handles nothing until then; until then it reaches only nodes with the same `wall` */
    int64_t clock_at, clock_jump; int32_t drift;   /* its own time, see clock_of */
    uint8_t slow[NODES];                    /* links to others take so many times as long; 0 is once */
    uint16_t stalled[TASKS]; int n_stalled; /* work that waits for the release */
    int64_t last_due[NODES][ECHI_KINDS][PARAMS];   /* of messages to each node, by name */
    /* The forward that its worker has begun on weights that are not all there: so many layers, what they read, and of which copies. */
    struct { int gone; uint32_t word[PARAMS], of[PARAMS]; } early[ECHI_MICRO_MAX];   /* by micro-batch */
    struct channel channel[NODES][PAYLOADS];
    struct place place[ECHI_SLOT_KINDS * 3 + 7 * INDICES + 2 * ECHI_WORKER_PLACES + 2 * ECHI_STACKS];   /* see places_of */
    /* from here on nothing is cleared for a run: a role begins with its init */
    struct echi_node_role role;
    struct echi_worker worker;
    struct echi_owner owner;
    struct echi_head head;
};
/* A checkpoint, as the driver would write it: weights, then the momentum of each group. */
struct kept {
    bool there, coded; struct echi_standing at; int groups; uint32_t word[1 + ECHI_GROUPS_MAX][PARAMS];
    struct resets { int count; struct { uint64_t samples; uint32_t words; } at[RESETS]; } resets;   /* takeovers behind it */
};

/* What can be due, and when; of what is due at once the older comes first. */
enum what { DUE_MESSAGE, DUE_SENT, DUE_WORK, DUE_NOTICE, DUE_ANSWER, DUE_DEATH, DUE_TIME, DUES_OF };
struct due { int64_t at; uint32_t order; uint16_t what, index, other; };

/* Rates of faults, see sched_faults.h. All zero: none but those that a test asks for. */
struct rates {
    uint32_t safety;                        /* events of the first phase, in which faults happen; 0: there is none */
    uint32_t tails, twice;                  /* of a thousand messages: much later; twice */
    uint32_t slow;                          /* of a thousand links */
    uint32_t skewed;                        /* of a thousand clocks */
    uint32_t pauses, cuts, walls, kills, fatal, jumps, stops;   /* weights of what happens next */
    uint32_t every;                         /* events from one such to the next, on average */
};
#define FAULT_LIST(X)                                                                                                            \
    X(TAIL, "late") X(TWICE, "twice") X(SLOW, "slow-link") X(SKEW, "other-clock") X(PAUSE, "pause") X(CUT, "cut") X(WALL, "wall") \
    X(WALL_LOSS, "wall-and-loss") X(KILL, "kill") X(FATAL, "fatal-kill") X(JUMP, "clock-jumps") X(STOP, "stop") X(POWER, "power")
enum fault {
#define FAULT_ENUM(name, text) FAULT_##name,
    FAULT_LIST(FAULT_ENUM)
#undef FAULT_ENUM
    FAULTS
};
struct counts {
    uint64_t runs, calm, fault[FAULTS], due[DUES_OF], kind[ECHI_KINDS], task[ECHI_TASKS];
    uint64_t losses, lost_owners, again, repeats, dropped, keeps, rescued, resumed, early, ended, untimely, stale_most;
    uint64_t moves, shared, woke, handed_back;
    uint64_t shadows, heads_moved;          /* made while a run went */
    uint64_t copies, refused;               /* of a head's layers: that came; nodes without memory for one */
    uint64_t forwards, forwards_again;      /* begun on weights that were not all there; of these again, behind one that was dropped */
    uint64_t pushed_again, takeovers, taken, reopened;   /* gradients that were not computed again; shards that got another owner, one
                                               round behind that */
    uint64_t norms, later_norms;            /* parts of steps that went on by what all had summed; of leases that are not their worker's
                                               first of the round */
    uint64_t told_rates, ratio_changes;
    uint64_t live_most;                     /* largest part of its bound that a liveness phase took, in thousandths */
};

/* What a lease is known to be. */
struct seen_lease {
    struct echi_lease lease;
    bool begun, more;                       /* more: its push said that the worker holds another */
    uint8_t applied, revoked;               /* by shard, a bit each */
    bool before;                            /* a takeover has come since it was dealt */
    bool here, changed;                     /* `local`: its worker has it; its steps are in a change */
    uint32_t stepped, moved[PARAMS];        /* `local`: samples of its steps; what these have moved */
    uint32_t answer;                        /* that brought the weights it began on */
    uint64_t version;                       /* in its owner's state from this version on */
    uint64_t samples;                       /* in the weights it began on */
    double staleness;
    uint32_t parts;                         /* of its push, a bit each: at its owner, and not taken yet */
    uint64_t head_met[NODES];               /* samples in the weights that its rows met at each node that trains the head's layers */
    uint32_t began_on[PARAMS];
    uint32_t act_grad[NODES][LEASE_MAX]; uint8_t answered_by[LEASE_MAX];   /* by sample: what each answered, and whose answer came */
};
/* A group's state at one version. */
struct seen_state { uint64_t samples; uint32_t word[PARAMS], mark[NODES]; };

struct note { int64_t now; uint16_t what, node, from; uint8_t role, kind; uint32_t lease, layer; };

struct sim {
    uint64_t seed;
    struct echi_random random;
    struct echi_plan plan;                  /* given, unless `request` is to be planned */
    struct echi_plan_request request;
    struct echi_goal goal;
    bool plan_given;
    uint64_t kill_at[KILLS];                /* after so many events one that may be lost is killed; 0: none */
    int kill_rank[KILLS], killed;           /* -1: any */
    bool owner_killed;
    uint64_t move_at[MOVES]; int moves;     /* from so many events on a worker is moved, or rounds get other shares, as soon as
                                               that can be; changes made */
    bool shares_change;                     /* under BSP, where nobody can move */
    bool heads_move;                        /* and instead of both the head does */
    uint64_t handed_back;                   /* leases */
    uint32_t speed[NODES];                  /* of its tasks; 0: drawn */
    uint64_t speed_at; int speed_of; uint32_t speed_then;   /* from this event on that node's tasks take about so long; 0: never */
    bool tells_rates; struct echi_random told;   /* drivers report arbitrary rates of links */
    int64_t stop_at;                        /* 0: never */
    int64_t cut_at;                         /* the power goes; 0: never */
    struct kept from;                       /* what a resumed run begins with */
    struct kept writing, kept; int keeps;   /* the one that is being written, the last that is whole */
    int64_t now;
    uint64_t events;
    bool done, loud;                        /* loud: every event is told */
    struct rates rates;
    bool timer;                             /* the coordinator's TIME is due */
    int64_t wall_ends; bool asked_to_stop, fatal;   /* fatal: one was killed whom the run cannot do without */
    bool calm; uint64_t calm_at, next_fault, live_events;   /* the second phase: no faults, and an end within so many events */
    struct counts *counts;                  /* may be NULL */
    void (*fails)(struct sim *s);           /* after a failure was told; NULL: cmocka's */
    /* what is watched */
    uint8_t leased[SAMPLES_MAX], computed[SAMPLES_MAX], applied[SAMPLES_MAX];
    struct headed {                         /* by node that is or was a head, or the head's shadow */
        uint8_t times[SAMPLES_MAX], in[SAMPLES_MAX];   /* that it trained; in: by epoch, a bit each */
        uint64_t holds[3], samples, rounds;            /* samples in each copy of its weights, and in the current */
    } headed[NODES];
    uint32_t were_heads;                    /* nodes, a bit each */
    struct { uint64_t round; uint32_t word[PARAMS]; } replica[ALONE];   /* several heads: what the first to end a round has behind it */
    uint16_t in_by[NODES][EPOCHS_MAX][SAMPLES_MAX];   /* by shard: the lease by which a sample is in */
    uint32_t leases;                        /* numbers dealt so far */
    uint64_t repeats, handed_on;            /* rows answered again; states of lost groups handed on */
    uint64_t applied_samples;               /* in the weights of a single group, of all its shards */
    uint64_t samples_of[NODES], rounds_of[NODES];   /* BSP: in the weights of each shard */
    uint32_t applied_parts[NODES];          /* of its next round, a bit each */
    uint64_t head_newest, apart_pushes[8], pushes;   /* in the newest that applied pushes came from; pushes by how many quarters of a
                                               round theirs lie behind it, up to two rounds */
    uint64_t versions[ECHI_GROUPS_MAX];     /* of each group's state */
    uint64_t has_version[NODES][ECHI_GROUPS_MAX], has_samples[NODES][ECHI_GROUPS_MAX];   /* of others' states, by owner */
    bool awake; uint64_t woke, woke_samples; uint32_t woke_at;   /* the reserve: how often it woke, what all groups had done then, and the
                                               membership epoch */
    bool decided[ECHI_GROUPS_MAX];          /* the last state of a lost group */
    uint32_t velocity[ECHI_GROUPS_MAX][PARAMS], mass[ECHI_GROUPS_MAX][LAYERS];
    /* `local`, by worker: its own weights, their momentum, and what its steps have moved since its last change; of the round so far
     * the sum of the changes. */
    struct own { uint32_t word[PARAMS], velocity[PARAMS], since[PARAMS]; } own[NODES];
    uint32_t round_sum[PARAMS];
    bool met; uint32_t met_with[PARAMS];    /* the target, by these weights */
    uint32_t looked_at[PARAMS];   /* what was evaluated last */
    uint64_t dropped, dropped_samples;      /* pushes that were too old */
    uint32_t start[PARAMS];                 /* the weights that this run began with */
    uint32_t alone[ALONE][PARAMS], alone_velocity[ALONE][PARAMS]; uint64_t alone_samples, alone_rounds;   /* one node, by its last rounds */
    uint64_t alone_in[ALONE];                   /* samples in each of alone[] */
    /* Takeovers: seen so far; who owns which shard behind the last; where and of which words the momentum began anew. */
    uint64_t takeovers; uint16_t shard_owner[NODES]; struct resets resets;
    /* Staleness: the weights sent to a worker, by their number, with the pushes that their owner had applied by then; the owner
     * that knows that a worker holds a lease (1 + its rank), and the last that it heard of by ENTER. */
    struct answer { int owner; bool known; uint32_t pushes[NODES]; } answer[NODES][ANSWERS];
    uint32_t answers[NODES], knower[NODES], entered[NODES], pushes_of[ECHI_GROUPS_MAX][NODES];
    bool owes_ack;                          /* an owner took a state in this event */
    /* The codec: gradients that each worker computed, and what was applied of them; a state that is still coded: its version, samples;
     * messages of state links that were not complete. */
    uint32_t given[NODES][PARAMS], taken[NODES][PARAMS];
    struct { uint64_t version, samples; } coming[NODES][ECHI_GROUPS_MAX];
    uint64_t partly;
    enum echi_run_phase phase; int64_t clock;
    int evals;
    struct note note[NOTES]; uint64_t notes;
    /* Sees each event with what the role asked for; with role NODE and no event: the node has taken the plan. May be NULL. */
    void (*watch)(struct sim *s, int node, enum echi_role role, const struct echi_event *event, const struct echi_actions *actions);
    uint32_t orders; int dues;
    uint16_t unused; int pooled;            /* messages that are free; those ever used */
    bool work_used[TASKS];
    int parts;                              /* of the plan, in front of the cut */
    uint16_t first_place[ECHI_SLOT_KINDS + 1];   /* of each kind of slot, among a node's places; at last one past all */
    /* from here on nothing is cleared for a run, but what a node begins with */
    struct node node[NODES];
    struct echi_coordinator coordinator;
    struct due due[DUES];
    struct work work[TASKS];
    struct message pool[MESSAGES];
    struct echi_action action[ACTIONS];
    struct seen_lease seen[LEASES];
    struct seen_state state[ECHI_GROUPS_MAX][VERSIONS];
};

static void sim_clear(struct sim *s) {
    memset(s, 0, offsetof(struct sim, node));
    s->coordinator.phase = ECHI_RUN_MEASURES;
}

/* sched_watch.h */
static void watch_send(struct sim *s, int node, const struct echi_action *a);
static void note_left(struct sim *s, int worker);
static void watch_message(struct sim *s, const struct message *m, const struct echi_msg *msg, struct echi_slot slot);
static void watch_begins(struct sim *s, int node, const struct echi_task *t);
static void watch_step(struct sim *s, const struct work *w);
static void watch_early(struct sim *s, const struct work *w);
static void watch_rows(struct sim *s, const struct work *w);
static void watch_rows_in(struct sim *s, const struct work *w);
static void watch_answers(struct sim *s, const struct work *w);
static void watch_ends(struct sim *s, const struct work *w);
static void watch_keep(struct sim *s, const struct kept *k);
static void watch_plan(struct sim *s);
static void watch_coordinator(struct sim *s, const struct echi_event *e);
static void note_awake(struct sim *s);
/* sched_faults.h */
static void begin_faults(struct sim *s);
static void fault_now_and_then(struct sim *s);
static void tell_rate(struct sim *s);
static int64_t travel(struct sim *s, int from, int to, uint32_t scale);
static bool comes_twice(struct sim *s, const struct echi_msg *m);
static void settle_cuts(struct sim *s);

/* ---- failures ---- */

/* What must hold; `driver` is for what the simulation asks of itself and of a role's actions. */
#define INVARIANTS(X)                                                                                                            \
    X(DRIVER, "driver") X(FAULT, "a role's refusal") X(RACE, "slots") X(WAIT, "nobody waits for ever")                          \
    X(STALENESS, "staleness") X(APART, "rounds apart") X(ONCE, "leases once") X(WHOLE, "all parts")                             \
    X(GRADIENT, "gradients") X(MASS, "mass")                                                                                     \
    X(SUM, "weights") X(STATE, "states") X(FREEZE, "frozen state") X(DRAIN, "drain") X(ONE_NODE, "one node")                    \
    X(LOCAL, "own steps") X(NORM, "norms") X(LEDGER, "ledger") X(RATIO, "ratios") X(HEAD, "rows once")    \
    X(EVAL, "evaluations") X(CLOCK, "clock") X(SILENCE, "silence")
enum invariant {
#define INVARIANT_ENUM(name, text) MUST_##name,
    INVARIANTS(INVARIANT_ENUM)
#undef INVARIANT_ENUM
};

#define NAMES(name, text) text,
static const char *const fault_name[] = {FAULT_LIST(NAMES)}, *const invariant_name[] = {INVARIANTS(NAMES)};
#undef NAMES

static void tell_note(const struct sim *s, uint64_t at) {
    static const char *const role[] = {"node", "coordinator", "worker", "owner", "head"};
    const struct note *n = &s->note[at % NOTES];
    print_error("  %6llu at %9lld: ", (unsigned long long)at, (long long)n->now);
    if (n->what != DUES_OF) print_error("rank %d, %s: ", n->node, role[n->role]);
    switch (n->what) {
    case DUE_MESSAGE: print_error("%s from %d, lease %u, layer or part %u\n", echi_kind_name(n->kind), n->from, n->lease, n->layer); break;
    case DUE_SENT: print_error("slot of kind %d sent to %d\n", n->kind, n->from); break;
    case DUE_WORK: print_error("task of kind %d, lease %u, layer %u\n", n->kind, n->lease, n->layer); break;
    case DUE_NOTICE: print_error("cannot reach %d\n", n->from); break;
    case DUE_ANSWER: print_error(n->from == ECHI_EVENT_SLOTS ? "its slots are there\n" : "no task runs\n"); break;
    case DUE_DEATH: print_error("leaves: it has missed rank 0\n"); break;
    case DUE_TIME: print_error("its time has come\n"); break;
    default: print_error("FAULT %s: %d, %d\n", fault_name[n->kind], n->node, n->from); break;
    }
}
static struct note *note(struct sim *s, enum what what, int node, int from) {
    struct note *n = &s->note[s->notes++ % NOTES];
    if (s->loud && s->notes > 1) tell_note(s, s->notes - 2);
    *n = (struct note){.now = s->now, .what = (uint16_t)what, .node = (uint16_t)node, .from = (uint16_t)from};
    return n;
}

static void tell_rates(const struct sim *s) {
    const struct rates *r = &s->rates;
    print_error("  faults: %s after %llu events (phase one: %u); of 1,000 messages %u late, %u twice; of 1,000 links %u slow, clocks "
                "%u skewed;\n  every %u events one of: pause %u, cut %u, wall %u, kill %u, fatal %u, jump %u, stop %u\n",
                s->calm ? "none more" : "still some", (unsigned long long)(s->calm ? s->calm_at : s->events), r->safety, r->tails, r->twice,
                r->slow, r->skewed, r->every, r->pauses, r->cuts, r->walls, r->kills, r->fatal, r->jumps, r->stops);
}

_Noreturn static void die(struct sim *s, enum invariant which, const char *what) {
    static const char *const run[] = {"measures", "planned", "feeds",     "trains",    "holds",     "looks",
                                      "quiets",   "gathers", "settles", "hands on",  "drains",    "last keep",
                                      "last look", "ends",   "rescues", "ended"};
    static const char *const worker[] = {"waits for weights", "idle", "forward", "waits for the head", "answered", "backward",
                                         "waits for a norm", "waits for a part", "waits for the shadow"};
    print_error("seed %llu, after %llu events, broken: %s: %s\n  sync %d world %d groups %d separated %d round %u; coordinator %s, "
                "%d leases out, %llu of %llu samples in\n",
                (unsigned long long)s->seed, (unsigned long long)s->events, invariant_name[which], what, s->plan.sync, s->plan.world,
                s->plan.n_groups, s->plan.cut, s->plan.round, run[s->coordinator.phase], s->coordinator.n_out,
                (unsigned long long)s->coordinator.applied, (unsigned long long)s->goal.samples);
    if (s->rates.safety) tell_rates(s);
    for (int r = 0; r < s->plan.world; r++) {
        const struct node *n = &s->node[r];
        print_error("  rank %d%s%s:", r, n->dead ? " (dead)" : n->doomed ? " (cut off)" : "", n->held ? " (held)" : "");
        for (int i = 0; n->role.worker && i < s->plan.flights; i++)
            print_error(" worker %s, %d leases, %d sends;", worker[n->worker.flight[i].phase], n->worker.n_leases,
                        n->worker.flight[i].sending);
        if (n->role.owner)
            print_error(" owner of %d%s%s, %d queued, busy %d, %d sends, state %llu;", n->owner.group,
                        n->owner.draining ? " draining" : "", n->owner.drained ? " drained" : "", n->owner.queued, n->owner.busy,
                        n->owner.sends, (unsigned long long)n->owner.state_version);
        if (n->role.head) print_error(" head, %d queued, busy %d;", n->head.queued, n->head.busy);
        print_error("\n");
    }
    for (int i = 0; i < s->pooled; i++)
        if (s->pool[i].refs && !s->pool[i].dropped)
            print_error("  on its way: %s from %d to %d%s\n", echi_kind_name(s->pool[i].kind), s->pool[i].from, s->pool[i].to,
                        s->pool[i].going || !s->pool[i].words ? "" : " (no place)");
    for (uint64_t i = s->notes > NOTES ? s->notes - NOTES : 0; i < s->notes; i++) tell_note(s, i);
    if (s->fails) s->fails(s);
    fail();
    abort();   /* cmocka has left by now */
}
/* Out of the way of who asks: thousands of conditions hold for each that does not. */
_Noreturn __attribute__((cold, noinline)) static void broken(struct sim *s, enum invariant which, int line, const char *condition) {
    char text[200];
    snprintf(text, sizeof text, "line %d: %s", line, condition);
    die(s, which, text);
}
#define MUST(s, which, condition)                                                                                                \
    do {                                                                                                                         \
        if (!(condition)) broken(s, MUST_##which, __LINE__, #condition);                                                         \
    } while (0)
#define CHECK(s, condition) MUST(s, DRIVER, condition)

static bool is_local(const struct sim *s) { return s->plan.sync == ECHI_SYNC_LOCAL; }
static int cut_of(const struct sim *s) { return s->plan.cut ? CUT : LAYERS; }
static uint32_t below(struct sim *s, uint32_t bound) { return echi_random_below(&s->random, bound); }
/* One of a thousand, so often. */
static bool chance(struct sim *s, uint32_t of_thousand) { return of_thousand && below(s, 1000) < of_thousand; }

/* ---- what is due ---- */

static bool earlier(const struct due *a, const struct due *b) { return a->at != b->at ? a->at < b->at : a->order < b->order; }
static void put_due(struct sim *s, struct due d) {
    CHECK(s, s->dues < DUES);
    int i = s->dues++;
    for (; i > 0 && earlier(&d, &s->due[(i - 1) / 2]); i = (i - 1) / 2) s->due[i] = s->due[(i - 1) / 2];
    s->due[i] = d;
}
static void due_at(struct sim *s, int64_t at, enum what what, int index, int other) {
    put_due(s, (struct due){at, s->orders++, (uint16_t)what, (uint16_t)index, (uint16_t)other});
}
static struct due take_due(struct sim *s) {
    const struct due first = s->due[0], last = s->due[--s->dues];
    int i = 0;
    for (int child; (child = 2 * i + 1) < s->dues; i = child) {
        if (child + 1 < s->dues && earlier(&s->due[child + 1], &s->due[child])) child++;
        if (!earlier(&s->due[child], &last)) break;
        s->due[i] = s->due[child];
    }
    s->due[i] = last;
    return first;
}

/* Mostly about `scale`, now and then far longer: slow links, a machine that pages. */
static int64_t after(struct sim *s, uint32_t scale) {
    int64_t delay = 1 + below(s, 2 * scale + 1);
    if (!s->calm && below(s, 40) == 0) delay *= 20;
    return s->now + delay;
}
/* A node's own time: never back, and nothing that it could compare with another's. */
static int64_t clock_of(const struct sim *s, int node) {
    const struct node *n = &s->node[node];
    return n->clock_at + s->now + s->now * n->drift / 1000 + n->clock_jump;
}

/* ---- slots ---- */

/* So many places of each kind. */
static int places_of(int kind) {
    switch (kind) {
    case ECHI_SLOT_WORKER_WEIGHTS:
    case ECHI_SLOT_WORKER_COMING: return ECHI_WORKER_PLACES;
    case ECHI_SLOT_OWNER_GRADS:
    case ECHI_SLOT_OWNER_KNOWN:
    case ECHI_SLOT_OWNER_NORM:
        return NODES;
    case ECHI_SLOT_HEAD_ROWS:
    case ECHI_SLOT_HEAD_ROWS_GRAD: return INDICES;
    case ECHI_SLOT_WORKER_ACT:
    case ECHI_SLOT_WORKER_ACT_GRAD: return ECHI_STACKS;
    case ECHI_SLOT_OWNER_CODED:
    case ECHI_SLOT_OWNER_WEIGHTS: return ECHI_SNAPSHOTS;
    case ECHI_SLOT_OWNER_PEER_CODED: return ECHI_GROUPS_MAX;
    case ECHI_SLOT_OWNER_PEER: return INDICES;
    case ECHI_SLOT_COORD_KEPT: return 1 + ECHI_GROUPS_MAX;
    default: return 3;
    }
}
static void number_places(struct sim *s) {
    for (int k = 0; k < ECHI_SLOT_KINDS; k++) s->first_place[k + 1] = (uint16_t)(s->first_place[k] + places_of(k));
    CHECK(s, s->first_place[ECHI_SLOT_KINDS] <= sizeof s->node[0].place / sizeof s->node[0].place[0]);
}
static struct place *memory_of(struct sim *s, int node, struct echi_slot slot) {
    CHECK(s, slot.kind > ECHI_SLOT_NONE && slot.kind < ECHI_SLOT_KINDS);
    CHECK(s, slot.index < s->first_place[slot.kind + 1] - s->first_place[slot.kind]);
    return &s->node[node].place[s->first_place[slot.kind] + slot.index];
}
static bool evaluates_own(const struct sim *s) { return echi_plan_evaluates_own(&s->plan) && !s->goal.give_final; }
/* Two of the coordinator's may be others' memory (exec_slots.c). */
static struct place *own_place(struct sim *s, int node, struct echi_slot slot) {
    const bool coordinators = slot.kind == ECHI_SLOT_COORD_PARAMS;
    if (coordinators && slot.index == 0 && evaluates_own(s)) slot = (struct echi_slot){ECHI_SLOT_WORKER_WEIGHTS, 0};
    if (coordinators && slot.index == 1 && s->plan.shards && !s->goal.keep && !evaluates_own(s)) slot.index = 0;
    return memory_of(s, node, slot);
}
/* Whose words a slot stands for: of one that borrows, the lender's. What is known of them (holds, round, answer, of) is its own. */
static struct place *place(struct sim *s, int node, struct echi_slot slot) {
    return own_place(s, node, echi_loans_slot(&s->node[node].role.loans, slot));
}
static struct place *both_places(struct sim *s, int node, struct echi_slot slot, struct place **out_own) {
    const struct echi_slot lender = echi_loans_slot(&s->node[node].role.loans, slot);
    struct place *own = own_place(s, node, slot);
    *out_own = own;
    return lender.kind == slot.kind && lender.index == slot.index ? own : own_place(s, node, lender);
}
static struct place *place_at(struct sim *s, int node, int kind, int index) {
    return place(s, node, (struct echi_slot){(uint8_t)kind, (uint16_t)index});
}
/* Words [first, end) of a slot, a bit each. */
static uint32_t words_from(int first, int end) { return (1u << end) - (1u << first); }
/* The first word of a set that is not empty; what is left without it. */
static int first_of(uint32_t words) { return __builtin_ctz(words); }
static uint32_t but_first(uint32_t words) { return words & (words - 1); }

_Noreturn static void race(struct sim *s, int node, struct echi_slot slot, int word, const char *what) {
    char text[160];
    snprintf(text, sizeof text, "node %d, slot kind %d index %d, word %d: %s", node, slot.kind, slot.index, word, what);
    die(s, MUST_RACE, text);
}
static void count_readers(struct place *p, uint32_t words, int more) {
    for (; words; words = but_first(words)) p->readers[first_of(words)] = (uint8_t)(p->readers[first_of(words)] + more);
}
/* Who reads what is borrowed reads both places: neither the slot is posted meanwhile, nor the lender's memory written. */
static void read_begins(struct sim *s, int node, struct echi_slot slot, uint32_t words) {
    struct place *own, *p = both_places(s, node, slot, &own);
    const uint32_t race_in = (p->written | own->written) & words;
    if (race_in) race(s, node, slot, first_of(race_in), "read while it is written");
    count_readers(p, words, 1);
    if (own != p) count_readers(own, words, 1);
}
static void read_ends(struct sim *s, int node, struct echi_slot slot, uint32_t words) {
    struct place *own, *p = both_places(s, node, slot, &own);
    count_readers(p, words, -1);
    if (own != p) count_readers(own, words, -1);
}
/* Of a node that is alone: are its weights lent to its worker, which may compute on them no more when they are applied in place? */
static bool lends_in_place(const struct sim *s, int node, struct echi_slot slot) {
    const struct echi_loans *l = &s->node[node].role.loans;
    bool lends = false;
    if (slot.kind != ECHI_SLOT_OWNER_WEIGHTS || !echi_plan_alone(&s->plan)) return false;
    for (int i = 0; i < ECHI_LOANS; i++)
        lends = lends || (l->loan[i].messages > 0 && l->loan[i].lender.kind == slot.kind && l->loan[i].lender.index == slot.index);
    return lends;
}
/* Where a worker's gradients lie in the place of its next weights: nothing is written to what is posted there before it is sent, and of a
 * push its sender's slot is read until it has come, whenever its SENT comes. */
static bool in_weights(const struct sim *s, struct echi_slot slot) {
    return slot.kind == ECHI_SLOT_WORKER_WEIGHTS && echi_plan_grads_in_weights(&s->plan);
}
/* A push that is lent has one reader, its message, and its receiver may write beside that, as an owner that is alone beside that of its
 * weights; other weights that are lent nobody writes. Such an owner may be asked for a copy while its task waits for the release: the copy
 * is made before that, and only its SENT comes later. */
static void write_begins(struct sim *s, int node, struct echi_slot slot, uint32_t words) {
    struct place *own, *p = both_places(s, node, slot, &own);
    const bool borrows = p != own;
    const bool is_message = borrows && !in_weights(s, echi_loans_slot(&s->node[node].role.loans, slot));
    const bool lends = lends_in_place(s, node, slot);
    const int messages = is_message || lends, copies = lends ? s->node[node].owner.sends : 0;
    const uint32_t twice = p->written & words;
    if (borrows && slot.kind != ECHI_SLOT_OWNER_GRADS && words) race(s, node, slot, first_of(words), "written, and it is lent to be read");
    if (twice) race(s, node, slot, first_of(twice), "written by two");
    for (uint32_t left = words; left; left = but_first(left)) {
        const int readers = p->readers[first_of(left)];
        if (readers < messages || readers > messages + copies) race(s, node, slot, first_of(left), "written while it is read");
    }
    p->written |= words;
}
static void write_ends(struct sim *s, int node, struct echi_slot slot, uint32_t words) { place(s, node, slot)->written &= ~words; }
/* A payload has come, or will not: of a slot that borrows already this is about its own place. */
static void post_ends(struct sim *s, int node, const struct posted *p) {
    if (p->writes) own_place(s, node, p->slot)->written &= ~words_from(p->first, p->end);
}

/* ---- shards ---- */

/* The first of them that a node owns, and all, by that node's plan. */
static int shard_of(const struct sim *s, int node) { return echi_plan_shard_owned(&s->node[node].setup.plan, node); }
static uint8_t shards_of(const struct sim *s, int node) { return (uint8_t)echi_plan_shards_of(&s->node[node].setup.plan, node); }
static int parts_of(const struct sim *s) { return s->parts; }
static void part_words(const struct sim *s, int part, int *first, int *end) {
    *first = (int)s->plan.parts.part[part].at;
    *end = *first + (int)s->plan.parts.part[part].count;
}
static uint32_t words_of_part(const struct sim *s, int part) {
    int first, end;
    part_words(s, part, &first, &end);
    return words_from(first, end);
}
/* Of the trunk the words that the node owns, and those of them that an owner's task is about. */
static uint32_t words_owned(const struct sim *s, int node) {
    uint32_t words = 0;
    for (int i = 0, parts = parts_of(s); i < parts; i++)
        if (echi_plan_owns_part(&s->node[node].setup.plan, node, i)) words |= words_of_part(s, i);
    return words;
}
static uint32_t words_of_task(const struct sim *s, int node, const struct echi_task *t) {
    if (t->only == 0) return words_owned(s, node);
    return echi_plan_owns_part(&s->node[node].setup.plan, node, t->only - 1) ? words_of_part(s, t->only - 1) : 0;
}
static bool same_words(uint32_t words, const uint32_t *a, const uint32_t *b) {
    for (; words; words = but_first(words))
        if (a[first_of(words)] != b[first_of(words)]) return false;
    return true;
}
static bool same_owned(const struct sim *s, int node, const uint32_t *a, const uint32_t *b) {
    return same_words(words_owned(s, node), a, b);
}

#include "toy_codec.h"
#include "toy_norm.h"

/* A round's sum takes the place of its first push, and leaves that push's slot with nothing that anybody may count on. */
static bool takes_first(const struct sim *s, const struct echi_task *t) {
    return t->kind == ECHI_TASK_ADD && t->first && !t->only && s->plan.codec == ECHI_CODEC_DENSE;
}

/* Of a worker's weights the words in front of those that its task may not read yet. */
static int cut_to(const struct sim *s, const struct echi_task *t) { return (t->until > 0 ? t->until : cut_of(s)) * WORDS; }

/* Else its rows have come again, and are answered alone. */
static bool head_trains(const struct echi_task *t) { return t->weights_out.kind || t->state.kind; }

static bool in_place(const struct echi_task *t) {
    return t->kind == ECHI_TASK_APPLY && t->weights.kind == t->weights_out.kind && t->weights.index == t->weights_out.index;
}

/* Of a worker in a ring: a part of its gradients goes into the sum that has come. */
static bool adds_to_ring(const struct echi_task *t) { return t->kind == ECHI_TASK_ADD && t->role == ECHI_ROLE_WORKER; }

/* Gradients of a worker are there layer by layer, with the last micro-batch. */
static bool is_layered(const struct echi_task *t) {
    return t->kind == ECHI_TASK_STEP || (t->kind == ECHI_TASK_BACKWARD && t->micro + 1 == t->micros);
}

/* What a task reads and writes, and which words of it; gradients of a worker are let go layer by layer, not here. */
static void touch(struct sim *s, int node, const struct echi_task *t, bool begins) {
    void (*reads)(struct sim *, int, struct echi_slot, uint32_t) = begins ? read_begins : read_ends;
    void (*writes)(struct sim *, int, struct echi_slot, uint32_t) = begins ? write_begins : write_ends;
    const uint32_t one = words_from(0, 1), all = words_from(0, PARAMS), trunk = words_from(0, cut_of(s) * WORDS);
    const uint32_t head = words_from(CUT * WORDS, PARAMS);
    int first, end;
    layers_of(s, t, &first, &end);
    const uint32_t grads = words_from(first * WORDS, end * WORDS);   /* of a worker */
    const bool owners = t->kind == ECHI_TASK_ADD || t->kind == ECHI_TASK_APPLY || t->kind == ECHI_TASK_REFRESH || t->kind == ECHI_TASK_TAKE;
    const uint32_t owned = owners && !adds_to_ring(t) ? words_of_task(s, node, t) : 0;
    if (t->norm.kind) reads(s, node, t->norm, one);
    if (t->sums.kind) writes(s, node, t->sums, one);
    const struct echi_slot w0 = {ECHI_SLOT_OWNER_W0, 0};
    const struct echi_slot momentum = {ECHI_SLOT_OWNER_MOMENTUM, 0}, head_momentum = {ECHI_SLOT_HEAD_MOMENTUM, 0};
    switch ((enum echi_task_kind)t->kind) {
    case ECHI_TASK_STEP:
        reads(s, node, t->weights, words_from(0, cut_to(s, t)));
        if (t->until > 0) break;
        if (t->coded.kind) writes(s, node, t->state, grads);
        if (begins) writes(s, node, t->grads, grads);
        if (begins && t->coded.kind) writes(s, node, t->coded, grads);
        break;
    case ECHI_TASK_NORM:
        for (int i = 0; i < t->n_rows; i++) reads(s, node, (struct echi_slot){ECHI_SLOT_OWNER_NORM, t->rows[i]}, one);
        break;
    case ECHI_TASK_ENCODE:
        reads(s, node, t->weights, trunk);
        writes(s, node, t->state, trunk);
        writes(s, node, t->coded, trunk);
        break;
    case ECHI_TASK_DECODE:
        reads(s, node, t->coded, trunk);
        writes(s, node, t->state, trunk);
        if (t->weights_out.kind) writes(s, node, t->weights_out, trunk);
        break;
    case ECHI_TASK_FORWARD:
        reads(s, node, t->weights, words_from(0, cut_to(s, t)));
        if (t->until == 0) writes(s, node, t->act, one);
        break;
    case ECHI_TASK_BACKWARD:
        reads(s, node, t->weights, trunk);
        reads(s, node, t->act, one);
        if (t->coded.kind) writes(s, node, t->state, grads);
        if (t->own.kind) writes(s, node, t->own, grads);
        if (begins || !is_layered(t)) writes(s, node, t->grads, grads);
        if (begins && t->coded.kind) writes(s, node, t->coded, grads);
        break;
    case ECHI_TASK_HEAD:
        reads(s, node, t->weights, head);
        writes(s, node, t->grads, head);
        if (t->weights_out.kind) {
            writes(s, node, t->weights_out, head);
            writes(s, node, head_momentum, head);
        }
        if (t->state.kind) writes(s, node, t->state, head);
        if (!begins && head_trains(t)) break;   /* the rows were let go when their gradients were there */
        for (int i = 0; i < t->n_rows; i++) {
            reads(s, node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, t->rows[i]}, one);
            writes(s, node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, t->rows[i]}, one);
        }
        break;
    case ECHI_TASK_HEAD_APPLY:
        reads(s, node, t->weights, head);
        (t->n_rows ? writes : reads)(s, node, t->grads, head);
        for (int i = 0; i < t->n_rows; i++) reads(s, node, (struct echi_slot){ECHI_SLOT_HEAD_SUM, t->rows[i]}, head);
        writes(s, node, t->weights_out, head);
        writes(s, node, head_momentum, head);
        break;
    case ECHI_TASK_ADD:
        if (adds_to_ring(t)) {
            reads(s, node, t->grads, words_of_part(s, t->only - 1));
            writes(s, node, t->state, words_of_part(s, t->only - 1));
            break;
        }
        if (t->grads.kind) (takes_first(s, t) ? writes : reads)(s, node, t->grads, owned);
        for (int i = 0; i < t->n_rows; i++) reads(s, node, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, t->rows[i]}, owned);
        if (t->ring.kind) reads(s, node, t->ring, owned);
        writes(s, node, t->state, owned);
        break;
    case ECHI_TASK_APPLY:
    case ECHI_TASK_REFRESH:
        if (t->kind == ECHI_TASK_APPLY) {
            if (!in_place(t)) reads(s, node, t->weights, owned);
            for (int i = t->grads.kind == ECHI_SLOT_OWNER_GRADS; i < t->n_rows; i++)   /* the sum may lie where the first of them is */
                reads(s, node, (struct echi_slot){ECHI_SLOT_OWNER_GRADS, t->rows[i]}, owned);
            if (t->ring.kind) reads(s, node, t->ring, owned);
            (t->only ? writes : reads)(s, node, t->grads, owned);
            writes(s, node, momentum, owned);
        }
        if (t->state.kind) {
            reads(s, node, w0, trunk);
            reads(s, node, t->state, trunk);
            for (int g = 0; g < s->plan.n_groups; g++)
                if (t->peer[g] != ECHI_NONE) reads(s, node, (struct echi_slot){ECHI_SLOT_OWNER_PEER, t->peer[g]}, trunk);
        }
        if (in_place(t) && !begins) write_begins(s, node, t->weights_out, owned);   /* it does not while it waits for its turn */
        if (!in_place(t) || !begins) writes(s, node, t->weights_out, owned);
        if (t->state_out.kind) writes(s, node, t->state_out, trunk);
        break;
    case ECHI_TASK_TAKE:
        if (t->only) reads(s, node, t->weights, owned);
        if (t->only) writes(s, node, t->weights_out, owned);
        writes(s, node, momentum, owned);
        break;
    case ECHI_TASK_STATE:
        reads(s, node, t->weights, trunk);
        writes(s, node, t->state_out, trunk);
        break;
    case ECHI_TASK_EVAL: reads(s, node, t->weights, all); break;
    case ECHI_TASK_KEEP:
        for (int i = 0; i <= s->plan.n_groups; i++) reads(s, node, (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)i}, all);
        break;
    case ECHI_TASK_LOCAL_APPLY:
        reads(s, node, t->grads, trunk);
        writes(s, node, t->weights, trunk);
        writes(s, node, t->state, trunk);
        break;
    case ECHI_TASK_LOCAL_DELTA:
        reads(s, node, t->weights, trunk);
        writes(s, node, t->state, trunk);
        writes(s, node, t->grads, trunk);
        break;
    case ECHI_TASK_LOCAL_JOIN:
        reads(s, node, t->weights, trunk);
        writes(s, node, t->weights_out, trunk);
        writes(s, node, t->state_out, trunk);
        break;
    case ECHI_TASKS: break;
    }
}

/* ---- messages ---- */

static bool of_ring(int kind) { return kind == ECHI_KIND_RING_SUM || kind == ECHI_KIND_RING_WEIGHTS; }
static bool by_part(const struct sim *s, int kind) {
    return kind == ECHI_KIND_PUSH || of_ring(kind) || (kind == ECHI_KIND_WEIGHTS && !is_coded(s));
}
/* Words [*first, *end) of a slot that a message is about ([0, 1) stands for rows), and where its own lie: a codec writes them otherwise. */
static void extent(const struct sim *s, int kind, const struct echi_msg *m, bool head, int *first, int *end, int *at,
                   int *words) {
    *first = 0;
    *end = cut_of(s) * WORDS;
    if (by_part(s, kind) || echi_msg_of_shard(m, &s->plan)) part_words(s, m->part, first, end);
    if (kind == ECHI_KIND_PARAMS && m->flag == ECHI_PARAMS_FINAL) *end = PARAMS;
    else if ((kind == ECHI_KIND_PARAMS && head) || kind == ECHI_KIND_HEAD_SUM || kind == ECHI_KIND_HEAD_COPY) {
        *first = CUT * WORDS;
        *end = PARAMS;
    }
    *at = *first;
    *words = *end - *first;
    if (coded_kind(s, kind)) {
        *at = *first / WORDS * CODED;
        *words = (*end - *first) / WORDS * CODED + (kind != ECHI_KIND_PUSH);
    }
    if (kind == ECHI_KIND_ACT || kind == ECHI_KIND_ACT_GRAD) {
        *end = 1;
        *words = (int)m->lease.n * (kind == ECHI_KIND_ACT ? 2 : 1);
    }
    if (kind == ECHI_KIND_NORM || kind == ECHI_KIND_NORM_ALL) {
        *end = 1;
        *words = NORM_WORDS;
    }
}

static struct channel *channel(struct sim *s, int to, int from, int kind) {
    static int numbered, number[ECHI_KINDS];   /* of the kinds with a payload, from 1 */
    if (!numbered)
        for (int k = 0; k < ECHI_KINDS; k++)
            if (echi_kind_has_payload(k)) number[k] = ++numbered;
    CHECK(s, number[kind] >= 1 && number[kind] <= PAYLOADS);
    return &s->node[to].channel[from][number[kind] - 1];
}

static struct message *new_message(struct sim *s, int from, int to, int kind) {
    struct message *m;
    if (s->unused != NOBODY) {
        m = &s->pool[s->unused];
        s->unused = m->next;
    } else {
        CHECK(s, s->pooled < MESSAGES);
        m = &s->pool[s->pooled++];
    }
    m->from = (uint16_t)from;
    m->to = (uint16_t)to;
    m->kind = (uint8_t)kind;
    m->refs = 1;
    m->words = 0;
    m->going = m->dropped = m->left = false;
    m->next = NOBODY;
    return m;
}
static int index_of(const struct sim *s, const struct message *m) { return (int)(m - s->pool); }
/* One of its two events has come, or never will. */
static void let_go(struct sim *s, struct message *m) {
    if (--m->refs) return;
    m->next = s->unused;
    s->unused = (uint16_t)index_of(s, m);
}

static bool linked(const struct sim *s, int a, int b) { return !s->node[a].dead && !s->node[b].dead && !s->node[a].cut[b]; }

/* Parts have places of their own (echi_msg_name), and so has a head's copy. */
static int name_of(const struct sim *s, int kind, int first) {
    return by_part(s, kind) || kind == ECHI_KIND_PARAMS ? first : 0;
}

static void leaves(struct sim *s, struct message *m) {
    if (!m->left) read_ends(s, m->from, m->slot, words_from(m->first, m->end));
    m->left = true;
}

static struct message *queue_message(struct sim *s, int from, int to, int kind, int name) {
    struct message *m = new_message(s, from, to, kind);
    /* Rank 0's commands to a node are equally urgent, and a link gives the older of equals first. */
    const bool commands = kind == ECHI_KIND_HOLD || kind == ECHI_KIND_RELEASE || kind == ECHI_KIND_LOST || kind == ECHI_KIND_REGROUP ||
                          kind == ECHI_KIND_TAKEOVER || kind == ECHI_KIND_HEADS || kind == ECHI_KIND_END;
    int64_t *last = &s->node[from].last_due[to][commands ? ECHI_KIND_PLAN : kind][name];
    m->due = s->now + travel(s, from, to, echi_kind_has_payload(kind) ? 30 : 10);
    if (m->due <= *last) m->due = *last + 1;
    *last = m->due;
    return m;
}
/* One that waited for its place does not overtake one before it that a wall or a pause keeps back. */
static void send_plain(struct sim *s, struct message *m) { due_at(s, m->due > s->now ? m->due : s->now, DUE_MESSAGE, index_of(s, m), 0); }

static void send_body(struct sim *s, int from, int to, int kind, enum echi_role role, const uint8_t *body, size_t len) {
    if (!linked(s, from, to)) return;
    struct message *m = queue_message(s, from, to, kind, 0);
    m->meta[0] = (uint8_t)role;
    m->meta[1] = ECHI_ROLE_NODE;
    CHECK(s, 2 + len <= sizeof m->meta);
    if (len) memcpy(m->meta + 2, body, len);
    m->meta_len = 2 + len;
    send_plain(s, m);
}

/* So many of a name are on their way: the place of the last of them is written. */
static void begin_writing(struct sim *s, int node, struct channel *c, int name, int going) {
    int its = -1;
    for (int count = 0; count < going;) count += c->post[++its].name == name;
    struct posted *p = &c->post[its];
    if (!p->writes) write_begins(s, node, p->slot, words_from(p->first, p->end));
    p->writes = true;
}

/* Payloads whose place is there are on their way; from now on their SENT may come, before or after the message. */
static void set_going(struct sim *s, struct channel *c) {
    uint16_t before = NOBODY;
    for (uint16_t at = c->waits, next; at != NOBODY; at = next) {
        struct message *m = &s->pool[at];
        const int name = name_of(s, m->kind, m->first);
        int places = -c->going[name];
        next = m->next;
        for (int i = 0; i < c->posts; i++) places += c->post[i].name == name;
        if (places <= 0) {
            before = at;
            continue;
        }
        if (before == NOBODY) c->waits = next;
        else s->pool[before].next = next;
        if (c->last == at) c->last = before;
        c->going[name]++;
        m->going = true;
        begin_writing(s, m->to, c, name, c->going[name]);
        send_plain(s, m);
        if (!echi_lends(&s->plan, m->from, m->to, (enum echi_kind)m->kind)) due_at(s, after(s, 30), DUE_SENT, index_of(s, m), 0);
    }
}

static void send_payload(struct sim *s, int node, const struct echi_action *a) {
    int first, end, at, words;
    extent(s, a->kind, &a->msg, a->msg.to_role == ECHI_ROLE_HEAD || a->msg.from_role == ECHI_ROLE_HEAD, &first, &end, &at, &words);
    const bool comes_back = !linked(s, node, a->to);   /* nobody reads it */
    const int name = name_of(s, a->kind, first);
    struct message *m = comes_back ? new_message(s, node, a->to, a->kind) : queue_message(s, node, a->to, a->kind, name);
    CHECK(s, words > 0 && words <= ROOM);
    m->role = a->msg.from_role;
    m->slot = a->slot;
    m->first = (uint8_t)first;
    m->end = (uint8_t)end;
    m->words = words;
    read_begins(s, node, a->slot, words_from(first, end));
    if (comes_back) {
        m->dropped = m->going = true;
        return due_at(s, after(s, 30), DUE_SENT, index_of(s, m), 0);
    }
    m->refs = 2;
    m->answer = s->answers[a->to];
    m->holds = 1 + (uint32_t)place(s, node, a->slot)->holds;
    if (of_ring(a->kind) && m->role == ECHI_ROLE_WORKER) m->holds = own_place(s, node, a->slot)->of[first];   /* handed on */
    m->meta_len = echi_msg_encode(&a->msg, m->meta, sizeof m->meta);
    CHECK(s, m->meta_len > 0);
    memcpy(m->word, place(s, node, a->slot)->word + at, (size_t)words * sizeof m->word[0]);
    struct channel *c = channel(s, a->to, node, a->kind);
    m->next = NOBODY;
    if (c->waits == NOBODY) c->waits = (uint16_t)index_of(s, m);
    else s->pool[c->last].next = (uint16_t)index_of(s, m);
    c->last = (uint16_t)index_of(s, m);
    set_going(s, c);
}

static void send_action(struct sim *s, int node, const struct echi_action *a) {
    CHECK(s, a->to < s->plan.world && a->kind == a->msg.kind);
    watch_send(s, node, a);
    if (echi_kind_has_payload(a->kind)) return send_payload(s, node, a);
    if (!linked(s, node, a->to)) return;
    /* No run here gives a node a reason to complain but of what it cannot reach. */
    if (a->kind == ECHI_KIND_FAULT && a->msg.layer != ECH_E_PEER_LOST) die(s, MUST_FAULT, a->msg.text);
    for (int times = 1 + comes_twice(s, &a->msg); times > 0; times--) {
        struct message *m = queue_message(s, node, a->to, a->kind, 0);
        m->meta_len = echi_msg_encode(&a->msg, m->meta, sizeof m->meta);
        CHECK(s, m->meta_len > 0);
        send_plain(s, m);
    }
}

/* Takes a message back that will not arrive; its sender, where it lives, gets the slot. */
static void drop(struct sim *s, struct message *m) {
    m->dropped = true;
    if (m->words == 0) return;   /* it is let go when it would have arrived */
    struct channel *c = channel(s, m->to, m->from, m->kind);
    if (m->going) {
        c->going[name_of(s, m->kind, m->first)]--;
        return;
    }
    const uint16_t self = (uint16_t)index_of(s, m);
    uint16_t before = NOBODY;
    for (uint16_t i = c->waits; i != self; i = s->pool[i].next) before = i;
    if (before == NOBODY) c->waits = m->next;
    else s->pool[before].next = m->next;
    if (c->last == self) c->last = before;
    m->going = true;
    due_at(s, after(s, 30), DUE_SENT, self, 0);
    let_go(s, m);
}

/* From now on the slot stands for the memory that the message was sent from, where nothing has changed since. */
static void begin_loan(struct sim *s, const struct message *m, struct echi_slot borrower) {
    struct place *own = own_place(s, m->to, borrower);
    CHECK(s, own->n_lent < PARAMS);
    own->lent[own->n_lent++] = (uint16_t)index_of(s, m);
    echi_loans_begin(&s->node[m->to].role.loans, (enum echi_kind)m->kind, borrower, m->slot);
}
/* A slot is posted: what it has borrowed comes back, some time later. */
static void end_loan(struct sim *s, int node, struct echi_slot posted) {
    struct place *own = own_place(s, node, posted);
    const struct echi_loan ended = echi_loans_end(&s->node[node].role.loans, posted);
    CHECK(s, ended.messages <= own->n_lent);
    for (int i = 0; i < ended.messages; i++) {
        const struct echi_slot from = s->pool[own->lent[i]].slot;
        CHECK(s, from.kind == ended.lender.kind && from.index == ended.lender.index);
        due_at(s, after(s, 30), DUE_SENT, own->lent[i], 0);
    }
    own->n_lent = 0;
}

static void post_one(struct sim *s, int node, const struct echi_action *a, enum echi_role role, int first, int end) {
    const bool writes = !in_weights(s, a->slot);
    if (s->node[node].role.gone[a->to]) return;
    if (writes) write_begins(s, node, a->slot, words_from(first, end));
    struct channel *c = channel(s, node, a->to, a->kind);
    CHECK(s, c->posts < POSTS);
    c->post[c->posts++] = (struct posted){a->slot, (uint8_t)role, (uint8_t)first, (uint8_t)end, (uint8_t)name_of(s, a->kind, first),
                                          writes};
    set_going(s, c);
}
static void post_by_part(struct sim *s, int node, const struct echi_action *a, enum echi_role role) {
    const struct echi_setup *setup = &s->node[node].setup;
    for (int i = 0, first, end; i < echi_posts(setup, a); i++) {
        part_words(s, echi_posts_part(setup, a, i), &first, &end);
        post_one(s, node, a, role, first, end);
    }
}
/* A part of a shard, all of the head, or all of the trunk. */
static void post_copy(struct sim *s, int node, const struct echi_action *a) {
    int first = 0, end = cut_of(s) * WORDS;
    if (a->only) part_words(s, a->only - 1, &first, &end);
    if (first >= cut_of(s) * WORDS) end = PARAMS;
    post_one(s, node, a, ECHI_ROLE_COORDINATOR, first, end);
}
static void post_action(struct sim *s, int node, const struct echi_action *a) {
    const int cut = cut_of(s) * WORDS;
    end_loan(s, node, a->slot);
    switch (a->slot.kind) {
    case ECHI_SLOT_OWNER_GRADS: post_by_part(s, node, a, ECHI_ROLE_OWNER); break;
    case ECHI_SLOT_WORKER_WEIGHTS: post_by_part(s, node, a, ECHI_ROLE_WORKER); break;
    case ECHI_SLOT_RING:
        post_by_part(s, node, a, echi_plan_owns_part(&s->plan, node, a->only - 1) ? ECHI_ROLE_OWNER : ECHI_ROLE_WORKER);
        break;
    case ECHI_SLOT_HEAD_ROWS: post_one(s, node, a, ECHI_ROLE_HEAD, 0, 1); break;
    case ECHI_SLOT_HEAD_MOMENTUM:
    case ECHI_SLOT_HEAD_SUM:
    case ECHI_SLOT_HEAD_WEIGHTS: post_one(s, node, a, ECHI_ROLE_HEAD, cut, PARAMS); break;
    case ECHI_SLOT_WORKER_NORM_ALL: post_one(s, node, a, ECHI_ROLE_WORKER, 0, 1); break;
    case ECHI_SLOT_OWNER_NORM: post_one(s, node, a, ECHI_ROLE_OWNER, 0, 1); break;
    case ECHI_SLOT_WORKER_ACT_GRAD: post_one(s, node, a, ECHI_ROLE_WORKER, 0, 1); break;
    case ECHI_SLOT_WORKER_COMING: post_one(s, node, a, ECHI_ROLE_WORKER, 0, cut); break;
    case ECHI_SLOT_COORD_PARAMS: post_copy(s, node, a); break;
    case ECHI_SLOT_NODE_FINAL: post_one(s, node, a, ECHI_ROLE_NODE, 0, PARAMS); break;
    default: post_one(s, node, a, ECHI_ROLE_OWNER, 0, cut); break;
    }
}

/* ---- checkpoints ---- */

/* Where the driver puts a part that has come to the coordinator. */
static struct echi_slot place_of(struct sim *s, int from, const struct echi_msg *m) {
    if (m->flag == ECHI_PARAMS_PART)   /* the worker of rank 0 may still write the first */
        return (struct echi_slot){ECHI_SLOT_COORD_PARAMS, m->from_role == ECHI_ROLE_WORKER && evaluates_own(s)};
    if (m->flag == ECHI_PARAMS_KEPT) return (struct echi_slot){ECHI_SLOT_COORD_KEPT, 0};
    CHECK(s, m->flag == ECHI_PARAMS_MOMENTUM);
    const int g = m->from_role == ECHI_ROLE_HEAD ? 0 : echi_plan_group_owned(&s->plan, from);
    return (struct echi_slot){ECHI_SLOT_COORD_KEPT, (uint8_t)(1 + g)};
}

static void begin_keep(struct sim *s, const struct echi_task *t) {
    const struct echi_coordinator *c = &s->coordinator;
    const size_t words = (size_t)cut_of(s) * WORDS;
    if (t->weights.kind != ECHI_SLOT_COORD_KEPT) {   /* of these weights, and nothing else */
        memcpy(place_at(s, 0, ECHI_SLOT_COORD_KEPT, 0)->word, place(s, 0, t->weights)->word, PARAMS * 4);
        for (int g = 0; g < s->plan.n_groups; g++) memset(place_at(s, 0, ECHI_SLOT_COORD_KEPT, 1 + g)->word, 0, PARAMS * 4);
    }
    struct kept *k = &s->writing;
    *k = (struct kept){.there = true, .coded = is_coded(s) || s->from.coded, .at = c->standing, .groups = s->plan.n_groups,
                        .resets = s->resets};
    for (int g = 0; g < k->groups; g++)   /* the driver's part: the momentum of a lost owner is lost with it */
        if (!echi_plan_group_lives(&c->plan, g)) memset(place_at(s, 0, ECHI_SLOT_COORD_KEPT, 1 + g)->word, 0, words * 4);
    for (int i = 0; i <= k->groups; i++) memcpy(k->word[i], place_at(s, 0, ECHI_SLOT_COORD_KEPT, i)->word, sizeof k->word[i]);
    if (c->phase != ECHI_RUN_RESCUES) watch_keep(s, k);
}

static void end_keep(struct sim *s, struct echi_result *result) {
    result->kept = below(s, 8) != 0;   /* else the disk was full */
    if (!result->kept) return;
    s->kept = s->writing;
    s->keeps++;
}

/* The momentum of a checkpoint for the groups of the plan: the sum over all groups stays what it was. */
static void share_momentum(struct sim *s) {
    for (int from = 0; from < s->from.groups; from++)
        for (int i = 0; i < PARAMS; i++) {
            const int groups = i >= cut_of(s) * WORDS ? 1 : s->plan.n_groups;
            place_at(s, 0, ECHI_SLOT_COORD_KEPT, 1 + (from < groups ? from : 0))->word[i] += s->from.word[1 + from][i];
        }
}

/* ---- roles ---- */

static int new_work(struct sim *s) {
    int i = 0;
    while (i < TASKS && s->work_used[i]) i++;
    CHECK(s, i < TASKS);
    return i;
}

static void compute(struct sim *s, int node, const struct echi_task *t) {
    const int at = new_work(s);
    s->work_used[at] = true;
    struct work *w = &s->work[at];
    w->node = (uint16_t)node;
    w->task = *t;
    layers_of(s, t, &(int){0}, &w->layer);
    memset(&w->result, 0, offsetof(struct echi_result, accuracy));
    watch_begins(s, node, t);
    touch(s, node, t, true);
    if (s->counts) s->counts->task[t->kind]++;
    if (t->kind == ECHI_TASK_KEEP) begin_keep(s, t);
    due_at(s, after(s, s->node[node].speed), DUE_WORK, at, 0);
}

static void perform(struct sim *s, int node, const struct echi_actions *list);

static bool hosts(const struct node *n, enum echi_role role) {
    switch (role) {
    case ECHI_ROLE_COORDINATOR: return n->role.coordinator != NULL;
    case ECHI_ROLE_WORKER: return n->role.worker != NULL;
    case ECHI_ROLE_OWNER: return n->role.owner != NULL;
    case ECHI_ROLE_HEAD: return n->role.head != NULL;
    default: return true;
    }
}

/* Workers that have moved hold up their old owner no more, from when that owner is told. */
static void note_moved(struct sim *s, int node) {
    const struct node *n = &s->node[node];
    for (int r = 0; r < s->plan.world && n->role.owner; r++)
        if (s->knower[r] == 1u + (uint32_t)node && !n->owner.view[r].member && !n->setup.plan.lost[r]) note_left(s, r);
}

static void tell_node(struct sim *s, int node, enum echi_event_type type, int from);

static void role_event(struct sim *s, int node, enum echi_role role, struct echi_event *e) {
    struct echi_actions list = {s->action, 0, ACTIONS, false};
    struct node *n = &s->node[node];
    e->now = clock_of(s, node);
    if (!hosts(n, role)) die(s, MUST_DRIVER, "an event for a role that is not here");
    if (!echi_node_role_step(&n->role, role, e, &list)) return;
    if (s->watch) s->watch(s, node, role, e, &list);
    perform(s, node, &list);
    if (role == ECHI_ROLE_NODE) note_moved(s, node);
    if (node == 0 && s->coordinator.wake_at && !s->timer) {
        s->timer = true;
        due_at(s, s->now + 1 + s->goal.collect, DUE_TIME, 0, 0);
    }
    if (node == 0 && (role == ECHI_ROLE_COORDINATOR || role == ECHI_ROLE_NODE)) {
        settle_cuts(s);
        watch_coordinator(s, e);
    }
    MUST(s, STATE, !s->owes_ack);   /* acknowledgements are never held back */
    if (!n->measures) return;
    n->measures = false;
    tell_node(s, node, ECHI_EVENT_MEASURED, 0);
}

static void tell_node(struct sim *s, int node, enum echi_event_type type, int from) {
    struct echi_event e = {.type = (uint8_t)type, .from = (uint16_t)from};
    role_event(s, node, ECHI_ROLE_NODE, &e);
}

/* Of the node role two messages have a body that is its driver's. */
static void send_measured(struct sim *s, int node) {
    struct echi_times times = {.count = 2, .n = {1, 16}};
    uint8_t body[ECHI_TIMES_BYTES_MAX];
    for (int i = 0; i < 2; i++) {
        times.trunk[i] = (4 + times.n[i]) * 1e-4 * s->node[node].speed;
        times.head[i] = times.trunk[i] / 8;
    }
    send_body(s, node, 0, ECHI_KIND_MEASURED, ECHI_ROLE_COORDINATOR, body, echi_times_encode(&times, body, sizeof body));
}

static void send_plan(struct sim *s, int node) {
    uint8_t body[META - 2];
    s->plan = s->node[node].setup.plan;
    s->parts = echi_parts_before(&s->plan.parts, cut_of(s));
    if (s->goal.resumed) share_momentum(s);
    watch_plan(s);
    const size_t len = echi_plan_encode(&s->plan, body, sizeof body);
    CHECK(s, len > 0);
    for (int r = 0; r < s->plan.world; r++) send_body(s, 0, r, ECHI_KIND_PLAN, ECHI_ROLE_NODE, body, len);
}

/* What is under way goes on until no task runs: to the end of a unit, which may be the next. */
static void hold(struct sim *s, int node) {
    CHECK(s, !s->node[node].holding);
    s->node[node].holding = true;
    due_at(s, below(s, 2) ? s->now : after(s, 40), DUE_ANSWER, node, ECHI_EVENT_HELD);
}

static void release(struct sim *s, int node) {
    struct node *n = &s->node[node];
    n->holding = n->held = false;
    while (n->n_stalled > 0) due_at(s, s->now, DUE_WORK, n->stalled[--n->n_stalled], 0);
}

static void drop_peer(struct sim *s, int node, int peer);
static void end_node(struct sim *s, int rank);

static void perform(struct sim *s, int node, const struct echi_actions *list) {
    CHECK(s, !list->overflow);
    for (int i = 0; i < list->count; i++) {
        const struct echi_action *a = &list->list[i];
        switch ((enum echi_action_type)a->type) {
        case ECHI_ACTION_SEND:
            if (a->kind == ECHI_KIND_MEASURED) send_measured(s, node);
            else send_action(s, node, a);
            break;
        case ECHI_ACTION_POST: post_action(s, node, a); break;
        case ECHI_ACTION_COMPUTE: compute(s, node, &a->task); break;
        case ECHI_ACTION_PLAN: send_plan(s, node); break;
        case ECHI_ACTION_FAULT: die(s, MUST_FAULT, a->msg.text); break;
        case ECHI_ACTION_DONE: s->done = true; break;
        case ECHI_ACTION_MEASURE: s->node[node].measures = true; break;
        case ECHI_ACTION_SLOTS:   /* at once, or they take their time */
            due_at(s, below(s, 2) ? s->now : after(s, below(s, 2) || !s->node[node].role.planned ? 100 : 3000), DUE_ANSWER, node,
                   ECHI_EVENT_SLOTS);
            break;
        case ECHI_ACTION_HOLD: hold(s, node); break;
        case ECHI_ACTION_RELEASE: release(s, node); break;
        case ECHI_ACTION_DROP: drop_peer(s, node, a->to); break;
        case ECHI_ACTION_FINAL:
            memcpy(s->node[node].final, place_at(s, node, ECHI_SLOT_NODE_FINAL, 0)->word, sizeof s->node[node].final);
            break;
        case ECHI_ACTION_LEAVE: break;
        }
    }
}

static void stand(struct sim *s, int node) {
    struct node *n = &s->node[node];
    const struct echi_plan *p = &n->setup.plan;
    n->setup.rank = node;
    n->setup.n_layers = LAYERS;
    n->setup.cut = cut_of(s);
    n->setup.cut_width = 1;
    set_norms(s, &n->setup);
    if (echi_plan_hosts(p, node, ECHI_ROLE_WORKER)) n->role.worker = &n->worker;
    if (echi_plan_hosts(p, node, ECHI_ROLE_OWNER)) n->role.owner = &n->owner;
    if (echi_plan_hosts(p, node, ECHI_ROLE_HEAD)) n->role.head = &n->head;
    if (s->watch) s->watch(s, node, ECHI_ROLE_NODE, NULL, NULL);
}

/* A node that is to have a copy of the head's layers has memory for it, or has none. */
static bool refuses_head(struct sim *s, int node) {
    static struct echi_plan next;
    struct node *n = &s->node[node];
    echi_node_role_next(&n->role, &next);
    if (!n->role.planned || n->role.head || next.coming != 1 + node) return false;
    const bool refuses = below(s, 8) == 0;
    if (!refuses) n->role.head = &n->head;
    if (s->counts) s->counts->refused += refuses;
    return refuses;
}

static void answer(struct sim *s, int node, enum echi_event_type type) {
    struct node *n = &s->node[node];
    if (type == ECHI_EVENT_HELD) {
        if (!n->holding) return;   /* released meanwhile */
        n->held = true;
    }
    if (type == ECHI_EVENT_SLOTS && !n->role.planned) stand(s, node);
    struct echi_event e = {.type = (uint8_t)type, .flag = type == ECHI_EVENT_SLOTS && refuses_head(s, node)};
    role_event(s, node, ECHI_ROLE_NODE, &e);
}

/* ---- losses ---- */

/* No message passes between the two from now on: of what is under way each side still gets what would have come up to a moment of
 * its own, and what had no place yet goes back. */
static void cut_link(struct sim *s, int a, int b) {
    const int64_t last[2] = {s->now + (below(s, 2) ? below(s, 300) : 0), s->now + (below(s, 2) ? below(s, 300) : 0)};
    s->node[a].cut[b] = s->node[b].cut[a] = true;
    for (int i = 0; i < s->pooled; i++) {
        struct message *m = &s->pool[i];
        if (m->refs == 0 || m->dropped || !((m->from == a && m->to == b) || (m->from == b && m->to == a))) continue;
        if ((m->words && !m->going) || m->due > last[m->to == b]) drop(s, m);
    }
}

/* Its process ends. */
static void end_node(struct sim *s, int rank) {
    for (int r = 0; r < s->plan.world; r++)
        if (r != rank && !s->node[r].cut[rank]) cut_link(s, rank, r);
    for (int i = 0; i < s->pooled; i++)   /* and what it has sent to itself */
        if (s->pool[i].refs && !s->pool[i].dropped && s->pool[i].from == rank && s->pool[i].to == rank) drop(s, &s->pool[i]);
    s->node[rank].dead = true;
}

/* Nothing of it is taken any more: what came from it and waits is dropped, places for it are free. */
static void drop_peer(struct sim *s, int node, int peer) {
    struct node *n = &s->node[node];
    MUST(s, LEDGER, s->node[peer].doomed);
    if (!n->cut[peer]) {
        cut_link(s, node, peer);
        if (!s->node[peer].dead) due_at(s, after(s, 100), node == 0 ? DUE_DEATH : DUE_NOTICE, peer, node);
    }
    for (int i = 0; i < s->pooled; i++)
        if (s->pool[i].refs && !s->pool[i].dropped && s->pool[i].from == peer && s->pool[i].to == node) drop(s, &s->pool[i]);
    for (int k = 0; k < ECHI_KINDS; k++) {
        if (!echi_kind_has_payload(k)) continue;
        struct channel *c = channel(s, node, peer, k);
        for (; c->posts > 0; c->posts--) post_ends(s, node, &c->post[c->posts - 1]);
        memset(c->going, 0, sizeof c->going);
    }
}

/* A link's end is seen by node `by`: `about` cannot be reached. */
static void notice(struct sim *s, int by, int about) { tell_node(s, by, ECHI_EVENT_LOST, about); }

/* It has missed rank 0 for long enough. */
static void miss_rank_0(struct sim *s, int rank) {
    tell_node(s, rank, ECHI_EVENT_LOST, 0);
    MUST(s, WAIT, s->node[rank].role.over);
    end_node(s, rank);
}

/* It will be lost, or may be. */
static void doom(struct sim *s, int rank) {
    s->node[rank].doomed = true;
    s->node[rank].doomed_early = s->coordinator.phase < ECHI_RUN_TRAINS;
    s->killed++;
    const struct echi_plan *p = s->coordinator.phase == ECHI_RUN_MEASURES ? &s->node[0].setup.plan : &s->coordinator.plan;
    if (echi_plan_group_owned(&s->coordinator.plan, rank) >= 0 && !echi_plan_has_heir_of(p, rank)) s->owner_killed = true;
}

/* A node is gone from one moment to the next. The coordinator sees it some time later, or is told by another node. */
static void kill_node(struct sim *s, int rank) {
    doom(s, rank);
    end_node(s, rank);
    due_at(s, after(s, below(s, 2) ? 20 : 1000), DUE_NOTICE, 0, rank);
    const int other = (int)below(s, s->plan.world);
    if (below(s, 3) == 0 && linked(s, other, 0)) notice(s, other, rank);
}

/* A rank whose loss is survived, of those that live; -1: there is none now. */
static int victim(struct sim *s, int wanted) {
    const enum echi_run_phase phase = s->coordinator.phase;
    struct echi_plan plan = phase == ECHI_RUN_MEASURES ? s->node[0].setup.plan : s->coordinator.plan;
    const bool made = phase > ECHI_RUN_MEASURES || s->plan_given;   /* else there is no plan yet in which it could matter */
    if (phase == ECHI_RUN_ENDED) return -1;
    plan.world = s->plan.world;
    for (int r = 0; r < plan.world; r++)
        if (s->node[r].doomed && !plan.lost[r]) echi_plan_lose(&plan, r);
    const uint32_t first = wanted >= 0 ? (uint32_t)wanted : below(s, plan.world);
    for (uint32_t i = 0; i < (wanted >= 0 ? 1u : plan.world); i++) {
        const int r = (int)((first + i) % plan.world);
        if (plan.lost[r] || r == 0 || (made && !echi_plan_can_lose(&plan, r))) continue;
        return r;
    }
    return -1;
}

/* ---- messages arrive ---- */

static bool brings_weights(int kind) { return kind == ECHI_KIND_WEIGHTS || kind == ECHI_KIND_RING_WEIGHTS; }

static void deliver(struct sim *s, struct message *m) {
    struct echi_msg msg;
    struct posted post = {0};
    CHECK(s, echi_msg_decode(m->kind, m->meta, m->meta_len, &msg));
    if (m->words) {
        int first, end, at, words;
        struct channel *c = channel(s, m->to, m->from, m->kind);
        const int name = name_of(s, m->kind, m->first);
        int its = 0;
        while (its < c->posts && c->post[its].name != name) its++;
        CHECK(s, its < c->posts);
        post = c->post[its];
        c->posts--;
        memmove(&c->post[its], &c->post[its + 1], (size_t)(c->posts - its) * sizeof c->post[0]);
        c->going[name]--;
        extent(s, m->kind, &msg, msg.to_role == ECHI_ROLE_HEAD || msg.from_role == ECHI_ROLE_HEAD, &first, &end, &at, &words);
        CHECK(s, words == m->words && post.role == msg.to_role && first >= post.first && end <= post.end);
        const bool lent = echi_lends(&s->plan, m->from, m->to, (enum echi_kind)m->kind);
        post_ends(s, m->to, &post);
        if (m->kind == ECHI_KIND_PUSH && in_weights(s, m->slot)) leaves(s, m);
        if (lent) begin_loan(s, m, post.slot);
        struct place *to = place(s, m->to, post.slot);
        if (!lent) memcpy(to->word + at, m->word, (size_t)words * sizeof m->word[0]);
        MUST(s, RACE, memcmp(to->word + at, m->word, (size_t)words * sizeof m->word[0]) == 0);   /* lent: as it was sent */
        struct place *own = own_place(s, m->to, post.slot);
        for (int i = first; i < end && brings_weights(m->kind); i++) own->of[i] = m->holds;
        const bool late = s->coordinator.phase == ECHI_RUN_RESCUES && msg.flag != ECHI_PARAMS_PART;   /* of a checkpoint */
        if (post.slot.kind == ECHI_SLOT_COORD_PARAMS && !late) {   /* the driver puts a part where it belongs */
            const struct echi_slot whole = place_of(s, m->from, &msg);
            const uint32_t owned = msg.from_role == ECHI_ROLE_OWNER ? words_owned(s, m->from) : words_from(0, PARAMS);
            write_begins(s, m->to, whole, words_from(first, end));
            uint32_t *all = place(s, m->to, whole)->word;
            for (int i = 0; i < words; i++)
                if (owned >> (at + i) & 1) all[at + i] = m->word[i];
            write_ends(s, m->to, whole, words_from(first, end));
        }
    }
    if (s->counts) s->counts->kind[m->kind]++;
    struct note *it = note(s, DUE_MESSAGE, m->to, m->from);
    it->role = msg.to_role;
    it->kind = m->kind;
    it->lease = msg.lease.id;
    it->layer = echi_kind_of_part(m->kind) ? msg.part : msg.layer;
    watch_message(s, m, &msg, post.slot);
    struct echi_event e = {.type = ECHI_EVENT_MESSAGE,
                           .from = m->from,
                           .msg = &msg,
                           .bytes = m->meta + 2,
                           .len = m->meta_len - 2,
                           .slot = post.slot};
    role_event(s, m->to, (enum echi_role)msg.to_role, &e);
}

/* ---- tasks ---- */

/* The gradient of one task's rows, and their answers. */
static void run_head(struct sim *s, struct work *w) {
    const struct echi_task *t = &w->task;
    uint32_t *grads = place(s, w->node, t->grads)->word;
    const uint32_t head = fold(place(s, w->node, t->weights)->word, CUT, LAYERS);
    memset(grads, 0, PARAMS * sizeof *grads);
    watch_rows(s, w);
    for (int i = 0; i < t->n_rows; i++) {
        const uint32_t *rows = place_at(s, w->node, ECHI_SLOT_HEAD_ROWS, t->rows[i])->word;
        uint32_t *out = place_at(s, w->node, ECHI_SLOT_HEAD_ROWS_GRAD, t->rows[i])->word;
        for (uint32_t k = 0; k < t->row_count[i]; k++) {
            out[k] = toy_head(head, grads, rows[2 * k], rows[2 * k + 1], t->divisor);
            w->result.loss[i] += loss_of(rows[2 * k + 1]);
        }
    }
    watch_answers(s, w);
    if (!t->state.kind) return;   /* trained in its second half, or not at all */
    uint32_t *sum = place(s, w->node, t->state)->word;
    for (int i = CUT * WORDS; i < PARAMS; i++) sum[i] = (t->first ? 0 : sum[i]) + grads[i];
}

static void add_words(uint32_t *to, const uint32_t *from, uint32_t words) {
    for (; words; words = but_first(words)) to[first_of(words)] += from[first_of(words)];
}
/* Of a part: what has come of it, into the round's sum. */
static void add_rows(struct sim *s, int node, const struct echi_task *t, struct echi_slot to, bool sets) {
    const uint32_t words = words_of_task(s, node, t);
    uint32_t *sum = place(s, node, to)->word, all[PARAMS] = {0};   /* `to` may be one of those that are read */
    if (!sets) add_words(all, sum, words);
    for (int r = 0; r < t->n_rows; r++) add_words(all, place_at(s, node, ECHI_SLOT_OWNER_GRADS, t->rows[r])->word, words);
    if (t->ring.kind) add_words(all, place(s, node, t->ring)->word, words);
    for (uint32_t left = words; left; left = but_first(left)) sum[first_of(left)] = all[first_of(left)];
}

/* Those of several heads. */
static void add_sums(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    uint32_t *sum = place(s, w->node, t->grads)->word;
    for (int i = CUT * WORDS; i < PARAMS && t->n_rows; i++) {
        sum[i] = 0;
        for (int k = 0; k < t->n_rows; k++) sum[i] += place_at(s, w->node, ECHI_SLOT_HEAD_SUM, t->rows[k])->word[i];
    }
}

static void run_apply(struct sim *s, struct work *w, bool of_head) {
    const struct echi_task *t = &w->task;
    uint32_t words = of_head ? words_from(CUT * WORDS, PARAMS) : words_of_task(s, w->node, t);
    const uint32_t *weights = place(s, w->node, t->weights)->word;
    uint32_t *to = place(s, w->node, t->weights_out)->word, grads[PARAMS];
    read_push(s, w->node, t, grads);
    if (!of_head) note_taken(s, w->node, t);
    uint32_t *v = place_at(s, w->node, of_head ? ECHI_SLOT_HEAD_MOMENTUM : ECHI_SLOT_OWNER_MOMENTUM, 0)->word;
    /* The state moves, where there is one, and the weights are made of it later. */
    const uint32_t *from = t->state_out.kind ? place(s, w->node, t->state)->word : weights;
    if (t->state_out.kind) to = place(s, w->node, t->state_out)->word;
    for (; words; words = but_first(words)) {
        const int i = first_of(words);
        to[i] = from[i] - (is_local(s) ? toy_outer(i, &v[i], grads[i], s->plan.outer_momentum > 0)
                                       : toy_velocity(i, &v[i], weights[i], grads[i], t->samples));
    }
}

/* w0 and all states, in the order of the groups. */
static void sum_states(struct sim *s, int node, struct echi_slot own, const uint8_t *peer, uint32_t *out) {
    memcpy(out, place_at(s, node, ECHI_SLOT_OWNER_W0, 0)->word, PARAMS * sizeof *out);
    for (int g = 0; g < s->plan.n_groups; g++) {
        const bool is_own = g == s->node[node].owner.group;
        if (!is_own && peer[g] == ECHI_NONE) continue;
        const uint32_t *state = is_own ? place(s, node, own)->word : place_at(s, node, ECHI_SLOT_OWNER_PEER, peer[g])->word;
        for (int i = 0; i < cut_of(s) * WORDS; i++) out[i] += state[i];
    }
}

/* What a worker under `local` does with weights of its own. */
static void run_local(struct sim *s, const struct work *w) {
    const struct echi_task *t = &w->task;
    const bool joins = t->kind == ECHI_TASK_LOCAL_JOIN;
    uint32_t *own = place(s, w->node, joins ? t->weights_out : t->weights)->word;
    uint32_t *state = place(s, w->node, joins ? t->state_out : t->state)->word;
    for (int i = 0; i < PARAMS; i++)
        if (joins) {
            const uint32_t from = place(s, w->node, t->weights)->word[i];
            own[i] = from + (own[i] - state[i]);
            state[i] = from;
        } else if (t->kind == ECHI_TASK_LOCAL_DELTA) {
            place(s, w->node, t->grads)->word[i] = (state[i] - own[i]) * toy_weight(i, t->samples, t->divisor);
            state[i] = own[i];
        } else {
            own[i] -= toy_velocity(i, &state[i], own[i], place(s, w->node, t->grads)->word[i], t->samples);
        }
}

static void run_task(struct sim *s, struct work *w) {
    const struct echi_task *t = &w->task;
    switch ((enum echi_task_kind)t->kind) {
    case ECHI_TASK_STEP: {
        uint32_t grads[PARAMS];
        int first, end;
        layers_of(s, t, &first, &end);
        run_norms(s, w);
        if (t->until > 0 || t->from > 0) watch_early(s, w);
        if (t->until > 0) break;
        if (t->part == 0) watch_step(s, w);
        toy_step(place(s, w->node, t->weights)->word, grads, &t->lease, t->divisor);
        memcpy(place(s, w->node, t->grads)->word + first * WORDS, grads + first * WORDS, (size_t)(end - first) * WORDS * sizeof *grads);
        code_push(s, w->node, t, first, end);
        for (uint32_t i = 0; i < t->lease.n && end == cut_of(s); i++) w->result.loss[0] += loss_of(label_of(t->lease.start + i));
        break;
    }
    case ECHI_TASK_NORM: join_norms(s, w); break;
    case ECHI_TASK_FORWARD: {
        run_norms(s, w);
        if (t->until > 0 || t->from > 0) watch_early(s, w);
        if (t->until > 0) break;
        if (t->part == 0) watch_step(s, w);
        uint32_t *rows = place(s, w->node, t->act)->word;
        const uint32_t trunk = fold(place(s, w->node, t->weights)->word, 0, CUT);
        for (uint32_t i = 0; i < t->lease.n; i++) {
            rows[2 * i] = toy_forward(trunk, t->lease.start + i);
            rows[2 * i + 1] = label_of(t->lease.start + i);
        }
        break;
    }
    case ECHI_TASK_BACKWARD: {
        uint32_t grads[PARAMS] = {0};
        const uint32_t *weights = place(s, w->node, t->weights)->word, *act_grad = place(s, w->node, t->act)->word;
        int first, end;
        layers_of(s, t, &first, &end);
        if (t->part > 0) run_norms(s, w);
        MUST(s, GRADIENT, (t->own.kind > 0) == (t->micro > 0 && !s->plan.deterministic));
        if (t->micro > 0 && t->own.kind == 0) memcpy(grads, place(s, w->node, t->grads)->word, (size_t)CUT * WORDS * sizeof *grads);
        for (uint32_t i = 0; i < t->lease.n; i++) toy_backward(weights, grads, t->lease.start + i, act_grad[i]);
        if (t->own.kind) memcpy(place(s, w->node, t->own)->word, grads, (size_t)CUT * WORDS * sizeof *grads);
        if (t->own.kind) add_words(grads, place(s, w->node, t->grads)->word, words_from(0, CUT * WORDS));
        memcpy(place(s, w->node, t->grads)->word + first * WORDS, grads + first * WORDS, (size_t)(end - first) * WORDS * sizeof *grads);
        code_push(s, w->node, t, first, end);
        break;
    }
    case ECHI_TASK_HEAD:
        if (t->weights_out.kind) run_apply(s, w, true);
        else if (!head_trains(t)) run_head(s, w);
        break;
    case ECHI_TASK_HEAD_APPLY:
        add_sums(s, w);
        run_apply(s, w, true);
        break;
    case ECHI_TASK_ADD: {
        if (adds_to_ring(t)) {
            add_words(place(s, w->node, t->state)->word, place(s, w->node, t->grads)->word, words_of_part(s, t->only - 1));
            break;
        }
        if (t->only) {
            add_rows(s, w->node, t, t->state, t->first);
            break;
        }
        uint32_t *sum = place(s, w->node, t->state)->word, grads[PARAMS];
        read_push(s, w->node, t, grads);
        note_taken(s, w->node, t);
        for (uint32_t words = words_of_task(s, w->node, t); words; words = but_first(words))
            sum[first_of(words)] = (t->first ? 0 : sum[first_of(words)]) + grads[first_of(words)];
        break;
    }
    case ECHI_TASK_APPLY:
        if (t->only) {
            if (t->grads.kind == ECHI_SLOT_OWNER_GRADS) watch_rows_in(s, w);   /* while they are what came */
            add_rows(s, w->node, t, t->grads, !t->summed);
        }
        run_apply(s, w, false);
        if (t->state_out.kind) sum_states(s, w->node, t->state_out, t->peer, place(s, w->node, t->weights_out)->word);
        break;
    case ECHI_TASK_ENCODE: encode(s, w->node, t); break;
    case ECHI_TASK_DECODE: decode(s, w->node, t); break;
    case ECHI_TASK_REFRESH: sum_states(s, w->node, t->state, t->peer, place(s, w->node, t->weights_out)->word); break;
    case ECHI_TASK_TAKE:
        for (uint32_t words = words_of_task(s, w->node, t); words; words = but_first(words)) {
            const int i = first_of(words);
            if (t->only) place(s, w->node, t->weights_out)->word[i] = place(s, w->node, t->weights)->word[i];
            place_at(s, w->node, ECHI_SLOT_OWNER_MOMENTUM, 0)->word[i] = 0;
        }
        break;
    case ECHI_TASK_STATE:
        for (int i = 0; i < cut_of(s) * WORDS; i++)
            place(s, w->node, t->state_out)->word[i] =
                place(s, w->node, t->weights)->word[i] - place_at(s, w->node, ECHI_SLOT_OWNER_W0, 0)->word[i];
        break;
    case ECHI_TASK_EVAL:
        w->result.accuracy = echi_random_unit(&s->random);
        s->evals++;
        memcpy(s->looked_at, place(s, w->node, t->weights)->word, sizeof s->looked_at);
        if (s->goal.target_accuracy == 0 || w->result.accuracy < s->goal.target_accuracy) break;
        s->met = true;
        memcpy(s->met_with, place(s, w->node, t->weights)->word, sizeof s->met_with);
        break;
    case ECHI_TASK_KEEP: end_keep(s, &w->result); break;
    case ECHI_TASK_LOCAL_APPLY:
    case ECHI_TASK_LOCAL_DELTA:
    case ECHI_TASK_LOCAL_JOIN: run_local(s, w); break;
    case ECHI_TASKS: break;
    }
    if (t->kind != ECHI_TASK_HEAD || t->weights_out.kind) watch_ends(s, w);
}

/* A head that has an update or a sum to make lets its rows go first. */
static void answer_rows(struct sim *s, int at) {
    struct work *w = &s->work[at];
    run_head(s, w);
    for (int i = 0; i < w->task.n_rows; i++) {
        read_ends(s, w->node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS, w->task.rows[i]}, words_from(0, 1));
        write_ends(s, w->node, (struct echi_slot){ECHI_SLOT_HEAD_ROWS_GRAD, w->task.rows[i]}, words_from(0, 1));
    }
    w->layer = 0;
    due_at(s, after(s, s->node[w->node].speed / LAYERS), DUE_WORK, at, 0);
    struct echi_event e = {.type = ECHI_EVENT_GRADIENT, .task = &w->task, .result = &w->result};
    role_event(s, w->node, ECHI_ROLE_HEAD, &e);
}

/* The next thing of a task: the gradient of one layer, of the rows, or its end. */
static void work_on(struct sim *s, int at) {
    struct work *w = &s->work[at];
    struct note *it = note(s, DUE_WORK, w->node, w->node);
    it->role = w->task.role;
    it->kind = w->task.kind;
    it->lease = w->task.lease.id;
    it->layer = (uint32_t)w->layer;
    if (w->task.kind == ECHI_TASK_HEAD && head_trains(&w->task) && w->layer > 0) return answer_rows(s, at);
    const bool layered = is_layered(&w->task);
    int first, end;
    layers_of(s, &w->task, &first, &end);
    if (!layered || w->layer == end) run_task(s, w);
    if (layered && w->layer > first) {
        w->layer--;
        due_at(s, after(s, s->node[w->node].speed / LAYERS), DUE_WORK, at, 0);
        const uint32_t of_layer = words_from(w->layer * WORDS, (w->layer + 1) * WORDS);
        write_ends(s, w->node, w->task.grads, of_layer);
        if (w->task.coded.kind) write_ends(s, w->node, w->task.coded, of_layer);
        struct echi_event e = {.type = ECHI_EVENT_GRADIENT, .layer = w->layer, .task = &w->task, .result = &w->result};
        return role_event(s, w->node, ECHI_ROLE_WORKER, &e);
    }
    touch(s, w->node, &w->task, false);
    for (int i = 0; i < PARAMS && takes_first(s, &w->task); i++) place(s, w->node, w->task.grads)->word[i] = mix((uint32_t)i, 0x51ab);
    struct echi_event e = {.type = ECHI_EVENT_COMPUTED, .task = &w->task, .result = &w->result};
    role_event(s, w->node, (enum echi_role)w->task.role, &e);   /* what it asks for takes another place */
    s->work_used[at] = false;
}

/* ---- time ---- */

static int node_of(const struct sim *s, const struct due *d) {
    switch ((enum what)d->what) {
    case DUE_MESSAGE: return s->pool[d->index].to;
    case DUE_SENT: return s->pool[d->index].from;
    case DUE_WORK: return s->work[d->index].node;
    default: return d->index;
    }
}

/* Held work, what a pause or a wall keeps back, and what nobody is there for any more. */
static bool comes_later(struct sim *s, struct due d) {
    struct node *n = &s->node[node_of(s, &d)];
    struct message *m = &s->pool[d.index];
    int64_t at = n->paused;
    if (n->dead || (d.what == DUE_MESSAGE && m->dropped)) {
        if (d.what == DUE_MESSAGE || d.what == DUE_SENT) let_go(s, m);
        if (d.what == DUE_WORK) s->work_used[d.index] = false;
        return true;
    }
    if (d.what == DUE_MESSAGE && m->from != m->to && s->node[m->from].wall != n->wall) at = at > n->walled ? at : n->walled;
    if (at > d.at && at > s->now) {
        d.at = at;
        put_due(s, d);
        return true;
    }
    if (d.what == DUE_WORK && n->held && s->work[d.index].task.kind != ECHI_TASK_EVAL && s->work[d.index].task.kind != ECHI_TASK_KEEP) {
        n->stalled[n->n_stalled++] = d.index;
        return true;
    }
    return false;
}

/* Does the earliest thing that can happen; false when nothing can. */
static bool step(struct sim *s) {
    struct due d;
    do {
        if (s->dues == 0) return false;
        d = take_due(s);
    } while (comes_later(s, d));
    if (d.at > s->now) s->now = d.at;
    s->events++;
    if (s->counts) s->counts->due[d.what]++;
    struct message *m = &s->pool[d.index];
    switch ((enum what)d.what) {
    case DUE_MESSAGE:
        deliver(s, m);
        let_go(s, m);
        break;
    case DUE_SENT: {
        struct note *it = note(s, DUE_SENT, m->from, m->to);
        it->role = m->role;
        it->kind = m->slot.kind;
        leaves(s, m);
        struct echi_event e = {.type = ECHI_EVENT_SENT, .from = m->to, .kind = m->kind, .slot = m->slot};
        const int node = m->from;
        const enum echi_role role = (enum echi_role)m->role;
        let_go(s, m);
        role_event(s, node, role, &e);
        break;
    }
    case DUE_WORK: work_on(s, d.index); break;
    case DUE_ANSWER:
        note(s, DUE_ANSWER, d.index, d.other);
        answer(s, d.index, (enum echi_event_type)d.other);
        break;
    case DUE_NOTICE:
        note(s, DUE_NOTICE, d.index, d.other);
        notice(s, d.index, d.other);
        break;
    case DUE_DEATH:
        note(s, DUE_DEATH, d.index, d.index);
        miss_rank_0(s, d.index);
        break;
    case DUE_TIME: {
        struct echi_event e = {.type = ECHI_EVENT_TIME};
        note(s, DUE_TIME, 0, 0);
        s->timer = false;
        role_event(s, 0, ECHI_ROLE_COORDINATOR, &e);
        break;
    }
    case DUES_OF: break;
    }
    return true;
}

/* Some worker to some group, if that can be now. */
static bool move_one(struct sim *s) {
    struct echi_actions list = {s->action, 0, ACTIONS, false};
    const struct echi_plan *p = &s->coordinator.plan;
    const int rank = (int)below(s, p->world), group = (int)below(s, p->n_groups);
    if (s->coordinator.phase != ECHI_RUN_TRAINS || !echi_coordinator_move(&s->coordinator, rank, group, &list)) return false;
    note_awake(s);
    perform(s, 0, &list);
    return true;
}

/* Rounds get other shares: some samples of one worker's go to another, if they can. */
static bool share_anew(struct sim *s) {
    struct echi_coordinator *c = &s->coordinator;
    uint32_t share[ECHI_WORLD_MAX] = {0};
    const int from = (int)below(s, c->plan.world), to = (int)below(s, c->plan.world);
    if (c->phase != ECHI_RUN_TRAINS || c->size[from] == 0) return false;
    for (int r = 0; r < c->plan.world; r++) share[r] = c->size[r];
    const uint32_t n = 1 + below(s, share[from]);
    share[from] -= n;
    share[to] += n;
    return echi_coordinator_share(c, share);
}

static bool moves_head(const struct sim *s) { return s->heads_move && s->plan.cut && !s->plan.heads; }
/* The head to some node, if it can move there. */
static bool move_head(struct sim *s) {
    const struct echi_coordinator *c = &s->coordinator;
    return c->phase == ECHI_RUN_TRAINS && echi_coordinator_rehome(&s->coordinator, (int)below(s, c->plan.world));
}

static bool change_one(struct sim *s) {
    if (moves_head(s)) return move_head(s);
    const struct echi_policy *policy = s->coordinator.policy;
    return s->shares_change && policy && policy->rounds ? share_anew(s) : move_one(s);
}

static inline void toy_layers(struct echi_layers *out) {
    *out = (struct echi_layers){.count = LAYERS, .cut = CUT};
    for (int l = 0; l < LAYERS; l++) out->params[l] = WORDS;
}

/* Of a plan of BSP that asks for shards: each part is anybody's, and each shard has one. */
static void set_shards(struct sim *s) {
    struct echi_plan *p = &s->plan;
    const int parts = echi_parts_before(&p->parts, cut_of(s));
    if (p->shards > parts) p->shards = (uint8_t)parts;
    if (p->shards < 2) p->shards = 0;
    for (int k = 0; k < ECHI_SHARDS_MAX; k++) p->shard_owner[k] = k < p->shards ? (uint16_t)((p->owner_of[0] + k) % p->world) : 0;
    for (int i = 0; i < parts && p->shards; i++)
        p->parts.part[i].shard = (uint8_t)(i < p->shards ? (uint32_t)i : mix((uint32_t)s->seed, 77u + (uint32_t)i) % p->shards);
    if (echi_plan_may_ring(p) && mix((uint32_t)s->seed, 91) % 2) p->exchange = ECHI_EXCHANGE_RING;
}

/* Parts of a given plan, from slices of two words to one of all; where the plan is made, what the planner makes of so few. */
static void set_parts(struct sim *s) {
    static const uint64_t sizes[] = {2, WORDS, WORDS + 1, 2 * WORDS, PARAMS};
    const uint64_t size = sizes[mix((uint32_t)s->seed, 5) % 5];
    toy_layers(&s->request.layers);
    if (!s->plan_given) return;
    echi_parts_make(&s->request.layers, s->plan.cut, s->plan.codec, size, size, &s->plan.parts);
    set_shards(s);
}

/* Before a run: nothing is left of an earlier one, but in places for payloads that nobody has posted. */
static void clear_node(const struct sim *s, struct node *n, int world) {
    memset(n, 0, offsetof(struct node, last_due));
    memset(n->last_due, 0, (size_t)world * sizeof n->last_due[0]);
    memset(n->early, 0, sizeof n->early);
    memset(n->place, 0, s->first_place[ECHI_SLOT_KINDS] * sizeof n->place[0]);
    for (int i = 0; i < world * PAYLOADS; i++) {
        struct channel *c = &n->channel[i / PAYLOADS][i % PAYLOADS];
        c->posts = 0;
        memset(c->going, 0, sizeof c->going);
        c->waits = c->last = NOBODY;
    }
}

/* Runs from the start to the end, and on until nothing moves any more, or until the power goes. The caller has filled plan or
 * request, and goal. */
static void sim_run(struct sim *s) {
    static const uint32_t speeds[] = {10, 40, 160, 1000};
    const int world = s->plan_given ? s->plan.world : s->request.world;
    number_places(s);
    for (int r = 0; r < world; r++) clear_node(s, &s->node[r], world);
    s->now = 1;
    s->resets = s->from.resets;
    s->request.world = world;
    s->plan.world = (uint16_t)world;
    s->plan.shares_follow = s->plan_given && s->plan.sync == ECHI_SYNC_BSP && !s->plan.deterministic;
    set_parts(s);
    s->unused = NOBODY;
    uint32_t *initial = place_at(s, 0, ECHI_SLOT_COORD_PARAMS, 0)->word;
    for (int i = 0; i < PARAMS; i++) s->start[i] = initial[i] = s->goal.resumed ? s->from.word[0][i] : mix((uint32_t)s->seed, (uint32_t)i);
    s->node[0].setup.plan = s->plan;
    begin_faults(s);
    echi_coordinator_init(&s->coordinator, &s->node[0].setup, &s->request, &s->goal, s->plan_given);
    for (int r = 0; r < world; r++) {
        struct node *n = &s->node[r];
        n->speed = s->speed[r] ? s->speed[r] : speeds[below(s, 4)];
        echi_node_role_init(&n->role, &n->setup, r, world, s->goal.give_final);
    }
    s->node[0].role.coordinator = &s->coordinator;
    for (int r = 0; r < world; r++) tell_node(s, r, ECHI_EVENT_START, r);
    bool stopped = false;
    int kills = KILLS, moves = MOVES;   /* that this run has, at most */
    while (kills > 0 && !s->kill_at[kills - 1]) kills--;
    while (!s->done) {
        if (!step(s)) die(s, MUST_WAIT, "nothing moves any more, and the run has not ended");
        if (s->cut_at && s->now >= s->cut_at && !s->done) return;
        if (s->tells_rates && !s->calm && !s->done) tell_rate(s);
        if (s->rates.safety) fault_now_and_then(s);
        else CHECK(s, s->events < 200000);
        for (int i = 0; i < kills && !s->done; i++)
            if (s->kill_at[i] == s->events) {
                const int rank = victim(s, s->kill_rank[i]);
                if (rank >= 0) kill_node(s, rank);
            }
        if (s->speed_at && s->events == s->speed_at) s->node[s->speed_of].speed = s->speed_then;
        while (moves > 0 && !s->move_at[moves - 1]) moves--;
        for (int i = 0; i < moves && !s->done; i++)
            if (s->move_at[i] && s->move_at[i] <= s->events && change_one(s)) {
                s->move_at[i] = 0;
                s->moves += !moves_head(s);
            }
        if (s->stop_at && !stopped && s->now >= s->stop_at && !s->done) {
            stopped = true;
            tell_node(s, 0, ECHI_EVENT_STOP, 0);
        }
    }
    while (step(s)) {}
}

#include "sched_watch.h"
#include "sched_faults.h"
#endif
