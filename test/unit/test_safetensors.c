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
#include "echi_json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/echelon-safetensors-XXXXXX";
static char path[sizeof folder + 16];

/* What a load told of. */
static char told[20000];
static int warnings, lines;
static void note(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    warnings += level == ECH_LOG_WARN;
    lines += level <= ECH_LOG_INFO;
    const size_t len = strlen(told);
    snprintf(told + len, sizeof told - len, "%s\n", line);
}
static ech_status load(const char *from, const ech_model *m, float *params, struct ech_error *err) {
    told[0] = 0;
    warnings = lines = 0;
    return echi_safetensors_load(from, m, params, note, NULL, err);
}

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
    "{\"__metadata__\":{\"format\":\"pt\",\"model\":\"tiny\",\"version\":\"" ECH_VERSION "\"},"                                      \
    "\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[0,16]},"                                         \
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
    const size_t header = (strlen(HEADER_SAVED) + 7) / 8 * 8;
    memset(want, ' ', sizeof want);
    echi_store64(want, header);
    memcpy(want + 8, HEADER_SAVED, strlen(HEADER_SAVED));
    memcpy(want + 8 + header, DATA_SAVED, 36);
    struct ech_error err;
    if (echi_safetensors_save(path, m, values, &err)) fail_msg("%s", err.text);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(got, 1, sizeof got, f), 8 + header + 36);
    fclose(f);
    assert_memory_equal(got, want, 8 + header + 36);
    float back[PARAMS];
    assert_int_equal(echi_safetensors_load(path, m, back, NULL, NULL, NULL), ECH_OK);
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
        assert_int_equal(echi_safetensors_load(path, m, back, NULL, NULL, NULL), ECH_OK);
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
    if (echi_safetensors_load(path, m, back, NULL, NULL, &err)) fail_msg("%s", err.text);
    assert_memory_equal(back, values, sizeof values);
    ech_model_destroy(m);
}

/* --- files of PyTorch's state_dicts, as the Python package wrote them (safetensors/make.py) --- */

/* Parameter i in the order of the net has i, i + 1/2, i, ...: this is so in `params`, which is in that order. */
static void assert_in_order(const ech_model *m, const float *params) {
    int i = 0;
    for (int k = 0; k < m->n_layers; k++) {
        const struct echi_layer *l = &m->layers[k];
        const size_t counts[4] = {l->weights, l->biases, l->running / 2, l->running / 2};
        for (int part = 0; part < 4; part++) {
            for (size_t e = 0; e < counts[part]; e++)
                if (!(*params++ == (float)i + (float)(e % 2) / 2)) fail_msg("%s, part %d: not tensor %d", l->name, part, i);
            i += counts[part] > 0;
        }
    }
}

static ech_model *parse(const char *text) {
    ech_model *model = NULL;
    struct ech_error err;
    if (ech_model_parse(text, strlen(text), "net", &model, &err)) fail_msg("%s", err.text);
    return model;
}

#define CONV(out, rest) "conv2d out " #out " kernel 3 pad 1" rest "\n"
#define NORMED(out) CONV(out, " bias 0") "batch_norm\nrelu\n"
#define BLOCK(out, from) NORMED(out) CONV(out, " bias 0") "batch_norm\nadd with " #from "\nrelu\n"
static const char resnet[] = "input 3 8 8\n" NORMED(2) BLOCK(2, 3) BLOCK(2, 10)
    CONV(4, " stride 2 bias 0") "batch_norm\nrelu\n" CONV(4, " bias 0") "batch_norm\n"
    "conv2d out 4 kernel 1 stride 2 bias 0 from 17\nbatch_norm\nadd with 22\nrelu\n" BLOCK(4, 26) "global_avg_pool\nfc out 5\n";
static const char vgg[] = "input 1 8 8\n" CONV(2, "") "batch_norm\nrelu\n" CONV(2, "") "batch_norm\nrelu\nmax_pool kernel 2\n"
    CONV(2, "") "batch_norm\nrelu\n" CONV(2, "") "batch_norm\nrelu\nmax_pool kernel 2\nfc out 8\nrelu\nfc out 8\nrelu\nfc out 3\n";
static const char sequential[] = "input 1 8 8\nconv2d out 2 kernel 3\nrelu\nmax_pool kernel 2\nfc out 4\nrelu\nfc out 4\nrelu\nfc out 4\n";
static const char three_alike[] = "input 2 2 2\n" CONV(2, "") CONV(2, "") CONV(2, "") "fc out 3\n";

/* One line says what was done, others which tensor is whose. */
static void assert_taken(const char *file, const char *text, const char *says, const char *tensor) {
    char from[80];
    struct ech_error err;
    ech_model *m = parse(text);
    float *params = calloc(ech_model_params(m), sizeof *params);
    assert_non_null(params);
    snprintf(from, sizeof from, "test/unit/safetensors/%s.safetensors", file);
    if (load(from, m, params, &err)) fail_msg("%s", err.text);
    assert_in_order(m, params);
    assert_int_equal(lines, 1);
    assert_int_equal(warnings, 1);
    if (!strstr(told, says)) fail_msg("'%s' is not in: %s", says, told);
    if (!strstr(told, tensor)) fail_msg("'%s' is not in: %s", tensor, told);
    free(params);
    ech_model_destroy(m);
}

static void test_names_of_pytorch(void **state) {
    (void)state;
    assert_taken("sequential-f16", sequential, "8 parameters were taken by the order of their names",
                 "fc3.weight [4,4] is '11.weight' (F16)");
    assert_taken("vgg-f64", vgg, "converted from F64", "bn2.running_var [2] is 'module.features.4.running_var' (F64)");
    assert_taken("resnet-bf16", resnet, "left out bn1.num_batches_tracked, ",
                 "conv8.weight [4,2,1,1] is 'layer2.0.downsample.0.weight' (BF16)");
}

/* The model's own names: nothing is guessed, and what is no parameter is left out and named. */
static void test_left_out(void **state) {
    (void)state;
    enum { HEADER = 900 };
    static const char header[] =
        "{\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[0,16]},"
        "\"bn1.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[16,24]},"
        "\"conv1.bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[24,28]},"
        "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[28,36]},"
        "\"momentum.0.fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[36,44]},"
        "\"second.7.fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[44,52]},"
        "\"optimizer.state.0.exp_avg\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[52,55]},"
        "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[55,63]}}";
    uint8_t file[8 + HEADER + 63] = {0};
    float back[PARAMS];
    struct ech_error err;
    const size_t at = 8 + strlen(header);
    assert_true(sizeof header <= HEADER);
    echi_store64(file, strlen(header));
    memcpy(file + 8, header, strlen(header));
    memset(file + at, 0xff, 63);
    memcpy(file + at, values, 16);
    memcpy(file + at + 24, values + 4, 12);
    memcpy(file + at + 55, values + 7, 8);
    write_file(file, at + 63);
    ech_model *m = tiny();
    if (load(path, m, back, &err)) fail_msg("%s", err.text);
    assert_memory_equal(back, values, sizeof values);
    assert_int_equal(lines, 1);
    assert_int_equal(warnings, 0);
    assert_non_null(strstr(told, "left out bn1.num_batches_tracked, momentum.0.fc1.weight, second.7.fc1.bias and 1 more"));
    file[at - 4] = '4';   /* what is left out has its own bytes all the same */
    write_file(file, at + 63);
    assert_int_equal(load(path, m, back, &err), ECH_E_FORMAT);
    ech_model_destroy(m);
}

/* A net of one fully connected layer whose weights are the `count` elements of that type. */
static ech_status load_elements(const char *dtype, size_t bytes, const void *elements, int count, float *out, struct ech_error *err) {
    char text[60], header[300];
    uint8_t file[1024] = {0};
    snprintf(text, sizeof text, "input 1 1 %d\nfc out 1\n", count);
    const int len = snprintf(header, sizeof header,
                             "{\"fc1.weight\":{\"dtype\":\"%s\",\"shape\":[1,%d],\"data_offsets\":[0,%zu]},"
                             "\"fc1.bias\":{\"dtype\":\"%s\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}}",
                             dtype, count, bytes * (size_t)count, dtype, bytes * (size_t)count, bytes * (size_t)(count + 1));
    ech_model *m = parse(text);
    echi_store64(file, (uint64_t)len);
    memcpy(file + 8, header, (size_t)len);
    memcpy(file + 8 + len, elements, bytes * (size_t)count);
    write_file(file, 8 + (size_t)len + bytes * (size_t)(count + 1));
    const ech_status status = load(path, m, out, err);
    ech_model_destroy(m);
    return status;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Elements of each type, and the float that numpy makes of them (frombuffer(...).astype(float32)). */
static void test_element_types(void **state) {
    (void)state;
    static const uint16_t f16[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0x3c01, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x0155};
    static const uint32_t f16_as[] = {0x00000000, 0x80000000, 0x33800000, 0xb87fc000, 0x38800000, 0x3f800000, 0x3f802000, 0xc77fe000,
                                      0x7f800000, 0xff800000, 0x7fc00000, 0x37aa8000};
    static const uint16_t bf16[] = {0x0000, 0x8001, 0x3f80, 0x3f81, 0xff7f, 0x7f80, 0x7fc0};
    static const uint64_t f64[] = {
        0x3ff0000000000000, 0x3ff0000010000000 /* 1 + 2^-24: a tie, to even */, 0x3ff0000030000000 /* 1 + 3 * 2^-24: a tie, to even */,
        0x3ff0000010000001, 0x36a0000000000000 /* 2^-149 */, 0x3690000000000000 /* half of that: to even, zero */, 0x3690000000000001,
        0xb810000000000001 /* -2^-126 and a bit */, 0x47efffffe0000000 /* largest float */, 0x47efffffefffffff /* rounds to it */,
        0x7ff0000000000000, 0xbfb999999999999a};
    static const uint32_t f64_as[] = {0x3f800000, 0x3f800000, 0x3f800002, 0x3f800001, 0x00000001, 0x00000000,
                                      0x00000001, 0x80800000, 0x7f7fffff, 0x7f7fffff, 0x7f800000, 0xbdcccccd};
    float out[16];
    struct ech_error err;
    uint8_t bytes[16 * 8];
    for (int i = 0; i < 12; i++) echi_store16(bytes + 2 * i, f16[i]);
    assert_int_equal(load_elements("F16", 2, bytes, 12, out, &err), ECH_OK);
    for (int i = 0; i < 12; i++) assert_int_equal(bits_of(out[i]), f16_as[i]);
    assert_int_equal(lines, 1);
    assert_non_null(strstr(told, "converted from F16"));
    for (int i = 0; i < 7; i++) echi_store16(bytes + 2 * i, bf16[i]);
    assert_int_equal(load_elements("BF16", 2, bytes, 7, out, &err), ECH_OK);
    for (int i = 0; i < 7; i++) assert_int_equal(bits_of(out[i]), (uint32_t)bf16[i] << 16);
    for (int i = 0; i < 12; i++) echi_store64(bytes + 8 * i, f64[i]);
    assert_int_equal(load_elements("F64", 8, bytes, 12, out, &err), ECH_OK);
    for (int i = 0; i < 12; i++) assert_int_equal(bits_of(out[i]), f64_as[i]);
    /* What is finite stays so, or is refused with its name, and nothing is touched. */
    echi_store64(bytes + 8, 0xc7effffff0000000);   /* a tie with 2^128 */
    out[0] = 7;
    assert_int_equal(load_elements("F64", 8, bytes, 2, out, &err), ECH_E_FORMAT);
    assert_non_null(strstr(err.text, "'fc1.weight' has -3.40282e+38, which is too large"));
    assert_true(out[0] == 7);
    assert_int_equal(load_elements("F8_E5M2", 1, bytes, 2, out, &err), ECH_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'fc1.weight' has dtype F8_E5M2, only F32, F16, BF16 and F64"));
    assert_int_equal(load_elements("F32", 4, bytes, 2, out, &err), ECH_OK);
    assert_int_equal(lines, 0);   /* nothing to tell */
}

/* Two layers, of these names and shapes of weights, for a model of two: taken in this order (1), or refused and why. */
static void two_layers(const char *text, const char *first, const char *shape_1, int count_1, const char *second, const char *shape_2,
                       int count_2, const char *refused) {
    char header[600];
    uint8_t file[1400] = {0};
    float params[64];
    struct ech_error err = {0};
    ech_model *m = parse(text);
    const int bytes = 4 * (count_1 + count_2);
    const int len = snprintf(header, sizeof header,
                             "{\"%s.weight\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[0,%d]},"
                             "\"%s.weight\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":[%d,%d]}}",
                             first, shape_1, 4 * count_1, second, shape_2, 4 * count_1, bytes);
    echi_store64(file, (uint64_t)len);
    memcpy(file + 8, header, (size_t)len);
    for (int i = 0; i < count_1 + count_2; i++)
        echi_store32(file + 8 + len + 4 * i, bits_of((float)(i < count_1 ? i % 2 : 2 + (i - count_1) % 2) / 2));
    write_file(file, 8 + (size_t)len + (size_t)bytes);
    const ech_status status = load(path, m, params, &err);
    ech_model_destroy(m);
    if (refused) {
        if (status != ECH_E_SHAPE || !strstr(err.text, refused)) fail_msg("%s, %s: status %d, '%s'", first, second, status, err.text);
        return;
    }
    if (status) fail_msg("%s, %s: %s", first, second, err.text);
    assert_true(params[0] == 0 && params[count_1] == 1);
}

static void test_order_of_names(void **state) {
    (void)state;
    static const char alike[] = "input 1 2 2\nconv2d out 1 kernel 1 bias 0\nrelu\nconv2d out 1 kernel 1 bias 0\n";
    static const char unlike[] = "input 1 2 2\nconv2d out 2 kernel 1 bias 0\nrelu\nfc out 3 bias 0\n";
#define ALIKE(first, second, refused) two_layers(alike, first, "[1,1,1,1]", 1, second, "[1,1,1,1]", 1, refused)
    ALIKE("2", "10", NULL);
    ALIKE("a.2.c", "a.10.b", NULL);
    ALIKE("c2.x", "c10.a", NULL);
    ALIKE("fc", "fc2", NULL);
    ALIKE("conv2_x", "conv21_x", NULL);
    ALIKE("a105", "a1005", NULL);
    ALIKE("a.block.conv", "a.block2.conv", NULL);
    ALIKE("layer1.1.conv2", "layer2.0.conv1", NULL);
    ALIKE("first", "second", "no number tells which comes first");
    ALIKE("up", "down", "no number tells");
    ALIKE("body.3", "head.1", "no number tells");
    ALIKE("a.01", "a.1", "no number tells");
#define UNLIKE(first, second, refused) two_layers(unlike, first, "[2,1,1,1]", 2, second, "[3,8]", 24, refused)
    UNLIKE("trunk", "head", NULL);   /* shapes leave no choice */
    UNLIKE("0", "2", NULL);
    UNLIKE("2", "0", "stand the other way round in the model");
    two_layers(unlike, "0", "[2,1,1,1]", 2, "2", "[8,3]", 24, "of the shape of 'fc1', [3,8]");
    two_layers(unlike, "0", "[2]", 2, "2", "[3,8]", 24, "of the shape of 'conv1', [2,1,1,1]");
    /* In files of the Python package. */
    struct ech_error err;
    ech_model *m = parse(three_alike);
    float *params = calloc(ech_model_params(m), sizeof *params);
    assert_non_null(params);
    assert_int_equal(load("test/unit/safetensors/words-f32.safetensors", m, params, &err), ECH_E_SHAPE);
    assert_non_null(strstr(err.text, "have one shape, and no number tells which comes first"));
    assert_int_equal(load("test/unit/safetensors/sequential-f16.safetensors", m, params, &err), ECH_E_SHAPE);
    for (size_t i = 0; i < ech_model_params(m); i++) assert_true(params[i] == 0);
    free(params);
    ech_model_destroy(m);
}

/* A file that torch.save wrote is no such file, and the sentence says what would be. */
static void test_torch_save(void **state) {
    (void)state;
    static const uint8_t zip[64] = "PK\3\4\0\0\10\10", pickle[64] = "\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.";
    ech_model *m = tiny();
    float back[PARAMS];
    struct ech_error err;
    for (int i = 0; i < 2; i++) {
        write_file(i ? pickle : zip, 64);
        assert_int_equal(load(path, m, back, &err), ECH_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "safetensors.torch.save_file"));
    }
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
    if (echi_safetensors_load(path, m, back, NULL, NULL, &err) == ECH_OK) fail_msg("accepted: %s", header);
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
    REFUSED(36, FC_B_WITH("\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[28,36]"), "'fc1.bias'", "I32", "F32");
    REFUSED(36, FC_B_WITH("\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[28,36]"), "'fc1.bias' needs 4 bytes");
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
    assert_int_equal(echi_safetensors_load(path, m, back, NULL, NULL, &err), ECH_E_IO);
    assert_non_null(strstr(err.text, path));
    ech_model_conv2d(m, 1, 5, 1, 0);
    assert_int_equal(echi_safetensors_load(path, m, back, NULL, NULL, &err), ECH_E_SHAPE);
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

/* A number as it is written, or what is wrong with it. */
static const char *number_of(const char *json) {
    static struct echi_json_string s;
    struct echi_json j;
    echi_json_begin(&j, json, strlen(json));
    return echi_json_number(&j, &s) && echi_json_end(&j) ? s.text : j.wrong;
}

static void test_json_numbers(void **state) {
    (void)state;
    static const char *const good[] = {"0", "-0", "7", "-12.5", "0.000", "1e5", "1E+05", "1.25e-300", "18446744073709551616"};
    static const struct { const char *bytes, *wrong; } bad[] = {
        {"", "a number is missing"}, {"+1", "a number is missing"}, {".5", "a number is missing"}, {"nan", "a number is missing"},
        {"null", "a number is missing"}, {"\"1\"", "a number is missing"},
        {"-", "a number lacks a digit"}, {"-.5", "a number lacks a digit"},
        {"1.", "a number lacks a digit"}, {"1.e5", "a number lacks a digit"}, {"1e", "a number lacks a digit"},
        {"1e+", "a number lacks a digit"}, {"01", "a number begins with 0"}, {"-00", "a number begins with 0"},
        {"1 2", "more follows after its end"}, {"0x1p3", "more follows after its end"}, {"1,5", "more follows after its end"}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_string_equal(number_of(good[i]), good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_string_equal(number_of(bad[i].bytes), bad[i].wrong);
    char longest[sizeof ((struct echi_json_string *)0)->text + 1];   /* the text has a NUL behind it */
    memset(longest, '7', sizeof longest);
    longest[sizeof longest - 2] = 0;
    assert_string_equal(number_of(longest), longest);
    longest[sizeof longest - 2] = '7';
    longest[sizeof longest - 1] = 0;
    assert_string_equal(number_of(longest), "a number has more than 127 characters");
}

/* What stands behind a value that is skipped, or what is wrong with it. */
static const char *behind(const char *json) {
    static struct echi_json_string s;
    struct echi_json j;
    echi_json_begin(&j, json, strlen(json));
    if (!echi_json_array(&j) || !echi_json_element(&j) || !echi_json_skip(&j) || !echi_json_element(&j) || !echi_json_string(&j, &s))
        return j.wrong;
    return echi_json_equal(&s, "x") && !echi_json_element(&j) && echi_json_end(&j) ? NULL : "not an x";
}

static void test_json_skip(void **state) {
    (void)state;
    static const char *const good[] = {"0", "-1.5e3", "\"]\"", "null", "true", "false", "[]", "{}", " [ 1 , [ {} ] , null ] ",
                                       "{\"a\": {\"b\": [true, \"}\"]}, \"c\": -0}"};
    static const struct { const char *bytes, *wrong; } bad[] = {
        {"", "a value is missing"}, {"nul", "a value is missing"}, {"True", "a value is missing"}, {"truex", "',' or ']' is missing"},
        {"[1", "',' or ']' is missing"}, {"[1,]", "a value is missing"}, {"{1: 2}", "a string is missing"}, {"{\"a\" 2}", "':' is missing"},
        {"{\"a\": 1]", "',' or '}' is missing"}, {"[\"\x01\"]", "a control character in a string"}};
    char bytes[200];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(bytes, sizeof bytes, "[%s, \"x\"]", good[i]);
        if (behind(bytes)) fail_msg("%s: %s", bytes, behind(bytes));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(bytes, sizeof bytes, "[%s%s", bad[i].bytes, i ? ", \"x\"]" : "");
        assert_string_equal(behind(bytes), bad[i].wrong);
    }
    for (int deep = ECHI_JSON_SKIPS; deep <= ECHI_JSON_SKIPS + 1; deep++) {
        snprintf(bytes, sizeof bytes, "[%.*s%.*s, \"x\"]",
                 deep, "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", deep, "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
        const char *wrong = behind(bytes);
        if (deep == ECHI_JSON_SKIPS) assert_null(wrong);
        else assert_string_equal(wrong, "objects and arrays are in each other too deep");
    }
}

/* Takes that one word, and is wrong about nothing else. */
static void test_json_null(void **state) {
    (void)state;
    struct echi_json j;
    uint64_t n;
    echi_json_begin(&j, " null 7 nul", 11);
    assert_true(echi_json_null(&j));
    assert_false(echi_json_null(&j));
    assert_true(echi_json_whole(&j, &n) && n == 7);
    assert_false(echi_json_null(&j));
    assert_null(j.wrong);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_saved_bytes),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_file_of_the_python_package),
        cmocka_unit_test(test_names_of_pytorch),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_element_types),
        cmocka_unit_test(test_order_of_names),
        cmocka_unit_test(test_torch_save),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_structure),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_json_skip),
        cmocka_unit_test(test_json_null),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
