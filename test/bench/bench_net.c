/* SPDX-License-Identifier: Apache-2.0
 * What net costs beside the bytes, between two processes over loopback TCP.
 *   bench_net             round trips and streams of several sizes
 *   bench_net ping [key]  a small message there and back, beside a bare epoll ping-pong of as many bytes, by turns
 *   bench_net gradients SECONDS [key]   messages of 1 MiB one way: GB/s, and processor time a byte on either side
 * net.sh sets the last beside iperf3. */
#include "echi_net.h"
#include "echi_os.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PING, STOP, BACK, N_KINDS };
#define LARGEST (8u << 20)
#define GRADIENT (1u << 20)
#define DEEP 4 /* gradients on the way: layers of a push */
static const struct echi_net_kind kinds[N_KINDS] = {{"ping", 64, LARGEST, 0, 0, 0}, {"stop", 0, 0, 0, 0, 0}, {"back", 64, 0, 0, 0, 0}};
static uint8_t buffers[64][LARGEST / 8]; /* for many on the way */
static uint8_t big[2][LARGEST];
static const char *key;

static void give(struct echi_net *net, int peer, int kind, const void *meta, size_t meta_len, const void *payload, size_t len,
                 uint64_t cookie) {
    const struct echi_net_message m = {.kind = kind, .priority = kind != STOP, .meta = meta, .meta_len = meta_len, .payload = payload,
                                       .payload_len = len, .cookie = cookie};
    echi_net_send(net, peer, &m, NULL);
}

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

static struct echi_net *open_net(int rank, const char *address) {
    struct echi_net_config config = {.rank = rank, .world = 2, .kinds = kinds, .n_kinds = N_KINDS, .coordinator = address,
                                     .join_timeout = 5000000000, .key = key, .key_len = key ? strlen(key) : 0};
    struct echi_net *net;
    struct ech_error err;
    if (echi_net_open(&config, &net, &err) != ECH_OK) fail(&err);
    return net;
}

/* Rank 0 here and rank 1, which runs `other`, in a child. */
static struct echi_net *open_pair(int (*other)(struct echi_net *net), pid_t *child) {
    struct echi_net *net = open_net(0, "127.0.0.1:0");
    *child = fork();
    if (*child == 0) exit(other(open_net(1, echi_net_address(net)))); /* the copy of rank 0 in the child is never touched */
    while (next(net).type != ECHI_NET_READY) {}
    return net;
}

static void close_pair(struct echi_net *net, pid_t child) {
    give(net, 1, STOP, NULL, 0, NULL, 0, 0);
    echi_net_close(net, 1000000000);
    waitpid(child, NULL, 0);
}

static bool stops(const struct echi_net_event *e) { return e->type == ECHI_NET_LOST || (e->type == ECHI_NET_MESSAGE && e->kind == STOP); }

/* Sends back whatever comes, from the very buffer, which is posted again once it has left. */
static int echo(struct echi_net *net) {
    for (uint64_t i = 0; i < 2; i++) echi_net_post(net, 0, PING, 0, big[i], LARGEST, i, NULL);
    for (;;) {
        struct echi_net_event e = next(net);
        if (stops(&e)) break;
        if (e.type == ECHI_NET_MESSAGE) give(net, 0, PING, e.meta, e.meta_len, e.payload, e.payload_len, e.cookie);
        if (e.type == ECHI_NET_MESSAGE && e.payload_len == 0) continue;
        if (e.type == ECHI_NET_SENT) echi_net_post(net, 0, PING, 0, big[e.cookie], LARGEST, e.cookie, NULL);
    }
    echi_net_close(net, 1000000000);
    return 0;
}

static double round_trip(struct echi_net *net, size_t len, int times) {
    int64_t start = echi_now();
    for (int i = 0; i < times; i++) {
        if (len) echi_net_post(net, 1, PING, 0, big[0], len, 0, NULL);
        give(net, 1, PING, "0123456789", 10, len ? big[1] : NULL, len, 0);
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
            if (len) echi_net_post(net, 1, PING, 0, buffers[sent % 32], len, 0, NULL);
            give(net, 1, PING, "0123456789", 10, len ? buffers[32 + sent % 32] : NULL, len, 0);
        }
        back += next(net).type == ECHI_NET_MESSAGE;
    }
    return times / ((double)(echi_now() - start) / 1e9);
}

static int bench_sizes(void) {
    pid_t child;
    struct echi_net *net = open_pair(echo, &child);
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
    close_pair(net, child);
    return 0;
}

/* --- beside a bare ping-pong --- */

enum { SMALL = 56 + 10, ROUNDS = 15, TRIPS = 3000 };

/* One side of the least that a program with epoll does for a message: wait, read, write. */
static void bare_wait_and_read(int epoll, int fd) {
    struct epoll_event event;
    uint8_t in[SMALL];
    for (size_t have = 0; have < sizeof in;) {
        if (epoll_wait(epoll, &event, 1, -1) != 1) continue;
        ssize_t got = read(fd, in, sizeof in - have);
        if (got == 0) exit(0);
        if (got > 0) have += (size_t)got;
    }
}

static int bare_epoll(int fd) {
    int yes = 1, epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    return epoll;
}

static int bare_pair(pid_t *child) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &len))
        exit(1);
    *child = fork();
    if (*child == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at)) exit(1);
        int epoll = bare_epoll(fd);
        uint8_t out[SMALL] = {0};
        for (;;) {
            bare_wait_and_read(epoll, fd);
            if (write(fd, out, sizeof out) != sizeof out) exit(0);
        }
    }
    int fd = accept(listener, NULL, NULL);
    close(listener);
    return fd;
}

static double bare_trip(int epoll, int fd) {
    uint8_t out[SMALL] = {0};
    int64_t start = echi_now();
    for (int i = 0; i < TRIPS; i++) {
        if (write(fd, out, sizeof out) != sizeof out) exit(1);
        bare_wait_and_read(epoll, fd);
    }
    return (double)(echi_now() - start) / TRIPS / 1000.0;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

/* Puts a process on the first, or the last, of the processors that we may use. */
static void put_on(pid_t process, bool last) {
    cpu_set_t may, one;
    if (sched_getaffinity(0, sizeof may, &may) != 0) return;
    size_t cpu = last ? CPU_SETSIZE - 1 : 0;
    while (!CPU_ISSET(cpu, &may)) cpu = last ? cpu - 1 : cpu + 1;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(process, sizeof one, &one);
}

static int bench_ping(void) {
    pid_t child, bare_child;
    int fd = bare_pair(&bare_child), epoll = bare_epoll(fd);
    struct echi_net *net = open_pair(echo, &child);
    /* A wake-up on one's own processor costs a quarter of one on another: which it is must not be the scheduler's luck. */
    put_on(child, true);
    put_on(bare_child, true);
    put_on(0, false);
    double ours[ROUNDS], bare[ROUNDS], ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        ours[i] = round_trip(net, 0, TRIPS);
        bare[i] = bare_trip(epoll, fd);
        ratio[i] = ours[i] / bare[i];
    }
    double r = median(ratio, ROUNDS);
    printf("round trip of %d bytes%s: %.2f us, bare epoll ping-pong %.2f us; median of %d ratios %.2f  <= 1.5 %s\n", SMALL,
           key ? ", sealed" : "", median(ours, ROUNDS), median(bare, ROUNDS), ROUNDS, r, r <= 1.5 ? "yes" : "NO");
    close_pair(net, child);
    close(fd);
    waitpid(bare_child, NULL, 0);
    return 0;
}

/* --- gradients --- */

static double cpu_seconds(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) + 1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/* Rank 1 keeps DEEP gradients on the way until it is stopped. */
static int give_gradients(struct echi_net *net) {
    int out = 0;
    for (;;) {
        for (; out < DEEP; out++) give(net, 0, PING, "0123456789", 10, buffers[out], GRADIENT, (uint64_t)out);
        struct echi_net_event e = next(net);
        if (stops(&e)) break;
        if (e.type == ECHI_NET_SENT) give(net, 0, PING, "0123456789", 10, buffers[e.cookie], GRADIENT, e.cookie);
    }
    echi_net_close(net, 0);
    return 0;
}

static int bench_gradients(double seconds) {
    pid_t child;
    struct rusage before, after, theirs;
    memset(buffers, 1, sizeof buffers); /* pages of their own, as weights have */
    struct echi_net *net = open_pair(give_gradients, &child);
    for (uint64_t i = 0; i < DEEP; i++) echi_net_post(net, 1, PING, 0, buffers[i], GRADIENT, i, NULL);
    int64_t start = 0;
    uint64_t count = 0;
    const uint64_t warm_up = 200;
    for (;;) {
        struct echi_net_event e = next(net);
        if (e.type == ECHI_NET_LOST) return 1;
        if (e.type != ECHI_NET_MESSAGE) continue;
        echi_net_post(net, 1, PING, 0, e.payload, GRADIENT, e.cookie, NULL);
        if (++count == warm_up) {
            start = echi_now();
            getrusage(RUSAGE_SELF, &before);
        }
        if (count > warm_up && (double)(echi_now() - start) > seconds * 1e9) break;
    }
    double took = (double)(echi_now() - start) / 1e9, bytes = (double)(count - warm_up) * GRADIENT, all = (double)count * GRADIENT;
    getrusage(RUSAGE_SELF, &after);
    give(net, 1, STOP, NULL, 0, NULL, 0, 0);
    while (next(net).type != ECHI_NET_LOST) {}
    wait4(child, NULL, 0, &theirs);
    echi_net_close(net, 0);
    printf("%.3f GB/s %.3f receiver-ns/byte %.3f sender-ns/byte\n", bytes / took / 1e9,
           (cpu_seconds(&after) - cpu_seconds(&before)) * 1e9 / bytes, cpu_seconds(&theirs) * 1e9 / all);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "sizes";
    if (argc > 2 && strcmp(argv[argc - 1], "key") == 0) key = "the bench's own key, known to all";
    if (strcmp(what, "sizes") == 0) return bench_sizes();
    if (strcmp(what, "ping") == 0) return bench_ping();
    if (strcmp(what, "gradients") == 0 && argc > 2) return bench_gradients(atof(argv[2]));
    fprintf(stderr, "usage: bench_net [ping [key] | gradients SECONDS [key]]\n");
    return 2;
}
