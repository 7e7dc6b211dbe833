/* SPDX-License-Identifier: Apache-2.0
 * The two ends of a measured link, each against an other end that lies, is silent or talks out of turn. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_bytes.h"
#include "echi_doctor.h"
#include "echi_os.h"
#include "echi_probe.h"

#include <stdio.h>
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
    struct echi_probe_end end;
    config_for(&c, "127.0.0.1:0");
    assert_int_equal(echi_probe_open(&end, &c, 0, NULL), ECH_OK);
    snprintf(out, 64, "%s", echi_net_address(end.net));
    echi_probe_close(&end);
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
    if (level == ECH_LOG_INFO) l->served++;
    else l->dropped++;
    snprintf(l->why, sizeof l->why, "%.199s", line);
}

static void *listen_here(void *arg) {
    struct listener *l = arg;
    l->status = ech_doctor_listen(&l->config, NULL);
    return NULL;
}

enum lie { EMPTY_BULK, SHORT_BULK, A_PONG, A_GOT, NO_WORD, SHORT_WORD, TOO_MANY_BULKS, TOO_MANY_ASKED, SILENCE, HANGS_UP, LIES };
static const char *const caught[LIES] = {
    [EMPTY_BULK] = "a bulk of 0 bytes", [SHORT_BULK] = "a bulk of 100 bytes", [A_PONG] = "only a listener", [A_GOT] = "only a listener",
    [NO_WORD] = "a word of kind 9", [SHORT_WORD] = "a word of 3 bytes", [TOO_MANY_BULKS] = "more than 256 bulks",
    [TOO_MANY_ASKED] = "number 257", [SILENCE] = "said nothing for", [HANGS_UP] = ""};

static void say_raw(struct echi_probe_end *end, uint8_t type, uint32_t number, size_t len) {
    uint8_t bytes[ECHI_PROBE_BYTES];
    echi_probe_store(&(struct echi_probe){type, number, 0}, bytes);
    const struct echi_net_message word = {.kind = ECHI_PROBE_WORD, .meta = bytes, .meta_len = len};
    assert_int_equal(echi_net_send(end->net, end->peer, &word, NULL), ECH_OK);
}

static void tell(struct echi_probe_end *end, enum lie lie) {
    struct ech_error err;
    const struct echi_net_message bulk = {.kind = ECHI_PROBE_BULK, .payload = end->bulk, .payload_len = lie == EMPTY_BULK ? 0 : 100};
    if (lie == EMPTY_BULK || lie == SHORT_BULK)
        assert_int_equal(echi_net_send(end->net, end->peer, &bulk, &err), ECH_OK);
    if (lie == A_PONG) say_raw(end, ECHI_PROBE_PONG, 1, ECHI_PROBE_BYTES);
    if (lie == A_GOT) say_raw(end, ECHI_PROBE_GOT, 1, ECHI_PROBE_BYTES);
    if (lie == NO_WORD) say_raw(end, 9, 1, ECHI_PROBE_BYTES);
    if (lie == SHORT_WORD) say_raw(end, ECHI_PROBE_PING, 1, 3);
    if (lie == TOO_MANY_BULKS) assert_int_equal(echi_probe_send(end, ECHI_PROBE_MOST + 1, &err), ECH_OK);
    if (lie == TOO_MANY_ASKED) say_raw(end, ECHI_PROBE_GIVE, ECHI_PROBE_MOST + 1, ECHI_PROBE_BYTES);
}

/* Until the listener has hung up. What it says before is nothing to this end. */
static void wait_for_the_end(struct echi_probe_end *end) {
    const int64_t until = echi_now() + PATIENCE;
    struct echi_net_event event = {.type = ECHI_NET_READY};
    struct echi_probe word;
    while (event.type != ECHI_NET_LOST) {
        assert_int_equal(echi_probe_next(end, until, &event, &word, NULL), ECH_OK);
        assert_int_not_equal(event.type, ECHI_NET_WAITING);
    }
}

static void a_listener_believes_nobody(void **state) {
    (void)state;
    static struct listener l;
    char address[64];
    free_address(address);
    config_for(&l.config, address);
    l.config.deadline = 10;   /* that one lie waits for */
    l.config.stop = &l.stop;
    l.config.on_log = count_line;
    l.config.user = &l;
    assert_int_equal(echi_thread_start(&l.thread, "listener", listen_here, &l, NULL), ECH_OK);
    struct ech_config c;
    config_for(&c, address);
    for (int lie = 0; lie < LIES; lie++) {
        struct echi_probe_end end;
        struct echi_net_event event;
        struct echi_probe word;
        struct ech_error err = {.text = ""};
        assert_int_equal(echi_probe_open(&end, &c, 1, &err), ECH_OK);
        if (echi_probe_next(&end, echi_now() + PATIENCE, &event, &word, &err) != ECH_OK || event.type != ECHI_NET_READY)
            fail_msg("lie %d: %s", lie, err.text);
        tell(&end, (enum lie)lie);
        if (lie != HANGS_UP) wait_for_the_end(&end);
        echi_probe_close(&end);
    }
    static struct ech_doctor found;   /* and it is there for the next one */
    echi_doctor_link(&c, &found);
    if (found.link.check.status != ECH_OK) fail_msg("%s", found.link.check.text);
    assert_true(found.link.round_trip > 0 && found.link.out > 0 && found.link.in > 0);
    __atomic_store_n(&l.stop, 1, __ATOMIC_RELAXED);
    echi_thread_join(&l.thread);
    assert_int_equal(l.status, ECH_OK);
    assert_int_equal(l.dropped, LIES - 1);
    assert_int_equal(l.served, 2);
}

/* The sentence of each. */
static void a_listener_says_why(void **state) {
    (void)state;
    for (int lie = 0; lie < LIES; lie++) {
        if (lie == SILENCE || lie == HANGS_UP) continue;
        static struct listener l;
        struct ech_config c;
        struct echi_probe_end end;
        struct echi_net_event event;
        struct echi_probe word;
        char address[64];
        memset(&l, 0, sizeof l);
        free_address(address);
        config_for(&c, address);
        l.config = c;
        l.config.stop = &l.stop;
        l.config.on_log = count_line;
        l.config.user = &l;
        assert_int_equal(echi_thread_start(&l.thread, "listener", listen_here, &l, NULL), ECH_OK);
        assert_int_equal(echi_probe_open(&end, &c, 1, NULL), ECH_OK);
        assert_int_equal(echi_probe_next(&end, echi_now() + PATIENCE, &event, &word, NULL), ECH_OK);
        tell(&end, (enum lie)lie);
        wait_for_the_end(&end);
        echi_probe_close(&end);
        __atomic_store_n(&l.stop, 1, __ATOMIC_RELAXED);
        echi_thread_join(&l.thread);
        if (!strstr(l.why, caught[lie])) fail_msg("lie %d: '%s' does not say '%s'", lie, l.why, caught[lie]);
    }
}

/* ----- listeners that a caller must not believe */

enum fraud { ANOTHER_NUMBER, A_PING, BULKS_UNASKED, GOT_TOO_MUCH, NO_CLOCK, SAYS_NOTHING, LEAVES, LEAVES_LATER, FRAUDS };
static const struct { ech_status status; const char *text; } judged[FRAUDS] = {
    [ANOTHER_NUMBER] = {ECH_E_FORMAT, "numbers out of order"}, [A_PING] = {ECH_E_FORMAT, "not its turn"},
    [BULKS_UNASKED] = {ECH_E_FORMAT, "not its turn"},
    [GOT_TOO_MUCH] = {ECH_E_FORMAT, "numbers out of order"}, [NO_CLOCK] = {ECH_E_FORMAT, "clock"},
    [SAYS_NOTHING] = {ECH_E_TIMEOUT, "--deadline"},
    [LEAVES] = {ECH_E_PEER_LOST, "rank 0 left"}, [LEAVES_LATER] = {ECH_E_PEER_LOST, "lost again"}};

struct cheat { struct echi_probe_end end; struct echi_thread thread; enum fraud fraud; };

static void answer_wrongly(struct cheat *c, const struct echi_net_event *event, const struct echi_probe *word) {
    if (event->kind == ECHI_PROBE_BULK && c->fraud == BULKS_UNASKED) {
        (void)echi_probe_send(&c->end, 1, NULL);
    } else if (event->kind == ECHI_PROBE_BULK) {
        say_raw(&c->end, ECHI_PROBE_GOT, 2, ECHI_PROBE_BYTES);
    } else if (c->fraud == ANOTHER_NUMBER) {
        (void)echi_probe_say(&c->end, ECHI_PROBE_PONG, word->number + 1, NULL);
    } else if (c->fraud == A_PING) {
        say_raw(&c->end, ECHI_PROBE_PING, word->number, ECHI_PROBE_BYTES);
    } else if (c->fraud == NO_CLOCK) {
        uint8_t bytes[ECHI_PROBE_BYTES];
        echi_probe_store(&(struct echi_probe){ECHI_PROBE_PONG, word->number, -1}, bytes);
        const struct echi_net_message pong = {.kind = ECHI_PROBE_WORD, .meta = bytes, .meta_len = sizeof bytes};
        (void)echi_net_send(c->end.net, 1, &pong, NULL);
    } else if (c->fraud == GOT_TOO_MUCH || c->fraud == BULKS_UNASKED) {
        (void)echi_probe_say(&c->end, ECHI_PROBE_PONG, word->number, NULL);
    }
}

static void *cheat(void *arg) {
    struct cheat *c = arg;
    struct echi_net_event event = {.type = ECHI_NET_WAITING};
    struct echi_probe word;
    const int64_t until = echi_now() + PATIENCE;
    while (echi_probe_next(&c->end, until, &event, &word, NULL) == ECH_OK && event.type != ECHI_NET_LOST &&
           event.type != ECHI_NET_WAITING) {
        if (event.type == ECHI_NET_READY) {
            (void)echi_probe_post_all(&c->end, NULL);
            if (c->fraud == LEAVES) break;
        } else if (c->fraud == LEAVES_LATER) {
            break;
        } else {
            answer_wrongly(c, &event, &word);
        }
    }
    echi_probe_close(&c->end);
    return NULL;
}

static void a_caller_believes_nobody(void **state) {
    (void)state;
    for (int fraud = 0; fraud < FRAUDS; fraud++) {
        static struct ech_doctor found;
        struct cheat c = {.fraud = (enum fraud)fraud};
        struct ech_config config;
        config_for(&config, "127.0.0.1:0");
        assert_int_equal(echi_probe_open(&c.end, &config, 0, NULL), ECH_OK);
        snprintf(config.coordinator, sizeof config.coordinator, "%s", echi_net_address(c.end.net));
        if (fraud == SAYS_NOTHING) config.deadline = 1;
        assert_int_equal(echi_thread_start(&c.thread, "cheat", cheat, &c, NULL), ECH_OK);
        memset(&found, 0, sizeof found);
        echi_doctor_link(&config, &found);
        echi_thread_join(&c.thread);
        if (found.link.check.status != judged[fraud].status || !strstr(found.link.check.text, judged[fraud].text))
            fail_msg("fraud %d: %s: %s", fraud, ech_status_name(found.link.check.status), found.link.check.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listener_believes_nobody),
        cmocka_unit_test(a_listener_says_why),
        cmocka_unit_test(a_caller_believes_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
