/* SPDX-License-Identifier: Apache-2.0
 * What test_crypto.c tests, beside libsodium on random keys and messages of many lengths. It is looked for when the test
 * runs: nothing is linked against it. */
#include "echi_chacha20.h"
#include "echi_hmac.h"
#include "echi_os.h"
#include "echi_poly1305.h"
#include "echi_random.h"
#include "echi_seal.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

enum { TIMES = 2000, MOST = 1000, LONGEST = 100000 };

/* As libsodium declares them. */
typedef unsigned long long length;
static struct {
    int (*init)(void);
    int (*sha256)(uint8_t *out, const uint8_t *data, length len);
    size_t (*hmac_statebytes)(void);
    int (*hmac_init)(void *state, const uint8_t *key, size_t key_len);
    int (*hmac_update)(void *state, const uint8_t *data, length len);
    int (*hmac_final)(void *state, uint8_t *out);
    int (*poly1305)(uint8_t *out, const uint8_t *data, length len, const uint8_t *key);
    int (*chacha20)(uint8_t *out, const uint8_t *data, length len, const uint8_t *nonce, uint32_t counter, const uint8_t *key);
    int (*aead)(uint8_t *cipher, uint8_t *tag, length *tag_len, const uint8_t *data, length len, const uint8_t *head, length head_len,
                const uint8_t *nothing, const uint8_t *nonce, const uint8_t *key);
} sodium;

static void *library;
static uint8_t data[LONGEST], cipher[LONGEST];

/* A function's address comes as an object's, and C has no cast between the two. */
static bool look_up(const char *name, void *out_function) {
    void *symbol = echi_library_symbol(library, name);
    if (!symbol) print_error("this libsodium has no %s\n", name);
    memcpy(out_function, &symbol, sizeof symbol);
    return symbol;
}

static int set_up(void **state) {
    (void)state;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)echi_random_u32(&r);
    const bool complete =
        look_up("sodium_init", &sodium.init) && look_up("crypto_hash_sha256", &sodium.sha256) &&
        look_up("crypto_auth_hmacsha256_statebytes", &sodium.hmac_statebytes) &&
        look_up("crypto_auth_hmacsha256_init", &sodium.hmac_init) && look_up("crypto_auth_hmacsha256_update", &sodium.hmac_update) &&
        look_up("crypto_auth_hmacsha256_final", &sodium.hmac_final) && look_up("crypto_onetimeauth_poly1305", &sodium.poly1305) &&
        look_up("crypto_stream_chacha20_ietf_xor_ic", &sodium.chacha20) &&
        look_up("crypto_aead_chacha20poly1305_ietf_encrypt_detached", &sodium.aead);
    return complete && sodium.init() >= 0 ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    echi_library_close(library);
    return 0;
}

/* A key, a place in `data` and a length; each in its own stream, so that what fails can be run alone. */
struct draw { uint8_t key[32]; const uint8_t *at; size_t len; struct echi_random r; };

static struct draw draw(uint32_t test, uint32_t i) {
    struct draw d;
    echi_random_init(&d.r, 2 + test, ECHI_STREAM_TEST, i);
    for (size_t k = 0; k < sizeof d.key; k++) d.key[k] = (uint8_t)echi_random_u32(&d.r);
    d.len = echi_random_below(&d.r, i % 100 ? MOST + 1 : LONGEST + 1);
    d.at = data + echi_random_below(&d.r, (uint32_t)(LONGEST - d.len) + 1);
    return d;
}

static void check(const void *got, const void *wanted, size_t n, const struct draw *d, uint32_t i) {
    if (memcmp(got, wanted, n) != 0) fail_msg("draw %u, %zu bytes: not what libsodium says", (unsigned)i, d->len);
}

static void sha256_agrees(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TIMES; i++) {
        const struct draw d = draw(0, i);
        uint8_t got[32], wanted[32];
        struct echi_sha256 s;
        echi_sha256_begin(&s);
        echi_sha256_add(&s, d.at, d.len);
        echi_sha256_end(&s, got);
        sodium.sha256(wanted, d.at, d.len);
        check(got, wanted, sizeof got, &d, i);
    }
}

static void hmac_agrees(void **state) {
    (void)state;
    _Alignas(16) uint8_t theirs[1024];
    assert_true(sodium.hmac_statebytes() <= sizeof theirs);
    for (uint32_t i = 0; i < TIMES; i++) {
        struct draw d = draw(1, i);
        const size_t key_len = echi_random_below(&d.r, 200);
        uint8_t got[ECHI_HMAC_TAG], wanted[ECHI_HMAC_TAG];
        struct echi_hmac h;
        echi_hmac_begin(&h, data, key_len);
        echi_hmac_add(&h, d.at, d.len);
        echi_hmac_end(&h, got);
        sodium.hmac_init(theirs, data, key_len);
        sodium.hmac_update(theirs, d.at, d.len);
        sodium.hmac_final(theirs, wanted);
        check(got, wanted, sizeof got, &d, i);
    }
}

static void chacha20_agrees(void **state) {
    (void)state;
    static const uint8_t zeros[ECHI_CHACHA20_BLOCK];
    for (uint32_t i = 0; i < TIMES; i++) {
        struct draw d = draw(2, i);
        const uint8_t *nonce = data + echi_random_below(&d.r, 1000);
        const uint32_t counter = echi_random_u32(&d.r);
        uint8_t got[ECHI_CHACHA20_BLOCK], wanted[ECHI_CHACHA20_BLOCK];
        echi_chacha20_block(d.key, counter, nonce, got);
        sodium.chacha20(wanted, zeros, sizeof zeros, nonce, counter, d.key);
        check(got, wanted, sizeof got, &d, i);
    }
}

static void poly1305_agrees(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TIMES; i++) {
        struct draw d = draw(3, i);
        const size_t cut = echi_random_below(&d.r, (uint32_t)d.len + 1);
        uint8_t got[ECHI_POLY1305_TAG], wanted[ECHI_POLY1305_TAG];
        struct echi_poly1305 p;
        echi_poly1305_begin(&p, d.key);
        echi_poly1305_add(&p, d.at, cut);
        echi_poly1305_add(&p, d.at + cut, d.len - cut);
        echi_poly1305_end(&p, got);
        sodium.poly1305(wanted, d.at, d.len, d.key);
        check(got, wanted, sizeof got, &d, i);
    }
}

/* The whole of AEAD_CHACHA20_POLY1305: libsodium encrypts, and its tag is our seal of head and ciphertext. */
static void seal_agrees(void **state) {
    (void)state;
    for (uint32_t i = 0; i < TIMES; i++) {
        struct draw d = draw(4, i);
        const size_t head_len = echi_random_below(&d.r, 100);
        const uint8_t sender = (uint8_t)echi_random_u32(&d.r), low = (uint8_t)echi_random_u32(&d.r), high = (uint8_t)echi_random_u32(&d.r);
        const uint8_t nonce[ECHI_CHACHA20_NONCE] = {[1] = sender, [4] = low, [11] = high};
        uint8_t got[ECHI_SEAL_TAG], wanted[ECHI_SEAL_TAG];
        struct echi_seal s;
        sodium.aead(cipher, wanted, NULL, d.at, d.len, data, head_len, NULL, nonce, d.key);
        echi_seal_begin(&s, d.key, (uint32_t)sender << 8, (uint64_t)high << 56 | low);
        echi_seal_head(&s, data, head_len);
        echi_seal_body(&s, cipher, d.len);
        echi_seal_end(&s, got);
        check(got, wanted, sizeof got, &d, i);
    }
}

int main(void) {
    static const char *const names[] = {"libsodium.so.23", "libsodium.so.26", "libsodium.so"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_agrees),   cmocka_unit_test(hmac_agrees), cmocka_unit_test(chacha20_agrees),
        cmocka_unit_test(poly1305_agrees), cmocka_unit_test(seal_agrees),
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !library; i++) library = echi_library_open(names[i]);
    if (!library) {
        print_message("skipped: libsodium is not installed\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
