/* SPDX-License-Identifier: Apache-2.0
 * Speeds while a run goes, against a second way to compute them; and when a worker is moved: what lasts within the stated number of
 * steps, what passes never, and always the move that brute force finds the best. */
#include "echi_random.h"
#include "echi_regroup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct echi_random drawn;
static void seed(uint64_t number) { echi_random_init(&drawn, number, ECHI_STREAM_TEST, 5); }

/* Lognormal with this sigma, from twelve uniform numbers. */
static double jitter(double sigma) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += echi_random_unit(&drawn);
    return exp(sigma * sum);
}
static double spiky(double sigma) { return jitter(sigma) * (echi_random_below(&drawn, 50) == 0 ? 5 : 1); }

/* ---- the average ---- */

static int ascending(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

/* What the header says, from all values: means of eight, at each the median of the last five, three quarters of the way. */
static double by_definition(const double *value, int count) {
    double mean[1000], average = 0;
    for (int w = 0; w < count / ECHI_SPEED_STEPS; w++) {
        double last[ECHI_SPEED_WINDOWS];
        const int n = w + 1 < ECHI_SPEED_WINDOWS ? w + 1 : ECHI_SPEED_WINDOWS;
        mean[w] = 0;
        for (int i = 0; i < ECHI_SPEED_STEPS; i++) mean[w] += value[w * ECHI_SPEED_STEPS + i] / ECHI_SPEED_STEPS;
        memcpy(last, mean + w + 1 - n, (size_t)n * sizeof last[0]);
        qsort(last, (size_t)n, sizeof last[0], ascending);
        const double median = (last[(n - 1) / 2] + last[n / 2]) / 2;
        average = w < ECHI_SPEED_WINDOWS ? median : average + 0.75 * (median - average);
    }
    return average;
}

static void an_average_is_what_it_says(void **state) {
    (void)state;
    double value[400];
    for (uint64_t run = 1; run <= 200; run++) {
        struct echi_speed s = {0};
        seed(run);
        for (int i = 0; i < 400; i++) {
            value[i] = spiky(0.5);
            echi_speed_add(&s, value[i]);
            assert_true(fabs(s.average - by_definition(value, i + 1)) < 1e-12 * s.average || i + 1 < ECHI_SPEED_STEPS);
            assert_int_equal(echi_speed_known(&s), i + 1 >= ECHI_SPEED_STEPS * ECHI_SPEED_WINDOWS);
        }
    }
}

static void feed(struct echi_speed *s, double value, int times) {
    while (times-- > 0) echi_speed_add(s, value);
}

static void spikes_do_not_move_it(void **state) {
    (void)state;
    for (int phase = 0; phase < ECHI_SPEED_STEPS; phase++) {
        struct echi_speed s = {0};
        feed(&s, 1, 64 + phase);
        feed(&s, 1e6, ECHI_SPEED_SPIKE);
        for (int i = 0; i < 100; i++) {
            feed(&s, 1, 1);
            assert_true(s.average == 1);
        }
    }
    /* One step in fifty five times as long, and jitter: rarely. */
    for (uint64_t run = 1; run <= 20; run++) {
        struct echi_speed s = {0};
        int away = 0;
        seed(run);
        for (int i = 0; i < 20000; i++) {
            echi_speed_add(&s, spiky(0.15));
            away += echi_speed_known(&s) && (s.average > ECHI_REGROUP_RATIO || s.average < 1 / ECHI_REGROUP_RATIO);
        }
        assert_true(away < 20000 / 20);
    }
}

static void a_lasting_change_is_followed(void **state) {
    (void)state;
    static const double to[] = {0.2, 0.7, 1.5, 4, 100};
    for (int phase = 0; phase < ECHI_SPEED_STEPS; phase++)
        for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
            struct echi_speed s = {0};
            feed(&s, 1, 80 + phase);
            feed(&s, to[i], ECHI_SPEED_FOLLOWS);
            assert_true(fabs(s.average - to[i]) <= 0.1 * fabs(to[i] - 1));
        }
}

/* A machine with a quota of its processor: five steps at full speed, then it stands still. */
static void bursts_count_in_full(void **state) {
    (void)state;
    struct echi_speed s = {0};
    for (int i = 0; i < 3000; i++) {
        echi_speed_add(&s, i % 6 == 5 ? 50 : 1);
        if (i > 100) assert_true(s.average > 0.6 * 55 / 6 && s.average < 1.5 * 55 / 6);
    }
}

/* ---- the decision ---- */

enum { AFTER = 1000000 };   /* ns; a step of length 1 takes a millisecond */

static struct echi_plan plan;
static struct echi_regroup regroup;
static uint32_t size[ECHI_WORLD_MAX];
static double step_time[ECHI_WORLD_MAX], spent[ECHI_WORLD_MAX];   /* ms; ns that its steps have taken */
/* In proportion to the samples. */
static const struct echi_times measured = {.count = 2, .n = {16, 64}, .trunk = {0.25, 1}, .head = {0}};

/* Workers of these groups, 64 samples each. */
static void cluster(const char *groups) {
    memset(&plan, 0, sizeof plan);
    plan.sync = ECHI_SYNC_GSSP;
    plan.flights = 1;
    plan.round = 64;
    for (; groups[plan.world]; plan.world++) {
        const uint8_t group = (uint8_t)(groups[plan.world] - '0');
        plan.group_of[plan.world] = group;
        plan.owner_of[group] = (uint8_t)plan.world;
        if (group >= plan.n_groups) plan.n_groups = (uint8_t)(group + 1);
        plan.n[plan.world] = size[plan.world] = 64;
    }
    echi_regroup_init(&regroup, plan.world, AFTER);
}
/* One step of each worker, `noise` of whose time is jitter and spikes; the first change that is asked for is made. */
static struct echi_change all_step(bool noise) {
    struct echi_change made = {0};
    for (int r = 0; r < plan.world; r++) {
        const double time = step_time[r] * (noise ? spiky(0.15) : 1) * 1e6;
        spent[r] += time;
        const struct echi_change c = echi_regroup_step(&regroup, &plan, size, r, &measured, time * 0.75, time * 0.25);
        if (c.kind == ECHI_CHANGE_NONE || made.kind != ECHI_CHANGE_NONE) continue;
        made = c;
        if (c.kind == ECHI_CHANGE_GROUP) echi_plan_move(&plan, c.rank, c.to);
        else size[c.rank] = c.n;
        echi_regroup_done(&regroup, &plan, &c);
    }
    return made;
}
static void nothing_for(int steps, bool noise) {
    while (steps-- > 0) {
        const struct echi_change c = all_step(noise);
        if (c.kind != ECHI_CHANGE_NONE)
            fail_msg("%g s, rank %d from %d to %d, ratio %g, gain %g, size %u", spent[2] * 1e-9, c.rank, c.from, c.to, c.ratio, c.gain,
                     c.n);
    }
}
/* How many steps it takes until something is changed, at most `most`. */
static int steps_until(struct echi_change *out, int most, bool noise) {
    for (int i = 1; i <= most; i++)
        if ((*out = all_step(noise)).kind != ECHI_CHANGE_NONE) return i;
    fail_msg("nothing for %d steps", most);
    return 0;
}
static void times(const char *of) {   /* "1 1 4": one a rank */
    for (int r = 0; r < plan.world; r++) step_time[r] = strtod(of, (char **)&of);
}

static void what_lasts_is_answered_in_time(void **state) {
    (void)state;
    static const double factor[] = {1.5, 2, 4, 20};
    for (size_t f = 0; f < sizeof factor / sizeof factor[0]; f++)
        for (int noise = 0; noise < 2; noise++)
            for (int phase = 0; phase < 16; phase++) {
                struct echi_change c;
                seed(100 + (uint64_t)phase);
                cluster("000011");
                times("1 1 1 1 1 1");
                step_time[4] = step_time[5] = factor[f];
                nothing_for(200 + phase, noise);
                step_time[2] = factor[f];
                const int steps = steps_until(&c, ECHI_REGROUP_WITHIN + (noise ? (factor[f] < 2 ? 600 : 40) : 0), noise);
                assert_true(steps > ECHI_REGROUP_PASSING);
                assert_true(c.kind == ECHI_CHANGE_GROUP && c.rank == 2 && c.from == 0 && c.to == 1);
                nothing_for(ECHI_REGROUP_COOL + 40, noise);
                step_time[2] = 1;   /* and back, for the same reason */
                steps_until(&c, ECHI_REGROUP_WITHIN + (noise ? (factor[f] < 2 ? 600 : 40) : 0), noise);
                assert_true(c.kind == ECHI_CHANGE_GROUP && c.rank == 2 && c.to == 0);
                nothing_for(300, noise);
            }
}

static void what_passes_moves_nobody(void **state) {
    (void)state;
    for (int phase = 0; phase < ECHI_SPEED_STEPS; phase++)
        for (int slow = 1; slow <= ECHI_REGROUP_PASSING; slow++)
            for (int factor = 2; factor <= 2000; factor *= 10) {
                cluster("000011");
                times("1 1 1 1 5 5");
                nothing_for(100 + phase, false);
                step_time[2] = factor;
                nothing_for(slow, false);
                step_time[2] = 1;
                nothing_for(200, false);
            }
    for (uint64_t run = 1; run <= 10; run++) {
        seed(run);
        cluster("0001110022");
        times("1 1 1 2 2 2 1 1 4 4");
        nothing_for(10000, true);
    }
}

/* Short steps must be unlike the others' for as long as was asked for, however many they are. */
static void it_must_last_in_time_as_well(void **state) {
    (void)state;
    struct echi_change c;
    cluster("0011");
    times("1 1 4 4");
    regroup.after = 2e9;
    nothing_for(100, false);
    step_time[1] = 4;
    const int steps = steps_until(&c, 600, false);
    assert_in_range(steps, 500, 520);   /* of 4 ms */
    assert_int_equal(c.rank, 1);
}

/* Five seconds of four times as long, with steps of any length, move nobody; what lasts is answered after six of them, or 72 steps. */
static void five_seconds_move_nobody(void **state) {
    (void)state;
    static const double length[] = {0.5, 2, 8, 20, 25, 64, 250, 1000};   /* ms */
    for (size_t i = 0; i < sizeof length / sizeof length[0]; i++)
        for (int noise = 0; noise < 2; noise++)
            for (int phase = 0; phase < ECHI_SPEED_STEPS; phase++) {
                struct echi_change c;
                const double slow = 4 * length[i];
                const int lasting = (int)(6000 / slow) + 2 * ECHI_SPEED_STEPS;
                seed(200 + (uint64_t)phase);
                cluster("000011");
                regroup.after = (double)ECHI_REGROUP_AFTER;
                for (int r = 0; r < 6; r++) step_time[r] = r < 4 ? length[i] : slow;
                nothing_for(200 + phase, noise);
                step_time[2] = slow;
                for (const double until = spent[2] + 5e9 - slow * 1e6; spent[2] < until;) nothing_for(1, noise);
                step_time[2] = length[i];
                nothing_for(400, noise);
                step_time[2] = slow;
                steps_until(&c, (lasting > ECHI_REGROUP_WITHIN ? lasting : ECHI_REGROUP_WITHIN) + (noise ? 40 : 0), noise);
                assert_true(c.kind == ECHI_CHANGE_GROUP && c.rank == 2 && c.to == 1);
            }
}

static void a_changed_worker_is_left_alone_for_a_while(void **state) {
    (void)state;
    struct echi_change c;
    cluster("0011");
    times("1 4 4 4");
    steps_until(&c, 200, false);
    assert_int_equal(c.rank, 1);
    step_time[1] = 1;
    const int steps = steps_until(&c, 2 * ECHI_REGROUP_COOL, false);
    assert_int_equal(c.rank, 1);
    assert_int_equal(c.to, 0);
    assert_in_range(steps, ECHI_REGROUP_COOL, ECHI_REGROUP_COOL + ECHI_REGROUP_WITHIN);
}

/* The last of these groups is a reserve, which nobody is in. */
static void with_reserve(const char *groups) {
    cluster(groups);
    plan.owner_of[plan.n_groups++] = 0;
    plan.reserve = 1;
}

/* Whoever falls behind all others gets a group of its own, and returns when it is as fast as some group again. */
static void a_late_one_drops_out_and_returns(void **state) {
    (void)state;
    static const char *const of[][2] = {{"0000", "1 1 1 1"}, {"00001111", "1 1 1 1 4 4 4 4"}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        for (int noise = 0; noise < 2; noise++)
            for (int back = 0; back <= (int)i; back++) {   /* as fast as the group that it was in, or as the other */
                struct echi_change c;
                seed(300 + i);
                with_reserve(of[i][0]);
                times(of[i][1]);
                nothing_for(400, noise);
                step_time[1] = 16;
                steps_until(&c, ECHI_REGROUP_WITHIN + (noise ? 40 : 0), noise);
                assert_true(c.kind == ECHI_CHANGE_GROUP && c.rank == 1 && c.to == plan.n_groups - 1 && c.gain > ECHI_REGROUP_GAIN);
                nothing_for(2000, noise);
                step_time[1] = back ? 4 : 1;
                steps_until(&c, ECHI_REGROUP_WITHIN + (noise ? 600 : 0), noise);
                assert_true(c.kind == ECHI_CHANGE_GROUP && c.rank == 1 && c.from == plan.n_groups - 1 && c.to == back);
                assert_true(c.gain >= -ECHI_REGROUP_BACK);
                nothing_for(400, noise);
            }
}

/* It is for those who are slower than their group, and for whom no other group is as good. */
static void the_reserve_is_the_last_resort(void **state) {
    (void)state;
    struct echi_change c;
    with_reserve("0000");
    times("4 4 4 1");
    nothing_for(1000, false);
    with_reserve("000011");
    times("1 1 1 1 4 4");
    nothing_for(100, false);
    step_time[2] = 4.1;
    steps_until(&c, ECHI_REGROUP_WITHIN, false);
    assert_int_equal(c.to, 1);
    with_reserve("0000");   /* whose owner is lost */
    times("1 1 1 9");
    plan.owner_of[1] = 2;
    plan.lost[2] = 1;
    nothing_for(1000, false);
}

/* Nowhere is a better place: alone, with like ones, or where all others are faster. */
static void nobody_moves_for_nothing(void **state) {
    (void)state;
    static const char *const of[][2] = {{"01", "1 9"}, {"0000", "1 1 1 9"}, {"0001111", "1 1 9 1 1 1 1"}, {"012", "1 1 1"}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        cluster(of[i][0]);
        times(of[i][1]);
        if (i == 2) plan.lost[plan.owner_of[1]] = 1;   /* a group whose owner is lost takes nobody */
        nothing_for(1000, false);
    }
}

/* Samples a nanosecond, straight from the rule. */
static double rate(const struct echi_plan *p) {
    double all = 0;
    for (int g = 0; g < p->n_groups; g++) {
        double samples = 0, longest = 0;
        for (int r = 0; r < p->world; r++) {
            if (p->group_of[r] != g) continue;
            samples += size[r];
            longest = step_time[r] > longest ? step_time[r] : longest;
        }
        all += longest > 0 ? samples / longest : 0;
    }
    return all;
}

/* Or below the inverse: 1.3 times the mean of the others. Of workers that are alike nobody is to be moved. */
static bool unlike_its_group(const struct echi_plan *p, int rank) {
    double sum = 0;
    int count = 0;
    for (int r = 0; r < p->world; r++) {
        if (r == rank || p->group_of[r] != p->group_of[rank]) continue;
        sum += step_time[r];
        count++;
    }
    return count > 0 && (step_time[rank] > ECHI_REGROUP_RATIO * sum / count || sum / count > ECHI_REGROUP_RATIO * step_time[rank]);
}

static void the_best_move_is_found(void **state) {
    (void)state;
    int moved = 0;
    for (uint64_t run = 1; run <= 2000; run++) {
        char groups[12] = "0123";
        seed(run);
        const int world = 6 + (int)echi_random_below(&drawn, 5), n_groups = 2 + (int)echi_random_below(&drawn, 3);
        for (int r = 0; r < world; r++) groups[r] = (char)('0' + (r < n_groups ? r : (int)echi_random_below(&drawn, (uint32_t)n_groups)));
        groups[world] = 0;
        cluster(groups);
        for (int r = 0; r < world; r++) {
            step_time[r] = 1 + echi_random_below(&drawn, 40) * 0.1;
            plan.n[r] = size[r] = 16 * (1 + echi_random_below(&drawn, 4));
        }
        for (int i = 0; i < 200; i++) {
            const struct echi_plan before = plan;
            const double was = rate(&before);
            const struct echi_change c = all_step(false);
            if (c.kind == ECHI_CHANGE_NONE) continue;
            assert_int_equal(c.kind, ECHI_CHANGE_GROUP);
            double best = 0;
            for (int r = 0; r < world; r++)
                for (int g = 0; g < n_groups; g++) {
                    struct echi_plan p = before;
                    bool empty = true;
                    for (int q = 0; q < world; q++) empty = empty && p.group_of[q] != g;
                    if (empty || p.group_of[r] != c.from || !unlike_its_group(&p, r)) continue;
                    p.group_of[r] = (uint8_t)g;
                    if (rate(&p) / was - 1 > best) best = rate(&p) / was - 1;
                }
            assert_true(fabs(c.gain - (rate(&plan) / was - 1)) < 1e-9);
            assert_true(c.gain >= ECHI_REGROUP_GAIN && c.gain >= best - 0.03);
            moved++;
            break;
        }
    }
    assert_true(moved > 500);
}

/* One that is as well in this group as in that, by times that are never quite the same, does not go to and fro; the others stay. After
 * k changes it is left alone for 128 x 2^(k - 1) steps, 4,096 at most: 3,968 for the first five. */
static void nobody_goes_to_and_fro(void **state) {
    (void)state;
    enum { STEPS = 20000, MOST = 5 + (STEPS - 3968 + 4095) / 4096 };
    static const double far[] = {1.4, 2, 4}, of_the_way[] = {0.6, 0.9, 1, 1.2, 1.3, 1.4, 1.6, 2, 3};
    int most = 0;
    for (size_t f = 0; f < sizeof far / sizeof far[0]; f++)
        for (size_t w = 0; w < sizeof of_the_way / sizeof of_the_way[0]; w++)
            for (uint64_t run = 1; run <= 2; run++) {
                int moves = 0;
                seed(run);
                cluster("0000111");
                for (int r = 0; r < plan.world; r++) step_time[r] = r < 4 ? 1 : far[f];
                step_time[2] = of_the_way[w];
                if (step_time[2] > 1.5 * far[f]) continue;
                for (int i = 0; i < STEPS; i++) {
                    const struct echi_change c = all_step(true);
                    if (c.kind == ECHI_CHANGE_NONE) continue;
                    assert_int_equal(c.rank, 2);
                    moves++;
                }
                most = moves > most ? moves : most;
            }
    assert_in_range(most, 2, MOST);
}

/* With the head apart n follows the speed, in whole blocks and never beyond what there is room for. */
static void steps_get_the_size_that_fits(void **state) {
    (void)state;
    struct echi_change c;
    cluster("000");
    plan.cut = 1;
    times("1 1 1");
    nothing_for(100, false);
    step_time[1] = 4;
    steps_until(&c, ECHI_REGROUP_WITHIN, false);
    assert_true(c.kind == ECHI_CHANGE_SIZE && c.rank == 1 && c.n == 16);
    step_time[1] = 1;       /* a quarter of the samples */
    nothing_for(ECHI_REGROUP_COOL, false);
    step_time[1] = 0.25;    /* as fast as it was */
    steps_until(&c, ECHI_REGROUP_WITHIN, false);
    assert_true(c.kind == ECHI_CHANGE_SIZE && c.rank == 1 && c.n == 64);
    step_time[1] = 0.5;     /* faster than ever: there is no room for more */
    nothing_for(400, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_average_is_what_it_says), cmocka_unit_test(spikes_do_not_move_it),
        cmocka_unit_test(a_lasting_change_is_followed), cmocka_unit_test(bursts_count_in_full),
        cmocka_unit_test(what_lasts_is_answered_in_time), cmocka_unit_test(what_passes_moves_nobody),
        cmocka_unit_test(it_must_last_in_time_as_well), cmocka_unit_test(five_seconds_move_nobody),
        cmocka_unit_test(a_changed_worker_is_left_alone_for_a_while), cmocka_unit_test(a_late_one_drops_out_and_returns),
        cmocka_unit_test(the_reserve_is_the_last_resort), cmocka_unit_test(nobody_moves_for_nothing),
        cmocka_unit_test(nobody_goes_to_and_fro), cmocka_unit_test(the_best_move_is_found), cmocka_unit_test(steps_get_the_size_that_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
