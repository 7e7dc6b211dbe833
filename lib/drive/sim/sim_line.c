/* SPDX-License-Identifier: Apache-2.0
 * A round of a run's plan, as predicted, for those that draw it. */
#include "echi_sim.h"

#include <math.h>
#include <stdlib.h>

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

void echi_sim_timeline(struct echi_coordinator *c, struct ech_timeline *out) {
    struct echi_timeline *line = echi_report_line(c);
    out->count = out->left_out = out->n_sweep = 0;
    out->seconds = 0;
    out->rank = -1;
    if (!line) return;
    out->seconds = (double)(line->to - line->from) * 1e-9;
    out->rank = line->path.rank;
    if (out->seconds > 0) put_all(out, line);
    free(line);
    for (int i = 0; i < ECH_SWEEP; i++) out->faster[i] = pow(10, (double)(2 * i) / (ECH_SWEEP - 1) - 1);
    if (echi_coordinator_sweep(c, out->faster, ECH_SWEEP, out->images_per_second)) out->n_sweep = ECH_SWEEP;
}
