/* SPDX-License-Identifier: Apache-2.0
 * HMAC, HKDF, ChaCha20, Poly1305 and the seal over them: against the RFCs' own examples, cut at every place, and Poly1305
 * against a slow one that is obvious. test_crypto_sodium.c compares with another library. */
#include "echi_chacha20.h"
#include "echi_hkdf.h"
#include "echi_hmac.h"
#include "echi_poly1305.h"
#include "echi_random.h"
#include "echi_seal.h"
#include "echi_secret.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ bytes */

static uint8_t digit(char c) { return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10); }

/* Reads hexadecimal digits, two a byte. */
static size_t unhex(const char *hex, uint8_t *out, size_t most) {
    const size_t n = strlen(hex) / 2;
    assert_true(n <= most);
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    return n;
}

static void check_hex(const uint8_t *got, size_t n, const char *hex) {
    uint8_t wanted[512];
    assert_int_equal(unhex(hex, wanted, sizeof wanted), n);
    assert_memory_equal(got, wanted, n);
}

static void check_zeroed(const void *p, size_t n) {
    const uint8_t *at = p;
    for (size_t i = 0; i < n; i++) assert_int_equal(at[i], 0);
}

static void fill(struct echi_random *r, uint8_t *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)echi_random_u32(r);
}

/* The text of RFC 8439 appendix A.3, examples 2 and 3, and that of example 4. */
static const char ietf[] =
    "Any submission to the IETF intended by the Contributor for publication as all or part of an IETF Internet-Draft or RFC "
    "and any statement made within the context of an IETF activity is considered an \"IETF Contribution\". Such statements "
    "include oral statements in IETF sessions, as well as written and electronic communications made at any time or place, "
    "which are addressed to";
static const char jabberwocky[] = "'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\nAll mimsy were the borogoves,\n"
                                  "And the mome raths outgrabe.";

/* ------------------------------------------------------------ HMAC, HKDF */

static void hmac_known_answers(void **state) {
    (void)state;
    static const struct { const char *key, *data, *tag; } known[] = { /* RFC 4231 section 4, cases 1 to 7; 5 is cut to 128 bits there */
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "4869205468657265",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"4a656665", "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd",
         "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
        {"0102030405060708090a0b0c0d0e0f10111213141516171819",
         "cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
         "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
        {"0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c", "546573742057697468205472756e636174696f6e", "a3b6167473100ee06e0c796c2955552b"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t key[64], data[64], tag[ECHI_HMAC_TAG];
        struct echi_hmac h;
        echi_hmac_begin(&h, key, unhex(known[i].key, key, sizeof key));
        echi_hmac_add(&h, data, unhex(known[i].data, data, sizeof data));
        echi_hmac_end(&h, tag);
        check_hex(tag, strlen(known[i].tag) / 2, known[i].tag);
        check_zeroed(&h, sizeof h);
    }
    static const struct { const char *data, *tag; } long_key[] = { /* cases 6 and 7: a key of 131 bytes */
        {"Test Using Larger Than Block-Size Key - Hash Key First", "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before being "
         "used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (size_t i = 0; i < 2; i++) {
        uint8_t key[131], tag[ECHI_HMAC_TAG];
        struct echi_hmac h;
        memset(key, 0xaa, sizeof key);
        echi_hmac_begin(&h, key, sizeof key);
        echi_hmac_add(&h, long_key[i].data, strlen(long_key[i].data));
        echi_hmac_end(&h, tag);
        check_hex(tag, sizeof tag, long_key[i].tag);
    }
}

/* A key of exactly a block is used as it is, and one byte more is hashed (RFC 2104 section 2). The tag is that of Python's hmac. */
static void hmac_key_of_a_block(void **state) {
    (void)state;
    uint8_t key[65], hashed[32], tag[ECHI_HMAC_TAG], same[ECHI_HMAC_TAG];
    struct echi_hmac h;
    struct echi_sha256 s;
    for (size_t i = 0; i < sizeof key; i++) key[i] = (uint8_t)i;
    echi_hmac_begin(&h, key, 64);
    echi_hmac_end(&h, tag);
    check_hex(tag, sizeof tag, "3499f163f48604c0b15ac89e4e7c66f314fb3b203b8ac2f564828e62f6be9d9d");
    echi_sha256_begin(&s);
    echi_sha256_add(&s, key, 65);
    echi_sha256_end(&s, hashed);
    echi_hmac_begin(&h, key, 65);
    echi_hmac_end(&h, tag);
    echi_hmac_begin(&h, hashed, 32);
    echi_hmac_end(&h, same);
    assert_memory_equal(tag, same, sizeof tag);
}

static void hmac_in_pieces(void **state) {
    (void)state;
    uint8_t data[150], whole[ECHI_HMAC_TAG], pieces[ECHI_HMAC_TAG];
    struct echi_hmac h;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    fill(&r, data, sizeof data);
    echi_hmac_begin(&h, "key", 3);
    echi_hmac_add(&h, data, sizeof data);
    echi_hmac_end(&h, whole);
    for (size_t cut = 0; cut <= sizeof data; cut++) {
        echi_hmac_begin(&h, "key", 3);
        echi_hmac_add(&h, data, cut);
        echi_hmac_add(&h, NULL, 0);
        echi_hmac_add(&h, data + cut, sizeof data - cut);
        echi_hmac_end(&h, pieces);
        assert_memory_equal(whole, pieces, sizeof whole);
    }
}

static void hkdf_known_answers(void **state) {
    (void)state;
    static const struct { const char *secret, *salt, *info, *key, *out; } known[] = { /* RFC 5869 appendix A.1 to A.3 */
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c", "f0f1f2f3f4f5f6f7f8f9",
         "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
         "404142434445464748494a4b4c4d4e4f",
         "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
         "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
         "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeef"
         "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
         "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
         "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
         "cc30c58179ec3e87c14c01d5c1f3434f1d87"},
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "", "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t secret[80], salt[80], info[80], key[ECHI_HKDF_KEY], out[82];
        const size_t len = strlen(known[i].out) / 2;
        echi_hkdf_extract(salt, unhex(known[i].salt, salt, sizeof salt), secret, unhex(known[i].secret, secret, sizeof secret), key);
        check_hex(key, sizeof key, known[i].key);
        assert_true(echi_hkdf_expand(key, info, unhex(known[i].info, info, sizeof info), out, len));
        check_hex(out, len, known[i].out);
    }
}

/* What is shorter is the beginning of what is longer, nothing is written behind it, and the most is the most: 255 blocks, whose
 * hash was computed by a second implementation, in Python. */
static void hkdf_lengths(void **state) {
    (void)state;
    static uint8_t longest[ECHI_HKDF_MOST + 1], out[ECHI_HKDF_MOST + 1];
    const uint8_t key[ECHI_HKDF_KEY] = {1};
    assert_true(echi_hkdf_expand(key, "info", 4, longest, ECHI_HKDF_MOST));
    for (size_t len = 0; len <= 100; len++) {
        memset(out, 0xee, sizeof out);
        assert_true(echi_hkdf_expand(key, "info", 4, out, len));
        assert_memory_equal(out, longest, len);
        assert_int_equal(out[len], 0xee);
    }
    memset(out, 0xee, sizeof out);
    assert_false(echi_hkdf_expand(key, "info", 4, out, ECHI_HKDF_MOST + 1));
    assert_int_equal(out[0], 0xee);
    struct echi_sha256 s;
    uint8_t hash[32];
    echi_sha256_begin(&s);
    echi_sha256_add(&s, longest, ECHI_HKDF_MOST);
    echi_sha256_end(&s, hash);
    check_hex(hash, sizeof hash, "d9cfdfe3a3a27b703108f9af4a4c979517e5a3c7e0f216c4ae3c6463c005726e");
}

/* --------------------------------------------------------------- ChaCha20 */

static void chacha20_known_answers(void **state) {
    (void)state;
    static const struct { const char *key, *nonce; uint32_t counter; const char *block; } known[] = {
        /* RFC 8439 section 2.3.2 */
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "000000090000004a00000000", 1,
         "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
         "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"},
        /* appendix A.1, 1 to 5 */
        {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", 0,
         "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
         "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"},
        {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", 1,
         "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
         "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"},
        {"0000000000000000000000000000000000000000000000000000000000000001", "000000000000000000000000", 1,
         "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
         "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"},
        {"00ff000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000", 2,
         "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
         "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"},
        {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000002", 0,
         "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
         "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t key[ECHI_CHACHA20_KEY], nonce[ECHI_CHACHA20_NONCE], block[ECHI_CHACHA20_BLOCK];
        unhex(known[i].key, key, sizeof key);
        unhex(known[i].nonce, nonce, sizeof nonce);
        echi_chacha20_block(key, known[i].counter, nonce, block);
        check_hex(block, sizeof block, known[i].block);
    }
}

/* --------------------------------------------------------------- Poly1305 */

static void poly1305(const uint8_t *key, const void *data, size_t len, uint8_t tag[ECHI_POLY1305_TAG]) {
    struct echi_poly1305 p;
    echi_poly1305_begin(&p, key);
    echi_poly1305_add(&p, data, len);
    echi_poly1305_end(&p, tag);
    check_zeroed(&p, sizeof p);
}

static void poly1305_known_answers(void **state) {
    (void)state;
    static const struct { const char *key, *data, *tag; } known[] = {
        /* RFC 8439 section 2.5.2 */
        {"85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b",
         "43727970746f6772617068696320466f72756d2052657365617263682047726f7570", "a8061dc1305136c6c22b8baf0c0127a9"},
        /* appendix A.3: 1, and from 5 on what goes wrong at carries and in the last reduction */
        {"0000000000000000000000000000000000000000000000000000000000000000",
         "0000000000000000000000000000000000000000000000000000000000000000"
         "0000000000000000000000000000000000000000000000000000000000000000",
         "00000000000000000000000000000000"},
        {"0200000000000000000000000000000000000000000000000000000000000000", "ffffffffffffffffffffffffffffffff",
         "03000000000000000000000000000000"},
        {"02000000000000000000000000000000ffffffffffffffffffffffffffffffff", "02000000000000000000000000000000",
         "03000000000000000000000000000000"},
        {"0100000000000000000000000000000000000000000000000000000000000000",
         "fffffffffffffffffffffffffffffffff0ffffffffffffffffffffffffffffff11000000000000000000000000000000",
         "05000000000000000000000000000000"},
        {"0100000000000000000000000000000000000000000000000000000000000000",
         "fffffffffffffffffffffffffffffffffbfefefefefefefefefefefefefefefe01010101010101010101010101010101",
         "00000000000000000000000000000000"},
        {"0200000000000000000000000000000000000000000000000000000000000000", "fdffffffffffffffffffffffffffffff",
         "faffffffffffffffffffffffffffffff"},
        {"0100000000000000040000000000000000000000000000000000000000000000",
         "e33594d7505e43b900000000000000003394d7505e4379cd01000000000000000000000000000000000000000000000001000000000000000000000000000000",
         "14000000000000005500000000000000"},
        {"0100000000000000040000000000000000000000000000000000000000000000",
         "e33594d7505e43b900000000000000003394d7505e4379cd010000000000000000000000000000000000000000000000",
         "13000000000000000000000000000000"},
    };
    uint8_t key[ECHI_POLY1305_KEY], data[64], tag[ECHI_POLY1305_TAG];
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        unhex(known[i].key, key, sizeof key);
        poly1305(key, data, unhex(known[i].data, data, sizeof data), tag);
        check_hex(tag, sizeof tag, known[i].tag);
    }
    /* appendix A.3, 2 to 4 */
    unhex("0000000000000000000000000000000036e5f6b5c5e06070f0efca96227a863e", key, sizeof key);
    poly1305(key, ietf, sizeof ietf - 1, tag);
    check_hex(tag, sizeof tag, "36e5f6b5c5e06070f0efca96227a863e");
    unhex("36e5f6b5c5e06070f0efca96227a863e00000000000000000000000000000000", key, sizeof key);
    poly1305(key, ietf, sizeof ietf - 1, tag);
    check_hex(tag, sizeof tag, "f3477e7cd95417af89a6b8794c310cf0");
    unhex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0", key, sizeof key);
    poly1305(key, jabberwocky, sizeof jabberwocky - 1, tag);
    check_hex(tag, sizeof tag, "4541669a7eaaee61e708dc7cbcc5eb62");
}

/* The slow one: numbers below p in 17 bytes, products by doubling and adding, a full reduction after each addition. */
static void add_mod_p(uint8_t a[17], const uint8_t b[17]) {
    unsigned carry = 0;
    for (int i = 0; i < 17; i++) {
        carry += a[i] + (unsigned)b[i];
        a[i] = (uint8_t)carry;
        carry >>= 8;
    }
    uint8_t five_more[17]; /* a >= p when a + 5 >= 2^130, and then a - p = a + 5 - 2^130 */
    carry = 5;
    for (int i = 0; i < 17; i++) {
        carry += a[i];
        five_more[i] = (uint8_t)carry;
        carry >>= 8;
    }
    if (five_more[16] < 4) return;
    memcpy(a, five_more, 17);
    a[16] = (uint8_t)(a[16] - 4);
}

static void slow_poly1305(const uint8_t *key, const uint8_t *data, size_t len, uint8_t tag[ECHI_POLY1305_TAG]) {
    static const uint8_t clamp[16] = {0xff, 0xff, 0xff, 0x0f, 0xfc, 0xff, 0xff, 0x0f, 0xfc, 0xff, 0xff, 0x0f, 0xfc, 0xff, 0xff, 0x0f};
    uint8_t sum[17] = {0};
    for (size_t at = 0; at < len; at += 16) {
        uint8_t block[17] = {0}, product[17] = {0};
        const size_t n = len - at < 16 ? len - at : 16;
        memcpy(block, data + at, n);
        block[n] = 1;
        add_mod_p(sum, block);
        for (int bit = 127; bit >= 0; bit--) {
            uint8_t copy[17];
            memcpy(copy, product, 17);
            add_mod_p(product, copy);
            if (key[bit / 8] & clamp[bit / 8] & 1 << bit % 8) add_mod_p(product, sum);
        }
        memcpy(sum, product, 17);
    }
    unsigned carry = 0;
    for (int i = 0; i < 16; i++) {
        carry += sum[i] + (unsigned)key[16 + i];
        tag[i] = (uint8_t)carry;
        carry >>= 8;
    }
}

/* Random bytes meet the rare carries once in 2^60 messages, so most words here are next to where carries happen. */
static void fill_extreme(struct echi_random *r, uint8_t *out, size_t n) {
    static const uint8_t some[] = {0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0xfe, 0xfb, 0xfa, 0x05, 0x7f, 0x80, 0xfc, 0x0f};
    while (n) {
        const uint8_t v = echi_random_below(r, 5) ? some[echi_random_below(r, sizeof some)] : (uint8_t)echi_random_u32(r);
        size_t run = 1 + echi_random_below(r, 17);
        if (run > n) run = n;
        memset(out, v, run);
        out += run;
        n -= run;
    }
}

static void poly1305_is_the_slow_one(void **state) {
    (void)state;
    uint8_t key[ECHI_POLY1305_KEY], data[100], tag[ECHI_POLY1305_TAG], wanted[ECHI_POLY1305_TAG];
    for (uint32_t i = 0; i < 4000; i++) {
        struct echi_random r;
        echi_random_init(&r, 2, ECHI_STREAM_TEST, i);
        if (i % 4) fill_extreme(&r, key, sizeof key), fill_extreme(&r, data, sizeof data);
        else fill(&r, key, sizeof key), fill(&r, data, sizeof data);
        const size_t len = echi_random_below(&r, sizeof data + 1);
        poly1305(key, data, len, tag);
        slow_poly1305(key, data, len, wanted);
        if (memcmp(tag, wanted, sizeof tag) != 0) fail_msg("seed 2, stream %u: a message of %zu bytes has another tag", (unsigned)i, len);
    }
}

/* Sums at p and on either side: with r = 1 three blocks add up to 3 * 2^128 and their bytes, and p is 3 * 2^128 + 2^128 - 5.
 * No published vector has a sum of exactly p here, since what goes beyond 2^130 is folded at once. */
static void poly1305_next_to_p(void **state) {
    (void)state;
    const uint8_t key[ECHI_POLY1305_KEY] = {1};
    uint8_t data[48] = {0}, tag[ECHI_POLY1305_TAG], wanted[ECHI_POLY1305_TAG];
    memset(data, 0xff, 16);
    for (int low = 0xf0; low <= 0xff; low++)
        for (uint8_t more = 0; more < 16; more++) {
            data[0] = (uint8_t)low;
            data[16] = more;
            poly1305(key, data, sizeof data, tag);
            slow_poly1305(key, data, sizeof data, wanted);
            assert_memory_equal(tag, wanted, sizeof tag);
        }
}

/* Any length, cut at any two places, and byte by byte. */
static void poly1305_in_pieces(void **state) {
    (void)state;
    uint8_t key[ECHI_POLY1305_KEY], data[70], whole[ECHI_POLY1305_TAG], tag[ECHI_POLY1305_TAG];
    struct echi_poly1305 p;
    struct echi_random r;
    echi_random_init(&r, 3, ECHI_STREAM_TEST, 0);
    fill(&r, key, sizeof key);
    fill(&r, data, sizeof data);
    for (size_t len = 0; len <= sizeof data; len++) {
        poly1305(key, data, len, whole);
        for (size_t first = 0; first <= len; first++)
            for (size_t second = first; second <= len; second++) {
                echi_poly1305_begin(&p, key);
                echi_poly1305_add(&p, data, first);
                echi_poly1305_add(&p, data + first, second - first);
                echi_poly1305_add(&p, data + second, len - second);
                echi_poly1305_end(&p, tag);
                assert_memory_equal(tag, whole, sizeof tag);
            }
        echi_poly1305_begin(&p, key);
        for (size_t i = 0; i < len; i++) echi_poly1305_add(&p, data + i, 1);
        echi_poly1305_add(&p, NULL, 0);
        echi_poly1305_end(&p, tag);
        assert_memory_equal(tag, whole, sizeof tag);
    }
}

/* ------------------------------------------------------------------- seal */

static void frame_key_known_answers(void **state) {
    (void)state;
    static const struct { const char *key; uint32_t sender; uint64_t sequence; const char *frame_key; } known[] = {
        /* RFC 8439 section 2.6.2 */
        {"808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f", 0, UINT64_C(0x0706050403020100),
         "8ad5a08b905f81cc815040274ab29471a833b637e3fd0da508dbb8e2fdd1a646"},
        /* appendix A.4, 1 to 3 */
        {"0000000000000000000000000000000000000000000000000000000000000000", 0, 0,
         "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"},
        {"0000000000000000000000000000000000000000000000000000000000000001", 0, UINT64_C(2) << 56,
         "ecfa254f845f647473d3cb140da9e87606cb33066c447b87bc2666dde3fbb739"},
        {"1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0", 0, UINT64_C(2) << 56,
         "965e3bc6f9ec7ed9560808f4d229f94b137ff275ca9b3fcbdd59deaad23310ae"},
        /* section 2.8.2, with a sender */
        {"808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f", 7, UINT64_C(0x4746454443424140),
         "7bac2b252db447af09b67a55a4e955840ae1d6731075d9eb2a9375783ed553ff"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint8_t key[ECHI_SEAL_KEY], frame_key[ECHI_POLY1305_KEY];
        unhex(known[i].key, key, sizeof key);
        echi_seal_frame_key(key, known[i].sender, known[i].sequence, frame_key);
        check_hex(frame_key, sizeof frame_key, known[i].frame_key);
    }
}

struct frame {
    uint8_t key[ECHI_SEAL_KEY], head[64], body[300], tag[ECHI_SEAL_TAG];
    size_t head_len, body_len;
    uint32_t sender;
    uint64_t sequence;
};

static struct echi_seal seal_all_but_tag(const struct frame *f) {
    struct echi_seal s;
    echi_seal_begin(&s, f->key, f->sender, f->sequence);
    echi_seal_head(&s, f->head, f->head_len);
    echi_seal_body(&s, f->body, f->body_len);
    return s;
}

static void seal_known_answers(void **state) {
    (void)state;
    static const struct { const char *key; uint32_t sender; uint64_t sequence; const char *head, *body, *tag; } known[] = {
        /* RFC 8439 section 2.8.2 */
        {"808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f", 7, UINT64_C(0x4746454443424140), "50515253c0c1c2c3c4c5c6c7",
         "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
         "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b6116",
         "1ae10b594f09e26a7e902ecbd0600691"},
        /* appendix A.5 */
        {"1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0", 0, UINT64_C(0x0807060504030201), "f33388860000000000004e91",
         "64a0861575861af460f062c79be643bd5e805cfd345cf389f108670ac76c8cb24c6cfc18755d43eea09ee94e382d26b0bdb7b73c321b0100d4f03b7f355894cf"
         "332f830e710b97ce98c8a84abd0b948114ad176e008d33bd60f982b1ff37c8559797a06ef4f0ef61c186324e2b3506383606907b6a7c02b0f9f6157b53c867e4"
         "b9166c767b804d46a59b5216cde7a4e99040c5a40433225ee282a1b0a06c523eaf4534d7f83fa1155b0047718cbc546a0d072b04b3564eea1b422273f548271a"
         "0bb2316053fa76991955ebd63159434ecebb4e466dae5a1073a6727627097a1049e617d91d361094fa68f0ff77987130305beaba2eda04df997b714d6c6f2c29"
         "a6ad5cb4022b02709b",
         "eead9d67890cbb22392336fea1851f38"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct frame f = {.sender = known[i].sender, .sequence = known[i].sequence};
        unhex(known[i].key, f.key, sizeof f.key);
        f.head_len = unhex(known[i].head, f.head, sizeof f.head);
        f.body_len = unhex(known[i].body, f.body, sizeof f.body);
        struct echi_seal s = seal_all_but_tag(&f);
        echi_seal_end(&s, f.tag);
        check_hex(f.tag, sizeof f.tag, known[i].tag);
        check_zeroed(&s.mac, sizeof s.mac);
        s = seal_all_but_tag(&f);
        assert_true(echi_seal_check(&s, f.tag));
        check_zeroed(&s.mac, sizeof s.mac);
    }
}

/* Head and body of any lengths: the tag is Poly1305 over what the header says is sealed, wherever the pieces are cut. */
static void seal_in_pieces(void **state) {
    (void)state;
    enum { MOST = 35 };
    struct frame f = {.sender = 3, .sequence = 9};
    uint8_t frame_key[ECHI_POLY1305_KEY], wanted[ECHI_SEAL_TAG];
    struct echi_random r;
    echi_random_init(&r, 4, ECHI_STREAM_TEST, 0);
    fill(&r, f.key, sizeof f.key);
    fill(&r, f.head, MOST);
    fill(&r, f.body, MOST);
    echi_seal_frame_key(f.key, f.sender, f.sequence, frame_key);
    for (f.head_len = 0; f.head_len <= MOST; f.head_len++)
        for (f.body_len = 0; f.body_len <= MOST; f.body_len++) {
            uint8_t sealed[128] = {0};
            const size_t body_at = (f.head_len + 15) / 16 * 16, lengths_at = body_at + (f.body_len + 15) / 16 * 16;
            memcpy(sealed, f.head, f.head_len);
            memcpy(sealed + body_at, f.body, f.body_len);
            sealed[lengths_at] = (uint8_t)f.head_len;
            sealed[lengths_at + 8] = (uint8_t)f.body_len;
            slow_poly1305(frame_key, sealed, lengths_at + 16, wanted);
            struct echi_seal s = seal_all_but_tag(&f);
            echi_seal_end(&s, f.tag);
            assert_memory_equal(f.tag, wanted, sizeof wanted);
            for (size_t cut = 0; cut <= f.head_len || cut <= f.body_len; cut++) {
                const size_t head_cut = cut < f.head_len ? cut : f.head_len, body_cut = cut < f.body_len ? cut : f.body_len;
                echi_seal_begin(&s, f.key, f.sender, f.sequence);
                echi_seal_head(&s, f.head, head_cut);
                echi_seal_head(&s, f.head + head_cut, f.head_len - head_cut);
                echi_seal_body(&s, NULL, 0);
                echi_seal_body(&s, f.body, body_cut);
                echi_seal_body(&s, f.body + body_cut, f.body_len - body_cut);
                assert_true(echi_seal_check(&s, wanted));
            }
        }
}

static void check_refused(const struct frame *f) {
    struct echi_seal s = seal_all_but_tag(f);
    assert_false(echi_seal_check(&s, f->tag));
}

/* Any bit that is another, another sender, sequence or key, and the same bytes with another border. */
static void seal_refuses(void **state) {
    (void)state;
    struct frame f = {.head_len = 40, .body_len = 50, .sender = 1, .sequence = UINT64_C(1) << 40};
    struct echi_random r;
    echi_random_init(&r, 5, ECHI_STREAM_TEST, 0);
    fill(&r, f.key, sizeof f.key);
    fill(&r, f.head, f.head_len);
    fill(&r, f.body, f.body_len);
    struct echi_seal s = seal_all_but_tag(&f);
    echi_seal_end(&s, f.tag);
    s = seal_all_but_tag(&f);
    assert_true(echi_seal_check(&s, f.tag));
    const struct { uint8_t *at; size_t len; } parts[] = {{f.key, sizeof f.key}, {f.head, f.head_len}, {f.body, f.body_len},
                                                         {f.tag, sizeof f.tag}};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
        for (size_t bit = 0; bit < 8 * parts[p].len; bit++) {
            parts[p].at[bit / 8] ^= (uint8_t)(1 << bit % 8);
            check_refused(&f);
            parts[p].at[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    for (int bit = 0; bit < 64; bit++) {
        f.sequence ^= UINT64_C(1) << bit;
        check_refused(&f);
        f.sequence ^= UINT64_C(1) << bit;
    }
    for (int bit = 0; bit < 32; bit++) {
        f.sender ^= UINT32_C(1) << bit;
        check_refused(&f);
        f.sender ^= UINT32_C(1) << bit;
    }
    f.body_len--;
    check_refused(&f);
    /* A zero more at the end looks like padding; and a head of 48 bytes, padding and all, is not one of 40. */
    f.body_len += 2;
    f.body[f.body_len - 1] = 0;
    check_refused(&f);
    f.body_len--;
    f.head_len = 48;
    check_refused(&f);
    f.head_len = 40;
    s = seal_all_but_tag(&f);
    assert_true(echi_seal_check(&s, f.tag));
}

/* ---------------------------------------------------------------- secrets */

static void equal_sees_every_bit(void **state) {
    (void)state;
    uint8_t a[40], b[40];
    memset(a, 0x5a, sizeof a);
    memcpy(b, a, sizeof b);
    assert_true(echi_secret_equal(a, b, sizeof a));
    assert_true(echi_secret_equal(NULL, NULL, 0));
    for (size_t bit = 0; bit < 8 * sizeof b; bit++) {
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(echi_secret_equal(a, b, sizeof a));
        assert_int_equal(echi_secret_equal(a, b, bit / 8), 1);
        b[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

/* Whether a compiler leaves out a wipe shows on the stack after the function has ended: here, on one that is ours, that of
 * a signal. */
enum { STACK = 1 << 17, SECRET = 64 };
static uint8_t *stack, the_secret[SECRET];
static bool wiping;

static void keep_a_secret(int number) {
    uint8_t copy[SECRET];
    volatile uint8_t *at = copy;
    (void)number;
    for (int i = 0; i < SECRET; i++) at[i] = the_secret[i];
    if (wiping) echi_secret_wipe(copy, sizeof copy);
}

/* How many pieces of 8 bytes of the secret it leaves there. */
static int pieces_left(void) {
    int pieces = 0;
    memset(stack, 0, STACK);
    raise(SIGUSR1);
    for (int i = 0; i < SECRET; i += 8) pieces += memmem(stack, STACK, the_secret + i, 8) != NULL;
    return pieces;
}

static void wipe_stays_in_the_program(void **state) {
    (void)state;
    stack = malloc(STACK);
    assert_non_null(stack);
    const stack_t ours = {.ss_sp = stack, .ss_size = STACK};
    struct echi_random r;
    echi_random_init(&r, 6, ECHI_STREAM_TEST, 0);
    fill(&r, the_secret, sizeof the_secret);
    stack_t before;
    struct sigaction action = {.sa_handler = keep_a_secret, .sa_flags = SA_ONSTACK}, action_before;
    assert_int_equal(sigaltstack(&ours, &before), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &action_before), 0);
    wiping = false;
    const int left = pieces_left();
    wiping = true;
    const int wiped = pieces_left();
    sigaction(SIGUSR1, &action_before, NULL);
    sigaltstack(&before, NULL);
    free(stack);
    assert_int_equal(left, SECRET / 8); /* so the test would see them */
    assert_int_equal(wiped, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hmac_known_answers),
        cmocka_unit_test(hmac_key_of_a_block),
        cmocka_unit_test(hmac_in_pieces),
        cmocka_unit_test(hkdf_known_answers),
        cmocka_unit_test(hkdf_lengths),
        cmocka_unit_test(chacha20_known_answers),
        cmocka_unit_test(poly1305_known_answers),
        cmocka_unit_test(poly1305_is_the_slow_one),
        cmocka_unit_test(poly1305_next_to_p),
        cmocka_unit_test(poly1305_in_pieces),
        cmocka_unit_test(frame_key_known_answers),
        cmocka_unit_test(seal_known_answers),
        cmocka_unit_test(seal_in_pieces),
        cmocka_unit_test(seal_refuses),
        cmocka_unit_test(equal_sees_every_bit),
        cmocka_unit_test(wipe_stays_in_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
