/* SPDX-License-Identifier: Apache-2.0
 * The ratio policies: the published table, the groups that send less, the closed form, and the bytes they leave of a run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "echi_planner.h"
#include "echi_ratio.h"

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan_request request;

/* One worker a group, of so many images a second, a step of 16 and a link of so many megabits a second (0: not known). */
static struct echi_plan plan_of(enum echi_ratios ratios, int groups, const double *rate, const double *mbits) {
    struct echi_plan p = {.sync = ECHI_SYNC_GSSP, .world = (uint16_t)groups, .n_groups = (uint8_t)groups};
    request = (struct echi_plan_request){.codec = ECHI_CODEC_TOPK, .ratios = ratios, .params = 61706, .trunk_params = 2572};
    for (int g = 0; g < groups; g++) {
        p.group_of[g] = (uint8_t)g;
        p.n[g] = 16;
        times[g] = (struct echi_times){.count = 1, .n = {16}, .trunk = {16 / rate[g]}, .link = echi_link_of(mbits[g] * 1e6 / 8)};
    }
    echi_ratios_plan(&request, times, &p);
    return p;
}
static const double mild[] = {2000, 1590, 1260, 1000}, links[] = {200, 100, 50, 25}, unknown[4];

/* Rows of 0, 1, 2, 3, 4, 5 and 9 completed epochs: fastest, middle, slowest. The table of GDTopK's
 * code (lib/PROTOCOL.md, "Sources"), whose last row is rounded. */
static void the_paper_s_table(void **state) {
    (void)state;
    static const struct { uint32_t epoch; double ratio[3]; } row[] = {
        {0, {0.35, 0.35, 0.35}}, {1, {0.35, 0.35, 0.35}}, {2, {0.25, 0.30, 0.35}}, {3, {0.0625, 0.09, 0.1225}},
        {4, {0.015625, 0.027, 0.042875}}, {5, {0.00390625, 0.0081, 0.01500625}}, {9, {0.00390625, 0.0081, 0.01500625}},
        {4000000000u, {0.00390625, 0.0081, 0.01500625}},
    };
    const struct echi_plan p = plan_of(ECHI_RATIOS_PAPER, 4, mild, links);
    static const int place[] = {0, 1, 1, 2};
    static const uint32_t sample[] = {8000, 9000, 9000, 10000};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        for (int g = 0; g < 4; g++) assert_true(fabs(echi_push_ratio(&p, g, row[i].epoch) - 1e6 * row[i].ratio[place[g]]) <= 1);
    for (int g = 0; g < 4; g++) assert_int_equal(echi_push_sample(&p, g), sample[g]);
    const struct echi_plan one = plan_of(ECHI_RATIOS_PAPER, 1, mild, links), two = plan_of(ECHI_RATIOS_PAPER, 2, mild, links);
    assert_int_equal(one.base[0], 300000);
    assert_true(two.base[0] == 250000 && two.base[1] == 350000);
    const struct echi_plan dense = {.n_groups = 1};
    assert_int_equal(echi_push_ratio(&dense, 0, 7), ECHI_RATIO_ONE);
}

/* Slow links send less; who is slow is read off the links where all are known, else off the groups. */
static void volume_spares_slow_links(void **state) {
    (void)state;
    static const double crossed[] = {25, 100, 50, 200}, like[] = {100, 100, 100, 100};
    struct echi_plan p = plan_of(ECHI_RATIOS_VOLUME, 4, mild, links);
    for (uint32_t epoch = 0; epoch < 10; epoch++)
        for (int g = 1; g < 4; g++) assert_true(echi_push_ratio(&p, g, epoch) <= echi_push_ratio(&p, g - 1, epoch));
    assert_true(p.base[0] == 250000 && p.base[1] == 200000 && p.base[2] == 200000 && p.base[3] == 150000);
    p = plan_of(ECHI_RATIOS_VOLUME, 4, mild, crossed);
    assert_true(p.base[0] == 150000 && p.base[3] == 250000);
    p = plan_of(ECHI_RATIOS_VOLUME, 4, mild, unknown);
    assert_true(p.base[0] == 250000 && p.base[3] == 150000);
    p = plan_of(ECHI_RATIOS_VOLUME, 4, mild, like);
    for (int g = 0; g < 4; g++) assert_int_equal(p.base[g], 200000);
}

/* Seconds of an iteration, by the ratio's own byte count and not by the rule's 8 bytes a value. */
static double iteration(const struct echi_plan *p, int g, const double *mbits) {
    const double bytes = (double)echi_coded_bytes(61706, echi_push_ratio(p, g, 5)) + (double)echi_coded_bytes(61706, p->state_ratio);
    return times[g].trunk[0] + bytes / (mbits[g] * 1e6 / 8);
}

/* Computes r from the formula with the median group's time, in floating point. */
static void balanced_is_the_closed_form(void **state) {
    (void)state;
    const struct echi_plan p = plan_of(ECHI_RATIOS_BALANCED, 4, mild, links);
    double whole[4];
    for (int g = 0; g < 4; g++) {
        const double rate = links[g] * 1e6 / 8;
        whole[g] = 16 / mild[g] + (double)echi_coded_bytes(61706, 80000) / rate + 0.01 * 8 * 61706 / rate;
    }
    /* They rise with g, so the median of four, taken from above, is that of group 2. */
    for (int g = 0; g < 4; g++) {
        const double rate = links[g] * 1e6 / 8, pull = (double)echi_coded_bytes(61706, 80000) / rate;
        double r = (whole[2] - 16 / mild[g] - pull) * rate / (8 * 61706);
        r = r < 0.004 ? 0.004 : r > 0.03 ? 0.03 : r;
        assert_true(fabs(p.base[g] * 1e-6 - r) < 2e-6);
        assert_true(echi_push_ratio(&p, g, 2) == p.base[g] && echi_push_ratio(&p, g, 1) == 200000);
    }
    /* Links that differ by so little that no ratio is clipped: equal iterations, to the bytes that words for places take. */
    static const double even[] = {1600, 1590, 1580, 1570}, near[] = {100, 98, 97, 96};
    const struct echi_plan q = plan_of(ECHI_RATIOS_BALANCED, 4, even, near);
    for (int g = 0; g < 4; g++) {
        assert_true(q.base[g] > 4000 && q.base[g] < 30000);
        assert_true(fabs(iteration(&q, g, near) - iteration(&q, 2, near)) < 1e-5);
    }
    /* The gap between groups is smaller than where all send the middle ratio. */
    struct echi_plan same = q;
    for (int g = 0; g < 4; g++) same.base[g] = 10000;
    assert_true(iteration(&same, 3, near) - iteration(&same, 0, near) > 1e-4);
}

/* The bytes of pushes over ten epochs, warm-up in them, against dense: at most 1/7 under `paper`, 1/10 under the others; with
 * weights and states, of which every 32nd is complete, 1/5. Groups of like throughput, and one that does all the work. */
static void ten_epochs_fit_the_budget(void **state) {
    (void)state;
    for (int policy = 0; policy < ECHI_RATIOS; policy++) {
        double all = 0;
        for (int groups = 1; groups <= 4; groups++) {
            const struct echi_plan p = plan_of((enum echi_ratios)policy, groups, mild, links);
            const double dense = 4.0 * 61706;
            double sum = 0, most = 0;
            for (int g = 0; g < groups; g++) {
                double pushed = 0;
                for (uint32_t epoch = 0; epoch < 10; epoch++)
                    pushed += (double)echi_coded_bytes(61706, echi_push_ratio(&p, g, epoch)) / dense / 10;
                sum += pushed / groups;
                if (pushed > most) most = pushed;
            }
            const double pulled = (double)echi_coded_bytes(61706, p.state_ratio) / dense * 31 / 32 + 1.0 / 32;
            assert_true(sum <= (policy == ECHI_RATIOS_PAPER ? 1.0 / 7 : 1.0 / 10));
            assert_true((sum + pulled) / 2 <= 0.2);
            all = sum > all ? sum : all;
        }
        assert_true(all > 0.05);
    }
    assert_true(echi_whole_due(1) && !echi_whole_due(2) && !echi_whole_due(32) && echi_whole_due(33));
}

/* Bytes as the header of codec.c writes them: 8, values, and places as words, bits or none. */
static void bytes_of_a_message(void **state) {
    (void)state;
    assert_int_equal(echi_coded_bytes(0, 1000000), 8);
    assert_int_equal(echi_coded_bytes(1000, 1), 8 + 8);
    assert_int_equal(echi_coded_bytes(1000, 10000), 8 + 10 * 8);
    assert_int_equal(echi_coded_bytes(1000, 31000), 8 + 31 * 8);
    assert_int_equal(echi_coded_bytes(1000, 32000), 8 + 32 * 4 + 125);
    assert_int_equal(echi_coded_bytes(1000, 1000000), 8 + 4000);
    assert_int_equal(echi_coded_bytes(1000, 970000), 8 + 4000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_paper_s_table),           cmocka_unit_test(volume_spares_slow_links),
        cmocka_unit_test(balanced_is_the_closed_form), cmocka_unit_test(ten_epochs_fit_the_budget),
        cmocka_unit_test(bytes_of_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
