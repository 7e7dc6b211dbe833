/* SPDX-License-Identifier: Apache-2.0
 * What things cost in time: the resources of a cluster, with their queues, in virtual time. It knows hosts, works and messages, and
 * no roles: the simulator's driver (sim.c) uses it, and whoever else wants to know how long a plan would take.
 *
 * Of each host (echi_hosts.h) it models
 *   - a *lane* that computes one work at a time, the most urgent first. A work of several units gives way to a more urgent one
 *     between them, as the live lane does (lib/exec/lane.c). Lanes of hosts that share a pool of cores are slowed down alike while
 *     more of them compute than there are cores;
 *   - a *link*: its way out sends one message at a time, the most urgent first, and gives way at the end of a chunk (64 KiB); then
 *     the message travels for the delays of both ends; then it takes its time on the receiver's way in, one message after the other.
 *     A message is received while it is still being sent: alone between equal links it takes bytes / rate + delay;
 *   - what messages cost its processor: its lane stands still for so long if it computes, and they come in one after the other.
 *     Messages of priority 0 wait there for 256 KiB of others at most, as a switch holds no more;
 * Left out: what else the switch between the links does, acknowledgements, windows and slow starts, fairness on the way in (it is
 * first come, first served, where TCP shares), the bytes of what is sent again, and that a sender's copies take their time
 * before they leave.
 *
 * A lost message comes after TCP's timeout: 0.2 s (the least that Linux waits), doubled each time (RFC 6298, section 5), and what
 * the same sender sent to the same receiver behind it waits for it.
 *
 * Random numbers are counter-based: a step's factor is a function of (seed, host, step), a message's losses of (seed, sender, how
 * many it sent before). Times are whole nanoseconds. One thread at a time. */
#ifndef ECHI_COST_H
#define ECHI_COST_H
#include "echi_hosts.h"

struct echi_cost;

/* What of a message a processor has to do at either end: seconds on the machine that hosts' speeds are relative to. Messages that are
 * queued for one host at one moment go as one (net writes all frames for a peer at once), and cost `message` once. */
struct echi_cost_io { double message, byte; };
/* `hosts` must stay valid and as it is. io_speed [hosts]: how many times as fast as there each does this; NULL: as it computes. */
ech_status echi_cost_create(const struct echi_hosts *hosts, struct echi_cost_io io, const double *io_speed, uint64_t seed,
                            struct echi_cost **out, struct ech_error *err);
void echi_cost_destroy(struct echi_cost *cost);   /* NULL is harmless */
int64_t echi_cost_now(const struct echi_cost *cost);   /* virtual ns; 1 at the beginning */
uint64_t echi_cost_events(const struct echi_cost *cost);   /* how many things were due so far */

/* ---- what happens ---- */
enum echi_happening_type {
    ECHI_HAPPENS_MARK,        /* a work on `host` has come to the end of a unit that its shape marks */
    ECHI_HAPPENS_DONE,        /* a work is done */
    ECHI_HAPPENS_HELD,        /* `host` was asked to hold, and no work is under way there */
    ECHI_HAPPENS_SENT,        /* a message has left `host` */
    ECHI_HAPPENS_ARRIVED,     /* a message is whole at `host` */
    ECHI_HAPPENS_TIMER
};
struct echi_happening { enum echi_happening_type type; int host; int unit; uint64_t cookie; };   /* unit: MARK */
/* Goes on to the next thing that the caller is to know of. False when nothing is due any more, or when memory ran out. */
bool echi_cost_next(struct echi_cost *cost, struct echi_happening *out);
/* Memory ran out at some time: what came after is not to be trusted. */
bool echi_cost_failed(const struct echi_cost *cost);
void echi_cost_timer(struct echi_cost *cost, int64_t at, int host, uint64_t cookie);

/* ---- lanes ---- */
/* How a work goes by: at until[i] of its time (rising, the last 1) unit i ends, and if mark[i] the caller is told (MARK; at the
 * last it is DONE whatever mark says). Shared by many works; the caller's, as long as they are under way. */
struct echi_work_shape { int units; const double *until; const bool *mark; };
struct echi_work {
    double seconds;                        /* on a machine of speed 1, without other lanes beside it */
    int urgency;                           /* smaller goes first; of equals the one that was asked for first */
    bool while_held;                       /* also while the host holds */
    const struct echi_work_shape *shape;   /* NULL: one unit that nothing interrupts */
    double part;                           /* without a shape: there is a mark at this part of its time, 0..1; 0: none */
    uint64_t cookie;
};
void echi_cost_compute(struct echi_cost *cost, int host, const struct echi_work *work);
/* No work begins or goes on to its next unit, but those that may while_held. HELD comes once for each hold. */
void echi_cost_hold(struct echi_cost *cost, int host, bool hold);
/* How much longer step number `step` of a host takes than it usually does: its jitter (log-normal, median 1) and whether it
 * stutters. For the caller to multiply a work's seconds with. */
double echi_cost_step_factor(const struct echi_cost *cost, int host, uint64_t step);
/* The product of its lasting slow-downs now. A stretch of units takes as long as it does when it begins. */
double echi_cost_slow(const struct echi_cost *cost, int host);

/* ---- links ---- */
#define ECHI_COST_PRIORITIES 8
/* `bytes` with all that goes over the wire. Not queued before `not_before`. To the sender itself it takes no time: it arrives, and is
 * then sent. Messages of one priority from one host to another arrive in the order in which they are queued. */
void echi_cost_send(struct echi_cost *cost, int from, int to, int priority, uint64_t bytes, int64_t not_before, uint64_t cookie);
int64_t echi_cost_delay(const struct echi_cost *cost, int from, int to);   /* ns that the shortest message takes at least */

/* A host is gone from this moment on: its works, and what it has not sent yet. What is on its way from it still comes; what is on its
 * way to it is sent, and arrives nowhere. */
void echi_cost_kill(struct echi_cost *cost, int host);
#endif
