/* SPDX-License-Identifier: Apache-2.0
 * A live node whose peer turns bad: frames with damaged headers behind a proper hello. Nothing may crash, overrun a buffer
 * or hang; what is valid must survive. The parsers alone are fuzzed in test/fuzz. */
#include "net_nodes.h"

#include "echi_hello.h"
#include "echi_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEED 20240607u
static struct echi_random rng;

static uint32_t below(uint32_t n) { return echi_random_below(&rng, n); }

/* A few bytes changed, with a liking for the extreme. */
static void mutate(uint8_t *bytes, size_t len) {
    for (uint32_t times = 1 + below(4); times > 0; times--) {
        uint8_t *at = &bytes[below((uint32_t)len)];
        switch (below(4)) {
        case 0:
            *at = (uint8_t)below(256);
            break;
        case 1:
            *at ^= (uint8_t)(1u << below(8));
            break;
        case 2:
            *at = 255;
            break;
        default:
            *at = 0;
        }
    }
}

/* --- a valid stream of frames --- */

static uint8_t stream[1 << 19];
static size_t stream_len, starts[256];
static int n_starts;

static void append(struct echi_frame frame) {
    frame.epoch = ECHI_FRAME_EPOCH;
    starts[n_starts++] = stream_len;
    echi_frame_store(&frame, stream + stream_len);
    stream_len += ECHI_FRAME_HEADER;
    for (size_t i = 0; i < frame.meta_len + frame.chunk_len; i++) stream[stream_len++] = (uint8_t)(i * 31 + frame.message);
}

static void append_message(uint8_t kind, uint32_t number, uint16_t meta_len, uint64_t total) {
    uint64_t at = 0;
    do {
        uint64_t chunk = total - at < ECHI_NET_CHUNK ? total - at : ECHI_NET_CHUNK;
        append((struct echi_frame){.type = ECHI_FRAME_DATA,
                                   .kind = kind,
                                   .message = number,
                                   .meta_len = at == 0 ? meta_len : 0,
                                   .offset = at,
                                   .total = total,
                                   .chunk_len = (uint32_t)chunk});
        at += chunk;
    } while (at < total);
}

static void make_stream(void) {
    stream_len = 0;
    n_starts = 0;
    append((struct echi_frame){.type = ECHI_FRAME_HELLO, .meta_len = 900});
    append_message(HEARTBEAT, 0, 16, 0);
    append((struct echi_frame){.type = ECHI_FRAME_CREDIT, .kind = PUSH, .total = 3});
    append_message(PUSH, 1, 64, 150000);
    append_message(NOTE, 2, 100, 0);
    append_message(ROWS, 3, 0, 1);
    append_message(ROWS, 4, 1, 65536);
    for (uint16_t i = 0; i < 40; i++) append_message(NOTE, 5u + i, i, 0);
    append((struct echi_frame){.type = ECHI_FRAME_GOODBYE});
}

/* Plays rank 1 of 2 by hand up to READY, then sends what it likes. */
static int impostor(const char *address) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    to.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    static struct echi_hello hello;
    struct echi_net_config config = node_config(1, 2, NULL, NULL);
    uint8_t out[ECHI_FRAME_BODY_CAP + 2 * ECHI_FRAME_HEADER];
    echi_hello_make(&hello, &config);
    size_t len = echi_hello_store(&hello, out + ECHI_FRAME_HEADER);
    echi_frame_store(&(struct echi_frame){.type = ECHI_FRAME_HELLO, .epoch = 1, .meta_len = (uint16_t)len}, out);
    len += ECHI_FRAME_HEADER;
    echi_frame_store(&(struct echi_frame){.type = ECHI_FRAME_CONNECTED, .epoch = 1}, out + len);
    len += ECHI_FRAME_HEADER;
    assert_int_equal(send(fd, out, len, MSG_NOSIGNAL), len);
    return fd;
}

static void test_live(void **state) {
    (void)state;
    static uint8_t copy[sizeof stream];
    static uint8_t place[4][200000];
    int lost = 0;
    for (int round = 0; round < 60; round++) {
        struct echi_net_config config = node_config(0, 2, NULL, "127.0.0.1:0");
        struct echi_net *net;
        struct echi_net_event events[16];
        int count;
        assert_int_equal(echi_net_open(&config, &net, NULL), ECH_OK);
        int fd = impostor(echi_net_address(net));
        do assert_int_equal(echi_net_poll(net, echi_now() + LONG, events, 1, &count, NULL), ECH_OK);
        while (count == 0 || events[0].type != ECHI_NET_READY);
        for (int i = 0; i < 4; i++) {
            memset(place[i] + 150000, 0xA5, 50000);
            assert_int_equal(echi_net_post(net, 1, i < 2 ? PUSH : ROWS, 0, place[i], 150000, 0, NULL), ECH_OK);
        }
        make_stream();
        size_t first = starts[1]; /* without the hello */
        memcpy(copy, stream, stream_len);
        if (round > 0) mutate(copy + starts[1 + below((uint32_t)n_starts - 1)], ECHI_FRAME_HEADER);
        size_t at = first;
        bool gone = false;
        for (int turn = 0; turn < 1000 && !gone; turn++) {
            size_t part = 1 + below(60000);
            if (part > stream_len - at) part = stream_len - at;
            if (part) {
                ssize_t put = send(fd, copy + at, part, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (put > 0) at += (size_t)put;
            } else {
                shutdown(fd, SHUT_WR);
            }
            assert_int_equal(echi_net_poll(net, echi_now() + MS, events, 16, &count, NULL), ECH_OK);
            for (int i = 0; i < count; i++) {
                gone |= events[i].type == ECHI_NET_LOST;
                if (events[i].type == ECHI_NET_LOST && round == 0) assert_true(events[i].orderly);
                lost += events[i].type == ECHI_NET_LOST && !events[i].orderly;
            }
        }
        if (!gone) fail_msg("round %d of seed %u hangs", round, SEED);
        int spoilt = 0;
        for (int i = 0; i < 4; i++)
            for (int b = 150000; b < 200000; b++) spoilt += place[i][b] != 0xA5;
        assert_int_equal(spoilt, 0);
        close(fd);
        echi_net_close(net, 0);
    }
    assert_true(lost > 30);
}

static int seed(void **state) {
    (void)state;
    echi_random_init(&rng, SEED, ECHI_STREAM_TEST, 0);
    return 0;
}

int main(void) {
    print_message("seed %u\n", SEED);
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup(test_live, seed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
