/* SPDX-License-Identifier: Apache-2.0
 * Plan files: what is saved is loaded, every refusal names the file and the line. Files of
 * a stranger are in test/fuzz. */
#include "echi_random.h"
#include "echi_run.h"
#include "text_files.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];
static struct echi_plan plan;
static struct echi_link link_of[ECHI_WORLD_MAX];
static struct ech_error error;

static const char good[] = "# a plan\n"                             /* 1 */
                           "sync gssp\n"                             /* 2 */
                           "world 4\r\n"                             /* 3: as an editor elsewhere leaves it */
                           "round 64   # B\n"                        /* 4 */
                           "\n"                                      /* 5 */
                           "staleness 2\n"                           /* 6 */
                           "rounds_apart 5\n"                        /* 7 */
                           "lr 0.02\n"                               /* 8 */
                           "momentum 0.9\n"                          /* 9 */
                           "decay 1e-4\n"                            /* 10 */
                           "head 2\n"                                /* 11 */
                           "group 0 owner 2 workers 0:8 2:8\n"       /* 12 */
                           "\tgroup 1 owner 1 workers 3:300";        /* 13: no end of line */

static ech_status load(const char *text, size_t len) {
    write_bytes(path, text, len);
    memset(&error, 0, sizeof error);
    return echi_plan_load(path, 2, &plan, link_of, &error);
}

/* A plan's text with more lines, which are refused with these words; why NULL: it is loaded. */
static void load_more(const char *plan_text, const char *more, const char *why) {
    char text[400];
    const int len = snprintf(text, sizeof text, "%s%s", plan_text, more);
    const ech_status status = load(text, (size_t)len);
    if (why ? status != ECH_E_FORMAT || !strstr(error.text, why) : status != ECH_OK) fail_msg("'%s': %d '%s'", more, status, error.text);
}

static void a_plan_file_is_read(void **state) {
    (void)state;
    assert_int_equal(load(good, strlen(good)), ECH_OK);
    assert_true(plan.sync == ECHI_SYNC_GSSP && plan.world == 4 && plan.n_groups == 2 && plan.cut == 2 && plan.head == 2);
    assert_true(plan.round == 64 && plan.staleness == 2 && plan.rounds_apart == 5);
    assert_true(plan.lr == 0.02 && plan.momentum == 0.9 && plan.decay == 1e-4);
    assert_true(plan.owner_of[0] == 2 && plan.owner_of[1] == 1 && plan.owner_of[2] == ECHI_NO_RANK);
    assert_true(plan.group_of[0] == 0 && plan.group_of[1] == ECHI_NONE && plan.group_of[2] == 0 && plan.group_of[3] == 1);
    assert_true(plan.n[0] == 8 && plan.n[1] == 0 && plan.n[2] == 8 && plan.n[3] == 300);
    /* What need not be said: S 3, R 4, no head. */
    static const char little[] = "sync bsp\nworld 1\nround 8\ngroup 0 owner 0 workers 0:8\n";
    assert_int_equal(load(little, strlen(little)), ECH_OK);
    assert_true(plan.staleness == 3 && plan.rounds_apart == 4 && plan.cut == 0 && plan.head == ECHI_NO_RANK);
}

/* Under `local` a worker has steps in a round, and each has: without them, or with a head, it is no plan. */
static void a_local_plan_is_read(void **state) {
    (void)state;
    static const char good_local[] =
        "sync local\nworld 2\nround 64\nouter_lr 0.7\nouter_momentum 0.9\ngroup 0 owner 0 workers 0:32x16 1:8x3\n";
    assert_int_equal(load(good_local, strlen(good_local)), ECH_OK);
    assert_true(plan.n[0] == 32 && plan.inner[0] == 16 && plan.n[1] == 8 && plan.inner[1] == 3 && plan.outer_lr == 0.7 &&
                plan.outer_momentum == 0.9);
    assert_true(echi_plan_round(&plan) == 32 * 16 + 24 && echi_plan_share(&plan, 1) == 24 && echi_plan_step(&plan, 1) == 8);
    /* When rank 0 is lost, rank 1 takes its share in sixteenths of a round, and not in 22 times its own. */
    assert_true(echi_plan_room(&plan, 0) == 32 * 16 && echi_plan_room(&plan, 1) == (32 * 16 + 24 + 15) / 16);
    static const char *const bad[] = {
        "sync local\nworld 2\nround 64\ngroup 0 owner 0 workers 0:32x16 1:8\n",
        "sync local\nworld 2\nround 64\nhead 0\ngroup 0 owner 0 workers 0:32x16 1:8x3\n",
        "sync local\nworld 2\nround 64\ngroup 0 owner 0 workers 0:32x16\ngroup 1 owner 1 workers 1:8x3\n",
        "sync local\nworld 2\nround 64\ngroup 0 owner 0 workers 0:1048576x1024 1:1x1\n",
        "sync local\nworld 2\nround 64\ndeterministic 1\ngroup 0 owner 0 workers 0:32x16 1:8x3\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (load(bad[i], strlen(bad[i])) != ECH_E_FORMAT || !strstr(error.text, "not a whole plan")) fail_msg("%zu: '%s'", i, error.text);
}

/* Parts of a file are taken as they stand; a table with a hole or an overlap is refused by the part's number. */
static void tables_of_parts_are_whole(void **state) {
    (void)state;
    static const char plan_text[] = "sync bsp\nworld 1\nround 8\ngroup 0 owner 0 workers 0:8\n";
    static const struct { const char *more, *why; } table[] = {
        {"part 0 at 0 count 10 layers 0-1 codec dense tolerance 0\npart 1 at 10 count 5 layers 1-3 codec dense tolerance 0\n", NULL},
        {"part 0 at 0 count 10 layers 0-1 codec dense tolerance 0\npart 1 at 9 count 5 layers 2-3 codec dense tolerance 0\n",
         "part 1 begins at parameter 9, but part 0 ends in front of 10"},
        {"part 0 at 0 count 10 layers 0-1 codec dense tolerance 0\npart 1 at 12 count 5 layers 2-3 codec dense tolerance 0\n",
         "part 1 begins at parameter 12: parameters 10 to 11 are in no part"},
        {"part 0 at 1 count 10 layers 0-1 codec dense tolerance 0\n", "parameters 0 to 0 are in no part"},
        {"part 0 at 0 count 10 layers 1-1 codec dense tolerance 0\n", "part 0 has layers 1 to 1"},
        {"part 0 at 0 count 10 layers 0-1 codec dense tolerance 0\npart 1 at 10 count 5 layers 0-3 codec dense tolerance 0\n",
         "part 1 has layers 0 to 3, but the layers up to 1 are in the parts in front of it"},
        {"part 0 at 0 count 10 layers 1-0 codec dense tolerance 0\n", "part 0 has layers 1 to 0"},
        {"part 0 at 0 count 10 layers 0-1 codec dense tolerance 7\n", "part 0 has tolerance 7"},
        {"part 0 at 0 count 10 layers 0-1 codec topk tolerance 0\n", "part 0 has another codec than the plan"},
        {"part 0 at 0 count 0 layers 0-1 codec dense tolerance 0\n", ":5: a part has a number of parameters"},
        {"part 1 at 0 count 10 layers 0-1 codec dense tolerance 0\n", ":5: part 1 stands where part 0 belongs"},
        {"part 0 at 0 count 10 layers 0 codec dense tolerance 0\n", ":5: layers are numbers from 0 to 255"},
        {"part 0 at 0 count 10 layers 0-256 codec dense tolerance 0\n", ":5: layers are numbers from 0 to 255"},
        {"part 0 at 0 count 4294967296 layers 0-1 codec dense tolerance 0\n", ":5: a part has a number of parameters"},
        {"part 256 at 0 count 1 layers 0-1 codec dense tolerance 0\n", ":5: part needs a number from 0 to 255"},
        {"part 0 count 10 layers 0-1\n", ":5: a part is written as in"},
        {"part 0 at 0 count 10 layers 0-1 codec half tolerance 0\n", ":5: a part's codec is"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        load_more(plan_text, table[i].more, table[i].why);
        if (!table[i].why) assert_true(plan.parts.count == 2 && plan.parts.part[1].at == 10 && plan.parts.part[1].last == 3);
    }
    assert_int_equal(load(plan_text, strlen(plan_text)), ECH_OK);   /* an older file */
    assert_int_equal(plan.parts.count, 0);
}

/* Several heads: each names its workers, and each worker has one head. */
static void heads_name_their_workers(void **state) {
    (void)state;
    static const char plan_text[] = "sync bsp\nworld 4\nround 24\nhead 2\ngroup 0 owner 0 workers 0:8 1:6 3:10\n";
    static const struct { const char *more, *why; } table[] = {
        {"heads 2:0,3 1:1\n", NULL},
        {"heads 2:0 1:1 3:3\n", NULL},
        {"heads 2:0,1,3\n", ":6: heads are two or more"},
        {"heads 2:0,3 1\n", ":6: heads are written rank:workers"},
        {"heads 2:0,3 1:\n", ":6: heads are written rank:workers"},
        {"heads 2:0,,3 1:1\n", ":6: heads are written rank:workers"},
        {"heads 2:0,3 1024:1\n", ":6: heads are written rank:workers"},
        {"heads 2:0,3 1:1,0\n", ":6: a worker's rows go to one head"},
        {"heads 2:0 1:1 3:3 4:5 5:6 6:7 7:8 8:9 9:10\n", ":6: there are 8 heads at most"},
        {"heads 2:0,3 1:1\nheads 2:0,3 1:1\n", ":7: this was said before"},
        {"heads 2:0 1:1\n", "'heads' has rank 3 among no head's workers"},
        {"heads 2:0,2,3 1:1\n", "'heads' has rank 2 among its workers, which has no samples"},
        {"heads 2:0,3 1:1,700\n", "'heads' has rank 700 among its workers, which has no samples"},
        {"heads 1:1 2:0,3\n", "the first of 'heads' is rank 1, which is not that of the line 'head'"},
        {"heads 2:0,3 2:1\n", "heads names rank 2 twice"},
        {"heads 2:0,3 5:1\n", "heads names rank 5, but the ranks are 0 to 3"},
        {"heads 2:0,3 1:1\nshadow 1\n", "it has several heads and is with a shadow"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        load_more(plan_text, table[i].more, table[i].why);
        if (i == 0) assert_true(plan.heads == 2 && plan.head_rank[1] == 1 && plan.head_of[1] == 1 && plan.head_of[3] == 0);
    }
}

/* Who owns which part, under bsp with shards. */
static void owners_of_shards_are_named(void **state) {
    (void)state;
    static const struct { const char *shards, *owner, *first, *second, *why; } table[] = {
        {"shards 1,0\n", "1", " shard 0", " shard 1", NULL},
        {"shards 1,2\n", "1", " shard 0", " shard 1", "shards names rank 2, but the ranks are 0 to 1"},
        {"shards 1,1\n", "1", " shard 0", " shard 1", "shards names rank 1 twice"},
        {"shards 1,0\n", "0", " shard 0", " shard 1", "group 0 has owner 0, but the first rank of 'shards' is 1"},
        {"shards 1,0\n", "1", " shard 0", " shard 2", "part 1 is in shard 2, which has no owner: 'shards' names those of shards 0 to 1"},
        {"", "1", " shard 0", " shard 1", "part 1 is in shard 1, but there is no line 'shards'"},
        {"shards 1,0\n", "1", " shard 1", " shard 0", "part 0 is in shard 1, but it belongs to shard 0"},
        {"shards 1,0\n", "1", " shard 0", "", "shard 1, of rank 0, has no part"},
        {"shards 1,0\nexchange ring\n", "1", " shard 0", " shard 1", NULL},
        {"shards 1,0\nexchange star\n", "1", " shard 0", " shard 1", "exchange is server or ring"},
        {"shards 1,0\nexchange ring\nsync_norm 1\n", "1", " shard 0", " shard 1", "not with sync_norm or a head"},
        {"exchange ring\n", "1", "", "", "exchange ring needs shards"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[400];
        const int len = snprintf(text, sizeof text, "sync bsp\nworld 2\nround 8\ngroup 0 owner %s workers 0:4 1:4\n%s"
                                 "part 0 at 0 count 10 layers 0-1 codec dense tolerance 0%s\n"
                                 "part 1 at 10 count 5 layers 1-3 codec dense tolerance 0%s\n",
                                 table[i].owner, table[i].shards, table[i].first, table[i].second);
        const ech_status status = load(text, (size_t)len);
        if (table[i].why ? status != ECH_E_FORMAT || !strstr(error.text, table[i].why) : status != ECH_OK)
            fail_msg("%zu: %d '%s'", i, status, error.text);
    }
}

static void schedules_are_whole(void **state) {
    (void)state;
    static const char plan_text[] = "sync bsp\nworld 1\nround 8\ngroup 0 owner 0 workers 0:8\n";
    static const struct { const char *more; bool good; } table[] = {
        {"", true}, {"schedule step\nlr_steps 1.5,3\nlr_factor 0.1\nwarmup 1\noptimizer nesterov\n", true},
        {"schedule cosine\nlr_epochs 3\n", true},
        {"schedule step\nlr_factor 0.1\n", false}, {"schedule step\nlr_steps 3\n", false},
        {"schedule step\nlr_steps 3,2\nlr_factor 0.1\n", false},
        {"schedule step\nlr_steps 3\nlr_factor 1.5\n", false}, {"lr_steps 3\nlr_factor 0.1\n", false}, {"lr_epochs 3\n", false},
        {"schedule cosine\nlr_steps 3\n", false}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[256];
        const int len = snprintf(text, sizeof text, "%s%s", plan_text, table[i].more);
        const ech_status status = load(text, (size_t)len);
        if (table[i].good ? status != ECH_OK : status != ECH_E_FORMAT || !strstr(error.text, "no whole schedule"))
            fail_msg("%zu: '%s'", i, error.text);
    }
}

static void adam_is_whole(void **state) {
    (void)state;
    static const char plan_text[] = "sync bsp\nworld 1\nround 8\ngroup 0 owner 0 workers 0:8\n";
    static const struct { const char *more; bool good; } table[] = {
        {"optimizer adam\nbeta1 0.9\nbeta2 0.999\nepsilon 1e-8\n", true}, {"optimizer adamw\nbeta1 0\nbeta2 0\nepsilon 1\nmomentum 0\n",
                                                                           true},
        {"optimizer adam\n", false}, {"optimizer adam\nbeta1 0.9\nbeta2 0.999\n", false},
        {"optimizer adam\nbeta1 1\nbeta2 0.999\nepsilon 1e-8\n", false},
        {"optimizer adam\nbeta1 0.9\nbeta2 0.999\nepsilon 1e-8\nmomentum 0.9\n", false}, {"beta1 0.9\n", false},
        {"optimizer nesterov\nepsilon 1e-8\n", false}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[256];
        const int len = snprintf(text, sizeof text, "%s%s", plan_text, table[i].more);
        const ech_status status = load(text, (size_t)len);
        if (table[i].good ? status != ECH_OK : status != ECH_E_FORMAT || !strstr(error.text, "not a whole plan"))
            fail_msg("%zu: '%s'", i, error.text);
    }
}

/* A plan at random, valid. */
static struct echi_plan any_plan(struct echi_random *r) {
    struct echi_plan p = {.sync = (uint8_t)echi_random_below(r, ECHI_SYNCS),
                          .world = (uint16_t)(1 + echi_random_below(r, ECHI_WORLD_MAX)),
                          .n_groups = 1,
                          .head = ECHI_NO_RANK,
                          .round = 1 + echi_random_below(r, 1u << 24),
                          .staleness = echi_random_below(r, 1000001),
                          .rounds_apart = 1 + echi_random_below(r, 1000000),
                          .flights = 1,
                          .lr = echi_random_unit(r),
                          .momentum = echi_random_unit(r) / 3,
                          .decay = echi_random_unit(r) * 1e-9};
    p.optimizer = (uint8_t)echi_random_below(r, ECHI_OPTIMIZERS);
    if (echi_optimizer_adam(p.optimizer)) {
        p.momentum = 0;
        p.adam = (struct echi_adam){echi_random_below(r, 2) * echi_random_unit(r) / 2, echi_random_unit(r) / 2,
                                    1e-12 + echi_random_unit(r) / 3};
    }
    p.schedule = (struct echi_schedule){.kind = (uint8_t)echi_random_below(r, ECHI_SCHEDULES),
                                        .warmup = echi_random_below(r, 2) * echi_random_unit(r)};
    if (p.schedule.kind == ECHI_SCHEDULE_COSINE) p.schedule.epochs = echi_random_unit(r) * 100;
    if (p.schedule.kind == ECHI_SCHEDULE_STEP) {
        p.schedule.factor = 1 - echi_random_unit(r);
        p.schedule.steps = (uint8_t)(1 + echi_random_below(r, ECHI_LR_STEPS_MAX));
        for (int i = 0; i < p.schedule.steps; i++) p.schedule.step[i] = i + 1 - echi_random_unit(r) / 2;
    }
    if (p.sync != ECHI_SYNC_BSP && p.sync != ECHI_SYNC_LOCAL) p.damping = echi_random_unit(r) * 3;
    memset(p.owner_of, 0xff, sizeof p.owner_of);
    memset(p.group_of, ECHI_NONE, sizeof p.group_of);
    if (p.sync == ECHI_SYNC_GSSP)
        p.n_groups = (uint8_t)(1 + echi_random_below(r, p.world < ECHI_GROUPS_MAX ? p.world : ECHI_GROUPS_MAX));
    const bool local = p.sync == ECHI_SYNC_LOCAL;
    if (!local && echi_random_below(r, 2)) {
        p.cut = 1;
        p.flights = (uint8_t)(p.sync == ECHI_SYNC_BSP ? 1 : 1 + echi_random_below(r, ECHI_FLIGHTS));
        p.head = (uint16_t)echi_random_below(r, p.world);
        if (p.sync == ECHI_SYNC_BSP && 2 * p.world <= ECHI_WORLD_MAX && echi_random_below(r, 2))
            p.micro_batches = (uint8_t)(2 + echi_random_below(r, ECHI_MICRO_MAX - 1));
        p.gathers = p.sync == ECHI_SYNC_BSP && !p.micro_batches && echi_random_below(r, 2);
        p.activations = (uint8_t)echi_random_below(r, ECHI_ACTIVATIONS);
        if (p.world > 1 && echi_random_below(r, 2)) p.shadow = (uint16_t)(1 + (p.head + 1 + echi_random_below(r, p.world - 1u)) % p.world);
    }
    const bool plain_asp = p.sync == ECHI_SYNC_ASP && !p.cut;
    p.drop_older = plain_asp && echi_random_below(r, 2) ? echi_random_unit(r) : 0;
    p.outer_lr = local ? echi_random_unit(r) : 0;
    p.outer_momentum = local ? echi_random_unit(r) / 7 : 0;
    uint32_t sum = 0;
    for (int i = 0; i < p.world; i++) {
        if (i >= p.n_groups && echi_random_below(r, 3) == 0) continue;
        p.group_of[i] = (uint8_t)(i < p.n_groups ? i : (int)echi_random_below(r, p.n_groups));
        sum += p.n[i] = 1 + echi_random_below(r, 1u << (local ? 6 : p.sync == ECHI_SYNC_BSP ? 13 : 20));
        p.divisor[i] = plain_asp && echi_random_below(r, 2) ? 1 + echi_random_below(r, 1u << 24) : 0;
        p.inner[i] = local ? 1 + echi_random_below(r, ECHI_INNER_MAX) : 0;
    }
    p.reserve = p.sync == ECHI_SYNC_GSSP && p.n_groups < ECHI_GROUPS_MAX && p.n_groups < p.world && echi_random_below(r, 2);
    p.n_groups = (uint8_t)(p.n_groups + p.reserve);
    for (int g = 0; g < p.n_groups; g++) p.owner_of[g] = (uint16_t)(p.world - 1 - g);
    if (p.sync == ECHI_SYNC_BSP) p.round = sum;
    const int workers = echi_plan_workers(&p, -1), most = workers < ECHI_HEADS_MAX ? workers : ECHI_HEADS_MAX;
    if (p.sync == ECHI_SYNC_BSP && p.cut && p.shadow == 0 && most > 1 && echi_random_below(r, 2)) {
        p.heads = (uint8_t)(2 + echi_random_below(r, (uint32_t)most - 1));
        for (int i = 0; i < p.heads; i++) p.head_rank[i] = (uint16_t)((p.head + i) % p.world);
        for (int i = 0, w = 0; i < p.world; i++)
            if (p.n[i] > 0) p.head_of[i] = (uint8_t)(w++ % p.heads);
    }
    if (!local && p.drop_older == 0 && echi_random_below(r, 2)) {
        p.codec = ECHI_CODEC_TOPK;
        p.ratios = (uint8_t)echi_random_below(r, ECHI_RATIOS);
        p.state_ratio = 1 + echi_random_below(r, 1000000);
        for (int g = 0; g < p.n_groups; g++) p.base[g] = 1 + echi_random_below(r, 1000000);
    }
    struct echi_layers layers = {.count = (uint16_t)echi_random_below(r, 40)};   /* 0: the plan says nothing of parts */
    for (int i = 0; i < layers.count; i++) layers.params[i] = 1 + echi_random_below(r, 1u << (1 + echi_random_below(r, 24)));
    echi_parts_make(&layers, 0, p.codec, ECHI_PART_SLICE, ECHI_PART_MERGED, &p.parts);
    return p;
}

/* One value of a valid plan becomes another that a file may hold. */
static void spoil(struct echi_random *r, struct echi_plan *p) {
    const uint32_t rank = echi_random_below(r, p->world), g = echi_random_below(r, ECHI_GROUPS_MAX);
    const uint32_t heads = p->heads ? p->heads : 1;   /* a plan of one says nothing of these */
    switch (echi_random_below(r, p->heads ? 24 : 21)) {
    case 0: p->sync = (uint8_t)echi_random_below(r, ECHI_SYNCS); break;
    case 1: p->owner_of[g] = (uint16_t)echi_random_below(r, 2u * p->world); break;
    case 2: p->group_of[rank] = ECHI_NONE, p->n[rank] = p->divisor[rank] = p->inner[rank] = 0; break;
    case 3: p->cut = !p->cut, p->head = p->cut ? 0 : ECHI_NO_RANK; break;
    case 4: p->n[rank] += p->n[rank] > 0; break;
    case 5: p->deterministic = 1; break;
    case 6: p->sync_norm = 1; break;
    case 7: p->damping = 1; break;
    case 8: p->drop_older = 1; break;
    case 9: p->optimizer = (uint8_t)echi_random_below(r, ECHI_OPTIMIZERS); break;
    case 10: p->flights = ECHI_FLIGHTS; break;
    case 11: p->outer_lr = p->outer_lr > 0 ? 0 : 1; break;
    case 12: p->codec = ECHI_CODEC_DENSE, p->ratios = 0; break;
    case 13: p->base[g] = p->base[g] ? 0 : 5; break;
    case 14: p->shards = 2, p->shard_owner[0] = p->owner_of[0], p->shard_owner[1] = (uint16_t)rank; break;
    case 15: p->exchange = ECHI_EXCHANGE_RING; break;
    case 16: p->shadow = (uint16_t)(1 + echi_random_below(r, 2u * p->world)); break;
    case 17: p->micro_batches = 2; break;
    case 18: p->inner[rank] = p->inner[rank] ? 0 : 3; break;
    case 19: p->gathers = 1; break;
    case 20: p->activations = ECHI_ACTIVATIONS_BF16; break;
    case 21: p->head_rank[echi_random_below(r, heads)] = (uint16_t)echi_random_below(r, 2u * p->world); break;
    case 22: p->head_of[rank] = (uint8_t)echi_random_below(r, heads); break;
    default: p->head = (uint16_t)rank;
    }
}

/* No plan is refused without the rule that it breaks. */
static void every_refusal_has_its_reason(void **state) {
    (void)state;
    int refused = 0;
    for (uint32_t seed = 1; seed <= 5000; seed++) {
        struct echi_random r;
        struct echi_part_fault fault;
        char why[340];
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 8);
        struct echi_plan p = any_plan(&r);
        spoil(&r, &p);
        if (echi_plan_valid(&p) || !echi_parts_valid(&p.parts, p.codec, &fault)) continue;   /* which has a sentence of its own */
        echi_plan_reason(&p, why, sizeof why);
        if (strstr(why, "do not go together")) fail_msg("seed %u: sync %d: %s", seed, p.sync, why);
        refused++;
    }
    assert_true(refused > 1000);
}

static void what_is_saved_is_loaded(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 7);
        const struct echi_plan p = any_plan(&r);
        uint8_t before[ECHI_PLAN_BYTES_MAX], after[ECHI_PLAN_BYTES_MAX];
        assert_true(echi_plan_valid(&p));
        assert_int_equal(echi_plan_save(path, &p, NULL, &error), ECH_OK);
        if (echi_plan_load(path, 2, &plan, NULL, &error) != ECH_OK) fail_msg("seed %u: %s", seed, error.text);
        const size_t len = echi_plan_encode(&p, before, sizeof before);
        assert_int_equal(echi_plan_encode(&plan, after, sizeof after), len);
        if (memcmp(before, after, len) != 0) fail_msg("seed %u: another plan came back", seed);
    }
    struct echi_plan p = plan;
    assert_int_not_equal(echi_plan_save("/nowhere/plan", &p, NULL, &error), ECH_OK);
    assert_non_null(strstr(error.text, "/nowhere/plan"));
}

/* Rates of all ranks come back to the six digits that are written; where one is not known the file has none. */
static void links_are_saved_and_loaded(void **state) {
    (void)state;
    static struct echi_times times[4];
    assert_int_equal(load(good, strlen(good)), ECH_OK);
    for (int r = 0; r < 4; r++) {
        assert_false(echi_link_known(&link_of[r]));
        times[r].link = (struct echi_link){{1.23456789e8 / (r + 1), 1e7, 1.3e8}, {1.1e6, 1.1e6, 1.1e6 * (r + 1)}};
    }
    assert_int_equal(echi_plan_save(path, &plan, times, &error), ECH_OK);
    if (echi_plan_load(path, 2, &plan, link_of, &error) != ECH_OK) fail_msg("%s", error.text);
    for (int r = 0; r < 4; r++) {
        const double *was = &times[r].link.out.rate, *is = &link_of[r].out.rate;
        for (int i = 0; i < 6; i++) assert_true(is[i] > was[i] * (1 - 1e-5) && is[i] < was[i] * (1 + 1e-5));
        times[r].link = link_of[r];
    }
    assert_int_equal(echi_plan_save(path, &plan, times, &error), ECH_OK);   /* and do not change any more */
    assert_int_equal(echi_plan_load(path, 2, &plan, link_of, &error), ECH_OK);
    for (int r = 0; r < 4; r++) assert_memory_equal(&link_of[r], &times[r].link, sizeof link_of[r]);
    times[3].link.in = (struct echi_rate){0};
    assert_int_equal(echi_plan_save(path, &plan, times, &error), ECH_OK);
    assert_int_equal(echi_plan_load(path, 2, &plan, link_of, &error), ECH_OK);
    for (int r = 0; r < 4; r++) assert_false(echi_link_known(&link_of[r]));
}

static void links_of_all_ranks_or_none(void **state) {
    (void)state;
    static const struct { const char *lines, *says; } table[] = {
        {"link", "14: link needs a rank"},
        {"link 1024 out 1 in 1", "link needs a rank"},
        {"link 0", "expected 'out'"},
        {"link 0 in 1 out 1", "expected 'out'"},
        {"link 0 out", "numbers of Mb/s"},
        {"link 0 out 0 in 1", "numbers of Mb/s"},
        {"link 0 out 1 in -1", "numbers of Mb/s"},
        {"link 0 out nan in 1", "numbers of Mb/s"},
        {"link 0 out 1000001 in 1", "numbers of Mb/s"},
        {"link 0 out 1", "expected 'in'"},
        {"link 0 out 1 lowest 1 in 1", "expected 'highest'"},
        {"link 0 out 1 lowest 2 highest 3 in 1", "between its lowest and its highest"},
        {"link 0 out 4 lowest 2 highest 3 in 1", "between its lowest and its highest"},
        {"link 0 out 1 in 1 in 1", "nothing more"},
        {"link 0 out 1 in 1\nlink 0 out 1 in 1", "15: the link of this rank was described before"},
        {"link 0 out 1 in 1\nlink 1 out 1 in 1\nlink 3 out 1 in 1", "none of rank 2"},
        {"link 4 out 1 in 1", "rank 4, and a world of 4"},
    };
    char text[1024];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const int len = snprintf(text, sizeof text, "%s\n%s\n", good, table[i].lines);
        assert_int_equal(load(text, (size_t)len), ECH_E_FORMAT);
        if (!strstr(error.text, table[i].says)) fail_msg("'%s': %s", table[i].lines, error.text);
    }
    const int len = snprintf(text, sizeof text, "%s\nlink 3 out 8 in 80 lowest 8 highest 88\nlink 0 out 1e-3 in 1e6\nlink 1 out 1 in 1\n"
                             "link 2 out 1 in 1\n", good);
    if (load(text, (size_t)len) != ECH_OK) fail_msg("%s", error.text);
    const struct echi_link *link = &link_of[3];
    assert_true(link->out.rate == 1e6 && link->out.lowest == 1e6 && link->in.lowest == 1e6 && link->in.highest == 1.1e7);
}

/* The good plan with line `line` replaced. */
static ech_status load_with(int line, const char *text) {
    char all[2048];
    size_t size = 0;
    const char *at = good;
    for (int i = 1; at && *at; i++) {
        const char *end = strchr(at, '\n');
        const size_t len = end ? (size_t)(end - at) : strlen(at);
        assert_true(size + strlen(text) + len + 1 < sizeof all);
        memcpy(all + size, i == line ? text : at, i == line ? strlen(text) : len);
        size += i == line ? strlen(text) : len;
        if (end) all[size++] = '\n';
        at = end ? end + 1 : NULL;
    }
    return load(all, size);
}

static void a_refusal_names_file_and_line(void **state) {
    (void)state;
    static const struct { int line; const char *text, *says; } table[] = {
        {2, "sync", "sync is one of"},
        {2, "sync fast", "'fast'"},
        {2, "sink gssp", "'sink'"},
        {2, "sync gssp bsp", "nothing more"},
        {3, "world 0", "1 to 1024"},
        {3, "world 1025", "1 to 1024"},
        {3, "world -4", "'-4'"},
        {3, "world 4x", "'4x'"},
        {3, "world 99999999999999999999999999", "1 to 1024"},
        {4, "round 0", "samples"},
        {4, "round 16777217", "samples"},
        {6, "staleness", "end of line"},
        {6, "staleness 1000001", "steps"},
        {7, "rounds_apart 0", "at least 1"},
        {8, "lr", "lr needs a number"},
        {8, "lr x", "'x'"},
        {8, "lr nan", "'nan'"},
        {8, "lr -1", "'-1'"},
        {8, "lr 0.02x", "'0.02x'"},
        {9, "momentum inf", "'inf'"},
        {10, "decay 1e9", "'1e9'"},
        {11, "head", "head needs a rank"},
        {11, "head first", "'first'"},
        {12, "group", "group needs a number"},
        {12, "group 8 owner 2 workers 0:8", "group needs a number"},
        {12, "group 0", "'owner'"},
        {12, "group 0 owner", "owner needs a rank"},
        {12, "group 0 owner 1024 workers 0:8", "owner needs a rank"},
        {12, "group 0 owner 2 0:8", "'workers'"},
        {12, "group 0 owner 2 workers 0", "rank:samples"},
        {12, "group 0 owner 2 workers :8", "rank is a number"},
        {12, "group 0 owner 2 workers 1024:8", "rank is a number"},
        {12, "group 0 owner 2 workers 0:", "samples are a number"},
        {12, "group 0 owner 2 workers 0:0", "samples are a number"},
        {12, "group 0 owner 2 workers 0:1048577", "samples are a number"},
        {12, "group 0 owner 2 workers 0:8 0:8", "in a group already"},
        {13, "group 0 owner 1 workers 3:8", "described before"},
        {13, "optimizer rmsprop", "optimizer is one of"},
        {13, "beta1", "beta1 needs a number"},
        {13, "beta2 -1", "'-1'"},
        {13, "epsilon nan", "'nan'"},
        {13, "schedule", "schedule is one of"},
        {13, "schedule linear", "'linear'"},
        {13, "warmup x", "number of epochs"},
        {13, "lr_steps 1,", "lr_steps needs"},
        {13, "lr_steps 1,2,3,4,5,6,7,8,9", "lr_steps needs"},
        {13, "lr_factor", "lr_factor needs"},
        {13, "lr_epochs 1e6", "lr_epochs needs"},
        {13, "codec", "codec is one of"},
        {13, "codec topk", "'topk'"},
        {13, "codec topk:most", "'topk:most'"},
        {13, "state_ratio 0", "from 1 to 1000000"},
        {13, "state_ratio 1000001", "from 1 to 1000000"},
        {13, "base", "base needs a group"},
        {13, "base 8 1", "base needs a group"},
        {13, "base 0", "end of line"},
        {13, "base 0 0.25", "'0.25'"},
        {12, "group 0 owner 2 workers 0:8x", "steps in a round"},
        {12, "group 0 owner 2 workers 0:8x0", "steps in a round"},
        {12, "group 0 owner 2 workers 0:8x10001", "steps in a round"},
        {12, "group 0 owner 2 workers 0:x4", "samples are a number"},
        {12, "group 0 owner 2 workers 0x4:8", "rank is a number"},
        {12, "group 0 owner 2 workers 0:8/", "divisor is a number"},
        {12, "group 0 owner 2 workers 0:8/16777217", "divisor is a number"},
        {12, "group 0 owner 2 workers 0:8y", "samples are a number"},
        {12, "group 0 owner 2 workers 0:8x2/3", "steps in a round"},
        {8, "drop_older -1", "'-1'"},
        {8, "outer_lr x", "outer_lr needs a number"},
        {8, "outer_momentum", "outer_momentum needs a number"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char place[80];
        snprintf(place, sizeof place, "%s:%d: ", path, table[i].line);
        assert_int_equal(load_with(table[i].line, table[i].text), ECH_E_FORMAT);
        if (strncmp(error.text, place, strlen(place)) != 0 || !strstr(error.text, table[i].says))
            fail_msg("'%s': '%s' does not begin '%s' and say '%s'", table[i].text, error.text, place, table[i].says);
    }
}

static void a_plan_with_a_codec_is_read(void **state) {
    (void)state;
    assert_int_equal(load_with(1, "codec topk:volume\nstate_ratio 150000\nbase 1 1\nbase 0 1000000"), ECH_OK);
    assert_true(plan.codec == ECHI_CODEC_TOPK && plan.ratios == ECHI_RATIOS_VOLUME && plan.state_ratio == 150000);
    assert_true(plan.base[0] == 1000000 && plan.base[1] == 1 && plan.base[2] == 0);
    assert_int_equal(load_with(1, "codec dense"), ECH_OK);
    assert_int_equal(plan.codec, ECHI_CODEC_DENSE);
    assert_int_equal(load_with(1, "base 0 1\nbase 0 1"), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, ":2: the base of this group was said before"));
}

static void a_key_said_twice_is_refused(void **state) {
    (void)state;
    static const char *const lines[] = {"sync gssp", "world 4",      "round 64",   "staleness 2", "rounds_apart 5",
                                        "lr 0.02",   "momentum 0.9", "decay 1e-4", "head 2"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char all[2048], place[80];
        snprintf(all, sizeof all, "%s\n%s\n", good, lines[i]);
        snprintf(place, sizeof place, "%s:14: ", path);
        assert_int_equal(load(all, strlen(all)), ECH_E_FORMAT);
        if (strncmp(error.text, place, strlen(place)) != 0 || !strstr(error.text, "before"))
            fail_msg("'%s': '%s'", lines[i], error.text);
    }
}

/* Nothing in one line is wrong, but the whole is: the file is named. */
static void a_plan_that_is_not_whole_is_refused(void **state) {
    (void)state;
    static const struct { int line; const char *text, *why;
    } table[] = {
        {2, "", "there are 2 groups"},
        {3, "", "there is no world"},
        {4, "", "there is no round"},
        {12, "", "there is no group 0"},
        {11, "head 5", "head 5, but the ranks are 0 to 3"},
        {13, "group 1 owner 2 workers 3:300", "rank 2 is the owner of groups 0 and 1"},
        {13, "group 1 owner 1 workers", "group 1 has no worker: give it one, as in workers 1:16"},
        {13, "group 2 owner 1 workers 3:300", "there is no group 1"},
        {13, "group 1 owner 1 workers 7:8", "rank 7 is a worker, but the ranks are 0 to 3"},
        {13, "group 1 owner 1 workers 3:300 7:8", "rank 7 is a worker"},   /* found by fuzzing: rank 7 was dropped unseen */
        {13, "group 1 owner 9 workers 3:300", "group 1 has owner 9, but the ranks are 0 to 3"},
        {2, "sync ssp", "there are 2 groups"},
        {2, "sync bsp", "there are 2 groups"},
        {1, "state_ratio 5", "state_ratio belongs to codec topk"},
        {1, "base 0 5", "group 0 has a base"},
        {1, "codec topk:paper", "with topk it needs a state_ratio"},
        {1, "codec topk:paper\nstate_ratio 5\nbase 0 5", "with topk group 1 needs a base"},
        {1, "codec topk:paper\nstate_ratio 5\nbase 0 5\nbase 1 5\nbase 2 5", "group 2 has a base"},
        {1, "codec topk:paper\nbase 0 5\nbase 1 5", "with topk it needs a state_ratio"},
        {1, "codec topk:paper\nstate_ratio 5\nbase 0 5\nbase 1 5\ndeterministic 1", "deterministic is for bsp"},
        {1, "sync_norm 1", "sync_norm is for bsp"},
        {1, "beta1 0.9", "beta1, beta2 and epsilon belong to optimizer adam"},
        {8, "outer_lr 0.7", "outer_lr and outer_momentum are for local"},
        {13, "group 1 owner 1 workers 3:300x4", "rank 3: under local, and there alone"},
        {8, "drop_older 2", "drop_older is for asp"},
        {13, "group 1 owner 1 workers 3:300/4", "rank 3 has a divisor"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const ech_status status = load_with(table[i].line, table[i].text);
        if (status != ECH_E_FORMAT || !strstr(error.text, path) || !strstr(error.text, table[i].why))
            fail_msg("line %d '%s': status %d '%s'", table[i].line, table[i].text, status, error.text);
    }
    assert_int_equal(load("", 0), ECH_E_FORMAT);
    assert_int_equal(load("sync gssp\0world 4\n", 18), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, "not a text file"));
    char *large = malloc(1 << 20);
    assert_non_null(large);
    memset(large, '#', 1 << 20);
    assert_int_not_equal(load(large, 1 << 20), ECH_OK);
    assert_non_null(strstr(error.text, path));
    free(large);
    unlink(path);
    assert_int_equal(echi_plan_load(path, 2, &plan, NULL, &error), ECH_E_IO);
    assert_non_null(strstr(error.text, path));
}

/* The program's locale may write numbers with a comma; a plan file is the same on every machine. */
static void a_comma_is_no_point(void **state) {
    (void)state;
    use_comma_locale();
    const ech_status status = load(good, sizeof good - 1), saved = echi_plan_save(path, &plan, NULL, &error);
    setlocale(LC_ALL, "C");
    assert_int_equal(status, ECH_OK);
    assert_int_equal(saved, ECH_OK);
    assert_true(plan.lr == 0.02 && plan.decay == 1e-4);
    const struct echi_plan before = plan;
    assert_int_equal(echi_plan_load(path, 2, &plan, NULL, &error), ECH_OK);
    assert_true(plan.lr == before.lr && plan.momentum == before.momentum && plan.decay == before.decay);
}

static int clean_up(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/echelon-plan-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_with_a_codec_is_read), cmocka_unit_test(a_plan_file_is_read),
        cmocka_unit_test(tables_of_parts_are_whole), cmocka_unit_test(schedules_are_whole),
        cmocka_unit_test(adam_is_whole), cmocka_unit_test(what_is_saved_is_loaded), cmocka_unit_test(links_are_saved_and_loaded),
        cmocka_unit_test(links_of_all_ranks_or_none), cmocka_unit_test(a_refusal_names_file_and_line),
        cmocka_unit_test(a_key_said_twice_is_refused), cmocka_unit_test(a_plan_that_is_not_whole_is_refused),
        cmocka_unit_test(heads_name_their_workers),
        cmocka_unit_test(owners_of_shards_are_named), cmocka_unit_test(every_refusal_has_its_reason),
        cmocka_unit_test(a_comma_is_no_point), cmocka_unit_test(a_local_plan_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
