/* SPDX-License-Identifier: Apache-2.0
 * Inside this room only: data sets that are kept as one byte a pixel (idx files, CIFAR-10, glyphs), and who opens what. */
#ifndef ECHI_PIXELS_H
#define ECHI_PIXELS_H
#include "echi_data.h"

/* One set, training or test. The blocks are malloc'd and owned; pixels and labels point into them, behind whatever
 * header the file had, so a set read from a file is in memory once. */
struct echi_pixel_set {
    uint8_t *pixel_block, *label_block;
    const uint8_t *pixels;   /* [count][c][h][w] */
    const uint8_t *labels;   /* [count] */
    uint32_t count;
};

#define ECHI_PIXEL_CHANNELS 3
/* What the samples of a data set are, and how a byte x of a channel becomes a float: (x/255 - mean) / deviation. */
struct echi_pixel_form {
    struct echi_shape shape;   /* at most ECHI_PIXEL_CHANNELS channels */
    float mean[ECHI_PIXEL_CHANNELS], deviation[ECHI_PIXEL_CHANNELS];
    enum echi_augmenting augmenting;
};
/* Of handwritten digits, MNIST's: one channel of h x w. */
struct echi_pixel_form echi_pixels_digits(int h, int w);

/* Makes a data set of ten classes out of a training set and a test set. Takes over the blocks of both, also when it fails.
 * `name` is kept from its end if it is too long. */
ech_status echi_pixels_data(struct echi_pixel_set train, struct echi_pixel_set test, const struct echi_pixel_form *form, const char *name,
                            struct ech_data **out, struct ech_error *err);
void echi_pixel_set_free(struct echi_pixel_set *set);

/* A crop of h x w out of an image with ECHI_CROP_PAD black pixels on each side, then mirrored or not: as PyTorch's
 * RandomCrop(size, padding=4) and RandomHorizontalFlip, before the image is normalised, so what lies outside is black. Row y of the result
 * is row y + dy of the image; column x is column x + dx, or of a mirrored one w - 1 - x + dx. Each of the 9 x 9 x 2 is as likely. */
#define ECHI_CROP_PAD 4
struct echi_crop { int dy, dx; bool flip; };
struct echi_crop echi_crop_of(const struct echi_augment *augment, uint32_t sample);

/* Whether a folder has any of the files of a kind, packed ones too; then the set in it. */
bool echi_idx_here(const char *dir);
ech_status echi_idx_open(const char *dir, struct ech_data **out, struct ech_error *err);
bool echi_cifar_here(const char *dir);
ech_status echi_cifar_open(const char *dir, struct ech_data **out, struct ech_error *err);
ech_status echi_glyphs_open(uint64_t seed, struct ech_data **out, struct ech_error *err);

/* The records of a CIFAR-10 file, `count` of them and nothing else, as pixels [count][3][32][32] and labels [count]; what is written is
 * right only when it succeeds. `shown` is the file's name for messages. */
#define ECHI_CIFAR_PIXELS (3 * 32 * 32)
#define ECHI_CIFAR_RECORD (1 + ECHI_CIFAR_PIXELS)   /* bytes: a label, then three planes, row by row */
ech_status echi_cifar_split(const uint8_t *bytes, size_t len, uint32_t count, const char *shown, uint8_t *pixels, uint8_t *labels,
                            struct ech_error *err);

/* A file of a data folder. A folder may be deep: messages show the end of a long path, so that what to do still fits behind it. */
enum { ECHI_DATA_DIR_MOST = 4096, ECHI_DATA_SHOWN = 160 };
struct echi_data_path { char text[ECHI_DATA_DIR_MOST + 64], shown[ECHI_DATA_SHOWN + 1]; };
/* An empty name gives the folder itself. */
void echi_data_path(struct echi_data_path *out, const char *dir, const char *name, const char *suffix);
/* The files of a set, some of which go by a second name too (other[i], or NULL for all). `packed` is the suffix of files not unpacked, and
 * `fetch` what tools/get-data calls the set. */
struct echi_data_files { const char *set, *number, *packed, *fetch; int count; const char *const *name, *const *other; };
/* Is any of them there, packed ones too? */
bool echi_data_any_here(const struct echi_data_files *files, const char *dir);
/* Where each of them is: path [count]. Names what is missing before anything is read: the usual mistakes are a wrong folder and files not
 * unpacked. */
ech_status echi_data_find_all(const struct echi_data_files *files, const char *dir, struct echi_data_path *path, struct ech_error *err);

/* The end of a hash: 64 hex digits and a NUL. */
struct echi_sha256;
/* The hash of a data set begins with what it is (a tag of 16 characters), its counts and its shape. */
void echi_data_hash_begin(const struct ech_data *data, const char tag[16], struct echi_sha256 *s);
void echi_data_hash_end(struct echi_sha256 *s, char out[65]);
/* Copies as much of the end of `name` as fits. */
void echi_data_name(char out[96], const char *name);
#endif
