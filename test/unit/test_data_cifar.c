/* SPDX-License-Identifier: Apache-2.0
 * CIFAR-10: what a good folder gives, what each defect says, and the set itself when ECHELON_DATA names it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_pixels.h"
#include "echi_sha256.h"
#include "part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test_data_opened.h"

enum { FILES = 6, RECORDS = 10000, MARKED = 40, CHANNELS = 3, PLANE = 32 * 32 };
static const char *const file_name[FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                             "data_batch_5.bin", "test_batch.bin"};
static const double mean[CHANNELS] = {0.4914, 0.4822, 0.4465}, deviation[CHANNELS] = {0.2470, 0.2435, 0.2616};
static char folder[64];

static void path_of(char path[160], const char *name) { snprintf(path, 160, "%s/%s", folder, name); }

/* Some records, the first and the last among them, have a pattern and a label; the others are holes in the file: zeros. */
static uint32_t marked(int i) { return i == MARKED - 1 ? RECORDS - 1 : (uint32_t)i * 251; }
static bool is_marked(uint32_t record) { return record == RECORDS - 1 || (record % 251 == 0 && record / 251 < MARKED - 1); }
static uint8_t label_of(int file, uint32_t record) { return is_marked(record) ? (uint8_t)((record + (uint32_t)file) % 10) : 0; }
static uint8_t pixel_of(int file, uint32_t record, uint32_t k) {
    return is_marked(record) ? (uint8_t)(13 * k + 5 * (k >> 8) + 31 * (uint32_t)file + 3 * record + 1) : 0;
}

static void write_at(const char *name, long at, const void *bytes, size_t len) {
    char path[160];
    path_of(path, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void set_length(const char *name, long len) {
    char path[160];
    path_of(path, name);
    FILE *f = fopen(path, "ab");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, len), 0);
}

static void make_file(int file) {
    set_length(file_name[file], (long)RECORDS * ECHI_CIFAR_RECORD);
    for (int i = 0; i < MARKED; i++) {
        uint8_t record[ECHI_CIFAR_RECORD];
        record[0] = label_of(file, marked(i));
        for (uint32_t k = 0; k < ECHI_CIFAR_PIXELS; k++) record[1 + k] = pixel_of(file, marked(i), k);
        write_at(file_name[file], (long)marked(i) * ECHI_CIFAR_RECORD, record, sizeof record);
    }
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/echelon-cifar-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    for (int i = 0; i < FILES; i++) make_file(i);
    return 0;
}

static void drop(const char *name) {
    char path[160];
    path_of(path, name);
    unlink(path);
}

static int remove_folder(void **state) {
    (void)state;
    for (int i = 0; i < FILES; i++) drop(file_name[i]);
    return rmdir(folder);
}

static void every_pixel_is_where_it_should_be(void **state) {
    (void)state;
    ech_data *data = open_good(folder);
    int c, h, w, classes;
    ech_data_shape(data, &c, &h, &w, &classes);
    assert_true(c == CHANNELS && h == 32 && w == 32 && classes == 10);
    assert_int_equal(ech_data_samples(data, 0), 50000);
    assert_int_equal(ech_data_samples(data, 1), RECORDS);
    static float row[2][ECHI_CIFAR_PIXELS];
    for (int file = 0; file < FILES; file++)
        for (uint32_t record = 0; record < RECORDS; record++) {
            const int test = file == 5;
            const uint32_t index = record + (test ? 0 : (uint32_t)file * RECORDS);
            uint16_t label;
            float off = 0;
            assert_int_equal(ech_data_get(data, test, &index, 1, row[0], &label, NULL), ECH_OK);
            assert_int_equal(label, label_of(file, record));
            for (uint32_t k = 0; k < ECHI_CIFAR_PIXELS; k++) {
                const uint32_t channel = k / PLANE;
                const float want = (float)((pixel_of(file, record, k) / 255.0 - mean[channel]) / deviation[channel]);
                if (fabsf(row[0][k] - want) > off) off = fabsf(row[0][k] - want);
            }
            assert_true(off < 1e-6f);
        }
    const uint32_t both[2] = {251, 49999};   /* several at once */
    uint16_t labels[2];
    assert_int_equal(ech_data_get(data, 0, both, 2, row[0], labels, NULL), ECH_OK);
    assert_true(labels[0] == label_of(0, 251) && labels[1] == label_of(4, RECORDS - 1));
    assert_true(fabs(row[1][7] - (pixel_of(4, RECORDS - 1, 7) / 255.0 - mean[0]) / deviation[0]) < 1e-6);
    const uint32_t beyond = 50000;
    assert_int_equal(ech_data_get(data, 0, &beyond, 1, row[0], labels, NULL), ECH_E_ARGUMENT);
    ech_data_destroy(data);
}

static void the_hash_is_that_of_the_contents(void **state) {
    (void)state;
    ech_data *data = open_good(folder);
    struct echi_sha256 s;
    uint8_t digest[32];
    char want[65];
    /* As README.md says: a tag, six numbers, then pixels and labels of both sets. */
    static const uint8_t head[24] = {0x50, 0xc3, 0, 0, 0x10, 0x27, 0, 0, 3, 0, 0, 0, 32, 0, 0, 0, 32, 0, 0, 0, 10, 0, 0, 0};
    echi_sha256_begin(&s);
    echi_sha256_add(&s, "echelon pixels 1", 16);
    echi_sha256_add(&s, head, sizeof head);
    for (int t = 0; t < 2; t++) {
        for (int file = t ? 5 : 0; file < (t ? 6 : 5); file++)
            for (uint32_t record = 0; record < RECORDS; record++) {
                uint8_t pixels[ECHI_CIFAR_PIXELS];
                for (uint32_t k = 0; k < ECHI_CIFAR_PIXELS; k++) pixels[k] = pixel_of(file, record, k);
                echi_sha256_add(&s, pixels, sizeof pixels);
            }
        for (int file = t ? 5 : 0; file < (t ? 6 : 5); file++)
            for (uint32_t record = 0; record < RECORDS; record++) echi_sha256_add(&s, (uint8_t[]){label_of(file, record)}, 1);
    }
    echi_sha256_end(&s, digest);
    echi_sha256_hex(digest, want);
    assert_string_equal(data->hash, want);
    ech_data_destroy(data);
}

static void each_defect_is_told(void **state) {
    (void)state;
    static const struct { int file; long length; const char *words[2]; } lengths[] = {
        {0, 0, {"data_batch_1.bin is truncated: it has 0 bytes", "30730000 (10000 records of 3073)"}},
        {3, 30729999, {"data_batch_4.bin is truncated: it has 30729999 bytes", "get-data cifar10"}},
        {5, 30726927, {"test_batch.bin is truncated: it has 30726927 bytes", "get-data cifar10"}},
        {4, 30730001, {"data_batch_5.bin has bytes behind its end: it has 30730001 bytes", "get-data cifar10"}},
        {2, 70000000, {"data_batch_3.bin has more than 61460000 bytes, a batch of CIFAR-10 has 30730000", "get-data cifar10"}},
    };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        set_length(file_name[lengths[i].file], lengths[i].length);
        EXPECT_FAIL(ECH_E_FORMAT, lengths[i].words[0], lengths[i].words[1], folder);
        make_file(lengths[i].file);
    }
    static const struct { int file; uint32_t record; uint8_t label; const char *words[2]; } labels[] = {
        {0, 0, 10, {"data_batch_1.bin has label 10 for record 0 (byte 0)", "labels are 0 to 9"}},
        {5, 9999, 255, {"test_batch.bin has label 255 for record 9999 (byte 30726927)", "get-data cifar10"}},
    };
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        write_at(file_name[labels[i].file], (long)labels[i].record * ECHI_CIFAR_RECORD, &labels[i].label, 1);
        EXPECT_FAIL(ECH_E_FORMAT, labels[i].words[0], labels[i].words[1], folder);
        make_file(labels[i].file);
    }
    ech_data_destroy(open_good(folder));
}

static void missing_files_are_named(void **state) {
    (void)state;
    drop(file_name[4]);
    EXPECT_FAIL(ECH_E_IO, "data_batch_5.bin is missing, 5 of CIFAR-10's six", "get-data cifar10");
    set_length("data_batch_5.bin.xz", 100);
    EXPECT_FAIL(ECH_E_FORMAT, folder, "data_batch_5.bin only as .xz", "get-data cifar10 --from");
    for (int i = 0; i < FILES; i++) {
        char xz[40];
        snprintf(xz, sizeof xz, "%s.xz", file_name[i]);
        drop(file_name[i]);
        set_length(xz, 100);
    }
    EXPECT_FAIL(ECH_E_FORMAT, folder, "CIFAR-10 only as .xz", "get-data cifar10 --from");
    for (int i = 0; i < FILES; i++) {
        char xz[40];
        snprintf(xz, sizeof xz, "%s.xz", file_name[i]);
        drop(xz);
    }
    EXPECT_FAIL(ECH_E_IO, folder, "neither MNIST's idx files", "nor CIFAR-10's binary ones", "tools/get-data", "glyphs");
    set_length(file_name[2], 100);   /* one of each: which set is meant? */
    set_length("t10k-labels-idx1-ubyte", 8);
    EXPECT_FAIL(ECH_E_FORMAT, folder, "of MNIST and of CIFAR-10", "a folder of its own");
    drop("t10k-labels-idx1-ubyte");
    EXPECT_FAIL(ECH_E_IO, "data_batch_1.bin is missing, 1 of CIFAR-10's six");
}

static void check_file(const char *dir, int file, const char *want) {
    char path[1200], hex[65];
    uint8_t digest[32];
    static uint8_t bytes[1 << 16];
    struct echi_sha256 s;
    snprintf(path, sizeof path, "%s/%s", dir, file_name[file]);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    echi_sha256_begin(&s);
    for (size_t got; (got = fread(bytes, 1, sizeof bytes, f)) > 0;) echi_sha256_add(&s, bytes, got);
    fclose(f);
    echi_sha256_end(&s, digest);
    echi_sha256_hex(digest, hex);
    if (strcmp(hex, want) != 0) fail_msg("%s has sha256 %s, the data's README says %s", path, hex, want);
}

static void cifar_is_cifar(void **state) {
    (void)state;
    /* From the README beside the data, which says what of them is approximate. */
    static const char *const sum[FILES] = {
        "aacfad7fc91ce0c8f5a134f24c4805e3f863eefc737ee95e8e4f177cb3b0a40a",
        "5ff9ea6058256c2a19fbf0001c18489c6fe7d670a03bed833c34ca6b99fb515a",
        "27966c0f0f91001996e7297e118368452e4fa30ae2ab8df12e6358b2a01e0d30",
        "5b77067b5599ba7c44bf6cf9b7d8371f4205a59cf41fa3ac8053adeb908e4fd2",
        "2f9847116062cda005202d696edbcc644ea0b4cd8b849978104a9c67ced22ba4",
        "eece46d0f7b4620cbd30bb23bebd413180cbd4c8e0d87656b50a9b800caa0e8f"};
    const char *root = getenv("ECHELON_DATA");
    char dir[1024], batch[1100];
    snprintf(dir, sizeof dir, "%s/cifar10", root ? root : "");
    if (test_few()) skip();   /* 60,000 pictures, and to unpack them */
    if (!root || !*root || access(dir, F_OK) != 0) {
        print_message("skipped: %s\n", root && *root ? "ECHELON_DATA has no cifar10" : "ECHELON_DATA is not set");
        skip();
    }
    snprintf(batch, sizeof batch, "%s/%s", dir, file_name[0]);
    if (access(batch, F_OK) != 0) {   /* packed: do what the sentence says */
        ech_data *none = NULL;
        struct ech_error err = {0};
        assert_int_equal(ech_data_open(dir, 1, &none, &err), ECH_E_FORMAT);
        assert_non_null(strstr(err.text, "CIFAR-10 only as .xz"));
        if (system("tools/get-data cifar10 --from \"$ECHELON_DATA/cifar10\" --to build/cifar10") != 0) fail_msg("tools/get-data failed");
        strcpy(dir, "build/cifar10");
    }
    for (int i = 0; i < FILES; i++) check_file(dir, i, sum[i]);
    ech_data *data = open_good(dir);
    double total[CHANNELS] = {0}, squares[CHANNELS] = {0};
    for (int t = 0; t < 2; t++) {
        int count[10] = {0};
        const uint32_t n = ech_data_samples(data, t);
        for (uint32_t i = 0; i < n; i++) {
            static float row[ECHI_CIFAR_PIXELS];
            uint16_t label;
            assert_int_equal(ech_data_get(data, t, &i, 1, row, &label, NULL), ECH_OK);
            count[label]++;
            for (int k = 0; t == 0 && k < ECHI_CIFAR_PIXELS; k++) {
                total[k / PLANE] += row[k];
                squares[k / PLANE] += (double)row[k] * row[k];
            }
        }
        for (int l = 0; l < 10; l++) assert_int_equal(count[l], t ? 1000 : 5000);
    }
    /* The constants are this set's: normalised by them each channel has mean 0 and deviation 1, to half of their last digit. */
    for (int c = 0; c < CHANNELS; c++) {
        const double n = 50000.0 * PLANE, at = total[c] / n, spread = sqrt(squares[c] / n - at * at);
        print_message("channel %d: mean %.5f, deviation %.5f\n", c, at * deviation[c] + mean[c], spread * deviation[c]);
        assert_true(fabs(at) * deviation[c] < 1e-4);
        assert_true(fabs(spread - 1) * deviation[c] < 1e-4);
    }
    ech_data_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_pixel_is_where_it_should_be, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_hash_is_that_of_the_contents, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(each_defect_is_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(missing_files_are_named, make_folder, remove_folder),
        cmocka_unit_test(cifar_is_cifar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
