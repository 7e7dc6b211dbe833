/* SPDX-License-Identifier: Apache-2.0
 * The builder: inferred shapes and places, what it refuses and with which words, the cut, the initial parameters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_bytes.h"
#include "echi_model.h"
#include "echi_sha256.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ech_model *model_of(int c, int h, int w) {
    ech_model *model = NULL;
    struct ech_error err;
    if (ech_model_create(c, h, w, &model, &err)) fail_msg("%s", err.text);
    return model;
}

static ech_model *lenet5(void) {
    ech_model *model = NULL;
    struct ech_error err;
    if (ech_model_open("lenet5", &model, &err)) fail_msg("%s", err.text);
    return model;
}

static void assert_shape(struct echi_shape s, int c, int h, int w) {
    assert_int_equal(s.c, c);
    assert_int_equal(s.h, h);
    assert_int_equal(s.w, w);
}

/* The model must be broken, with this status and all these words in its sentence (NULL ends them). */
static void assert_broken(ech_model *model, ech_status code, const char *const *words) {
    struct ech_error err = {0};
    assert_int_equal(ech_model_finish(model, &err), code);
    assert_int_equal(err.code, code);
    for (; *words; words++)
        if (!strstr(err.text, *words)) fail_msg("'%s' is not in: %s", *words, err.text);
    assert_int_equal(ech_model_params(model), 0);
    ech_model_destroy(model);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* torchvision's: its 61,100,840 parameters, the shapes between its layers, and a cut in front of its first fc. */
static void test_alexnet(void **state) {
    (void)state;
    ech_model *m = NULL;
    struct ech_error err;
    static const struct { const char *name; struct echi_shape out; } want[] = {
        {"conv1", {64, 55, 55}}, {"max_pool1", {64, 27, 27}}, {"conv2", {192, 27, 27}}, {"max_pool2", {192, 13, 13}},
        {"conv3", {384, 13, 13}},
        {"conv4", {256, 13, 13}}, {"conv5", {256, 13, 13}}, {"max_pool3", {256, 6, 6}}, {"fc1", {4096, 1, 1}}, {"fc2", {4096, 1, 1}},
        {"fc3", {1000, 1, 1}}};
    if (ech_model_open("alexnet", &m, &err)) fail_msg("%s", err.text);
    assert_int_equal(ech_model_params(m), 61100840);
    int found = 0, dropouts = 0;
    for (int i = 0; i < m->n_layers; i++) {
        const struct echi_layer *l = &m->layers[i];
        if (l->op == ECHI_OP_DROPOUT) dropouts++, assert_int_equal(l->drop, ECHI_WHOLE / 2);
        if (found == (int)(sizeof want / sizeof *want) || strcmp(l->name, want[found].name) != 0) continue;
        assert_memory_equal(&l->out, &want[found].out, sizeof l->out);
        found++;
    }
    assert_int_equal(found, sizeof want / sizeof *want);
    assert_int_equal(dropouts, 2);
    assert_string_equal(m->layers[echi_model_cut(m)].name, "fc1");
    assert_int_equal(echi_model_check(m, (struct echi_shape){3, 224, 224}, 1000, &err), ECH_OK);
    assert_int_equal(echi_model_check(m, (struct echi_shape){3, 224, 224}, 100, &err), ECH_E_SHAPE);
    assert_int_equal(echi_model_check(m, (struct echi_shape){3, 32, 32}, 1000, &err), ECH_E_SHAPE);
    ech_model_destroy(m);
}

static void test_lenet5(void **state) {
    (void)state;
    ech_model *m = lenet5();
    static const struct {
        const char *name;
        enum echi_op op;
        int c, h, w;
        size_t weights, biases;
    } want[] = {
        {"conv1", ECHI_OP_CONV2D, 6, 28, 28, 150, 6},     {"relu1", ECHI_OP_RELU, 6, 28, 28, 0, 0},
        {"max_pool1", ECHI_OP_MAX_POOL, 6, 14, 14, 0, 0}, {"conv2", ECHI_OP_CONV2D, 16, 10, 10, 2400, 16},
        {"relu2", ECHI_OP_RELU, 16, 10, 10, 0, 0},        {"max_pool2", ECHI_OP_MAX_POOL, 16, 5, 5, 0, 0},
        {"fc1", ECHI_OP_FC, 120, 1, 1, 48000, 120},       {"relu3", ECHI_OP_RELU, 120, 1, 1, 0, 0},
        {"fc2", ECHI_OP_FC, 84, 1, 1, 10080, 84},         {"relu4", ECHI_OP_RELU, 84, 1, 1, 0, 0},
        {"fc3", ECHI_OP_FC, 10, 1, 1, 840, 10},
    };
    const int layers = sizeof want / sizeof *want;
    size_t at = 0;
    assert_string_equal(m->name, "lenet5");
    assert_int_equal(m->n_layers, layers);
    for (int i = 0; i < layers; i++) {
        const struct echi_layer *l = &m->layers[i];
        assert_string_equal(l->name, want[i].name);
        assert_int_equal(l->op, want[i].op);
        assert_shape(l->out, want[i].c, want[i].h, want[i].w);
        if (i) assert_memory_equal(&l->in, &m->layers[i - 1].out, sizeof l->in);
        assert_int_equal(l->weights, want[i].weights);
        assert_int_equal(l->biases, want[i].biases);
        assert_int_equal(l->bias, want[i].biases > 0);
        if (l->weights) {
            assert_int_equal(l->weight_at, at);
            assert_int_equal(l->bias_at, at + l->weights);
            at += l->weights + l->biases;
        }
    }
    assert_int_equal(ech_model_params(m), 61706);
    assert_int_equal(at, 61706);
    assert_int_equal(echi_model_cut(m), 6);

    struct echi_param_layer p[8];
    assert_int_equal(echi_model_param_layers(m, NULL, 0), 5);
    memset(p, 0xab, sizeof p);
    assert_int_equal(echi_model_param_layers(m, p, 2), 5);
    assert_int_equal((unsigned char)p[2].name[0], 0xab); /* nothing beyond cap was written */
    assert_int_equal(echi_model_param_layers(m, p, 8), 5);
    assert_string_equal(p[1].name, "conv2");
    assert_int_equal(p[1].layer, 3);
    assert_int_equal(p[1].at, 156);
    assert_int_equal(p[1].count, 2416);
    assert_int_equal(p[4].at + p[4].count, 61706);
    ech_model_destroy(m);
}

/* Output size against the definition: count the places where the window fits into the padded input. */
/* Parameters that are learned are as many as the papers' nets have: torchvision's 11,689,512 of ResNet-18 less what its first convolution
 * and its thousand classes have more, and 20,024,384 convolution weights and biases of VGG-19 with 11,008 of batch-norm
 * for 5,504 biases. */
static void test_cifar_nets(void **state) {
    (void)state;
    static const struct { const char *name; size_t learned, running; int convs, norms, cut; } want[] = {
        {"resnet18", 11689512 - 64 * 3 * (49 - 9) - 513 * 990, 2 * 4800, 20, 20, 66},
        {"vgg19", 20024384 - 5504 + 2 * 5504 + 5130, 2 * 5504, 16, 16, 53},
    };
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        ech_model *m = NULL;
        struct ech_error err;
        if (ech_model_open(want[k].name, &m, &err)) fail_msg("%s", err.text);
        size_t running = 0;
        int convs = 0, norms = 0;
        for (int i = 0; i < m->n_layers; i++) {
            const struct echi_layer *l = &m->layers[i];
            running += l->running;
            convs += l->op == ECHI_OP_CONV2D;
            norms += l->op == ECHI_OP_BATCH_NORM;
            if (l->op == ECHI_OP_CONV2D) assert_true(!l->bias && m->layers[i + 1].op == ECHI_OP_BATCH_NORM);
            if (l->op == ECHI_OP_ADD && l->skip == 0 && m->layers[i - 1].op == ECHI_OP_BATCH_NORM) {
                const struct echi_layer *other = &m->layers[i - 1 - l->with];   /* a branch's end: the block's input,
                                                                                   or the first branch's batch-norm */
                assert_true(other->op == ECHI_OP_RELU || (other->op == ECHI_OP_BATCH_NORM && m->layers[i - 2].kernel_h == 1));
            }
        }
        assert_int_equal(ech_model_params(m), want[k].learned + want[k].running);
        assert_int_equal(running, want[k].running);
        assert_int_equal(convs, want[k].convs);
        assert_int_equal(norms, want[k].norms);
        assert_int_equal(echi_model_cut(m), want[k].cut);
        assert_int_equal(echi_model_check(m, (struct echi_shape){3, 32, 32}, 10, &err), ECH_OK);
        ech_model_destroy(m);
    }
}

static void test_batch_norm(void **state) {
    (void)state;
    ech_model *m = NULL;
    struct ech_error err;
    assert_int_equal(ech_model_create(3, 4, 4, &m, &err), ECH_OK);
    ech_model_without_bias(m);
    ech_model_conv2d(m, 5, 3, 1, 1);
    ech_model_batch_norm(m);
    ech_model_fc(m, 10);   /* has a bias again */
    assert_int_equal(ech_model_finish(m, &err), ECH_OK);
    assert_int_equal(ech_model_params(m), 135 + 20 + 810);
    struct echi_param_layer p[3];
    assert_int_equal(echi_model_param_layers(m, p, 3), 3);
    assert_true(p[0].count == 135 && p[0].running == 0 && p[1].at == 135 && p[1].count == 20 && p[1].running == 10 && p[2].count == 810);
    float params[965];
    echi_model_init(m, 1, params);
    for (int c = 0; c < 5; c++)
        assert_true(params[135 + c] == 1 && params[140 + c] == 0 && params[145 + c] == 0 && params[150 + c] == 1);
    char text[200];
    ech_model_text(m, text, sizeof text);
    assert_string_equal(text, "input 3 4 4\nconv2d out 5 kernel 3 stride 1 pad 1 bias 0\nbatch_norm\nfc out 10\n");
    ech_model_destroy(m);
    assert_int_equal(ech_model_parse("input 1 1 1\nfc out 2 bias 2\n", 28, "it", &m, &err), ECH_E_FORMAT);
    assert_non_null(strstr(err.text, "it:2: 'bias' is 0 or 1, not 2"));
}

static void test_window_shapes(void **state) {
    (void)state;
    for (int in = 1; in <= 9; in++)
        for (int kernel = 1; kernel <= 5; kernel++)
            for (int stride = 1; stride <= 4; stride++)
                for (int pad = 0; pad <= 3; pad++) {
                    int places = 0;
                    for (int at = -pad; at + kernel <= in + pad; at += stride) places++;
                    ech_model *conv = model_of(2, in, in + 3), *pool = model_of(2, in, in + 3);
                    ech_model_conv2d(conv, 3, kernel, stride, pad);
                    ech_model_avg_pool(pool, kernel, stride, pad);
                    assert_int_equal(ech_model_finish(conv, NULL) == ECH_OK, places > 0);
                    if (places) assert_int_equal(conv->layers[0].out.h, places);
                    if (places) assert_int_equal(conv->layers[0].out.c, 3);
                    assert_int_equal(ech_model_finish(pool, NULL) == ECH_OK, places > 0 && pad < kernel);
                    if (places && pad < kernel) assert_int_equal(pool->layers[0].out.h, places);
                    ech_model_destroy(conv);
                    ech_model_destroy(pool);
                }
}

static void test_refusals(void **state) {
    (void)state;
    ech_model *m = model_of(1, 4, 8);
    ech_model_conv2d(m, 2, 3, 1, 0);
    ech_model_conv2d(m, 2, 5, 1, 1);
    ech_model_conv2d(m, 0, 0, 0, 0); /* does nothing: the first sentence stays */
    assert_int_equal(m->n_layers, 1);
    assert_broken(m, ECH_E_SHAPE, WORDS("conv2: ", "kernel 5", "4 x 8"));

    static const struct {
        int out, kernel, stride, pad;
        const char *word;
    } wrong[] = {
        {0, 3, 1, 0, "out 0"},    {-1, 3, 1, 0, "out -1"},         {65537, 3, 1, 0, "out 65537"},
        {2, 0, 1, 0, "kernel 0"}, {2, 3, 0, 0, "stride 0"},        {2, 3, -2147483647, 0, "stride"},
        {2, 3, 1, -1, "pad -1"},  {2, 2147483647, 1, 0, "kernel"}, {2, 3, 1, 2147483647, "pad"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m = model_of(1, 8, 8);
        ech_model_conv2d(m, wrong[i].out, wrong[i].kernel, wrong[i].stride, wrong[i].pad);
        assert_broken(m, ECH_E_ARGUMENT, WORDS("conv1: ", wrong[i].word));
    }
    m = model_of(1, 8, 8);
    ech_model_max_pool(m, 2, 2, 2);
    assert_broken(m, ECH_E_SHAPE, WORDS("max_pool1: ", "pad 2", "kernel 2"));
    m = model_of(1, 8, 8);
    ech_model_fc(m, 0);
    assert_broken(m, ECH_E_ARGUMENT, WORDS("fc1: ", "out 0"));
    m = model_of(1, 8, 8);
    for (int i = 0; i < ECHI_LAYERS_MAX; i++) ech_model_relu(m);
    assert_int_equal(ech_model_finish(m, NULL), ECH_OK);
    ech_model_relu(m);
    assert_broken(m, ECH_E_ARGUMENT, WORDS("relu257: ", "256 layers"));
    assert_broken(model_of(1, 8, 8), ECH_E_ARGUMENT, WORDS("no layers", "fc"));
    assert_int_equal(ech_model_finish(NULL, NULL), ECH_E_ARGUMENT);
}

/* Sizes that would not fit an int, or would wrap, are refused at the layer that makes them. */
static void test_overflow(void **state) {
    (void)state;
    ech_model *m = NULL;
    struct ech_error err;
    assert_int_equal(ech_model_create(65536, 65536, 65536, &m, &err), ECH_E_SHAPE);
    assert_int_equal(ech_model_create(1, 32768, 65536, &m, &err), ECH_E_SHAPE); /* exactly 2^31 */
    assert_int_equal(ech_model_create(1, 65537, 1, &m, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_model_create(0, 1, 1, &m, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_model_create(1, 1, 1, NULL, &err), ECH_E_ARGUMENT);
    assert_null(m);

    m = model_of(1, 32767, 65536);
    assert_int_equal(ech_model_finish(m, NULL), ECH_E_ARGUMENT);
    ech_model_conv2d(m, 2, 1, 1, 0);
    assert_broken(m, ECH_E_SHAPE, WORDS("conv1: ", "output", "2147483647"));
    m = model_of(1, 32767, 65536);
    ech_model_conv2d(m, 1, 65536, 65536, 65536); /* a small output, but a padded input beyond 2^31 */
    assert_broken(m, ECH_E_SHAPE, WORDS("conv1: ", "pad 65536"));
    m = model_of(1, 256, 256);
    ech_model_fc(m, 32767);
    ech_model_fc(m, 1);
    assert_int_equal(ech_model_params(m), 2147483647); /* just fits: (2^16 + 1) * 32767 and (32767 + 1) * 1 */
    ech_model_fc(m, 1);
    assert_broken(m, ECH_E_SHAPE, WORDS("fc3: ", "2147483647 parameters"));
    m = model_of(1, 1, 65535);
    ech_model_fc(m, 32768); /* 2^15 * 2^16: one too many */
    assert_broken(m, ECH_E_SHAPE, WORDS("fc1: ", "2147483647 parameters"));
}

static void test_check_and_cut(void **state) {
    (void)state;
    struct ech_error err;
    const struct echi_shape mnist = {1, 28, 28};
    ech_model *m = lenet5();
    assert_int_equal(echi_model_check(m, mnist, 10, &err), ECH_OK);
    assert_int_equal(echi_model_check(m, (struct echi_shape){3, 32, 32}, 10, &err), ECH_E_SHAPE);
    assert_non_null(strstr(err.text, "3 x 32 x 32"));
    assert_int_equal(echi_model_check(m, mnist, 26, &err), ECH_E_SHAPE);
    assert_string_equal(err.layer, "fc3");
    ech_model_relu(m);
    assert_int_equal(echi_model_check(m, mnist, 10, &err), ECH_E_SHAPE);
    assert_string_equal(err.layer, "relu5");
    ech_model_destroy(m);

    m = model_of(1, 8, 8); /* ends in a convolution: nothing to cut */
    ech_model_conv2d(m, 10, 8, 1, 0);
    assert_int_equal(echi_model_check(m, (struct echi_shape){1, 8, 8}, 10, &err), ECH_OK);
    assert_int_equal(echi_model_cut(m), 1);
    ech_model_destroy(m);

    m = model_of(1, 8, 8); /* no parameters before the first fc */
    ech_model_avg_pool(m, 2, 2, 0);
    ech_model_fc(m, 10);
    assert_int_equal(echi_model_cut(m), 2);
    ech_model_destroy(m);
}

/* Layers, of those with parameters, that the head may begin with, as "conv2 fc1"; with another first layer in front of one, that too. */
static void check_cuts(ech_model *m, const char *want) {
    static struct echi_param_layer layer[ECHI_LAYERS_MAX];
    char got[300] = "";
    const int count = echi_model_param_layers(m, layer, ECHI_LAYERS_MAX);
    for (int k = 0; k < count; k++) {
        const int first = echi_model_cut_before(m, layer[k].layer);
        const size_t at = strlen(got);
        if (first < 0) continue;
        assert_int_equal(echi_model_boundary(m, first, NULL), ECHI_BOUNDARY_USABLE);
        snprintf(got + at, sizeof got - at, "%s%s%s%s", at ? " " : "", first < layer[k].layer ? m->layers[first].name : "",
                 first < layer[k].layer ? "+" : "", layer[k].name);
    }
    assert_string_equal(got, want);
    ech_model_destroy(m);
}

/* Any boundary that no branch goes past, with something to train on both sides. */
static void test_boundaries(void **state) {
    (void)state;
    int across = -1;
    ech_model *m = lenet5();
    assert_int_equal(echi_model_boundary(m, 0, NULL), ECHI_BOUNDARY_NO_TRUNK);
    assert_int_equal(echi_model_boundary(m, 1, NULL), ECHI_BOUNDARY_USABLE);
    assert_int_equal(echi_model_boundary(m, 10, NULL), ECHI_BOUNDARY_USABLE);
    ech_model_relu(m);
    assert_int_equal(echi_model_boundary(m, 11, NULL), ECHI_BOUNDARY_NO_HEAD);
    check_cuts(m, "conv2 fc1 fc2 fc3");

    assert_int_equal(ech_model_open("resnet18", &m, NULL), ECH_OK);
    assert_int_equal(echi_model_boundary(m, 6, &across), ECHI_BOUNDARY_CROSSED);   /* conv3, in the first block */
    assert_string_equal(m->layers[across].name, "add1");
    assert_int_equal(echi_model_boundary(m, 20, &across), ECHI_BOUNDARY_CROSSED);   /* conv7, beside a convolution in a branch */
    assert_string_equal(m->layers[across].name, "conv8");
    check_cuts(m, "bn1 conv2 conv4 conv6 conv9 conv11 conv14 conv16 conv19 fc1");

    m = model_of(1, 8, 8);          /* a residual block of fully connected layers, behind fully connected layers */
    ech_model_fc(m, 8);
    ech_model_fc(m, 8);             /* layer 2, whose output add takes */
    ech_model_fc(m, 8);
    ech_model_fc(m, 8);
    ech_model_add(m, 2);
    ech_model_fc(m, 3);
    check_cuts(m, "fc2 fc3 fc5");

    m = model_of(1, 8, 8);          /* what fc1 takes, fc2 takes too: the cut is in front of both, and of what has no parameters */
    ech_model_conv2d(m, 4, 3, 1, 1);
    ech_model_relu(m);              /* layer 2 */
    ech_model_global_avg_pool(m);
    ech_model_from(m, 2);
    ech_model_global_avg_pool(m);
    ech_model_add(m, 3);
    ech_model_fc(m, 4);
    check_cuts(m, "fc1");
    m = model_of(1, 8, 8);
    ech_model_conv2d(m, 4, 3, 1, 1);
    ech_model_relu(m);              /* layer 2 */
    ech_model_tanh(m);              /* layer 3 */
    ech_model_conv2d(m, 4, 3, 1, 1);
    ech_model_add(m, 2);
    ech_model_global_avg_pool(m);
    ech_model_fc(m, 3);
    check_cuts(m, "tanh1+conv2 fc1");

    m = model_of(1, 8, 8);          /* one layer: nothing to divide */
    ech_model_fc(m, 3);
    check_cuts(m, "");
}

/* An edge that goes past an fc keeps the cut from being there: it moves to the next fc that no edge passes, or there is none. */
static void test_cut_of_branches(void **state) {
    (void)state;
    ech_model *m = model_of(1, 8, 8);
    ech_model_conv2d(m, 4, 3, 1, 1);
    ech_model_conv2d(m, 4, 3, 1, 1);
    ech_model_add(m, 1);
    ech_model_global_avg_pool(m);   /* layer 4 */
    ech_model_fc(m, 4);
    assert_int_equal(echi_model_cut(m), 4);
    ech_model_add(m, 4);            /* takes what the cut hands over: it may */
    ech_model_fc(m, 4);
    assert_int_equal(echi_model_cut(m), 4);
    ech_model_destroy(m);

    m = model_of(1, 8, 8);
    ech_model_conv2d(m, 4, 8, 1, 0);
    ech_model_relu(m);
    ech_model_fc(m, 4);             /* layer 3 */
    ech_model_add(m, 1);            /* from before it */
    ech_model_fc(m, 4);             /* layer 5 */
    ech_model_relu(m);
    ech_model_add(m, 5);
    ech_model_fc(m, 3);
    assert_int_equal(echi_model_cut(m), 4);
    ech_model_destroy(m);

    m = model_of(1, 8, 8);
    ech_model_conv2d(m, 4, 8, 1, 0);
    ech_model_relu(m);
    ech_model_fc(m, 4);
    ech_model_from(m, 1);           /* an fc's own input may be the edge */
    ech_model_fc(m, 4);
    ech_model_add(m, 3);
    assert_int_equal(ech_model_finish(m, NULL), ECH_OK);
    assert_int_equal(echi_model_cut(m), 5);
    ech_model_destroy(m);
}

static void test_builder_of_branches(void **state) {
    (void)state;
    struct ech_error err;
    ech_model *m = model_of(2, 6, 6);
    assert_int_equal(ech_model_layers(m), 0);
    ech_model_conv2d(m, 3, 3, 1, 1);
    ech_model_from(m, 0);
    ech_model_conv2d(m, 3, 1, 1, 0);
    assert_int_equal(ech_model_layers(m), 2);
    assert_int_equal(ech_model_finish(m, &err), ECH_E_ARGUMENT);
    assert_string_equal(err.layer, "conv1");
    assert_non_null(strstr(err.text, "no layer takes its output"));
    ech_model_add(m, 1);
    assert_int_equal(ech_model_finish(m, &err), ECH_OK);
    assert_string_equal(m->layers[2].name, "add1");
    ech_model_from(m, 1);
    ech_model_dropout(m, 0.2);
    ech_model_dropout(m, 0.2);      /* takes the one before it again */
    assert_int_equal(echi_layer_takes(m->layers, 4), 4);
    ech_model_add(m, 3);
    char buf[2048];
    ech_model_describe(m, buf, sizeof buf);
    assert_non_null(strstr(buf, "  3 add1             add             3 x 6 x 6                       0               0   with 1\n"));
    assert_non_null(strstr(buf, "   from 1\n"));
    ech_model_destroy(m);
    static const double wrong[] = {1, -0.1, 2, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        m = model_of(1, 8, 8);
        ech_model_dropout(m, wrong[i]);
        assert_broken(m, ECH_E_ARGUMENT, WORDS("dropout1: ", "below 1"));
    }
    m = model_of(1, 8, 8);
    ech_model_relu(m);
    ech_model_add(m, 2);
    assert_broken(m, ECH_E_ARGUMENT, WORDS("add1: ", "with 2"));
    m = model_of(1, 8, 8);
    ech_model_from(m, -1);
    ech_model_relu(m);
    assert_broken(m, ECH_E_ARGUMENT, WORDS("relu1: ", "from -1"));
    m = model_of(1, 8, 6);
    ech_model_global_avg_pool(m);
    assert_shape(m->layers[0].out, 1, 1, 1);
    ech_model_destroy(m);
}

static void test_init(void **state) {
    (void)state;
    ech_model *m = lenet5();
    const size_t n = ech_model_params(m);
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    assert_true(a && b);
    echi_model_init(m, 7, a);
    echi_model_init(m, 7, b);
    assert_memory_equal(a, b, n * sizeof *a);
    echi_model_init(m, 8, b);
    assert_memory_not_equal(a, b, n * sizeof *a);
    struct echi_param_layer p[5];
    static const int fan_in[5] = {25, 150, 400, 120, 84};
    assert_int_equal(echi_model_param_layers(m, p, 5), 5);
    for (int i = 0; i < 5; i++) {
        const double bound = 1 / sqrt(fan_in[i]);
        double sum = 0, squares = 0, largest = 0;
        for (size_t k = 0; k < p[i].count; k++) {
            double x = a[p[i].at + k] / bound;
            sum += x;
            squares += x * x;
            if (fabs(x) > largest) largest = fabs(x);
        }
        /* Uniform in +-1: mean 0 with deviation sqrt(1/3n), mean square 1/3 with deviation sqrt(4/45n); five of them. */
        const double count = (double)p[i].count;
        assert_true(largest <= 1 + 1e-6 && largest > 0.95);
        assert_true(fabs(sum / count) < 5 * sqrt(1 / (3 * count)));
        assert_true(fabs(squares / count - 1.0 / 3) < 5 * sqrt(4 / (45 * count)));
    }
    /* What seed 1 means is fixed: a run that is repeated from its seed begins with the same bits for ever. */
    struct echi_sha256 sha;
    uint8_t digest[32], bits[4];
    char hex[65];
    echi_model_init(m, 1, b);
    echi_sha256_begin(&sha);
    for (size_t k = 0; k < n; k++) {
        uint32_t word;
        memcpy(&word, &b[k], 4);
        echi_store32(bits, word);
        echi_sha256_add(&sha, bits, 4);
    }
    echi_sha256_end(&sha, digest);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, "9e5511e5d5b10d7563dc08b1a9898dac57e319cfb4495f78b1b7b9ba065d9f72");
    /* A layer's numbers do not depend on what comes after it. */
    ech_model *start = model_of(1, 28, 28);
    ech_model_conv2d(start, 6, 5, 1, 2);
    echi_model_init(start, 7, b);
    assert_memory_equal(a, b, 156 * sizeof *a);
    ech_model_destroy(start);
    ech_model_destroy(m);
    free(a);
    free(b);
}

static void test_describe(void **state) {
    (void)state;
    ech_model *m = lenet5();
    char buf[2048];
    size_t len = ech_model_describe(m, buf, sizeof buf);
    assert_true(len < sizeof buf);
    assert_int_equal(strlen(buf), len);
    assert_int_equal(ech_model_describe(m, NULL, 0), len);
    /* 6*28*28*25 + 16*10*10*150 + 400*120 + 120*84 + 84*10 */
    assert_non_null(strstr(buf, " 61706          416520\n"));
    assert_non_null(strstr(buf, "  6 max_pool2        max_pool        16 x 5 x 5 "));
    assert_null(strstr(buf, "from"));
    ech_model_conv2d(m, 1, 9, 1, 0);
    ech_model_describe(m, buf, sizeof buf);
    assert_non_null(strstr(buf, "not a whole model: conv3: kernel 9"));
    ech_model_destroy(m);
}

static void test_null(void **state) {
    (void)state;
    ech_model_destroy(NULL);
    ech_model_conv2d(NULL, 1, 1, 1, 0);
    ech_model_relu(NULL);
    assert_int_equal(ech_model_params(NULL), 0);
    assert_string_equal(ech_version(), ECH_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cifar_nets), cmocka_unit_test(test_batch_norm), cmocka_unit_test(test_alexnet), cmocka_unit_test(test_lenet5),
        cmocka_unit_test(test_window_shapes), cmocka_unit_test(test_refusals), cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_check_and_cut), cmocka_unit_test(test_init), cmocka_unit_test(test_describe), cmocka_unit_test(test_null),
        cmocka_unit_test(test_cut_of_branches), cmocka_unit_test(test_boundaries), cmocka_unit_test(test_builder_of_branches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
