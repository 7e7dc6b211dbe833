/* SPDX-License-Identifier: Apache-2.0
 * A folder of four idx files: opens as a set that can be read to its end, or is refused with a sentence that names a file.
 * An input is three lengths of 16 bits, then the four files one behind the other, the last one to the end. */
#include "fuzz.h"

#include "echelon.h"
#include "echi_bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 4, HEAD = 6 };
static const char *const file_name[FILES] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                             "t10k-labels-idx1-ubyte"};

static void read_all(const ech_data *data, size_t most) {
    static float row[FUZZ_INPUT_MAX];
    int c, h, w, classes;
    ech_data_shape(data, &c, &h, &w, &classes);
    FUZZ_CHECK(c == 1 && classes == 10 && h >= 1 && w >= 1 && (size_t)h * (size_t)w <= most); /* no file is larger, so no image */
    size_t bytes = HEAD + 2 * (16 + 8); /* the headers */
    for (int test = 0; test < 2; test++)
        for (uint32_t i = 0; i < ech_data_samples(data, test); i++) {
            uint16_t label;
            FUZZ_CHECK(ech_data_get(data, test, &i, 1, row, &label, NULL) == ECH_OK);
            FUZZ_CHECK(label < 10);
            bytes += (size_t)h * (size_t)w + 1;
        }
    FUZZ_CHECK(bytes == most); /* every byte of the files means something */
}

static bool one(const uint8_t *bytes, size_t len) {
    char link[120];
    if (len < HEAD) return false;
    const uint8_t *at = bytes + HEAD, *end = bytes + len;
    for (int i = 0; i < FILES; i++) {
        size_t part = i < 3 ? echi_load16(bytes + 2 * i) : len;
        if (part > (size_t)(end - at)) part = (size_t)(end - at);
        const char *file = fuzz_file(i, at, part);
        at += part;
        snprintf(link, sizeof link, "%s/%s", fuzz_out_folder(), file_name[i]);
        FUZZ_CHECK(symlink(file, link) == 0 || errno == EEXIST);
    }
    ech_data *data = NULL;
    struct ech_error err = {0};
    const ech_status status = ech_data_open(fuzz_out_folder(), 1, &data, &err);
    if (status != ECH_OK) {
        FUZZ_CHECK(status == ECH_E_FORMAT && data == NULL && strstr(err.text, "-ubyte") != NULL);
        fuzz_sentence(&err, status);
        return false;
    }
    read_all(data, len);
    ech_data_destroy(data);
    return true;
}

static uint8_t *put_header(uint8_t *p, uint32_t magic, uint32_t n, uint32_t h, uint32_t w) {
    const uint32_t field[] = {magic, n, h, w};
    for (int i = 0; i < (h ? 4 : 2); i++, p += 4)
        for (int k = 0; k < 4; k++) p[k] = (uint8_t)(field[i] >> (24 - 8 * k));
    return p;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    (void)good; /* all are */
    static const struct { uint32_t train, test, h, w; } set[] = {{6, 3, 4, 5}, {1, 1, 1, 1}, {10, 2, 1, 9}};
    if (i >= (int)(sizeof set / sizeof *set) || cap < 512) return 0;
    uint8_t *at = out + HEAD;
    for (int f = 0; f < FILES; f++) {
        uint8_t *begin = at;
        const uint32_t n = f < 2 ? set[i].train : set[i].test;
        at = f % 2 ? put_header(at, 0x801, n, 0, 0) : put_header(at, 0x803, n, set[i].h, set[i].w);
        for (uint32_t k = 0; k < (f % 2 ? n : n * set[i].h * set[i].w); k++) *at++ = (uint8_t)(f % 2 ? k % 10 : 7 * k);
        if (f < 3) echi_store16(out + 2 * f, (uint16_t)(at - begin));
    }
    return (size_t)(at - out);
}

static const char *const words[] = {"\x1f\x8b\x08", "\x01\x01\x01", "\x08\x03", "\x08\x01", "\x10\x01", "\xff\xff\xff\xff",
                                    "\x7f\xff\xff\xff", "", NULL};

const struct fuzz_driver fuzz_idx = {
    .name = "idx", .one = one, .seed = seed, .words = words, .most = 1024, .heap = 8192, .heap_a_byte = 2};
