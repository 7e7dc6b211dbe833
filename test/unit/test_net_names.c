/* SPDX-License-Identifier: Apache-2.0
 * A coordinator that is given by name, and a name service of the test's own: one that knows the name later, never, or does not answer. */
#include "echi_net.h"
#include "echi_os.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SECOND 1000000000LL

/* In the place of libc's. Any name is this machine's, after so many answers of another kind. */
static atomic_int failures_left, failure, asked;
static atomic_bool silent;

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out) {
    (void)service;
    struct in_addr number;
    const bool is_number = inet_pton(AF_INET, host, &number) == 1;
    if (!is_number && (hints->ai_flags & AI_NUMERICHOST)) return EAI_NONAME;
    if (!is_number) {
        atomic_fetch_add(&asked, 1);
        while (atomic_load(&silent)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (atomic_load(&failures_left) > 0 && atomic_fetch_sub(&failures_left, 1) > 0) return atomic_load(&failure);
        number.s_addr = htonl(INADDR_LOOPBACK);
    }
    struct { struct addrinfo info; struct sockaddr_in at; } *found = calloc(1, sizeof *found);
    if (!found) return EAI_MEMORY;
    found->at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = number};
    found->info = (struct addrinfo){.ai_family = AF_INET, .ai_addrlen = sizeof found->at, .ai_addr = (struct sockaddr *)&found->at};
    *out = &found->info;
    return 0;
}
void freeaddrinfo(struct addrinfo *list) { free(list); }

static void name_service(int failures, int code, bool answers) {
    atomic_store(&asked, 0);
    atomic_store(&failures_left, failures);
    atomic_store(&failure, code);
    atomic_store(&silent, !answers);
}

static const struct echi_net_kind kind = {.name = "note", .meta_cap = 8};

static ech_status open_node(int rank, const char *coordinator, int64_t patience, struct echi_net **out, struct ech_error *err) {
    const struct echi_net_config config = {.rank = rank, .world = 2, .kinds = &kind, .n_kinds = 1, .coordinator = coordinator,
                                           .join_timeout = patience};
    return echi_net_open(&config, out, err);
}

/* Polls until the node is READY, or its join fails; news of what it waits for are kept. */
static ech_status join(struct echi_net *net, char news[400], struct ech_error *err) {
    for (;;) {
        struct echi_net_event event;
        int count;
        const ech_status status = echi_net_poll(net, echi_now() + SECOND / 100, &event, 1, &count, err);
        if (status != ECH_OK) return status;
        if (count > 0 && event.type == ECHI_NET_READY) return ECH_OK;
        if (count > 0 && event.type == ECHI_NET_WAITING) snprintf(news, 400, "%s", event.text);
    }
}

struct other {   /* a node whose join is a thread's */
    struct echi_net *net;
    ech_status status;
};

static void *join_in_thread(void *other) {
    struct other *o = other;
    char news[400];
    struct ech_error err;
    o->status = join(o->net, news, &err);
    return NULL;
}

/* The name of a Pod that is not ready is unknown, then known. */
static void test_known_later(void **state) {
    (void)state;
    static const int codes[] = {EAI_NONAME, EAI_AGAIN};
    for (int i = 0; i < 2; i++) {
        struct echi_net *one;
        struct other zero;
        struct echi_thread thread;
        struct ech_error err = {.text = ""};
        char name[64], news[400] = "";
        name_service(4, codes[i], true);
        assert_int_equal(open_node(0, "127.0.0.1:0", 600 * SECOND, &zero.net, &err), ECH_OK);
        snprintf(name, sizeof name, "train-0.train%s", strrchr(echi_net_address(zero.net), ':'));
        assert_int_equal(open_node(1, name, 600 * SECOND, &one, &err), ECH_OK);
        assert_int_equal(echi_thread_start(&thread, "zero", join_in_thread, &zero, &err), ECH_OK);
        if (join(one, news, &err) != ECH_OK) fail_msg("%s", err.text);
        echi_thread_join(&thread);
        assert_int_equal(zero.status, ECH_OK);
        assert_int_equal(atomic_load(&asked), 5);
        echi_net_close(one, 0);
        echi_net_close(zero.net, 0);
    }
}

static void test_never_known(void **state) {
    (void)state;
    struct echi_net *net;
    struct ech_error err = {.text = ""};
    char news[400] = "";
    name_service(1000000, EAI_NONAME, true);
    assert_int_equal(open_node(1, "train-0.train:7000", 3 * SECOND, &net, &err), ECH_OK);
    assert_int_equal(join(net, news, &err), ECH_E_TIMEOUT);
    assert_non_null(strstr(news, "waiting for the coordinator at train-0.train:7000"));
    assert_non_null(strstr(err.text, "no coordinator at train-0.train:7000"));
    assert_non_null(strstr(err.text, "is not found by its name: Name or service not known"));
    assert_true(atomic_load(&asked) > 2);
    echi_net_close(net, 0);
}

/* What will not be better later is told at once; and rank 0, whose own name it is, does not wait for it either. */
static void test_told_at_once(void **state) {
    (void)state;
    struct echi_net *net;
    struct ech_error err = {.text = ""};
    char news[400];
    name_service(1000000, EAI_FAIL, true);
    if (open_node(1, "train-0.train:7000", 600 * SECOND, &net, &err) == ECH_OK) {   /* the answer took longer than an open waits */
        assert_int_equal(join(net, news, &err), ECH_E_ARGUMENT);
        echi_net_close(net, 0);
    }
    assert_int_equal(err.code, ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "train-0.train was not found"));
    assert_int_equal(atomic_load(&asked), 1);
    name_service(1000000, EAI_NONAME, true);
    assert_int_equal(open_node(0, "train-0.train:7000", 600 * SECOND, &net, &err), ECH_E_ARGUMENT);
    assert_int_equal(atomic_load(&asked), 1);
}

/* A name service that does not answer holds nobody up: a poll returns at its deadline, the join ends in time, and so does a close. */
static void test_silent(void **state) {
    (void)state;
    struct echi_net *net;
    struct ech_error err = {.text = ""};
    char news[400] = "";
    name_service(0, 0, false);
    assert_int_equal(open_node(1, "train-0.train:7000", SECOND / 10, &net, &err), ECH_OK);
    assert_int_equal(join(net, news, &err), ECH_E_TIMEOUT);
    assert_non_null(strstr(err.text, "no name service has answered yet"));
    echi_net_close(net, 0);
    assert_int_equal(open_node(0, "train-0.train:7000", SECOND / 10, &net, &err), ECH_E_TIMEOUT);
    assert_non_null(strstr(err.text, "no name service answered within 0.1 s"));
    atomic_store(&silent, false);   /* both threads end */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_later), cmocka_unit_test(test_never_known),
                                       cmocka_unit_test(test_told_at_once), cmocka_unit_test(test_silent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
