/* SPDX-License-Identifier: Apache-2.0
 * Data sets kept as one byte a pixel, a quarter of the memory that floats would take (MNIST: 55 MB); a table of
 * 256 entries normalises on read. */
#include "echi_pixels.h"

#include "echi_error.h"
#include "echi_sha256.h"

#include <stdlib.h>
#include <string.h>

struct pixels {
    struct echi_pixel_set set[2];   /* training, test */
    size_t size;                    /* h * w */
    float value[256];               /* of each byte */
};

static ech_status pixels_read(const void *self, bool test, const uint32_t *index, int n, float *rows, uint8_t *labels,
                              struct ech_error *err) {
    (void)err;
    const struct pixels *p = self;
    const struct echi_pixel_set *set = &p->set[test];
    for (int i = 0; i < n; i++) {
        const uint8_t *from = set->pixels + (size_t)index[i] * p->size;   /* [h][w] */
        float *row = rows + (size_t)i * p->size;
        for (size_t k = 0; k < p->size; k++) row[k] = p->value[from[k]];
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
        echi_sha256_add(&s, p->set[t].pixels, p->set[t].count * p->size);
        echi_sha256_add(&s, p->set[t].labels, p->set[t].count);
    }
    echi_data_hash_end(&s, data->hash);
}

ech_status echi_pixels_data(struct echi_pixel_set train, struct echi_pixel_set test, int h, int w, const char *name,
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
    p->size = (size_t)h * (size_t)w;
    /* In float, step by step, so that the values are those that PyTorch's ToTensor and Normalize give. */
    for (int i = 0; i < 256; i++) p->value[i] = ((float)i / 255.0f - 0.1307f) / 0.3081f;
    *data = (struct ech_data){.source = &source, .self = p, .shape = {1, h, w}, .classes = 10,
                              .n_train = train.count, .n_test = test.count};
    echi_data_name(data->name, name);
    hash(data, p);
    *out = data;
    return ECH_OK;
}
