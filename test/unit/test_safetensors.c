/* SPDX-License-Identifier: Apache-2.0
 * safetensors: byte for byte what is written, files of the Python package `safetensors` 0.8.0 read, and every way in which
 * a file can be wrong. Then the JSON reader on its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_bytes.h"
#include "echi_model.h"
#include "json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/echelon-safetensors-XXXXXX";
static char path[sizeof folder + 16];

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    return 0;
}
static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void write_file(const void *bytes, size_t len) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* A model with four tensors and nine parameters. */
enum { PARAMS = 9 };
static ech_model *tiny(void) {
    static const char text[] = "input 1 2 2\nconv2d out 1 kernel 2\nfc out 2\n";
    ech_model *model = NULL;
    assert_int_equal(ech_model_parse(text, sizeof text - 1, "tiny", &model, NULL), ECH_OK);
    assert_int_equal(ech_model_params(model), PARAMS);
    return model;
}
static const float values[PARAMS] = {1, -2, 0.5f, 3, /* bias */ 0.25f, /* fc1 */ 8, -8, /* bias */ 0, 1e-40f};

#define HEADER_SAVED                                                                                                             \
    "{\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[0,16]},"                                         \
    "\"conv1.bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]},"                                                 \
    "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[20,28]},"                                               \
    "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36]}}"
#define DATA_SAVED                                                                                                               \
    "\0\0\x80\x3f\0\0\0\xc0\0\0\0\x3f\0\0\x40\x40"                                                                               \
    "\0\0\x80\x3e"                                                                                                               \
    "\0\0\0\x41\0\0\0\xc1"                                                                                                       \
    "\0\0\0\0\xc2\x16\x01\0"

static void test_saved_bytes(void **state) {
    (void)state;
    ech_model *m = tiny();
    uint8_t want[600], got[600];
    const size_t header = strlen(HEADER_SAVED);
    echi_store64(want, header);
    memcpy(want + 8, HEADER_SAVED, header);
    memcpy(want + 8 + header, DATA_SAVED, 36);
    struct ech_error err;
    if (echi_safetensors_save(path, m, values, &err)) fail_msg("%s", err.text);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got, f), 8 + header + 36);
    fclose(f);
    assert_memory_equal(got, want, 8 + header + 36);
    float back[PARAMS];
    assert_int_equal(echi_safetensors_load(path, m, back, NULL), ECH_OK);
    assert_memory_equal(back, values, sizeof values);
    assert_int_equal(echi_safetensors_save("/nonexistent/a", m, values, &err), ECH_E_IO);
    assert_non_null(strstr(err.text, "/nonexistent/a"));
    ech_model_destroy(m);
}

/* Headers of many lengths end in spaces at a multiple of eight, before that in the object's end. */
static void test_padding(void **state) {
    (void)state;
    int padded = 0;
    for (int outputs = 1; outputs < 200; outputs += 33) {
        ech_model *m = tiny();
        float params[1200], back[1200];
        uint8_t file[6000];
        ech_model_fc(m, outputs);
        const size_t n = ech_model_params(m);
        assert_true(n <= 1200);
        echi_model_init(m, 1, params);
        assert_int_equal(echi_safetensors_save(path, m, params, NULL), ECH_OK);
        assert_int_equal(echi_safetensors_load(path, m, back, NULL), ECH_OK);
        assert_memory_equal(back, params, n * sizeof *params);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        const size_t len = fread(file, 1, sizeof file, f);
        fclose(f);
        size_t header = (size_t)echi_load64(file);
        assert_int_equal(header % 8, 0);
        assert_int_equal(len, 8 + header + 4 * n);
        padded += file[8 + header - 1] == ' ';
        while (file[8 + header - 1] == ' ') header--;
        assert_memory_equal(file + 8 + header - 2, "}}", 2);
        ech_model_destroy(m);
    }
    assert_int_not_equal(padded, 0);
}

/* The same tensors as safetensors.numpy.save(d, metadata={"format": "np"}) of version 0.8.0 wrote them: another order,
 * metadata, the data sorted by name. */
static void test_file_of_the_python_package(void **state) {
    (void)state;
    static const char file[] = "\x28\x01\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"np\"},\"conv1.bias\":{\"dtype\":\"F32\","
                               "\"shape\":[1],\"data_offsets\":[0,4]},"
                               "\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[4,20]},"
                               "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[20,28]},"
                               "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[28,36]}}   "
                               "\0\0\x80>\0\0\x80?\0\0\0\xc0\0\0\0?\0\0@@\0\0\0\0\xc2\x16\x01\0\0\0\0A\0\0\0\xc1";
    assert_int_equal(sizeof file - 1, 340);
    ech_model *m = tiny();
    float back[PARAMS];
    write_file(file, sizeof file - 1);
    struct ech_error err;
    if (echi_safetensors_load(path, m, back, &err)) fail_msg("%s", err.text);
    assert_memory_equal(back, values, sizeof values);
    ech_model_destroy(m);
}

/* Loads a file of this header and `data` zero bytes: must be refused with all these words, and leave params alone. */
static void assert_refused(const char *header, uint64_t header_len, size_t data, const char *const *words) {
    static uint8_t file[4096];
    ech_model *m = tiny();
    const size_t text = strlen(header);
    assert_true(8 + text + data <= sizeof file);
    memset(file, 0, sizeof file);
    echi_store64(file, header_len);
    memcpy(file + 8, header, text);
    write_file(file, 8 + text + data);
    float back[PARAMS];
    memcpy(back, values, sizeof back);
    struct ech_error err = {0};
    if (echi_safetensors_load(path, m, back, &err) == ECH_OK) fail_msg("accepted: %s", header);
    assert_non_null(strstr(err.text, "a.safetensors: "));
    for (; *words; words++)
        if (!strstr(err.text, *words)) fail_msg("'%s' is not in: %s", *words, err.text);
    assert_memory_equal(back, values, sizeof back);
    ech_model_destroy(m);
}
#define REFUSED(data, header, ...) assert_refused(header, strlen(header), data, (const char *const[]){__VA_ARGS__, NULL})

#define CONV_W "\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[0,16]}"
#define CONV_B "\"conv1.bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]}"
#define FC_W "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[20,28]}"
#define FC_B "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36]}"
#define ALL_BUT_FC_B CONV_W "," CONV_B "," FC_W
#define FC_B_WITH(rest) "{" ALL_BUT_FC_B ",\"fc1.bias\":{" rest "}}"

static void test_refusals(void **state) {
    (void)state;
    /* lengths */
    assert_refused("", 0, 0, (const char *const[]){"header", NULL});
    assert_refused("{}", 3, 0, (const char *const[]){"3 bytes", NULL});
    assert_refused("{}", UINT64_MAX, 40, (const char *const[]){"18446744073709551615", NULL});
    assert_refused("{}", 100000001, 40, (const char *const[]){"100000001", NULL});
    /* names */
    REFUSED(36, "{}", "lacks conv1.weight, conv1.bias, fc1.weight and 1 more");
    REFUSED(28, "{" ALL_BUT_FC_B "}", "lacks fc1.bias", "'tiny'");
    REFUSED(36, "{" ALL_BUT_FC_B "," FC_B ",\"bn.\\u001b\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[36,36]}}",
            "besides bn.?");
    REFUSED(36, "{" ALL_BUT_FC_B ",\"fc1.bias\\u0000\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36]}}",
            "lacks fc1.bias", "besides fc1.bias?");
    REFUSED(36, "{" ALL_BUT_FC_B "," FC_B "," FC_B "}", "'fc1.bias' is there twice");
    REFUSED(36, "{\"__metadata__\":{},\"__metadata__\":{}," ALL_BUT_FC_B "," FC_B "}", "'__metadata__' is there twice");
    REFUSED(36, "{\"__metadata__\":{\"a\":1}," ALL_BUT_FC_B "," FC_B "}", "JSON", "a string is missing");
    /* dtype and shape */
    REFUSED(36, FC_B_WITH("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[28,32]"), "'fc1.bias'", "BF16", "F32");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[28,36]"), "'fc1.bias'", "[2,1]", "[2]");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[28,36]"), "'fc1.bias'", "[]");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[4294967298],\"data_offsets\":[28,36]"), "'fc1.bias'", "4294967298");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1,2],\"data_offsets\":[28,36]"), "'fc1.bias'", "shape");
    /* places */
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,35]"), "'fc1.bias' needs 8 bytes");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[36,28]"), "'fc1.bias' needs 8 bytes");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[18446744073709551608,0]"),
            "'fc1.bias' needs 8 bytes");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[18446744073709551607,18446744073709551615]"),
            "'fc1.bias' ends at byte");
    REFUSED(35, "{" ALL_BUT_FC_B "," FC_B "}", "ends at byte 36", "35", "cut short");
    REFUSED(37, "{" ALL_BUT_FC_B "," FC_B "}", "37 bytes", "36");
    REFUSED(37, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[29,37]"), "begins at byte 29", "28");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]"), "begins at byte 24", "28");
    /* the header's own form */
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2]"), "'fc1.bias' must have");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28]"), "two data_offsets");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36,36]"), "two data_offsets");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36]"), "'fc1.bias'", "twice");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[28,36],\"x\":0"), "'fc1.bias'", "besides");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[28,36]"), "JSON", "not whole");
    REFUSED(36, FC_B_WITH("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[28,36]"), "JSON", "number");
    REFUSED(36, "[" ALL_BUT_FC_B "," FC_B "]", "JSON", "byte 0");
    REFUSED(36, "{" ALL_BUT_FC_B "," FC_B "} x", "JSON", "more follows");
    REFUSED(36, "{" ALL_BUT_FC_B "," FC_B ",}", "JSON", "a string is missing");
}

static void test_arguments(void **state) {
    (void)state;
    struct ech_error err;
    ech_model *m = tiny();
    float back[PARAMS];
    unlink(path);
    assert_int_equal(echi_safetensors_load(path, m, back, &err), ECH_E_IO);
    assert_non_null(strstr(err.text, path));
    ech_model_conv2d(m, 1, 5, 1, 0);
    assert_int_equal(echi_safetensors_load(path, m, back, &err), ECH_E_SHAPE);
    assert_int_equal(echi_safetensors_save(path, m, back, &err), ECH_E_SHAPE);
    assert_string_equal(err.layer, "conv2");
    ech_model_destroy(m);
}

/* --- the JSON reader --- */

/* Reads from a block of just this size, so that the address sanitizer sees a read beyond it. */
static bool read_string(const char *json, struct echi_json_string *out) {
    struct echi_json j;
    const size_t len = strlen(json);
    char *exact = malloc(len + !len);
    assert_non_null(exact);
    memcpy(exact, json, len);
    echi_json_begin(&j, exact, len);
    const bool ok = echi_json_string(&j, out) && echi_json_end(&j);
    free(exact);
    return ok;
}

static void test_json_strings(void **state) {
    (void)state;
    struct echi_json_string s;
    assert_true(read_string(" \"\" ", &s) && echi_json_equal(&s, ""));
    assert_true(read_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", &s) && echi_json_equal(&s, "\"\\/\b\f\n\r\t"));
    assert_true(read_string("\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\"", &s) && echi_json_equal(&s, "A\u00e9\u20ac\U0001F600"));
    assert_true(read_string("\"A\u00e9\u20ac\U0001F600\U0010FFFF\"", &s) &&
                echi_json_equal(&s, "A\u00e9\u20ac\U0001F600\U0010FFFF"));
    /* clang-format off: as words on a line */
    static const char *const refused[] = {
        "\"",
        "\"a",
        "\"\\",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u123",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\ud800\\",
        "\"\n\"",
        "\"\x1f\"",
        "\"\x80\"",
        "\"\xc3\"",
        "\"\xc0\x80\"",
        "\"\xc1\xbf\"",
        "\"\xe0\x80\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf0\x80\x80\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xf5\x80\x80\x80\"",
        "\"\xff\"",
        "\"\xe2\x82\"",
        "\"\xe2\x82",
        "\"\xf0\x9f\x98",
        "'a'",
        "a",
        "",
        "\"a\"b",
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (read_string(refused[i], &s)) fail_msg("accepted: %s", refused[i]);
    char longer[300];
    memset(longer, 'a', sizeof longer);
    longer[0] = longer[298] = '"';
    longer[299] = 0;
    assert_true(read_string(longer, &s));
    assert_int_equal(s.len, 297);
    longer[298] = 0;
    assert_false(echi_json_equal(&s, longer + 1));
}

/* [[n, ...], ...] as its sum, or UINT64_MAX when it is not that. */
static uint64_t sum_of(const char *json) {
    struct echi_json j;
    uint64_t sum = 0, n;
    echi_json_begin(&j, json, strlen(json));
    for (echi_json_array(&j); echi_json_element(&j);)
        for (echi_json_array(&j); echi_json_element(&j);)
            if (echi_json_whole(&j, &n)) sum += n;
    return echi_json_end(&j) ? sum : UINT64_MAX;
}

static void test_json_structure(void **state) {
    (void)state;
    assert_int_equal(sum_of("[]"), 0);
    assert_int_equal(sum_of(" [ [ ] , [ 1 , 2 ] ,\t[3]\r\n] "), 6);
    assert_int_equal(sum_of("[[18446744073709551614]]"), UINT64_MAX - 1);
    /* clang-format off: as words on a line */
    static const char *const refused[] = {
        "",
        "[",
        "[[",
        "[[1",
        "[[1]",
        "[[1]]]",
        "[,]",
        "[[],]",
        "[[1,]]",
        "[[,1]]",
        "[[1 2]]",
        "[[1][2]]",
        "[[01]]",
        "[[+1]]",
        "[[-0]]",
        "[[1.0]]",
        "[[1e0]]",
        "[[0x1]]",
        "[[null]]",
        "[[1}}",
        "{}",
        "[1]",
        "[[1]]x",
        "[[18446744073709551616]]",
        "[[99999999999999999999]]",
        "[[\"1\"]]",
    };
    /* clang-format on */
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (sum_of(refused[i]) != UINT64_MAX) fail_msg("accepted: %s", refused[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_bytes),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_file_of_the_python_package),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_structure),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
