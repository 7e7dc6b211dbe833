/* SPDX-License-Identifier: Apache-2.0
 * safetensors files for a small model: accepted whole or not at all; what is accepted, saved and loaded again is the same,
 * and saved once more gives the same file. */
#include "fuzz.h"

#include "echi_bytes.h"
#include "echi_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 9 }; /* conv1: 4 + 1, fc1: 2 + 2 */

static const struct ech_model *tiny(void) {
    static struct ech_model model;
    static const char text[] = "input 1 2 2\nconv2d out 1 kernel 2\nrelu\nfc out 2\n";
    ech_model *parsed = NULL;
    if (model.n_layers) return &model;
    FUZZ_CHECK(ech_model_parse(text, sizeof text - 1, "tiny", &parsed, NULL) == ECH_OK && parsed->n_params == PARAMS);
    model = *parsed;
    ech_model_destroy(parsed);
    return &model;
}

static size_t saved(const float *params, uint8_t *out, size_t cap) {
    struct ech_error err;
    FUZZ_CHECK(echi_safetensors_save(fuzz_out_path(), tiny(), params, &err) == ECH_OK);
    FILE *f = fopen(fuzz_out_path(), "rb");
    FUZZ_CHECK(f != NULL);
    const size_t len = fread(out, 1, cap, f);
    fclose(f);
    return len;
}

/* What is told is a line, whatever names the file has. */
static void told(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    FUZZ_CHECK(level != ECH_LOG_ERROR && *line && strlen(line) < 400);
    for (; *line; line++) FUZZ_CHECK(*line >= ' ' && *line <= '~');
}

static bool one(const uint8_t *bytes, size_t len) {
    float params[PARAMS], back[PARAMS];
    uint8_t file[2][1024];
    struct ech_error err = {0};
    memset(params, 0x7f, sizeof params);
    const ech_status status = echi_safetensors_load(fuzz_file(0, bytes, len), tiny(), params, told, NULL, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        for (size_t i = 0; i < sizeof params; i++) FUZZ_CHECK(((uint8_t *)params)[i] == 0x7f);
        return false;
    }
    FUZZ_CHECK(len >= 8 + sizeof params / 2); /* every weight has its own bytes in the file: two at least */
    const size_t n = saved(params, file[0], sizeof file[0]);
    FUZZ_CHECK(echi_safetensors_load(fuzz_out_path(), tiny(), back, NULL, NULL, &err) == ECH_OK);
    FUZZ_CHECK(memcmp(params, back, sizeof params) == 0);
    FUZZ_CHECK(saved(back, file[1], sizeof file[1]) == n && memcmp(file[0], file[1], n) == 0);
    return true;
}

/* As other writers may put it: in another order, with metadata, escapes and space; other names and half the size; F64, with
 * what is no parameter. */
static const struct { const char *header; size_t data; } others[] = {
    {" {\"__metadata__\":{\"format\":\"pt\"}, \"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\n"
     "\"fc1.weight\":{\"shape\":[2,1],\"dtype\":\"F32\",\"data_offsets\":[8,16]},"
     "\"conv1.bi\\u0061s\":{\"data_offsets\":[16,20],\"dtype\":\"F32\",\"shape\":[1]},"
     "\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[20,36]}} ", 36},
    {"{\"features.10.weight\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
     "\"features.10.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]},"
     "\"features.2.weight\":{\"dtype\":\"BF16\",\"shape\":[1,1,2,2],\"data_offsets\":[8,16]},"
     "\"features.2.bias\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[16,18]}}", 18},
    {"{\"conv1.weight\":{\"dtype\":\"F64\",\"shape\":[1,1,2,2],\"data_offsets\":[0,32]},"
     "\"bn1.num_batches_tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[32,40]},"
     "\"momentum.0.fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[40,48]},"
     "\"conv1.bias\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[48,56]},"
     "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[56,64]},"
     "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[64,72]}}", 72},
};
enum { OTHERS = sizeof others / sizeof *others };

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    (void)good; /* all are */
    static const float params[2 * PARAMS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18};
    if (i == 0) return saved(params, out, cap);
    if (i > OTHERS) return 0;
    const size_t header = strlen(others[i - 1].header), data = others[i - 1].data;
    FUZZ_CHECK(cap >= 8 + header + data && data <= sizeof params);
    echi_store64(out, header);
    memcpy(out + 8, others[i - 1].header, header);
    memcpy(out + 8 + header, params, data);
    return 8 + header + data;
}

/* The header's true length, were the data as long as that of a seed; or hardly any changed header would be read at all. */
static void repair(uint8_t *bytes, size_t *len, size_t cap) {
    (void)cap;
    const size_t data = others[*len % OTHERS].data;
    if (*len >= 8 + data) echi_store64(bytes, *len - 8 - data);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "18446744073709551615", "18446744073709551612", "4294967296", "-1", "0",
    "\"dtype\":\"F16\"", "\"dtype\":\"F32\"", "\"shape\":[]", "\"data_offsets\":[0,36]", "\"__metadata__\":{}", "conv1.weight",
    "fc1.bias", "conv2.weight",
    "\"dtype\":\"BF16\"", "\"dtype\":\"F64\"", "num_batches_tracked", "momentum.0.", "features.3.", "running_mean",
    "[1,1,2,2]", "[1,1,1,1,1,1,1,1,1]", "[[[[[[[[", "{{{{{{{{", "\xf0\x90\x80", "\x1b", "", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_safetensors = {.name = "safetensors", .one = one, .seed = seed, .repair = repair, .words = words,
                                             .most = 4096, .heap = 32768, .heap_a_byte = 2};
