/* SPDX-License-Identifier: Apache-2.0
 * The time line of a play: what its intervals are about. */
#include "echi_play.h"

/* The first layer that a message has parameters of. */
static int layer_of(const struct echi_play *p, const struct echi_about *a) {
    switch (a->what) {
    case ECHI_PLAY_PUSH:
    case ECHI_PLAY_SUM:
    case ECHI_PLAY_HANDED:
    case ECHI_PLAY_WEIGHTS: return p->pieces > 1 && a->piece < p->pieces ? p->piece[a->piece].first : -1;
    default: return -1;
    }
}

/* Of a stretch of a step the part in which it goes forward. */
static double forward_of(const struct echi_play *p, const struct echi_interval *i, int worker) {
    const double turns = p->of[worker]->step.until[p->layers - 1], begins = (double)i->begins, ends = (double)i->ends;
    return turns <= begins ? 0 : turns >= ends ? 1 : (turns - begins) / (ends - begins);
}

void echi_play_end(struct echi_play *p, int64_t since, int rank) {
    struct echi_timeline *l = p->line;
    if (!l) return;
    for (uint32_t number = echi_timeline_first(l); number < l->count; number++) {
        struct echi_interval *i = echi_timeline_at(l, number);
        const struct echi_about a = echi_play_about(i->cookie);
        const bool computes = i->on == ECHI_LINE_THREAD;
        i->what = (uint8_t)a.what;
        i->layer = (int16_t)layer_of(p, &a);
        if (computes && a.what == ECHI_PLAY_STEP) i->turns = (float)forward_of(p, i, a.worker);
        else if (computes) i->turns = a.what == ECHI_PLAY_BACKWARD ? 0 : 1;
    }
    echi_timeline_path(l, since, rank);
}
