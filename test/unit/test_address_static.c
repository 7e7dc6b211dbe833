/* SPDX-License-Identifier: Apache-2.0
 * Addresses as a fully static program reads them, by itself: the same as getaddrinfo does, for numbers; and what it says of names. */
#define ECHI_STATIC
#include "../../net/address.c"

#include "echi_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* What both take must mean the same. getaddrinfo takes old forms of IPv4 as well (127.1, 0x7f.1), which nobody means. */
static void same_as_the_system(const char *host, bool must_agree) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found = NULL;
    struct echi_addresses own = {.count = 0};
    struct ech_error err = {.text = ""};
    const bool theirs = getaddrinfo(host, NULL, &hints, &found) == 0;
    const bool taken = look_up(host, "--bind", host, false, &own, &err) == ECH_OK;
    if (taken && !theirs) fail_msg("'%s' is taken here, and not by the system", host);
    if (must_agree && theirs && !taken) fail_msg("'%s' is taken by the system, and not here: %s", host, err.text);
    if (taken && (own.list[0].len != found->ai_addrlen || memcmp(&own.list[0].at, found->ai_addr, found->ai_addrlen) != 0))
        fail_msg("'%s' is another address", host);
    if (theirs) freeaddrinfo(found);
}

static void numbers(void **state) {
    (void)state;
    static const char *const hosts[] = {
        "127.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.0.256", "10.0.0", "", "::", "::1", "fe80::1", "fe80::1%1", "fe80::1%lo",
        "fe80::1%nosuch", "fe80::1%", "fe80::1%0", "::ffff:1.2.3.4", "2001:db8::1", "2001:db8::1::2", "1:2:3:4:5:6:7:8",
        "1:2:3:4:5:6:7:8:9", "localhost", "a.b", "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255", "127.0.0.1%lo", "%lo", "::1 ", " ::1"};
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        same_as_the_system(hosts[i], strcmp(hosts[i], "10.0.0") != 0 && strcmp(hosts[i], "fe80::1%0") != 0);
}

static void any_text(void **state) {
    (void)state;
    static const char letters[] = "0123456789abcdef:.%lo";
    struct echi_random r;
    echi_random_init(&r, 7, ECHI_STREAM_TEST, 0);
    for (int i = 0; i < 200000; i++) {
        char host[48];
        const size_t len = echi_random_below(&r, 24);
        for (size_t k = 0; k < len; k++) host[k] = letters[echi_random_below(&r, sizeof letters - 1)];
        host[len] = 0;
        same_as_the_system(host, false);
    }
}

static void names(void **state) {
    (void)state;
    struct echi_addresses found;
    struct ech_error err = {.text = ""};
    assert_int_equal(echi_address_parse("localhost:7000", "--coordinator", true, false, &found, &err), ECH_OK);
    assert_true(found.count == 1 && echi_address_is_loopback(&found.list[0]) && echi_address_port(&found.list[0]) == 7000);
    assert_int_equal(echi_address_parse("board.local:7000", "--coordinator", true, false, &found, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text,
                           "--coordinator board.local:7000: board.local is no number, and this static build asks no name service"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(any_text), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
