/* SPDX-License-Identifier: Apache-2.0
 * Schedules against their closed formulas in libm, at and around every place where they change; and that an update's lr is that of its
 * place in the data, whoever applies it. */
#include "echi_random.h"
#include "echi_roles.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define PI 3.14159265358979323846
#define CLOSE(a, b) (fabs((a) - (b)) <= 1e-14)

static double below(double x) { return nextafter(x, -1); }

/* PyTorch's SequentialLR of LinearLR and CosineAnnealingLR, or LinearLR times MultiStepLR, in fractions of epochs. */
static double closed(const struct echi_schedule *s, double at) {
    double factor = 1;
    for (int i = 0; i < s->steps; i++)
        if (at >= s->step[i]) factor *= s->factor;
    if (at < s->warmup) return factor * at / s->warmup;
    if (s->kind != ECHI_SCHEDULE_COSINE) return factor;
    return at >= s->epochs ? 0 : (1 + cos(PI * (at - s->warmup) / (s->epochs - s->warmup))) / 2;
}

static void constant_and_warm_up(void **state) {
    (void)state;
    const struct echi_schedule flat = {0}, warm = {.warmup = 2.5};
    for (int i = 0; i < 100; i++) assert_true(echi_schedule_factor(&flat, i * 0.37) == 1);
    assert_true(echi_schedule_factor(&warm, 0) == 0 && echi_schedule_factor(&warm, 1.25) == 0.5);
    assert_true(echi_schedule_factor(&warm, 2.5) == 1 && echi_schedule_factor(&warm, 1e5) == 1);
    assert_true(echi_schedule_factor(&warm, below(2.5)) < 1 && echi_schedule_factor(&warm, below(2.5)) > 1 - 1e-15);
}

static void steps(void **state) {
    (void)state;
    const struct echi_schedule s = {.kind = ECHI_SCHEDULE_STEP, .steps = 3, .factor = 0.25, .step = {1, 2.5, 8}, .warmup = 2};
    assert_true(echi_schedule_valid(&s));
    assert_true(echi_schedule_factor(&s, 0.5) == 0.25 && CLOSE(echi_schedule_factor(&s, below(1)), 0.5));
    assert_true(echi_schedule_factor(&s, 1) == 0.125);       /* half-way warm, and one step down */
    assert_true(echi_schedule_factor(&s, below(2.5)) == 0.25 && echi_schedule_factor(&s, 2.5) == 0.0625);
    assert_true(echi_schedule_factor(&s, below(8)) == 0.0625 && echi_schedule_factor(&s, 8) == 0.015625 &&
                echi_schedule_factor(&s, 1e5) == 0.015625);
}

static void cosine(void **state) {
    (void)state;
    for (int warmup = 0; warmup < 3; warmup += 2) {
        const struct echi_schedule s = {.kind = ECHI_SCHEDULE_COSINE, .warmup = warmup, .epochs = 10};
        assert_true(echi_schedule_valid(&s));
        assert_true(echi_schedule_factor(&s, warmup) == 1 && CLOSE(echi_schedule_factor(&s, (10 + warmup) / 2.0), 0.5));
        assert_true(echi_schedule_factor(&s, 10) == 0 && echi_schedule_factor(&s, 11) == 0);
        double before = 2;
        for (int i = 0; i <= 4000; i++) {
            const double at = warmup + (10 - warmup) * i / 4000.0, now = echi_schedule_factor(&s, at);
            if (!CLOSE(now, closed(&s, at)) || now > before || now < 0) fail_msg("at %g: %.17g, not %.17g", at, now, closed(&s, at));
            before = now;
        }
    }
}

static struct echi_schedule any_schedule(struct echi_random *r) {
    struct echi_schedule s = {.kind = (uint8_t)echi_random_below(r, ECHI_SCHEDULES),
                              .warmup = echi_random_below(r, 2) ? echi_random_unit(r) * 5 : 0};
    if (s.kind == ECHI_SCHEDULE_COSINE) s.epochs = s.warmup + echi_random_unit(r) * 20;
    if (s.kind != ECHI_SCHEDULE_STEP) return s;
    s.factor = 1 - echi_random_unit(r);
    s.steps = (uint8_t)(1 + echi_random_below(r, ECHI_LR_STEPS_MAX));
    for (int i = 0; i < s.steps; i++) s.step[i] = (i ? s.step[i - 1] : 0) + 0.01 + echi_random_unit(r) * 3;
    return s;
}

static void any(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 500; seed++) {
        struct echi_random r;
        echi_random_init(&r, seed, ECHI_STREAM_TEST, 90);
        const struct echi_schedule s = any_schedule(&r);
        assert_true(echi_schedule_valid(&s));
        for (int i = 0; i < 50; i++) {
            const double at = i < s.steps ? s.step[i] : echi_random_unit(&r) * 25, now = echi_schedule_factor(&s, at);
            if (!CLOSE(now, closed(&s, at))) fail_msg("seed %u, at %g: %.17g, not %.17g", seed, at, now, closed(&s, at));
        }
        /* The lr of a lease: the epoch's samples count as one, and nothing but its place says what it is. */
        struct echi_plan plan = {.lr = 0.3, .schedule = s};
        const uint32_t of = 1 + echi_random_below(&r, 60000);
        struct echi_lease l = {.id = seed, .epoch = echi_random_below(&r, 20), .start = echi_random_below(&r, of), .n = 8}, other = l;
        other.id = 7, other.worker = 3, other.owner = 2, other.n = 1, other.again = 1, other.round = 9;
        const double lr = echi_plan_lr(&plan, &l, of);
        assert_true(CLOSE(lr, 0.3 * closed(&s, l.epoch + (double)l.start / of)));
        plan.world = 9, plan.head = 3, plan.round = 77;
        assert_true(echi_plan_lr(&plan, &other, of) == lr);
    }
}

static void what_is_no_schedule(void **state) {
    (void)state;
    const struct echi_schedule good = {.kind = ECHI_SCHEDULE_STEP, .steps = 2, .factor = 0.5, .step = {1, 2}};
    for (int i = 0; i < 17; i++) {
        struct echi_schedule s = good;
        assert_true(echi_schedule_valid(&s));
        switch (i) {
        case 0: s.kind = ECHI_SCHEDULES; break;
        case 1: s.kind = ECHI_SCHEDULE_CONSTANT; break;   /* and still steps */
        case 2: s.steps = 0; break;
        case 3: s.steps = ECHI_LR_STEPS_MAX + 1; break;
        case 4: s.steps = 1; break;                       /* and a second one */
        case 5: s.step[1] = 1; break;
        case 6: s.step[0] = 0; break;
        case 7: s.step[1] = (double)NAN; break;
        case 8: s.step[1] = ECHI_EPOCHS_MAX; break;
        case 9: s.factor = 0; break;
        case 10: s.factor = 1.5; break;
        case 11: s.factor = (double)NAN; break;
        case 12: s.warmup = -1; break;
        case 13: s.warmup = (double)INFINITY; break;
        case 14: s.epochs = 5; break;                     /* is cosine's */
        case 15: s = (struct echi_schedule){.kind = ECHI_SCHEDULE_COSINE, .epochs = (double)NAN}; break;
        case 16: s = (struct echi_schedule){.kind = ECHI_SCHEDULE_COSINE, .epochs = 5, .factor = 0.1}; break;
        }
        if (echi_schedule_valid(&s)) fail_msg("case %d is valid", i);
    }
}

/* ---- which place an update of several leases has ---- */

static struct echi_head head;
static struct echi_action list[ECHI_ACTIONS_MAX];
static struct echi_actions out;

static void give(const struct echi_event *e) {
    out = (struct echi_actions){list, 0, ECHI_ACTIONS_MAX, false};
    echi_head_step(&head, e, &out);
}

static const struct echi_task *asked(void) {
    for (int i = 0; i < out.count; i++)
        if (list[i].type == ECHI_ACTION_COMPUTE) return &list[i].task;
    fail_msg("no task was asked for");
    return NULL;
}

static void rows(uint32_t id, uint16_t from, uint32_t epoch, uint32_t start, uint32_t round_size) {
    const struct echi_msg m = {.kind = ECHI_KIND_ACT, .lease = {.id = id, .epoch = epoch, .start = start, .n = 8, .round_size = round_size,
                                                                .worker = from, .owner = 0}};
    give(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = from, .msg = &m, .slot = {ECHI_SLOT_HEAD_ROWS, from}});
}

static void computed(struct echi_task t) {
    static struct echi_result result;
    give(&(struct echi_event){.type = ECHI_EVENT_COMPUTED, .task = &t, .result = &result});
}

static void start_head(struct echi_setup *setup, enum echi_sync sync) {
    memset(setup, 0, sizeof *setup);
    struct echi_plan *p = &setup->plan;
    echi_plan_clear(p);
    *p = (struct echi_plan){.sync = (uint8_t)sync, .world = 4, .n_groups = 1, .cut = 1, .head = 0, .flights = 1, .staleness = 3,
                            .rounds_apart = 4, .round = 24, .lr = 1, .parts = {.count = 1, .part = {{.count = 1}}}};
    memset(p->owner_of, 0xff, sizeof p->owner_of);
    memset(p->group_of, ECHI_NONE, sizeof p->group_of);
    p->owner_of[0] = 0;
    for (int r = 1; r < 4; r++) p->group_of[r] = 0, p->n[r] = 8;
    assert_true(echi_plan_valid(p));
    echi_head_init(&head, setup);
    give(&(struct echi_event){.type = ECHI_EVENT_START});
    const struct echi_msg params = {.kind = ECHI_KIND_PARAMS};
    give(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &params});
}

static void a_merged_visit_has_the_first_place(void **state) {
    static struct echi_setup setup;
    (void)state;
    for (int late = 0; late < 2; late++) {
        start_head(&setup, ECHI_SYNC_ASP);
        rows(1, 1, 0, 96, 24);
        struct echi_task first = *asked();
        assert_int_equal(first.lease.start, 96);
        if (late) rows(2, 2, 0, 104, 24);
        rows(3, 3, 1, 0, 24);   /* an epoch further, though its start is smaller */
        if (!late) rows(2, 2, 0, 104, 24);
        computed(first);
        assert_true(asked()->n_rows == 2 && asked()->rows[0] == (late ? 2 : 3) && asked()->lease.epoch == 0 && asked()->lease.start == 104);
    }
}

static void a_round_has_its_own_place(void **state) {
    static struct echi_setup setup;
    (void)state;
    start_head(&setup, ECHI_SYNC_BSP);
    rows(1, 2, 2, 56, 24);      /* the round is 48 to 71 of epoch 2; who comes first is not first in it */
    struct echi_task t = *asked();
    computed(t);
    rows(2, 1, 2, 48, 24);
    t = *asked();
    computed(t);
    rows(3, 3, 2, 64, 24);
    t = *asked();
    computed(t);
    assert_int_equal(asked()->kind, ECHI_TASK_HEAD_APPLY);
    assert_true(asked()->lease.epoch == 2 && asked()->lease.start == 48);
}

static struct echi_owner owner;

static void give_owner(const struct echi_event *e) {
    out = (struct echi_actions){list, 0, ECHI_ACTIONS_MAX, false};
    echi_owner_step(&owner, e, &out);
}

/* A whole push of the only part. */
static void pushed(uint32_t id, uint16_t from, uint32_t epoch, uint32_t start) {
    const struct echi_msg m = {.kind = ECHI_KIND_PUSH, .flag = 1, .lease = {.id = id, .epoch = epoch, .start = start, .n = 8,
                                                                            .round_size = 24, .worker = from, .owner = 0}};
    give_owner(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .from = from, .msg = &m, .slot = {ECHI_SLOT_OWNER_GRADS, from}});
}

static void a_round_has_its_own_place_at_the_owner_too(void **state) {
    static struct echi_setup setup;
    (void)state;
    start_head(&setup, ECHI_SYNC_BSP);
    setup.plan.cut = 0;
    setup.plan.head = ECHI_NO_RANK;
    setup.n_layers = setup.cut = 1;
    assert_true(echi_plan_valid(&setup.plan));
    echi_owner_init(&owner, &setup, 0);
    give_owner(&(struct echi_event){.type = ECHI_EVENT_START});
    const struct echi_msg params = {.kind = ECHI_KIND_PARAMS};
    give_owner(&(struct echi_event){.type = ECHI_EVENT_MESSAGE, .msg = &params});
    pushed(1, 3, 2, 64);
    pushed(2, 1, 2, 48);
    pushed(3, 2, 2, 56);
    assert_true(asked()->kind == ECHI_TASK_APPLY && asked()->n_rows == 3 && asked()->lease.epoch == 2 && asked()->lease.start == 48);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constant_and_warm_up), cmocka_unit_test(steps), cmocka_unit_test(cosine), cmocka_unit_test(any),
        cmocka_unit_test(what_is_no_schedule), cmocka_unit_test(a_merged_visit_has_the_first_place),
        cmocka_unit_test(a_round_has_its_own_place), cmocka_unit_test(a_round_has_its_own_place_at_the_owner_too)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
