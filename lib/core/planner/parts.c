/* SPDX-License-Identifier: Apache-2.0
 * The default table of parts. Slices of equal size keep a layer's pieces below the limit; small neighbours share a part, for a message
 * costs time by itself. But a part leaves when all of its layers have been computed backward, so only small ones share. */
#include "echi_planner.h"

#include <string.h>

/* Parts are so many at most that a slice is worth a message, and the table has room for them: neighbours that do not share a part have
 * more than a limit together, and so have the slices of a layer. */
#define SLICES_MAX 120

static uint64_t at_least(const struct echi_layers *layers, uint64_t limit) {
    uint64_t all = 0;
    for (int i = 0; i < layers->count; i++) all += layers->params[i];
    return all / SLICES_MAX > limit ? all / SLICES_MAX : limit;
}

/* A new part, of layers first to last, behind those that are there. */
static void add(struct echi_parts *parts, int first, int last, uint64_t params, int codec) {
    const struct echi_part *before = parts->count ? &parts->part[parts->count - 1] : NULL;
    parts->part[parts->count++] = (struct echi_part){.at = before ? before->at + before->count : 0, .count = (uint32_t)params,
        .first = (uint8_t)first, .last = (uint8_t)last, .codec = (uint8_t)codec};
}

void echi_parts_add_slice(struct echi_parts *parts, const struct echi_layers *layers, int first, uint64_t at, uint64_t size) {
    uint64_t layer_end = layers->params[first];   /* as `at` from the beginning of the layer that was asked for; the end of layer `first` */
    while (at >= layer_end) layer_end += layers->params[++first];
    int last = first;
    for (uint64_t reached = layer_end; reached < at + size; reached += layers->params[last]) last++;
    add(parts, first, last, size, ECHI_CODEC_DENSE);
}

/* A unit of the layers from `first` on, with so many parameters, as slices that differ by less than their number. */
static void add_slices(struct echi_parts *parts, const struct echi_layers *layers, int first, uint64_t params, uint64_t limit) {
    const uint64_t count = (params + limit - 1) / limit;
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t size = params / count + (i < params % count);
        echi_parts_add_slice(parts, layers, first, at, size);
        at += size;
    }
}

void echi_parts_make(const struct echi_layers *layers, int cut, int codec, uint64_t slice, uint64_t merged,
                     struct echi_parts *out) {
    const bool dense = codec == ECHI_CODEC_DENSE;
    uint64_t room = 0;   /* that others may still have in the last part */
    memset(out, 0, sizeof *out);
    slice = at_least(layers, slice);
    merged = at_least(layers, merged);
    for (int i = 0, end; i < layers->count; i = end) {
        uint64_t unit = layers->params[i];
        for (end = i + 1; dense && end < layers->count && layers->joined[end] && end != cut; end++) unit += layers->params[end];
        if (cut > 0 && i == cut) room = 0;
        if (dense && unit > slice) {
            add_slices(out, layers, i, unit, slice);
            room = 0;
        } else if (dense && unit <= room) {
            out->part[out->count - 1].count += (uint32_t)unit;
            out->part[out->count - 1].last = (uint8_t)(end - 1);
            room -= unit;
        } else {
            add(out, i, end - 1, unit, codec);
            room = dense && unit < merged ? merged - unit : 0;
        }
    }
}

void echi_plan_parts(const struct echi_plan_request *request, const struct echi_times times[ECHI_WORLD_MAX], struct echi_plan *plan) {
    const struct echi_layers *l = &request->layers;
    const int cut = plan->cut ? plan->cut : l->count;
    if (plan->parts.count > 0) return;
    const uint64_t slice = echi_plan_slice(plan, l);
    echi_parts_make(l, plan->cut, plan->codec, slice, slice < ECHI_PART_MERGED ? slice : ECHI_PART_MERGED, &plan->parts);
    if (plan->shards) echi_plan_deal_parts(plan, times, echi_parts_before(&plan->parts, cut));
}
