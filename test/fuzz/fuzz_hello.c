/* SPDX-License-Identifier: Apache-2.0
 * The body of a hello: what is taken is stored again as it was, but for characters that cannot be printed. */
#include "fuzz.h"

#include "echi_hello.h"

#include <stdio.h>
#include <string.h>

static void make(struct echi_hello *hello, int prints) {
    static const struct echi_net_kind kinds[] = {{.name = "note", .meta_cap = 200}};
    struct echi_net_fingerprint print[8];
    for (int i = 0; i < prints; i++) {
        snprintf(print[i].name, sizeof print[i].name, "a name of 22 chars.. %u", (unsigned)i % 10);
        memset(print[i].value, 'a' + i, sizeof print[i].value); /* not even terminated */
    }
    echi_hello_make(hello, &(struct echi_net_config){.rank = 7, .world = 9, .kinds = kinds, .n_kinds = 1, .fingerprints = print,
                                                     .n_fingerprints = prints});
    if (prints) snprintf(hello->address, sizeof hello->address, "[fe80::1%%a-long-interface]:65535");
}

static void check_text(const char *text, size_t cap) {
    FUZZ_CHECK(memchr(text, 0, cap) != NULL);
    for (; *text; text++) FUZZ_CHECK(*text >= ' ' && *text <= '~');
}

static bool one(const uint8_t *bytes, size_t len) {
    static struct echi_hello hello, mine;
    static uint8_t again[ECHI_FRAME_BODY_CAP];
    struct ech_error err = {0};
    const ech_status status = echi_hello_load(bytes, len, &hello, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        return false;
    }
    FUZZ_CHECK(hello.n_prints >= 0 && hello.n_prints <= ECHI_HELLO_PRINTS);
    check_text(hello.address, sizeof hello.address);
    for (int i = 0; i < hello.n_prints; i++) {
        check_text(hello.prints[i].name, sizeof hello.prints[i].name);
        check_text(hello.prints[i].value, sizeof hello.prints[i].value);
    }
    FUZZ_CHECK(echi_hello_store(&hello, again) == len);
    for (size_t i = 0; i < len; i++) FUZZ_CHECK(again[i] == bytes[i] || (again[i] == '?' && (bytes[i] < ' ' || bytes[i] > '~')));
    FUZZ_CHECK(echi_hello_compare(&hello, &hello, NULL) == ECH_OK);
    make(&mine, 8);
    const ech_status differs = echi_hello_compare(&mine, &hello, &err);
    if (differs != ECH_OK) fuzz_sentence(&err, differs);
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static struct echi_hello hello;
    static uint8_t body[ECHI_FRAME_BODY_CAP];
    if (i > 6) return 0;
    make(&hello, i < 3 ? 4 * i : 8);
    *good = i < 3;
    size_t len = echi_hello_store(&hello, body);
    uint8_t *address = memmem(body, len, "[fe80", 5); /* before it its length, behind it the number of prints */
    if (i == 3) len--;
    if (i == 4) body[len++] = 0;
    if (i == 5) address[-1] = ECHI_NET_ADDRESS;
    if (i == 6) address[strlen(hello.address)] = ECHI_HELLO_PRINTS + 1;
    if (len > cap) return 0;
    memcpy(out, body, len);
    return len;
}

const struct fuzz_driver fuzz_hello = {.name = "hello", .one = one, .seed = seed, .most = 2048};
