/* SPDX-License-Identifier: Apache-2.0
 * Options as text, a line each, "name=value" or "name" for one without: what is taken is in range and what is refused
 * leaves the options as they were. Then whether they fit together. */
#include "fuzz.h"

#include "echelon.h"

#include <math.h>
#include <string.h>

/* The bounds that the rest of the library relies on, said here a second time. */
static void check_fields(const struct ech_config *c) {
    FUZZ_CHECK(c->rank >= 0 && c->rank < c->world && c->world >= 1 && c->world <= ECH_WORLD_MAX);
    FUZZ_CHECK(c->staleness >= 0 && c->groups >= 0 && c->groups <= ECH_GROUPS_MAX && c->groups <= c->world);
    FUZZ_CHECK(c->separate <= 256 && c->batch >= 0 && c->samples_per_step >= 0 && c->threads >= 0 && c->threads <= 1024);
    FUZZ_CHECK(isfinite(c->lr) && isfinite(c->momentum) && c->momentum < 1 && isfinite(c->weight_decay));
    FUZZ_CHECK(c->epochs >= 0 && c->target_accuracy <= 1 && c->slow >= 1 && c->deadline > 0 && c->join_timeout > 0);
    FUZZ_CHECK(c->warmup >= 0 && c->warmup < 1e6 && c->lr_factor > 0 && c->lr_factor <= 1);
    FUZZ_CHECK((strcmp(c->schedule, "step") == 0) == (c->lr_steps[0] != 0));
    FUZZ_CHECK(c->world == 1 || c->coordinator[0]);
}

static bool one(const uint8_t *bytes, size_t len) {
    struct ech_config c, before;
    struct ech_error err = {0};
    bool taken = true;
    ech_config_init(&c);
    for (const uint8_t *at = bytes, *end = bytes + len; at < end;) {
        const uint8_t *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        char line[1200];
        const size_t n = (size_t)(stop - at) < sizeof line - 1 ? (size_t)(stop - at) : sizeof line - 1;
        memcpy(line, at, n);
        line[n] = 0;
        at = newline ? newline + 1 : end;
        char *equals = strchr(line, '=');
        if (equals) *equals = 0;
        before = c;
        const ech_status status = ech_config_set(&c, line, equals ? equals + 1 : NULL, &err);
        if (status == ECH_OK) continue;
        fuzz_sentence(&err, status);
        FUZZ_CHECK(memcmp(&c, &before, sizeof c) == 0);
        taken = false;
    }
    const ech_status status = ech_config_check(&c, &err);
    if (status != ECH_OK) fuzz_sentence(&err, status);
    else check_fields(&c);
    return taken && status == ECH_OK;
}

/* One line for each option, with its default; then some that fit together. */
static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "rank=1\nworld=4\ncoordinator=10.0.0.1:7000\nsync=gssp\ngroups=2\nseparate=1\nlr=0.02\nseed=18446744073709551615",
        "sync=bsp\nworld=4\ncoordinator=[::1]:0\nshares=24,24,12,4\nbatch=64\nsteps=100\nno-shuffle\nslow=2.5",
        "optimizer=nesterov\nmomentum=0.9\nschedule=step\nlr-steps=1.5,30\nlr-factor=0.2\nwarmup=0.5",
        "optimizer=adamw\nbeta1=0.5\nbeta2=0.25\nepsilon=1e-6\nweight-decay=0.1",
    };
    (void)good; /* all are */
    int n;
    const struct ech_option *option = ech_options(&n);
    size_t len = 0;
    if (i >= n + 4 || cap < 512) return 0;
    const char *part[3] = {i < n ? option[i].name : text[i - n], i < n ? "=" : "", i < n ? option[i].fallback : ""};
    for (int k = 0; k < 3; k++) {
        memcpy(out + len, part[k], strlen(part[k]));
        len += strlen(part[k]);
    }
    return len;
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "rank=", "world=", "coordinator=", "sync=", "groups=", "separate=", "shares=", "batch=", "lr=", "steps=", "seed=", "no-shuffle\n",
    "auto", "off", "on", "gssp", "asp", "1e999", "nan", "inf", "-1", "1e-400", "0x10", "65536", "65537", "18446744073709551616",
    "127.0.0.1:65535", "[::1]:0", ":65536", ",", ",,", "\n", "=", "", "\x1b[2J", "\xc2\x9b", "save=a\nreport=a\n", "24,24", "schedule=",
    "step", "cosine", "lr-steps=1,2", "lr-factor=", "warmup=", "optimizer=nesterov\n", "optimizer=adam\n", "beta1=", "beta2=", "epsilon=",
    NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_config = {.name = "config", .one = one, .seed = seed, .words = words, .most = 2048};
