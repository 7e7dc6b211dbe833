/* SPDX-License-Identifier: Apache-2.0
 * Where a model is cut into trunk and head: what a plan request and measured times become with another cut, and where it is the best. */
#include "echi_choice_impl.h"
#include "echi_message.h"

#include <string.h>

/* Bytes as they are counted in a load. */
static uint32_t bytes(uint64_t count, uint64_t size) { return count < UINT32_MAX / size ? (uint32_t)(count * size) : UINT32_MAX; }

void echi_plan_request_cut(struct echi_plan_request *w, int cut) {
    struct echi_layers *l = &w->layers;
    uint64_t side[2] = {0, 0};
    for (int i = 0; i < l->count; i++) side[i >= cut] += l->params[i];
    l->cut = (uint16_t)cut;
    w->has_cut = cut > 0 && cut < l->count;
    w->trunk_params = side[0];
    w->load.trunk = bytes(side[0], sizeof(float));
    w->load.head = bytes(side[1], sizeof(float));
    w->load.layers = (uint32_t)cut;
    w->load.head_layers = (uint32_t)(l->count - cut);
    const size_t activation = w->activations == ECHI_ACTIVATIONS_BF16 ? sizeof(uint16_t) : sizeof(float);
    w->load.row_grad = w->has_cut ? bytes(l->width[cut], activation) : 0;
    w->load.row = w->load.row_grad <= UINT32_MAX - ECHI_LABEL_BYTES ? w->load.row_grad + ECHI_LABEL_BYTES : UINT32_MAX;
}

bool echi_plan_times_cut(const struct echi_plan_request *w, int cut, struct echi_times times[ECHI_WORLD_MAX]) {
    bool all = true;
    for (int r = 0; r < w->world; r++)
        if (!w->absent[r]) all = (times[r].cut == cut || echi_times_recut(&times[r], cut)) && all;
    return all;
}

/* ---- which cut ---- */

#define CUTS 8          /* that are tried at most */
#define OTHER_GAINS 1.1 /* at least, over the usual cut: a first look, before groups and steps are chosen, tells no better */
#define CUTS_WORLD 64   /* of more nodes a prediction takes too long for several */
#define BOUND_SLACK 1.2 /* staleness has been seen to gain 13 %, and measured steps vary */

/* Cuts that may be the best: in front of a layer that no more crosses than any cut before it, which has at least as much behind it; and the
 * usual one. A batch-norm stays with its convolution. Of more than are tried some, evenly. */
static int cuts_of(const struct echi_layers *l, int out[CUTS]) {
    int found[ECHI_UNITS_MAX], all = 0, count = 0;
    uint32_t least = UINT32_MAX;
    for (int k = 1; k < l->count; k++) {
        if (k != l->cut && (l->width[k] == 0 || l->joined[k] || l->width[k] > least)) continue;
        if (l->width[k] > 0 && l->width[k] < least) least = l->width[k];
        found[all++] = k;
    }
    for (int i = 0; i < all; i++) {
        const bool last = i + 1 == all, even = all <= CUTS || i * (CUTS - 2) / all != (i + 1) * (CUTS - 2) / all;
        if (count < CUTS && (found[i] == l->cut || last || even)) out[count++] = found[i];
    }
    return count;
}

/* No head passes more samples a second: by its arithmetic, and by the rows that its link carries beside those of its own worker. */
static double most_of(const struct echi_plan_request *w, const struct echi_times *times) {
    double most = 0;
    for (int r = 0; r < w->world; r++) {
        const struct echi_times *t = &times[r];
        double computed = 0, own = 0;
        for (uint32_t i = 0; i < t->count && !w->absent[r]; i++) {
            if (t->head[i] > 0) computed = echi_greater(computed, t->n[i] / t->head[i]);
            own = echi_greater(own, t->n[i] / (t->trunk[i] + t->head[i]));
        }
        const double in = t->link.in.rate / w->load.row, out = w->load.row_grad > 0 ? t->link.out.rate / w->load.row_grad : in;
        const double carried = in > 0 && out > 0 ? own + (in < out ? in : out) : computed;
        most = echi_greater(most, carried < computed ? carried : computed);
    }
    return most;
}

/* What a plan that is cut there is worth, as far as a first look tells: placed where links differ, else on the fastest. */
static double worth_of_cut(const struct echi_plan_request *asked, const struct echi_times *times, struct echi_choice_work *work) {
    static const enum echi_sync policy[] = {ECHI_SYNC_GSSP, ECHI_SYNC_BSP};
    double best = 0;
    for (int i = 0; i < (asked->choose ? 2 : 1); i++) {
        struct echi_plan_request *own = &work->apart;
        char text[2];
        *own = *asked;
        own->separate = 1;
        if (asked->choose) {
            own->sync = policy[i];
            own->samples_per_step = policy[i] == ECHI_SYNC_BSP ? 0 : own->samples_per_step;
            own->groups = policy[i] == ECHI_SYNC_BSP ? 0 : own->groups;
        }
        if (!echi_choice_links_alike(own, times)) echi_choice_place(own, times, work);
        if (echi_plan_make(own, times, &work->tried, text, sizeof text) != ECH_OK) continue;
        const struct echi_candidate c = echi_candidate_of(own, times, &work->tried, work);
        best = echi_greater(best, c.goodput * (1 - c.error));
    }
    return best;
}

const struct echi_times *echi_choice_cut(struct echi_plan_request *w, const struct echi_times *times, struct echi_choice_work *work) {
    const int usual = w->layers.cut;
    const bool open = w->separate == -1 && w->world > 1 && (w->choose || w->sync == ECHI_SYNC_GSSP);
    struct echi_plan_request *own = &work->at_cut;
    int cut[CUTS], best = -1;
    double most = 0, of_usual = 0;
    const int count = open && w->world <= CUTS_WORLD ? cuts_of(&w->layers, cut) : 0;
    for (int i = count - 1; i >= 0; i--) {   /* the last are crossed by the least, and mostly better */
        memcpy(work->recut, times, (size_t)w->world * sizeof *times);
        *own = *w;
        if (cut[i] != usual) {
            if (!echi_plan_times_cut(w, cut[i], work->recut)) continue;
            echi_plan_request_cut(own, cut[i]);
            if (most_of(own, work->recut) * BOUND_SLACK < most) continue;
        } else echi_plan_times_cut(w, usual, work->recut);
        const double value = worth_of_cut(own, work->recut, work);
        if (cut[i] == usual) of_usual = value;
        if (!(value > most)) continue;
        most = value;
        best = cut[i];
    }
    if (best < 0 || of_usual * OTHER_GAINS >= most) best = usual;
    if (best != usual) echi_plan_request_cut(w, best);
    bool there = true;
    for (int r = 0; r < w->world; r++) there = there && (w->absent[r] || times[r].units == 0 || times[r].cut == best);
    if (there || !w->has_cut) return times;
    memcpy(work->recut, times, (size_t)w->world * sizeof *times);
    echi_plan_times_cut(w, best, work->recut);
    return work->recut;
}
