/* SPDX-License-Identifier: Apache-2.0
 * What is wrong with a table of parts, as a sentence that names the part. */
#include "echi_job.h"

#include <inttypes.h>
#include <stdio.h>

void echi_parts_sentence(const struct echi_parts *parts, const struct echi_part_fault *f, char *text, size_t cap) {
    const int i = f->part;
    const struct echi_part *p = &parts->part[i];
    const uint64_t end = p->at + p->count;
    switch (f->rule) {
    case ECHI_PART_TOO_MANY: snprintf(text, cap, "a plan has at most %d parts, found %" PRId64, ECHI_PARTS_MAX, f->x); break;
    case ECHI_PART_NO_TABLE: snprintf(text, cap, "there is no table of parts"); break;
    case ECHI_PART_EMPTY: snprintf(text, cap, "part %d has no parameters: leave it out", i); break;
    case ECHI_PART_OVERLAPS:
        snprintf(text, cap, "part %d begins at parameter %" PRIu64 ", but part %d ends in front of %" PRId64 ": parts must not overlap", i,
                 p->at, i - 1, f->x);
        break;
    case ECHI_PART_BEHIND_GAP:
        snprintf(text, cap, "part %d begins at parameter %" PRIu64 ": parameters %" PRId64 " to %" PRIu64 " are in no part", i, p->at, f->x,
                 p->at - 1);
        break;
    case ECHI_PART_LAYERS_TWICE:
        snprintf(text, cap, "part %d has layers %d to %d, but the layers up to %" PRId64 " are in the parts in front of it", i, p->first,
                 p->last, f->x);
        break;
    case ECHI_PART_OTHER_CODEC: snprintf(text, cap, "part %d has another codec than the plan", i); break;
    case ECHI_PART_TOLERATES:
        snprintf(text, cap, "part %d has tolerance %u, but no transport loses bytes yet: it must be 0", i, p->tolerance);
        break;
    case ECHI_PART_TOPK_LAYERS:
        snprintf(text, cap, "part %d has layers %d to %d, but under topk a part is one layer", i, p->first, p->last);
        break;
    case ECHI_PART_BEYOND_MODEL:
        snprintf(text, cap, "part %d ends in front of parameter %" PRIu64 ", but the model has %" PRId64, i, end, f->x);
        break;
    case ECHI_PART_MODEL_GOES_ON:
        snprintf(text, cap, "parameters %" PRIu64 " to %" PRId64 " of the model are in no part, behind part %d", end, f->x - 1, i);
        break;
    case ECHI_PART_OTHER_LAYERS:
        snprintf(text, cap, "part %d has parameters of layers %" PRId64 " to %" PRId64 ", not %d to %d", i, f->x, f->y, p->first, p->last);
        break;
    case ECHI_PART_TOPK_SLICE:
        snprintf(text, cap, "part %d is a slice of layer %d, but under topk a part is a whole layer", i, p->first);
        break;
    case ECHI_PART_ACROSS_CUT:
        snprintf(text, cap, "part %d has layers %d to %d, but the head's layers begin with %" PRId64 ": part them there", i, p->first,
                 p->last, f->x);
        break;
    case ECHI_PART_SHARD_OF_HEAD:
        snprintf(text, cap, "part %d is of shard %d, but the head, whose layers begin with %" PRId64 ", has no shards: give it shard 0", i,
                 p->shard, f->x);
        break;
    }
}
