/* SPDX-License-Identifier: Apache-2.0
 * What things cost in time: the resources of a cluster, with their queues, in virtual time. It knows hosts, works and messages, and
 * no roles: the simulator's driver (lib/drive/sim) uses it, and whoever else wants to know how long a plan would take.
 *
 * Of each host (echi_machines.h) it models
 *   - a *compute thread* that computes one work at a time, the most urgent first. A work of several units gives way to a more urgent one
 *     between them, as the live thread does (lib/exec/lane.c). Threads of hosts that share a pool of cores are slowed down alike while
 *     more of them compute than there are cores, each as long as it has some of its quota left;
 *   - a *link*: its way out sends one message at a time, the most urgent first, and gives way at the end of a chunk (64 KiB); then
 *     the message travels for the delays of both ends; then it takes its time on the receiver's way in, one message after the other.
 *     A message is received while it is still being sent: alone between equal links it takes bytes / rate + delay;
 *   - what messages cost its processor: its thread stands still for so long if it computes, and they come in one after the other.
 *     Messages of priority 0 wait there for 256 KiB of others at most, as a switch holds no more;
 *   - what it takes to *wake* the compute thread for a work that finds it idle, and, when that is done, the one that asked for it.
 * Left out: that live nodes' chunks are smaller on links below 262 Mb/s, and that on faster ones, and under BSP, messages to different
 * receivers leave side by side; what else the switch between the links does, acknowledgements, windows and slow starts, fairness on the way
 * in (it is first come, first served, where TCP shares), the bytes of what is sent again, and that a sender's copies take their time before
 * they leave.
 *
 * A lost message comes after TCP's timeout: 0.2 s (the least that Linux waits), doubled each time (RFC 6298, section 5), and what
 * the same sender sent to the same receiver behind it waits for it.
 *
 * Pure: its memory is the caller's, and it calls no function of libm.
 *
 * Random numbers are counter-based: a message's losses are a function of (seed, sender, how many it sent before). Times are whole
 * nanoseconds. One thread at a time. */
#ifndef ECHI_COST_H
#define ECHI_COST_H
#include "echi_machines.h"
#include "echi_supply.h"
#include "echi_times.h"

struct echi_cost;
struct echi_timeline;

/* `hosts` must stay valid and as it is. `io` is on the machine that hosts' speeds are relative to. io_speed [hosts]: how many times as
 * fast as there each does this; NULL: as it computes. NULL when the supply has no memory. */
struct echi_cost *echi_cost_create(const struct echi_hosts *hosts, struct echi_cost_io io, const double *io_speed, uint64_t seed,
                                   struct echi_supply supply);
/* Before anything is sent: what this host's messages cost it in seconds of its own, and another rate on its way in than on its way out. */
void echi_cost_set_link(struct echi_cost *cost, int host, double rate_in, struct echi_cost_io io);
/* Before anything happens: `line` (echi_timeline.h), which outlives the engine, is told what threads and links do, of hosts that neither
 * hold nor die. Nothing happens otherwise than unwatched. */
void echi_cost_watch(struct echi_cost *cost, struct echi_timeline *line);
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

/* ---- threads ---- */
/* A wake of a thread and back takes so many times what a message does beside its bytes: what that costs says how slow system calls and idle
 * processors are. Measured while the other of two processors had been idle for a millisecond. */
#define ECHI_COST_WAKE 2
/* This part of it is processor time, of which a host may have a quota; the rest passes before the thread computes. By the times of threads
 * of live hosts beside their works' (LeNet-5, four hosts of half a core, 4 s) the owner of BSP's rounds has 0.45 of it, a head with owner
 * and worker 1.1, workers, whose steps may take longer for other reasons, more. With this predictions of both are within a tenth. */
#define ECHI_COST_WAKE_COMPUTES 0.5
/* A message that finds its host's I/O thread awake, with another in hand or just done, takes this part of what one does that wakes it: a
 * system call more in the same pass of the loop. One that comes when it has just gone to sleep is between both. */
#define ECHI_COST_AWAKE 0.25
/* The gradients of rows leave a head after this part of a visit, before those of its parameters are computed: by floating-point operations
 * two thirds; measured on a processor 0.63 to 0.64 (AlexNet, LeNet-5). */
#define ECHI_HEAD_ANSWERS 0.64
/* How a work goes by: at until[i] of its time (rising, the last 1) unit i ends, and if mark[i] the caller is told (MARK; at the
 * last it is DONE whatever mark says). Shared by many works; the caller's, as long as they are under way. */
struct echi_work_shape { int units; const double *until; const bool *mark; };
struct echi_work {
    double seconds;                        /* of all units of its shape, on a machine of speed 1, without other threads beside it */
    int urgency;                           /* smaller goes first; of equals the one that was asked for first */
    bool while_held;                       /* also while the host holds */
    const struct echi_work_shape *shape;   /* NULL: one unit that nothing interrupts */
    int first, end;                        /* of the shape the units [first, end); end 0: to its last */
    double part;                           /* without a shape: there is a mark at this part of its time, 0..1; 0: none */
    uint64_t cookie;
};
void echi_cost_compute(struct echi_cost *cost, int host, const struct echi_work *work);
/* No work begins or goes on to its next unit, but those that may while_held. HELD comes once for each hold. */
void echi_cost_hold(struct echi_cost *cost, int host, bool hold);
/* The product of its lasting slow-downs now. A stretch of units takes as long as it does when it begins. */
double echi_cost_slow(const struct echi_cost *cost, int host);

/* Seconds for which a host has had a work under way, also while it stood still for messages, for its quota or for others on its cores. */
double echi_cost_busy(const struct echi_cost *cost, int host);

/* ---- links ---- */
/* What a direction of a host's link has carried since this was asked for the last time with success: bytes and seconds in which there was
 * always something to carry. False while these are fewer than `least`. */
bool echi_cost_carried(struct echi_cost *cost, int host, bool in, double least, double *out_bytes, double *out_seconds);
bool echi_cost_has_carried(const struct echi_cost *cost, int host, double least);   /* one of the two directions has so much */
/* Bytes of all messages that have left a host for another, or have come there whole. */
double echi_cost_moved(const struct echi_cost *cost, int host, bool in);
/* Bytes of others that the most urgent messages find before them on the way in, at most: what a switch holds for a port. Senders have
 * the rest back, and send it behind what is urgent. */
#define ECHI_COST_BUFFER (256 * 1024)
#define ECHI_COST_CHUNK 65536   /* bytes after which a message gives way, as those of net do */
#define ECHI_COST_FRAME 56      /* bytes that net puts before each chunk */
/* `bytes` with all that goes over the wire. Not queued before `not_before`. To the sender itself it takes no time: it arrives, and is
 * then sent. priority: 0 the most urgent, 65,535 the least. Messages of one priority from one host to another arrive in the order in
 * which they are queued. */
void echi_cost_send(struct echi_cost *cost, int from, int to, int priority, uint64_t bytes, int64_t not_before, uint64_t cookie);
int64_t echi_cost_delay(const struct echi_cost *cost, int from, int to);   /* ns that the shortest message takes at least */

/* A host is gone from this moment on: its works, and what it has not sent yet. What is on its way from it still comes; what is on its
 * way to it is sent, and arrives nowhere. */
void echi_cost_kill(struct echi_cost *cost, int host);
#endif
