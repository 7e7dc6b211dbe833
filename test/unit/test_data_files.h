/* SPDX-License-Identifier: Apache-2.0
 * Small idx data sets in a temporary folder, as bytes that a test can damage. */
#ifndef TEST_DATA_FILES_H
#define TEST_DATA_FILES_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_TRAIN = 6, N_TEST = 3, H = 4, W = 5, FILES = 4, ROOM = 256 };
static const char *const file_name[FILES] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                             "t10k-labels-idx1-ubyte"};

struct file { uint8_t bytes[ROOM]; size_t len; };

static void put_be(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* Valid files; pixel k of a set is (7 k) mod 256, label i is i mod 10. */
static void make_files(struct file file[FILES]) {
    memset(file, 0, FILES * sizeof *file);
    for (int t = 0; t < 2; t++) {
        uint32_t n = t ? N_TEST : N_TRAIN;
        struct file *images = &file[2 * t], *labels = &file[2 * t + 1];
        put_be(images->bytes, 0x803);
        put_be(images->bytes + 4, n);
        put_be(images->bytes + 8, H);
        put_be(images->bytes + 12, W);
        for (uint32_t k = 0; k < n * H * W; k++) images->bytes[16 + k] = (uint8_t)(7 * k);
        images->len = 16 + n * H * W;
        put_be(labels->bytes, 0x801);
        put_be(labels->bytes + 4, n);
        for (uint32_t i = 0; i < n; i++) labels->bytes[8 + i] = (uint8_t)(i % 10);
        labels->len = 8 + n;
    }
}

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/echelon-data-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static void path_in_folder(char path[160], const char *name) { snprintf(path, 160, "%s/%s", folder, name); }

static void write_file(const char *name, const struct file *file) {
    char path[160];
    path_in_folder(path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(file->bytes, 1, file->len, f), file->len);
    assert_int_equal(fclose(f), 0);
}

static void write_files(const struct file file[FILES]) {
    for (int i = 0; i < FILES; i++) write_file(file_name[i], &file[i]);
}

static void remove_file(const char *name) {
    char path[160];
    path_in_folder(path, name);
    unlink(path);
}

static int remove_folder(void **state) {
    (void)state;
    for (int i = 0; i < FILES; i++) remove_file(file_name[i]);
    return rmdir(folder);
}
#endif
