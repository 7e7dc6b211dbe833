/* SPDX-License-Identifier: Apache-2.0
 * Model text: what is taken has shapes that follow from each other and parameters that lie one behind the other, all
 * countable in an int; its text parses to the same model. */
#include "fuzz.h"

#include "echi_model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What a layer takes is there, and has its shape; what it gives, somebody takes, or it is the last. */
static void check_branches(const struct ech_model *m, int i) {
    const struct echi_layer *l = &m->layers[i];
    const int takes = i - l->skip, adds = i - l->with;
    FUZZ_CHECK(takes >= 0 && takes <= i && adds >= 0 && adds <= i && (l->op == ECHI_OP_ADD || l->with == 0) && l->number == (uint32_t)i);
    const struct echi_shape in = takes ? m->layers[takes - 1].out : m->input, also = adds ? m->layers[adds - 1].out : m->input;
    FUZZ_CHECK(l->in.c == in.c && l->in.h == in.h && l->in.w == in.w);
    if (l->op == ECHI_OP_ADD) FUZZ_CHECK(in.c == also.c && in.h == also.h && in.w == also.w);
    FUZZ_CHECK(l->op == ECHI_OP_DROPOUT ? l->drop < 1000000 : l->drop == 0);
    bool taken = i == m->n_layers - 1;
    for (int k = i + 1; k < m->n_layers; k++)
        taken = taken || k - m->layers[k].skip == i + 1 || (m->layers[k].op == ECHI_OP_ADD && k - m->layers[k].with == i + 1);
    FUZZ_CHECK(taken);
}

/* Shapes and places, worked out once more in 64 bits: enough, since each bound is checked before the next product. */
static void check_model(const struct ech_model *m) {
    typedef int64_t wide;
    wide params = 0;
    FUZZ_CHECK((wide)m->input.c * m->input.h <= INT_MAX && (wide)m->input.c * m->input.h * m->input.w <= INT_MAX);
    FUZZ_CHECK(m->n_layers >= 1 && m->n_layers <= ECHI_LAYERS_MAX && !m->broken);
    for (int i = 0; i < m->n_layers; i++) {
        const struct echi_layer *l = &m->layers[i];
        check_branches(m, i);
        wide c = l->in.c, h = l->in.h, w = l->in.w, fan_in = 0;
        if (l->op == ECHI_OP_FC) {
            fan_in = c * h * w;
            c = l->out.c, h = w = 1;
        } else if (l->op == ECHI_OP_GLOBAL_AVG_POOL) {
            FUZZ_CHECK(l->kernel_h == h && l->kernel_w == w && l->stride_h == 1 && l->stride_w == 1 && l->pad_h == 0 && l->pad_w == 0);
            h = w = 1;
        } else if (l->op == ECHI_OP_CONV2D || l->op == ECHI_OP_MAX_POOL || l->op == ECHI_OP_AVG_POOL) {
            const wide k = l->kernel_h, s = l->stride_h, p = l->pad_h;
            FUZZ_CHECK(k >= 1 && s >= 1 && p >= 0 && l->kernel_w == k && l->stride_w == s && l->pad_w == p);
            FUZZ_CHECK(h + 2 * p >= k && w + 2 * p >= k && c * (h + 2 * p) * (w + 2 * p) <= INT_MAX);
            FUZZ_CHECK(l->op == ECHI_OP_CONV2D || p < k);
            if (l->op == ECHI_OP_CONV2D) fan_in = c * k * k, c = l->out.c;
            h = (h + 2 * p - k) / s + 1;
            w = (w + 2 * p - k) / s + 1;
        }
        FUZZ_CHECK(l->out.c == c && l->out.h == h && l->out.w == w && c >= 1 && c * h * w <= INT_MAX);
        if (l->op == ECHI_OP_BATCH_NORM) fan_in = 1;
        const wide biases = fan_in && l->bias ? c : 0, running = l->op == ECHI_OP_BATCH_NORM ? 2 * c : 0;
        FUZZ_CHECK(l->weights == (size_t)(fan_in * c) && l->biases == (size_t)biases && l->running == (size_t)running);
        FUZZ_CHECK(l->bias || l->op != ECHI_OP_BATCH_NORM);
        if (fan_in) FUZZ_CHECK(l->weight_at == (size_t)params && l->bias_at == (size_t)(params + fan_in * c));
        if (running) FUZZ_CHECK(l->running_at == l->bias_at + (size_t)c);
        params += fan_in * c + biases + running;
    }
    FUZZ_CHECK(m->n_params == (size_t)params && params <= INT_MAX);
    const int cut = echi_model_cut(m);
    FUZZ_CHECK(cut >= 1 && cut <= m->n_layers && (cut == m->n_layers || m->layers[cut].op == ECHI_OP_FC));
    for (int i = cut; i < m->n_layers; i++)
        FUZZ_CHECK(i - m->layers[i].skip >= cut && (m->layers[i].op != ECHI_OP_ADD || i - m->layers[i].with >= cut));
}

static bool one(const uint8_t *bytes, size_t len) {
    static char out[ECHI_LAYERS_MAX * 64];
    ech_model *model = NULL, *again = NULL;
    struct ech_error err = {0};
    const ech_status status = ech_model_parse((const char *)bytes, len, "fuzz", &model, &err);
    if (status != ECH_OK) {
        FUZZ_CHECK(model == NULL);
        fuzz_sentence(&err, status);
        return false;
    }
    check_model(model);
    const size_t n = ech_model_text(model, out, sizeof out);
    FUZZ_CHECK(n < sizeof out && strlen(out) == n);
    FUZZ_CHECK(ech_model_parse(out, n, "fuzz", &again, NULL) == ECH_OK);
    FUZZ_CHECK(again->n_params == model->n_params && again->n_layers == model->n_layers);
    FUZZ_CHECK(memcmp(again->layers, model->layers, sizeof model->layers) == 0);
    char one_hash[65], other[65];
    echi_model_hash(model, one_hash);
    echi_model_hash(again, other);
    FUZZ_CHECK(strcmp(one_hash, other) == 0);
    (void)ech_model_describe(model, out, sizeof out);
    const ech_status whole = echi_model_check(model, (struct echi_shape){1, 28, 28}, 10, &err);
    if (whole != ECH_OK) fuzz_sentence(&err, whole);
    ech_model_destroy(again);
    ech_model_destroy(model);
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "# a net\ninput 3 12 12\nconv2d out 4 kernel 3 stride 1 pad 1\r\nrelu\nmax_pool kernel 2 stride 2 pad 0\n"
        "avg_pool kernel 3 stride 1 pad 1\nconv2d out 5 kernel 2\nfc out 12\nrelu\nfc out 10",
        "input 1 28 28\nconv2d out 6 kernel 5 pad 2\nrelu\nmax_pool kernel 2\nfc out 10\n",
        "input 1 1 1\nrelu\n",
        "input 1 65536 32767\nfc out 1\n",
        "input 1 28 28\nconv2d out 4 kernel 3 pad 1 stride 2\nrelu\nconv2d out 4 kernel 3 pad 1\nconv2d out 4 kernel 1 from 2\nadd with 3\n"
        "add with 2\nrelu\nglobal_avg_pool\ndropout p 0.25\nfc out 10\nfc out 10\nadd with 10\nfc out 10 from 12\n",
        "input 3 8 8\nconv2d out 8 kernel 3 pad 1 bias 0\nbatch_norm\nrelu\nbatch_norm from 0\nconv2d out 8 kernel 1 bias 1\nadd with 3\n"
        "fc out 10 bias 0\n",
        NULL,
    };
    (void)good; /* all are */
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "input 1 1 1\n", "65536", "65537", "-1", "99999999999999999999", "conv2d ", "kernel ", "out ", "pad ", "stride ", "\r\n", "\n\n",
    "#", "", "\xff\xfe", " ", "\t", "fc out 65536\n", "stride 0", "conv2d out 65536 kernel 1\n", "\x1b[", "max_pool ", "avg_pool ",
    "relu\n", "pad 65536", "kernel 1\n", "kernal", "global_avg_pool\n",
    "add with 1\n", "add with 2\n", "with 0", " from 1\n", " from 0", " from 2", "dropout p 0.5\n", "p 0.", "p 1", "p 0.9999999",
    "batch_norm\n", "tanh\n", " bias 0", " bias 1", " bias 2", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_model = {
    .name = "model", .one = one, .seed = seed, .words = words, .most = 4096, .heap = 2 * sizeof(struct ech_model) + 65536};
