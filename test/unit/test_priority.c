/* SPDX-License-Identifier: Apache-2.0
 * Priorities of messages: the order that the design states, written out once more and not as the code says it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "echi_priority.h"

static struct echi_plan plan = {.world = 2};   /* rounds by part: bsp, dense, two workers */

static int of(int kind) { return echi_msg_priority(&plan, &(struct echi_msg){.kind = (uint8_t)kind}); }

/* What has no payload goes before all that has one; no two classes are mixed. */
static void classes_in_their_order(void **state) {
    static const int order[] = {ECHI_KIND_ACT_GRAD, ECHI_KIND_ACT, ECHI_KIND_WEIGHTS, ECHI_KIND_PUSH, ECHI_KIND_STATE, ECHI_KIND_PARAMS};
    (void)state;
    for (int kind = 0; kind < ECHI_KINDS; kind++) {
        assert_int_equal(of(kind) == 0, !echi_kind_has_payload(kind));
        assert_in_range(of(kind), 0, ECHI_PRIORITIES - 1);
    }
    for (size_t i = 1; i < sizeof order / sizeof order[0]; i++) assert_true(of(order[i - 1]) < of(order[i]));
    assert_int_equal(of(ECHI_KIND_NORM), of(ECHI_KIND_ACT_GRAD));
    assert_int_equal(of(ECHI_KIND_NORM_ALL), of(ECHI_KIND_ACT_GRAD));
    assert_int_equal(of(ECHI_KIND_FROZEN), of(ECHI_KIND_STATE));
    for (int kind = ECHI_KINDS; kind < 256; kind++) assert_int_equal(of(kind), ECHI_PRIORITIES - 1);
}

/* Forward needs part 0 first: of weights, and of the gradients that the next weights are made of. A part's weights go before its
 * gradients, and before those of a part a quarter as far on; gradients of the first go before late weights. A part that no plan has is no
 * more urgent than the last. */
static int of_part(int kind, int part) {
    return echi_msg_priority(&plan, &(struct echi_msg){.kind = (uint8_t)kind, .part = (uint16_t)part});
}

static void first_parts_first(void **state) {
    static const int kinds[] = {ECHI_KIND_WEIGHTS, ECHI_KIND_PUSH};
    (void)state;
    for (int k = 0; k < 2; k++) {
        for (int part = 1; part < ECHI_PARTS_MAX; part++) {
            assert_true(of_part(kinds[k], part) >= of_part(kinds[k], part - 1) + k);
            assert_true(of_part(ECHI_KIND_WEIGHTS, part) < of_part(ECHI_KIND_PUSH, part));
            assert_true(of_part(ECHI_KIND_WEIGHTS, part) < of_part(ECHI_KIND_PUSH, (part + 3) / 4));
            if (part >= 8) assert_true(of_part(ECHI_KIND_PUSH, part / 4 - 1) < of_part(ECHI_KIND_WEIGHTS, part));
        }
        assert_int_equal(of_part(kinds[k], 60000), of_part(kinds[k], ECHI_PARTS_MAX - 1));
        assert_true(of_part(kinds[k], 60000) < of(ECHI_KIND_STATE));
        assert_true(of_part(kinds[k], 0) > of(ECHI_KIND_ACT));
    }
    /* Elsewhere all of a push, or of weights, is waited for. */
    plan.codec = ECHI_CODEC_TOPK;
    for (int part = 0; part < ECHI_PARTS_MAX; part++)
        for (int k = 0; k < 2; k++) assert_int_equal(of_part(kinds[k], part), of_part(kinds[k], 0));
    plan.codec = ECHI_CODEC_DENSE;
}

/* The fields of a message that say nothing of its urgency change nothing of it. */
static void nothing_else_counts(void **state) {
    (void)state;
    for (int kind = 0; kind < ECHI_KINDS; kind++) {
        struct echi_msg m = {.kind = (uint8_t)kind, .to_role = ECHI_ROLE_HEAD, .from_role = ECHI_ROLE_WORKER, .group = 3, .flag = 1,
                             .layer = 9, .version = 77, .samples = 5, .lease = {.id = 8, .n = 4}};
        assert_int_equal(echi_msg_priority(&plan, &m), of(kind));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(classes_in_their_order), cmocka_unit_test(first_parts_first),
                                        cmocka_unit_test(nothing_else_counts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
