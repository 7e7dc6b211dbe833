/* SPDX-License-Identifier: Apache-2.0
 * Data sets as the rest of the library sees them. The public half (ech_data_*) is in echelon.h. */
#ifndef ECHI_DATA_H
#define ECHI_DATA_H
#include "echelon.h"
#include "echi_ops.h"

#define ECHI_CLASSES_MAX 65536   /* a label is 16 bits wide */

/* Whether training samples of a set can be augmented (random crop and flip), and are when nobody says otherwise. */
enum echi_augmenting { ECHI_AUGMENT_CANNOT, ECHI_AUGMENT_ASKED, ECHI_AUGMENT_USUAL };
/* Which crop and flip each sample gets, with its number: nothing else decides it (PROTOCOL.md, "Randomness"). */
struct echi_augment { uint64_t seed; uint32_t epoch; };

struct echi_data_source {
    /* Writes samples index[0..n) as rows [n][C*H*W], normalised, and their labels; `augment` NULL: as they are. Reentrant: any thread. */
    ech_status (*read)(const void *self, bool test, const struct echi_augment *augment, const uint32_t *index, int n, float *rows,
                       uint16_t *labels, struct ech_error *err);
    void (*destroy)(void *self);
};
struct ech_data {
    const struct echi_data_source *source; void *self;
    char name[96];                      /* "glyphs", a folder */
    struct echi_shape shape; int classes;   /* at most ECHI_CLASSES_MAX */
    uint32_t n_train, n_test;
    enum echi_augmenting augmenting;
    char hash[65];                      /* SHA-256 of all samples and labels, 64 hex digits */
};
/* `augment` only of the training set, and not where augmenting is CANNOT. */
ech_status echi_data_read(const struct ech_data *data, bool test, const struct echi_augment *augment, const uint32_t *index, int n,
                          float *rows, uint16_t *labels, struct ech_error *err);
#endif
