/* SPDX-License-Identifier: Apache-2.0
 * What the files of the I/O thread share: node.c (loop), node_watch.c (heartbeats, deadlines), node_actions.c (what roles
 * ask for), node_events.c (what happens), node_tell.c (who waits for whom), node_report.c (progress and report). */
#ifndef ECHI_NODE_H
#define ECHI_NODE_H
#include "echi_config_log.h"
#include "echi_links.h"
#include "echi_recording.h"
#include "echi_run.h"
#include "echi_silence.h"

#define ECHI_SECOND INT64_C(1000000000)

/* What this node thinks of a peer that it judges. */
struct echi_watched { struct echi_silence silence; uint64_t bytes; bool late, lost; };

struct echi_node {
    const struct echi_node_config *c;
    const struct echi_job *job;
    struct ech_report *report;
    struct ech_error *err;
    int rank, world;
    struct echi_net_kind kinds[ECHI_KINDS];
    struct echi_wire *wire;
    struct echi_exec *exec;
    struct echi_lane *lane;
    struct echi_setup setup;
    struct echi_node_role role;               /* and the roles that it hosts */
    struct echi_recorder *recorder;           /* NULL: nothing is recorded, or not any more */
    /* measuring at start: first links, then on the lane's thread until `measured` */
    struct echi_links links;
    bool measuring, measuring_links;
    int64_t links_cpu; uint64_t links_moved;  /* processor time of the I/O thread, and bytes of theirs, at the last look */
    double link_byte;                         /* processor seconds that a byte takes it on these links; 0: not known */
    atomic_bool measured;
    bool caller_measures;                     /* a session: its caller has been asked to */
    struct echi_times times;
    ech_status measure_status;
    struct ech_error measure_error;
    /* making slots, on the lane's thread until `has_slots`: all of them, or in mid-run those of next_plan */
    bool standing;
    atomic_bool has_slots;
    struct echi_plan next_plan;
    bool full;                                /* there was no memory for the head's, of which this node was to have a copy */
    ech_status slots_status;
    struct ech_error slots_error;
    struct echi_action action[ECHI_ACTIONS_MAX];
    /* What this node found wrong while it performed actions: an event of its own behind them. */
    struct { bool is, broke; ech_status status; int peer; char text[320]; } wrong;
    /* state of the loop */
    bool ready, over, held_asked;
    ech_status status;
    int64_t began, heartbeat_at, progress_at, rates_at;
    int64_t stopped_at;                       /* echi_now when the run was found to be stopped; 0: it is not */
    bool eval_ended;                          /* for that */
    int64_t clock, clock_back;                /* echi_now when it was last read, and how far it has gone back altogether */
    struct echi_fair fair;                    /* the clock on which peers are judged */
    struct echi_patience patience;
    struct echi_watched watched[ECHI_WORLD_MAX];
    struct { uint64_t ticks, told; int64_t since, checked; bool stuck; } progress;   /* of the lane: since when there is none */
    int64_t round_most;                       /* the longest that a round of the loop took beside waiting */
    struct { int phase; int64_t at; } told_run; /* since when the coordinator and the flights are where they are */
    struct { uint32_t turn; int64_t at; } told_flight[ECHI_FLIGHTS];
    int tells;                                /* ech_config.tell, as it was last seen */
    struct echi_changes_told changes_told;
    struct echi_shown shown;
    uint64_t coded[4];                        /* bytes of coded pushes to other nodes, and what they would have been;
                                                 of weights and states */
    uint64_t sent_by_kind[ECHI_KINDS + 1], head_repeats;   /* rank 0: summed over all nodes */
    uint64_t coded_of_all[4], residuals_cleared;
};

/* ---- node.c ---- */
/* The time of this node, which its roles and deadlines go by: echi_now, but it never goes back. I/O thread. */
int64_t echi_node_now(struct echi_node *n);
/* Ends the loop; the first reason stays. */
void echi_node_give_up(struct echi_node *n, ech_status status);
/* Tells of a recording that cannot be written any further, and goes on without it. */
void echi_node_check_recorder(struct echi_node *n);

void echi_node_notify(void *self);   /* any thread: there is something to take */
/* Its memory, with the roles that it hosts and what it computes on; lane and wire are closed before. */
void echi_node_free(struct echi_node *n);
/* ---- node_watch.c ---- */
void echi_watch_begin(struct echi_node *n);              /* all nodes have joined */
/* Sends the heartbeat when it is due. Returns how long the next round of the loop may take, in ns. */
int64_t echi_watch_beat(struct echi_node *n, int64_t now);
/* Sends it from the middle of a role's step, which may be a choice of plans that takes seconds. */
void echi_watch_between(void *node);
void echi_watch_judge(struct echi_node *n);   /* who is silent for too long is lost; a lane without progress is this node's fault */
void echi_watch_rates(struct echi_node *n, int64_t now);   /* what links have carried, once a second */
/* How long the lane may be without any progress: ten times the longest unit of its work that can be foreseen, at least the deadline; ten
 * deadlines where nothing has measured it (measuring, slots, an evaluation). `lane`: what it does now. */
int64_t echi_watch_allowed(const struct echi_node *n, const struct echi_lane_view *lane);

/* ---- node_tell.c ---- */
void echi_tell_note(struct echi_node *n, int64_t now);   /* after each step of a role: phases that have changed */
void echi_tell_all(struct echi_node *n, int64_t now);    /* a line a role to the caller: who waits for whom */
void echi_tell_roles(struct echi_node *n, int64_t now);  /* of them, those of the roles: of the simulator's nodes too,
                                                            which have nothing else */
/* What the lane is at, for a sentence: "measuring", "a whole step". */
const char *echi_tell_work(const struct echi_node *n, const struct echi_lane_view *v);
/* What this node waits for from `peer`, for the end of a sentence: ", while ..."; or "". */
const char *echi_tell_owed(const struct echi_node *n, int peer, char *buf, size_t cap);

/* ---- node_actions.c ---- */
static inline struct echi_slot echi_node_slot(uint64_t cookie) { return (struct echi_slot){(uint8_t)(cookie >> 16), (uint16_t)cookie}; }
static inline enum echi_role echi_node_role_of(uint64_t cookie) { return (enum echi_role)(cookie >> 24); }
/* Where the payload of a message comes to that is posted for this slot. First weights come whole to the owner of a shard, which keeps its
 * parts: they come to where its own worker's gradients will be, which begin when all owners have started, and fill no slot of the owner. */
struct echi_slot echi_node_landing(const struct echi_node *n, int kind, struct echi_slot slot);
/* echi_job_extent under this node's plan. */
void echi_node_extent(const struct echi_node *n, int kind, const struct echi_msg *m, bool head, size_t *at, size_t *len);
/* A message with a body of its own behind the two role bytes. */
void echi_node_send_body(struct echi_node *n, int to, enum echi_kind kind, enum echi_role to_role, const uint8_t *body, size_t len);
/* Gives an event to a role and performs what it asks for; nothing when the role is not hosted here. */
void echi_node_event(struct echi_node *n, enum echi_role role, struct echi_event *e);
void echi_node_send_plain(struct echi_node *n, int to, enum echi_kind kind, enum echi_role to_role);

/* ---- node_events.c ---- */
void echi_node_on_net(struct echi_node *n, const struct echi_net_event *e);
/* Events of the node role. Not while actions are performed: see `wrong`. */
void echi_node_tell(struct echi_node *n, enum echi_event_type type);
void echi_node_lost(struct echi_node *n, int peer, bool orderly, const char *text);
void echi_node_failed(struct echi_node *n, ech_status status, const char *text);   /* this node cannot go on */
/* Of its actions: begin to measure; begin to make the slots of the next plan. */
void echi_node_measure(struct echi_node *n);
void echi_node_measure_links(struct echi_node *n);   /* goes on with it, once a round of the loop */
void echi_node_make_slots(struct echi_node *n);
/* Of STATS, its body. */
void echi_node_stats(const struct echi_node *n, uint8_t body[ECHI_STATS_BYTES]);
/* The sentence of a LEAVE, for the caller. */
void echi_node_leaves(struct echi_node *n, const struct echi_msg *why);
void echi_node_take_done(struct echi_node *n);   /* what the lanes have finished */

/* ---- node_report.c ---- */
void echi_node_progress(struct echi_node *n, int64_t now);
void echi_node_report(const struct echi_node *n, struct ech_report *r);
#endif
