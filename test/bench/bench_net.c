/* SPDX-License-Identifier: Apache-2.0
 * Round trips and throughput between two processes over loopback TCP: what a frame costs beside the bytes. */
#include "echi_net.h"
#include "echi_os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PING, STOP, N_KINDS };
#define LARGEST (8u << 20)
static const struct echi_net_kind kinds[N_KINDS] = {{"ping", 1, 64, LARGEST, 0}, {"stop", 0, 0, 0, 0}};
static uint8_t buffers[64][LARGEST / 8]; /* for many on the way */
static uint8_t big[2][LARGEST];

static void fail(const struct ech_error *err) {
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static struct echi_net_event next(struct echi_net *net) {
    struct echi_net_event e;
    struct ech_error err;
    int count = 0;
    while (count == 0)
        if (echi_net_poll(net, INT64_MAX, &e, 1, &count, &err) != ECH_OK) fail(&err);
    return e;
}

/* Sends back whatever comes, from the very buffer, which is posted again once it has left. */
static int echo(const char *address) {
    struct echi_net_config config = {
        .rank = 1, .world = 2, .kinds = kinds, .n_kinds = N_KINDS, .coordinator = address, .join_timeout = 5000000000};
    struct echi_net *net;
    struct ech_error err;
    if (echi_net_open(&config, &net, &err) != ECH_OK) fail(&err);
    for (uint64_t i = 0; i < 2; i++) echi_net_post(net, 0, PING, big[i], LARGEST, i, NULL);
    for (;;) {
        struct echi_net_event e = next(net);
        if (e.type == ECHI_NET_LOST || (e.type == ECHI_NET_MESSAGE && e.kind == STOP)) break;
        if (e.type == ECHI_NET_MESSAGE) echi_net_send(net, 0, PING, e.meta, e.meta_len, e.payload, e.payload_len, e.cookie, NULL);
        if (e.type == ECHI_NET_MESSAGE && e.payload_len == 0) continue;
        if (e.type == ECHI_NET_SENT) echi_net_post(net, 0, PING, big[e.cookie], LARGEST, e.cookie, NULL);
    }
    echi_net_close(net, 1000000000);
    return 0;
}

static double round_trip(struct echi_net *net, size_t len, int times) {
    int64_t start = echi_now();
    for (int i = 0; i < times; i++) {
        if (len) echi_net_post(net, 1, PING, big[0], len, 0, NULL);
        echi_net_send(net, 1, PING, "0123456789", 10, len ? big[1] : NULL, len, 0, NULL);
        while (next(net).type != ECHI_NET_MESSAGE) {}
    }
    return (double)(echi_now() - start) / times / 1000.0;
}

/* `deep` messages on the way at once; messages a second, there and back. */
static double stream(struct echi_net *net, size_t len, int times, int deep) {
    int64_t start = echi_now();
    int sent = 0, back = 0;
    while (back < times) {
        for (; sent < times && sent - back < deep; sent++) {
            if (len) echi_net_post(net, 1, PING, buffers[sent % 32], len, 0, NULL);
            echi_net_send(net, 1, PING, "0123456789", 10, len ? buffers[32 + sent % 32] : NULL, len, 0, NULL);
        }
        back += next(net).type == ECHI_NET_MESSAGE;
    }
    return times / ((double)(echi_now() - start) / 1e9);
}

int main(void) {
    struct echi_net_config config = {
        .rank = 0, .world = 2, .kinds = kinds, .n_kinds = N_KINDS, .coordinator = "127.0.0.1:0", .join_timeout = 5000000000};
    struct echi_net *net;
    struct ech_error err;
    if (echi_net_open(&config, &net, &err) != ECH_OK) fail(&err);
    pid_t child = fork();
    if (child == 0) return echo(echi_net_address(net)); /* the copy of rank 0 in the child is never touched */
    while (next(net).type != ECHI_NET_READY) {}
    static const size_t lengths[] = {0, 64, 10000, 250000, LARGEST};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        size_t len = lengths[i];
        int times = len > 1000000 ? 100 : len > 100000 ? 1000 : 5000;
        double us = round_trip(net, len, times);
        printf("round trip %8zu bytes %9.1f us", len, us);
        if (len) printf("  %8.1f MB/s, both ways together", 2.0 * (double)len / us);
        printf("\n");
    }
    static const size_t streamed[] = {0, 64, 10000, 250000};
    for (size_t i = 0; i < sizeof streamed / sizeof streamed[0]; i++) {
        double rate = stream(net, streamed[i], streamed[i] > 100000 ? 2000 : 20000, 32);
        printf("stream     %8zu bytes %9.0f messages/s each way at once, %8.1f MB/s each way\n", streamed[i], rate,
               rate * (double)streamed[i] / 1e6);
    }
    echi_net_send(net, 1, STOP, NULL, 0, NULL, 0, 0, NULL);
    echi_net_close(net, 1000000000);
    waitpid(child, NULL, 0);
    return 0;
}
