/* SPDX-License-Identifier: Apache-2.0
 * Loss curves: what is loaded is within the ranges that plans rely on, whatever two curves come to can be recorded, and saved it loads
 * again as the same, byte for byte. */
#include "fuzz.h"

#include "echi_curves.h"
#include "echi_trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct echi_curves curves, again;

static void check_run(const struct echi_curve_run *r) {
    FUZZ_CHECK(r->policy.sync < ECHI_SYNC_LOCAL && r->policy.separated <= 1 && r->policy.weigh_by_time <= 1);
    FUZZ_CHECK(r->round >= 1 && (r->policy.sync == ECHI_SYNC_BSP ? r->behind == 0 : r->behind > 0) && isfinite(r->behind));
    FUZZ_CHECK(r->points >= 0 && r->points <= ECH_CURVE_MAX && strlen(r->about) < sizeof r->about);
    FUZZ_CHECK(strlen(r->task) == ECHI_CURVES_HASH - 1 && strlen(r->data) == ECHI_CURVES_HASH - 1);
    for (int i = 0; i < r->points; i++) FUZZ_CHECK(r->loss[i] > 0 && isfinite(r->loss[i]) && r->at[i] > (i ? r->at[i - 1] : 0));
}

/* A plan request with what was found goes into a recording, and out of it. */
static void check_evidence(const struct echi_curve_run *r) {
    static uint8_t bytes[65536];
    static struct echi_plan_request back;
    struct echi_plan_request request = {.world = 1, .staleness = r->policy.staleness, .rounds_apart = r->policy.rounds_apart,
                                        .damping = r->policy.damping, .drop_older = r->policy.drop_older,
                                        .weigh_by_time = r->policy.weigh_by_time};
    struct echi_curves_found found;
    echi_curves_find(&curves, r->task, r->data, &request, &found);
    FUZZ_CHECK(found.runs >= 1 && found.rounds <= found.runs && found.evidence.count <= found.runs);
    request.evidence = found.evidence;
    struct echi_writer w = echi_writer_over(bytes, sizeof bytes);
    echi_plan_request_put(&w, &request);
    struct echi_reader reader = echi_reader_over(bytes, (size_t)(w.at - bytes));
    FUZZ_CHECK(w.ok && echi_plan_request_get(&reader, &back) && reader.at == reader.end);
    for (int i = 0; i < found.evidence.count; i++) {
        const struct echi_measured *m = &found.evidence.of[i];
        const struct echi_efficiency known = echi_efficiency_of(&found.evidence, m->sync, m->separated, true, m->behind);
        FUZZ_CHECK(known.measured && known.value > 0 && isfinite(known.value) && known.error >= 0 && known.error < 1);
    }
}

static bool one(const uint8_t *bytes, size_t len) {
    struct ech_error err = {0};
    const ech_status status = echi_curves_load(fuzz_file(0, bytes, len), &curves, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        FUZZ_CHECK(strstr(err.text, "/proc/self/fd/") != NULL); /* names the file */
        return false;
    }
    FUZZ_CHECK(curves.count >= 0 && curves.count <= ECHI_CURVES_MAX);
    for (int i = 0; i < curves.count; i++) check_run(&curves.run[i]);
    for (int i = 0; i < curves.count; i++) check_evidence(&curves.run[i]);
    size_t len_once, len_twice;
    FUZZ_CHECK(echi_curves_save(fuzz_out_path(), &curves, &err) == ECH_OK);
    FUZZ_CHECK(echi_curves_load(fuzz_out_path(), &again, &err) == ECH_OK);
    uint8_t *once = fuzz_read(fuzz_out_path(), &len_once);
    FUZZ_CHECK(again.count == curves.count && echi_curves_save(fuzz_out_path(), &again, &err) == ECH_OK);
    uint8_t *twice = fuzz_read(fuzz_out_path(), &len_twice);
    FUZZ_CHECK(once && twice && len_once == len_twice && memcmp(once, twice, len_once) == 0);
    free(once);
    free(twice);
    return true;
}

/* Runs of two policies, of so many points, whose losses fall as powers of samples do. */
static size_t two_curves(int points, uint8_t *out, size_t cap) {
    static struct echi_curves two;
    two = (struct echi_curves){.count = 2};
    for (int k = 0; k < 2; k++) {
        two.run[k] = (struct echi_curve_run){.about = "a", .task = "0123456789abcdef", .data = "0123456789abcdef", .round = 64,
                                             .points = points, .behind = k, .policy = {.sync = k ? ECHI_SYNC_ASP : ECHI_SYNC_BSP}};
        for (int i = 0; i < points; i++) {
            two.run[k].at[i] = 64 + 128 * i;
            two.run[k].loss[i] = (k ? 3 : 2) / (1 + 0.1 * i);
        }
    }
    FUZZ_CHECK(echi_curves_save(fuzz_out_path(), &two, NULL) == ECH_OK);
    return fuzz_saved(out, cap);
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "# a comment\ncurves 1\r\nrun lenet5 on data/mnist  # people\n task 0123456789abcdef data fedcba9876543210 round 64\n"
        "policy gssp separated 1 staleness 3 rounds_apart 4 damping 0.5 drop_older 0 weigh_by_time 0\nbehind 1.25\nat 32 loss 2.303\n"
        "at 96 loss 1.5\nrun\ntask 0123456789abcdef data fedcba9876543210 round 16777216\n"
        "policy bsp separated 0 staleness 0 rounds_apart 0 damping 0 drop_older 0 weigh_by_time 0\nbehind 0\n",
        "curves 1",
        NULL,
    };
    (void)good; /* all are */
    if (i == 2) return two_curves(20, out, cap);
    if (i == 3) return two_curves(40, out, cap);
    return fuzz_seed_text(text, i < 2 ? i : 2, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "curves 1\n", "run ", "task ", " data ", " round ", "0123456789abcdef", "policy ", "bsp", "asp", "ssp", "gssp", "local", " separated ",
    " staleness ", " rounds_apart ", " damping ", " drop_older ", " weigh_by_time ", "behind ", "at ", " loss ", "nan", "inf", "-0", "-1",
    "1e999", "1e-30", "1e30", "1e15", "1000000", "16777216", "0", "\n", "\r\n", "#", "\x1b[31m", "\t", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_curves = {.name = "curves", .one = one, .seed = seed, .words = words, .most = 8192, .heap = 330000,
                                        .heap_a_byte = 4};
