/* SPDX-License-Identifier: Apache-2.0
 * Loss curves: two of them compared, by curves made by hand whose ratio of samples is known; what a file of them tells of policies; the
 * file. Bins of losses while a run goes. Files of a stranger are in test/fuzz. */
#include "echi_curve.h"
#include "echi_curves.h"
#include "echi_random.h"
#include "text_files.h"

#include <math.h>
#include <unistd.h>

static char path[64];
static struct echi_curves curves;
static struct echi_random dice;

/* Losses of 3 (samples efficiency / 1000) ^ -0.7, as a run of so many samples has them in 100 bins, noisy by such a part. */
static struct echi_curve_run power(double efficiency, double samples, double behind, double noise) {
    struct echi_curve_run r = {.about = "by hand", .task = "0123456789abcdef", .data = "fedcba9876543210", .round = 64, .behind = behind,
                               .points = 100, .policy = {.sync = behind > 0 ? ECHI_SYNC_ASP : ECHI_SYNC_BSP}};
    for (int i = 0; i < 100; i++) {
        const double at = samples / 100 * (i + 0.5);
        r.at[i] = at + 64 * behind;
        r.loss[i] = 3 * pow(at * efficiency / 1000, -0.7) * (1 + noise * echi_random_normal(&dice));
    }
    return r;
}

/* ---- two curves ---- */

static void ratios_are_those_of_the_curves(void **state) {
    (void)state;
    static const double efficiency[] = {0.15, 0.3, 0.5, 0.9, 1, 1.1, 2, 5}, samples[] = {20000, 60000, 300000};
    for (size_t e = 0; e < sizeof efficiency / sizeof efficiency[0]; e++)
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++)
                for (double behind = 0.5; behind < 20; behind *= 6) {
                    const struct echi_curve_run rounds = power(1, samples[a], 0, 0);
                    const struct echi_curve_run other = power(efficiency[e], samples[b], behind, 0);
                    struct echi_curve_ratio ratio;
                    /* Where one has hardly begun to come to the other's losses nothing is known. */
                    const double both = fmin(samples[a], samples[b] * efficiency[e]);
                    const enum echi_ratio_known known = echi_curve_ratio(&rounds, &other, &ratio);
                    if (both > 0.1 * fmax(samples[a], samples[b] * efficiency[e])) assert_int_equal(known, ECHI_RATIO_KNOWN);
                    if (known != ECHI_RATIO_KNOWN) continue;
                    if (fabs(ratio.log - log(efficiency[e])) > 0.01 || ratio.deviation > 0.02)
                        fail_msg("%g at %g, %g: %g +- %g", efficiency[e], samples[a], samples[b], exp(ratio.log), ratio.deviation);
                }
}

/* The deviation tells how far off a ratio may be, and is no larger than it has to. */
static void noise_is_told_of(void **state) {
    (void)state;
    static const double noise[] = {0.01, 0.05, 0.15};
    double of_noise[3] = {0};
    echi_random_init(&dice, 5, ECHI_STREAM_TEST, 0);
    for (int k = 0; k < 3; k++) {
        int off = 0, known = 0;
        double mean = 0;
        for (int i = 0; i < 200; i++) {
            const struct echi_curve_run rounds = power(1, 60000, 0, noise[k]), other = power(0.6, 60000, 1, noise[k]);
            struct echi_curve_ratio ratio;
            if (echi_curve_ratio(&rounds, &other, &ratio) != ECHI_RATIO_KNOWN) continue;
            known++;
            mean += ratio.log;
            off += fabs(ratio.log - log(0.6)) > 2 * ratio.deviation;
            of_noise[k] += ratio.deviation / 200;
        }
        if (known < 180 || off > 20) fail_msg("noise %g: %d of 200 known, %d of them off", noise[k], known, off);
        if (fabs(mean / known - log(0.6)) > 0.02 + noise[k] / 3) fail_msg("noise %g: %g in the mean", noise[k], exp(mean / known));
    }
    assert_true(of_noise[0] < 0.05 && of_noise[1] > of_noise[0] && of_noise[2] > of_noise[1] && of_noise[2] < 0.3);
}

static void what_cannot_be_compared_is_not(void **state) {
    (void)state;
    struct echi_curve_ratio ratio;
    struct echi_curve_run rounds = power(1, 60000, 0, 0), other = power(0.003, 60000, 1, 0);
    assert_int_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_APART);   /* it ends where the other begins */
    assert_int_equal(echi_curve_ratio(&other, &rounds, &ratio), ECHI_RATIO_APART);
    other = power(0.8, 60000, 0, 0);
    other.points = 3;   /* where it is has two pieces, as long as all of the other */
    for (int i = 0; i < 3; i++) other.at[i] = 300 * pow(14, i), other.loss[i] = 3 * pow(0.8 * other.at[i] / 1000, -0.7);
    assert_int_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_SHORT);
    other.points = 0;
    assert_int_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_SHORT);
    assert_int_equal(echi_curve_ratio(&other, &rounds, &ratio), ECHI_RATIO_SHORT);
    for (other.points = 0; other.points < 100; other.points++) other.loss[other.points] = 2.3 + 0.001 * (other.points % 7);
    assert_int_not_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_KNOWN);   /* nothing is learnt */
    for (int i = 0; i < 100; i++) other.loss[i] = 3 * pow(other.at[i] / 1000, -0.7) * (i < 50 ? 0.3 : 1.2);
    assert_int_not_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_KNOWN);   /* first much better, then worse */
    for (int i = 0; i < 100; i++) other.loss[i] = 3 * pow(other.at[i] / 1000, -0.15);
    rounds = power(1, 10000, 0, 0);
    assert_int_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_NOISY);   /* the less is left, the worse it is */
    other = power(1, 60000, 1000, 0);   /* all its weights are from before the first sample */
    for (int i = 0; i < 100; i++) other.at[i] -= 64000;
    assert_int_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_SHORT);
    for (int i = ECHI_RATIO_SHORT; i <= ECHI_RATIO_NOISY; i++) assert_true(strlen(echi_ratio_reason((enum echi_ratio_known)i)) > 10);
}

/* Of losses that only one of the two had nothing is made up. */
static void nothing_is_made_up(void **state) {
    (void)state;
    const struct echi_curve_run rounds = power(1, 60000, 0, 0);
    struct echi_curve_run other = power(2, 60000, 1, 0);
    struct echi_curve_ratio ratio;
    other.points = 88;   /* it begins when rounds have a third of what is compared behind them, hardly falling */
    memmove(other.at, other.at + 12, 88 * sizeof other.at[0]);
    memmove(other.loss, other.loss + 12, 88 * sizeof other.loss[0]);
    other.loss[0] = other.loss[1] * 1.0001;
    assert_int_equal(echi_curve_ratio(&rounds, &other, &ratio), ECHI_RATIO_KNOWN);
    if (fabs(ratio.log - log(2)) > 0.02 || ratio.deviation > 0.05) fail_msg("%g +- %g", exp(ratio.log), ratio.deviation);
}

/* A run that has stopped to learn, with which a tenth more samples bring nothing, is not taken for as good as one that goes on. */
static void a_plateau_counts(void **state) {
    (void)state;
    for (int from = 20; from <= 60; from += 10) {
        const struct echi_curve_run rounds = power(1, 60000, 0, 0);
        struct echi_curve_run other = power(1, 60000, 1, 0);
        struct echi_curve_ratio ratio;
        for (int i = from; i < 100; i++) other.loss[i] = other.loss[from];
        const enum echi_ratio_known known = echi_curve_ratio(&rounds, &other, &ratio);
        if (known == ECHI_RATIO_KNOWN && exp(ratio.log) * (1 - ratio.deviation) > 0.8)
            fail_msg("flat from %d %% on: %g +- %g", from, exp(ratio.log), ratio.deviation);
    }
}

/* ---- what a file tells ---- */

static struct echi_curve_run of(enum echi_sync sync, bool separated, double efficiency, double behind) {
    struct echi_curve_run r = power(efficiency, 60000, behind, 0);
    r.policy = (struct echi_curve_policy){.sync = (uint8_t)sync, .separated = separated};
    if (sync == ECHI_SYNC_SSP || sync == ECHI_SYNC_GSSP) r.policy.staleness = 3;
    if (sync == ECHI_SYNC_GSSP) r.policy.rounds_apart = 4;
    return r;
}

static void find(const char *data, struct echi_curves_found *found) {
    const struct echi_plan_request request = {.staleness = 3, .rounds_apart = 4};
    echi_curves_find(&curves, "0123456789abcdef", data, &request, found);
}

static void add(struct echi_curve_run run) { echi_curves_add(&curves, &run); }

static void policies_are_compared_with_rounds(void **state) {
    (void)state;
    struct echi_curves_found found;
    curves.count = 0;
    find("", &found);
    assert_true(found.runs == 0 && found.evidence.count == 0);
    add(of(ECHI_SYNC_GSSP, true, 0.8, 2));
    find("fedcba9876543210", &found);
    assert_true(found.runs == 1 && found.rounds == 0 && found.evidence.count == 0);   /* with nothing to compare it with */
    add(of(ECHI_SYNC_BSP, false, 1, 0));
    find("fedcba9876543210", &found);
    assert_true(found.runs == 2 && found.rounds == 1 && found.evidence.count == 1 && found.unknown == ECHI_RATIO_KNOWN);
    const struct echi_measured *m = &found.evidence.of[0];
    assert_true(m->sync == ECHI_SYNC_GSSP && m->separated && fabs(m->efficiency - 0.8) < 0.01 && m->behind == 2 && m->error < 0.02);
    /* One more at about the same staleness: the mean, and an error by what lies between them. */
    add(of(ECHI_SYNC_GSSP, true, 0.6, 2.4));
    find("", &found);
    assert_true(found.evidence.count == 1 && fabs(m->efficiency - sqrt(0.8 * 0.6)) < 0.01 && fabs(m->behind - 2.2) < 1e-9);
    assert_true(fabs(m->error - log(0.8 / 0.6) / 2) < 0.02);
    add(of(ECHI_SYNC_BSP, false, 1, 0));   /* two of each: the error of a mean of two */
    find("", &found);
    assert_true(fabs(m->error - log(0.8 / 0.6) / 2 / sqrt(2)) < 0.02);
    add(of(ECHI_SYNC_GSSP, true, 0.3, 8));
    add(of(ECHI_SYNC_ASP, false, 0.5, 1));
    find("", &found);
    assert_int_equal(found.evidence.count, 3);
    assert_int_equal(found.runs, 6);
}

static void other_runs_tell_nothing(void **state) {
    (void)state;
    struct echi_curves_found found;
    curves.count = 0;
    add(of(ECHI_SYNC_BSP, false, 1, 0));
    struct echi_curve_run run = of(ECHI_SYNC_GSSP, false, 0.8, 2);
    run.task[0] = 'f';
    add(run);
    run = of(ECHI_SYNC_GSSP, false, 0.8, 2);
    run.policy.staleness = 5;
    add(run);
    run.policy = of(ECHI_SYNC_GSSP, false, 0.8, 2).policy;
    run.policy.damping = 0.5;
    add(run);
    find("", &found);
    assert_true(found.evidence.count == 0 && found.runs == 3);
    run.policy.damping = 0;
    run.data[0] = '0';
    add(run);
    find("fedcba9876543210", &found);
    assert_int_equal(found.evidence.count, 0);
    find("", &found);   /* of the newest run's data, of which there are no rounds */
    assert_true(found.evidence.count == 0 && found.runs == 1 && found.rounds == 0);
}

static void old_runs_make_room(void **state) {
    (void)state;
    curves.count = 0;
    for (int i = 0; i < 6; i++) {
        struct echi_curve_run run = of(ECHI_SYNC_BSP, false, 1, 0);
        run.round = (uint32_t)i + 1;
        add(run);
    }
    assert_int_equal(curves.count, ECHI_CURVES_ALIKE);
    for (int i = 0; i < ECHI_CURVES_ALIKE; i++) assert_int_equal(curves.run[i].round, i + 3);
    for (int i = 0; i < 40; i++) {
        struct echi_curve_run run = of(ECHI_SYNC_BSP, false, 1, 0);
        snprintf(run.task, sizeof run.task, "%016d", i);
        add(run);
        assert_true(curves.count <= ECHI_CURVES_MAX);
    }
    assert_int_equal(curves.count, ECHI_CURVES_MAX);
    for (int i = 0; i < ECHI_CURVES_MAX; i++) assert_int_equal(atoi(curves.run[i].task), i + 8);
}

/* ---- the file ---- */

static void what_is_saved_is_loaded(void **state) {
    (void)state;
    static struct echi_curves again;
    struct ech_error error;
    curves.count = 0;
    assert_int_equal(echi_curves_load("/nowhere/curves", &again, &error), ECH_OK);
    assert_int_equal(again.count, 0);
    add(of(ECHI_SYNC_BSP, false, 1, 0));
    add(of(ECHI_SYNC_GSSP, true, 0.8, 2.25));
    snprintf(curves.run[0].about, sizeof curves.run[0].about, "a\x1b[31m # b");
    curves.run[1].policy.damping = 0.125;
    assert_int_equal(echi_curves_save(path, &curves, &error), ECH_OK);
    if (echi_curves_load(path, &again, &error) != ECH_OK) fail_msg("%s", error.text);
    assert_int_equal(again.count, 2);
    assert_string_equal(again.run[0].about, "a?[31m ? b");
    for (int i = 0; i < 2; i++) {
        const struct echi_curve_run *a = &curves.run[i], *b = &again.run[i];
        assert_true(strcmp(a->task, b->task) == 0 && strcmp(a->data, b->data) == 0 && echi_curve_policy_same(&a->policy, &b->policy));
        assert_true(a->round == b->round && a->behind == b->behind && a->points == b->points);
        for (int k = 0; k < a->points; k++) assert_true(a->at[k] == b->at[k] && fabs(a->loss[k] / b->loss[k] - 1) < 1e-5);
    }
    assert_int_not_equal(echi_curves_save("/nowhere/curves", &curves, &error), ECH_OK);
    assert_non_null(strstr(error.text, "/nowhere/curves"));
}

static void numbers_have_a_point_everywhere(void **state) {
    (void)state;
    struct ech_error error;
    use_comma_locale();
    curves.count = 0;
    add(of(ECHI_SYNC_GSSP, true, 0.8, 2.25));
    const bool saved = echi_curves_save(path, &curves, &error) == ECH_OK, loaded = echi_curves_load(path, &curves, &error) == ECH_OK;
    setlocale(LC_ALL, "C");
    assert_true(saved && loaded && curves.run[0].behind == 2.25);
}

static const char *const good[] = {"curves 1", "run lenet5 on data/mnist", "task 0123456789abcdef data fedcba9876543210 round 64",
    "policy gssp separated 1 staleness 3 rounds_apart 4 damping 0.5 drop_older 0 weigh_by_time 0", "behind 1.25", "at 32 loss 2.303",
    "at 96 loss 1.5", "run x", "task 0123456789abcdef data fedcba9876543210 round 64",
    "policy bsp separated 0 staleness 0 rounds_apart 0 damping 0 drop_older 0 weigh_by_time 0", "behind 0"};
enum { GOOD = (int)(sizeof good / sizeof good[0]) };

/* The good file with line `line`, from 1, replaced; left out where `text` is NULL. */
static ech_status load_with(int line, const char *text, struct ech_error *error) {
    char bytes[2048] = "";
    for (int i = 0; i < GOOD; i++) {
        if (i + 1 == line && !text) continue;
        strcat(strcat(bytes, i + 1 == line ? text : good[i]), "\n");
    }
    write_bytes(path, bytes, strlen(bytes));
    return echi_curves_load(path, &curves, error);
}

static void refusals_name_the_line(void **state) {
    (void)state;
    struct ech_error error;
    if (load_with(0, NULL, &error) != ECH_OK) fail_msg("%s", error.text);
    assert_true(curves.count == 2 && curves.run[0].points == 2 && curves.run[1].points == 0);
    assert_true(curves.run[0].at[1] == 96 && curves.run[0].loss[1] == 1.5 && curves.run[0].behind == 1.25);
    static const struct { int line; const char *text, *says; int at; } bad[] = {
        {1, "curves 2", "begins with 'curves 1', found '2'", 1}, {1, NULL, "begins with 'curves 1', found 'run'", 1},
        {1, "curves 1 2", "nothing more is expected", 1}, {2, "at 32 loss 2", "'at' is no line of loss curves", 2},
        {2, "rum x", "did you mean 'run'", 2}, {3, NULL, "behind 'run' comes a line like 'task", 3},
        {3, "task 0123456789abcde data fedcba9876543210 round 64", "found '0123456789abcde'", 3},
        {3, "task 0123456789ABCDEF data fedcba9876543210 round 64", "found '0123456789ABCDEF'", 3},
        {3, "task 0123456789abcdef data fedcba9876543210 round 0", "found '0'", 3},
        {3, "task 0123456789abcdef", "found the end of the line", 3}, {4, NULL, "comes a line 'policy'", 4},
        {4, "policy local separated 0", "bsp, asp, ssp or gssp, found 'local'", 4}, {4, "policy", "found the end of the line", 4},
        {4, "policy gssp separated 2", "'separated' with a whole number from 0 to 1, found '2'", 4},
        {4, "policy gssp separated 1 staleness 1.5", "'staleness' with a whole number from 0 to 1000000, found '1.5'", 4},
        {4, "policy gssp separated 1 staleness 3 rounds_apart 4 damping -1", "'damping' with a number from 0 to 1000000", 4},
        {5, "behind 0", "from 0.000001 to 1000000, found '0'", 5}, {5, "behind nan", "found 'nan'", 5},
        {5, NULL, "comes a line 'behind'", 5},
        {6, "at 32", "found the end of the line", 6}, {6, "at 0 loss 1", "a point is written like", 6},
        {6, "at 32 loss 0", "a loss above 0, found '0'", 6}, {6, "at 32 loss 1e999", "a loss above 0", 6},
        {7, "at 32 loss 1", "above those of the line before", 7}, {11, "behind 1", "of 0 rounds under bsp, found '1'", 11}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char where[16];
        snprintf(where, sizeof where, ":%d: ", bad[i].at);
        curves.count = 7;
        if (load_with(bad[i].line, bad[i].text, &error) != ECH_E_FORMAT) fail_msg("case %zu is taken", i);
        if (!strstr(error.text, bad[i].says) || !strstr(error.text, where) || !strstr(error.text, path))
            fail_msg("case %zu: %s", i, error.text);
        assert_int_equal(curves.count, 7);
    }
}

static void there_is_an_end_to_it(void **state) {
    (void)state;
    struct ech_error error;
    static char bytes[16384];
    strcpy(bytes, "curves 1\n");
    for (int i = 1; i <= 6; i++) strcat(strcat(bytes, good[i]), "\n");
    for (int i = 2; i < 129; i++) sprintf(bytes + strlen(bytes), "at %d loss 1\n", 64 * i);
    write_bytes(path, bytes, strlen(bytes));
    assert_int_equal(echi_curves_load(path, &curves, &error), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, "at most 128 points"));
    strcpy(bytes, "curves 1\n");
    for (int i = 0; i < 33; i++)
        for (int k = 1; k < 5; k++) strcat(strcat(bytes, good[k]), "\n");
    write_bytes(path, bytes, strlen(bytes));
    assert_int_equal(echi_curves_load(path, &curves, &error), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, "at most 32 runs"));
}

/* ---- bins while a run goes ---- */

/* Whatever the sizes of leases, each sample is in the bin of its place, and bins double when a run outgrows them. */
static void bins_hold_every_sample(void **state) {
    (void)state;
    echi_random_init(&dice, 9, ECHI_STREAM_TEST, 0);
    for (int run = 0; run < 20; run++) {
        struct echi_curve c = {0};
        const uint32_t round = 1 + echi_random_below(&dice, 100);
        const uint64_t end = (uint64_t)round * (1 + echi_random_below(&dice, 3000));
        uint64_t at = 0, samples = 0;
        double loss = 0;
        while (at < end) {
            const uint32_t n = 1 + echi_random_below(&dice, round);
            at += n;
            echi_curve_add(&c, round, at, 0.5 * n + (double)at, n);
            loss += 0.5 * n + (double)at;
        }
        for (int i = 0; i < ECHI_CURVE_BINS; i++) samples += c.bin[i].samples, loss -= c.bin[i].loss;
        assert_true(samples == at && fabs(loss) < 1e-6 * (double)at * (double)at);
        assert_true(c.width % round == 0 && (c.width == round || at > c.width * ECHI_CURVE_BINS / 2));
        for (int i = 0; i < ECHI_CURVE_BINS; i++) {   /* leases may reach over a bin's end, by less than a round */
            const uint64_t full = at > c.width * (uint64_t)(i + 1) ? c.width : at > c.width * (uint64_t)i ? at - c.width * (uint64_t)i : 0;
            assert_true(c.bin[i].samples < full + round && c.bin[i].samples + round > full);
        }
    }
    struct echi_curve even = {0};   /* leases that end with bins fill them */
    for (uint64_t at = 64; at <= 64 * 200; at += 64) echi_curve_add(&even, 64, at, (double)at, 64);
    assert_int_equal(even.width, 128);
    for (int i = 0; i < ECHI_CURVE_BINS; i++) {
        assert_int_equal(even.bin[i].samples, i < 100 ? 128 : 0);
        assert_true(even.bin[i].loss == (i < 100 ? 128 * 2 * i + 64 * 3 : 0));
    }
    struct echi_curve c = {0};
    echi_curve_add(&c, 64, UINT64_MAX / 2, 1, 64);   /* a run that went on from far away */
    echi_curve_add(&c, 64, 10, 1, 64);               /* whose samples were taken back */
    assert_true(c.bin[0].samples == 64);
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/echelon-curves-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ratios_are_those_of_the_curves), cmocka_unit_test(noise_is_told_of),
        cmocka_unit_test(what_cannot_be_compared_is_not), cmocka_unit_test(a_plateau_counts),
        cmocka_unit_test(nothing_is_made_up),
        cmocka_unit_test(policies_are_compared_with_rounds), cmocka_unit_test(other_runs_tell_nothing),
        cmocka_unit_test(old_runs_make_room),
        cmocka_unit_test(refusals_name_the_line), cmocka_unit_test(there_is_an_end_to_it), cmocka_unit_test(bins_hold_every_sample),
        cmocka_unit_test(what_is_saved_is_loaded), cmocka_unit_test(numbers_have_a_point_everywhere),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
