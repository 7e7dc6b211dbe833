/* SPDX-License-Identifier: Apache-2.0
 * Profiles: what is loaded has finite times for steps of every size, and saved it loads again as the same, byte for byte. */
#include "fuzz.h"

#include "echi_profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_profile(const struct echi_profile *p) {
    FUZZ_CHECK(p->trunk_ops >= 1 && p->head_ops >= 0 && p->parameters >= 1 && isfinite(p->trunk_ops + p->head_ops + p->parameters));
    FUZZ_CHECK(p->times.units >= 1 && p->times.cut >= 1 && p->times.cut <= p->times.units && p->times.sizes >= 1);
    for (int u = 0; u < p->times.units; u++) FUZZ_CHECK(isfinite(echi_times_unit(&p->times, u, ECHI_BACKWARD, 64)));
    const double cost[] = {p->apply, p->add, p->refresh, p->copy, p->message, p->eval, p->times.exchange, p->times.update,
                           p->times.messages};
    for (size_t i = 0; i < sizeof cost / sizeof cost[0]; i++) FUZZ_CHECK(cost[i] >= 0 && isfinite(cost[i]));
    FUZZ_CHECK(p->times.count >= 1 && p->times.count <= ECHI_TIMES_MAX);
    static const uint32_t n[] = {1, 7, 64, 65536, 1u << 24};
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        const double trunk = echi_times_trunk(&p->times, n[i]), head = echi_times_head(&p->times, n[i]);
        FUZZ_CHECK(trunk > 0 && isfinite(trunk) && head >= 0 && isfinite(head));
    }
    const double images = echi_profile_images(p);
    FUZZ_CHECK(images > 0 && isfinite(images));
}

static bool one(const uint8_t *bytes, size_t len) {
    static uint8_t once[8192];
    struct echi_profile profile, again;
    struct ech_error err = {0};
    const ech_status status = echi_profile_load(fuzz_file(0, bytes, len), &profile, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        return false;
    }
    check_profile(&profile);
    /* Six digits of each number are kept: the second file is the first. */
    FUZZ_CHECK(echi_profile_save(fuzz_out_path(), &profile, &err) == ECH_OK);
    FUZZ_CHECK(echi_profile_load(fuzz_out_path(), &again, &err) == ECH_OK);
    check_profile(&again);
    FUZZ_CHECK(strcmp(profile.machine, again.machine) == 0 && strcmp(profile.model, again.model) == 0);
    size_t len_twice;
    const size_t len_once = fuzz_saved(once, sizeof once);
    FUZZ_CHECK(echi_profile_save(fuzz_out_path(), &again, &err) == ECH_OK);
    uint8_t *file = fuzz_read(fuzz_out_path(), &len_twice);
    FUZZ_CHECK(file != NULL && len_twice == len_once && memcmp(once, file, len_once) == 0);
    free(file);
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "# a machine\nmachine A small one, base   # old\nmodel mine\r\n"
        "trunk_operations 1000\nhead_operations 200\nparameters 50\n"
        "apply 0.5 ns\nadd 0.25ns\nrefresh 1 ns\ncopy 0.125 ns\nmessage 10 us\nlook 2 ms\nstep 8 trunk 1 ms head 100 us\n"
        "\tstep 64 trunk 0.008 s head 800us\ntrunk_units 1\nblock 8\n"
        "unit 1 at 64 forward 2 ms backward 6 ms\nunit 2 at 64 forward 1us backward 3us",
        NULL,
    };
    if (i == 1) { /* what is written where no other is given */
        struct echi_profile builtin;
        echi_profile_builtin(&builtin);
        FUZZ_CHECK(echi_profile_save(fuzz_out_path(), &builtin, NULL) == ECH_OK);
        return fuzz_saved(out, cap);
    }
    (void)good; /* both are */
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "machine ", "model ", "trunk_operations ", "head_operations ", "parameters ", "forward ", "backward ", "trunk_units ", "block ",
    "unit ", " at ", "apply ", "add ", "refresh ", "copy ",
    "message ", "look ", "step ", " trunk ", " head ", " s", " ms", " us", " ns", "nan", "inf", "-0", "-1", "1e999", "1e-320", "1e-12 s",
    "3600 s", "65536", "0", "\n", "\r\n", "#", "", "\x1b[31m", "\t", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_profile = {.name = "profile", .one = one, .seed = seed, .words = words, .most = 4096, .heap = 90000,
                                         .heap_a_byte = 4};
