/* SPDX-License-Identifier: Apache-2.0
 * Tables of parts: whether one makes sense, whether it is one of a model, and its bytes. */
#include "echi_part.h"
#include "echi_bytes.h"
#include "echi_plan.h"

#include <string.h>

static bool refuse(struct echi_part_fault *out, enum echi_part_rule rule, int part, uint64_t x, uint64_t y) {
    *out = (struct echi_part_fault){rule, part, (int64_t)x, (int64_t)y};
    return false;
}

static uint64_t end_of(const struct echi_part *p) { return p->at + p->count; }

bool echi_parts_valid(const struct echi_parts *parts, int codec, struct echi_part_fault *out) {
    uint64_t end = 0;
    int last = -1;
    if (parts->count > ECHI_PARTS_MAX) return refuse(out, ECHI_PART_TOO_MANY, 0, parts->count, 0);
    for (int i = 0; i < parts->count; i++) {
        const struct echi_part *p = &parts->part[i];
        if (p->count == 0) return refuse(out, ECHI_PART_EMPTY, i, 0, 0);
        if (p->at < end) return refuse(out, ECHI_PART_OVERLAPS, i, end, 0);
        if (p->at > end) return refuse(out, ECHI_PART_BEHIND_GAP, i, end, 0);
        const bool slice = p->first == last && codec != ECHI_CODEC_TOPK;   /* of the same layer as the part in front of it */
        if (p->first > p->last || (p->first != last + 1 && !slice)) return refuse(out, ECHI_PART_LAYERS_TWICE, i, (uint64_t)last, 0);
        if (p->codec != codec) return refuse(out, ECHI_PART_OTHER_CODEC, i, 0, 0);
        if (p->tolerance != 0) return refuse(out, ECHI_PART_TOLERATES, i, 0, 0);
        if (codec == ECHI_CODEC_TOPK && p->first != p->last) return refuse(out, ECHI_PART_TOPK_LAYERS, i, 0, 0);
        end = end_of(p);
        last = p->last;
    }
    return true;
}

/* The layer that this parameter is of; `count` beyond the last. */
static int layer_of(const struct echi_layers *layers, uint64_t param) {
    int i = 0;
    for (; i < layers->count && param >= layers->params[i]; i++) param -= layers->params[i];
    return i;
}

bool echi_parts_fit(const struct echi_parts *parts, const struct echi_layers *layers, int cut, struct echi_part_fault *out) {
    uint64_t all = 0;
    for (int i = 0; i < layers->count; i++) all += layers->params[i];
    if (parts->count == 0) return refuse(out, ECHI_PART_NO_TABLE, 0, 0, 0);
    for (int i = 0; i < parts->count; i++) {
        const struct echi_part *p = &parts->part[i];
        if (end_of(p) > all) return refuse(out, ECHI_PART_BEYOND_MODEL, i, all, 0);
        const int first = layer_of(layers, p->at), last = layer_of(layers, end_of(p) - 1);
        if (p->first != first || p->last != last) return refuse(out, ECHI_PART_OTHER_LAYERS, i, (uint64_t)first, (uint64_t)last);
        if (p->codec == ECHI_CODEC_TOPK && p->count != layers->params[first]) return refuse(out, ECHI_PART_TOPK_SLICE, i, 0, 0);
        if (cut > 0 && first < cut && last >= cut) return refuse(out, ECHI_PART_ACROSS_CUT, i, (uint64_t)cut, 0);
        if (cut > 0 && first >= cut && p->shard != 0) return refuse(out, ECHI_PART_SHARD_OF_HEAD, i, (uint64_t)cut, 0);
    }
    if (end_of(&parts->part[parts->count - 1]) < all) return refuse(out, ECHI_PART_MODEL_GOES_ON, parts->count - 1, all, 0);
    return true;
}

int echi_parts_before(const struct echi_parts *parts, int cut) {
    int count = 0;
    while (count < parts->count && parts->part[count].last < cut) count++;
    return count;
}

void echi_parts_put(struct echi_writer *w, const struct echi_parts *parts) {
    echi_put16(w, parts->count);
    for (int i = 0; i < parts->count; i++) {
        const struct echi_part *p = &parts->part[i];
        echi_put32(w, p->count);
        echi_put8(w, p->first);
        echi_put8(w, p->last);
        echi_put8(w, p->codec);
        echi_put8(w, p->shard);
        echi_put32(w, p->tolerance);
    }
}

void echi_parts_get(struct echi_reader *r, struct echi_parts *out) {
    memset(out, 0, sizeof *out);
    const uint16_t count = echi_get16(r);
    uint64_t at = 0;
    if (count > ECHI_PARTS_MAX) r->ok = false;
    for (int i = 0; r->ok && i < count; i++) {
        struct echi_part *p = &out->part[out->count++];
        p->at = at;
        p->count = echi_get32(r);
        p->first = echi_get8(r);
        p->last = echi_get8(r);
        p->codec = echi_get8(r);
        p->shard = echi_get8(r);
        p->tolerance = echi_get32(r);
        at = end_of(p);
    }
}

bool echi_layers_norm_before(const struct echi_layers *layers, int end) {
    for (int i = 0; i < end && i < layers->count; i++)
        if (layers->norm[i]) return true;
    return false;
}
