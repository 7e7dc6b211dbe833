/* SPDX-License-Identifier: Apache-2.0
 * What waits for one peer: which message goes next, and which credit lets it. Frames are read as WIRE.md has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_queue.h"

enum { MANY = 512 };
static struct echi_net_kind kinds[ECHI_NET_KINDS_MAX];
static char names[ECHI_NET_KINDS_MAX][8];
static struct echi_queue q;
static struct echi_pool pool;
static const uint8_t payload[3 * ECHI_NET_CHUNK];
static uint64_t sent[ECHI_NET_KINDS_MAX + 1];

/* All kinds that there may be, each with a payload if it has one. */
static int begin(void **state) {
    (void)state;
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) {
        snprintf(names[k], sizeof names[k], "%d", k);
        kinds[k] = (struct echi_net_kind){.name = names[k], .priority = 1, .payload_cap = sizeof payload};
    }
    echi_queue_begin(&q, kinds, ECHI_NET_KINDS_MAX);
    echi_pool_destroy(&pool);
    return echi_pool_create(&pool, sizeof(struct echi_message), MANY, "messages", NULL);
}

static struct echi_message *push(int kind, uint64_t len) {
    struct echi_message *m = echi_pool_take(&pool);
    assert_non_null(m);
    *m = (struct echi_message){.kind = (uint8_t)kind, .payload = payload, .len = len};
    echi_queue_push(&q, m);
    return m;
}

/* What goes out next: frames, and how many. */
static struct echi_batch batch;
static int fill(void) {
    struct echi_sealer plain = {.on = false};
    echi_batch_begin(&batch);
    echi_batch_fill(&batch, &q, 1, &plain, sent);
    return batch.frames;
}
static int type_of(int frame) { return batch.headers[frame][5]; }
static int kind_of(int frame) { return batch.headers[frame][6]; }

/* A credit is of its kind and of no other, whichever of all kinds it is. */
static void every_kind_has_its_credits(void **state) {
    (void)state;
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) {
        const int other = (k + ECHI_NET_KINDS_MAX / 2) % ECHI_NET_KINDS_MAX;
        bool for_credit;
        assert_int_equal(begin(NULL), 0);
        push(k, 10);
        assert_true(echi_queue_granted(&q, other, 1));
        assert_int_equal(fill(), 0);
        assert_int_equal(echi_queue_waiting(&q, k, &for_credit), 1);
        assert_true(for_credit);
        assert_int_equal(echi_queue_waiting(&q, other, &for_credit), 0);
        assert_true(echi_queue_granted(&q, k, 1));
        assert_int_equal(fill(), 1);
        assert_int_equal(type_of(0), ECHI_FRAME_DATA);
        assert_int_equal(kind_of(0), k);
        assert_int_equal(fill(), 0);
    }
}

/* Credits of more kinds than one batch has frames for: each is told of once, in as many batches as it takes. */
static void every_kind_tells_of_its_credits(void **state) {
    (void)state;
    int told[ECHI_NET_KINDS_MAX] = {0}, batches = 0;
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) echi_queue_grant(&q, k);
    for (; fill() > 0; batches++)
        for (int i = 0; i < batch.frames; i++) {
            assert_int_equal(type_of(i), ECHI_FRAME_CREDIT);
            assert_int_equal(echi_load64(batch.headers[i] + 32), 1);
            told[kind_of(i)]++;
        }
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) assert_int_equal(told[k], 1);
    assert_int_equal(batches, 1 + (ECHI_NET_KINDS_MAX - 1) / ECHI_BATCH_FRAMES);
}

/* One kind more than the masks hold is refused in words. */
static void a_kind_too_many(void **state) {
    static struct echi_net_kind more[ECHI_NET_KINDS_MAX + 1];
    struct echi_net_config config = {.rank = 0, .world = 1, .kinds = more, .n_kinds = ECHI_NET_KINDS_MAX};
    struct echi_net *net;
    struct ech_error err;
    (void)state;
    memcpy(more, kinds, sizeof kinds);
    more[ECHI_NET_KINDS_MAX] = kinds[0];
    assert_int_equal(echi_net_open(&config, &net, &err), ECH_OK);
    echi_net_close(net, 0);
    config.n_kinds++;
    assert_int_equal(echi_net_open(&config, &net, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "a table of 65 kinds of message: 1 to 64 are possible"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_kind_has_its_credits, begin),
        cmocka_unit_test_setup(every_kind_tells_of_its_credits, begin),
        cmocka_unit_test_setup(a_kind_too_many, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
