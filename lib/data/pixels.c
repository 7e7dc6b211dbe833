/* SPDX-License-Identifier: Apache-2.0
 * Data sets kept as one byte a pixel, a quarter of the memory that floats would take (MNIST: 55 MB, CIFAR-10: 184 MB);
 * a table of 256 entries a channel normalises on read, after the random crop and flip of a training sample. */
#include "echi_pixels.h"

#include "echi_error.h"
#include "echi_random.h"
#include "echi_sha256.h"

#include <stdlib.h>
#include <string.h>

struct pixels {
    struct echi_pixel_set set[2];                /* training, test */
    struct echi_shape shape;
    float value[ECHI_PIXEL_CHANNELS][256];       /* of each byte */
};

struct echi_pixel_form echi_pixels_digits(int h, int w) {
    return (struct echi_pixel_form){.shape = {1, h, w}, .mean = {0.1307f}, .deviation = {0.3081f}, .augmenting = ECHI_AUGMENT_ASKED};
}

struct echi_crop echi_crop_of(const struct echi_augment *augment, uint32_t sample) {
    struct echi_random r;
    echi_random_init(&r, augment->seed, ECHI_STREAM_AUGMENT, augment->epoch);
    r.at = (uint64_t)sample << 32;   /* so that each sample has counters of its own, as many as it draws */
    const int dy = (int)echi_random_below(&r, 2 * ECHI_CROP_PAD + 1) - ECHI_CROP_PAD;
    const int dx = (int)echi_random_below(&r, 2 * ECHI_CROP_PAD + 1) - ECHI_CROP_PAD;
    return (struct echi_crop){dy, dx, echi_random_below(&r, 2) != 0};
}

static void read_plain(const uint8_t *from, const float value[256], size_t size, float *to) {
    for (size_t k = 0; k < size; k++) to[k] = value[from[k]];
}

static void read_cropped(const uint8_t *from, const float value[256], int h, int w, struct echi_crop crop, float *to) {
    for (int y = 0; y < h; y++, to += w) {
        const int row = y + crop.dy;
        for (int x = 0; x < w; x++) {
            const int column = (crop.flip ? w - 1 - x : x) + crop.dx;
            const bool inside = row >= 0 && row < h && column >= 0 && column < w;
            to[x] = value[inside ? from[row * w + column] : 0];
        }
    }
}

/* Samples in random order are not in any cache: of MNIST, waiting for their first bytes took longer than all the rest. So those of a sample
 * are asked for while AHEAD others before it are read. */
enum { AHEAD = 2, LINE = 64 };
static void ask_for(const uint8_t *bytes, size_t size) {
    for (size_t k = 0; k < size; k += LINE) __builtin_prefetch(bytes + k);
}

static ech_status pixels_read(const void *self, bool test, const struct echi_augment *augment, const uint32_t *index, int n, float *rows,
                              uint16_t *labels, struct ech_error *err) {
    (void)err;
    const struct pixels *p = self;
    const struct echi_pixel_set *set = &p->set[test];
    const int h = p->shape.h, w = p->shape.w;
    const size_t plane = (size_t)h * (size_t)w, size = echi_shape_size(p->shape);
    for (int i = 0; i < n; i++) {
        const uint8_t *from = set->pixels + index[i] * size;
        if (i + AHEAD < n) ask_for(set->pixels + index[i + AHEAD] * size, size);
        const struct echi_crop crop = augment ? echi_crop_of(augment, index[i]) : (struct echi_crop){0};
        for (int c = 0; c < p->shape.c; c++, from += plane, rows += plane)
            if (augment) read_cropped(from, p->value[c], h, w, crop, rows);
            else read_plain(from, p->value[c], plane, rows);
        labels[i] = set->labels[index[i]];
    }
    return ECH_OK;
}

void echi_pixel_set_free(struct echi_pixel_set *set) {
    free(set->pixel_block);
    free(set->label_block);
    memset(set, 0, sizeof *set);
}

static void pixels_destroy(void *self) {
    struct pixels *p = self;
    echi_pixel_set_free(&p->set[0]);
    echi_pixel_set_free(&p->set[1]);
    free(p);
}

/* Over what a run sees, not over how it was stored: a folder with dash names and one with dot names hash alike. */
static void hash(struct ech_data *data, const struct pixels *p) {
    struct echi_sha256 s;
    echi_data_hash_begin(data, "echelon pixels 1", &s);
    for (int t = 0; t < 2; t++) {
        echi_sha256_add(&s, p->set[t].pixels, p->set[t].count * echi_shape_size(p->shape));
        echi_sha256_add(&s, p->set[t].labels, p->set[t].count);
    }
    echi_data_hash_end(&s, data->hash);
}

ech_status echi_pixels_data(struct echi_pixel_set train, struct echi_pixel_set test, const struct echi_pixel_form *form, const char *name,
                            struct ech_data **out, struct ech_error *err) {
    static const struct echi_data_source source = {pixels_read, pixels_destroy};
    struct pixels *p = calloc(1, sizeof *p);
    struct ech_data *data = calloc(1, sizeof *data);
    if (!p || !data) {
        free(p);
        free(data);
        echi_pixel_set_free(&train);
        echi_pixel_set_free(&test);
        return echi_fail_memory(err, "data.open", "a data set");
    }
    p->set[0] = train;
    p->set[1] = test;
    p->shape = form->shape;
    /* In float, step by step, so that the values are those that PyTorch's ToTensor and Normalize give. */
    for (int c = 0; c < form->shape.c; c++)
        for (int i = 0; i < 256; i++) p->value[c][i] = ((float)i / 255.0f - form->mean[c]) / form->deviation[c];
    *data = (struct ech_data){.source = &source, .self = p, .shape = form->shape, .classes = 10, .n_train = train.count,
                              .n_test = test.count, .augmenting = form->augmenting};
    echi_data_name(data->name, name);
    hash(data, p);
    *out = data;
    return ECH_OK;
}
