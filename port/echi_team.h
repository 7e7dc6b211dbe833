/* SPDX-License-Identifier: Apache-2.0
 * A team of threads that share one piece of work after the other, cut into parts that do not depend on each other. The thread that hands
 * the work in takes part in it; the others sleep when there is none. */
#ifndef ECHI_TEAM_H
#define ECHI_TEAM_H
#include "ech_status.h"

#include <stdint.h>

struct echi_team;
#define ECHI_TEAM_MOST 1024   /* threads */

/* Does part `part` of the work. `place` is below echi_team_threads, and of no other part that runs at the same moment for the same call:
 * scratch memory can be numbered by it. Which thread does which part, and when, is left open: what a part writes must follow
 * from its number. */
typedef void (*echi_team_part)(void *args, int part, int place);

/* Starts threads - 1 threads, named ech-team-1 and so on; with 1 there is no team, and *out is NULL. ECH_E_MEMORY when the OS refuses one;
 * then none is left. */
ech_status echi_team_create(int threads, struct echi_team **out, struct ech_error *err);
void echi_team_destroy(struct echi_team *team);        /* idle; NULL is harmless */
int echi_team_threads(const struct echi_team *team);   /* with the caller; 1 for NULL */
/* CPU time that its threads have used, in nanoseconds, without any caller's; 0 for NULL. */
int64_t echi_team_cpu(const struct echi_team *team);
/* Does parts 0..parts-1 and returns when all are done; what they wrote can be seen by then. Any thread may call. A team does one call's
 * work at a time: who finds it busy does all parts alone, at place 0, rather than wait;
 * so does who has no team (NULL). Allocates nothing. */
void echi_team_run(struct echi_team *team, int parts, echi_team_part run, void *args);
#endif
