/* SPDX-License-Identifier: Apache-2.0
 * The user's own samples, through a function of theirs. */
#include "echi_pixels.h"

#include "echi_bytes.h"
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_sha256.h"

#include <stdlib.h>
#include <string.h>

#define OPEN "data.callback"
enum { SIDE_MAX = 65536, HASHED = 64 };

struct callback { ech_data_read read; void *user; int classes; };

/* Samples of the user's are never augmented: data->augmenting is CANNOT. */
static ech_status callback_read(const void *self, bool test, const struct echi_augment *augment, const uint32_t *index, int n, float *rows,
                                uint16_t *labels, struct ech_error *err) {
    (void)augment;
    const struct callback *c = self;
    if (n == 0) return ECH_OK;
    int answer = c->read(c->user, test, index, n, rows, labels);
    if (answer != 0)
        return echi_fail(err, ECH_E_ABORTED, "data.read",
                         "the data callback returned %d for %d %s samples from number %u: it must return 0 to go on",
                         answer, n, test ? "test" : "training", (unsigned)index[0]);
    for (int i = 0; i < n; i++)
        if (labels[i] >= c->classes)
            return echi_fail(err, ECH_E_FORMAT, "data.read",
                             "the data callback gave label %d for %s sample %u, labels are 0 to %d: correct the label or the "
                             "number of classes", labels[i], test ? "test" : "training", (unsigned)index[i], c->classes - 1);
    return ECH_OK;
}

/* Over what was declared and up to 64 evenly spread samples of each set: enough to find two nodes that read different
 * data, without reading all of it through the callback on every node at start. */
static ech_status hash(struct ech_data *data, struct ech_error *err) {
    size_t size = echi_shape_size(data->shape);
    float *row = calloc(size, sizeof *row);   /* [c][h][w] */
    if (!row) return echi_fail_memory(err, OPEN, "one sample");
    uint8_t word[4];
    struct echi_sha256 s;
    echi_data_hash_begin(data, "echelon callback", &s);
    echi_sha256_add(&s, data->name, sizeof data->name);
    ech_status status = ECH_OK;
    for (int t = 0; t < 2; t++) {
        uint32_t count = t ? data->n_test : data->n_train, picked = count < HASHED ? count : HASHED;
        for (uint32_t i = 0; i < picked; i++) {
            uint32_t index = (uint32_t)((uint64_t)i * count / picked);
            uint16_t label = 0;
            ECHI_TRY_GOTO(callback_read(data->self, t != 0, NULL, &index, 1, row, &label, err), out);
            for (size_t k = 0; k < size; k++) {
                uint32_t bits;
                memcpy(&bits, &row[k], 4);
                echi_store32(word, bits);
                echi_sha256_add(&s, word, 4);
            }
            echi_store16(word, label);
            echi_sha256_add(&s, word, 2);
        }
    }
    echi_data_hash_end(&s, data->hash);
out:
    free(row);
    return status;
}

static ech_status check(const struct ech_data_callback *c, struct ech_error *err) {
    if (!c || !c->read || !c->name || !*c->name)
        return echi_fail(err, ECH_E_ARGUMENT, OPEN, "a data callback needs a read function and a name");
    size_t bytes;
    if (c->channels < 1 || c->channels > SIDE_MAX || c->height < 1 || c->height > SIDE_MAX || c->width < 1 || c->width > SIDE_MAX ||
        !echi_mul_size((size_t)c->channels * sizeof(float), (size_t)c->height, &bytes) || !echi_mul_size(bytes, (size_t)c->width, &bytes))
        return echi_fail(err, ECH_E_ARGUMENT, OPEN, "data callback %s: samples of %d x %d x %d are not possible, each number is 1 to %d",
                         c->name, c->channels, c->height, c->width, SIDE_MAX);
    if (c->classes < 2 || c->classes > ECHI_CLASSES_MAX)
        return echi_fail(err, ECH_E_ARGUMENT, OPEN, "data callback %s: %d classes are not possible, 2 to %d are", c->name, c->classes,
                         ECHI_CLASSES_MAX);
    if (c->train_samples < 1)
        return echi_fail(err, ECH_E_ARGUMENT, OPEN, "data callback %s: train_samples is 0, at least 1 is needed", c->name);
    return ECH_OK;
}

static const struct echi_data_source source = {callback_read, free};

ech_status ech_data_from_callback(const struct ech_data_callback *callback, ech_data **out_data, struct ech_error *err) {
    if (!out_data) return echi_fail(err, ECH_E_ARGUMENT, OPEN, "out_data is NULL: give a place for the data set");
    ECHI_TRY(check(callback, err));
    struct callback *self = calloc(1, sizeof *self);
    struct ech_data *data = calloc(1, sizeof *data);
    ech_status status = ECH_OK;
    if (!self || !data) {
        status = echi_fail_memory(err, OPEN, "a data set");
        goto failed;
    }
    *self = (struct callback){callback->read, callback->user, callback->classes};
    data->source = &source;
    data->self = self;
    data->shape = (struct echi_shape){callback->channels, callback->height, callback->width};
    data->classes = callback->classes;
    data->n_train = callback->train_samples;
    data->n_test = callback->test_samples;
    echi_data_name(data->name, callback->name);
    ECHI_TRY_GOTO(hash(data, err), failed);
    *out_data = data;
    return ECH_OK;
failed:
    free(self);
    free(data);
    return status;
}
