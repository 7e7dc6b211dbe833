/* SPDX-License-Identifier: Apache-2.0
 * What a node that waits is asked: what is taken names a rank of a live run and a whole model, and written again asks for the same; of the
 * node's own options none is touched. */
#include "fuzz.h"

#include "echi_ask.h"
#include "echi_model.h"

#include <string.h>

static bool one(const uint8_t *bytes, size_t len) {
    static char text[FUZZ_INPUT_MAX], again[FUZZ_INPUT_MAX];
    struct ech_config config, before, other;
    ech_model *model = NULL, *same = NULL;
    struct ech_error err = {0};
    ech_config_init(&config);
    config.slow = 3;
    strcpy(config.device, "cuda:1");
    before = other = config;
    const ech_status status = echi_ask_read((const char *)bytes, len, &config, &model, &err);
    if (status != ECH_OK) {
        FUZZ_CHECK(model == NULL);
        fuzz_sentence(&err, status);
        return false;
    }
    FUZZ_CHECK(config.world >= 2 && config.world <= ECH_LIVE_MAX && config.rank >= 1 && config.rank < config.world);
    FUZZ_CHECK(config.measure <= 60 && config.winograd >= 0 && config.winograd <= 4);
    FUZZ_CHECK(ech_model_finish(model, NULL) == ECH_OK);
    const size_t n = echi_ask_write(&config, config.rank, model, text, sizeof text);
    FUZZ_CHECK(n < sizeof text);
    FUZZ_CHECK(echi_ask_read(text, n, &other, &same, NULL) == ECH_OK);
    FUZZ_CHECK(echi_ask_write(&other, other.rank, same, again, sizeof again) == n && memcmp(again, text, n) == 0);
    FUZZ_CHECK(memcmp(same->layers, model->layers, sizeof model->layers) == 0 && strcmp(same->name, model->name) == 0);
    before.rank = config.rank;
    before.world = config.world;
    before.seed = config.seed;
    before.no_shuffle = config.no_shuffle;
    before.deterministic = config.deterministic;
    before.sync_norm = config.sync_norm;
    before.winograd = config.winograd;
    memcpy(before.precision, config.precision, sizeof before.precision);
    before.measure = config.measure;
    FUZZ_CHECK(memcmp(&before, &config, sizeof config) == 0);
    ech_model_destroy(same);
    ech_model_destroy(model);
    return true;
}

#define NET "model net\ninput 1 8 8\nconv2d out 2 kernel 3\nrelu\nfc out 4\n"
#define HEAD "rank 1\nworld 3\nseed 1\nno-shuffle off\ndeterministic off\nsync-norm off\nwinograd 4\nprecision fp32\nmeasure 0.4\n"

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        HEAD NET,
        "rank 63\nworld 64\nseed 18446744073709551615\nno-shuffle on\ndeterministic off\nsync-norm on\nwinograd off\nprecision bf16\n"
        "measure 60\n" NET,
        "rank 0\nworld 3\nseed 1\nno-shuffle off\ndeterministic off\nsync-norm off\nwinograd 4\nprecision fp32\nmeasure 0.4\n" NET,
        "rank 1\nworld 65\nseed 1\nno-shuffle off\ndeterministic off\nsync-norm off\nwinograd 4\nprecision fp32\nmeasure 0.4\n" NET,
        "rank 1\nworld 3\nseed 1\ndevice cpu\n" NET,
        HEAD "input 1 8 8\nfc out 4\n",
        HEAD "model net\n",
        NULL,
    };
    *good = i < 2;
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "rank 2\n", "world 64\n", "world 1024\n", "seed ", "no-shuffle on\n", "deterministic on\n", "sync-norm on\n", "winograd 2\n",
    "winograd 3\n", "precision tf32\n", "measure 1e9\n", "measure 0.001\n", "model ", "model \n", "device cuda\n",
    "save x\n", "\n", " ", "\r\n", NET, HEAD, NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_ask = {
    .name = "ask", .one = one, .seed = seed, .words = words, .most = 2048, .heap = 2 * sizeof(struct ech_model) + 65536};
