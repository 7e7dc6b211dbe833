/* SPDX-License-Identifier: Apache-2.0
 * The in-process transport: nodes are threads of one process that meet at a hub. Each link is two rings of bytes under
 * the hub's mutex. It lacks nothing that TCP has, so that what is tested over it is the code that runs over sockets. */
#include "echi_error.h"
#include "echi_os.h"
#include "echi_transport.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define RING 131072u

struct end { /* one node's end of a link */
    struct echi_link link;
    struct node *node;   /* whose end it is */
    struct end *other;   /* NULL once the other side has hung up */
    struct end *next;    /* of the node's ends, or of those that wait to be accepted */
    bool ended, watched; /* the other side writes no more; report readiness to write */
    size_t begin, count; /* of what the other side has written */
    uint8_t ring[RING];
};
struct node {
    struct echi_transport base;
    struct echi_net_hub *hub;
    int rank, waker;
    bool listening, asleep;     /* asleep: somebody who changes something must ring the waker */
    struct end *ends, *callers; /* links; links not accepted yet, oldest first */
};
struct echi_net_hub {
    int world;
    struct echi_mutex mutex; /* guards everything of every node on the hub */
    struct node *nodes[ECHI_NET_WORLD_MAX];
};

static struct node *of(struct echi_transport *t) { return (struct node *)t; }

static void ring_waker(struct node *node) {
    int saved = errno;
    (void)!write(node->waker, &(uint64_t){1}, sizeof(uint64_t));
    errno = saved;
}

/* Under the mutex: something that `node` waits for may have happened. */
static void notify(struct node *node) {
    if (!node->asleep) return;
    node->asleep = false;
    ring_waker(node);
}

static void unlist(struct end **list, struct end *end) {
    while (*list && *list != end) list = &(*list)->next;
    if (*list) *list = end->next;
}

static void append(struct end **list, struct end *end) {
    while (*list) list = &(*list)->next;
    end->next = NULL;
    *list = end;
}

/* Under the mutex. */
static void drop(struct end *end) {
    if (end->other) {
        end->other->other = NULL;
        end->other->ended = true;
        notify(end->other->node);
    }
    free(end);
}

static ech_status inproc_listen(struct echi_transport *t, struct echi_link *beside, char *address, struct ech_error *err) {
    (void)beside, (void)err;
    struct node *node = of(t);
    echi_mutex_lock(&node->hub->mutex);
    node->listening = true;
    echi_mutex_unlock(&node->hub->mutex);
    snprintf(address, ECHI_NET_ADDRESS, "inproc:%d", node->rank);
    return ECH_OK;
}

static void inproc_unlisten(struct echi_transport *t) {
    struct node *node = of(t);
    echi_mutex_lock(&node->hub->mutex);
    node->listening = false;
    while (node->callers) {
        struct end *end = node->callers;
        node->callers = end->next;
        drop(end);
    }
    echi_mutex_unlock(&node->hub->mutex);
}

static ech_status inproc_dial(struct echi_transport *t, int rank, const char *address, unsigned attempt, void *user,
                              struct echi_link **out, struct ech_error *err) {
    (void)address, (void)attempt;
    struct node *node = of(t);
    struct echi_net_hub *hub = node->hub;
    struct end *mine = malloc(sizeof *mine), *theirs = malloc(sizeof *theirs);
    ech_status status = ECH_OK;
    echi_mutex_lock(&hub->mutex);
    struct node *callee = rank < hub->world ? hub->nodes[rank] : NULL;
    if (!mine || !theirs)
        status = echi_fail_memory(err, "net.dial", "a connection");
    else if (!callee || !callee->listening)
        status = echi_fail(err, ECH_E_PEER_LOST, "net.dial", "is not there");
    if (status == ECH_OK) {
        /* Rings stay as they are: what was not written is never read. */
        mine->link.user = user, theirs->link.user = NULL;
        mine->node = node, theirs->node = callee;
        mine->other = theirs, theirs->other = mine;
        mine->ended = theirs->ended = theirs->watched = false;
        mine->watched = true;
        mine->begin = mine->count = theirs->begin = theirs->count = 0;
        append(&node->ends, mine);
        append(&callee->callers, theirs);
        notify(callee);
        *out = &mine->link;
    }
    echi_mutex_unlock(&hub->mutex);
    if (status != ECH_OK) {
        free(mine);
        free(theirs);
    }
    return status;
}

static ech_status inproc_dialled(struct echi_transport *t, struct echi_link *link, struct ech_error *err) {
    (void)t, (void)link, (void)err;
    return ECH_OK;
}

static struct echi_link *inproc_accept(struct echi_transport *t, void *user) {
    struct node *node = of(t);
    echi_mutex_lock(&node->hub->mutex);
    struct end *end = node->callers;
    if (end) {
        node->callers = end->next;
        append(&node->ends, end);
        end->link.user = user;
    }
    echi_mutex_unlock(&node->hub->mutex);
    return end ? &end->link : NULL;
}

static void inproc_name(struct echi_transport *t, struct echi_link *link, char out[ECHI_NET_ADDRESS]) {
    struct end *end = (struct end *)link;
    echi_mutex_lock(&of(t)->hub->mutex);
    if (end->other)
        snprintf(out, ECHI_NET_ADDRESS, "inproc:%d", end->other->node->rank);
    else
        snprintf(out, ECHI_NET_ADDRESS, "inproc:?");
    echi_mutex_unlock(&of(t)->hub->mutex);
}

static ech_status inproc_check_peer(struct echi_transport *t, struct echi_link *link, struct ech_error *err) {
    (void)t, (void)link, (void)err;
    return ECH_OK; /* of this very process */
}

/* The part of a ring from `at` that lies in one piece, at most `len`. */
static size_t piece(size_t at, size_t len) { return len < RING - at ? len : RING - at; }

static size_t take(struct end *from, uint8_t *to, size_t len) {
    size_t taken = 0;
    while (taken < len && from->count > 0) {
        size_t n = piece(from->begin, from->count < len - taken ? from->count : len - taken);
        memcpy(to + taken, from->ring + from->begin, n);
        from->begin = (from->begin + n) % RING;
        from->count -= n;
        taken += n;
    }
    return taken;
}

static size_t give(struct end *to, const uint8_t *from, size_t len) {
    size_t given = 0;
    while (given < len && to->count < RING) {
        size_t at = (to->begin + to->count) % RING, room = RING - to->count;
        size_t n = piece(at, room < len - given ? room : len - given);
        memcpy(to->ring + at, from + given, n);
        to->count += n;
        given += n;
    }
    return given;
}

static ech_status inproc_read(struct echi_transport *t, struct echi_link *link, struct iovec *iov, int n, size_t *got,
                              struct ech_error *err) {
    struct end *end = (struct end *)link;
    *got = 0;
    echi_mutex_lock(&of(t)->hub->mutex);
    for (int i = 0; i < n; i++) *got += take(end, iov[i].iov_base, iov[i].iov_len);
    bool over = *got == 0 && end->ended;
    if (*got > 0 && end->other && end->other->watched) notify(end->other->node);
    echi_mutex_unlock(&of(t)->hub->mutex);
    return over ? echi_fail(err, ECH_E_END, "net.read", "closed the connection without a good-bye: it ended or was killed")
                : ECH_OK;
}

static ech_status inproc_write(struct echi_transport *t, struct echi_link *link, struct iovec *iov, int n, size_t *put,
                               struct ech_error *err) {
    struct end *end = (struct end *)link;
    *put = 0;
    echi_mutex_lock(&of(t)->hub->mutex);
    struct end *other = end->other;
    for (int i = 0; other && i < n; i++) *put += give(other, iov[i].iov_base, iov[i].iov_len);
    if (*put > 0) notify(other->node);
    echi_mutex_unlock(&of(t)->hub->mutex);
    return other ? ECH_OK : echi_fail(err, ECH_E_PEER_LOST, "net.write", "is gone");
}

static void inproc_watch_write(struct echi_transport *t, struct echi_link *link, bool on) {
    echi_mutex_lock(&of(t)->hub->mutex);
    ((struct end *)link)->watched = on;
    echi_mutex_unlock(&of(t)->hub->mutex);
}

static void inproc_await_bytes(struct echi_transport *t, struct echi_link *link, int bytes) {
    (void)t;
    (void)link;
    (void)bytes;   /* bytes come by the message */
}

static void inproc_hold_unsent(struct echi_transport *t, struct echi_link *link, uint32_t bytes) {
    (void)t;
    (void)link;
    (void)bytes;   /* they leave at once */
}

static void inproc_finish(struct echi_transport *t, struct echi_link *link) {
    struct end *end = (struct end *)link;
    echi_mutex_lock(&of(t)->hub->mutex);
    if (end->other) {
        end->other->ended = true;
        notify(end->other->node);
    }
    echi_mutex_unlock(&of(t)->hub->mutex);
}

static void inproc_hang_up(struct echi_transport *t, struct echi_link *link) {
    struct node *node = of(t);
    echi_mutex_lock(&node->hub->mutex);
    unlist(&node->ends, (struct end *)link);
    drop((struct end *)link);
    echi_mutex_unlock(&node->hub->mutex);
}

/* Under the mutex. */
static int collect(struct node *node, struct echi_ready *out, int cap) {
    int count = 0;
    if (node->callers && count < cap) out[count++] = (struct echi_ready){.read = true};
    for (struct end *end = node->ends; end && count < cap; end = end->next) {
        bool readable = end->count > 0 || end->ended;
        bool writable = end->watched && (!end->other || end->other->count < RING);
        if (readable || writable) out[count++] = (struct echi_ready){end->link.user, readable, writable};
    }
    return count;
}

static ech_status inproc_wait(struct echi_transport *t, int64_t deadline, struct echi_ready *out, int cap, int *count,
                              struct ech_error *err) {
    struct node *node = of(t);
    echi_mutex_lock(&node->hub->mutex);
    *count = collect(node, out, cap);
    node->asleep = *count == 0;
    echi_mutex_unlock(&node->hub->mutex);

    int64_t left = *count > 0 ? 0 : deadline == INT64_MAX ? INT64_MAX : deadline - echi_now();
    if (left < 0) left = 0;
    const int64_t second = 1000000000;
    struct timespec ts = {.tv_sec = (time_t)(left / second), .tv_nsec = (long)(left % second)};
    struct pollfd p = {.fd = node->waker, .events = POLLIN};
    int rc = ppoll(&p, 1, left == INT64_MAX ? NULL : &ts, NULL);
    if (rc < 0 && errno != EINTR)
        return echi_fail(err, ECH_E_IO, "net.wait", "waiting for the other nodes failed: %s", strerror(errno));
    uint64_t rings;
    if (rc > 0) (void)!read(node->waker, &rings, sizeof rings);

    echi_mutex_lock(&node->hub->mutex);
    node->asleep = false;
    *count = collect(node, out, cap);
    echi_mutex_unlock(&node->hub->mutex);
    return ECH_OK;
}

static void inproc_wake(struct echi_transport *t) { ring_waker(of(t)); }

static void inproc_destroy(struct echi_transport *t) {
    struct node *node = of(t);
    inproc_unlisten(t);
    echi_mutex_lock(&node->hub->mutex);
    node->hub->nodes[node->rank] = NULL;
    echi_mutex_unlock(&node->hub->mutex);
    close(node->waker);
    free(node);
}

static const struct echi_transport_ops inproc_ops = {
    .listen = inproc_listen,
    .unlisten = inproc_unlisten,
    .dial = inproc_dial,
    .dialled = inproc_dialled,
    .accept = inproc_accept,
    .name = inproc_name,
    .check_peer = inproc_check_peer,
    .read = inproc_read,
    .write = inproc_write,
    .watch_write = inproc_watch_write,
    .await_bytes = inproc_await_bytes,
    .hold_unsent = inproc_hold_unsent,
    .finish = inproc_finish,
    .hang_up = inproc_hang_up,
    .wait = inproc_wait,
    .wake = inproc_wake,
    .destroy = inproc_destroy,
};

ech_status echi_inproc_create(const struct echi_net_config *config, struct echi_transport **out, struct ech_error *err) {
    struct echi_net_hub *hub = config->hub;
    if (config->world != hub->world)
        return echi_fail(err, ECH_E_ARGUMENT, "net.open", "the hub was made for %d nodes, not %d", hub->world, config->world);
    struct node *node = calloc(1, sizeof *node);
    if (!node) return echi_fail_memory(err, "net.open", "the in-process transport");
    *node =
        (struct node){.base = {&inproc_ops}, .hub = hub, .rank = config->rank, .waker = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    ech_status status = ECH_OK;
    if (node->waker < 0) {
        status = echi_fail(err, ECH_E_IO, "net.open", "no descriptor for waking: %s", strerror(errno));
        goto fail;
    }
    echi_mutex_lock(&hub->mutex);
    bool taken = hub->nodes[node->rank] != NULL;
    if (!taken) hub->nodes[node->rank] = node;
    echi_mutex_unlock(&hub->mutex);
    if (taken) {
        status = echi_fail(err, ECH_E_BUSY, "net.open", "rank %d is on this hub already", node->rank);
        goto fail;
    }
    *out = &node->base;
    return ECH_OK;
fail:
    if (node->waker >= 0) close(node->waker);
    free(node);
    return status;
}

ech_status echi_net_hub_create(int world, struct echi_net_hub **out, struct ech_error *err) {
    *out = NULL;
    if (world < 1 || world > ECHI_NET_WORLD_MAX)
        return echi_fail(err, ECH_E_ARGUMENT, "net.hub", "a hub for %d nodes: give 1 to %d", world, ECHI_NET_WORLD_MAX);
    struct echi_net_hub *hub = calloc(1, sizeof *hub);
    if (!hub) return echi_fail_memory(err, "net.hub", "the hub");
    hub->world = world;
    ech_status status = echi_mutex_init(&hub->mutex, err);
    if (status == ECH_OK)
        *out = hub;
    else
        free(hub);
    return status;
}

void echi_net_hub_destroy(struct echi_net_hub *hub) {
    if (!hub) return;
    echi_mutex_destroy(&hub->mutex);
    free(hub);
}
