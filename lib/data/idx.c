/* SPDX-License-Identifier: Apache-2.0
 * MNIST's idx files: a big-endian header (a magic number that says how many counts follow, then the counts), then bytes.
 *     images  0x00000803 count rows columns   count * rows * columns pixels
 *     labels  0x00000801 count                count labels, 0..9 */
#include "echi_pixels.h"

#include "echi_bytes.h"
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>

#define OPEN "data.open"
enum { MAGIC_IMAGES = 0x803, MAGIC_LABELS = 0x801, HEADER_IMAGES = 16, HEADER_LABELS = 8, SIDE_MAX = 4096, CLASSES = 10 };
#define FILE_MOST ((size_t)2 << 30)   /* bytes: forty times MNIST; what is larger is a mistake, or wants another format */

/* The four files, in the order train images, train labels, test images, test labels. */
static const char *const dash_name[4] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                         "t10k-labels-idx1-ubyte"};
static const char *const dot_name[4] = {"train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte",
                                        "t10k-labels.idx1-ubyte"};

static const struct echi_data_files its_files = {"MNIST", "four", ".gz", "mnist", 4, dash_name, dot_name};

bool echi_idx_here(const char *dir) { return echi_data_any_here(&its_files, dir); }

/* Reads a file and checks its magic; *out is malloc'd and stays NULL on failure. */
static ech_status read_checked(const struct echi_data_path *path, uint32_t magic, size_t header, uint8_t **out, size_t *out_len,
                               struct ech_error *err) {
    uint8_t *bytes = NULL;
    size_t len = 0;
    ECHI_TRY(echi_file_read(path->text, FILE_MOST, &bytes, &len, err));
    const char *of = magic == MAGIC_IMAGES ? "images" : "labels";
    ech_status status = ECH_OK;
    if (len >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        status = echi_fail(err, ECH_E_FORMAT, OPEN,
                           "%s is still gzip-compressed: unpack with tools/get-data mnist --from (its folder) --to FOLDER, "
                           "then give FOLDER", path->shown);
    else if (len < header)
        status = echi_fail(err, ECH_E_FORMAT, OPEN,
                           "%s is truncated, %zu bytes are less than the header's %zu: fetch it again with tools/get-data mnist",
                           path->shown, len, header);
    else if (echi_load32be(bytes) != magic)
        status = echi_fail(err, ECH_E_FORMAT, OPEN, "%s begins with 0x%08x, an idx file of %s with 0x%08x: put the right file there, "
                           "tools/get-data mnist fetches it", path->shown, (unsigned)echi_load32be(bytes), of, (unsigned)magic);
    if (status != ECH_OK) {
        free(bytes);
        return status;
    }
    *out = bytes;
    *out_len = len;
    return ECH_OK;
}

static ech_status check_length(const struct echi_data_path *path, size_t len, size_t want, struct ech_error *err) {
    if (len == want) return ECH_OK;
    return echi_fail(err, ECH_E_FORMAT, OPEN, "%s %s: %zu bytes, its header's counts make %zu; fetch it again with tools/get-data mnist",
                     path->shown, len < want ? "is truncated" : "has bytes behind its end", len, want);
}

static ech_status read_images(const struct echi_data_path *path, struct echi_pixel_set *set, uint32_t *out_h, uint32_t *out_w,
                              struct ech_error *err) {
    size_t len, want;
    ECHI_TRY(read_checked(path, MAGIC_IMAGES, HEADER_IMAGES, &set->pixel_block, &len, err));
    uint32_t n = echi_load32be(set->pixel_block + 4), h = echi_load32be(set->pixel_block + 8), w = echi_load32be(set->pixel_block + 12);
    if (!echi_mul_size(n, h, &want) || !echi_mul_size(want, w, &want) || !echi_add_size(want, HEADER_IMAGES, &want))
        return echi_fail(err, ECH_E_FORMAT, OPEN,
                         "%s has a damaged header, its counts %u x %u x %u overflow: fetch it again with tools/get-data mnist",
                         path->shown, (unsigned)n, (unsigned)h, (unsigned)w);
    if (n < 1 || h < 1 || h > SIDE_MAX || w < 1 || w > SIDE_MAX)
        return echi_fail(err, ECH_E_FORMAT, OPEN, "%s says %u images of %u x %u: there must be at least 1, with sides of 1 to %d",
                         path->shown, (unsigned)n, (unsigned)h, (unsigned)w, SIDE_MAX);
    ECHI_TRY(check_length(path, len, want, err));
    set->pixels = set->pixel_block + HEADER_IMAGES;
    set->count = n;
    *out_h = h;
    *out_w = w;
    return ECH_OK;
}

static ech_status read_labels(const struct echi_data_path *path, const struct echi_data_path *images, struct echi_pixel_set *set,
                              struct ech_error *err) {
    size_t len, want;
    ECHI_TRY(read_checked(path, MAGIC_LABELS, HEADER_LABELS, &set->label_block, &len, err));
    uint32_t n = echi_load32be(set->label_block + 4);
    if (!echi_add_size(n, HEADER_LABELS, &want))
        return echi_fail(err, ECH_E_FORMAT, OPEN,
                         "%s has a damaged header, its count %u overflows: fetch it again with tools/get-data mnist",
                         path->shown, (unsigned)n);
    ECHI_TRY(check_length(path, len, want, err));
    if (n != set->count)
        return echi_fail(err, ECH_E_FORMAT, OPEN,
                         "%s has %u labels but %s has %u images: take both from the same set, tools/get-data mnist fetches it",
                         path->shown, (unsigned)n, strrchr(images->text, '/') + 1, (unsigned)set->count);
    set->labels = set->label_block + HEADER_LABELS;
    for (uint32_t i = 0; i < n; i++)
        if (set->labels[i] >= CLASSES)
            return echi_fail(err, ECH_E_FORMAT, OPEN,
                             "%s has label %d for sample %u (byte %zu), labels are 0 to %d: fetch it again with tools/get-data mnist",
                             path->shown, set->labels[i], (unsigned)i, HEADER_LABELS + (size_t)i, CLASSES - 1);
    return ECH_OK;
}

ech_status echi_idx_open(const char *dir, struct ech_data **out, struct ech_error *err) {
    struct echi_data_path path[4];
    ECHI_TRY(echi_data_find_all(&its_files, dir, path, err));
    struct echi_pixel_set set[2] = {{0}};   /* training, test */
    uint32_t h[2] = {0}, w[2] = {0};
    ech_status status;
    for (int t = 0; t < 2; t++) {
        ECHI_TRY_GOTO(read_images(&path[2 * t], &set[t], &h[t], &w[t], err), failed);
        ECHI_TRY_GOTO(read_labels(&path[2 * t + 1], &path[2 * t], &set[t], err), failed);
    }
    if (h[0] != h[1] || w[0] != w[1]) {
        status = echi_fail(err, ECH_E_FORMAT, OPEN, "%s has images of %u x %u, the training set of %u x %u: take both from the same set, "
                           "tools/get-data mnist fetches it", path[2].shown, (unsigned)h[1], (unsigned)w[1], (unsigned)h[0],
                           (unsigned)w[0]);
        goto failed;
    }
    const struct echi_pixel_form form = echi_pixels_digits((int)h[0], (int)w[0]);
    return echi_pixels_data(set[0], set[1], &form, dir, out, err);
failed:
    echi_pixel_set_free(&set[0]);
    echi_pixel_set_free(&set[1]);
    return status;
}
