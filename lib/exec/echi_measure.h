/* SPDX-License-Identifier: Apache-2.0
 * What a machine takes for steps and for what is around them. measure.c */
#ifndef ECHI_MEASURE_H
#define ECHI_MEASURE_H
#include "echi_hal.h"
#include "echi_job.h"
#include "echi_lane.h"
#include "echi_times.h"

struct echi_profile {
    char machine[96];                  /* for people: processor and instruction set */
    char model[32];                    /* for people: what the steps trained */
    double trunk_ops, head_ops;        /* multiply-adds of a sample forward, in front of the cut and behind it (0: no cut) */
    double parameters;                 /* floats of that model */
    struct echi_times times;           /* of a step, as the planner takes them; all of it is filled, units too */
    double apply;                      /* seconds a parameter: momentum, decay and new weights from a gradient */
    double add;                        /* seconds a parameter: a gradient into the sum of a round */
    double refresh;                    /* seconds a parameter and summand: weights from w0 and the states */
    double copy;                       /* seconds a byte that goes into a socket, or comes out of one, frames included */
    double message;                    /* seconds a message at one end, besides its bytes */
    double eval;                       /* seconds a sample of the test set: read, forward, whole model */
};

/* Seconds of a step at several sizes, on the calling thread, which a slow node's factor holds up too: that of `lane`, or NULL. `io`: what
 * the least message and a byte take a processor at one end of a socket, without a quota; both above 0. */
ech_status echi_measure(const struct echi_job *job, struct echi_device *device, double slow, struct echi_lane *lane,
                        struct echi_cost_io io, struct echi_times *out, struct ech_error *err);

/* Into times of steps that somebody else has measured: what a step's messages and a push's bytes cost, by this `io`. What an owner computes
 * is not known of them. */
void echi_measure_messages(const struct echi_job *job, struct echi_cost_io io, struct echi_times *times);

/* What other tasks cost this machine, for a profile; `times` as echi_measure gave them with this `io`. On the same thread, a tenth of a
 * second for LeNet-5. *out has what echi_profile_of fills in. */
ech_status echi_measure_costs(const struct echi_job *job, struct echi_device *device, const struct echi_times *times,
                              struct echi_lane *lane, struct echi_cost_io io, struct echi_profile *out, struct ech_error *err);
#endif
