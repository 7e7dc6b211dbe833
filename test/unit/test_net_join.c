/* SPDX-License-Identifier: Apache-2.0
 * Meeting over TCP, and what goes wrong there: nodes that do not come, do not fit or die, ports in use, strangers. */
#include "echi_address.h"
#include "net_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- a node that only joins --- */

struct joiner {
    struct echi_net_config config;
    struct echi_net *net;
    ech_status status;
    struct ech_error err;
    char news[400];
    atomic_bool ready;
    int64_t stay; /* how long it goes on after READY */
    struct echi_thread thread;
};

static void *join(void *arg) {
    struct joiner *j = arg;
    int64_t leave = INT64_MAX;
    while (echi_now() < leave && j->status == ECH_OK) {
        struct echi_net_event e;
        int count;
        j->status = echi_net_poll(j->net, leave, &e, 1, &count, &j->err);
        if (j->status != ECH_OK || count == 0) continue;
        if (e.type == ECHI_NET_WAITING) snprintf(j->news, sizeof j->news, "%s", e.text);
        if (e.type == ECHI_NET_LOST && leave != INT64_MAX) break;
        if (e.type == ECHI_NET_READY) {
            j->ready = true;
            leave = echi_now() + j->stay;
        }
    }
    echi_net_close(j->net, SECOND);
    return NULL;
}

static struct joiner joiner(int rank, int world, int64_t timeout) {
    struct joiner j = {.config = node_config(rank, world, NULL, "127.0.0.1:0")};
    j.config.join_timeout = timeout;
    j.err.text[0] = 0;
    return j;
}

/* Opens all, those after the first at the first's address, lets them join and waits for their ends. */
static void open_and_start(struct joiner *j, int n) {
    static char address[64];
    for (int i = 0; i < n; i++) {
        if (i > 0) j[i].config.coordinator = address;
        assert_int_equal(echi_net_open(&j[i].config, &j[i].net, &j[i].err), ECH_OK);
        if (i == 0) snprintf(address, sizeof address, "%s", echi_net_address(j[0].net));
    }
    for (int i = 0; i < n; i++) assert_int_equal(echi_thread_start(&j[i].thread, "joiner", join, &j[i], NULL), ECH_OK);
}

static void finish(struct joiner *j, int n) {
    for (int i = 0; i < n; i++) echi_thread_join(&j[i].thread);
}

static void assert_says(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* --- those who do not come --- */

static void test_never_joins(void **state) {
    (void)state;
    struct joiner j[3] = {joiner(0, 5, 3 * SECOND), joiner(1, 5, 3 * SECOND), joiner(3, 5, 3 * SECOND)};
    open_and_start(j, 3);
    finish(j, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(j[i].status, ECH_E_TIMEOUT);
        assert_says(j[i].err.text, "3 of 5 nodes joined within 3.0 s, ranks 2, 4 did not");
    }
    assert_says(j[1].err.text, "rank 0");
}

/* A port at which nobody listens. It is none of those that the kernel hands out: one that was given back a moment ago may be another
 * test's by now, and to dial that one would fail both. As in test/cluster/cluster.bash, forty are this process's own. */
static void free_port(char address[64]) {
    static int taken;
    for (int tried = 0; tried < 40; tried++) {
        struct joiner probe = joiner(0, 2, SECOND);
        snprintf(address, 64, "127.0.0.1:%d", 20000 + (int)(getpid() * 41L % 12000) + taken++ % 40);
        probe.config.coordinator = address;
        if (echi_net_open(&probe.config, &probe.net, &probe.err) != ECH_OK) continue;
        echi_net_close(probe.net, 0);
        return;
    }
    fail_msg("none of forty ports is free");
}

static void test_no_coordinator(void **state) {
    (void)state;
    struct joiner late = joiner(1, 2, 300 * MS);
    char address[64];
    free_port(address);
    late.config.coordinator = address;
    assert_int_equal(echi_net_open(&late.config, &late.net, &late.err), ECH_OK);
    join(&late);
    assert_int_equal(late.status, ECH_E_TIMEOUT);
    assert_says(late.err.text, address);
    assert_says(late.err.text, "tries");
    assert_says(late.err.text, "refused");
}

static void test_late_coordinator(void **state) {
    (void)state;
    struct joiner j[2] = {joiner(0, 2, LONG), joiner(1, 2, LONG)};
    char address[64];
    free_port(address);
    j[0].config.coordinator = j[1].config.coordinator = address;
    assert_int_equal(echi_net_open(&j[1].config, &j[1].net, &j[1].err), ECH_OK);
    assert_int_equal(echi_thread_start(&j[1].thread, "joiner", join, &j[1], NULL), ECH_OK);
    echi_sleep_until(echi_now() + 100 * MS);
    assert_int_equal(echi_net_open(&j[0].config, &j[0].net, &j[0].err), ECH_OK);
    assert_int_equal(echi_thread_start(&j[0].thread, "joiner", join, &j[0], NULL), ECH_OK);
    finish(j, 2);
    assert_true(j[0].ready && j[1].ready);
}

/* --- those who do not fit --- */

static void test_fingerprints(void **state) {
    (void)state;
    struct echi_net_fingerprint ours[2] = {{"data", "same"},
                                           {"model", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}};
    struct echi_net_fingerprint theirs[2] = {{"data", "same"},
                                             {"model", "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"}};
    struct joiner j[3] = {joiner(0, 4, LONG), joiner(1, 4, SECOND), joiner(2, 4, LONG)};
    for (int i = 0; i < 3; i++) {
        j[i].config.fingerprints = i == 2 ? theirs : ours;
        j[i].config.n_fingerprints = 2;
    }
    open_and_start(j, 3);
    finish(j, 3);
    for (int i = 0; i < 3; i += 2) { /* rank 1 may still be on its way when the run ends */
        assert_int_equal(j[i].status, ECH_E_MISMATCH);
        assert_says(j[i].err.text, "rank 2 has model fedcba9876543210");
        assert_says(j[i].err.text, "rank 0 has model 0123456789abcdef");
    }
    assert_true(j[1].status != ECH_OK);
}

static void test_kinds_differ(void **state) {
    (void)state;
    static struct echi_net_kind other[N_KINDS];
    memcpy(other, test_kinds, sizeof other);
    other[PUSH].meta_cap++;
    struct joiner j[2] = {joiner(0, 2, LONG), joiner(1, 2, LONG)};
    j[1].config.kinds = other;
    open_and_start(j, 2);
    finish(j, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(j[i].status, ECH_E_MISMATCH);
        assert_says(j[i].err.text, "messages");
    }
}

static void test_wrong_world_and_double_rank(void **state) {
    (void)state;
    struct joiner j[4] = {joiner(0, 3, 700 * MS), joiner(1, 3, 700 * MS), joiner(1, 2, 700 * MS), joiner(1, 3, 700 * MS)};
    static char address[64];
    for (int i = 0; i < 4; i++) {
        if (i > 0) j[i].config.coordinator = address;
        assert_int_equal(echi_net_open(&j[i].config, &j[i].net, &j[i].err), ECH_OK);
        if (i == 0) snprintf(address, sizeof address, "%s", echi_net_address(j[0].net));
        assert_int_equal(echi_thread_start(&j[i].thread, "joiner", join, &j[i], NULL), ECH_OK);
        echi_sleep_until(echi_now() + 60 * MS);
    }
    finish(j, 4);
    assert_says(j[2].err.text, "rank 1 was started with --world 2 but rank 0 with --world 3");
    assert_int_equal(j[2].status, ECH_E_MISMATCH);
    assert_says(j[3].err.text, "rank 1 has joined already from 127.0.0.1:");
    assert_int_equal(j[3].status, ECH_E_MISMATCH);
    assert_int_equal(j[0].status, ECH_E_TIMEOUT); /* neither of them harmed the join; rank 2 never came */
    assert_says(j[0].err.text, "2 of 3 nodes joined within 0.7 s, rank 2 did not");
    assert_says(j[0].err.text, "refused: rank 1 has joined already");
}

/* --- addresses --- */

static void test_addresses(void **state) {
    (void)state;
    struct joiner first = joiner(0, 2, SECOND), second = joiner(0, 2, SECOND);
    assert_int_equal(echi_net_open(&first.config, &first.net, &first.err), ECH_OK);
    second.config.coordinator = echi_net_address(first.net);
    assert_int_equal(echi_net_open(&second.config, &second.net, &second.err), ECH_E_BUSY);
    assert_null(second.net);
    assert_says(second.err.text, "--coordinator");
    assert_says(second.err.text, echi_net_address(first.net));
    assert_says(second.err.text, "in use");
    echi_net_close(first.net, 0);

    static const char *const bad[] = {
        "",      "host",   ":1",   "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1x", "[::1",
        "[::1]", "[::1]1", "[]:1", "::1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        second.config.coordinator = bad[i];
        second.err.text[0] = 0;
        if (echi_net_open(&second.config, &second.net, &second.err) != ECH_E_ARGUMENT) fail_msg("'%s' was taken", bad[i]);
        assert_says(second.err.text, "--coordinator");
    }
    second.config.insecure = true;
    second.config.coordinator = "192.0.2.1:7"; /* of a range kept for examples: no machine has it */
    assert_int_equal(echi_net_open(&second.config, &second.net, &second.err), ECH_E_ARGUMENT);
    assert_says(second.err.text, "no address of this machine");
    second.config.coordinator = NULL;
    assert_int_equal(echi_net_open(&second.config, &second.net, &second.err), ECH_E_ARGUMENT);
    second.config.rank = 2;
    assert_int_equal(echi_net_open(&second.config, &second.net, &second.err), ECH_E_ARGUMENT);
    assert_says(second.err.text, "--rank 2");
    second.config.world = 65;
    assert_int_equal(echi_net_open(&second.config, &second.net, &second.err), ECH_E_ARGUMENT);
    echi_net_close(NULL, 0);
}

static void test_ipv6(void **state) {
    (void)state;
    struct joiner j[3] = {joiner(0, 3, LONG), joiner(1, 3, LONG), joiner(2, 3, LONG)};
    j[0].config.coordinator = "[::1]:0";
    struct echi_net *probe;
    if (echi_net_open(&j[0].config, &probe, &j[0].err) != ECH_OK) {
        print_message("no IPv6 here: %s\n", j[0].err.text);
        skip();
    }
    echi_net_close(probe, 0);
    open_and_start(j, 3);
    finish(j, 3);
    for (int i = 0; i < 3; i++) assert_true(j[i].ready);
}

static void test_bind(void **state) {
    (void)state;
    struct joiner j[3] = {joiner(0, 3, LONG), joiner(1, 3, LONG), joiner(2, 3, LONG)};
    j[1].config.bind = "0.0.0.0";
    j[1].config.insecure = true;
    j[2].config.bind = "127.0.0.1:0";
    open_and_start(j, 3);
    finish(j, 3);
    for (int i = 0; i < 3; i++) assert_true(j[i].ready);
}

/* --- those who die --- */

static void test_killed(void **state) {
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct joiner j = joiner(0, 3, LONG);
        struct echi_net_event e;
        int count;
        if (echi_net_open(&j.config, &j.net, &j.err) != ECH_OK) _exit(1);
        char address[64] = "";
        snprintf(address, sizeof address, "%s", echi_net_address(j.net));
        if (write(pipes[1], address, sizeof address) != sizeof address) _exit(1);
        while (echi_net_poll(j.net, INT64_MAX, &e, 1, &count, NULL) == ECH_OK) {}
        _exit(0);
    }
    char address[64] = "";
    assert_int_equal(read(pipes[0], address, sizeof address), sizeof address);
    close(pipes[0]), close(pipes[1]);
    struct joiner j[2] = {joiner(1, 3, LONG), joiner(2, 3, LONG)};
    int ready = 0;
    for (int i = 0; i < 2; i++) {
        j[i].config.coordinator = address;
        assert_int_equal(echi_net_open(&j[i].config, &j[i].net, &j[i].err), ECH_OK);
    }
    /* Both by turns in this one thread: nothing blocks but poll. */
    for (int turn = 0; ready < 2; turn++) {
        struct echi_net_event e;
        int count;
        assert_int_equal(echi_net_poll(j[turn % 2].net, echi_now() + 5 * MS, &e, 1, &count, &j[turn % 2].err), ECH_OK);
        ready += count > 0 && e.type == ECHI_NET_READY;
    }
    kill(child, SIGKILL);
    for (int i = 0; i < 2; i++) {
        struct echi_net_event e;
        int count;
        assert_int_equal(echi_net_poll(j[i].net, echi_now() + LONG, &e, 1, &count, NULL), ECH_OK);
        assert_int_equal(count, 1);
        assert_int_equal(e.type, ECHI_NET_LOST);
        assert_int_equal(e.peer, 0);
        assert_false(e.orderly);
        assert_says(e.text, "rank 0");
    }
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) echi_net_close(j[i].net, 0);
}

/* --- strangers --- */

static int stranger(const char *address, const void *bytes, size_t len) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    if (len) (void)!send(fd, bytes, len, MSG_NOSIGNAL);
    return fd;
}

static bool is_open(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

/* Connections of a flood end at every age, so that what a distant node sends arrives before its own does; and who has begun to speak
 * stays. Nothing here waits: all of it happens within the three seconds that a stranger has, or the test says nothing. */
static void test_silent_strangers_give_way(void **state) {
    (void)state;
    enum { PLACES = 2 + 16, FLOOD = 2 * PLACES };
    struct joiner j = joiner(0, 2, LONG);
    static const char beginning[] = "ECHN";
    int fds[1 + FLOOD], open_early = 0;
    assert_int_equal(echi_net_open(&j.config, &j.net, &j.err), ECH_OK);
    const char *address = echi_net_address(j.net);
    const int64_t began = echi_now();
    for (int i = 0; i < 1 + FLOOD; i++) {
        struct echi_net_event e;
        int count;
        fds[i] = stranger(address, beginning, i == 0 ? 4 : 0);
        assert_true(fds[i] >= 0);
        for (int k = 0; k < 3; k++) assert_int_equal(echi_net_poll(j.net, 0, &e, 1, &count, NULL), ECH_OK);
    }
    const bool early = is_open(fds[0]);
    for (int i = 1; i < PLACES; i++) open_early += is_open(fds[i]);
    const int64_t took = echi_now() - began;
    for (int i = 0; i < 1 + FLOOD; i++) close(fds[i]);
    echi_net_close(j.net, 0);
    if (took > 2 * SECOND) skip();
    assert_true(early);
    assert_true(open_early > 0);   /* the oldest first: none would be */
}

static void test_strangers(void **state) {
    (void)state;
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    enum { MANY = 40 };
    struct joiner j[3] = {joiner(0, 3, LONG), joiner(1, 3, LONG), joiner(2, 3, LONG)};
    j[0].stay = j[1].stay = j[2].stay = 400 * MS;
    static char address[64];
    assert_int_equal(echi_net_open(&j[0].config, &j[0].net, &j[0].err), ECH_OK);
    snprintf(address, sizeof address, "%s", echi_net_address(j[0].net));
    assert_int_equal(echi_thread_start(&j[0].thread, "joiner", join, &j[0], NULL), ECH_OK);
    int fds[3 * MANY], n = 0;
    uint8_t noise[500];
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)(i * 167 + 13);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY / 2; i++) {
            fds[n++] = stranger(address, NULL, 0);
            fds[n++] = stranger(address, http, sizeof http - 1);
            fds[n++] = stranger(address, noise, sizeof noise);
        }
        if (round > 0) break; /* the second time the run goes on */
        for (int i = 1; i < 3; i++) {
            j[i].config.coordinator = address;
            assert_int_equal(echi_net_open(&j[i].config, &j[i].net, &j[i].err), ECH_OK);
            assert_int_equal(echi_thread_start(&j[i].thread, "joiner", join, &j[i], NULL), ECH_OK);
        }
        echi_sleep_until(echi_now() + 150 * MS);
    }
    /* One who spoke nonsense is hung up on. */
    char answer[600];
    assert_true(recv(fds[1], answer, sizeof answer, 0) <= 0);
    finish(j, 3);
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0) close(fds[i]);
    for (int i = 0; i < 3; i++) {
        if (j[i].status != ECH_OK) print_error("%s\n", j[i].err.text);
        assert_int_equal(j[i].status, ECH_OK);
        assert_true(j[i].ready);
    }
}

static void test_late_comer(void **state) {
    (void)state;
    struct joiner j[2] = {joiner(0, 2, LONG), joiner(1, 2, LONG)}, late = joiner(1, 2, LONG);
    j[0].stay = j[1].stay = 4 * SECOND;
    open_and_start(j, 2);
    while (!j[0].ready || !j[1].ready) echi_sleep_until(echi_now() + MS);
    late.config.coordinator = j[1].config.coordinator;
    assert_int_equal(echi_net_open(&late.config, &late.net, &late.err), ECH_OK);
    join(&late);
    finish(j, 2);
    assert_true(j[0].ready && j[1].ready && !late.ready);
    assert_int_equal(late.status, ECH_E_BUSY);
    assert_says(late.err.text, "the run had begun");
}

/* A server of another kind at the coordinator's address: said so, in time. */
static void test_other_server(void **state) {
    (void)state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    struct joiner j = joiner(1, 2, 300 * MS);
    j.config.coordinator = address;
    assert_int_equal(echi_net_open(&j.config, &j.net, &j.err), ECH_OK);
    assert_int_equal(echi_thread_start(&j.thread, "joiner", join, &j, NULL), ECH_OK);
    int fd = accept(listener, NULL, NULL);
    static const char greeting[] = "SSH-2.0-OpenSSH_9.2p1 and some more words until this is as long as a header\r\n";
    (void)!send(fd, greeting, sizeof greeting - 1, MSG_NOSIGNAL);
    finish(&j, 1);
    close(fd), close(listener);
    assert_int_equal(j.status, ECH_E_TIMEOUT);
    assert_says(j.err.text, address);
}

/* Which texts are of addresses that only this machine reaches; no resolver is asked. */
static void test_loopback_texts(void **state) {
    (void)state;
    static const char *const here[] = {"127.0.0.1:7000", "127.8.9.1:0", "127.0.0.1", "[::1]:7000", "::1", "localhost:7000",
                                       "[::ffff:127.0.0.1]:1"};
    static const char *const elsewhere[] = {"", ":7000", "10.0.0.1:7000", "0.0.0.0:7000", "[::]:7000", "localhost.example:7000",
                                            "node1:7000", "127.0.0.1:x", "128.0.0.1:1"};
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++)
        if (!echi_address_text_is_loopback(here[i])) fail_msg("'%s' is this machine", here[i]);
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++)
        if (echi_address_text_is_loopback(elsewhere[i])) fail_msg("'%s' is not known to be this machine", elsewhere[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loopback_texts),
        cmocka_unit_test(test_never_joins),
        cmocka_unit_test(test_no_coordinator),
        cmocka_unit_test(test_late_coordinator),
        cmocka_unit_test(test_fingerprints),
        cmocka_unit_test(test_kinds_differ),
        cmocka_unit_test(test_wrong_world_and_double_rank),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_bind),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_silent_strangers_give_way),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_late_comer),
        cmocka_unit_test(test_other_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
