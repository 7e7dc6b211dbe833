/* SPDX-License-Identifier: Apache-2.0
 * Keys on the wire: the frames that WIRE.md shows, every bit of a sealed frame, and those who would do harm: a hand-played
 * node that reflects, replays, downgrades, cuts, or has another key. */
#include "echi_random.h"
#include "net_nodes.h"

#include "echi_bytes.h"
#include "echi_hello.h"
#include "echi_receive.h"
#include "echi_sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char key[] = "0123456789abcdef", other_key[] = "0123456789abcdeg";

static void assert_says(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* --- the frames of WIRE.md --- */

struct bytes { uint8_t at[2048]; size_t len; };

static void build(struct bytes *out, struct echi_frame frame, const void *meta, const void *chunk, struct echi_sealer *sealer) {
    static struct echi_sealer none;
    frame.epoch = 1;
    echi_frame_store(&frame, out->at);
    echi_sealer_stamp(sealer ? sealer : &none, out->at, meta, frame.meta_len, chunk, frame.chunk_len);
    if (frame.meta_len) memcpy(out->at + ECHI_FRAME_HEADER, meta, frame.meta_len);
    if (frame.chunk_len) memcpy(out->at + ECHI_FRAME_HEADER + frame.meta_len, chunk, frame.chunk_len);
    out->len = ECHI_FRAME_HEADER + frame.meta_len + frame.chunk_len;
}

static void build_hello(struct bytes *out, const struct echi_net_config *config, const uint8_t *nonce, const char *address,
                        struct echi_sealer *sealer) {
    static struct echi_hello hello;
    uint8_t body[ECHI_FRAME_BODY_CAP];
    echi_hello_make(&hello, config);
    if (nonce) memcpy(hello.nonce, nonce, sizeof hello.nonce);
    snprintf(hello.address, sizeof hello.address, "%s", address);
    size_t len = echi_hello_store(&hello, body);
    build(out, (struct echi_frame){.type = ECHI_FRAME_HELLO, .meta_len = (uint16_t)len}, body, NULL, sealer);
}

static void transcript_of(const struct bytes *hello, const struct bytes *challenge, uint8_t out[32]) {
    struct echi_sha256 s;
    echi_sha256_begin(&s);
    echi_sha256_add(&s, hello->at, hello->len);
    echi_sha256_add(&s, challenge->at, challenge->len);
    echi_sha256_end(&s, out);
}

/* The page's frame of that name. */
static void page_frame(FILE *page, const char *name, struct bytes *out) {
    char line[256], title[80];
    snprintf(title, sizeof title, "frame %s\n", name);
    out->len = 0;
    rewind(page);
    while (fgets(line, sizeof line, page) && strcmp(line, title) != 0) {}
    while (fgets(line, sizeof line, page) && strncmp(line, "frame ", 6) != 0 && line[0] != '`')
        for (char *at = line; *at && *at != '\n'; at += *at == ' ' ? 1 : 2) {
            unsigned byte;
            if (*at != ' ' && sscanf(at, "%2x", &byte) == 1) out->at[out->len++] = (uint8_t)byte;
        }
}

static void test_page(void **state) {
    (void)state;
    static const struct echi_net_kind kinds[] = {{"note", 16, 0, 0, 0, 0}, {"push", 8, 64, 0, 0, 3}};
    static const struct echi_net_fingerprint model = {"model", "lenet5"};
    struct echi_net_config config = {.rank = 1, .world = 2, .kinds = kinds, .n_kinds = 2, .fingerprints = &model, .n_fingerprints = 1};
    char path[256];
    snprintf(path, sizeof path, "%.*snet/WIRE.md", (int)(strlen(__FILE__) - strlen("test/unit/test_net_keys.c")), __FILE__);
    FILE *page = fopen(path, "r");
    if (!page) {
        print_message("no %s here: run from the root of the tree\n", path);
        skip();
    }
    uint8_t nonce[2][32], root[32], transcript[32], proof[2][32];
    for (int i = 0; i < 64; i++) nonce[i / 32][i % 32] = (uint8_t)i;
    struct echi_sealer caller, listener;
    static struct { const char *name; struct bytes bytes; } f[13] = {
        {"plain hello", {{0}, 0}}, {"hello", {{0}, 0}}, {"challenge", {{0}, 0}}, {"caller's proof", {{0}, 0}},
        {"listener's proof", {{0}, 0}},
        {"listener's hello", {{0}, 0}}, {"peers", {{0}, 0}}, {"connected", {{0}, 0}}, {"ready", {{0}, 0}}, {"credit", {{0}, 0}},
        {"data", {{0}, 0}}, {"goodbye", {{0}, 0}}, {"refuse", {{0}, 0}}};
    build_hello(&f[0].bytes, &config, NULL, "10.0.0.2:7001", NULL);
    config.key = key;
    build_hello(&f[1].bytes, &config, nonce[0], "10.0.0.2:7001", NULL);
    build(&f[2].bytes, (struct echi_frame){.type = ECHI_FRAME_CHALLENGE, .meta_len = 32}, nonce[1], NULL, NULL);
    transcript_of(&f[1].bytes, &f[2].bytes, transcript);
    echi_keys_root(key, strlen(key), root);
    echi_keys_proof(root, ECHI_SIDE_CALLER, transcript, proof[0]);
    echi_keys_proof(root, ECHI_SIDE_LISTENER, transcript, proof[1]);
    echi_sealer_begin(&caller, root, ECHI_SIDE_CALLER, transcript);
    echi_sealer_begin(&listener, root, ECHI_SIDE_LISTENER, transcript);
    build(&f[3].bytes, (struct echi_frame){.type = ECHI_FRAME_PROOF, .meta_len = 32}, proof[0], NULL, NULL);
    build(&f[4].bytes, (struct echi_frame){.type = ECHI_FRAME_PROOF, .meta_len = 32}, proof[1], NULL, NULL);
    config.rank = 0;
    build_hello(&f[5].bytes, &config, nonce[1], "10.0.0.1:7000", &listener);
    build(&f[6].bytes, (struct echi_frame){.type = ECHI_FRAME_PEERS, .meta_len = 14}, "\x0d" "10.0.0.2:7001", NULL, &listener);
    build(&f[7].bytes, (struct echi_frame){.type = ECHI_FRAME_CONNECTED}, NULL, NULL, &caller);
    build(&f[8].bytes, (struct echi_frame){.type = ECHI_FRAME_READY}, NULL, NULL, &listener);
    build(&f[9].bytes, (struct echi_frame){.type = ECHI_FRAME_CREDIT, .kind = 1, .name = 1, .offset = 1, .total = 1}, NULL, NULL, &caller);
    build(&f[10].bytes,
          (struct echi_frame){.type = ECHI_FRAME_DATA, .kind = 1, .name = 2, .message = 7, .meta_len = 2, .chunk_len = 5, .total = 5},
          "ab", "\1\2\3\4\5", &listener);
    build(&f[11].bytes, (struct echi_frame){.type = ECHI_FRAME_GOODBYE}, NULL, NULL, &caller);
    build(&f[12].bytes, (struct echi_frame){.type = ECHI_FRAME_REFUSE, .meta_len = 6}, "\x09\0\0\0no", NULL, &listener);
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        struct bytes shown;
        page_frame(page, f[i].name, &shown);
        if (shown.len != f[i].bytes.len || memcmp(shown.at, f[i].bytes.at, shown.len) != 0)
            fail_msg("frame '%s' is not as WIRE.md shows it", f[i].name);
    }
    fclose(page);
}

/* --- every bit of sealed frames --- */

static struct bytes sealed[6];
static void make_sealed(struct echi_sealer sealer) {
    static uint8_t chunk[200];
    build(&sealed[0], (struct echi_frame){.type = ECHI_FRAME_READY}, NULL, NULL, &sealer);
    build(&sealed[1], (struct echi_frame){.type = ECHI_FRAME_DATA, .kind = NOTE, .message = 0, .meta_len = 20}, "01234567890123456789",
          NULL, &sealer);
    build(&sealed[2], (struct echi_frame){.type = ECHI_FRAME_CREDIT, .kind = PUSH, .total = 2}, NULL, NULL, &sealer);
    build(&sealed[3], (struct echi_frame){.type = ECHI_FRAME_DATA, .kind = PUSH, .message = 1, .meta_len = 3, .chunk_len = 200,
                                          .total = 200}, "abc", chunk, &sealer);
    build(&sealed[4], (struct echi_frame){.type = ECHI_FRAME_DATA, .kind = NOTE, .message = 2, .meta_len = 1}, "x", NULL, &sealer);
    build(&sealed[5], (struct echi_frame){.type = ECHI_FRAME_GOODBYE}, NULL, NULL, &sealer);
}

/* Frames that the receiving machine takes, of those sent in this order. */
static int taken(const struct echi_sealer *sealer, const struct bytes *const *frames, int n) {
    static struct echi_receive r;
    static uint8_t place[ECHI_NET_CHUNK];
    int whole = 0;
    echi_receive_begin(&r, test_kinds, N_KINDS);
    r.sealer = *sealer;
    for (int i = 0; i < n; i++) {
        struct iovec iov[2];
        size_t at = 0;
        while (at < frames[i]->len) {
            int parts = echi_receive_space(&r, iov);
            for (int p = 0; p < parts && at < frames[i]->len; p++) {
                size_t part = iov[p].iov_len < frames[i]->len - at ? iov[p].iov_len : frames[i]->len - at;
                memcpy(iov[p].iov_base, frames[i]->at + at, part);
                echi_receive_got(&r, part);
                at += part;
                if (part < iov[p].iov_len) break;
            }
            enum echi_receive_step step;
            do {
                if (echi_receive_next(&r, &step, NULL) != ECH_OK) return whole;
                if (step == ECHI_RECEIVE_FRAME && r.frame.chunk_len) echi_receive_place(&r, place);
                whole += step == ECHI_RECEIVE_CHUNK || (step == ECHI_RECEIVE_FRAME && !r.frame.chunk_len);
            } while (step != ECHI_RECEIVE_MORE);
        }
    }
    return whole;
}

static void test_bits(void **state) {
    (void)state;
    uint8_t root[32], transcript[32] = {5};
    struct echi_sealer sealer;
    echi_keys_root(key, strlen(key), root);
    echi_sealer_begin(&sealer, root, ECHI_SIDE_CALLER, transcript);
    make_sealed(sealer);
    const struct bytes *in_order[6], *frames[6];
    for (int i = 0; i < 6; i++) in_order[i] = frames[i] = &sealed[i];
    assert_int_equal(taken(&sealer, frames, 6), 6);
    for (int i = 0; i < 6; i++)
        for (size_t bit = 0; bit < 8 * sealed[i].len; bit++) {
            sealed[i].at[bit / 8] ^= (uint8_t)(1u << bit % 8);
            int got = taken(&sealer, frames, 6);
            if (got != i) fail_msg("bit %zu of frame %d was turned and %d frames were taken", bit, i, got);
            sealed[i].at[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    for (int i = 0; i < 5; i++) { /* left out, repeated, overtaken */
        const struct bytes *changed[7];
        for (int j = 0; j < 5; j++) changed[j] = in_order[j < i ? j : j + 1];
        assert_int_equal(taken(&sealer, changed, 5), i);
        for (int j = 0; j < 7; j++) changed[j] = in_order[j <= i ? j : j - 1];
        assert_int_equal(taken(&sealer, changed, 7), i + 1);
        memcpy(changed, in_order, sizeof in_order);
        changed[i] = in_order[i + 1], changed[i + 1] = in_order[i];
        assert_int_equal(taken(&sealer, changed, 6), i);
    }
    /* The other direction's key, another transcript's, another key's; and no seal at all. */
    struct echi_sealer wrong;
    echi_sealer_begin(&wrong, root, ECHI_SIDE_LISTENER, transcript);
    assert_int_equal(taken(&wrong, frames, 6), 0);
    transcript[31] = 1;
    echi_sealer_begin(&wrong, root, ECHI_SIDE_CALLER, transcript);
    assert_int_equal(taken(&wrong, frames, 6), 0);
    transcript[31] = 0;
    echi_keys_root(other_key, strlen(other_key), root);
    echi_sealer_begin(&wrong, root, ECHI_SIDE_CALLER, transcript);
    assert_int_equal(taken(&wrong, frames, 6), 0);
    wrong.on = false;
    assert_int_equal(taken(&wrong, frames, 6), 0); /* an authenticator where none was agreed on */
    for (int i = 0; i < 6; i++) memset(sealed[i].at + ECHI_FRAME_SEALED, 0, ECHI_SEAL_TAG);
    assert_int_equal(taken(&wrong, frames, 6), 6);
    assert_int_equal(taken(&sealer, frames, 6), 0);
}

/* --- a node played by hand --- */

static int dial(const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 5};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static void put(int fd, const struct bytes *b) { assert_int_equal(send(fd, b->at, b->len, MSG_NOSIGNAL), b->len); }

static bool get_all(int fd, uint8_t *at, size_t len) {
    for (size_t have = 0; have < len;) {
        ssize_t got = recv(fd, at + have, len - have, 0);
        if (got <= 0) return false;
        have += (size_t)got;
    }
    return true;
}

/* The next frame; its length 0: the other side has hung up. */
static void get(int fd, struct bytes *b) {
    b->len = 0;
    if (!get_all(fd, b->at, ECHI_FRAME_HEADER)) return;
    size_t rest = echi_load32(b->at + 16) + echi_load32(b->at + 20);
    assert_true(ECHI_FRAME_HEADER + rest <= sizeof b->at);
    if (get_all(fd, b->at + ECHI_FRAME_HEADER, rest)) b->len = ECHI_FRAME_HEADER + rest;
}

static uint8_t type_of(const struct bytes *b) { return b->len ? b->at[5] : 0; }
static const char *text_of(struct bytes *b) { /* of a REFUSE */
    b->at[b->len] = 0;
    return (const char *)b->at + ECHI_FRAME_HEADER + 4;
}

/* A real node, which polls on its own thread until told to stop. */
struct real {
    struct echi_net_config config;
    struct echi_net *net;
    struct echi_thread thread;
    atomic_bool stop;
    ech_status status;
    struct ech_error err;
    char news[400], lost[400];
    bool ready, orderly;
    int notes;
    char address[64];
};

static void *run_real(void *arg) {
    struct real *n = arg;
    while (!atomic_load(&n->stop) && n->status == ECH_OK) {
        struct echi_net_event e;
        int count;
        n->status = echi_net_poll(n->net, echi_now() + 20 * MS, &e, 1, &count, &n->err);
        if (n->status != ECH_OK || count == 0) continue;
        if (e.type == ECHI_NET_WAITING) snprintf(n->news, sizeof n->news, "%s", e.text);
        if (e.type == ECHI_NET_READY) n->ready = true;
        if (e.type == ECHI_NET_MESSAGE) n->notes++;
        if (e.type == ECHI_NET_LOST) {
            snprintf(n->lost, sizeof n->lost, "%s", e.text);
            n->orderly = e.orderly;
            break;
        }
    }
    echi_net_close(n->net, 0);
    return NULL;
}

static void start_real(struct real *n, int rank, const char *its_key, const char *coordinator) {
    test_key = its_key;
    *n = (struct real){.config = node_config(rank, 2, NULL, coordinator)};
    n->err.text[0] = 0;
    n->config.join_timeout = SECOND;
    assert_int_equal(echi_net_open(&n->config, &n->net, &n->err), ECH_OK);
    snprintf(n->address, sizeof n->address, "%s", echi_net_address(n->net));
    assert_int_equal(echi_thread_start(&n->thread, "real", run_real, n, NULL), ECH_OK);
}

static void end_real(struct real *n) { echi_thread_join(&n->thread); }

/* What the hand-played side knows after a handshake. */
struct mine { uint8_t nonce[32], root[32], transcript[32]; struct echi_sealer out, in; struct bytes hello, challenge, proof; };

/* Calls rank 0 as rank 1 with a key; as far as the other side's CHALLENGE. */
static int greet(struct mine *m, const char *address, const char *my_key, uint8_t first) {
    test_key = my_key;
    struct echi_net_config config = node_config(1, 2, NULL, NULL);
    int fd = dial(address);
    for (int i = 0; i < 32; i++) m->nonce[i] = (uint8_t)(first + i);
    echi_keys_root(my_key, strlen(my_key), m->root);
    build_hello(&m->hello, &config, m->nonce, "127.0.0.1:1", NULL);
    put(fd, &m->hello);
    get(fd, &m->challenge);
    assert_int_equal(type_of(&m->challenge), ECHI_FRAME_CHALLENGE);
    transcript_of(&m->hello, &m->challenge, m->transcript);
    echi_keys_proof(m->root, ECHI_SIDE_CALLER, m->transcript, m->nonce);
    build(&m->proof, (struct echi_frame){.type = ECHI_FRAME_PROOF, .meta_len = 32}, m->nonce, NULL, NULL);
    echi_sealer_begin(&m->out, m->root, ECHI_SIDE_CALLER, m->transcript);
    echi_sealer_begin(&m->in, m->root, ECHI_SIDE_LISTENER, m->transcript);
    return fd;
}

/* Calls, proves, and is let in: the run has begun. */
static int join_by_hand(struct mine *m, const char *address) {
    struct bytes b;
    static const uint8_t answers[] = {ECHI_FRAME_PROOF, ECHI_FRAME_HELLO, ECHI_FRAME_PEERS};
    int fd = greet(m, address, key, 1);
    put(fd, &m->proof);
    for (size_t i = 0; i < 3; i++) {
        get(fd, &b);
        assert_int_equal(type_of(&b), answers[i]);
        uint8_t wanted[32];
        echi_keys_proof(m->root, ECHI_SIDE_LISTENER, m->transcript, wanted);
        if (i == 0) assert_memory_equal(b.at + ECHI_FRAME_HEADER, wanted, 32);
    }
    build(&b, (struct echi_frame){.type = ECHI_FRAME_CONNECTED}, NULL, NULL, &m->out);
    put(fd, &b);
    get(fd, &b);
    assert_int_equal(type_of(&b), ECHI_FRAME_READY);
    return fd;
}

static void note_frame(struct bytes *out, uint32_t number, struct echi_sealer *sealer) {
    build(out, (struct echi_frame){.type = ECHI_FRAME_DATA, .kind = NOTE, .message = number, .meta_len = 3}, "abc", NULL, sealer);
}

/* Joins a real rank 0 and then does as `act` says; rank 0 must lose it, not in order, with this many notes taken. */
static void in_the_run(void (*act)(int fd, struct mine *m), int notes, const char *says) {
    struct real zero;
    struct mine m;
    start_real(&zero, 0, key, "127.0.0.1:0");
    int fd = join_by_hand(&m, zero.address);
    act(fd, &m);
    end_real(&zero);
    close(fd);
    assert_true(zero.ready && !zero.orderly);
    assert_int_equal(zero.notes, notes);
    assert_says(zero.lost, says);
}

static void act_replay(int fd, struct mine *m) {
    struct bytes b;
    note_frame(&b, 0, &m->out);
    put(fd, &b);
    put(fd, &b);
}
static void act_reorder(int fd, struct mine *m) {
    struct bytes a, b;
    note_frame(&a, 0, &m->out);
    note_frame(&b, 1, &m->out);
    put(fd, &b);
    put(fd, &a);
}
static void act_unsealed(int fd, struct mine *m) {
    struct bytes b;
    (void)m;
    note_frame(&b, 0, NULL);
    put(fd, &b);
}
static void act_plain_goodbye(int fd, struct mine *m) {
    struct bytes b;
    (void)m;
    build(&b, (struct echi_frame){.type = ECHI_FRAME_GOODBYE}, NULL, NULL, NULL);
    put(fd, &b);
}
static void act_truncate(int fd, struct mine *m) {
    struct bytes b;
    note_frame(&b, 0, &m->out);
    put(fd, &b);
    note_frame(&b, 1, &m->out);
    b.len -= 1;
    put(fd, &b);
    shutdown(fd, SHUT_WR);
}
static void act_cut_between(int fd, struct mine *m) { /* as who cuts the stream on the way, at the end of a frame */
    struct bytes b;
    note_frame(&b, 0, &m->out);
    put(fd, &b);
    shutdown(fd, SHUT_WR);
}
static void act_reflect(int fd, struct mine *m) { /* what rank 0 would itself send, under its own key of this connection */
    struct bytes b;
    note_frame(&b, 0, &m->in);
    put(fd, &b);
}
static void act_other_epoch(int fd, struct mine *m) {
    uint8_t header[ECHI_FRAME_HEADER];
    struct bytes b;
    echi_frame_store(&(struct echi_frame){.type = ECHI_FRAME_DATA, .kind = NOTE, .epoch = 2}, header);
    echi_sealer_stamp(&m->out, header, NULL, 0, NULL, 0);
    memcpy(b.at, header, sizeof header);
    b.len = sizeof header;
    put(fd, &b);
}
static void act_hello_again(int fd, struct mine *m) {
    struct bytes b;
    struct echi_net_config config = node_config(1, 2, NULL, NULL);
    build_hello(&b, &config, m->nonce, "127.0.0.1:1", &m->out);
    put(fd, &b);
}

static void test_in_the_run(void **state) {
    (void)state;
    in_the_run(act_replay, 1, "rank 1 sent a frame whose authenticator is wrong");
    in_the_run(act_reorder, 0, "authenticator is wrong");
    in_the_run(act_unsealed, 0, "authenticator is wrong");
    in_the_run(act_plain_goodbye, 0, "authenticator is wrong");
    in_the_run(act_truncate, 1, "without a good-bye");
    in_the_run(act_cut_between, 1, "without a good-bye");
    in_the_run(act_reflect, 0, "authenticator is wrong");
    in_the_run(act_other_epoch, 0, "sent a frame of membership 2, but was admitted to 1");
    in_the_run(act_hello_again, 0, "no proper hello");
}

/* --- who does not have the key --- */

static void test_wrong_proofs(void **state) {
    (void)state;
    struct real zero;
    struct mine m;
    struct bytes b, good;
    start_real(&zero, 0, key, "127.0.0.1:0");
    /* A proof that is wrong in one bit, one of another key, one of an earlier connection, none but a sealed frame. */
    for (unsigned i = 0; i < 256; i += 37) {
        int fd = greet(&m, zero.address, key, 1);
        good = m.proof;
        m.proof.at[ECHI_FRAME_HEADER + i / 8] ^= (uint8_t)(1u << i % 8);
        put(fd, &m.proof);
        get(fd, &b);
        assert_int_equal(type_of(&b), ECHI_FRAME_REFUSE);
        assert_says(text_of(&b), "calls itself rank 1 has another key");
        get(fd, &b);
        assert_int_equal(b.len, 0);
        close(fd);
    }
    int fd = greet(&m, zero.address, other_key, 1);
    put(fd, &m.proof);
    get(fd, &b);
    assert_int_equal(type_of(&b), ECHI_FRAME_REFUSE);
    close(fd);
    fd = greet(&m, zero.address, key, 1); /* the very hello of before */
    put(fd, &good);
    get(fd, &b);
    assert_int_equal(type_of(&b), ECHI_FRAME_REFUSE);
    close(fd);
    fd = greet(&m, zero.address, key, 1);
    note_frame(&b, 0, &m.out);
    put(fd, &b);
    get(fd, &b);
    assert_int_equal(b.len, 0);
    close(fd);
    /* The key is right but the model is not: now, and only now, both values are told, under the seal. */
    static const struct echi_net_fingerprint theirs = {"model", "secret-of-mine"};
    fd = dial(zero.address);
    struct echi_net_config config = node_config(1, 2, NULL, NULL);
    config.fingerprints = &theirs;
    config.n_fingerprints = 1;
    build_hello(&m.hello, &config, m.nonce, "127.0.0.1:1", NULL);
    put(fd, &m.hello);
    get(fd, &m.challenge);
    transcript_of(&m.hello, &m.challenge, m.transcript);
    echi_keys_proof(m.root, ECHI_SIDE_CALLER, m.transcript, m.proof.at + ECHI_FRAME_HEADER);
    put(fd, &m.proof);
    get(fd, &b);
    assert_int_equal(type_of(&b), ECHI_FRAME_PROOF);
    get(fd, &b);
    assert_int_equal(type_of(&b), ECHI_FRAME_REFUSE);
    assert_true(echi_load64(b.at + ECHI_FRAME_SEALED) != 0);
    close(fd);
    end_real(&zero);
    assert_int_equal(zero.status, ECH_E_MISMATCH);
    assert_false(zero.ready);
}

static void test_strangers_learn_nothing(void **state) {
    (void)state;
    static const struct echi_net_fingerprint ours = {"model", "secret-of-the-run"};
    struct real zero = {.config = {0}};
    test_key = key;
    zero.config = node_config(0, 2, NULL, "127.0.0.1:0");
    zero.config.join_timeout = SECOND;
    zero.config.fingerprints = &ours;
    zero.config.n_fingerprints = 1;
    assert_int_equal(echi_net_open(&zero.config, &zero.net, &zero.err), ECH_OK);
    snprintf(zero.address, sizeof zero.address, "%s", echi_net_address(zero.net));
    assert_int_equal(echi_thread_start(&zero.thread, "real", run_real, &zero, NULL), ECH_OK);
    struct bytes b, hello;
    struct echi_net_config config = node_config(1, 2, NULL, NULL);
    config.world = 3; /* would be refused with both values */
    build_hello(&hello, &config, NULL, "127.0.0.1:1", NULL);
    for (int with_key = 0; with_key < 2; with_key++) {
        hello.at[ECHI_FRAME_HEADER] = (uint8_t)with_key;
        int fd = dial(zero.address);
        put(fd, &hello);
        for (get(fd, &b); b.len; get(fd, &b)) {
            for (size_t i = 0; i + 6 < b.len; i++) assert_true(memcmp(b.at + i, "secret", 6) != 0);
            for (size_t i = 0; i + 5 < b.len; i++) assert_true(memcmp(b.at + i, "world", 5) != 0);
            assert_true(type_of(&b) == ECHI_FRAME_CHALLENGE || type_of(&b) == ECHI_FRAME_REFUSE);
        }
        close(fd);
    }
    end_real(&zero);
    assert_int_equal(zero.status, ECH_E_TIMEOUT);
}

/* Plays rank 0 against a real rank 1: `answer` gets its hello and says what it likes. */
static void as_listener(const char *its_key, void (*answer)(int fd, const struct bytes *hello), ech_status status, const char *says) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(at.sin_port));
    struct real one;
    struct bytes hello;
    start_real(&one, 1, its_key, address);
    int fd = accept(listener, NULL, NULL);
    struct timeval patience = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    get(fd, &hello);
    assert_int_equal(type_of(&hello), ECHI_FRAME_HELLO);
    answer(fd, &hello);
    end_real(&one);
    close(fd);
    close(listener);
    assert_false(one.ready);
    assert_int_equal(one.status, status);
    assert_says(one.err.text, says);
}

static void answer_reflect(int fd, const struct bytes *hello) {
    struct bytes b;
    uint8_t nonce[32];
    memcpy(nonce, hello->at + ECHI_FRAME_HEADER + 1, 32); /* its own nonce back, too */
    build(&b, (struct echi_frame){.type = ECHI_FRAME_CHALLENGE, .meta_len = 32}, nonce, NULL, NULL);
    put(fd, &b);
    get(fd, &b);
    assert_int_equal(type_of(&b), ECHI_FRAME_PROOF);
    put(fd, &b);
}
static void answer_downgrade(int fd, const struct bytes *hello) {
    struct bytes b;
    (void)hello;
    test_key = NULL;
    struct echi_net_config config = node_config(0, 2, NULL, NULL);
    build_hello(&b, &config, NULL, "127.0.0.1:1", NULL);
    put(fd, &b);
}
static void answer_unproven(int fd, const struct bytes *hello) { /* says that it has a key, and skips the proof */
    struct bytes b;
    (void)hello;
    struct echi_net_config config = node_config(0, 2, NULL, NULL);
    build_hello(&b, &config, NULL, "127.0.0.1:1", NULL);
    put(fd, &b);
}
static void answer_refuse(int fd, const struct bytes *hello) {
    struct bytes b;
    (void)hello;
    build(&b, (struct echi_frame){.type = ECHI_FRAME_REFUSE, .meta_len = 12}, "\x09\0\0\0\x1b[2Jboo!", NULL, NULL);
    put(fd, &b);
}
static void answer_challenge(int fd, const struct bytes *hello) {
    struct bytes b;
    build(&b, (struct echi_frame){.type = ECHI_FRAME_CHALLENGE, .meta_len = 32}, hello->at, NULL, NULL);
    put(fd, &b);
}

static void test_false_coordinators(void **state) {
    (void)state;
    as_listener(key, answer_reflect, ECH_E_MISMATCH, "has another key");
    as_listener(key, answer_downgrade, ECH_E_MISMATCH, "rank 0 was started without --key but rank 1 with one");
    as_listener(key, answer_unproven, ECH_E_MISMATCH, "rank 0 was started without --key but rank 1 with one");
    as_listener(key, answer_refuse, ECH_E_MISMATCH, "(which has not proven that it is) ended the join: ?[2Jboo!");
    as_listener(NULL, answer_challenge, ECH_E_TIMEOUT, "sent a challenge that was not its turn");
}

/* Both real: each side says which of the two states it has. */
static void test_states(void **state) {
    (void)state;
    static const struct { const char *zero, *one, *says; } pairs[] = {
        {key, NULL, "rank 1 was started without --key but rank 0 with one: give all nodes the same --key file"},
        {NULL, key, "rank 1 was started with --key but rank 0 without: give all nodes the same --key file"},
        {key, other_key, "that calls itself rank 1 has another key: give all nodes the same --key file"}};
    for (size_t i = 0; i < 3; i++) {
        struct real zero, one;
        start_real(&zero, 0, pairs[i].zero, "127.0.0.1:0");
        start_real(&one, 1, pairs[i].one, zero.address);
        end_real(&one);
        end_real(&zero);
        assert_false(zero.ready || one.ready);
        assert_int_equal(one.status, ECH_E_MISMATCH);
        assert_int_equal(zero.status, ECH_E_TIMEOUT);
        assert_says(one.err.text, pairs[i].says);
        assert_says(zero.err.text, pairs[i].says);
        assert_null(strstr(zero.err.text, key));
    }
}

/* --- strangers that hold on --- */

static void test_slow_strangers(void **state) {
    (void)state;
    struct real zero;
    test_key = key;
    zero = (struct real){.config = node_config(0, 2, NULL, "127.0.0.1:0")};
    zero.config.join_timeout = LONG;
    assert_int_equal(echi_net_open(&zero.config, &zero.net, &zero.err), ECH_OK);
    snprintf(zero.address, sizeof zero.address, "%s", echi_net_address(zero.net));
    assert_int_equal(echi_thread_start(&zero.thread, "real", run_real, &zero, NULL), ECH_OK);
    /* One says nothing, one a byte now and then, one all but the last byte, one no proof. */
    int fds[4] = {dial(zero.address), dial(zero.address), dial(zero.address), dial(zero.address)};
    int64_t start = echi_now();
    struct echi_net_config config = node_config(1, 2, NULL, NULL);
    struct bytes hello;
    static const uint8_t nonce[32] = {1};
    build_hello(&hello, &config, nonce, "127.0.0.1:1", NULL);
    assert_int_equal(send(fds[2], hello.at, hello.len - 1, MSG_NOSIGNAL), hello.len - 1);
    put(fds[3], &hello);
    int open = 4;
    for (size_t at = 0; open > 0; at++) {
        (void)!send(fds[1], hello.at + at % hello.len, 1, MSG_NOSIGNAL);
        echi_sleep_until(echi_now() + 100 * MS);
        for (int i = 0; i < 4; i++) {
            uint8_t junk[512];
            ssize_t got;
            while (fds[i] >= 0 && (got = recv(fds[i], junk, sizeof junk, MSG_DONTWAIT)) >= 0)
                if (got == 0) {
                    close(fds[i]);
                    fds[i] = -1;
                    open--;
                }
        }
    }
    assert_true(echi_now() - start > 2 * SECOND);
    atomic_store(&zero.stop, true);
    end_real(&zero);
}

/* Claims of much to come are refused by the header alone, before a byte of it is waited for. */
static void test_large_claims(void **state) {
    (void)state;
    struct real zero;
    start_real(&zero, 0, NULL, "127.0.0.1:0");
    static const struct echi_frame claims[] = {
        {.type = ECHI_FRAME_HELLO, .meta_len = UINT16_MAX},
        {.type = ECHI_FRAME_HELLO, .meta_len = 1025},
        {.type = ECHI_FRAME_PEERS, .meta_len = 4097},
        {.type = ECHI_FRAME_PROOF, .meta_len = 33},
        {.type = ECHI_FRAME_HELLO, .chunk_len = 1},
        {.type = ECHI_FRAME_DATA, .kind = BULK, .chunk_len = UINT32_MAX, .total = UINT64_MAX},
        {.type = ECHI_FRAME_DATA, .kind = BULK, .chunk_len = 65537, .total = 1u << 20},
        {.type = ECHI_FRAME_DATA, .kind = BULK, .chunk_len = 9, .offset = UINT64_MAX - 3, .total = 1u << 20},
        {.type = ECHI_FRAME_DATA, .kind = 200, .meta_len = 1},
        {.type = ECHI_FRAME_DATA, .kind = NOTE, .meta_len = 201},
        {.type = ECHI_FRAME_TYPES},
        {.type = 0}};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        struct echi_frame f = claims[i];
        struct bytes b = {.len = ECHI_FRAME_HEADER};
        f.epoch = 1;
        echi_frame_store(&f, b.at);
        int fd = dial(zero.address);
        put(fd, &b);
        get(fd, &b);
        assert_int_equal(b.len, 0);
        close(fd);
    }
    end_real(&zero);
    assert_int_equal(zero.status, ECH_E_TIMEOUT);
}

/* --- addresses --- */

static void test_loopback_unless_keyed(void **state) {
    (void)state;
    static const char *const away[] = {"0.0.0.0:0", "[::]:0", "192.0.2.7:7000", "[2001:db8::1]:7000", "128.0.0.1:1", "126.255.255.255:1"};
    static const char *const home[] = {"127.0.0.1:0", "127.1.2.3:0"};
    test_key = NULL;
    struct echi_net_config config = node_config(0, 2, NULL, NULL);
    struct echi_net *net;
    struct ech_error err;
    for (int rank = 0; rank < 2; rank++)
        for (size_t i = 0; i < sizeof away / sizeof away[0]; i++) {
            config.rank = rank;
            config.coordinator = away[i];
            config.bind = NULL;
            assert_int_equal(echi_net_open(&config, &net, &err), ECH_E_ARGUMENT);
            assert_says(err.text, "leads off this machine");
            assert_says(err.text, "--coordinator");
            assert_says(err.text, "--key FILE");
            assert_says(err.text, "--insecure");
            config.coordinator = "127.0.0.1:1";
            config.bind = away[i];
            assert_int_equal(echi_net_open(&config, &net, &err), ECH_E_ARGUMENT);
            assert_says(err.text, "--bind");
        }
    config = node_config(0, 2, NULL, NULL);
    for (size_t i = 0; i < 2; i++) {
        config.coordinator = home[i];
        assert_int_equal(echi_net_open(&config, &net, &err), ECH_OK);
        echi_net_close(net, 0);
    }
    config.insecure = true;
    for (int i = 0; i < 2; i++) {   /* what it tells is an address that others can dial */
        config.coordinator = away[i];
        if (i == 1 && access("/proc/net/if_inet6", F_OK) != 0) continue;
        assert_int_equal(echi_net_open(&config, &net, &err), ECH_OK);
        assert_null(strstr(echi_net_address(net), "0.0.0.0:"));
        assert_null(strstr(echi_net_address(net), "[::]"));
        assert_int_not_equal(strtol(strrchr(echi_net_address(net), ':') + 1, NULL, 10), 0);
        echi_net_close(net, 0);
    }
    config.insecure = false;
    config.key = key;
    for (config.key_len = 0; config.key_len < ECHI_NET_KEY_LEAST; config.key_len++) {
        assert_int_equal(echi_net_open(&config, &net, &err), ECH_E_ARGUMENT);
        assert_says(err.text, "--key has");
    }
    assert_int_equal(echi_net_open(&config, &net, &err), ECH_OK);
    echi_net_close(net, 0);
}

/* What is tried first by who guesses; and what a key may well look like. */
static void test_trivial_keys(void **state) {
    (void)state;
    static const char *const trivial[] = {"aaaaaaaaaaaaaaaa", "passwordpassword", "passwordpassword\n", "123456789012345678",
                                          "0000000000000001",
                                          "abcdefghijklmnop", "hunter2!hunter2!hunter2!", "qponmlkjihgfedcba"};
    static const char *const good[] = {"3q2+7wAAEjRWeJq83v//", "f3b1c9a04e7725d8", "f3b1c9a04e7725d86a10be93cc5f4e02\n",
                                       "correct horse battery staple"};
    static const uint8_t zeros[32] = {0};
    uint8_t bytes[32];
    for (size_t i = 0; i < sizeof trivial / sizeof *trivial; i++) assert_true(echi_keys_trivial(trivial[i], strlen(trivial[i])));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_false(echi_keys_trivial(good[i], strlen(good[i])));
    assert_true(echi_keys_trivial(zeros, sizeof zeros));
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(7 * i + 3);   /* steps that are all alike */
    assert_true(echi_keys_trivial(bytes, sizeof bytes));
    struct echi_random r;
    echi_random_init(&r, 5, ECHI_STREAM_TEST, 0);
    for (int k = 0; k < 20000; k++) {
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)echi_random_below(&r, 256);
        assert_false(echi_keys_trivial(bytes, k % 2 ? 16 : sizeof bytes));
    }
}

/* A node that listens on loopback while another is on another machine: said by rank 0, before anybody dials. */
static void test_loopback_to_remote(void **state) {
    (void)state;
    test_key = NULL;
    struct echi_net_config config = node_config(0, 3, NULL, "127.0.0.1:0");
    struct echi_net *net;
    struct ech_error err = {.code = ECH_OK};
    struct bytes b;
    int fds[2], count;
    assert_int_equal(echi_net_open(&config, &net, &err), ECH_OK);
    for (int rank = 1; rank < 3; rank++) {
        fds[rank - 1] = dial(echi_net_address(net));
        config.rank = rank;
        build_hello(&b, &config, NULL, rank == 1 ? "127.0.0.1:4001" : "10.9.8.7:4002", NULL);
        put(fds[rank - 1], &b);
    }
    ech_status status = ECH_OK;
    struct echi_net_event e;
    while (status == ECH_OK) status = echi_net_poll(net, echi_now() + 50 * MS, &e, 1, &count, &err);
    assert_int_equal(status, ECH_E_ARGUMENT);
    assert_says(err.text, "rank 1 listens at 127.0.0.1:4001, where rank 2, which is at 10.9.8.7:4002, cannot reach it");
    close(fds[0]), close(fds[1]);
    echi_net_close(net, 0);
}

static void test_bind_loopback_far_from_home(void **state) {
    (void)state;
    struct ifaddrs *all, *one;
    char address[80] = "";
    assert_int_equal(getifaddrs(&all), 0);
    for (one = all; one && !address[0]; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK)) continue;
        char host[64];
        struct sockaddr_in at;
        memcpy(&at, one->ifa_addr, sizeof at);
        if (inet_ntop(AF_INET, &at.sin_addr, host, sizeof host)) snprintf(address, sizeof address, "%s:0", host);
    }
    freeifaddrs(all);
    if (!address[0]) {
        print_message("this machine has no address but loopback\n");
        skip();
    }
    struct real zero, one_;
    test_key = key;
    zero = (struct real){.config = node_config(0, 2, NULL, address)};
    zero.config.join_timeout = SECOND / 2;
    assert_int_equal(echi_net_open(&zero.config, &zero.net, &zero.err), ECH_OK);
    snprintf(zero.address, sizeof zero.address, "%s", echi_net_address(zero.net));
    assert_int_equal(echi_thread_start(&zero.thread, "real", run_real, &zero, NULL), ECH_OK);
    one_ = (struct real){.config = node_config(1, 2, NULL, zero.address)};
    one_.config.bind = "127.0.0.1";
    assert_int_equal(echi_net_open(&one_.config, &one_.net, &one_.err), ECH_OK);
    assert_int_equal(echi_thread_start(&one_.thread, "real", run_real, &one_, NULL), ECH_OK);
    end_real(&one_);
    end_real(&zero);
    assert_int_equal(one_.status, ECH_E_ARGUMENT);
    assert_says(one_.err.text, "--bind 127.0.0.1:0 cannot be reached from other machines");
}

/* --- membership --- */

static void test_drop(void **state) {
    (void)state;
    struct echi_net_hub *hub;
    struct echi_net *net[2];
    struct echi_net_event e[4];
    struct ech_error err;
    int count, ready = 0;
    static uint8_t place[100], out[100];
    test_key = key;
    assert_int_equal(echi_net_hub_create(2, &hub, NULL), ECH_OK);
    for (int i = 0; i < 2; i++) {
        struct echi_net_config config = node_config(i, 2, hub, NULL);
        config.epoch = 5;
        assert_int_equal(echi_net_open(&config, &net[i], &err), ECH_OK);
    }
    for (int turn = 0; ready < 2; turn++) {
        assert_int_equal(echi_net_poll(net[turn % 2], echi_now() + 5 * MS, e, 4, &count, &err), ECH_OK);
        ready += count > 0 && e[0].type == ECHI_NET_READY;
    }
    assert_int_equal(echi_net_post(net[0], 1, PUSH, 0, place, sizeof place, 0, &err), ECH_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(send_kind(net[1], 0, NOTE, "n", 1, NULL, 0, 0, &err), ECH_OK);
    assert_int_equal(send_kind(net[1], 0, PUSH, "p", 1, out, sizeof out, 0, &err), ECH_OK);
    for (int turn = 0; turn < 20; turn++) assert_int_equal(echi_net_poll(net[1], 0, e, 4, &count, &err), ECH_OK);
    assert_int_equal(echi_net_poll(net[0], echi_now() + LONG, e, 1, &count, &err), ECH_OK); /* one of three is told of */
    assert_true(count == 1 && e[0].type == ECHI_NET_MESSAGE);
    echi_net_drop(net[0], 1, "was declared lost");
    int lost = 0;
    for (int turn = 0; turn < 20; turn++) {
        assert_int_equal(echi_net_poll(net[0], 0, e, 4, &count, &err), ECH_OK);
        for (int i = 0; i < count; i++) {
            assert_int_equal(e[i].type, ECHI_NET_LOST);
            assert_string_equal(e[i].text, "rank 1 was declared lost");
            lost++;
        }
    }
    assert_int_equal(lost, 1);
    assert_int_equal(send_kind(net[0], 1, NOTE, "n", 1, NULL, 0, 0, &err), ECH_E_PEER_LOST);
    echi_net_drop(net[0], 1, "again");
    echi_net_close(net[0], 0), echi_net_close(net[1], 0);
    echi_net_hub_destroy(hub);
}

static void test_other_membership(void **state) {
    (void)state;
    test_key = NULL;
    struct real zero, one;
    start_real(&zero, 0, NULL, "127.0.0.1:0");
    one = (struct real){.config = node_config(1, 2, NULL, zero.address)};
    one.config.epoch = 4;
    assert_int_equal(echi_net_open(&one.config, &one.net, &one.err), ECH_OK);
    assert_int_equal(echi_thread_start(&one.thread, "real", run_real, &one, NULL), ECH_OK);
    end_real(&one), end_real(&zero);
    assert_int_equal(one.status, ECH_E_MISMATCH);
    assert_says(one.err.text, "rank 1 is of membership 4 but rank 0 of membership 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_in_the_run),
        cmocka_unit_test(test_wrong_proofs),
        cmocka_unit_test(test_strangers_learn_nothing),
        cmocka_unit_test(test_false_coordinators),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_slow_strangers),
        cmocka_unit_test(test_large_claims),
        cmocka_unit_test(test_loopback_unless_keyed),
        cmocka_unit_test(test_trivial_keys), cmocka_unit_test(test_loopback_to_remote),
        cmocka_unit_test(test_bind_loopback_far_from_home),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_other_membership),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
