/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints for a small model: what is taken makes sense for the run, and written again as the library writes it and read
 * once more it is the same. */
#include "fuzz.h"

#include "echi_bytes.h"
#include "echi_checkpoint_impl.h"

#include <string.h>

enum { PARAMS = 9, TRUNK = 5, TRAIN = 100, HEAD_FROM = 1 }; /* conv1: 4 + 1, fc1: 2 + 2 */

static const struct echi_job *tiny(void) {
    static struct ech_data data = {.name = "a set", .classes = 2, .n_train = TRAIN, .hash = "0123456789abcdef"};
    static struct echi_job job;
    static const char text[] = "input 1 2 2\nconv2d out 1 kernel 2\nrelu\nfc out 2\n";
    ech_model *parsed = NULL;
    if (job.model) return &job;
    FUZZ_CHECK(ech_model_parse(text, sizeof text - 1, "tiny", &parsed, NULL) == ECH_OK && parsed->n_params == PARAMS);
    static struct ech_model model;
    model = *parsed;
    ech_model_destroy(parsed);
    job = (struct echi_job){.model = &model, .data = &data, .n_params = PARAMS, .train_samples = TRAIN, .seed = 7, .shuffle = true};
    job.n_layers = echi_model_param_layers(&model, job.layer, ECHI_LAYERS_MAX);
    FUZZ_CHECK(echi_job_find_cuts(&(struct ech_config){.separate = -1}, &job, NULL) == ECH_OK && job.first_fc == HEAD_FROM);
    return &job;
}

/* As lib/job/checkpoints.c writes it. */
static size_t written(const struct echi_checkpoint *c, uint8_t *out, size_t cap) {
    const struct echi_plan plan = {.sync = ECHI_SYNC_GSSP, .world = 8, .n_groups = (uint8_t)c->groups, .cut = (uint8_t)c->cut,
                                   .round = 8, .lr = 0.1, .momentum = 0.9,
                                   .optimizer = c->adam ? ECHI_OPTIMIZER_ADAMW : ECHI_OPTIMIZER_NESTEROV};
    struct echi_checkpoint_part parts[ECHI_CHECKPOINT_PARTS];
    struct echi_adam_weights weigh[ECHI_GROUPS_MAX][2];
    struct echi_word words[ECHI_CHECKPOINT_WORDS];
    struct echi_tensors *list;
    const float *values;
    size_t count;
    const int n = echi_checkpoint_parts(tiny(), c->groups, c->cut, c->adam, parts);
    parts[0].set.values = c->weights;
    for (int i = 1; i < n; i++) parts[i].set.values = (parts[i].second ? c->second : c->momentum) + parts[i].group * PARAMS;
    FUZZ_CHECK(echi_checkpoint_tensors(tiny(), parts, n, &list, NULL) == ECH_OK);
    memcpy(weigh, c->weigh, sizeof weigh);
    const int n_words = echi_checkpoint_words(words, tiny(), &plan, &c->at, c->adam ? weigh : NULL);
    FUZZ_CHECK(n_words <= ECHI_CHECKPOINT_WORDS);
    size_t len = echi_tensors_header(list, words, n_words, out, cap);
    for (int i = 0; echi_tensors_data(list, i, &values, &count); i++, len += 4 * count) {
        FUZZ_CHECK(len + 4 * count <= cap);
        memcpy(out + len, values, 4 * count);
    }
    echi_tensors_destroy(list);
    return len;
}

static bool one(const uint8_t *bytes, size_t len) {
    struct echi_checkpoint c = {.groups = 0}, back = {.groups = 0};
    struct ech_error err = {0};
    static uint8_t again[FUZZ_INPUT_MAX];
    const ech_status status = echi_checkpoint_parse("checkpoint", bytes, len, tiny(), &c, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(!c.weights && !c.momentum && !c.second);
        return false;
    }
    FUZZ_CHECK(c.groups >= 1 && c.groups <= ECHI_GROUPS_MAX);
    FUZZ_CHECK(c.at.start <= TRAIN && c.at.samples == (uint64_t)c.at.epoch * TRAIN + c.at.start);
    FUZZ_CHECK(c.at.clock >= 0 && c.at.measuring >= 0 && c.at.keeping >= 0 && c.at.target_at >= -1);
    const int64_t most = INT64_MAX / 4; /* of what is added up */
    FUZZ_CHECK(c.at.clock <= most && c.at.measuring <= most && c.at.keeping <= most && c.at.target_at <= most);
    FUZZ_CHECK(c.at.accuracy <= 1 && c.at.best_accuracy <= 1 && c.at.loss >= 0);
    for (int g = 1; c.cut && g < c.groups; g++)   /* the head's layers have one velocity */
        for (int i = TRUNK; i < PARAMS; i++) FUZZ_CHECK(c.momentum[g * PARAMS + i] == 0);
    for (int g = 0; g < ECHI_GROUPS_MAX; g++)
        for (int head = 0; head < 2; head++) {
            const struct echi_adam_weights *w = &c.weigh[g][head];
            FUZZ_CHECK(w->first >= 0 && w->first < 1.001 && w->second >= 0 && w->second < 1.001);
            FUZZ_CHECK((c.adam && g < c.groups && (!head || (c.cut && g == 0))) || (w->first == 0 && w->second == 0));
        }
    FUZZ_CHECK(c.adam == (c.second != NULL));
    const size_t n = written(&c, again, sizeof again);
    FUZZ_CHECK(echi_checkpoint_parse("again", again, n, tiny(), &back, &err) == ECH_OK);
    FUZZ_CHECK(memcmp(&c.at, &back.at, sizeof c.at) == 0 && c.groups == back.groups && c.cut == back.cut);
    FUZZ_CHECK(memcmp(c.weights, back.weights, sizeof(float[PARAMS])) == 0);
    FUZZ_CHECK(memcmp(c.momentum, back.momentum, sizeof(float[PARAMS]) * (size_t)c.groups) == 0);
    FUZZ_CHECK(c.adam == back.adam && memcmp(c.weigh, back.weigh, sizeof c.weigh) == 0);
    FUZZ_CHECK(!c.adam || memcmp(c.second, back.second, sizeof(float[PARAMS]) * (size_t)c.groups) == 0);
    echi_checkpoint_free(&c);
    echi_checkpoint_free(&back);
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    (void)good; /* all are */
    static float weights[PARAMS] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    static float momentum[ECHI_GROUPS_MAX * PARAMS] = {0.5f, [TRUNK] = 0.25f, [PARAMS] = 0.75f};
    const struct echi_checkpoint seeds[] = {
        {.groups = 1, .weights = weights, .momentum = momentum, .at = {.accuracy = -1, .best_accuracy = -1, .target_at = -1}},
        {.groups = 2, .cut = HEAD_FROM, .weights = weights, .momentum = momentum,
         .at = {.epoch = 3, .start = 100, .samples = 400, .evals = 9, .clock = 5000000000, .measuring = 7, .keeping = 8, .accuracy = 0.5,
                .best_accuracy = 0.985, .loss = 1.25, .target_at = 4000000000, .target_samples = 300}},
        {.groups = ECHI_GROUPS_MAX, .weights = weights, .momentum = momentum,
         .at = {.epoch = 1, .start = 1, .samples = 101, .target_at = -1}},
        {.groups = 2, .cut = HEAD_FROM, .adam = true, .weights = weights, .momentum = momentum, .second = momentum,
         .at = {.target_at = -1}, .weigh = {{{0.5, 0.25}, {1, 0.001}}, {{0, 0}}}},
    };
    return i < (int)(sizeof seeds / sizeof seeds[0]) ? written(&seeds[i], out, cap) : 0;
}

/* The header's true length, were the data that of the second seed, or of the first; or hardly any changed header is read. */
static void repair(uint8_t *bytes, size_t *len, size_t cap) {
    (void)cap;
    const size_t data = 4 * (*len % 3 ? 2 * PARAMS + TRUNK : 2 * PARAMS);
    if (*len >= 8 + data) echi_store64(bytes, *len - 8 - data);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\u0000", "none", "\"0\"", "\"1\"", "\"2\"", "\"9\"", "-1", "18446744073709551615",
    "9223372036854775807", "9223372036854775808", "4294967296", "0.000000000", "1.000000001", "18446744073.709551615",
    "1000000000.000000000", "\"groups\"", "\"separated\"", "\"optimizer\"", "\"head_from\"", "\"fc1\"", "adam", "adamw", "nesterov",
    "moments_weigh.0",
    "moments_weigh.7", "3ff0000000000000 7ff0000000000000", "second.0.", "second.1.", "\"epoch\"", "\"start\"", "\"samples\"",
    "\"echelon_checkpoint\":\"1\"", "seed 7", "momentum.0.", "momentum.1.", "momentum.8.", "fc1.weight", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_checkpoint = {.name = "checkpoint", .one = one, .seed = seed, .repair = repair, .words = words,
                                            .most = 8192, .heap = 65536, .heap_a_byte = 2};
