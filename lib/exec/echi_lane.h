/* SPDX-License-Identifier: Apache-2.0
 * The thread of a node that computes. lane.c */
#ifndef ECHI_LANE_H
#define ECHI_LANE_H
#include "ech_status.h"
#include "echi_task.h"

/* What comes back from a lane: a gradient of a layer, or a finished task. From a session's caller also `rows`: they are there for the STEP
 * of which the lane is to compute the head's part. */
struct echi_done {
    bool gradient, rows;
    int layer;
    struct echi_task task;
    struct echi_result result;
    ech_status status;
    struct ech_error error;
};

/* One thread that runs tasks, the most urgent first; it looks for more urgent ones at every unit of a task. */
struct echi_lane;
typedef ech_status (*echi_lane_run)(void *self, const struct echi_task *task, struct echi_result *result, struct ech_error *err);
/* `notify` is called (any thread) after something was put where echi_lane_take finds it. slow >= 1 (see ech_config). */
ech_status echi_lane_create(echi_lane_run run, void *self, void (*notify)(void *), void *notify_self, double slow,
                            struct echi_lane **out, struct ech_error *err);
/* Drops what has not begun, and waits for what runs. False: it made no progress for so long, and is left behind: its thread and all that
 * it may touch must stay, and it goes no further when it comes back. */
bool echi_lane_destroy(struct echi_lane *lane, int64_t patience);
#define ECHI_PATIENCE_SLICES 20   /* that such a wait is cut into */
/* Called now and then by a function that echi_lane_call runs, and by a task that does not breathe: it makes progress. False: the lane is
 * being destroyed, and waits for it. Does not return in a thread that is left behind. */
bool echi_lane_stay(struct echi_lane *lane);
ech_status echi_lane_submit(struct echi_lane *lane, const struct echi_task *task, struct ech_error *err);
bool echi_lane_take(struct echi_lane *lane, struct echi_done *out);
/* While held no task starts or goes on but EVAL. echi_lane_is_held: true once nothing runs. */
void echi_lane_hold(struct echi_lane *lane, bool hold);
bool echi_lane_is_held(struct echi_lane *lane);
/* Called by the running task between units: runs what is more urgent than `kind`, waits while held, sleeps what a slow
 * node owes. */
void echi_lane_breathe(struct echi_lane *lane, enum echi_task_kind kind);
/* Of these three, and of echi_lane_stay, a lane that is NULL does nothing (and stays): a replay runs tasks without one. */
/* Called by the running task: the gradient of a layer, or of a head's rows, is in its place. Those of fewer bytes than
 * ECHI_WORTH_A_WAKE wait for the next, or for the end of their task. */
void echi_lane_gradient(struct echi_lane *lane, const struct echi_task *task, int layer, size_t bytes, const struct echi_result *result);
void echi_lane_rows(struct echi_lane *lane, const struct echi_task *task, const struct echi_result *result);
/* What a lane is at: the task in hand (the most urgent of those begun), since when, and how many wait. */
/* ticks: changes whenever the lane makes progress, which it should while it is busy. */
struct echi_lane_view { bool runs, held, busy; uint64_t ticks; struct echi_task task; int64_t since; int waiting; };
void echi_lane_look(struct echi_lane *lane, struct echi_lane_view *out);
/* Runs a function once on the lane's thread, then notifies (measuring, slots): as soon as the task in hand is at the end of a unit,
 * before any other task, held or not. It is no work of the node that is played slow. Does not wait; one at a time. */
void echi_lane_call(struct echi_lane *lane, void (*call)(void *self), void *self);

/* The debt of a node that plays a slow one. */
struct echi_slowness { double factor; int64_t cpu_mark, debt; };
void echi_slowness_begin(struct echi_slowness *s, double factor);   /* on the thread that computes */
void echi_slowness_pay(struct echi_slowness *s);
#endif
