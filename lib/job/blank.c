/* SPDX-License-Identifier: Apache-2.0
 * Black samples of a model's shape. */
#include "echi_blank.h"
#include "echi_error.h"
#include "echi_model.h"

#include <string.h>

static int read_blank(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)test, (void)index;
    const size_t *pixels = user;
    memset(rows, 0, (size_t)n * *pixels * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

ech_status echi_blank_data(const ech_model *model, size_t *pixels, ech_data **out, struct ech_error *err) {
    ECHI_TRY(ech_model_finish(model, err));
    const struct echi_shape s = model->input;
    *pixels = echi_shape_size(s);
    const struct ech_data_callback blank = {.channels = s.c, .height = s.h, .width = s.w, .train_samples = 1u << 16, .test_samples = 1,
                                            .classes = (int)echi_shape_size(model->layers[model->n_layers - 1].out),
                                            .read = read_blank, .user = pixels, .name = ECHI_BLANK_DATA};
    return ech_data_from_callback(&blank, out, err);
}
