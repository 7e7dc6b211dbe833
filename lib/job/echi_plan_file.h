/* SPDX-License-Identifier: Apache-2.0
 * Plans as text files. plan_file.c, plan_reason.c */
#ifndef ECHI_PLAN_FILE_H
#define ECHI_PLAN_FILE_H
#include "ech_status.h"
#include "echi_plan.h"
#include "echi_times.h"

/* A plan as a short text file that people read and edit, with the rates of its nodes' links: of all `world` ranks, or none. Errors name
 * file, line and word.
 * save: those of times[0 .. world); NULL, or a rank's rate is not known: the file has none.
 * load: usual_cut: of a file that names a head's rank and not its first layer; 0: then one is missing.
 * out_link[0 .. world), all not known where the file has none; NULL: they are checked and left. */
ech_status echi_plan_save(const char *path, const struct echi_plan *plan, const struct echi_times *times, struct ech_error *err);
ech_status echi_plan_load(const char *path, int usual_cut, struct echi_plan *out, struct echi_link out_link[ECHI_WORLD_MAX],
                          struct ech_error *err);

/* Why a plan that was read is not valid (plan_reason.c): the first rule that it breaks, and what to do. */
void echi_plan_reason(const struct echi_plan *plan, char *text, size_t cap);
#endif
