/* SPDX-License-Identifier: Apache-2.0
 * The hello to bytes and back, and its comparison. */
#include "echi_hello.h"
#include "echi_bytes.h"
#include "echi_error.h"
#include "echi_sha256.h"

#include <stdarg.h>
#include <stdio.h>

static void hash_kinds(const struct echi_net_kind *kinds, int n_kinds, char hex[65]) {
    struct echi_sha256 sha;
    echi_sha256_begin(&sha);
    for (int i = 0; i < n_kinds; i++) {
        uint8_t fixed[18];
        uint32_t tolerance;
        memcpy(&tolerance, &kinds[i].tolerance, sizeof tolerance);
        struct echi_writer w = echi_writer_over(fixed, sizeof fixed);
        echi_put16(&w, (uint16_t)echi_net_names(&kinds[i]));
        echi_put32(&w, kinds[i].meta_cap);
        echi_put64(&w, kinds[i].payload_cap);
        echi_put32(&w, tolerance);
        echi_sha256_add(&sha, kinds[i].name, strlen(kinds[i].name) + 1);
        echi_sha256_add(&sha, fixed, sizeof fixed);
    }
    uint8_t digest[32];
    echi_sha256_end(&sha, digest);
    echi_sha256_hex(digest, hex);
}

void echi_hello_make(struct echi_hello *hello, const struct echi_net_config *config) {
    memset(hello, 0, sizeof *hello);
    hello->authenticator = config->key ? ECHI_AUTHENTICATOR_POLY1305 : ECHI_AUTHENTICATOR_NONE;
    hello->rank = config->rank;
    hello->world = config->world;
    hello->n_prints = 1 + config->n_fingerprints;
    snprintf(hello->prints[0].name, sizeof hello->prints[0].name, "messages");
    hash_kinds(config->kinds, config->n_kinds, hello->prints[0].value);
    for (int i = 0; i < config->n_fingerprints; i++) {
        const struct echi_net_fingerprint *from = &config->fingerprints[i];
        struct echi_net_fingerprint *to = &hello->prints[1 + i];
        echi_text_clean(to->name, sizeof to->name, (const uint8_t *)from->name, strnlen(from->name, sizeof from->name));
        echi_text_clean(to->value, sizeof to->value, (const uint8_t *)from->value, strnlen(from->value, sizeof from->value));
    }
}

static void put_text(struct echi_writer *w, const char *text) {
    size_t len = strlen(text);
    echi_put8(w, (uint8_t)len);
    echi_put_bytes(w, text, len);
}

static void get_text(struct echi_reader *r, char *out, size_t cap) {
    size_t len = echi_get8(r);
    if (len >= cap) r->ok = false;
    const uint8_t *text = echi_reader_take(r, len);
    echi_text_clean(out, cap, text, text ? len : 0);
}

size_t echi_hello_store(const struct echi_hello *hello, uint8_t out[ECHI_FRAME_BODY_CAP]) {
    struct echi_writer w = echi_writer_over(out, ECHI_FRAME_BODY_CAP);
    echi_put8(&w, (uint8_t)hello->authenticator);
    echi_put_bytes(&w, hello->nonce, sizeof hello->nonce);
    echi_put16(&w, (uint16_t)hello->rank);
    echi_put16(&w, (uint16_t)hello->world);
    put_text(&w, hello->address);
    echi_put8(&w, (uint8_t)hello->n_prints);
    for (int i = 0; i < hello->n_prints; i++) {
        put_text(&w, hello->prints[i].name);
        put_text(&w, hello->prints[i].value);
    }
    return (size_t)(w.at - out);
}

ech_status echi_hello_load(const uint8_t *body, size_t len, struct echi_hello *out, struct ech_error *err) {
    struct echi_reader r = echi_reader_over(body, len);
    memset(out, 0, sizeof *out);
    out->authenticator = echi_get8(&r);
    if (out->authenticator > ECHI_AUTHENTICATOR_POLY1305) r.ok = false;
    echi_get_bytes(&r, out->nonce, sizeof out->nonce);
    out->rank = echi_get16(&r);
    out->world = echi_get16(&r);
    get_text(&r, out->address, sizeof out->address);
    out->n_prints = echi_get8(&r);
    if (out->n_prints > ECHI_HELLO_PRINTS) r.ok = false;
    for (int i = 0; i < out->n_prints && r.ok; i++) {
        get_text(&r, out->prints[i].name, sizeof out->prints[i].name);
        get_text(&r, out->prints[i].value, sizeof out->prints[i].value);
    }
    if (!r.ok || r.at != r.end) return echi_fail(err, ECH_E_FORMAT, "net.hello", "sent a malformed hello");
    return ECH_OK;
}

ech_status echi_hello_compare(const struct echi_hello *mine, const struct echi_hello *theirs, struct ech_error *err) {
    if (mine->world != theirs->world)
        return echi_fail_at(err, ECH_E_MISMATCH, "net.hello", theirs->rank, NULL,
                            "rank %d was started with --world %d but rank %d with --world %d: give all nodes the same",
                            theirs->rank, theirs->world, mine->rank, mine->world);
    int n = mine->n_prints < theirs->n_prints ? mine->n_prints : theirs->n_prints;
    /* The table of kinds comes last: its caps follow from the model, whose name says more to a user. */
    for (int k = 1; k <= n; k++) {
        const struct echi_net_fingerprint *a = &mine->prints[k % n], *b = &theirs->prints[k % n];
        if (strcmp(a->name, b->name) != 0 || strcmp(a->value, b->value) != 0)
            return echi_fail_at(err, ECH_E_MISMATCH, "net.hello", theirs->rank, NULL,
                                "rank %d has %s %s but rank %d has %s %s: start all nodes with the same model, data, options and "
                                "release",
                                theirs->rank, b->name, b->value, mine->rank, a->name, a->value);
    }
    if (mine->n_prints != theirs->n_prints)
        return echi_fail_at(err, ECH_E_MISMATCH, "net.hello", theirs->rank, NULL,
                            "rank %d compares %d values but rank %d compares %d: use the same release on all nodes", theirs->rank,
                            theirs->n_prints, mine->rank, mine->n_prints);
    return ECH_OK;
}

void echi_text_clean(char *out, size_t cap, const uint8_t *text, size_t len) {
    if (len > cap - 1) len = cap - 1;
    for (size_t i = 0; i < len; i++) out[i] = text[i] >= 32 && text[i] < 127 ? (char)text[i] : '?';
    out[len] = 0;
}

void echi_text_print(char *out, size_t cap, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(out, cap, fmt, args);
    va_end(args);
}
