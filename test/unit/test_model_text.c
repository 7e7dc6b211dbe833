/* SPDX-License-Identifier: Apache-2.0
 * The text form: what it accepts, what it refuses and with which words, the way back to text, the fingerprint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ech_model *parse(const char *text) {
    ech_model *model = NULL;
    struct ech_error err;
    if (ech_model_parse(text, strlen(text), "net.txt", &model, &err)) fail_msg("%s", err.text);
    return model;
}

static void assert_refused_bytes(const char *text, size_t len, const char *const *words) {
    ech_model *model = NULL;
    struct ech_error err = {0};
    if (ech_model_parse(text, len, "net.txt", &model, &err) == ECH_OK) fail_msg("accepted: %s", text);
    assert_null(model);
    for (; *words; words++)
        if (!strstr(err.text, *words)) fail_msg("'%s' is not in: %s", *words, err.text);
}
#define assert_refused(text, ...) assert_refused_bytes(text, strlen(text), (const char *const[]){__VA_ARGS__, NULL})

static void test_forms(void **state) {
    (void)state;
    ech_model *m =
        parse("input 3 32 20\nconv2d out 4 kernel 3\nmax_pool kernel 3\navg_pool kernel 3 stride 1 pad 1\nrelu\nfc out 7\n");
    char text[400];
    size_t len = ech_model_text(m, text, sizeof text);
    assert_string_equal(text, "input 3 32 20\nconv2d out 4 kernel 3 stride 1 pad 0\nmax_pool kernel 3 stride 3 pad 0\n"
                              "avg_pool kernel 3 stride 1 pad 1\nrelu\nfc out 7\n");
    assert_int_equal(len, strlen(text));
    assert_string_equal(m->name, "net.txt");
    /* Cut short, it still says how long it is; and the buffer's end is kept. */
    char small[8] = "ABCDEFG";
    assert_int_equal(ech_model_text(m, small, 6), len);
    assert_memory_equal(small, "input\0G", 8);
    assert_int_equal(ech_model_text(m, NULL, 0), len);
    /* The way back gives the same model. */
    ech_model *again = parse(text);
    assert_int_equal(again->n_layers, m->n_layers);
    assert_memory_equal(again->layers, m->layers, sizeof m->layers);
    ech_model_destroy(again);
    ech_model_destroy(m);
}

static void test_same_model_in_other_clothes(void **state) {
    (void)state;
    static const char *const same[] = {
        "input 1 8 8\nconv2d out 2 kernel 3 pad 1\nrelu\nfc out 3\n",
        "input 1 8 8\nconv2d out 2 kernel 3 pad 1\nrelu\nfc out 3",           /* no last newline */
        "input 1 8 8\r\nconv2d out 2 kernel 3 pad 1\r\nrelu\r\nfc out 3\r\n", /* CRLF */
        "\n\t# a digit net\n\ninput\t1 8  8 # grey\r\n  conv2d pad 1 kernel 3 out 2 stride 1\n\trelu#now\nfc  out 003   \n\n",
    };
    char want[65], hash[65];
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        ech_model *m = parse(same[i]);
        echi_model_hash(m, i ? hash : want);
        if (i) assert_string_equal(hash, want);
        ech_model_destroy(m);
    }
    ech_model *other = parse("input 1 8 8\nconv2d out 2 kernel 3 pad 1\nrelu\nfc out 4\n");
    echi_model_hash(other, hash);
    assert_string_not_equal(hash, want);
    ech_model_destroy(other);
}

/* `printf 'input 1 28 28\nfc out 10\n' | sha256sum` */
static void test_hash_is_of_the_text(void **state) {
    (void)state;
    ech_model *m = parse("input 1 28 28 # anything\nfc out 10");
    char hash[65];
    echi_model_hash(m, hash);
    assert_string_equal(hash, "14dfc801f971f54ce346d954cb538327a5be5a687b72ce6e6eab4db2a3e17701");
    ech_model_destroy(m);
}

static void test_refusals(void **state) {
    (void)state;
    assert_refused("input 1 8 8\nconv3d out 2 kernel 3\n", "net.txt:2: ", "'conv3d'", "did you mean 'conv2d'");
    assert_refused("input 1 8 8\nsoftmax\n", "net.txt:2: ", "'softmax'",
                   "conv2d, fc, max_pool, avg_pool, relu, global_avg_pool, add, dropout, tanh, batch_norm, input");
    assert_refused("inptu 1 8 8\n", "net.txt:1: ", "'inptu'", "did you mean 'input'");
    assert_refused("input 1 8 8\n\nconv2d out 2 kernal 3\n", "net.txt:3: ", "'kernal'", "'kernel'", "key of 'conv2d'");
    assert_refused("input 1 8 8\nmax_pool kernel 2 out 2\n", "net.txt:2: ", "'out'", "kernel, stride, pad");
    assert_refused("input 1 8 8\nconv2d out 2 out 2 kernel 3\n", "net.txt:2: ", "'out' is given twice");
    assert_refused("input 1 8 8\nconv2d out 2\n", "net.txt:2: ", "'conv2d' needs 'kernel'");
    assert_refused("input 1 8 8\nconv2d kernel 2\n", "net.txt:2: ", "'conv2d' needs 'out'");
    assert_refused("input 1 8 8\nfc\n", "'fc' needs 'out'");
    assert_refused("input 1 8 8\nfc out\n", "net.txt:2: ", "'out' must be followed by a number");
    assert_refused("input 1 8 8\nrelu 3\n", "net.txt:2: ", "'3' is no key of 'relu'", "from");
    assert_refused("input 1 8 8 8\nfc out 2\n", "net.txt:1: ", "'8' is too much");
    assert_refused("input 1 8\nfc out 2\n", "net.txt:1: ", "'input' must be followed");
    assert_refused("input 1 8 8\ninput 1 8 8\n", "net.txt:2: ", "second 'input'");
    assert_refused("relu\ninput 1 8 8\n", "net.txt:1: ", "'relu' comes before 'input'");
    assert_refused("input 0 8 8\nfc out 2\n", "net.txt:1: ", "input 0 x 8 x 8");
    assert_refused("input 65536 65536 65536\nfc out 2\n", "net.txt:1: ", "at most");
    static const char *const numbers[] = {"-1",    "+1", "1.0", "1e3", "0x3", "65537", "4294967297", "18446744073709551617",
                                          "three", "3\v"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[80];
        snprintf(text, sizeof text, "input 1 8 8\nconv2d out 2 kernel %s\n", numbers[i]);
        assert_refused(text, "net.txt:2: ", "after 'kernel'", "whole number");
    }
    assert_refused("input 1 8 8\nconv2d out 2 kernel 9\n", "net.txt:2: 'conv2d'", "conv1: ", "kernel 9");
    assert_refused("input 1 8 8\nmax_pool kernel 2 stride 0\n", "net.txt:2: 'max_pool'", "stride 0");
    assert_refused("input 1 8 8\nfc out 0\n", "net.txt:2: 'fc'", "fc1: ", "out 0");
    assert_refused("", "net.txt: ", "no 'input'");
    assert_refused("# only talk\n", "net.txt: ", "no 'input'");
    assert_refused("input 1 8 8\n", "net.txt: ", "no layers");
    assert_refused("input 1 8 8\nre\rlu\n", "net.txt:2: ", "'re?lu'");
    assert_refused("input 1 8 8\n\x1b[31mred\n", "net.txt:2: ", "'?[31mred'"); /* no escapes on the user's terminal */
    assert_refused_bytes("input 1 8 8\nrelu\0\nfc out 2\n", 28, (const char *const[]){"net.txt:2: ", "NUL", NULL});
    assert_refused_bytes("input 1 8 8\nrelu # \0\nfc out 2\n", 31, (const char *const[]){"net.txt:2: ", "NUL", NULL});
}

/* A residual block, whose second branch is a convolution, too; whatever says what is so anyway is not in the canonical text. */
static const char block[] = "input 2 8 8\nconv2d out 4 kernel 3 stride 1 pad 1\nconv2d out 4 kernel 3 stride 2 pad 1\n"
                            "conv2d out 4 kernel 1 stride 2 pad 0 from 1\nadd with 2\nrelu\ndropout p 0.5\nadd with 5\n"
                            "global_avg_pool\nfc out 3\n";

static void test_branches(void **state) {
    (void)state;
    char text[600];
    ech_model *m = parse(block);
    ech_model_text(m, text, sizeof text);
    assert_string_equal(text, block);
    assert_int_equal(m->layers[2].in.h, 8);
    assert_int_equal(echi_layer_takes(m->layers, 2), 1);
    assert_int_equal(echi_layer_adds(m->layers, 3), 2);
    assert_int_equal(m->layers[5].drop, 500000);
    char hash[65], other[65];
    echi_model_hash(m, hash);
    ech_model_destroy(m);
    m = parse("input 2 8 8\nconv2d out 4 kernel 3 pad 1 from 0\nconv2d out 4 kernel 3 stride 2 pad 1\nconv2d from 1 out 4 kernel "
              "1 stride 2\n"
              "add with 2 from 3\nrelu from 4\ndropout p 0.500000\nadd from 5 with 6\nglobal_avg_pool\nfc out 3\n");
    ech_model_text(m, text, sizeof text);
    assert_non_null(strstr(text, "add with 6 from 5\n"));   /* the same sum, and another text */
    echi_model_hash(m, other);
    assert_string_not_equal(hash, other);
    ech_model_destroy(m);

    static const struct { const char *in, *out; } fractions[] = {
        {"0", "0.0"}, {"0.5", "0.5"}, {"0.05", "0.05"}, {"0.10", "0.1"}, {"0.000", "0.0"}, {"0.999999", "0.999999"},
        {"0.000001", "0.000001"}};
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        char in[80], out[80];
        snprintf(in, sizeof in, "input 1 1 1\ndropout p %s\n", fractions[i].in);
        snprintf(out, sizeof out, "input 1 1 1\ndropout p %s\n", fractions[i].out);
        m = parse(in);
        ech_model_text(m, text, sizeof text);
        assert_string_equal(text, out);
        ech_model_destroy(m);
    }
}

static void test_refused_branches(void **state) {
    (void)state;
    assert_refused("input 1 8 8\nrelu\nadd\n", "net.txt:3: ", "'add' needs 'with'");
    assert_refused("input 1 8 8\nrelu\nadd with\n", "net.txt:3: ", "'with' must be followed by a number");
    assert_refused("input 1 8 8\nrelu\nadd with 2\n", "net.txt:3: 'add'", "add1: with 2", "layers 1 to 1");
    assert_refused("input 1 8 8\nrelu\nrelu from 2\n", "net.txt:3: 'relu'", "relu2: from 2", "layers 1 to 1");
    assert_refused("input 1 8 8\nrelu from 1\n", "net.txt:2: 'relu'", "from 1", "input, 0");
    assert_refused("input 1 8 8\nrelu\nadd with 65536\n", "with 65536");
    assert_refused("input 1 8 8\nrelu\nadd with -1\n", "net.txt:3: ", "after 'with'", "whole number");
    assert_refused("input 1 8 8\nconv2d out 2 kernel 3\nadd with 0\n", "net.txt:3: 'add'", "add1: ", "2 x 6 x 6",
                   "input, 0, gives 1 x 8 x 8");
    assert_refused("input 1 8 8\nmax_pool kernel 2\nconv2d out 1 kernel 1\nfc out 4 from 0\nadd with 2\n", "net.txt:5: 'add'", "4 x 1 x 1",
                   "conv1, 2, gives 1 x 4 x 4");
    /* An output that nobody takes, with its line. */
    assert_refused("input 1 8 8\nrelu\n\nfc out 4\nfc out 3 from 1\n", "net.txt:4: ", "'fc', layer 2", "'from 2'", "'add with 2'");
    assert_refused("input 1 8 8\nrelu\ndropout\n", "net.txt:3: ", "'dropout' needs 'p'");
    assert_refused("input 1 8 8\nrelu\ndropout 0.5\n", "'0.5' is no key of 'dropout'", "p, from");
    assert_refused("input 1 8 8\nglobal_avg_pool kernel 2\n", "'kernel' is no key of 'global_avg_pool'");
    assert_refused("input 1 8 8\nglobal_average_pool\n", "'global_average_pool'", "global_avg_pool");
    static const char *const fractions[] = {"1", "1.0", "-0.5", "0.", ".5", "0,5", "0.5x", "5e-1", "0.1234567", "00.5", "0.-1", "half", "2",
                                            "0x"};
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        char text[80];
        snprintf(text, sizeof text, "input 1 8 8\ndropout p %s\n", fractions[i]);
        assert_refused(text, "net.txt:2: ", fractions[i], "after 'p'", "0.999999");
    }
}

static void test_long_things(void **state) {
    (void)state;
    const size_t most = (size_t)1 << 20;
    char *text = malloc(most + 1);
    assert_non_null(text);
    memset(text, 'x', most + 1);
    memcpy(text, "input 1 8 8\n", 12);
    assert_refused_bytes(text, most, (const char *const[]){"net.txt:2: 'xxxxxxxx", "xx...'", NULL});
    assert_refused_bytes(text, most + 1, (const char *const[]){"net.txt: ", "1048577", "1048576", NULL});
    memset(text + 12, '\n', most - 12);
    memcpy(text + most - 8, "fc out 2", 8);
    ech_model *m = NULL;
    char name[2000];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    assert_int_equal(ech_model_parse(text, most, name, &m, NULL), ECH_OK);
    assert_int_equal(strlen(m->name), sizeof m->name - 1);
    ech_model_destroy(m);
    free(text);
}

static void test_open(void **state) {
    (void)state;
    ech_model *m = NULL;
    struct ech_error err;
    assert_int_equal(ech_model_open("lenet6", &m, &err), ECH_E_IO);
    assert_non_null(strstr(err.text, "'lenet6'"));
    assert_non_null(strstr(err.text, "built-in"));
    assert_non_null(strstr(err.text, "lenet5, resnet18, vgg19, alexnet"));
    assert_non_null(strstr(err.text, "read"));
    assert_int_not_equal(ech_model_open("/", &m, &err), ECH_OK);
    assert_non_null(strstr(err.text, "folder"));
    assert_int_equal(ech_model_open(NULL, &m, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_model_open("lenet5", NULL, &err), ECH_E_ARGUMENT);
    assert_int_equal(ech_model_parse(NULL, 0, "x", &m, &err), ECH_E_ARGUMENT);

    char path[] = "/tmp/echelon-model-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "input 1 4 4\nfc out 2\nrelu relu\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(ech_model_open(path, &m, &err), ECH_E_FORMAT);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, ":3: 'relu'"));
    assert_int_equal(ftruncate(fd, 21), 0);
    assert_int_equal(ech_model_open(path, &m, &err), ECH_OK);
    assert_string_equal(m->name, path + 5);
    assert_int_equal(ech_model_params(m), 34);
    ech_model_destroy(m);
    close(fd);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_same_model_in_other_clothes),
        cmocka_unit_test(test_hash_is_of_the_text),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_branches),
        cmocka_unit_test(test_refused_branches),
        cmocka_unit_test(test_long_things),
        cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
