/* SPDX-License-Identifier: Apache-2.0
 * Shards: which plans have them, how parts are dealt to their owners, and which floats a rank keeps then. What the roles make of them:
 * test_sched_roles.c and the seeds. */
#include "echi_plan_file.h"
#include "echi_planner.h"
#include "echi_random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "bsp_plan.h"

enum { LAYERS = 12, WORLD = 6 };
static const uint32_t equal[WORLD] = {4, 4, 4, 4, 4, 4};

static struct echi_times times[ECHI_WORLD_MAX];
static struct echi_plan_request request;

/* Rank r takes 1 + (r + 2) % WORLD tenths: rank 4 is the fastest, then 5, 0, 1, ... */
static void wish(int shards) {
    memset(&request, 0, sizeof request);
    request.world = WORLD;
    request.shards = shards;
    request.layers.count = request.layers.cut = LAYERS;
    for (int i = 0; i < LAYERS; i++) request.layers.params[i] = 100000u + 10000u * (uint32_t)i;
    for (int r = 0; r < WORLD; r++) {
        times[r] = (struct echi_times){.count = 2, .n = {1, 64}};
        for (int i = 0; i < 2; i++) times[r].trunk[i] = 0.1 * (1 + (r + 2) % WORLD) * times[r].n[i];
    }
}

static struct echi_plan divided(int shards) {
    struct echi_plan p = bsp_plan(WORLD, equal);
    wish(shards);
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(echi_plan_valid(&p));
    return p;
}

static void the_fastest_own_about_as_much_each(void **state) {
    (void)state;
    static const uint16_t expected[WORLD] = {0, 4, 5, 1, 2, 3};   /* the owner that the plan has, then by speed */
    for (int shards = 2; shards <= WORLD; shards++) {
        const struct echi_plan p = divided(shards);
        uint64_t has[WORLD] = {0}, all = 0, largest = 0;
        int same = 0;
        assert_int_equal(p.shards, shards);
        assert_memory_equal(p.shard_owner, expected, (size_t)shards * sizeof expected[0]);
        for (int i = 0; i < p.parts.count; i++) {
            has[p.parts.part[i].shard] += p.parts.part[i].count;
            all += p.parts.part[i].count;
            if (p.parts.part[i].count > largest) largest = p.parts.part[i].count;
            same += i > 0 && p.parts.part[i].shard == p.parts.part[i - 1].shard;
        }
        assert_int_equal(p.parts.part[0].shard, 0);
        assert_true(same <= 1);   /* consecutive parts go to different owners, as a rule */
        const uint64_t even = all / (uint64_t)shards;
        for (int k = 0; k < shards; k++) assert_true(has[k] + largest >= even && has[k] <= even + largest);
        plan_comes_back(&p);
    }
}

/* Shards of lost owners go to those of the others that may have them, the one with the least first; a rank then owns several. */
static void lost_shards_get_other_owners(void **state) {
    (void)state;
    struct echi_plan p = bsp_plan(WORLD, equal);
    uint32_t mark[ECHI_WORLD_MAX] = {0};
    wish(4);
    request.shard_rank_given = true;
    for (int k = 0; k < 4; k++) request.shard_rank[k] = (uint16_t)((k + 3) % 4);   /* 3, 0, 1, 2 */
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(p.shards == 4 && echi_plan_outlives_owners(&p) && !echi_plan_orphaned(&p));
    echi_plan_lose(&p, 3);
    echi_plan_lose(&p, 1);
    assert_true(echi_plan_orphaned(&p) && echi_plan_can_lose(&p, 2));
    mark[0] = mark[1] = mark[4] = 1;   /* 1 is lost, and 4 owns nothing; 2 lacks the weights */
    assert_true(echi_plan_take_over(&p, mark) == 5 && !echi_plan_orphaned(&p));
    assert_true(p.owner_of[0] == 0 && p.shard_owner[0] == 0 && p.shard_owner[1] == 0 && p.shard_owner[2] == 0 && p.shard_owner[3] == 2);
    assert_true(echi_plan_shards_of(&p, 0) == 7 && echi_plan_shard_owned(&p, 0) == 0 && echi_plan_shards_of(&p, 1) == 0);
    assert_true(echi_plan_leads_shard(&p, 0, 0) && !echi_plan_leads_shard(&p, 0, 1) && echi_plan_leads_shard(&p, 0, 3));
    for (int i = 0; i < p.parts.count; i++) {
        const int owner = p.parts.part[i].shard == 3 ? 2 : 0;
        for (int r = 0; r < WORLD; r++) assert_int_equal(echi_plan_owns_part(&p, r, i), r == owner);
    }
    mark[2] = 1;
    p.shard_owner[0] = p.owner_of[0] = 3;
    assert_true(echi_plan_take_over(&p, mark) == 1 && p.owner_of[0] == 2);   /* it has less than rank 0 */
}

static void who_was_named_owns(void **state) {
    (void)state;
    struct echi_plan p = bsp_plan(WORLD, equal);
    wish(3);
    request.shard_rank_given = true;
    request.shard_rank[0] = 3, request.shard_rank[1] = 0, request.shard_rank[2] = 5;
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(echi_plan_valid(&p) && p.shards == 3 && p.owner_of[0] == 3 && p.shard_owner[1] == 0 && p.shard_owner[2] == 5);
    for (int r = 0; r < WORLD; r++) assert_int_equal(echi_plan_hosts(&p, r, ECHI_ROLE_OWNER), r == 0 || r == 3 || r == 5);
    for (int r = 0; r < WORLD; r++) assert_int_equal(echi_plan_can_lose(&p, r), r != 0);   /* rank 0 is left, which works and owns */
    p.sync_norm = 1;
    for (int r = 0; r < WORLD; r++) assert_int_equal(echi_plan_can_lose(&p, r), r != 0 && r != 3 && r != 5);
    p.sync_norm = 0;
    p.shard_owner[1] = 1;   /* each owner has two heirs */
    for (int r = 0; r < WORLD; r++) assert_int_equal(echi_plan_can_lose(&p, r), r != 0);
    p.group_of[3] = p.group_of[5] = ECHI_NONE;   /* one works, too: the heir of the others, and has none */
    for (int r = 0; r < WORLD; r++) assert_int_equal(echi_plan_can_lose(&p, r), r != 0 && r != 1);
    assert_false(echi_plan_outlives_owners(&p));
    /* Of those that are gone before there is a plan none owns, and one alone owns all. */
    p = bsp_plan(WORLD, equal);
    request.absent[3] = request.absent[5] = true;
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(echi_plan_valid(&p) && p.shards == 0 && p.owner_of[0] == 0);
}

/* ----- by links */

/* A step in models over bytes a second, of a rank with so much of it: what it sends is what it gets. */
static double seconds(const struct echi_plan *p, int rank, double share) {
    int workers = 0;
    for (int r = 0; r < p->world; r++) workers += p->n[r] > 0;
    const double own = p->n[rank] > 0 ? 1 - share : 0, others = (workers - (p->n[rank] > 0)) * share;
    return (own + others) / echi_link_slower(&times[rank].link);
}
static double longest(const struct echi_plan *p, const double *share_of_rank) {
    double most = 0;
    for (int r = 0; r < p->world; r++) most = fmax(most, seconds(p, r, share_of_rank[r]));
    return most;
}
/* The best of all divisions into pieces among the ranks from `rank` on. */
enum { PIECES = 24 };
static double best_division(const struct echi_plan *p, double *share_of_rank, int rank, int left) {
    double best = INFINITY;
    if (rank == p->world - 1) {
        share_of_rank[rank] = (double)left / PIECES;
        return longest(p, share_of_rank);
    }
    for (int n = 0; n <= left; n++) {
        share_of_rank[rank] = (double)n / PIECES;
        best = fmin(best, best_division(p, share_of_rank, rank + 1, left - n));
    }
    return best;
}

/* No division in pieces is better, and none is missed by more than a piece. */
static void shares_make_the_longest_link_shortest(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        const int world = 3 + (int)(seed % 3);
        struct echi_random random;
        uint32_t n[5];
        echi_random_init(&random, seed, ECHI_STREAM_TEST, 0);
        for (int r = 0; r < world; r++) n[r] = r > 0 && echi_random_below(&random, 5) == 0 ? 0 : 4;
        struct echi_plan p = bsp_plan(world, n);
        double share[ECHI_SHARDS_MAX], of_rank[5] = {0}, tried[5], all = 0;
        int workers = 0;
        for (int r = 0; r < world; r++) {
            workers += n[r] > 0;
            times[r].link = echi_link_of(1 + (double)echi_random_below(&random, 20));
            p.shard_owner[p.shards++] = (uint16_t)r;
        }
        echi_plan_shard_shares(&p, times, share);
        for (int k = 0; k < p.shards; k++) all += of_rank[p.shard_owner[k]] = share[k];
        assert_true(fabs(all - 1) < 1e-9);
        if (workers < 3) continue;
        const double has = longest(&p, of_rank), best = best_division(&p, tried, 0, PIECES);
        double piece = 0;
        for (int r = 0; r < world; r++) piece = fmax(piece, world / (PIECES * echi_link_slower(&times[r].link)));
        if (has > best * (1 + 1e-9) || has + piece < best) fail_msg("seed %d: %g, the best in pieces %g", (int)seed, has, best);
    }
}

/* Eight hosts, one of them with half the rate: its own gradients alone take it as long as the others need for 1/6 each and more. */
static void who_has_a_thin_link_owns_nothing(void **state) {
    (void)state;
    static const uint32_t n[8] = {4, 4, 4, 4, 4, 4, 4, 4};
    for (int slow = 0; slow < 8; slow++) {
        struct echi_plan p = bsp_plan(8, n);
        wish(8);
        request.world = 8;
        times[6] = times[7] = times[5];
        for (int r = 0; r < 8; r++) times[r].link = echi_link_of(r == slow ? 0.5e8 : 1e8);
        echi_plan_divide(&request, times, &p);
        echi_plan_parts(&request, times, &p);
        assert_true(echi_plan_valid(&p) && p.shards == 7 && p.owner_of[0] == p.shard_owner[0]);
        for (int k = 0; k < p.shards; k++) assert_true(p.shard_owner[k] != slow);
    }
}

/* Named ones own something, and of more than are wished for those with the fastest links own. */
static void links_choose_owners(void **state) {
    (void)state;
    struct echi_plan p = bsp_plan(WORLD, equal);
    uint64_t has[WORLD] = {0};
    wish(2);
    for (int r = 0; r < WORLD; r++) times[r].link = echi_link_of(r == 3 || r == 0 ? 1e8 : 0.9e8);
    times[3].link.in.lowest = times[3].link.out.lowest = 0.95e8;
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(echi_plan_valid(&p) && p.shards == 2 && p.shard_owner[0] + p.shard_owner[1] == 3);
    p = bsp_plan(WORLD, equal);
    request.shard_rank_given = true;
    request.shard_rank[0] = 1, request.shard_rank[1] = 2;
    times[1].link = echi_link_of(1e6);
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(echi_plan_valid(&p) && p.shards == 2);
    for (int i = 0; i < p.parts.count; i++) has[p.shard_owner[p.parts.part[i].shard]] += p.parts.part[i].count;
    assert_true(has[1] > 0 && has[1] < has[2]);
}

/* No more shards than parts, none for one node, and none where they are not built. */
static void shards_are_as_many_as_can_be(void **state) {
    (void)state;
    struct echi_plan p = bsp_plan(WORLD, equal);
    wish(6);
    request.layers.count = request.layers.cut = 1;
    request.layers.params[0] = 3;
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(echi_plan_valid(&p) && p.shards == 3 && p.parts.count == 3);
    p = bsp_plan(WORLD, equal);
    request.layers.params[0] = 1;
    echi_plan_divide(&request, times, &p);
    echi_plan_parts(&request, times, &p);
    assert_true(echi_plan_valid(&p) && p.shards == 0 && p.parts.count == 1);
    for (int how = 0; how < 2; how++) {
        p = bsp_plan(WORLD, equal);
        wish(3);
        if (how == 0) p.sync = ECHI_SYNC_ASP;
        else p.codec = ECHI_CODEC_TOPK;
        echi_plan_divide(&request, times, &p);
        assert_int_equal(p.shards, 0);
    }
}

static void plans_whose_shards_make_no_sense(void **state) {
    (void)state;
    for (int how = 0; how < 9; how++) {
        struct echi_plan p = divided(3);
        uint8_t bytes[ECHI_PLAN_BYTES_MAX];
        struct echi_plan back;
        switch (how) {
        case 0: p.shards = 1; break;
        case 1: p.shards = 2; break;                          /* a part is of a third, and its owner is still there */
        case 2: p.shard_owner[2] = WORLD; break;
        case 3: p.shard_owner[2] = p.shard_owner[1]; break;
        case 4: p.shard_owner[0] = p.shard_owner[1], p.shard_owner[1] = 0; break;   /* not the group's owner first */
        case 5: p.parts.part[0].shard = 1; break;
        case 6: p.parts.part[3].shard = 3; break;
        case 7:
            for (int i = 0; i < p.parts.count; i++) p.parts.part[i].shard = p.parts.part[i].shard == 2 ? 1 : p.parts.part[i].shard;
            break;
        case 8: p.sync = ECHI_SYNC_ASP; break;
        }
        if (echi_plan_valid(&p)) fail_msg("%d", how);
        assert_false(echi_plan_decode(bytes, echi_plan_encode(&p, bytes, sizeof bytes), &back));
    }
    /* What is behind a cut is the head's. */
    struct echi_plan p = divided(3);
    struct echi_layers l = request.layers;
    struct echi_part_fault fault;
    char text[200];
    l.cut = LAYERS - 1;
    assert_false(echi_parts_fit(&p.parts, &l, l.cut, &fault));
    echi_parts_sentence(&p.parts, &fault, text, sizeof text);
    if (!strstr(text, "head")) fail_msg("%s", text);
}

/* Each float is one rank's. An owner sends the coordinator its own parts, and of its momentum what is of these is taken. */
static void each_float_has_one_owner(void **state) {
    (void)state;
    enum { FLOATS = 4096 };
    static float sent[WORLD][3 * FLOATS], taken[3 * FLOATS];
    struct echi_random random;
    echi_random_init(&random, 7, ECHI_STREAM_TEST, 1);
    for (int round = 0; round < 40; round++) {
        struct echi_plan p = bsp_plan(WORLD, equal);
        struct echi_job job = {.n_layers = 1, .n_params = FLOATS};
        const bool adam = round % 2, momentum = round % 4 > 1;
        p.optimizer = adam ? ECHI_OPTIMIZER_ADAM : ECHI_OPTIMIZER_SGD;
        p.shards = (uint8_t)(2 + echi_random_below(&random, WORLD - 1));
        for (int k = 0; k < p.shards; k++) p.shard_owner[k] = (uint16_t)k;
        for (uint32_t at = 0, n; at < FLOATS; at += n) {
            n = 1 + echi_random_below(&random, 400);
            if (n > FLOATS - at) n = FLOATS - at;
            const int i = p.parts.count++;
            p.parts.part[i] = (struct echi_part){.at = at, .count = n};
            p.parts.part[i].shard = (uint8_t)(i < p.shards ? i : (int)echi_random_below(&random, p.shards));
        }
        uint8_t kept[FLOATS] = {0};
        memset(taken, 0, sizeof taken);
        for (int r = 0; r < p.shards; r++) {
            struct echi_range range[ECHI_PARTS_MAX];
            size_t at, len;
            struct echi_msg m = {.kind = ECHI_KIND_PARAMS, .from_role = ECHI_ROLE_OWNER,
                                 .flag = momentum ? ECHI_PARAMS_MOMENTUM : ECHI_PARAMS_KEPT};
            const int ranges = echi_job_ranges(&job, &p, r, false, range);
            for (int i = 0; i < ranges; i++)
                for (size_t k = range[i].at; k < range[i].at + range[i].count; k++) {
                    assert_true(k < FLOATS && p.parts.part[0].count > 0);
                    kept[k]++;
                }
            for (int i = 0; i < 3 * FLOATS; i++) sent[r][i] = (float)(r + 1);
            for (int i = 0; i < (momentum ? 1 : p.parts.count); i++) {
                if (!momentum && !echi_plan_owns_part(&p, r, i)) continue;
                m.part = (uint16_t)i;
                echi_job_extent(&job, &p, ECHI_KIND_PARAMS, &m, false, &at, &len);
                assert_true(momentum || (at == p.parts.part[i].at * sizeof(float) && len == p.parts.part[i].count * sizeof(float)));
                echi_job_take_params(&job, &p, r, &m, (uint8_t *)sent[r] + at, taken);
            }
        }
        struct echi_memory memory;
        echi_job_memory(&job, &p, p.optimizer, false, &memory);
        for (int i = 0; i < p.parts.count; i++)
            for (uint64_t k = p.parts.part[i].at; k < p.parts.part[i].at + p.parts.part[i].count; k++) {
                const float owner = (float)(p.parts.part[i].shard + 1);
                assert_int_equal(kept[k], 1);
                if (taken[(momentum ? memory.first : 0) + k] != owner) fail_msg("float %d of round %d", (int)k, round);
                if (momentum && adam && taken[memory.second + k] != owner) fail_msg("second moment %d of round %d", (int)k, round);
            }
    }
}

static void numbers_and_lists_of_ranks(void **state) {
    (void)state;
    static const struct { const char *shards, *sync, *word; } cases[] = {
        {"auto", "gssp", NULL}, {"1", "gssp", NULL}, {"4", "bsp", NULL}, {"0,3", "bsp", NULL}, {"3,0,1", "bsp", NULL},
        {"2", "gssp", "under bsp only"}, {"5", "bsp", "at most one a node"}, {"0,4", "bsp", "names rank 4"}, {"1,1", "bsp", "twice"},
        {"0", "bsp", "from 1 to 64"}, {"", "bsp", "from 1 to 64"}, {"1,", "bsp", "from 1 to 64"}, {"-2", "bsp", "from 1 to 64"},
        {"all", "bsp", "from 1 to 64"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ech_config c;
        struct ech_error err = {0};
        ech_config_init(&c);
        c.world = 4;
        strcpy(c.coordinator, "h:1");
        strcpy(c.sync, cases[i].sync);
        ech_status status = ech_config_set(&c, "shards", cases[i].shards, &err);
        if (status == ECH_OK) status = ech_config_check(&c, &err);
        if ((status == ECH_OK) != !cases[i].word) fail_msg("%s: %s", cases[i].shards, err.text);
        if (cases[i].word && !strstr(err.text, cases[i].word)) fail_msg("%s: '%s'", cases[i].shards, err.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_own_about_as_much_each), cmocka_unit_test(who_was_named_owns),
        cmocka_unit_test(lost_shards_get_other_owners),
        cmocka_unit_test(shares_make_the_longest_link_shortest), cmocka_unit_test(who_has_a_thin_link_owns_nothing),
        cmocka_unit_test(links_choose_owners), cmocka_unit_test(shards_are_as_many_as_can_be),
        cmocka_unit_test(plans_whose_shards_make_no_sense),
        cmocka_unit_test(each_float_has_one_owner),           cmocka_unit_test(numbers_and_lists_of_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
