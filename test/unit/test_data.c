/* SPDX-License-Identifier: Apache-2.0
 * idx data sets: what a good one gives, what each defect says, and MNIST itself when ECHELON_DATA names it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_data.h"
#include "echi_os.h"
#include "sanitized.h"

#include <math.h>

#include "test_data_files.h"
#include "test_data_opened.h"

static void a_good_set_reads_as_written(void **state) {
    (void)state;
    struct file file[FILES];
    make_files(file);
    write_files(file);
    ech_data *data = open_good(folder);
    int c, h, w, classes;
    ech_data_shape(data, &c, &h, &w, &classes);
    assert_int_equal(c, 1);
    assert_int_equal(h, H);
    assert_int_equal(w, W);
    assert_int_equal(classes, 10);
    assert_int_equal(ech_data_samples(data, 0), N_TRAIN);
    assert_int_equal(ech_data_samples(data, 1), N_TEST);
    const uint32_t index[3] = {2, 0, 2};
    float rows[3 * H * W];
    uint16_t labels[3];
    assert_int_equal(ech_data_get(data, 1, index, 3, rows, labels, NULL), ECH_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(labels[i], index[i]);
        for (uint32_t k = 0; k < H * W; k++) {
            double want = ((7 * (index[i] * H * W + k) % 256) / 255.0 - 0.1307) / 0.3081;
            assert_true(fabs(rows[i * H * W + k] - want) < 1e-6);
        }
    }
    struct ech_error err = {0};
    const uint32_t beyond = N_TEST;
    assert_int_equal(ech_data_get(data, 1, &beyond, 1, rows, labels, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "sample 3"));
    assert_int_equal(ech_data_get(data, 0, &beyond, 1, rows, labels, NULL), ECH_OK);
    assert_int_equal(ech_data_get(data, 0, index, 1, NULL, labels, NULL), ECH_E_ARGUMENT);
    assert_int_equal(ech_data_get(data, 0, index, -1, rows, labels, NULL), ECH_E_ARGUMENT);
    ech_data_destroy(data);
    ech_data_destroy(NULL);
}

static void the_hash_is_that_of_the_contents(void **state) {
    (void)state;
    struct file file[FILES];
    make_files(file);
    write_files(file);
    ech_data *data = open_good(folder);
    char first[65];
    strcpy(first, data->hash);
    /* By sha256sum over: "echelon pixels 1", 6 3 1 4 5 10 as 32-bit little-endian, then pixels and labels of both sets. */
    assert_string_equal(first, "c9be4c62b3f452a23079b650a54f479d70c9cff1ec6682df6fe541450692e13a");
    ech_data_destroy(data);
    for (int i = 0; i < FILES; i++) {   /* the last byte of each file counts */
        struct file was = file[i];
        file[i].bytes[file[i].len - 1] ^= 1;
        write_file(file_name[i], &file[i]);
        data = open_good(folder);
        assert_string_not_equal(first, data->hash);
        ech_data_destroy(data);
        file[i] = was;
        write_file(file_name[i], &file[i]);
    }
    /* The same under the other names. */
    static const char *const dot[FILES] = {"train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte",
                                           "t10k-labels.idx1-ubyte"};
    for (int i = 0; i < FILES; i++) {
        remove_file(file_name[i]);
        write_file(dot[i], &file[i]);
    }
    data = open_good(folder);
    assert_string_equal(first, data->hash);
    ech_data_destroy(data);
    for (int i = 0; i < FILES; i++) remove_file(dot[i]);
}

static void missing_files_are_named(void **state) {
    (void)state;
    struct file file[FILES];
    make_files(file);
    EXPECT_FAIL(ECH_E_IO, folder, "neither MNIST's idx files", "tools/get-data mnist");
    static const char *const gz[FILES] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                                          "t10k-labels.idx1-ubyte.gz"};
    for (int i = 0; i < FILES; i++) write_file(gz[i], &file[i]);
    EXPECT_FAIL(ECH_E_FORMAT, folder, "MNIST only as .gz", "tools/get-data mnist --from");
    write_files(file);
    remove_file(file_name[3]);
    EXPECT_FAIL(ECH_E_FORMAT, folder, "t10k-labels-idx1-ubyte only as .gz", "--from");
    for (int i = 0; i < FILES; i++) remove_file(gz[i]);
    EXPECT_FAIL(ECH_E_IO, "t10k-labels-idx1-ubyte is missing", "3 of MNIST's four", "tools/get-data");
    ech_data *data = NULL;
    assert_int_equal(ech_data_open("", 1, &data, NULL), ECH_E_ARGUMENT);
    assert_int_equal(ech_data_open(NULL, 1, &data, NULL), ECH_E_ARGUMENT);
    assert_int_equal(ech_data_open(folder, 1, NULL, NULL), ECH_E_ARGUMENT);
    assert_int_equal(ech_data_open("/nonexistent/data", 1, &data, NULL), ECH_E_IO);
    char deep[6000];   /* too long to open, and a sentence that is not cut */
    memset(deep, 'd', sizeof deep);
    struct ech_error err = {0};
    deep[sizeof deep - 1] = 0;
    assert_int_equal(ech_data_open(deep, 1, &data, &err), ECH_E_ARGUMENT);
    deep[4000] = 0;
    assert_int_equal(ech_data_open(deep, 1, &data, &err), ECH_E_IO);
    assert_non_null(strstr(err.text, "or give glyphs"));
}

/* One defect: `bytes` bytes at `at` of file `which` become `value` (big-endian), or its length changes. */
struct defect { int which; size_t at; int bytes; uint32_t value; int longer; const char *words[3]; };

static void each_defect_is_told(void **state) {
    (void)state;
    static const struct defect defects[] = {
        {0, 0, 4, 0x1f8b0800, 0, {"train-images-idx3-ubyte is still gzip-compressed", "--from", "then give"}},
        {1, 0, 2, 0x1f8b, 0, {"train-labels-idx1-ubyte is still gzip-compressed", "--from", "then give"}},
        {0, 0, 4, 0x801, 0, {"train-images-idx3-ubyte begins with 0x00000801", "images with 0x00000803", "get-data"}},
        {3, 0, 4, 0x803, 0, {"t10k-labels-idx1-ubyte begins with 0x00000803", "labels with 0x00000801", "get-data"}},
        {0, 0, 4, 0x03080000, 0, {"begins with 0x03080000", "images", "get-data"}},
        {0, 0, 0, 0, -(16 + N_TRAIN * H * W), {"train-images-idx3-ubyte is truncated", "0 bytes", "get-data"}},
        {2, 0, 0, 0, -(N_TEST * H * W + 1), {"t10k-images-idx3-ubyte is truncated", "15 bytes", "16"}},
        {1, 0, 0, 0, -(N_TRAIN + 1), {"train-labels-idx1-ubyte is truncated", "7 bytes", "8"}},
        {0, 0, 0, 0, -1, {"train-images-idx3-ubyte is truncated", "135 bytes", "136"}},
        {0, 0, 0, 0, 1, {"train-images-idx3-ubyte has bytes behind its end", "137 bytes", "136"}},
        {1, 0, 0, 0, -1, {"train-labels-idx1-ubyte is truncated", "13 bytes", "14"}},
        {3, 0, 0, 0, 1, {"t10k-labels-idx1-ubyte has bytes behind its end", "12 bytes", "11"}},
        {0, 4, 4, 0xffffffff, 0, {"train-images-idx3-ubyte is truncated", "136 bytes", "get-data"}},
        {0, 4, 4, 0, 0, {"train-images-idx3-ubyte says 0 images", "at least 1", "4096"}},
        {2, 8, 4, 0, 0, {"t10k-images-idx3-ubyte says 3 images of 0 x 5", "at least 1", "4096"}},
        {2, 12, 4, 4097, 0, {"t10k-images-idx3-ubyte says 3 images of 4 x 4097", "at least 1", "4096"}},
        {1, 4, 4, 0xffffffff, 0, {"train-labels-idx1-ubyte is truncated", "14 bytes", "get-data"}},
        {1, 8, 1, 10, 0, {"train-labels-idx1-ubyte has label 10 for sample 0", "byte 8", "0 to 9"}},
        {3, 10, 1, 255, 0, {"t10k-labels-idx1-ubyte has label 255 for sample 2", "byte 10", "0 to 9"}},
    };
    for (size_t d = 0; d < sizeof defects / sizeof *defects; d++) {
        struct file file[FILES];
        make_files(file);
        struct file *f = &file[defects[d].which];
        for (int b = 0; b < defects[d].bytes; b++)
            f->bytes[defects[d].at + (size_t)b] = (uint8_t)(defects[d].value >> (8 * (defects[d].bytes - 1 - b)));
        f->len = (size_t)((int)f->len + defects[d].longer);
        write_files(file);
        EXPECT_FAIL(ECH_E_FORMAT, folder, defects[d].words[0], defects[d].words[1], defects[d].words[2]);
    }
}

static void counts_must_agree_and_not_overflow(void **state) {
    (void)state;
    struct file file[FILES];
    make_files(file);
    put_be(file[1].bytes + 4, N_TRAIN - 1);   /* a label fewer, and the file as long as it says */
    file[1].len--;
    write_files(file);
    EXPECT_FAIL(ECH_E_FORMAT, "train-labels-idx1-ubyte has 5 labels", "train-images-idx3-ubyte has 6 images", "get-data");
    make_files(file);
    for (size_t at = 4; at < 16; at += 4) put_be(file[0].bytes + at, 0xffffffff);
    write_files(file);
    EXPECT_FAIL(ECH_E_FORMAT, "4294967295 x 4294967295 x 4294967295 overflow", "get-data");
    make_files(file);
    put_be(file[2].bytes + 8, W);   /* as many pixels, another shape */
    put_be(file[2].bytes + 12, H);
    write_files(file);
    EXPECT_FAIL(ECH_E_FORMAT, "t10k-images-idx3-ubyte has images of 5 x 4", "training set of 4 x 5", "get-data");
}

static void mnist_is_mnist(void **state) {
    (void)state;
    static const int want[2][10] = {{5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949},
                                    {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}};
    const char *root = getenv("ECHELON_DATA");
    if (!root || !*root) {
        print_message("skipped: ECHELON_DATA is not set\n");
        skip();
    }
    char dir[1024];
    snprintf(dir, sizeof dir, "%s/mnist", root);
    struct ech_error err = {0};
    ech_data *data = NULL;
    int64_t start = echi_now();
    ech_status status = ech_data_open(dir, 1, &data, &err);
    if (status == ECH_E_FORMAT && strstr(err.text, "only as .gz")) {   /* do what the sentence says */
        if (system("tools/get-data mnist --from \"$ECHELON_DATA/mnist\" --to build/mnist") != 0) fail_msg("tools/get-data failed");
        start = echi_now();
        status = ech_data_open("build/mnist", 1, &data, &err);
    }
    if (status != ECH_OK) fail_msg("%s", err.text);
    print_message("opened in %.3f s, %zu MiB resident at most\n", (double)(echi_now() - start) * 1e-9, echi_resident_peak() >> 20);
#if !ADDRESSES_WATCHED   /* which keeps what is freed */
    assert_true(echi_resident_peak() < (size_t)80 << 20);   /* leaves 48 MiB for the rest of a node */
#endif
    for (int t = 0; t < 2; t++) {
        uint32_t n = ech_data_samples(data, t);
        assert_int_equal(n, t ? 10000 : 60000);
        int count[10] = {0};
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            float row[784];
            uint16_t label;
            assert_int_equal(ech_data_get(data, t, &i, 1, row, &label, &err), ECH_OK);
            count[label]++;
            for (int k = 0; k < 784; k++) sum += row[k];
        }
        assert_memory_equal(count, want[t], sizeof count);
        if (t == 0) assert_true(fabs(sum / (784.0 * n) * 0.3081) < 5e-5);   /* normalised: the mean pixel is 0.1307 */
    }
    ech_data_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_good_set_reads_as_written, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_hash_is_that_of_the_contents, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(missing_files_are_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(each_defect_is_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(counts_must_agree_and_not_overflow, make_folder, remove_folder),
        cmocka_unit_test(mnist_is_mnist),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
