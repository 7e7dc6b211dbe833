/* SPDX-License-Identifier: Apache-2.0
 * What messages cost a processor. It depends on the processor, the kernel and the virtual machine around them: between machines by a
 * factor of three, so it is measured and not assumed. */
#include "echi_socket_cost.h"
#include "echi_error.h"
#include "echi_frame.h"
#include "echi_net.h"
#include "echi_os.h"
#include "echi_seal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST ((size_t)2 << 20)       /* of a block: few caches that a core has for itself hold so much */
#define RUN ((size_t)2 << 20)        /* payload bytes of one run */
#define RUNS 8                       /* the shortest counts: whatever else runs here only makes them longer */
#define LONG 0.1                     /* seconds after which no run begins but the second: a slow board seals for long */
#define MESSAGES 16                  /* least messages of a run */
#define WAIT 1000                    /* ms for what this very thread has sent over loopback */

struct bench {
    int fd[2];                       /* 0 sends, 1 receives; both non-blocking */
    uint8_t *block[2];
    size_t size, at;
    bool sealed;
    uint8_t header[ECHI_FRAME_HEADER];
};

/* Above 0, whatever a clock says that stands still. */
static double seconds_since(int64_t began) { return fmax((double)(echi_thread_cpu() - began), 1) * 1e-9; }

static bool connect_pair(struct bench *b) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    b->fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool listens = listener >= 0 && b->fd[0] >= 0 && bind(listener, (struct sockaddr *)&address, len) == 0 &&
                         listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&address, &len) == 0 &&
                         connect(b->fd[0], (struct sockaddr *)&address, len) == 0;
    if (listens) b->fd[1] = accept(listener, NULL, NULL);
    if (listener >= 0) close(listener);
    if (b->fd[1] < 0) return false;
    for (int end = 0; end < 2; end++) {
        (void)setsockopt(b->fd[end], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        if (fcntl(b->fd[end], F_SETFL, O_NONBLOCK) != 0) return false;
    }
    /* Whoever else found the port while it was open must not be talked to. */
    struct sockaddr_in peer, own;
    socklen_t peer_len = sizeof peer, own_len = sizeof own;
    if (getpeername(b->fd[1], (struct sockaddr *)&peer, &peer_len) != 0 || getsockname(b->fd[0], (struct sockaddr *)&own, &own_len) != 0 ||
        peer.sin_port != own.sin_port)
        return false;
    return true;
}

static bool waits(const struct bench *b) {
    struct pollfd readable = {.fd = b->fd[1], .events = POLLIN};
    return poll(&readable, 1, WAIT) == 1;
}

static void seal(const struct bench *b, const uint8_t *payload) {
    static const uint8_t key[ECHI_SEAL_KEY];
    uint8_t tag[ECHI_SEAL_TAG];
    struct echi_seal s;
    if (!b->sealed) return;
    echi_seal_begin(&s, key, 0, 1);
    echi_seal_head(&s, b->header, ECHI_FRAME_SEALED);
    echi_seal_body(&s, payload, ECHI_NET_CHUNK);
    echi_seal_end(&s, tag);
}

/* A frame's next bytes, from `done` on: of the header, then of the payload. */
static int rest_of(struct bench *b, int end, size_t done, struct iovec out[2]) {
    int n = 0;
    if (done < sizeof b->header) out[n++] = (struct iovec){b->header + done, sizeof b->header - done};
    const size_t of_payload = done < sizeof b->header ? 0 : done - sizeof b->header;
    out[n++] = (struct iovec){b->block[end] + b->at + of_payload, ECHI_NET_CHUNK - of_payload};
    return n;
}

/* One frame there; what does not fit into the socket goes when a part has been read. */
static bool one_frame(struct bench *b) {
    const size_t all = sizeof b->header + ECHI_NET_CHUNK;
    size_t sent = 0, got = 0;
    struct iovec rest[2];
    b->at = b->at + 2 * (size_t)ECHI_NET_CHUNK <= b->size ? b->at + ECHI_NET_CHUNK : 0;
    seal(b, b->block[0] + b->at);
    while (got < all) {
        if (sent < all) {
            const struct msghdr m = {.msg_iov = rest, .msg_iovlen = (size_t)rest_of(b, 0, sent, rest)};
            const ssize_t put = sendmsg(b->fd[0], &m, MSG_NOSIGNAL);
            if (put < 0 && errno != EAGAIN && errno != EINTR) return false;
            sent += put > 0 ? (size_t)put : 0;
        }
        if (!waits(b)) return false;
        const int n = rest_of(b, 1, got, rest);
        const ssize_t came = readv(b->fd[1], rest, n);
        if (came == 0 || (came < 0 && errno != EAGAIN && errno != EINTR)) return false;
        got += came > 0 ? (size_t)came : 0;
    }
    seal(b, b->block[1] + b->at);
    return true;
}

static bool one_message(const struct bench *b) {
    uint8_t frame[2 * ECHI_FRAME_HEADER] = {0};
    if (send(b->fd[0], frame, sizeof frame, MSG_NOSIGNAL) != (ssize_t)sizeof frame || !waits(b)) return false;
    for (size_t got = 0; got < sizeof frame;) {
        const ssize_t came = recv(b->fd[1], frame, sizeof frame - got, 0);
        if (came == 0 || (came < 0 && errno != EAGAIN && errno != EINTR)) return false;
        got += came > 0 ? (size_t)came : 0;
    }
    return recv(b->fd[1], frame, sizeof frame, 0) < 0 && errno == EAGAIN;
}

static void run(struct bench *b, struct echi_socket_cost *out) {
    double byte = INFINITY, message = INFINITY;
    const int64_t first = echi_thread_cpu();
    for (int i = 0; i < RUNS && (i < 2 || seconds_since(first) < LONG); i++) {
        const int64_t began = echi_thread_cpu();
        for (size_t done = 0; done < RUN; done += ECHI_NET_CHUNK)
            if (!one_frame(b)) return;
        byte = fmin(byte, seconds_since(began) / (2 * (double)RUN));
        const int64_t then = echi_thread_cpu();
        for (int m = 0; m < MESSAGES; m++)
            if (!one_message(b)) return;
        message = fmin(message, seconds_since(then) / (2 * MESSAGES));
    }
    *out = (struct echi_socket_cost){byte, message};
}

ech_status echi_socket_cost(size_t size, bool sealed, struct echi_socket_cost *out, struct ech_error *err) {
    size = size > MOST ? MOST : size < ECHI_NET_CHUNK ? ECHI_NET_CHUNK : size;
    struct bench b = {.fd = {-1, -1}, .size = size, .sealed = sealed};
    for (int end = 0; end < 2; end++) {
        b.block[end] = echi_alloc_aligned(size);
        if (b.block[end]) memset(b.block[end], end + 1, size);
    }
    const bool memory = b.block[0] && b.block[1];
    if (memory && connect_pair(&b)) run(&b, out);
    for (int end = 0; end < 2; end++) {
        if (b.fd[end] >= 0) close(b.fd[end]);
        echi_free_aligned(b.block[end]);
    }
    return memory ? ECH_OK : echi_fail_memory(err, "net.cost", "messages to measure");
}
