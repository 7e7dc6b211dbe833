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
#include "echi_random.h"

enum { MANY = 1024, NAMED = 5, NAMES = 200 };   /* of kinds that have names, kind NAMED has so many */
static struct echi_net_kind kinds[ECHI_NET_KINDS_MAX];
static char text[ECHI_NET_KINDS_MAX][8];
static struct echi_queue q;
static struct echi_pool pool;
static const uint8_t payload[3 * ECHI_NET_CHUNK];
static uint64_t sent[ECHI_NET_KINDS_MAX + 1];

/* All kinds that there may be. */
static int begin(void **state) {
    (void)state;
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) {
        snprintf(text[k], sizeof text[k], "%d", k);
        kinds[k] = (struct echi_net_kind){.name = text[k], .payload_cap = sizeof payload, .names = k == NAMED ? NAMES : 0};
    }
    echi_queue_end(&q);
    if (echi_queue_begin(&q, kinds, ECHI_NET_KINDS_MAX, NULL) != ECH_OK) return -1;
    echi_pool_destroy(&pool);
    return echi_pool_create(&pool, sizeof(struct echi_message), MANY, "messages", NULL) == ECH_OK ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    echi_queue_end(&q);
    echi_pool_destroy(&pool);
    pool = (struct echi_pool){.memory = NULL};
    return 0;
}

static struct echi_message *push(int kind, int name, int priority, uint64_t len) {
    static uint64_t order;
    struct echi_message *m = echi_pool_take(&pool);
    assert_non_null(m);
    *m = (struct echi_message){.kind = (uint8_t)kind, .name = (uint16_t)name, .priority = (uint16_t)priority, .payload = payload,
                               .len = len, .order = order++};
    echi_queue_push(&q, m);
    return m;
}

/* What goes out next: frames, and how many. */
static struct echi_batch batch;
static int fill_with(size_t enough, size_t most) {
    struct echi_sealer plain = {.on = false};
    echi_batch_begin(&batch);
    echi_batch_fill(&batch, &q, enough, most, 1, &plain, sent);
    return batch.frames;
}
static int fill(void) { return fill_with(ECHI_NET_CHUNK, SIZE_MAX); }
static int type_of(int frame) { return batch.headers[frame][5]; }
static int kind_of(int frame) { return batch.headers[frame][6]; }
static int name_of(int frame) { return echi_load16(batch.headers[frame] + 18); }
static uint64_t offset_of(int frame) { return echi_load64(batch.headers[frame] + 24); }
static uint64_t total_of(int frame) { return echi_load64(batch.headers[frame] + 32); }

/* A credit is of its kind and of no other, whichever of all kinds it is. */
static void every_kind_has_its_credits(void **state) {
    (void)state;
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) {
        const int other = (k + ECHI_NET_KINDS_MAX / 2) % ECHI_NET_KINDS_MAX;
        bool for_credit;
        assert_int_equal(begin(NULL), 0);
        push(k, 0, 1, 10);
        assert_true(echi_queue_granted(&q, other, 0, 1, 1));
        assert_int_equal(fill(), 0);
        assert_int_equal(echi_queue_waiting(&q, k, &for_credit), 1);
        assert_true(for_credit);
        assert_int_equal(echi_queue_waiting(&q, other, &for_credit), 0);
        assert_true(echi_queue_granted(&q, k, 0, 1, 1));
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
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) echi_queue_grant(&q, k, 0);
    for (; fill() > 0; batches++)
        for (int i = 0; i < batch.frames; i++) {
            assert_int_equal(type_of(i), ECHI_FRAME_CREDIT);
            assert_int_equal(total_of(i), 1);
            told[kind_of(i)]++;
        }
    for (int k = 0; k < ECHI_NET_KINDS_MAX; k++) assert_int_equal(told[k], 1);
    assert_int_equal(batches, 1 + (ECHI_NET_KINDS_MAX - 1) / ECHI_BATCH_FRAMES);
}

/* A credit is of its name and of no other; without one a message holds up none of another name, but those of its own. */
static void every_name_has_its_credits(void **state) {
    (void)state;
    bool for_credit;
    push(NAMED, 3, 1, 10);
    push(NAMED, 3, 0, 10);
    push(NAMED, 7, 2, 10);
    assert_true(echi_queue_granted(&q, NAMED, 4, 3, 2));   /* 4, 5, 6 */
    assert_int_equal(fill(), 0);
    assert_true(echi_queue_granted(&q, NAMED, 7, 1, 1));
    assert_int_equal(echi_queue_waiting(&q, NAMED, &for_credit), 3);
    assert_false(for_credit);
    assert_int_equal(fill(), 1);
    assert_int_equal(name_of(0), 7);
    assert_int_equal(echi_queue_waiting(&q, NAMED, &for_credit), 2);
    assert_true(for_credit);
    assert_true(echi_queue_granted(&q, NAMED, 3, 1, 1));
    assert_int_equal(fill(), 1);   /* the second of the name waits for a credit of its own */
    assert_int_equal(name_of(0), 3);
    assert_int_equal(echi_load32(batch.headers[0] + 12), 0);
    assert_true(echi_queue_granted(&q, NAMED, 3, 1, 1));
    assert_int_equal(fill(), 1);
    assert_int_equal(echi_load32(batch.headers[0] + 12), 1);
    assert_true(echi_queue_granted(&q, NAMED, 0, NAMES, ECHI_NET_CREDITS_MAX - 2));
    assert_false(echi_queue_granted(&q, NAMED, 0, NAMES, 1 + 1));   /* name 4 has two already */
}

/* Names that follow each other and have as many credits go in one frame; each is told of once. */
static void names_share_a_frame(void **state) {
    (void)state;
    for (int name = 0; name < NAMES; name++)
        for (int times = name == 60 ? 0 : name < 100 ? 1 : 2; times > 0; times--) echi_queue_grant(&q, NAMED, name);
    echi_queue_grant(&q, NAMED + 1, 0);
    assert_int_equal(fill(), 4);
    static const struct { int kind, name; uint64_t more, total; } told[] = {
        {NAMED, 0, 59, 1}, {NAMED, 61, 38, 1}, {NAMED, 100, 99, 2}, {NAMED + 1, 0, 0, 1}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(type_of(i), ECHI_FRAME_CREDIT);
        assert_int_equal(kind_of(i), told[i].kind);
        assert_int_equal(name_of(i), told[i].name);
        assert_int_equal(offset_of(i), told[i].more);
        assert_int_equal(total_of(i), told[i].total);
    }
    /* One more of a name that the peer has one of can wait for the next message; the first of a name cannot. */
    assert_int_equal(fill(), 0);
    echi_queue_grant(&q, NAMED, 0);
    assert_int_equal(fill(), 0);
    echi_queue_used(&q, NAMED, 1);
    echi_queue_grant(&q, NAMED, 1);
    assert_int_equal(fill(), 1);
    assert_int_equal(offset_of(0), 1);
}

/* Credits that share no frame: as many batches as it takes, and a message behind them. */
static void credits_of_many_names(void **state) {
    (void)state;
    int told = 0, messages = 0, batches = 0;
    for (int name = 0; name < NAMES; name += 2) echi_queue_grant(&q, NAMED, name);
    push(0, 0, 1, 0);
    for (; fill() > 0; batches++)
        for (int i = 0; i < batch.frames; i++) {
            assert_true(type_of(i) == ECHI_FRAME_CREDIT ? name_of(i) == 2 * told && offset_of(i) == 0 : told == NAMES / 2);
            told += type_of(i) == ECHI_FRAME_CREDIT;
            messages += type_of(i) == ECHI_FRAME_DATA;
        }
    assert_int_equal(told, NAMES / 2);
    assert_int_equal(messages, 1);
    assert_int_equal(batches, 1 + NAMES / 2 / ECHI_BATCH_FRAMES);
}

/* Chunk by chunk the most urgent goes first, whatever its kind and name; of equals the oldest; in its own name a message never
 * overtakes. Against an order found by looking at all of them. */
static void the_most_urgent_goes_first(void **state) {
    enum { COUNT = 150 };
    static struct { int kind, name, priority; uint64_t left; } m[COUNT];
    struct echi_random random;
    (void)state;
    echi_random_init(&random, 5, ECHI_STREAM_TEST, 1);
    for (int i = 0; i < COUNT; i++) {
        m[i].kind = (int)echi_random_below(&random, 2) ? NAMED : (int)echi_random_below(&random, 4);
        m[i].name = m[i].kind == NAMED ? (int)echi_random_below(&random, 20) : 0;
        m[i].priority = (int)echi_random_below(&random, 300);
        m[i].left = echi_random_below(&random, 3) * (uint64_t)ECHI_NET_CHUNK + 1 + echi_random_below(&random, 1000);
        if (m[i].left > sizeof payload) m[i].left = sizeof payload;
        push(m[i].kind, m[i].name, m[i].priority, m[i].left);
    }
    for (int k = 0; k < 4; k++) assert_true(echi_queue_granted(&q, k, 0, 1, COUNT));
    assert_true(echi_queue_granted(&q, NAMED, 0, 20, COUNT));
    int chunks = 0;
    while (fill() > 0)
        for (int f = 0; f < batch.frames; f++, chunks++) {
            int best = -1;
            for (int i = 0; i < COUNT; i++) {
                bool first = m[i].left > 0;
                for (int before = 0; before < i; before++)
                    first = first && !(m[before].left > 0 && m[before].kind == m[i].kind && m[before].name == m[i].name);
                if (first && (best < 0 || m[i].priority < m[best].priority)) best = i;
            }
            assert_true(best >= 0);
            assert_int_equal(echi_load32(batch.headers[f] + 12), best);
            assert_int_equal(kind_of(f), m[best].kind);
            assert_int_equal(name_of(f), m[best].name);
            m[best].left -= echi_load32(batch.headers[f] + 20);
        }
    for (int i = 0; i < COUNT; i++) assert_int_equal(m[i].left, 0);
    assert_true(chunks > COUNT);
}

/* A batch ends behind the chunk with which it has enough, and before a message of which too much is left; those behind that wait, too. */
static void a_batch_has_enough(void **state) {
    (void)state;
    push(NAMED, 0, 1, 3 * ECHI_NET_CHUNK);
    push(NAMED, 1, 1, 3 * ECHI_NET_CHUNK);
    assert_true(echi_queue_granted(&q, NAMED, 0, 2, 1));
    assert_int_equal(fill_with(1, SIZE_MAX), 1);
    assert_int_equal(fill_with(3 * ECHI_NET_CHUNK, SIZE_MAX), 3);
    assert_int_equal(offset_of(0), ECHI_NET_CHUNK);
    assert_int_equal(name_of(2), 1);
    assert_int_equal(fill_with(8 * ECHI_NET_CHUNK, SIZE_MAX), 2);
    assert_int_equal(fill(), 0);

    push(NAMED, 2, 1, 100);
    push(NAMED, 3, 1, ECHI_NET_CHUNK + 100);
    push(NAMED, 4, 1, 100);
    assert_null(echi_queue_first(&q));
    assert_true(echi_queue_granted(&q, NAMED, 2, 3, 1));
    assert_int_equal(fill_with(8 * ECHI_NET_CHUNK, 100), 1);
    assert_int_equal(name_of(0), 2);
    assert_int_equal(echi_queue_first(&q)->name, 3);
    assert_int_equal(fill_with(8 * ECHI_NET_CHUNK, 100), 0);
    assert_int_equal(fill_with(1, SIZE_MAX), 1);
    assert_int_equal(fill_with(8 * ECHI_NET_CHUNK, 100), 2);   /* what is left of it is little now */
    assert_null(echi_queue_first(&q));
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
        cmocka_unit_test_setup_teardown(every_kind_has_its_credits, begin, end),
        cmocka_unit_test_setup_teardown(every_kind_tells_of_its_credits, begin, end),
        cmocka_unit_test_setup_teardown(every_name_has_its_credits, begin, end),
        cmocka_unit_test_setup_teardown(names_share_a_frame, begin, end),
        cmocka_unit_test_setup_teardown(credits_of_many_names, begin, end),
        cmocka_unit_test_setup_teardown(the_most_urgent_goes_first, begin, end),
        cmocka_unit_test_setup_teardown(a_batch_has_enough, begin, end),
        cmocka_unit_test_setup_teardown(a_kind_too_many, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
