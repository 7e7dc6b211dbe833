/* SPDX-License-Identifier: Apache-2.0
 * CIFAR-10's binary files (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009): five training batches and a
 * test batch, each 10,000 records without header or separator:
 *     label (0..9)   1,024 bytes of red, 1,024 of green, 1,024 of blue, each plane 32 x 32, row by row */
#include "echi_pixels.h"

#include "echi_error.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>

#define OPEN "data.open"
enum { FILES = 6, TRAIN_FILES = 5, RECORDS = 10000, CLASSES = 10 };
#define FILE_BYTES ((size_t)RECORDS * ECHI_CIFAR_RECORD)
#define MOST_READ (2 * FILE_BYTES)   /* of a file that is too long: enough to tell its size where it is a little too long */
#define AGAIN "fetch it again with tools/get-data cifar10"

static const char *const file_name[FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                             "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

static const struct echi_data_files its_files = {"CIFAR-10", "six", ".xz", "cifar10", FILES, file_name, NULL};

bool echi_cifar_here(const char *dir) { return echi_data_any_here(&its_files, dir); }

ech_status echi_cifar_split(const uint8_t *bytes, size_t len, uint32_t count, const char *shown, uint8_t *pixels, uint8_t *labels,
                            struct ech_error *err) {
    const size_t want = (size_t)count * ECHI_CIFAR_RECORD;
    if (len != want)
        return echi_fail(err, ECH_E_FORMAT, OPEN, "%s %s: it has %zu bytes, a batch of CIFAR-10 %zu (%u records of %d); " AGAIN, shown,
                         len < want ? "is truncated" : "has bytes behind its end", len, want, (unsigned)count, ECHI_CIFAR_RECORD);
    for (uint32_t i = 0; i < count; i++, bytes += ECHI_CIFAR_RECORD) {
        if (bytes[0] >= CLASSES)
            return echi_fail(err, ECH_E_FORMAT, OPEN, "%s has label %d for record %u (byte %zu), labels are 0 to %d: " AGAIN, shown,
                             bytes[0], (unsigned)i, (size_t)i * ECHI_CIFAR_RECORD, CLASSES - 1);
        labels[i] = bytes[0];
        memcpy(pixels + (size_t)i * ECHI_CIFAR_PIXELS, bytes + 1, ECHI_CIFAR_PIXELS);
    }
    return ECH_OK;
}

static ech_status read_batch(const struct echi_data_path *path, uint8_t *pixels, uint8_t *labels, struct ech_error *err) {
    uint8_t *bytes = NULL;
    size_t len = 0;
    ech_status status = echi_file_read(path->text, MOST_READ, &bytes, &len, err);
    if (status == ECH_E_FORMAT)
        return echi_fail(err, status, OPEN, "%s has more than %zu bytes, a batch of CIFAR-10 has %zu: " AGAIN, path->shown, MOST_READ,
                         FILE_BYTES);
    if (status != ECH_OK) return status;
    status = echi_cifar_split(bytes, len, RECORDS, path->shown, pixels, labels, err);
    free(bytes);
    return status;
}

static ech_status read_set(const struct echi_data_path *path, int files, struct echi_pixel_set *set, struct ech_error *err) {
    const uint32_t count = (uint32_t)files * RECORDS;
    *set = (struct echi_pixel_set){.pixel_block = malloc((size_t)count * ECHI_CIFAR_PIXELS), .label_block = malloc(count), .count = count};
    if (!set->pixel_block || !set->label_block) return echi_fail_memory(err, OPEN, "the samples of CIFAR-10");
    set->pixels = set->pixel_block;
    set->labels = set->label_block;
    for (int i = 0; i < files; i++)
        ECHI_TRY(read_batch(&path[i], set->pixel_block + (size_t)i * RECORDS * ECHI_CIFAR_PIXELS, set->label_block + i * RECORDS, err));
    return ECH_OK;
}

ech_status echi_cifar_open(const char *dir, struct ech_data **out, struct ech_error *err) {
    /* Means and deviations of the training set's 51,200,000 pixels a channel, as everybody rounds them (README.md). Cropped and
     * flipped unless the user says otherwise: every published recipe for this set does so. */
    static const struct echi_pixel_form form = {.shape = {3, 32, 32}, .mean = {0.4914f, 0.4822f, 0.4465f},
                                                .deviation = {0.2470f, 0.2435f, 0.2616f}, .augmenting = ECHI_AUGMENT_USUAL};
    struct echi_data_path path[FILES];
    struct echi_pixel_set train = {0}, test = {0};
    ECHI_TRY(echi_data_find_all(&its_files, dir, path, err));
    ech_status status = read_set(path, TRAIN_FILES, &train, err);
    if (status == ECH_OK) status = read_set(path + TRAIN_FILES, FILES - TRAIN_FILES, &test, err);
    if (status == ECH_OK) return echi_pixels_data(train, test, &form, dir, out, err);
    echi_pixel_set_free(&train);
    echi_pixel_set_free(&test);
    return status;
}
