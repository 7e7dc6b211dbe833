/* SPDX-License-Identifier: Apache-2.0
 * What all data sets share: opening by name, the checks before every read, and the way a hash is written. */
#include "echi_pixels.h"

#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_os.h"
#include "echi_sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void echi_data_path(struct echi_data_path *out, const char *dir, const char *name, const char *suffix) {
    snprintf(out->text, sizeof out->text, "%s%s%s%s", dir, *name ? "/" : "", name, suffix);
    size_t len = strlen(out->text), skip = len > ECHI_DATA_SHOWN ? len - ECHI_DATA_SHOWN : 0;
    memcpy(out->shown, out->text + skip, len - skip + 1);
    if (skip) memcpy(out->shown, "...", 3);
}

/* Under which of its names a file is there; else the path is that of its first name. */
static bool is_there(const struct echi_data_files *files, const char *dir, int which, const char *suffix, struct echi_data_path *path) {
    if (files->other) {
        echi_data_path(path, dir, files->other[which], suffix);
        if (echi_file_exists(path->text)) return true;
    }
    echi_data_path(path, dir, files->name[which], suffix);
    return echi_file_exists(path->text);
}

bool echi_data_any_here(const struct echi_data_files *files, const char *dir) {
    struct echi_data_path path;
    for (int i = 0; i < files->count; i++)
        if (is_there(files, dir, i, "", &path) || is_there(files, dir, i, files->packed, &path)) return true;
    return false;
}

ech_status echi_data_find_all(const struct echi_data_files *files, const char *dir, struct echi_data_path *path, struct ech_error *err) {
    int missing = 0, packed = 0, first = -1;
    struct echi_data_path other;
    for (int i = 0; i < files->count; i++) {
        if (is_there(files, dir, i, "", &path[i])) continue;
        missing++;
        if (first < 0) first = i;
        packed += is_there(files, dir, i, files->packed, &other);
    }
    if (missing == 0) return ECH_OK;
    echi_data_path(&other, dir, "", "");
    if (missing == packed)
        return echi_fail(err, ECH_E_FORMAT, "data.open",
                         "%s has %s only as %s: unpack with tools/get-data %s --from %s --to FOLDER, then give FOLDER", other.shown,
                         missing == files->count ? files->set : files->name[first], files->packed, files->fetch, other.shown);
    return echi_fail(err, ECH_E_IO, "data.open",
                     "%s is missing, %d of %s's %s files are there: fetch it with tools/get-data %s --to FOLDER",
                     path[first].shown, files->count - missing, files->set, files->number, files->fetch);
}

static ech_status pass(void *self, const char *name) {
    (void)self, (void)name;
    return ECH_OK;
}

/* What lies in a folder says which set it is; what is missing of that set is for its reader to say. */
static ech_status open_folder(const char *dir, ech_data **out, struct ech_error *err) {
    if (strlen(dir) > ECHI_DATA_DIR_MOST)
        return echi_fail(err, ECH_E_ARGUMENT, "data.open", "the name of the data folder has %zu characters, at most %d fit", strlen(dir),
                         ECHI_DATA_DIR_MOST);
    const bool idx = echi_idx_here(dir), cifar = echi_cifar_here(dir);
    if (idx != cifar) return cifar ? echi_cifar_open(dir, out, err) : echi_idx_open(dir, out, err);
    struct echi_data_path path;
    echi_data_path(&path, dir, "", "");
    if (idx)
        return echi_fail(err, ECH_E_FORMAT, "data.open", "%s has files of MNIST and of CIFAR-10: give each set a folder of its own",
                         path.shown);
    struct ech_error reason;   /* it has the whole name, and of a long one nothing else would be left */
    if (strlen(dir) <= ECHI_DATA_SHOWN && echi_folder_list(dir, pass, NULL, &reason) != ECH_OK)
        return echi_fail(err, ECH_E_IO, "data.open", "%s; fetch data with tools/get-data mnist (or cifar10), or give glyphs",
                         reason.text);
    return echi_fail(err, ECH_E_IO, "data.open",
                     "%s has neither MNIST's idx files (train-images-idx3-ubyte and three more) nor CIFAR-10's binary ones "
                     "(data_batch_1.bin and five more), or cannot be read: fetch them with tools/get-data mnist (or cifar10), "
                     "or give glyphs", path.shown);
}

ech_status ech_data_open(const char *dir_or_name, uint64_t seed, ech_data **out_data, struct ech_error *err) {
    if (!out_data) return echi_fail(err, ECH_E_ARGUMENT, "data.open", "out_data is NULL: give a place for the data set");
    if (!dir_or_name || !*dir_or_name)
        return echi_fail(err, ECH_E_ARGUMENT, "data.open",
                         "no data set is named: give a folder with MNIST's or CIFAR-10's files, or glyphs");
    return strcmp(dir_or_name, "glyphs") == 0 ? echi_glyphs_open(seed, out_data, err) : open_folder(dir_or_name, out_data, err);
}

void ech_data_destroy(ech_data *data) {
    if (!data) return;
    data->source->destroy(data->self);
    free(data);
}

uint32_t ech_data_samples(const ech_data *data, int test) { return !data ? 0 : test ? data->n_test : data->n_train; }

void ech_data_shape(const ech_data *data, int *out_channels, int *out_height, int *out_width, int *out_classes) {
    if (!data) return;
    if (out_channels) *out_channels = data->shape.c;
    if (out_height) *out_height = data->shape.h;
    if (out_width) *out_width = data->shape.w;
    if (out_classes) *out_classes = data->classes;
}

ech_status echi_data_read(const struct ech_data *data, bool test, const struct echi_augment *augment, const uint32_t *index, int n,
                          float *rows, uint16_t *labels, struct ech_error *err) {
    uint32_t count = test ? data->n_test : data->n_train;
    for (int i = 0; i < n; i++)
        if (index[i] >= count)
            return echi_fail(err, ECH_E_ARGUMENT, "data.read", "sample %u was asked for, but the %s set of %s has %u: count from 0",
                             (unsigned)index[i], test ? "test" : "training", data->name, (unsigned)count);
    return data->source->read(data->self, test, augment, index, n, rows, labels, err);
}

ech_status ech_data_get(const ech_data *data, int test, const uint32_t *index, int n, float *rows, uint16_t *labels,
                        struct ech_error *err) {
    if (!data || n < 0 || (n > 0 && (!index || !rows || !labels)))
        return echi_fail(err, ECH_E_ARGUMENT, "data.get", "data, index, rows and labels must not be NULL and n (%d) not negative", n);
    return echi_data_read(data, test != 0, NULL, index, n, rows, labels, err);
}

void echi_data_hash_begin(const struct ech_data *data, const char tag[16], struct echi_sha256 *s) {
    uint8_t header[40];
    struct echi_writer w = echi_writer_over(header, sizeof header);
    echi_put_bytes(&w, tag, 16);
    echi_put32(&w, data->n_train);
    echi_put32(&w, data->n_test);
    echi_put32(&w, (uint32_t)data->shape.c);
    echi_put32(&w, (uint32_t)data->shape.h);
    echi_put32(&w, (uint32_t)data->shape.w);
    echi_put32(&w, (uint32_t)data->classes);
    echi_sha256_begin(s);
    echi_sha256_add(s, header, sizeof header);
}

void echi_data_hash_end(struct echi_sha256 *s, char out[65]) {
    uint8_t digest[32];
    echi_sha256_end(s, digest);
    echi_sha256_hex(digest, out);
}

void echi_data_name(char out[96], const char *name) {
    size_t len = strlen(name), skip = len > 95 ? len - 95 : 0;
    memcpy(out, name + skip, len - skip + 1);
}
