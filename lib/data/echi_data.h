/* SPDX-License-Identifier: Apache-2.0
 * Data sets as the rest of the library sees them. The public half (ech_data_*) is in echelon.h. */
#ifndef ECHI_DATA_H
#define ECHI_DATA_H
#include "echelon.h"
#include "echi_ops.h"

struct echi_data_source {
    /* Writes samples index[0..n) as rows [n][C*H*W], normalised, and their labels. Reentrant: any thread. */
    ech_status (*read)(const void *self, bool test, const uint32_t *index, int n, float *rows, uint8_t *labels, struct ech_error *err);
    void (*destroy)(void *self);
};
struct ech_data {
    const struct echi_data_source *source; void *self;
    char name[96];                      /* "glyphs", a folder */
    struct echi_shape shape; int classes;
    uint32_t n_train, n_test;
    char hash[65];                      /* SHA-256 of all samples and labels, 64 hex digits */
};
ech_status echi_data_read(const struct ech_data *data, bool test, const uint32_t *index, int n, float *rows, uint8_t *labels, struct ech_error *err);
#endif
