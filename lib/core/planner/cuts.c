/* SPDX-License-Identifier: Apache-2.0
 * Where a model is cut into trunk and head: what a plan request and measured times become with another cut. */
#include "echi_message.h"
#include "echi_planner.h"

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
    w->load.row_grad = w->has_cut ? bytes(l->width[cut], sizeof(float)) : 0;
    w->load.row = w->load.row_grad <= UINT32_MAX - ECHI_LABEL_BYTES ? w->load.row_grad + ECHI_LABEL_BYTES : UINT32_MAX;
}

bool echi_plan_times_cut(const struct echi_plan_request *w, int cut, struct echi_times times[ECHI_WORLD_MAX]) {
    bool all = true;
    for (int r = 0; r < w->world; r++)
        if (!w->absent[r]) all = (times[r].cut == cut || echi_times_recut(&times[r], cut)) && all;
    return all;
}
