/* SPDX-License-Identifier: Apache-2.0
 * Plan files: what is loaded is whole, and saved it loads again as the same plan, byte for byte on the wire. */
#include "fuzz.h"

#include "echi_run.h"

#include <string.h>

static bool one(const uint8_t *bytes, size_t len) {
    static struct echi_link link[ECHI_WORLD_MAX], links_again[ECHI_WORLD_MAX];
    static struct echi_times times[ECHI_WORLD_MAX];
    struct echi_plan plan, again;
    struct ech_error err = {0};
    const ech_status status = echi_plan_load(fuzz_file(0, bytes, len), 2, &plan, link, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        return false;
    }
    FUZZ_CHECK(echi_plan_valid(&plan));
    for (int r = 0; r < plan.world; r++) {
        FUZZ_CHECK(echi_link_known(&link[r]) == echi_link_known(&link[0]));   /* of all or none */
        FUZZ_CHECK(echi_rate_valid(&link[r].out) && echi_rate_valid(&link[r].in));
        times[r].link = link[r];
    }
    FUZZ_CHECK(echi_plan_save(fuzz_out_path(), &plan, times, &err) == ECH_OK);
    FUZZ_CHECK(echi_plan_load(fuzz_out_path(), 0, &again, links_again, &err) == ECH_OK);
    FUZZ_CHECK(memcmp(&plan, &again, sizeof plan) == 0);
    for (int r = 0; r < plan.world; r++) FUZZ_CHECK(echi_link_known(&links_again[r]) == echi_link_known(&link[r]));
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "# a plan\nsync gssp\nworld 4\r\nround 64   # B\n\nstaleness 2\nrounds_apart 5\nlr 0.02\nmomentum 0.9\ndecay 1e-4\nhead 2\n"
        "flights 2\ngroup 0 owner 2 workers 0:8 2:8\n\tgroup 1 owner 1 workers 3:300",
        "sync bsp\nworld 1\nround 8\ngroup 0 owner 0 workers 0:8\n",
        "sync asp\nworld 3\nround 64\nhead none\ngroup 0 owner 2 workers 2:1 1:1048576\n",
        "sync gssp\nworld 2\nround 64\ncodec topk:volume\nstate_ratio 150000\nbase 1 250000\nbase 0 1\n"
        "group 0 owner 0 workers 0:8\ngroup 1 owner 1 workers 1:8\n",
        "sync local\nworld 3\nround 64\nouter_lr 0.7\nouter_momentum 0.9\ngroup 0 owner 2 workers 2:1x10000 1:1048576x2\n",
        "sync asp\nworld 3\nround 64\ndrop_older 1.5\ngroup 0 owner 2 workers 2:1/10000 1:1048576\n",
        "sync bsp\nworld 1\nround 8\noptimizer nesterov\nschedule step\nwarmup 0.5\nlr_steps 1.5,30,60\nlr_factor 0.1\n"
        "group 0 owner 0 workers 0:8\n",
        "sync bsp\nworld 1\nround 8\noptimizer sgd\nschedule cosine\nlr_epochs 90\ngroup 0 owner 0 workers 0:8\n",
        "sync bsp\nworld 1\nround 8\noptimizer adamw\nbeta1 0.9\nbeta2 0.999\nepsilon 1e-8\ngroup 0 owner 0 workers 0:8\n",
        "sync bsp\nworld 2\nround 16\nhead 1 from 1\nmicro_batches 8\ngathers 0\ngroup 0 owner 0 workers 0:8 1:8\n",
        "sync bsp\nworld 2\nround 16\nhead 1 from 1\nactivations bf16\ngroup 0 owner 0 workers 0:8 1:8\n",
        "sync bsp\nworld 2\nround 16\ngroup 0 owner 0 workers 0:8 1:8\nlink 1 out 941 lowest 930.5 highest 943 in 940\n"
        "link 0 out 1e6 in 8e-3 lowest 8e-3 highest 9\n",
        NULL,
    };
    (void)good; /* all are */
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "sync ", "bsp", "asp", "ssp", "gssp", "world ", "round ", "staleness ", "rounds_apart ", "flights ", "lr ", "momentum ", "decay ",
    "micro_batches ", "gathers ", "activations ", "bf16", "fp32",
    "head ", "none", "group ", "owner ", "workers ", "codec ", "dense", "topk:paper", "topk:balanced", "state_ratio ", "base ", ":",
    " 63:1", " 64:1", "1048576", "1048577", "16777216", "nan", "inf", "-0",
    "local", "outer_lr ", "outer_momentum ", "x4", "x10000", "x", "drop_older ", "/85", "optimizer ", "sgd", "nesterov", "adam", "adamw",
    "beta1 ", "beta2 ", "epsilon ", "schedule ", "constant", "step", "cosine", "warmup ", "lr_steps ", "1,2,3,4,5,6,7,8,9", "lr_factor ",
    "lr_epochs ", "link ", "out ", " in ", " lowest ", " highest ", "1e-320", "0x1p3", "1e6", "\n", "\r\n", "#", "",
    "\x1b[31m", " ", "\t", "63", "64", "7", "8", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_plan_file = {
    .name = "plan_file", .one = one, .seed = seed, .words = words, .most = 4096, .heap = 376000, .heap_a_byte = 2};
