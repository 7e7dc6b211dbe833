/* SPDX-License-Identifier: Apache-2.0
 * A node and its driver against a coordinator that is not to be believed: the node says what is wrong, and does nothing else. */
#include "echi_links.h"
#include "echi_run.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECOND INT64_C(1000000000)
enum { SIDE = 6, CLASSES = 4 };

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user;
    (void)test;
    for (int i = 0; i < n; i++) labels[i] = (uint16_t)(index[i] % CLASSES);
    for (int i = 0; i < n * SIDE * SIDE; i++) rows[i] = (float)(i % 7) * 0.1f;
    return 0;
}

static struct {
    ech_model *model;
    ech_data *data;
    struct ech_config config;
    struct echi_job job;
    struct ech_error error;
    ech_status status;                    /* of rank 1 */
    /* rank 0, played by the test */
    struct echi_net_kind kinds[ECHI_KINDS];
    struct echi_net *net;
    bool ready;                           /* all have met */
    uint32_t more;                        /* parameters that the plan's parts have beyond the model's */
} t;

static void *rank1(void *unused) {
    t.status = ech_train(t.model, t.data, &t.config, NULL, NULL, &t.error);
    return unused;
}

static void open_rank0(void) {
    struct echi_net_fingerprint print[] = {{"version", ECH_VERSION}, {"model", ""}, {"data", ""}, {"order", ""}, {"augment", ""},
                                           {"arithmetic", "as fast as each node can, --winograd 4, --precision fp32, 32 bits"}};
    echi_job_words(&t.job, print[1].value, print[2].value);
    echi_job_order(&t.job, print[3].value);
    echi_job_augment(&t.job, print[4].value);
    echi_wire_kinds(&t.job, 2, t.kinds);
    const struct echi_net_config net = {.rank = 0, .world = 2, .kinds = t.kinds, .n_kinds = ECHI_KINDS, .fingerprints = print,
                                        .n_fingerprints = 6, .coordinator = "127.0.0.1:0", .join_timeout = 3600 * SECOND};
    assert_int_equal(echi_net_open(&net, &t.net, NULL), ECH_OK);
}

/* Nothing is known of links: the first that rank 0 says. */
static void say_given(void) {
    static struct echi_links links;
    uint8_t body[2 + ECHI_LINKS_BYTES] = {ECHI_ROLE_NODE, ECHI_ROLE_NODE};
    size_t len;
    int peer;
    memset(&links, 0, sizeof links);
    echi_links_begin(&links, 0, 2, false, 1);
    assert_true(echi_links_next(&links, 1, 0, &peer, body + 2, &len));
    const struct echi_net_message out = {.kind = ECHI_KIND_PROBE, .meta = body, .meta_len = 2 + len};
    assert_int_equal(echi_net_send(t.net, 1, &out, NULL), ECH_OK);
}

/* Waits for a message of this kind. */
static struct echi_msg await(int kind) {
    struct echi_msg m = {0};
    while (true) {
        struct echi_net_event e;
        int count = 0;
        assert_int_equal(echi_net_poll(t.net, INT64_MAX, &e, 1, &count, NULL), ECH_OK);
        if (count == 0) continue;
        if (e.type == ECHI_NET_READY) {
            t.ready = true;
            say_given();
        }
        if (e.type == ECHI_NET_LOST) fail_msg("rank 1 has gone: %s", e.text);
        if (e.type != ECHI_NET_MESSAGE || e.kind != kind) continue;
        assert_true(echi_msg_decode(kind, e.meta, e.meta_len, &m));
        return m;
    }
}

static void say(const struct echi_msg *m, const void *payload, size_t len) {
    uint8_t meta[ECHI_MSG_MAX];
    const size_t size = echi_msg_encode(m, meta, sizeof meta);
    assert_true(size > 0);
    const struct echi_net_message out = {.kind = m->kind, .meta = meta, .meta_len = size, .payload = payload, .payload_len = len};
    assert_int_equal(echi_net_send(t.net, 1, &out, NULL), ECH_OK);
}

/* Rank 1 owns what both train. */
static void say_plan(void) {
    struct echi_plan plan = {.sync = ECHI_SYNC_BSP, .world = 2, .n_groups = 1, .head = ECHI_NO_RANK, .owner_of = {1}, .flights = 1,
                             .n = {8, 8}, .round = 16, .staleness = 3, .rounds_apart = 4, .lr = 0.02, .momentum = 0.9};
    uint8_t body[2 + ECHI_PLAN_BYTES_MAX] = {ECHI_ROLE_NODE, ECHI_ROLE_NODE};
    memset(plan.group_of + 2, ECHI_NONE, sizeof plan.group_of - 2);
    struct echi_layers layers;
    echi_job_layers(&t.job, &layers);
    echi_parts_make(&layers, 0, ECHI_CODEC_DENSE, ECHI_PART_SLICE, ECHI_PART_MERGED, &plan.parts);
    plan.parts.part[0].count += t.more;
    const size_t len = echi_plan_encode(&plan, body + 2, sizeof body - 2);
    assert_true(len > 0);
    const struct echi_net_message out = {.kind = ECHI_KIND_PLAN, .meta = body, .meta_len = 2 + len};
    assert_int_equal(echi_net_send(t.net, 1, &out, NULL), ECH_OK);
}

/* Rank 1 joins, measures, and has its plan; `lie` (NULL: the plan was one) is said to it, and it must answer with a fault that says
 * so. */
static void tells(const struct echi_msg *lie, const void *payload, size_t len, const char *why) {
    struct echi_thread thread;
    open_rank0();
    snprintf(t.config.coordinator, sizeof t.config.coordinator, "%s", echi_net_address(t.net));
    assert_int_equal(echi_thread_start(&thread, "rank 1", rank1, NULL, NULL), ECH_OK);
    await(ECHI_KIND_MEASURED);
    assert_true(t.ready);
    say_plan();
    if (lie) {
        await(ECHI_KIND_READY);
        say(lie, payload, len);
    }
    const struct echi_msg fault = await(ECHI_KIND_FAULT);
    assert_int_equal(fault.layer, lie ? ECH_E_FORMAT : ECH_E_MISMATCH);
    assert_non_null(strstr(fault.text, why));
    say(&(struct echi_msg){.kind = ECHI_KIND_END, .to_role = ECHI_ROLE_NODE, .from_role = ECHI_ROLE_COORDINATOR, .layer = ECH_E_FORMAT,
                           .peer = ECHI_NO_RANK}, NULL, 0);
    echi_net_close(t.net, 5 * SECOND);
    echi_thread_join(&thread);
    assert_int_equal(t.status, ECH_E_FORMAT);
}

/* First weights that name another role than the one that waits for them: the node itself (in a session those are the final
 * weights), or a role that it does not host. */
static void payloads_are_for_who_asked(void **state) {
    static const uint8_t wrong[] = {ECHI_ROLE_NODE, ECHI_ROLE_COORDINATOR, ECHI_ROLE_WORKER, ECHI_ROLE_HEAD};
    static const float weights[SIDE * SIDE * CLASSES + CLASSES];
    (void)state;
    for (size_t i = 0; i < sizeof wrong; i++)
        tells(&(struct echi_msg){.kind = ECHI_KIND_PARAMS, .to_role = wrong[i], .from_role = ECHI_ROLE_COORDINATOR}, weights,
              sizeof weights, "rank 0 sent a malformed params message");
}

/* A node that believed this would wait for ever for the coordinator's next word. */
static void the_coordinator_is_never_lost(void **state) {
    (void)state;
    tells(&(struct echi_msg){.kind = ECHI_KIND_LOST, .to_role = ECHI_ROLE_NODE, .from_role = ECHI_ROLE_COORDINATOR, .peer = 0,
                             .members = 1},
          NULL, 0, "a loss that no run outlives");
}

/* Parts of another model would have it read and write beyond its slots. */
static void a_plan_is_of_this_model(void **state) {
    (void)state;
    t.more = 1;
    tells(NULL, NULL, 0, "the plan's parts are not those of this model: part 0 ends in front of parameter 149, but the model has 148");
    t.more = 0;
}

static int set_up(void **state) {
    const struct ech_data_callback source = {.channels = 1, .height = SIDE, .width = SIDE, .classes = CLASSES, .train_samples = 48,
                                             .test_samples = 8, .read = read_samples, .name = "tiny"};
    static const char text[] = "input 1 6 6\nfc out 4\n";
    (void)state;
    if (ech_model_parse(text, sizeof text - 1, "tiny", &t.model, NULL) != ECH_OK) return -1;
    if (ech_data_from_callback(&source, &t.data, NULL) != ECH_OK) return -1;
    ech_config_init(&t.config);
    t.config.rank = 1;
    t.config.world = 2;
    t.config.deadline = 20;
    return echi_job_make(t.model, t.data, &t.config, &t.job, NULL) == ECH_OK ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    ech_data_destroy(t.data);
    ech_model_destroy(t.model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(payloads_are_for_who_asked), cmocka_unit_test(the_coordinator_is_never_lost),
                                       cmocka_unit_test(a_plan_is_of_this_model)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
