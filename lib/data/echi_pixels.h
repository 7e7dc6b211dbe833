/* SPDX-License-Identifier: Apache-2.0
 * Inside this room only: data sets that are kept as one byte a pixel (idx files, glyphs), and who opens what. */
#ifndef ECHI_PIXELS_H
#define ECHI_PIXELS_H
#include "echi_data.h"

/* One set, training or test. The blocks are malloc'd and owned; pixels and labels point into them, behind whatever
 * header the file had, so a set read from a file is in memory once. */
struct echi_pixel_set {
    uint8_t *pixel_block, *label_block;
    const uint8_t *pixels;   /* [count][h][w] */
    const uint8_t *labels;   /* [count] */
    uint32_t count;
};

/* Makes a data set of ten classes out of a training set and a test set, one channel of h x w. Takes over the blocks of
 * both, also when it fails. `name` is kept from its end if it is too long. */
ech_status echi_pixels_data(struct echi_pixel_set train, struct echi_pixel_set test, int h, int w, const char *name,
                            struct ech_data **out, struct ech_error *err);
void echi_pixel_set_free(struct echi_pixel_set *set);

ech_status echi_idx_open(const char *dir, struct ech_data **out, struct ech_error *err);
ech_status echi_glyphs_open(uint64_t seed, struct ech_data **out, struct ech_error *err);

/* The end of a hash: 64 hex digits and a NUL. */
struct echi_sha256;
/* The hash of a data set begins with what it is (a tag of 16 characters), its counts and its shape. */
void echi_data_hash_begin(const struct ech_data *data, const char tag[16], struct echi_sha256 *s);
void echi_data_hash_end(struct echi_sha256 *s, char out[65]);
/* Copies as much of the end of `name` as fits. */
void echi_data_name(char out[96], const char *name);
#endif
