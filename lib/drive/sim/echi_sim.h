/* SPDX-License-Identifier: Apache-2.0
 * The simulator's driver: hosts the pure roles of all nodes in one thread and makes their actions true in virtual time. What they cost
 * is the cost engine's (echi_cost.h); what they compute is done for real by the same code as in live runs (lib/exec/exec.c), or not at
 * all. What its files share: sim.c (a run from its beginning to its end), sim_actions.c (what roles ask for), sim_events.c (what
 * happens, given to the roles), sim_posts.c (places for payloads), sim_tasks.c (what tasks cost, and the tasks themselves). */
#ifndef ECHI_SIM_H
#define ECHI_SIM_H
#include "echelon_dev.h"
#include "echi_cost.h"
#include "echi_hosts.h"
#include "echi_records.h"
#include "echi_profile.h"
#include "echi_run.h"

/* A message on its way, or one that waits for a place. */
#define ECHI_FLIGHT_META 128          /* bytes of a message that need no memory of their own */
struct echi_transit {
    uint32_t next;                    /* of those that wait for the same places */
    uint16_t from, to;
    uint8_t kind, role;               /* role: who sends it, and hears that it is sent */
    uint16_t name, priority;
    struct echi_slot slot, place;     /* with a payload: where it comes from, where it goes to */
    bool payload;
    uint32_t meta_len;
    size_t at, len;                   /* bytes [at, at + len) of both slots */
    uint8_t *more;                    /* a long message, from malloc; else NULL */
    uint8_t meta[ECHI_FLIGHT_META];
};
/* A place for the next payload of a kind and name from a node. */
struct echi_post { uint32_t next; struct echi_slot slot; int64_t at; };
/* What goes from one node to another as one kind and name: places, and payloads that wait for some. Never both. */
struct echi_channel { uint64_t key; uint32_t post_first, post_last, wait_first, wait_last; };
/* By (to, from, kind, name), with open addressing: few of all pairs ever speak. */
struct echi_channels { struct echi_channel *list; size_t count, room; };

/* A task that a node computes. */
struct echi_sim_task {
    uint16_t node;
    bool ran;                         /* its arithmetic is done */
    int told;                         /* STEP, BACKWARD: the gradients of layers from this one on are told of */
    struct echi_task task;
    struct echi_result result;
};

/* How tasks of several units (echi_times.h) go by, each unit in one direction. */
struct echi_sim_shape {
    double until[2 * ECHI_LAYERS_MAX];
    bool mark[2 * ECHI_LAYERS_MAX];
    int layer[2 * ECHI_LAYERS_MAX];   /* whose gradient is there when the unit ends; -1: nobody's */
    struct echi_work_shape shape;
};
struct echi_sim_shapes { struct echi_sim_shape step, forward, backward; };   /* in steps of one size */

struct echi_sim_node {
    struct echi_exec *exec;           /* NULL: nothing is computed */
    bool measures, makes;             /* the role has asked for step times, for slots: both are there at once */
    bool dead;
    uint64_t steps;                   /* begun by its worker */
    double factor[ECHI_FLIGHTS];      /* of the step of each flight */
    int64_t at;                       /* of its last event */
    struct echi_node_role role;       /* and the roles that it hosts */
    struct echi_setup setup;
};

struct echi_sim {
    const struct ech_config *config;
    const struct echi_job *job;
    const struct echi_profile *profile;
    struct echi_times times;                      /* the profile's, cut as the plan is */
    const struct echi_hosts *hosts;
    const double *io_speed;           /* [world], of what messages cost; NULL: hosts' speeds */
    bool real;                        /* the arithmetic is done */
    struct ech_report *report;
    struct ech_error *err;
    int world;
    struct echi_cost *cost;
    struct echi_sim_node *node;
    struct echi_coordinator *coordinator;
    struct echi_plan next;            /* for whose slots a node is asked */
    struct echi_link link[ECHI_WORLD_MAX];   /* of the plan's file, in the place of the hosts'; else not known */
    struct echi_action *action; int actions_room;
    struct echi_records transits, posts, tasks;
    struct echi_channels channels;
    struct echi_sim_shapes shapes[ECHI_UNIT_SIZES];
    echi_real *params;                /* real: initial weights in, trained weights out */
    uint64_t sent[ECHI_KINDS + 1];    /* bytes by kind; at last those of credits */
    uint64_t coded[4];                /* as in struct echi_node */
    int64_t ready_at;                 /* all nodes have joined; 0: not yet */
    bool over;
    ech_status status;
    int rank_died;                    /* the last whose death the coordinator was told of; -1 */
    struct echi_changes_told changes_told;
    /* progress for people, who live in real time */
    struct echi_shown shown; int64_t shown_at;
    bool stop_told;
    uint64_t role_events;
};

/* Timers: what is due, and for whom or what. */
enum echi_sim_timer { ECHI_SIM_READY, ECHI_SIM_DIES, ECHI_SIM_NOTICED, ECHI_SIM_SENT_BACK, ECHI_SIM_RETURNS };
static inline uint64_t echi_sim_timer(enum echi_sim_timer what, uint32_t id) { return (uint64_t)what << 32 | id; }
/* A message of this kind, lent from this slot, comes back. */
static inline uint64_t echi_sim_returns(enum echi_kind kind, struct echi_slot lender) {
    return echi_sim_timer(ECHI_SIM_RETURNS, (uint32_t)kind << 24 | (uint32_t)lender.kind << 16 | lender.index);
}

/* A whole run. `hosts` with relative speeds, as many as config->world; `profile` fits the model. params: as in echi_node_config. */
struct echi_sim_run {
    const struct ech_config *config;
    const struct echi_job *job;
    const struct echi_hosts *hosts;
    const double *io_speed;           /* NULL: hosts' speeds */
    const struct echi_profile *profile;
    bool real;
    echi_real *params;
    struct ech_timeline *timeline;    /* NULL: nobody wants it */
};
/* sim_memory.c, sim_line.c: after a run. */
ech_status echi_sim_memory(const struct echi_sim *s, struct ech_report *report, struct ech_error *err);
void echi_sim_timeline(struct echi_coordinator *c, struct ech_timeline *out);
ech_status echi_sim_run(const struct echi_sim_run *run, struct ech_report *report, struct ech_sim_counts *counts, struct ech_error *err);

extern const struct echi_supply echi_sim_heap;   /* sim.c: memory for records and the cost engine */
/* sim.c: the first reason stays */
void echi_sim_end(struct echi_sim *s, ech_status status);
void echi_sim_no_memory(struct echi_sim *s);
static inline int64_t echi_sim_now(const struct echi_sim *s) { return echi_cost_now(s->cost); }
/* Rank 0's copy of all weights: the first, then those evaluated last. Only with arithmetic. */
void *echi_sim_params(const struct echi_sim *s);

/* sim_actions.c */
/* Gives an event to a role and does what it asks for. */
void echi_sim_event(struct echi_sim *s, int rank, enum echi_role role, struct echi_event *e);
void echi_sim_send(struct echi_sim *s, int from, int to, const struct echi_msg *m, struct echi_slot slot);
/* A message without fields, with a body of its own behind the two role bytes; or with none. */
void echi_sim_send_body(struct echi_sim *s, int from, int to, enum echi_kind kind, enum echi_role to_role, const uint8_t *body, size_t len);
void echi_sim_free_transit(struct echi_sim *s, uint32_t id);

/* sim_posts.c */
struct echi_channel *echi_channel_of(struct echi_sim *s, int from, int to, int kind, int name);   /* NULL: no memory */
void echi_sim_post(struct echi_sim *s, int rank, const struct echi_action *a);
void echi_sim_wait_for_place(struct echi_sim *s, uint32_t transit);
/* `rank` takes nothing more from `lost`: places are free, what waits for one there comes back as sent. */
void echi_sim_forget(struct echi_sim *s, int rank, int lost);
void echi_channels_free(struct echi_channels *channels);
uint64_t echi_sim_wire_bytes(size_t meta_len, size_t len);   /* of a message, frames included */
void echi_sim_count(struct echi_sim *s, const struct echi_transit *f);

/* sim_events.c */
void echi_sim_happened(struct echi_sim *s, const struct echi_happening *h);
/* What the node role has asked for, behind the rest of what it asks for. */
void echi_sim_measured(struct echi_sim *s, int rank);
void echi_sim_make_slots(struct echi_sim *s, int rank);

/* sim_tasks.c */
void echi_sim_make_shapes(struct echi_sim *s);
void echi_sim_compute(struct echi_sim *s, int rank, const struct echi_task *task);
void echi_sim_on_mark(struct echi_sim *s, uint32_t task, int unit);
void echi_sim_on_done(struct echi_sim *s, uint32_t task);
/* Step times of a host as it would measure them. */
void echi_sim_times(const struct echi_sim *s, int rank, struct echi_times *out);
#endif
