/* SPDX-License-Identifier: Apache-2.0
 * Random crops and flips of training samples: exact cuts out of the padded image, each as likely, the same whoever asks in whatever
 * order, others in the next epoch, and never of the test set. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_exec_impl.h"
#include "echi_pixels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3, H = 32, W = 32, PLANE = H * W, SIZE = CHANNELS * PLANE, PAD = 4, SHIFTS = 2 * PAD + 1, CASES = SHIFTS * SHIFTS * 2,
       TRAIN = 500, TEST = 7 };
static const struct echi_pixel_form form = {.shape = {CHANNELS, H, W}, .mean = {0.4914f, 0.4822f, 0.4465f},
                                            .deviation = {0.2470f, 0.2435f, 0.2616f}, .augmenting = ECHI_AUGMENT_USUAL};

static uint8_t pixel(int test, uint32_t sample, int c, int y, int x) {
    const uint32_t at = (uint32_t)((c * H + y) * W + x);
    return (uint8_t)(((at + sample + 77u * (uint32_t)test) * 2654435761u >> 24) % 255 + 1);   /* never black,
                                                                                                 so that what is padded shows */
}

static struct echi_pixel_set make_set(int test, uint32_t count) {
    struct echi_pixel_set set = {.pixel_block = malloc((size_t)count * SIZE), .label_block = malloc(count), .count = count};
    assert_true(set.pixel_block && set.label_block);
    for (uint32_t i = 0; i < count; i++) {
        set.label_block[i] = (uint8_t)(i % 10);
        for (int c = 0; c < CHANNELS; c++)
            for (int y = 0; y < H; y++)
                for (int x = 0; x < W; x++) set.pixel_block[i * SIZE + (uint32_t)((c * H + y) * W + x)] = pixel(test, i, c, y, x);
    }
    set.pixels = set.pixel_block;
    set.labels = set.label_block;
    return set;
}

static ech_data *make_data(void) {
    ech_data *data = NULL;
    assert_int_equal(echi_pixels_data(make_set(0, TRAIN), make_set(1, TEST), &form, "pictures", &data, NULL), ECH_OK);
    return data;
}

static void get(const ech_data *data, const struct echi_augment *augment, uint32_t sample, float row[SIZE]) {
    uint16_t label;
    assert_int_equal(echi_data_read(data, false, augment, &sample, 1, row, &label, NULL), ECH_OK);
    assert_int_equal(label, sample % 10);
}

/* The image with black around it, cut and mirrored as PyTorch does it, then normalised: written anew, the long way. */
static void reference(uint32_t sample, int top, int left, int flip, float out[SIZE]) {
    for (int c = 0; c < CHANNELS; c++) {
        static uint8_t padded[H + 2 * PAD][W + 2 * PAD], cut[H][W];
        memset(padded, 0, sizeof padded);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) padded[y + PAD][x + PAD] = pixel(0, sample, c, y, x);
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++) cut[y][x] = padded[y + top][x + left];
        for (int y = 0; y < H; y++)
            for (int x = 0; x < W; x++)
                out[(c * H + y) * W + x] = ((float)cut[y][flip ? W - 1 - x : x] / 255.0f - form.mean[c]) / form.deviation[c];
    }
}

/* Which of the cases a row is; it must be just one, bit for bit. */
static int case_of(uint32_t sample, const float row[SIZE]) {
    static float want[TRAIN][CASES][W];   /* one row of pixels of each case tells most apart */
    static bool made[TRAIN];
    static float all[SIZE];
    const size_t middle = (size_t)(H / 2) * W;
    int found = -1;
    for (int k = 0; !made[sample] && k < CASES; k++) {
        reference(sample, k / (2 * SHIFTS), k / 2 % SHIFTS, k % 2, all);
        memcpy(want[sample][k], all + middle, sizeof want[sample][k]);
    }
    made[sample] = true;
    for (int k = 0; k < CASES; k++) {
        if (memcmp(want[sample][k], row + middle, sizeof want[sample][k]) != 0) continue;
        reference(sample, k / (2 * SHIFTS), k / 2 % SHIFTS, k % 2, all);
        if (memcmp(all, row, sizeof all) != 0) continue;
        assert_int_equal(found, -1);
        found = k;
    }
    if (found < 0) fail_msg("sample %u is no crop of its image", (unsigned)sample);
    return found;
}

static void all_cases_are_as_likely(void **state) {
    (void)state;
    enum { EPOCHS = 40, DRAWS = TRAIN * EPOCHS };
    ech_data *data = make_data();
    static int seen[CASES], first[TRAIN];
    static float row[SIZE];
    int again = 0;
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++)
        for (uint32_t i = 0; i < TRAIN; i++) {
            get(data, &(struct echi_augment){17, epoch}, i, row);
            const int k = case_of(i, row);
            seen[k]++;
            again += epoch > 0 && k == first[i];
            first[i] = k;
        }
    ech_data_destroy(data);
    /* Chi-square with 161 degrees of freedom: 99.8 % lie between 111 and 222 (Wilson and Hilferty's approximation). */
    const double mean = (double)DRAWS / CASES;
    double chi = 0;
    for (int k = 0; k < CASES; k++) chi += (seen[k] - mean) * (seen[k] - mean) / mean;
    print_message("chi-square of %d draws over %d cases: %.1f\n", DRAWS, CASES, chi);
    assert_true(chi > 111 && chi < 222);
    /* From one epoch to the next as often the same as chance has it: 120 of 19,500, deviation 11. */
    assert_true(again > 120 - 4 * 11 && again < 120 + 4 * 11);
}

static void it_depends_on_seed_epoch_and_sample_alone(void **state) {
    (void)state;
    enum { BATCH = 64 };
    ech_data *data = make_data(), *elsewhere = make_data();   /* two nodes' */
    const struct echi_augment augment = {5, 3}, next = {5, 4}, other = {6, 3};
    static float rows[BATCH * SIZE], row[SIZE], plain[SIZE], moved[SIZE];
    uint16_t labels[BATCH];
    uint32_t index[BATCH];
    for (uint32_t i = 0; i < BATCH; i++) index[i] = (i * 191 + 7) % TRAIN;   /* any order, among any others */
    assert_int_equal(echi_data_read(data, false, &augment, index, BATCH, rows, labels, NULL), ECH_OK);
    int unlike[3] = {0};
    for (int i = BATCH - 1; i >= 0; i--) {
        get(elsewhere, &augment, index[i], row);
        assert_memory_equal(row, rows + i * SIZE, sizeof row);
        get(elsewhere, NULL, index[i], plain);
        unlike[0] += memcmp(row, plain, sizeof row) != 0;
        get(elsewhere, &next, index[i], moved);
        unlike[1] += memcmp(row, moved, sizeof row) != 0;
        get(elsewhere, &other, index[i], moved);
        unlike[2] += memcmp(row, moved, sizeof row) != 0;
    }
    for (int i = 0; i < 3; i++) assert_true(unlike[i] >= BATCH - 4);   /* 1 of 162 is the same by chance */
    /* What a seed means must not change from one version to the next: checkpoints and recordings go by it. */
    const struct echi_crop crop = echi_crop_of(&(struct echi_augment){1, 0}, 0), later = echi_crop_of(&(struct echi_augment){1, 2}, 49999);
    assert_true(crop.dy == 1 && crop.dx == 3 && crop.flip);
    assert_true(later.dy == 3 && later.dx == 0 && later.flip);
    ech_data_destroy(data);
    ech_data_destroy(elsewhere);
}

static struct echi_job job_of(const ech_model *model, const ech_data *data, const char *how, ech_status want) {
    static struct ech_config config;
    struct echi_job job = {0};
    struct ech_error err = {0};
    ech_config_init(&config);
    assert_string_equal(config.augment, "auto");
    if (how) assert_int_equal(ech_config_set(&config, "augment", how, NULL), ECH_OK);
    config.seed = 9;
    assert_int_equal(echi_job_make(model, data, &config, &job, &err), want);
    if (want != ECH_OK) assert_non_null(strstr(err.text, "augment is crop-flip, but the samples of mine come from a function"));
    return job;
}

static int answer(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test, (void)index;
    memset(rows, 0, (size_t)n * SIZE * sizeof *rows);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

static void a_run_augments_training_samples_only(void **state) {
    (void)state;
    static const char text[] = "input 3 32 32\nfc out 10\n", digits[] = "input 1 28 28\nfc out 10\n";
    ech_model *model, *small;
    ech_data *data = make_data(), *glyphs, *mine;
    assert_int_equal(ech_model_parse(text, strlen(text), "text", &model, NULL), ECH_OK);
    assert_int_equal(ech_model_parse(digits, strlen(digits), "text", &small, NULL), ECH_OK);
    assert_int_equal(ech_data_open("glyphs", 1, &glyphs, NULL), ECH_OK);
    const struct ech_data_callback callback = {.channels = 3, .height = H, .width = W, .classes = 10, .train_samples = 3, .read = answer,
                                               .name = "mine"};
    assert_int_equal(ech_data_from_callback(&callback, &mine, NULL), ECH_OK);

    struct echi_job on = job_of(model, data, NULL, ECH_OK), off = job_of(model, data, "off", ECH_OK);
    assert_true(on.augment && !off.augment);
    assert_true(!job_of(small, glyphs, NULL, ECH_OK).augment && job_of(small, glyphs, "crop-flip", ECH_OK).augment);
    assert_true(!job_of(model, mine, NULL, ECH_OK).augment && !job_of(model, mine, "off", ECH_OK).augment);
    job_of(model, mine, "crop-flip", ECH_E_ARGUMENT);
    char word[ECHI_JOB_WORD];   /* by which nodes know that they do the same */
    echi_job_augment(&on, word);
    assert_string_equal(word, "crop-flip, seed 9");
    echi_job_augment(&off, word);
    assert_string_equal(word, "off");

    static float want[SIZE];
    static echi_real rows[SIZE];
    uint16_t label;
    for (uint32_t i = 0; i < TEST; i++) {
        assert_int_equal(ech_data_get(data, 1, &i, 1, want, &label, NULL), ECH_OK);
        assert_int_equal(echi_exec_read(&on, true, 0, &i, 1, rows, &label, NULL), ECH_OK);
        for (int k = 0; k < SIZE; k++) assert_true((float)rows[k] == want[k]);
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            get(data, &(struct echi_augment){9, epoch}, i, want);
            assert_int_equal(echi_exec_read(&on, false, epoch, &i, 1, rows, &label, NULL), ECH_OK);
            for (int k = 0; k < SIZE; k++) assert_true((float)rows[k] == want[k]);
        }
        get(data, NULL, i, want);
        assert_int_equal(echi_exec_read(&off, false, 1, &i, 1, rows, &label, NULL), ECH_OK);
        for (int k = 0; k < SIZE; k++) assert_true((float)rows[k] == want[k]);
    }
    ech_model_destroy(model);
    ech_model_destroy(small);
    ech_data_destroy(data);
    ech_data_destroy(glyphs);
    ech_data_destroy(mine);
}

/* Images smaller than the shift: nothing is read beside them (under AddressSanitizer that shows). */
static void small_images_stay_inside(void **state) {
    (void)state;
    struct echi_pixel_set set[2];
    for (int t = 0; t < 2; t++) {
        set[t] = (struct echi_pixel_set){.pixel_block = malloc(2), .label_block = calloc(1, 1), .count = 1};
        memset(set[t].pixel_block, 255, 2);
        set[t].pixels = set[t].pixel_block;
        set[t].labels = set[t].label_block;
    }
    const struct echi_pixel_form tiny = echi_pixels_digits(1, 2);
    ech_data *data;
    assert_int_equal(echi_pixels_data(set[0], set[1], &tiny, "tiny", &data, NULL), ECH_OK);
    const float black = (0.0f - 0.1307f) / 0.3081f, white = (1.0f - 0.1307f) / 0.3081f;
    int whites = 0;
    for (uint32_t epoch = 0; epoch < 500; epoch++) {
        const struct echi_augment augment = {1, epoch};
        const struct echi_crop crop = echi_crop_of(&augment, 0);
        const uint32_t index = 0;
        float row[2];
        uint16_t label;
        assert_int_equal(echi_data_read(data, false, &augment, &index, 1, row, &label, NULL), ECH_OK);
        for (int x = 0; x < 2; x++) {
            const int from = (crop.flip ? 1 - x : x) + crop.dx;
            assert_true(row[x] == (crop.dy == 0 && (from == 0 || from == 1) ? white : black));
            whites += row[x] == white;
        }
    }
    assert_true(whites > 0);
    ech_data_destroy(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_cases_are_as_likely),
        cmocka_unit_test(it_depends_on_seed_epoch_and_sample_alone),
        cmocka_unit_test(a_run_augments_training_samples_only),
        cmocka_unit_test(small_images_stay_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
