/* SPDX-License-Identifier: Apache-2.0
 * Model text and safetensors files with bytes changed at random, and cut at every byte: nothing may crash, hang or read
 * beyond its end (run it under SAN=address,undefined), a refusal must come with a sentence, and what is accepted must be
 * whole. The cases are fixed by SEED; each test ends by printing the last case it tried, also when it failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_bytes.h"
#include "echi_model.h"
#include "echi_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEED = 3, TEXT_CASES = 30000, FILE_CASES = 6000 };
static uint32_t last_case;

static int print_last_case(void **state) {
    (void)state;
    print_message("seed %d, last case %u\n", SEED, last_case);
    return 0;
}

static const char base_text[] =
    "# a net\ninput 3 12 12\nconv2d out 4 kernel 3 stride 1 pad 1\r\nrelu\nmax_pool kernel 2 stride 2 pad 0\n"
    "avg_pool kernel 3 stride 1 pad 1\nconv2d out 5 kernel 2\nfc out 12\nrelu\nfc out 10";
/* clang-format off: as words on a line */
static const char *const text_pieces[] = {
    "input 1 1 1\n", "65536", "65537", "-1", "99999999999999999999", "conv2d", "kernel", "out", "pad 65536", "\r\n", "\n\n",
    "#", "\0", "\xff\xfe", " ", "\t", "fc out 65536\n", "stride 0", "conv2d out 65536 kernel 1\n", "\x1b[",
};
static const char *const json_pieces[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "\\ud800", "18446744073709551615", "18446744073709551616", "-1",
    "1.5", "0", "\"dtype\":\"F16\"", "\"shape\":[]", "[[[[[[[[", "{{{{{{{{", "\xf0\x90\x80", "null", "__metadata__",
};
/* clang-format on */

/* Changes 1..4 places of bytes[*len]: flips a bit, writes a byte, cuts, doubles or removes a part, or puts in a piece. */
static void mutate(struct echi_random *r, char *bytes, size_t *len, size_t cap, const char *const *pieces, uint32_t n_pieces) {
    for (uint32_t changes = 1 + echi_random_below(r, 4); changes; changes--) {
        const size_t at = echi_random_below(r, (uint32_t)*len + 1), left = *len - at;
        size_t part = echi_random_below(r, 24);
        if (part > left) part = left;
        switch (echi_random_below(r, 6)) {
        case 0:
            if (left) bytes[at] = (char)(bytes[at] ^ 1 << echi_random_below(r, 8));
            break;
        case 1:
            if (left) bytes[at] = (char)echi_random_below(r, 256);
            break;
        case 2:
            if (echi_random_below(r, 4) == 0) *len = at;
            break;
        case 3:
            memmove(bytes + at, bytes + at + part, left - part);
            *len -= part;
            break;
        case 4:
            if (*len + part > cap) break;
            memmove(bytes + at + part, bytes + at, left);
            *len += part;
            break;
        default: {
            const char *piece = pieces[echi_random_below(r, n_pieces)];
            const size_t n = *piece ? strlen(piece) : 1; /* the empty piece stands for a NUL byte */
            if (*len + n > cap) break;
            memmove(bytes + at + n, bytes + at, left);
            memcpy(bytes + at, piece, n);
            *len += n;
        }
        }
    }
}

static void assert_sentence(const struct ech_error *err, ech_status status) {
    assert_int_equal(err->code, status);
    assert_true(strlen(err->text) > 10);
    for (const char *c = err->text; *c; c++) assert_true(*c >= ' ' && *c <= '~');
}

/* Parses from a block of just this size, so that a read beyond it is seen. Returns whether it was accepted. */
static bool try_text(const char *text, size_t len) {
    char *exact = malloc(len ? len : 1);
    assert_non_null(exact);
    memcpy(exact, text, len);
    ech_model *model = NULL, *again = NULL;
    struct ech_error err = {0};
    const ech_status status = ech_model_parse(exact, len, "fuzz", &model, &err);
    free(exact);
    if (status) {
        assert_null(model);
        assert_sentence(&err, status);
        return false;
    }
    static char out[ECHI_LAYERS_MAX * 64];
    const size_t n = ech_model_text(model, out, sizeof out);
    assert_true(n < sizeof out);
    assert_int_equal(ech_model_parse(out, n, "fuzz", &again, NULL), ECH_OK);
    assert_int_equal(again->n_params, model->n_params);
    assert_memory_equal(again->layers, model->layers, sizeof model->layers);
    ech_model_destroy(again);
    ech_model_destroy(model);
    return true;
}

static void test_text(void **state) {
    (void)state;
    struct echi_random r;
    int accepted = 0;
    for (size_t len = 0; len < sizeof base_text; len++) try_text(base_text, len);
    for (uint32_t i = 0; i < TEXT_CASES; i++) {
        char text[2048];
        size_t len = sizeof base_text - 1;
        memcpy(text, base_text, len);
        echi_random_init(&r, SEED, ECHI_STREAM_TEST, i);
        mutate(&r, text, &len, sizeof text, text_pieces, sizeof text_pieces / sizeof *text_pieces);
        last_case = i;
        accepted += try_text(text, len);
    }
    print_message("%d of %d texts were accepted\n", accepted, TEXT_CASES);
    assert_in_range(accepted, TEXT_CASES / 100, TEXT_CASES / 2); /* the cases reach both sides */
}

static char path[] = "/tmp/echelon-fuzz-XXXXXX";

static bool try_file(const ech_model *model, const char *bytes, size_t len, float *params) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    struct ech_error err = {0};
    memset(params, 0x7f, model->n_params * sizeof *params);
    const ech_status status = echi_safetensors_load(path, model, params, &err);
    if (status == ECH_OK) return true;
    assert_sentence(&err, status);
    for (size_t i = 0; i < model->n_params * sizeof *params; i++) assert_int_equal(((unsigned char *)params)[i], 0x7f);
    return false;
}

static void test_safetensors(void **state) {
    (void)state;
    static const char text[] = "input 1 2 2\nconv2d out 1 kernel 2\nfc out 2\n";
    float values[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, back[9];
    char base[1024], file[2048];
    ech_model *model = NULL;
    assert_int_equal(ech_model_parse(text, sizeof text - 1, "tiny", &model, NULL), ECH_OK);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(echi_safetensors_save(path, model, values, NULL), ECH_OK);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t base_len = fread(base, 1, sizeof base, f);
    fclose(f);
    assert_true(try_file(model, base, base_len, back));
    for (size_t len = 0; len < base_len; len++) assert_false(try_file(model, base, len, back));

    struct echi_random r;
    int accepted = 0;
    for (uint32_t i = 0; i < FILE_CASES; i++) {
        memcpy(file, base, base_len);
        echi_random_init(&r, SEED, ECHI_STREAM_TEST, TEXT_CASES + i);
        /* Half of the cases change only the header and then state its true length, or hardly any would get past it. */
        size_t len = base_len;
        if (i % 2) {
            len = base_len - 36 - 8;
            mutate(&r, file + 8, &len, sizeof file - 8 - 36, json_pieces, sizeof json_pieces / sizeof *json_pieces);
            echi_store64((uint8_t *)file, len);
            memcpy(file + 8 + len, base + base_len - 36, 36);
            len += 8 + 36;
        } else {
            mutate(&r, file, &len, sizeof file, json_pieces, sizeof json_pieces / sizeof *json_pieces);
        }
        last_case = i;
        accepted += try_file(model, file, len, back);
    }
    print_message("%d of %d files were accepted\n", accepted, FILE_CASES);
    assert_in_range(accepted, 1, FILE_CASES / 2);
    unlink(path);
    ech_model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(test_text, print_last_case),
                                       cmocka_unit_test_teardown(test_safetensors, print_last_case)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
