/* SPDX-License-Identifier: Apache-2.0
 * What a run waits for: how much faster the same plan would be if one of the things that it takes time with took half of it. By
 * prediction, as profilers by virtual speed-ups ask it of programs (Curtsinger, Berger: Coz, SOSP 2015). What gains the most is the
 * *bottleneck*. */
#ifndef ECHI_WHAT_IF_H
#define ECHI_WHAT_IF_H
#include "echi_choice.h"

enum echi_what {
    ECHI_WHAT_STEPS,     /* forward and backward of workers, of the trunk where layers are separated */
    ECHI_WHAT_LINKS,     /* bytes on links, both directions */
    ECHI_WHAT_LATENCY,   /* what each message takes beside its bytes, at processors and on its way */
    ECHI_WHAT_OWNERS,    /* taking in, adding and applying pushes */
    ECHI_WHAT_HEAD,      /* forward and backward of separated layers */
    ECHI_WHAT_VARIATION, /* jitter and stutters of steps: half as large */
    ECHI_WHATS
};
const char *echi_what_name(int what);   /* "steps", "links", ... */
/* rank -1: of all nodes. gain 0.41: 41 % more samples a second. */
struct echi_what_if { uint8_t what; int16_t rank; double gain; };

/* What would gain 2 % or more over `rate`, which was predicted of the plan, the most first; returns how many these are. A node is named
 * where it alone would gain half of what all do. The plan and the times are as for echi_predict. At most 6 predictions and 4 for each of
 * three things of which a node may be named. */
int echi_what_if(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load, double rate,
                 struct echi_choice_work *work, struct echi_what_if out[ECHI_WHATS]);

/* sweep.c: samples a second of the same plan with all links factor[i] times as fast; delays stay. False, and nothing is predicted, where no
 * link is known. */
bool echi_link_sweep(const struct echi_plan *plan, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_load *load,
                     struct echi_choice_work *work, const double *factor, int count, double *out_rate);
/* Samples a second of only nodes[i] nodes, those of which a step takes the shortest, of two alike the lower ranks. Planned anew for
 * each number, under the plan's policy and with its round and layer separation; places, owners and table are the best then. None is left
 * out, but a share may be 0. 0: that policy has no plan of so few, or the request names nodes that would be missing. Takes as long as so
 * many plans. */
void echi_node_sweep(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], const struct echi_plan *plan,
                     struct echi_choice_work *work, const int *nodes, int count, double *out_rate);
#endif
