/* SPDX-License-Identifier: Apache-2.0
 * Links measured before a run: both ends of one, and all of several nodes, against others that lie, are silent or talk out of turn; what is
 * said of a table of links; and nodes that wait to be asked for a plan, and who asks, against the same. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_ask.h"
#include "echi_bytes.h"
#include "echi_doctor.h"
#include "echi_os.h"
#include "echi_meet.h"
#include "echi_timespec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATIENCE (3600 * ECHI_SECOND)   /* a hang ends by test/run.sh */

static void config_for(struct ech_config *c, const char *address) {
    ech_config_init(c);
    snprintf(c->coordinator, sizeof c->coordinator, "%s", address);
    c->join_timeout = 3600;
}

/* An address at which nobody listens. */
static void free_address(char out[64]) {
    struct ech_config c;
    struct echi_meet *meet;
    config_for(&c, "127.0.0.1:0");
    assert_int_equal(echi_meet_open(&c, 0, 2, "nothing", INT64_MAX, &meet, NULL), ECH_OK);
    snprintf(out, 64, "%s", echi_net_address(meet->net));
    echi_meet_close(meet);
}

/* ----- callers that a listener must not believe */

struct listener {
    struct ech_config config;
    struct echi_thread thread;
    volatile int stop;
    int served, dropped;
    char why[200];
    ech_status status;
};

static void count_line(void *user, enum ech_log_level level, const char *line) {
    struct listener *l = user;
    if (level == ECH_LOG_INFO) (void)__atomic_fetch_add(&l->served, 1, __ATOMIC_RELAXED);   /* a test looks while it listens */
    else l->dropped++;
    if (level != ECH_LOG_INFO) snprintf(l->why, sizeof l->why, "%.199s", line);
}

static void *listen_here(void *arg) {
    struct listener *l = arg;
    l->status = ech_doctor_listen(&l->config, NULL);
    return NULL;
}

/* As in drive/live/links.c. */
enum { READY, DATA, GOT, STOP, LAST, RATE, GIVEN, PING, PONG, NO_STEP };

static void send_raw(struct echi_meet *m, int peer, int kind, uint8_t step, size_t len) {
    uint8_t bytes[ECHI_LINKS_BYTES] = {step};
    const struct echi_net_message message = {.kind = kind, .meta = bytes, .meta_len = len};
    (void)echi_net_send(m->net, peer, &message, NULL);
}

/* The next thing that happens to a node that lies, but what it is said. */
static enum echi_net_event_type next_of(struct echi_meet *m, struct echi_net_event *event) {
    for (;;) {
        int count = 0;
        if (echi_net_poll(m->net, echi_now() + PATIENCE, event, 1, &count, NULL) != ECH_OK) return ECHI_NET_LOST;
        if (count == 1 && event->type != ECHI_NET_WAITING && event->type != ECHI_NET_SENT) return event->type;
    }
}

enum lie { NO_BYTES, NO_SUCH_STEP, SHORT_STEP, LONG_STEP, A_PONG, A_GOT, TOO_MANY_PINGS, TOO_MUCH_DATA, A_GIFT, SHORT_ROW,
           A_ROW_OF_NONSENSE, TWO_ROWS, SILENCE, HANGS_UP, LIES };

static void tell(struct echi_meet *m, int peer, enum lie lie) {
    const size_t row = (size_t)m->world * ECHI_MEET_ROW_BYTES;
    if (m->rank == 0) send_raw(m, peer, ECHI_MEET_PROBE, GIVEN, 1 + ECHI_LINK_BYTES);   /* then rounds begin */
    if (lie == NO_BYTES) send_raw(m, peer, ECHI_MEET_PROBE, 0, 0);
    if (lie == NO_SUCH_STEP) send_raw(m, peer, ECHI_MEET_PROBE, NO_STEP, 1);
    if (lie == SHORT_STEP) send_raw(m, peer, ECHI_MEET_PROBE, DATA, 100);
    if (lie == LONG_STEP) send_raw(m, peer, ECHI_MEET_PROBE, READY, 2);
    if (lie == A_PONG || lie == A_GOT || lie == TOO_MANY_PINGS || lie == TOO_MUCH_DATA) send_raw(m, peer, ECHI_MEET_PROBE, READY, 1);
    if (lie == A_PONG)
        for (int i = 0; i < 2; i++) send_raw(m, peer, ECHI_MEET_PROBE, PONG, 9);   /* one may have been asked for */
    if (lie == A_GOT) send_raw(m, peer, ECHI_MEET_PROBE, GOT, 1);
    for (int i = 0; lie == TOO_MANY_PINGS && i <= ECHI_LINKS_PINGS; i++) send_raw(m, peer, ECHI_MEET_PROBE, PING, 1);
    for (int i = 0; lie == TOO_MUCH_DATA && i <= ECHI_LINKS_FRAMES; i++) send_raw(m, peer, ECHI_MEET_PROBE, DATA, ECHI_LINKS_BYTES);
    if (lie == A_GIFT) send_raw(m, peer, ECHI_MEET_PROBE, GIVEN, 1 + ECHI_LINK_BYTES);
    if (lie == SHORT_ROW) send_raw(m, peer, ECHI_MEET_ROW, 0, row - 1);
    if (lie == A_ROW_OF_NONSENSE) send_raw(m, peer, ECHI_MEET_ROW, 1, row);   /* a rate of 5e-324, and none that is the highest */
    for (int i = 0; lie == TWO_ROWS && i < 2; i++) send_raw(m, peer, ECHI_MEET_ROW, 0, row);
}

static void meets_as(struct echi_meet **m, struct ech_config *c, int rank, int world, const char *purpose) {
    struct ech_error err = {.text = ""};
    struct echi_net_event event;
    if (echi_meet_open(c, rank, world, purpose, INT64_MAX, m, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_int_equal(next_of(*m, &event), ECHI_NET_READY);
}

/* A listener at an address of its own, and who calls it. */
static void listener_for(struct listener *l, struct ech_config *caller) {
    char address[64];
    memset(l, 0, sizeof *l);
    free_address(address);
    config_for(caller, address);
    l->config = *caller;
    l->config.stop = &l->stop;
    l->config.on_log = count_line;
    l->config.user = l;
}

/* Each lie has a listener of its own, which says why it drops the caller, and is there for the next one. */
static void a_listener_believes_nobody(void **state) {
    (void)state;
    for (int lie = 0; lie < LIES; lie++) {
        static struct listener l;
        static struct ech_doctor found;
        struct ech_config c;
        struct echi_meet *m;
        struct echi_net_event event;
        memset(&found, 0, sizeof found);
        listener_for(&l, &c);
        if (lie == SILENCE) l.config.deadline = 1;
        assert_int_equal(echi_thread_start(&l.thread, "listener", listen_here, &l, NULL), ECH_OK);
        meets_as(&m, &c, 1, 2, ECHI_DOCTOR_MEET_LISTENER);
        tell(m, 0, (enum lie)lie);
        if (lie != HANGS_UP)
            while (next_of(m, &event) != ECHI_NET_LOST) {}
        echi_meet_close(m);
        if (lie != SILENCE) {   /* whose listener has no patience for this one, either */
            echi_doctor_link(&c, &found);
            if (found.link.check.status != ECH_OK) fail_msg("after lie %d: %s", lie, found.link.check.text);
            assert_true(found.link.round_trip > 0 && found.link.out > 0 && found.link.in > 0 && found.link.out_highest >= found.link.out);
            const double off = found.link.offset < 0 ? -found.link.offset : found.link.offset;   /* one clock */
            assert_true(off < 1 && found.link.within < 1);
        }
        __atomic_store_n(&l.stop, 1, __ATOMIC_RELAXED);
        echi_thread_join(&l.thread);
        assert_int_equal(l.status, ECH_OK);
        assert_int_equal(l.dropped, 1);
        assert_int_equal(l.served, lie != SILENCE);
        const char *caught = lie == SILENCE ? "for longer than --deadline" : lie == HANGS_UP ? "lost again" : "nobody who measures sends";
        if (!strstr(l.why, caught)) fail_msg("lie %d: '%s' does not say '%s'", lie, l.why, caught);
    }
}

/* ----- listeners that a caller must not believe */

struct cheat { struct echi_meet *meet; struct echi_thread thread; int peer; enum lie lie; struct ech_config *config; };

static void *cheat(void *arg) {
    struct cheat *c = arg;
    struct echi_net_event event;
    if (next_of(c->meet, &event) == ECHI_NET_READY && c->lie != HANGS_UP) {
        tell(c->meet, c->peer, c->lie);
        while (next_of(c->meet, &event) != ECHI_NET_LOST) {}
    }
    echi_meet_close(c->meet);
    return NULL;
}

static void a_caller_believes_nobody(void **state) {
    (void)state;
    for (int lie = 0; lie < LIES; lie++) {
        if (lie == A_GIFT) continue;   /* a listener's */
        static struct ech_doctor found;
        struct cheat c = {.lie = (enum lie)lie, .peer = 1};
        struct ech_config config;
        config_for(&config, "127.0.0.1:0");
        assert_int_equal(echi_meet_open(&config, 0, 2, ECHI_DOCTOR_MEET_LISTENER, INT64_MAX, &c.meet, NULL), ECH_OK);
        snprintf(config.coordinator, sizeof config.coordinator, "%s", echi_net_address(c.meet->net));
        if (lie == SILENCE) config.deadline = 1;
        assert_int_equal(echi_thread_start(&c.thread, "cheat", cheat, &c, NULL), ECH_OK);
        memset(&found, 0, sizeof found);
        echi_doctor_link(&config, &found);
        echi_thread_join(&c.thread);
        const ech_status status = lie == SILENCE ? ECH_E_TIMEOUT : lie == HANGS_UP ? ECH_E_PEER_LOST : ECH_E_FORMAT;
        const char *text = lie == SILENCE ? "--deadline" : lie == HANGS_UP ? "lost again" : "rank 0 sent";
        if (found.link.check.status != status || !strstr(found.link.check.text, text))
            fail_msg("lie %d: %s: %s", lie, ech_status_name(found.link.check.status), found.link.check.text);
    }
}

/* ----- nodes that are asked to take part in a plan, and those who ask */

#define ASKED "rank 1\nworld 2\nseed 1\nno-shuffle off\ndeterministic off\nsync-norm off\nwinograd 4\nprecision fp32\nmeasure 0.001\n" \
              "model net\ninput 1 8 8\nconv2d out 2 kernel 3\nrelu\nfc out 4\n"

/* What who asks does, and what the node that waits says of it before it waits again. */
enum { GO_AT_ONCE, NONSENSE, NO_MODEL, ANOTHER_RANK, NO_GO, SHORT_GO, LEAVES, GO_TO_NOBODY, TWICE, ASKERS };
static const char *const refused[ASKERS] = {
    [GO_AT_ONCE] = "nobody who measures sends", [NONSENSE] = "lacks a line 'rank VALUE'", [NO_MODEL] = "names no model",
    [ANOTHER_RANK] = "rank 2 of 2", [NO_GO] = "was silent", [SHORT_GO] = "named no port", [LEAVES] = "left in order",
    [GO_TO_NOBODY] = "no coordinator at 127.0.0.1:1 ", [TWICE] = "was silent"};

static void asks(struct echi_meet *m, int how) {
    char text[sizeof ASKED] = ASKED;
    uint8_t answer[ECHI_MEET_ANSWER_MOST];
    size_t len = sizeof text - 1;
    const bool is_whole = how != NONSENSE && how != NO_MODEL && how != ANOTHER_RANK;
    if (how == NONSENSE) text[0] = 'R';
    if (how == NO_MODEL) text[strstr(text, "model") - text] = 'M';
    if (how == ANOTHER_RANK) text[5] = '2';
    if (how == GO_AT_ONCE) {
        assert_int_equal(echi_meet_tell(m, ECHI_MEET_GO, "\1", 2, NULL, 0, NULL), ECH_OK);
        return;
    }
    assert_int_equal(echi_meet_tell(m, ECHI_MEET_ASK, NULL, 0, text, len, NULL), ECH_OK);
    if (how == TWICE) assert_int_equal(echi_meet_tell(m, ECHI_MEET_ASK, NULL, 0, text, len, NULL), ECH_OK);
    assert_int_equal(echi_meet_await(m, ECHI_MEET_ANSWER, INT64_MAX, answer, &len, NULL), ECH_OK);
    assert_true(len == 4 ? is_whole : len > 4 && !is_whole);
    assert_int_equal(echi_load32(answer), how == NONSENSE || how == NO_MODEL || how == ANOTHER_RANK ? ECH_E_FORMAT : ECH_OK);
    if (how == SHORT_GO || how == GO_TO_NOBODY) (void)echi_meet_tell(m, ECHI_MEET_GO, "\1", how == SHORT_GO ? 1 : 2, NULL, 0, NULL);
}

/* Each of them finds a node that waits, which is there for the next one. */
static void a_node_that_waits_believes_nobody(void **state) {
    (void)state;
    for (int how = 0; how < ASKERS; how++) {
        static struct listener l;
        static struct ech_doctor found;
        struct ech_config c;
        struct echi_meet *m;
        struct echi_net_event event;
        memset(&found, 0, sizeof found);
        listener_for(&l, &c);
        if (how == NO_GO || how == GO_TO_NOBODY || how == TWICE) l.config.join_timeout = 0.3;
        l.config.threads = 1;
        assert_int_equal(echi_thread_start(&l.thread, "listener", listen_here, &l, NULL), ECH_OK);
        meets_as(&m, &c, 1, 2, ECHI_DOCTOR_MEET_LISTENER);
        asks(m, how);
        if (how != LEAVES)
            while (next_of(m, &event) != ECHI_NET_LOST) {}
        echi_meet_close(m);
        echi_doctor_link(&c, &found);
        if (found.link.check.status != ECH_OK) fail_msg("after %d: %s", how, found.link.check.text);
        __atomic_store_n(&l.stop, 1, __ATOMIC_RELAXED);
        echi_thread_join(&l.thread);
        assert_int_equal(l.status, ECH_OK);
        assert_int_equal(l.dropped, 1);
        if (!strstr(l.why, refused[how])) fail_msg("%d: '%s' does not say '%s'", how, l.why, refused[how]);
    }
}

static ech_model *net_asked_for(void) {
    const char *text = strstr(ASKED, "input");
    ech_model *net;
    assert_int_equal(ech_model_parse(text, strlen(text), "net", &net, NULL), ECH_OK);
    return net;
}

enum { NO_ANSWER, SHORT_ANSWER, NO_SUCH_STATUS, A_REFUSAL, GONE, ANSWERS };
struct answerer { struct echi_meet *meet; struct echi_thread thread; int how; };

static void *answer_here(void *arg) {
    static char ask[ECHI_MEET_ASK_MOST];
    struct answerer *a = arg;
    struct echi_net_event event;
    const uint8_t status = a->how == NO_SUCH_STATUS ? 200 : ECH_E_UNSUPPORTED;
    uint8_t bytes[9] = {status, 0, 0, 0, 'n', 'e', 'v', 'e', 'r'};
    if (next_of(a->meet, &event) == ECHI_NET_READY && a->how != GONE) {
        (void)echi_net_post(a->meet->net, 1, ECHI_MEET_ASK, 0, ask, sizeof ask, 0, NULL);
        while (next_of(a->meet, &event) == ECHI_NET_MESSAGE && event.kind != ECHI_MEET_ASK) {}
        if (a->how != NO_ANSWER) (void)echi_meet_tell(a->meet, ECHI_MEET_ANSWER, bytes, a->how == SHORT_ANSWER ? 3 : 9, NULL, 0, NULL);
        while (next_of(a->meet, &event) != ECHI_NET_LOST) {}
    }
    echi_meet_close(a->meet);
    return NULL;
}

static void who_asks_believes_nobody(void **state) {
    (void)state;
    static const struct { ech_status status; const char *says; } expected[ANSWERS] = {
        {ECH_E_TIMEOUT, "was silent"}, {ECH_E_FORMAT, "no answer"}, {ECH_E_FORMAT, "no answer"}, {ECH_E_UNSUPPORTED, ": never"},
        {ECH_E_PEER_LOST, "doctor --listen"}};
    ech_model *net = net_asked_for();
    for (int how = 0; how < ANSWERS; how++) {
        struct answerer a = {.how = how};
        struct ech_config c;
        struct ech_error err = {.text = ""};
        char address[64];
        config_for(&c, "127.0.0.1:0");
        assert_int_equal(echi_meet_open(&c, 0, 2, ECHI_DOCTOR_MEET_LISTENER, INT64_MAX, &a.meet, NULL), ECH_OK);
        snprintf(address, sizeof address, "%s", echi_net_address(a.meet->net));
        c.coordinator[0] = 0;
        if (how == NO_ANSWER) c.join_timeout = 0.5;
        assert_int_equal(echi_thread_start(&a.thread, "answers", answer_here, &a, NULL), ECH_OK);
        const ech_status status = ech_doctor_plan(net, &c, address, NULL, &err);
        echi_thread_join(&a.thread);
        if (status != expected[how].status || !strstr(err.text, expected[how].says) || !strstr(err.text, address))
            fail_msg("answer %d: %s: %s", how, ech_status_name(status), err.text);
    }
    ech_model_destroy(net);
}

struct planner { struct ech_config config; char doctors[140]; struct echi_thread thread; ech_model *net; ech_status status; };

static void *plan_here(void *arg) {
    struct planner *p = arg;
    p->status = ech_doctor_plan(p->net, &p->config, p->doctors, NULL, NULL);
    return NULL;
}

/* Asks for a plan, and holds the listener. False: it is with another. */
static bool holds(struct echi_meet **m, struct ech_config *c) {
    char text[] = ASKED;
    uint8_t answer[ECHI_MEET_ANSWER_MOST];
    size_t len;
    struct echi_net_event event;
    assert_int_equal(echi_meet_open(c, 1, 2, ECHI_DOCTOR_MEET_LISTENER, INT64_MAX, m, NULL), ECH_OK);
    if (next_of(*m, &event) != ECHI_NET_READY) {
        echi_meet_close(*m);
        return false;
    }
    assert_int_equal(echi_meet_tell(*m, ECHI_MEET_ASK, NULL, 0, text, sizeof text - 1, NULL), ECH_OK);
    assert_int_equal(echi_meet_await(*m, ECHI_MEET_ANSWER, INT64_MAX, answer, &len, NULL), ECH_OK);
    assert_int_equal(echi_load32(answer), ECH_OK);
    return true;
}

/* Somebody holds the second of two listeners, and a plan asks for the first and then for that one. So the first becomes free again, or two
 * that name them in opposite order would hold each other up. Whoever gives up reports who holds the second. */
static void who_waits_for_one_holds_none(void **state) {
    (void)state;
    static struct listener l[2];
    struct ech_config caller[2];
    struct echi_meet *first, *second;
    struct planner p = {.net = net_asked_for()};
    struct ech_error err = {.text = ""};
    for (int i = 0; i < 2; i++) {
        listener_for(&l[i], &caller[i]);
        l[i].config.threads = 1;
        assert_int_equal(echi_thread_start(&l[i].thread, "listener", listen_here, &l[i], NULL), ECH_OK);
    }
    assert_true(holds(&second, &caller[1]));
    snprintf(p.doctors, sizeof p.doctors, "%.63s,%.63s", caller[0].coordinator, caller[1].coordinator);
    config_for(&p.config, "");
    p.config.threads = 1;
    p.config.measure = 0.001;
    ech_status given_up = ECH_E_TIMEOUT;   /* where the time ends while the first answers, which a busy machine makes likely */
    for (p.config.join_timeout = 1; given_up == ECH_E_TIMEOUT; p.config.join_timeout *= 2)
        given_up = ech_doctor_plan(p.net, &p.config, p.doctors, NULL, &err);
    assert_int_equal(given_up, ECH_E_BUSY);
    if (!strstr(err.text, caller[1].coordinator) || !strstr(err.text, "it is with 127.0.0.1:")) fail_msg("%s", err.text);
    const int before = __atomic_load_n(&l[0].served, __ATOMIC_RELAXED);
    p.config.join_timeout = 3600;
    assert_int_equal(echi_thread_start(&p.thread, "plan", plan_here, &p, NULL), ECH_OK);
    while (__atomic_load_n(&l[0].served, __ATOMIC_RELAXED) == before)   /* until the plan has it */
        echi_sleep_until(echi_now() + ECHI_SECOND / 100);
    while (!holds(&first, &caller[0])) echi_sleep_until(echi_now() + ECHI_SECOND / 100);
    echi_meet_close(first);
    echi_meet_close(second);
    echi_thread_join(&p.thread);
    assert_int_equal(p.status, ECH_OK);
    for (int i = 0; i < 2; i++) {
        __atomic_store_n(&l[i].stop, 1, __ATOMIC_RELAXED);
        echi_thread_join(&l[i].thread);
    }
    ech_model_destroy(p.net);
}

/* Where nobody listens the sentence reports what helps there, and nothing of a run. */
static void where_nobody_listens_is_reported(void **state) {
    (void)state;
    static struct ech_doctor found;
    char address[64], plan_ends[200], link_ends[200];
    struct ech_config c;
    struct ech_error err = {.text = ""};
    ech_model *net = net_asked_for();
    free_address(address);
    config_for(&c, address);
    c.join_timeout = 0.2;
    snprintf(plan_ends, sizeof plan_ends, ": start `echelon doctor --listen --coordinator %s` there, or correct --doctors", address);
    snprintf(link_ends, sizeof link_ends, ": start `echelon doctor --listen --coordinator %s` there, or correct --coordinator", address);
    echi_doctor_link(&c, &found);
    assert_int_equal(found.link.check.status, ECH_E_TIMEOUT);
    c.coordinator[0] = 0;
    assert_int_equal(ech_doctor_plan(net, &c, address, NULL, &err), ECH_E_TIMEOUT);
    const char *const reported[] = {err.text, found.link.check.text}, *const ends[] = {plan_ends, link_ends};
    for (int i = 0; i < 2; i++)
        if (strstr(reported[i], "rank 0") || !strstr(reported[i], "no listener at ") || !strstr(reported[i], ends[i]))
            fail_msg("'%s' does not end with '%s', or is about a run", reported[i], ends[i]);
    ech_model_destroy(net);
}

/* ----- tables of several nodes */

struct node { struct ech_config config; struct ech_doctor_links found; struct echi_thread thread; ech_status status; };

static void *measure_here(void *arg) {
    struct node *n = arg;
    n->status = ech_doctor_links(&n->config, &n->found, NULL);
    return NULL;
}

/* Nodes 0 to count - 1 of `world`. */
static void start_nodes(struct node **nodes, int count, int world, const char *address) {
    *nodes = calloc((size_t)count, sizeof **nodes);
    assert_non_null(*nodes);
    for (int r = 0; r < count; r++) {
        struct node *n = &(*nodes)[r];
        config_for(&n->config, address);
        n->config.rank = r;
        n->config.world = world;
        assert_int_equal(echi_thread_start(&n->thread, "node", measure_here, n, NULL), ECH_OK);
    }
}

static void all_get_the_table(void **state) {
    (void)state;
    for (int world = 2; world <= 5; world++) {
        struct node *nodes;
        char address[64];
        free_address(address);
        start_nodes(&nodes, world, world, address);
        for (int r = 0; r < world; r++) echi_thread_join(&nodes[r].thread);
        for (int r = 0; r < world; r++) {
            const struct ech_doctor_links *t = &nodes[r].found;
            if (t->check.status != ECH_OK) fail_msg("rank %d of %d: %s", r, world, t->check.text);
            assert_true(t->rank == r && t->world == world);
            assert_memory_equal(t->rate, nodes[0].found.rate, sizeof t->rate);
            assert_memory_equal(t->highest, nodes[0].found.highest, sizeof t->highest);
            assert_memory_equal(t->round_trip, nodes[0].found.round_trip, sizeof t->round_trip);
            assert_string_equal(t->slow, nodes[0].found.slow);
            for (int a = 0; a < ECH_DOCTOR_WORLD; a++)
                for (int b = 0; b < ECH_DOCTOR_WORLD; b++) {
                    const bool is_pair = a != b && a < world && b < world;
                    assert_int_equal(t->rate[a][b] > 0, is_pair);
                    assert_int_equal(t->round_trip[a][b] > 0, is_pair);
                    assert_true(t->highest[a][b] >= t->rate[a][b]);
                }
        }
        free(nodes);
    }
}

/* The last of four lies to rank 1. The others are measured all the same, and rank 1 names who lied. */
static void others_are_measured_without_a_liar(void **state) {
    (void)state;
    for (int lie = 0; lie < LIES; lie++) {
        if (lie == SILENCE || lie == A_PONG || lie == A_GOT || lie == TOO_MANY_PINGS || lie == TOO_MUCH_DATA) continue;   /* of a round */
        struct node *nodes;
        struct cheat c = {.lie = (enum lie)lie, .peer = 1};
        struct ech_config config;
        char address[64];
        free_address(address);
        start_nodes(&nodes, 3, 4, address);
        config_for(&config, address);
        assert_int_equal(echi_meet_open(&config, 3, 4, ECHI_DOCTOR_MEET_LINKS, INT64_MAX, &c.meet, NULL), ECH_OK);
        cheat(&c);
        for (int r = 0; r < 3; r++) echi_thread_join(&nodes[r].thread);
        for (int r = 0; r < 3; r++) {
            const struct ech_doctor_links *t = &nodes[r].found;
            assert_int_equal(t->check.status, r == 1 && lie != HANGS_UP ? ECH_E_FORMAT : ECH_E_PEER_LOST);
            assert_non_null(strstr(t->check.text, "rank 3"));
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++) assert_int_equal(t->rate[a][b] > 0, a != b);
            for (int a = 0; a < 3; a++) assert_true(t->rate[a][3] == 0);
        }
        free(nodes);
    }
}

/* Who measures for another purpose is no node of this table, and a table is no listener. */
static void purposes_do_not_meet(void **state) {
    (void)state;
    static struct listener l;
    static struct ech_doctor_links found;
    struct ech_config c;
    char address[64];
    free_address(address);
    config_for(&l.config, address);
    l.config.stop = &l.stop;
    assert_int_equal(echi_thread_start(&l.thread, "listener", listen_here, &l, NULL), ECH_OK);
    config_for(&c, address);
    c.rank = 1;
    c.world = 2;
    assert_int_equal(ech_doctor_links(&c, &found, NULL), ECH_OK);
    assert_int_equal(found.check.status, ECH_E_MISMATCH);
    c.world = 1;
    assert_int_equal(ech_doctor_links(&c, &found, NULL), ECH_E_ARGUMENT);
    __atomic_store_n(&l.stop, 1, __ATOMIC_RELAXED);
    echi_thread_join(&l.thread);
}

/* ----- what is said of a table */

static void all_carry(struct ech_doctor_links *t, int world, double mbits) {
    memset(t, 0, sizeof *t);
    t->world = world;
    for (int a = 0; a < world; a++)
        for (int b = 0; b < world; b++) t->rate[a][b] = a == b ? 0 : mbits * (1 + 0.01 * ((a + 2 * b) % 5)) / 8e-6;
}

static void carries(struct ech_doctor_links *t, int host, bool out, bool in, double mbits) {
    for (int other = 0; other < t->world; other++) {
        if (other == host) continue;
        if (out) t->rate[host][other] = mbits / 8e-6;
        if (in) t->rate[other][host] = mbits / 8e-6;
    }
}

static void says(const struct ech_doctor_links *t, const char *expected) {
    char text[sizeof t->slow];
    echi_doctor_slow(t, text, sizeof text);
    if (*expected ? !strstr(text, expected) : *text) fail_msg("'%s' does not say '%s'", text, expected);
}

static void the_slow_link_is_named(void **state) {
    (void)state;
    static struct ech_doctor_links t;
    for (int world = 2; world <= ECH_DOCTOR_WORLD; world += world < 5 ? 1 : 59) {
        all_carry(&t, world, 940);
        says(&t, "");
        carries(&t, 1, true, true, 9.4);
        says(&t, world == 2 ? "" : "rank 1 carries 9.4 Mb/s at most, the others 9");
    }
    all_carry(&t, 4, 940);
    carries(&t, 2, true, false, 94);
    says(&t, "rank 2's way out carries 94 Mb/s at most, the others 9");
    all_carry(&t, 4, 940);
    carries(&t, 0, false, true, 94);
    says(&t, "rank 0's way in carries 94 Mb/s");
    all_carry(&t, 4, 940);
    t.rate[2][0] = 9.4 / 8e-6;
    says(&t, "rank 2 to rank 0 carries 9.4 Mb/s, the others 9");
    all_carry(&t, 6, 10000);
    carries(&t, 1, true, true, 100);
    carries(&t, 4, true, true, 50);
    says(&t, "rank 4 carries 50 Mb/s at most, the others 10");
    says(&t, " Gb/s (and 1 more such host): ");
    all_carry(&t, 4, 940);
    carries(&t, 3, true, true, 600);   /* not by half */
    says(&t, "");
    all_carry(&t, 3, 940);             /* the others of a node that was lost */
    carries(&t, 1, true, true, 0);
    says(&t, "");
    t.rate[0][2] = 1 / 8e-6;
    says(&t, "rank 0 to rank 2 carries 1 Mb/s, the others 9");
}

static void rows_are_stored_and_loaded(void **state) {
    (void)state;
    static struct ech_doctor_links t, u, before;
    static uint8_t row[ECHI_NET_WORLD_MAX * ECHI_MEET_ROW_BYTES + 1];
    all_carry(&t, 5, 94);
    for (int from = 0; from < 5; from++) {
        t.highest[from][3] = 2 * t.rate[from][3];
        t.round_trip[from][3] = from == 3 ? 0 : 0.001 * (1 + from);
    }
    echi_meet_store(&t, 3, row);
    u.world = 5;
    before = u;
    for (size_t len = 0; len <= sizeof row; len++)
        if (len != 5 * ECHI_MEET_ROW_BYTES) assert_false(echi_meet_load(&u, 3, row, len));
    assert_false(echi_meet_load(&u, 2, row, 5 * ECHI_MEET_ROW_BYTES));   /* rank 2 has no link to itself */
    assert_memory_equal(&u, &before, sizeof u);
    assert_true(echi_meet_load(&u, 3, row, 5 * ECHI_MEET_ROW_BYTES));
    for (int from = 0; from < 5; from++)
        assert_true(u.rate[from][3] == t.rate[from][3] && u.highest[from][3] == t.highest[from][3] &&
                    u.round_trip[from][3] == t.round_trip[from][3]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listener_believes_nobody), cmocka_unit_test(a_caller_believes_nobody),
        cmocka_unit_test(a_node_that_waits_believes_nobody), cmocka_unit_test(who_asks_believes_nobody),
        cmocka_unit_test(where_nobody_listens_is_reported), cmocka_unit_test(who_waits_for_one_holds_none),
        cmocka_unit_test(all_get_the_table), cmocka_unit_test(others_are_measured_without_a_liar),
        cmocka_unit_test(purposes_do_not_meet), cmocka_unit_test(the_slow_link_is_named),
        cmocka_unit_test(rows_are_stored_and_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
