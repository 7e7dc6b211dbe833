/* SPDX-License-Identifier: Apache-2.0
 * Plans as text files. plan_file.c */
#ifndef ECHI_PLAN_FILE_H
#define ECHI_PLAN_FILE_H
#include "ech_status.h"
#include "echi_plan.h"

/* A plan as a short text file that people read and edit. Errors name file, line and word. */
ech_status echi_plan_save(const char *path, const struct echi_plan *plan, struct ech_error *err);
ech_status echi_plan_load(const char *path, struct echi_plan *out, struct ech_error *err);
#endif
