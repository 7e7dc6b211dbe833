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

static bool one(const uint8_t *bytes, size_t len) {
    float params[PARAMS], back[PARAMS];
    uint8_t file[2][1024];
    struct ech_error err = {0};
    memset(params, 0x7f, sizeof params);
    const ech_status status = echi_safetensors_load(fuzz_file(0, bytes, len), tiny(), params, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        for (size_t i = 0; i < sizeof params; i++) FUZZ_CHECK(((uint8_t *)params)[i] == 0x7f);
        return false;
    }
    FUZZ_CHECK(len >= 8 + sizeof params); /* every weight has its own bytes in the file */
    const size_t n = saved(params, file[0], sizeof file[0]);
    FUZZ_CHECK(echi_safetensors_load(fuzz_out_path(), tiny(), back, &err) == ECH_OK);
    FUZZ_CHECK(memcmp(params, back, sizeof params) == 0);
    FUZZ_CHECK(saved(back, file[1], sizeof file[1]) == n && memcmp(file[0], file[1], n) == 0);
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    (void)good; /* all are */
    static const float params[PARAMS] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    /* As another writer may put it: in another order, with metadata, escapes and space. */
    static const char other[] =
        " {\"__metadata__\":{\"format\":\"pt\"}, \"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\n"
        "\"fc1.weight\":{\"shape\":[2,1],\"dtype\":\"F32\",\"data_offsets\":[8,16]},"
        "\"conv1.bi\\u0061s\":{\"data_offsets\":[16,20],\"dtype\":\"F32\",\"shape\":[1]},"
        "\"conv1.weight\":{\"dtype\":\"F32\",\"shape\":[1,1,2,2],\"data_offsets\":[20,36]}} ";
    if (i == 0) return saved(params, out, cap);
    if (i > 1 || cap < sizeof other + 8 + sizeof params) return 0;
    echi_store64(out, sizeof other - 1);
    memcpy(out + 8, other, sizeof other - 1);
    memcpy(out + 8 + sizeof other - 1, params, sizeof params);
    return 8 + sizeof other - 1 + sizeof params;
}

/* The header's true length, were the data as long as it must be; or hardly any changed header would be read at all. */
static void repair(uint8_t *bytes, size_t *len, size_t cap) {
    (void)cap;
    if (*len >= 8 + 4 * PARAMS) echi_store64(bytes, *len - 8 - 4 * PARAMS);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "18446744073709551615", "18446744073709551612", "4294967296", "-1", "0",
    "\"dtype\":\"F16\"", "\"dtype\":\"F32\"", "\"shape\":[]", "\"data_offsets\":[0,36]", "\"__metadata__\":{}", "conv1.weight",
    "fc1.bias", "conv2.weight", "[1,1,2,2]", "[1,1,1,1,1,1,1,1,1]", "[[[[[[[[", "{{{{{{{{", "\xf0\x90\x80", "\x1b", "", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_safetensors = {.name = "safetensors", .one = one, .seed = seed, .repair = repair, .words = words,
                                             .most = 4096, .heap = 32768, .heap_a_byte = 2};
