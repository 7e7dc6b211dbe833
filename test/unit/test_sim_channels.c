/* SPDX-License-Identifier: Apache-2.0
 * The simulator's channels: what goes from one node to another as one kind and name has a channel to itself,
 * whichever of all kinds it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "echi_sim.h"

static void each_kind_and_name_between_two_nodes_has_its_own(void **state) {
    static const int rank[] = {0, 1, 2, ECHI_WORLD_MAX / 2, ECHI_WORLD_MAX - 1};
    static const int name[] = {0, 1, ECHI_PARTS_MAX - 1};
    enum { RANKS = sizeof rank / sizeof rank[0], ALL = RANKS * RANKS * ECHI_KINDS_MAX * sizeof name / sizeof name[0] };
    struct echi_sim *s = calloc(1, sizeof *s);
    (void)state;
    assert_non_null(s);
    for (int twice = 0; twice < 2; twice++)
        for (uint32_t i = 0; i < ALL; i++) {
            const int kind = (int)(i / RANKS / RANKS % ECHI_KINDS_MAX), n = (int)(i / RANKS / RANKS / ECHI_KINDS_MAX);
            struct echi_channel *c = echi_channel_of(s, rank[i % RANKS], rank[i / RANKS % RANKS], kind, name[n]);
            assert_non_null(c);
            if (twice) assert_int_equal(c->post_first, i);
            else assert_int_equal(c->post_first, ECHI_NOTHING);
            c->post_first = i;
        }
    assert_int_equal(s->channels.count, ALL);
    echi_channels_free(&s->channels);
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_and_name_between_two_nodes_has_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
