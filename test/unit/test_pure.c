/* SPDX-License-Identifier: Apache-2.0
 * port/pure against published vectors and by counting. */
#include "echi_bytes.h"
#include "echi_checked.h"
#include "echi_error.h"
#include "echi_random.h"
#include "echi_sha256.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- random */

/* Known answers that the authors of Philox publish with it (Random123, kat_vectors, "philox4x32 10"). */
static void philox_known_answers(void **state) {
    (void)state;
    static const struct { uint32_t counter[4], key[2], answer[4]; } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const uint32_t *c = known[i].counter, *k = known[i].key;
        uint32_t out[4];
        echi_random4((uint64_t)k[1] << 32 | k[0], (enum echi_stream)c[3], c[2], (uint64_t)c[1] << 32 | c[0], out);
        assert_memory_equal(out, known[i].answer, sizeof out);
    }
}

static void cursor_walks_the_stream(void **state) {
    (void)state;
    struct echi_random r;
    echi_random_init(&r, 7, ECHI_STREAM_TEST, 3);
    for (uint64_t b = 0; b < 5; b++) {
        uint32_t word[4];
        echi_random4(7, ECHI_STREAM_TEST, 3, b, word);
        for (int i = 0; i < 4; i++) assert_int_equal(echi_random_u32(&r), word[i]);
    }
}

/* Bounds of six standard deviations: with a fixed seed they hold or do not hold for ever. */
static void moments(void **state) {
    (void)state;
    enum { N = 100000 };
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        const double u = echi_random_unit(&r);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / N - 0.5) < 6 * sqrt(1.0 / 12 / N));
    sum = 0;
    for (int i = 0; i < N; i++) {
        const double z = echi_random_normal(&r);
        assert_true(isfinite(z));
        sum += z;
        squares += z * z;
    }
    assert_true(fabs(sum / N) < 6 / sqrt(N));
    assert_true(fabs(squares / N - 1) < 6 * sqrt(2.0 / N));
}

static void below_is_even(void **state) {
    (void)state;
    enum { N = 60000, BOUND = 7 };
    struct echi_random r;
    echi_random_init(&r, 2, ECHI_STREAM_TEST, 0);
    int seen[BOUND] = {0};
    for (int i = 0; i < N; i++) {
        const uint32_t x = echi_random_below(&r, BOUND);
        assert_in_range(x, 0, BOUND - 1);
        seen[x]++;
    }
    for (int i = 0; i < BOUND; i++) assert_true(fabs(seen[i] - (double)N / BOUND) < 6 * sqrt((double)N / BOUND));
    assert_int_equal(echi_random_below(&r, 1), 0);
    /* Four words for three results: without a second draw every third result would come twice as often as the others. */
    int thirds = 0;
    for (int i = 0; i < N; i++) thirds += echi_random_below(&r, 0xC0000000u) % 3 == 0;
    assert_true(abs(thirds - N / 3) < 6 * 116); /* sqrt(N * 1/3 * 2/3) = 115.5 */
}

static void check_bijection(uint64_t seed, uint32_t epoch, uint32_t count) {
    uint8_t *seen = calloc(count, 1);
    assert_non_null(seen);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t p = echi_permute(seed, epoch, count, i);
        if (p >= count || seen[p])
            fail_msg("seed %u epoch %u count %u: place %u goes to %u, which is %s", (unsigned)seed, (unsigned)epoch, (unsigned)count,
                     (unsigned)i, (unsigned)p, p >= count ? "outside" : "taken");
        seen[p] = 1;
    }
    free(seen);
}

static void permute_is_a_bijection(void **state) {
    (void)state;
    for (uint32_t count = 1; count <= 300; count++) check_bijection(count * 3, count % 5, count);
    static const uint32_t more[] = {1023, 1024, 1025, 4095, 4097, 10000, 60000, 65536, 65537};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) check_bijection(i, 1, more[i]);
}

static void permute_reaches_the_largest_counts(void **state) {
    (void)state;
    static const uint32_t counts[] = {1u << 30, (1u << 30) + 1, 1u << 31, UINT32_MAX};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        uint32_t last = 0;
        for (uint32_t i = 0; i < 1000; i++) {
            const uint32_t p = echi_permute(5, 0, counts[c], counts[c] - 1 - i);
            assert_true(p < counts[c]);
            assert_true(i == 0 || p != last);
            last = p;
        }
    }
}

/* Any sample is as likely in any place: the first quarter of the epoch holds a quarter of any quarter of the samples,
 * and seeds and epochs give unlike orders. */
static void permute_mixes(void **state) {
    (void)state;
    enum { N = 60000 };
    int in_quarter[4] = {0}, same_epoch = 0, same_seed = 0;
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t p = echi_permute(1, 0, N, i);
        if (i < N / 4) in_quarter[p / (N / 4)]++;
        same_epoch += p == echi_permute(1, 1, N, i);
        same_seed += p == echi_permute(2, 0, N, i);
    }
    for (int q = 0; q < 4; q++) assert_true(abs(in_quarter[q] - N / 16) < 6 * 61); /* sqrt(N / 16) = 61.2 */
    assert_true(same_epoch < 10 && same_seed < 10);                                /* 1 is expected */
    /* All 24 orders of four occur. */
    uint32_t orders[24], n = 0;
    for (uint32_t epoch = 0; epoch < 400; epoch++) {
        uint32_t order = 0, at = 0;
        for (uint32_t i = 0; i < 4; i++) order = order << 8 | echi_permute(9, epoch, 4, i);
        while (at < n && orders[at] != order) at++;
        if (at == n) {
            assert_true(n < 24);
            orders[n++] = order;
        }
    }
    assert_int_equal(n, 24);
}

/* What a seed means is part of the library's promise: runs are repeated from (seed, epoch) alone.
 * The order was computed by a second implementation, in Python. */
static void permute_stays_as_it_is(void **state) {
    (void)state;
    static const uint32_t order[10] = {24659, 57469, 33770, 12020, 42860, 20106, 34881, 13750, 30122, 57755};
    for (uint32_t i = 0; i < 10; i++) assert_int_equal(echi_permute(1, 0, 60000, i), order[i]);
}

/* ---------------------------------------------------------------- SHA-256 */

static void check_digest(const void *data, size_t len, size_t repeat, const char *hex) {
    struct echi_sha256 s;
    uint8_t out[32];
    char text[65];
    echi_sha256_begin(&s);
    for (size_t i = 0; i < repeat; i++) echi_sha256_add(&s, data, len);
    echi_sha256_end(&s, out);
    for (int i = 0; i < 32; i++) {
        text[2 * i] = "0123456789abcdef"[out[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[out[i] & 15];
    }
    text[64] = 0;
    assert_string_equal(text, hex);
}

/* The examples of FIPS 180-2, appendix B, and NIST's short messages. */
static void sha256_known_answers(void **state) {
    (void)state;
    check_digest("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_digest("abc", 3, 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56, 1,
                 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_digest("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu", 112, 1,
                 "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
    char a[1000];
    memset(a, 'a', sizeof a);
    check_digest(a, sizeof a, 1000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    check_digest("\xbd", 1, 1, "68325720aabd7c82f30f554b313d0570c95accbb7dc4b5aae11204c08ffe732b");
}

/* However the bytes are cut into pieces, the digest is the same. */
static void sha256_in_pieces(void **state) {
    (void)state;
    uint8_t data[300], whole[32], pieces[32];
    struct echi_random r;
    echi_random_init(&r, 3, ECHI_STREAM_TEST, 0);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)echi_random_u32(&r);
    for (size_t len = 0; len <= sizeof data; len++) {
        struct echi_sha256 s;
        echi_sha256_begin(&s);
        echi_sha256_add(&s, data, len);
        echi_sha256_end(&s, whole);
        echi_sha256_begin(&s);
        for (size_t at = 0; at < len;) {
            const size_t n = echi_random_below(&r, (uint32_t)(len - at) + 1);
            echi_sha256_add(&s, data + at, n);
            at += n;
        }
        echi_sha256_end(&s, pieces);
        assert_memory_equal(whole, pieces, 32);
    }
}

/* -------------------------------------------------- bytes, sizes, statuses */

static void bytes_are_little_endian(void **state) {
    (void)state;
    uint8_t b[24] = {0};
    struct echi_writer w = echi_writer_over(b, sizeof b);
    echi_put8(&w, 0x01);
    echi_put16(&w, 0x0302);
    echi_put32(&w, 0x07060504u);
    echi_put64(&w, UINT64_C(0x0f0e0d0c0b0a0908));
    echi_put_bytes(&w, "xyz", 3);
    assert_true(w.ok);
    for (uint8_t i = 0; i < 15; i++) assert_int_equal(b[i], i + 1);
    struct echi_reader r = echi_reader_over(b, 18);
    char text[3];
    assert_int_equal(echi_get8(&r), 0x01);
    assert_int_equal(echi_get16(&r), 0x0302);
    assert_int_equal(echi_get32(&r), 0x07060504);
    assert_true(echi_get64(&r) == UINT64_C(0x0f0e0d0c0b0a0908));
    echi_get_bytes(&r, text, 3);
    assert_memory_equal(text, "xyz", 3);
    assert_true(r.ok && r.at == r.end);
    const uint8_t big[4] = {0x00, 0x00, 0x08, 0x03};
    assert_int_equal(echi_load32be(big), 2051);
    struct echi_writer f = echi_writer_over(b, 8);
    echi_put_f64(&f, -1.5);
    struct echi_reader g = echi_reader_over(b, 8);
    assert_true(echi_get_f64(&g) == -1.5);
}

/* What does not fit is dropped whole, gives zeros, and everything after it too. */
static void bytes_stay_in_bounds(void **state) {
    (void)state;
    uint8_t b[8];
    memset(b, 0xaa, sizeof b);
    struct echi_writer w = echi_writer_over(b, 5);
    echi_put32(&w, 1);
    echi_put16(&w, 2);
    echi_put8(&w, 3);
    assert_false(w.ok);
    for (int i = 4; i < 8; i++) assert_int_equal(b[i], 0xaa);
    struct echi_reader r = echi_reader_over(b, 5);
    uint8_t copy[4] = {9, 9, 9, 9};
    assert_int_equal(echi_get32(&r), 1);
    assert_int_equal(echi_get16(&r), 0);
    assert_int_equal(echi_get8(&r), 0);
    echi_get_bytes(&r, copy, 4);
    assert_false(r.ok);
    assert_int_equal(copy[0] | copy[3], 0);
    struct echi_reader huge = echi_reader_over(b, 5);
    assert_null(echi_reader_take(&huge, SIZE_MAX));
}

static void sizes_do_not_wrap(void **state) {
    (void)state;
    size_t out;
    assert_true(echi_add_size(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_false(echi_add_size(SIZE_MAX, 1, &out));
    assert_true(echi_mul_size(SIZE_MAX / 2, 2, &out) && out == SIZE_MAX - 1);
    assert_false(echi_mul_size(SIZE_MAX / 2 + 1, 2, &out));
}

static void statuses_have_words(void **state) {
    (void)state;
    assert_string_equal(ech_status_name(ECH_E_IO), "ECH_E_IO");
    assert_string_equal(ech_status_text(ECH_OK), "done");
    assert_int_equal(ech_status_may_retry(ECH_E_AGAIN), 1);
    assert_int_equal(ech_status_may_retry(ECH_E_SHAPE), 0);
    assert_non_null(ech_status_name((ech_status)12345));
    assert_non_null(ech_status_text((ech_status)12345));
}

static void errors_are_cut_at_their_fields(void **state) {
    (void)state;
    struct ech_error err;
    char longest[1000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(echi_fail_at(&err, ECH_E_SHAPE, longest, 3, longest, "%s", longest), ECH_E_SHAPE);
    assert_int_equal(err.code, ECH_E_SHAPE);
    assert_int_equal(err.peer, 3);
    assert_int_equal(strlen(err.operation), sizeof err.operation - 1);
    assert_int_equal(strlen(err.layer), sizeof err.layer - 1);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(echi_fail(&err, ECH_E_IO, "a.b", "n %d", 4), ECH_E_IO);
    assert_int_equal(err.peer, -1);
    assert_string_equal(err.layer, "");
    assert_string_equal(err.text, "n 4");
    assert_int_equal(echi_fail_memory(NULL, "a.b", "it"), ECH_E_MEMORY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(cursor_walks_the_stream),
        cmocka_unit_test(moments),
        cmocka_unit_test(below_is_even),
        cmocka_unit_test(permute_is_a_bijection),
        cmocka_unit_test(permute_reaches_the_largest_counts),
        cmocka_unit_test(permute_mixes),
        cmocka_unit_test(permute_stays_as_it_is),
        cmocka_unit_test(sha256_known_answers),
        cmocka_unit_test(sha256_in_pieces),
        cmocka_unit_test(bytes_are_little_endian),
        cmocka_unit_test(bytes_stay_in_bounds),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(statuses_have_words),
        cmocka_unit_test(errors_are_cut_at_their_fields),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
