/* SPDX-License-Identifier: Apache-2.0
 * A round on a time line, for those that draw it or report it. */
#include "echi_time_line.h"

#include <math.h>
#include <stdlib.h>

#define INTERVALS 65536   /* memory that no round needs is never touched */
struct echi_timeline *echi_time_line_make(int hosts) {
    struct echi_timeline *line = calloc(1, sizeof *line + INTERVALS * sizeof *line->interval);
    if (!line) return NULL;
    line->interval = (struct echi_interval *)(void *)(line + 1);
    line->capacity = INTERVALS;
    echi_timeline_clear(line, hosts);
    return line;
}

static double seconds_at(const struct echi_timeline *line, int64_t at) {
    const int64_t within = at < line->from ? line->from : at > line->to ? line->to : at;
    return (double)(within - line->from) * 1e-9;
}

/* What of an interval lies between two moments of the round. */
static void put(struct ech_timeline *out, const struct echi_timeline *line, const struct echi_interval *i, const char *what, int64_t from,
                int64_t to) {
    static const char *const on[ECHI_LINES] = {"compute", "out", "in", "messages"};
    const int64_t path_from = i->path_from > from ? i->path_from : from, path_to = i->path_to < to ? i->path_to : to;
    const double begins = seconds_at(line, from), ends = seconds_at(line, to);
    if (!(ends > begins)) return;
    if (out->count == out->capacity) {
        out->left_out++;
        return;
    }
    struct ech_interval *put = &out->interval[out->count++];
    *put = (struct ech_interval){.rank = i->host, .peer = i->other, .on = on[i->on], .what = what, .layer = i->layer, .from = begins,
                                 .to = ends};
    if (path_from >= path_to) return;
    put->path_from = seconds_at(line, path_from);
    put->path_to = seconds_at(line, path_to);
}

static void put_all(struct ech_timeline *out, const struct echi_timeline *line) {
    for (uint32_t number = echi_timeline_first(line); number < line->count; number++) {
        const struct echi_interval *i = echi_timeline_at(line, number);
        const int64_t to = i->to == ECHI_UNDER_WAY ? line->to : i->to;
        if (to <= line->from || i->from >= line->to) continue;
        if (i->on != ECHI_LINE_THREAD) {
            put(out, line, i, echi_interval_message(i), i->from, to);
            continue;
        }
        const int64_t turn = i->from + llround((double)i->turns * (double)(to - i->from));
        put(out, line, i, echi_path_name((int)echi_interval_kind(i, false)), i->from, turn);
        put(out, line, i, echi_path_name((int)echi_interval_kind(i, true)), turn, to);
    }
}

void echi_time_line_show(const struct echi_timeline *line, struct ech_timeline *out) {
    out->count = out->left_out = 0;
    out->seconds = (double)(line->to - line->from) * 1e-9;
    out->rank = line->path.rank;
    if (out->seconds > 0) put_all(out, line);
}

void echi_time_line_path(const struct echi_timeline *line, struct ech_report *r) {
    _Static_assert(ECHI_PATH_PARTS == ECH_PATH_MAX, "a report has a place for each");
    r->path_rank = line ? line->path.rank : -1;
    r->path_seconds = line ? line->path.seconds : 0;
    r->n_path = line ? line->path.parts : 0;
    for (int i = 0; i < r->n_path; i++) {
        const struct echi_path_part *part = &line->path.part[i];
        r->path[i] = (struct ech_path_part){echi_path_name(part->kind), part->rank, part->seconds};
    }
}
