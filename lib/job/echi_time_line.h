/* SPDX-License-Identifier: Apache-2.0
 * Time lines of the cost engine's form, predicted or recorded, as those that draw them take them. time_line.c */
#ifndef ECHI_TIME_LINE_H
#define ECHI_TIME_LINE_H
#include "echelon_dev.h"
#include "echi_timeline.h"

/* One for 65,536 intervals, cleared: a round of 256 nodes has about so many. NULL: no memory. For free(). */
struct echi_timeline *echi_time_line_make(int hosts);
/* Into out's memory what lies within the last round of `line`, its length and whose it is; the rest of *out stays. */
void echi_time_line_show(const struct echi_timeline *line, struct ech_timeline *out);
/* The critical path, as a report has it; of NULL there is none. */
void echi_time_line_path(const struct echi_timeline *line, struct ech_report *out);
#endif
