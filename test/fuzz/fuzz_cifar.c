/* SPDX-License-Identifier: Apache-2.0
 * A file of CIFAR-10's records: taken when it is whole records with labels below 10, and then byte for byte; else refused with a
 * sentence that names the file. The folder around it is test_data_cifar's: a whole one is too long to fuzz. An input is a byte, one
 * less than the number of records that there must be, and then the file. */
#include "fuzz.h"

#include "echi_pixels.h"

#include <string.h>

enum { HEAD = 1, COUNT_MOST = 5 };

static bool whole(const uint8_t *bytes, size_t len, uint32_t count) {
    if (len != (size_t)count * ECHI_CIFAR_RECORD) return false;
    for (size_t at = 0; at < len; at += ECHI_CIFAR_RECORD)
        if (bytes[at] > 9) return false;
    return true;
}

static bool one(const uint8_t *bytes, size_t len) {
    static uint8_t pixels[COUNT_MOST * ECHI_CIFAR_PIXELS + 1], labels[COUNT_MOST + 1];
    if (len < HEAD) return false;
    const uint32_t count = bytes[0] % COUNT_MOST + 1;
    const uint8_t *file = bytes + HEAD;
    struct ech_error err = {0};
    memset(pixels, 0xa5, sizeof pixels);
    memset(labels, 0xa5, sizeof labels);
    const ech_status status = echi_cifar_split(file, len - HEAD, count, "a/data_batch_1.bin", pixels, labels, &err);
    FUZZ_CHECK((status == ECH_OK) == whole(file, len - HEAD, count));
    FUZZ_CHECK(pixels[count * ECHI_CIFAR_PIXELS] == 0xa5 && labels[count] == 0xa5); /* nothing behind what was asked for */
    if (status != ECH_OK) {
        FUZZ_CHECK(status == ECH_E_FORMAT && strstr(err.text, "data_batch_1.bin") != NULL && strstr(err.text, "get-data cifar10") != NULL);
        fuzz_sentence(&err, status);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *record = file + i * ECHI_CIFAR_RECORD;
        FUZZ_CHECK(labels[i] == record[0]);
        FUZZ_CHECK(memcmp(pixels + i * ECHI_CIFAR_PIXELS, record + 1, ECHI_CIFAR_PIXELS) == 0);
    }
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    const uint32_t count = (uint32_t)i % COUNT_MOST + 1;
    const size_t len = HEAD + (size_t)count * ECHI_CIFAR_RECORD;
    if (i >= 2 * COUNT_MOST || len + 1 > cap) return 0;
    out[0] = (uint8_t)(count - 1);
    for (uint32_t r = 0; r < count; r++)
        for (uint32_t k = 0; k < ECHI_CIFAR_RECORD; k++)
            out[HEAD + r * ECHI_CIFAR_RECORD + k] = k ? (uint8_t)(7 * k + r) : (uint8_t)(9 - r);
    if (i < COUNT_MOST) return len;
    *good = false; /* the second half: a byte too few, one too many, or a label that is none */
    if (i % 3 == 0) return len - 1;
    if (i % 3 == 1) out[HEAD + (count - 1) * ECHI_CIFAR_RECORD] = 10;
    else out[len] = 0;
    return i % 3 == 1 ? len : len + 1;
}

/* To the length that the first byte says. */
static void repair(uint8_t *bytes, size_t *len, size_t cap) {
    if (*len < HEAD) return;
    const size_t want = HEAD + (size_t)(bytes[0] % COUNT_MOST + 1) * ECHI_CIFAR_RECORD;
    if (want > cap) return;
    if (want > *len) memset(bytes + *len, 0, want - *len);
    *len = want;
}

const struct fuzz_driver fuzz_cifar = {.name = "cifar", .one = one, .seed = seed, .repair = repair, .most = FUZZ_INPUT_MAX};
