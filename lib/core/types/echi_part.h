/* SPDX-License-Identifier: Apache-2.0
 * Parts: the ranges of parameters by which weights and gradients travel and are owned. part.c; made by planner/parts.c.
 *
 * A part is one layer, a slice of a large one, or several small neighbours. A run has one table of parts, in its plan. Together they
 * cover every parameter of the model once. They are numbered in the order in which forward needs them: part 0 first. */
#ifndef ECHI_PART_H
#define ECHI_PART_H
#include "echi_limits.h"

#define ECHI_PARTS_MAX 256

struct echi_part {
    uint64_t at;                          /* parameters [at, at + count) of the model */
    uint32_t count;
    uint8_t first, last;                  /* it has parameters of these layers and of those between them (layers with parameters, from 0) */
    uint8_t codec;                        /* enum echi_codec: the plan's; with top-k a part is one whole layer */
    uint8_t shard;                        /* of its group's shards the one that it is in (shards.c); 0 behind the cut */
    uint32_t tolerance;                   /* millionths of its bytes that may be lost on the way; 0 on every transport that exists yet */
};
/* A set of them. */
struct echi_part_set { uint64_t word[ECHI_PARTS_MAX / 64]; };
static inline bool echi_part_in(const struct echi_part_set *s, int part) { return s->word[part / 64] >> part % 64 & 1; }
static inline void echi_part_add(struct echi_part_set *s, int part) { s->word[part / 64] |= UINT64_C(1) << part % 64; }
static inline bool echi_part_none(const struct echi_part_set *s) {
    uint64_t any = 0;
    for (int i = 0; i < ECHI_PARTS_MAX / 64; i++) any |= s->word[i];
    return any == 0;
}
static inline void echi_part_drop(struct echi_part_set *s, int part) { s->word[part / 64] &= ~(UINT64_C(1) << part % 64); }

struct echi_parts { uint16_t count; struct echi_part part[ECHI_PARTS_MAX]; };   /* count 0: not made yet */

/* What a model says of itself: its layers with parameters, in the order of forward. */
struct echi_layers {
    uint16_t count, cut;                  /* cut: the first that is behind the usual cut, or the one asked for; `count`: there is none */
    uint64_t params[ECHI_UNITS_MAX];
    uint32_t width[ECHI_UNITS_MAX];       /* floats a sample that cross a cut in front of it; 0: none may be there, or nobody knows */
    bool joined[ECHI_UNITS_MAX];    /* kept with the layer in front of it: a batch-norm, with its convolution */
    bool norm[ECHI_UNITS_MAX];      /* a batch-norm */
};
/* Is a batch-norm in front of this layer? */
bool echi_layers_norm_before(const struct echi_layers *layers, int end);

/* What is wrong with a table, of which part, and with which numbers; lib/exec/part_text.c has the sentences. */
enum echi_part_rule {
    ECHI_PART_TOO_MANY, ECHI_PART_NO_TABLE, ECHI_PART_EMPTY,
    ECHI_PART_OVERLAPS, ECHI_PART_BEHIND_GAP,      /* the part before it ends in front of parameter x */
    ECHI_PART_LAYERS_TWICE,                        /* the parts in front of it have the layers up to x, -1: none */
    ECHI_PART_OTHER_CODEC, ECHI_PART_TOLERATES, ECHI_PART_TOPK_LAYERS,
    ECHI_PART_BEYOND_MODEL, ECHI_PART_MODEL_GOES_ON, /* the model has x parameters */
    ECHI_PART_OTHER_LAYERS,                        /* its parameters are of layers x to y */
    ECHI_PART_TOPK_SLICE, ECHI_PART_ACROSS_CUT,    /* the head's layers begin with x */
    ECHI_PART_SHARD_OF_HEAD                        /* the head's layers begin with x */
};
struct echi_part_fault { enum echi_part_rule rule; int part; int64_t x, y; };

/* Is this a table whose parts lie one behind the other from parameter 0 on, their layers too? Else the first fault. */
bool echi_parts_valid(const struct echi_parts *parts, int codec, struct echi_part_fault *out);
/* Is a valid table one of this model: every parameter of it in a part, and nothing else, in the layers that the parts name? With
 * `cut` above 0 no part reaches across it. Else the first fault. */
bool echi_parts_fit(const struct echi_parts *parts, const struct echi_layers *layers, int cut, struct echi_part_fault *out);
/* How many of them belong to layers [0, cut). */
int echi_parts_before(const struct echi_parts *parts, int cut);

#define ECHI_PART_BYTES 12
#define ECHI_PARTS_BYTES (2 + ECHI_PART_BYTES * ECHI_PARTS_MAX)
struct echi_reader;
struct echi_writer;
void echi_parts_put(struct echi_writer *w, const struct echi_parts *parts);
void echi_parts_get(struct echi_reader *r, struct echi_parts *out);   /* where each begins follows from those in front of it */
#endif
