/* SPDX-License-Identifier: Apache-2.0
 * The TCP transport: non-blocking sockets under one epoll, IPv4 and IPv6. */
#include "echi_address.h"
#include "echi_error.h"
#include "echi_interfaces.h"
#include "echi_os.h"
#include "echi_peer_user.h"
#include "echi_resolver.h"
#include "echi_transport.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS 64
#define WAIT_MAX 500 /* milliseconds of one wait */
/* Bytes that the kernel holds unsent at most: what is in there can no longer be overtaken by something urgent. */
#define NOT_SENT_MAX (128 * 1024)
/* Between two processes of this machine the system lets megabytes wait between their sockets; by the time they are read no cache has them
 * any more. An all-reduce of 64 MiB over loopback, 4 ranks, AMD EPYC (Zen 4): 0.118 s with the system's choice, 0.107 with 128 KiB, 0.098
 * with 256, 0.104 with 512 (medians of three runs in turn); of a rank's processor time the kernel's copies took 29 and 21 ms. */
#define SEND_WITHIN (256 * 1024)

struct tcp_link {
    struct echi_link link;
    int fd, awaited; /* awaited: 0 is the system's 1 */
    bool watched;
};
struct tcp {
    struct echi_transport base;
    int epoll, waker, listener, spare; /* spare: a descriptor kept for refusing when there are no more */
    struct echi_addresses coordinator; /* none: its name is not known yet */
    struct echi_resolver *resolver;    /* who looks it up, or NULL */
    char coordinator_text[256];
    unsigned unheard; /* milliseconds; 0: the system's own */
    bool guarded; /* neither a key nor --insecure: loopback only */
    bool has_bind;
    struct echi_addresses bind;
};

static struct tcp *of(struct echi_transport *t) { return (struct tcp *)t; }

static bool watch(struct tcp *tcp, int op, int fd, uint32_t events, void *tag) {
    struct epoll_event e = {.events = events, .data.ptr = tag};
    return epoll_ctl(tcp->epoll, op, fd, &e) == 0;
}

static void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void tcp_destroy(struct echi_transport *t) {
    struct tcp *tcp = of(t);
    echi_resolver_end(tcp->resolver);
    close_fd(&tcp->listener);
    close_fd(&tcp->spare);
    close_fd(&tcp->waker);
    close_fd(&tcp->epoll);
    free(tcp);
}

/* --- links --- */

static struct echi_address name_of(int fd) {
    struct echi_address a = {.len = sizeof a.at};
    if (getsockname(fd, (struct sockaddr *)&a.at, &a.len) != 0) a.len = 0;
    return a;
}

/* Is the other end on this machine? */
static bool stays_within(int fd, const struct echi_address *peer) {
    const struct echi_address own = name_of(fd);
    return own.len > 0 && echi_address_same_host(&own, peer);
}

static struct tcp_link *make_link(struct tcp *tcp, int fd, const struct echi_address *peer, uint32_t events, void *user) {
    int yes = 1, unsent = NOT_SENT_MAX, within = SEND_WITHIN;
    /* They only make it faster, or lost sooner: a link without them is still right. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    if (stays_within(fd, peer)) (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &within, sizeof within);
    /* Where packets vanish without a reset, TCP by itself sends again for a quarter of an hour. */
    if (tcp->unheard) (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &tcp->unheard, sizeof tcp->unheard);
    struct tcp_link *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    *l = (struct tcp_link){.link = {user}, .fd = fd, .watched = (events & EPOLLOUT) != 0};
    if (watch(tcp, EPOLL_CTL_ADD, fd, events, l)) return l;
    free(l);
    return NULL;
}

/* Without a key nobody may be spoken to beyond this machine, unless the user says that he knows. */
static ech_status check_guard(const struct tcp *tcp, const struct echi_addresses *to, const char *what, const char *text,
                              struct ech_error *err) {
    for (int i = 0; tcp->guarded && i < to->count; i++)
        if (!echi_address_is_loopback(&to->list[i]))
            return echi_fail(err, ECH_E_ARGUMENT, "net.open",
                             "%s %s leads off this machine: give --key FILE, the same file of at least %d random bytes on all nodes; or "
                             "--insecure, if whoever reaches that network may join the run and change it",
                             what, text, ECHI_NET_KEY_LEAST);
    return ECH_OK;
}

/* --- the coordinator's name --- */

/* Looks once whether its name has an address, and begins to look it up where nobody does. ECH_E_AGAIN: that is not done. */
static ech_status find_coordinator(struct tcp *tcp, struct ech_error *err) {
    if (tcp->coordinator.count > 0) return ECH_OK;
    if (!tcp->resolver) ECHI_TRY(echi_resolver_start(tcp->coordinator_text, "--coordinator", &tcp->resolver, err));
    const ech_status status = echi_resolver_result(tcp->resolver, &tcp->coordinator, err);
    if (status == ECH_E_AGAIN) return status;
    echi_resolver_end(tcp->resolver);
    tcp->resolver = NULL;
    return status != ECH_OK ? status : check_guard(tcp, &tcp->coordinator, "--coordinator", tcp->coordinator_text, err);
}

/* When it is opened. Numbers are read at once. Rank 0 needs its address to listen there, and another machine's name would be of no use:
 * it waits for the first answer. The others wait a moment for an answer that comes quickly, and ask again later. */
static ech_status first_look(struct tcp *tcp, const struct echi_net_config *config, struct ech_error *err) {
    if (!echi_address_text_is_name(config->coordinator)) {
        ECHI_TRY(echi_address_parse(config->coordinator, "--coordinator", false, false, &tcp->coordinator, err));
        return check_guard(tcp, &tcp->coordinator, "--coordinator", tcp->coordinator_text, err);
    }
    const int64_t moment = 1000000000, patience = config->rank == 0 || config->join_timeout < moment ? config->join_timeout : moment;
    const int64_t began = echi_now();
    ech_status status;
    while ((status = find_coordinator(tcp, err)) == ECH_E_AGAIN && echi_now() - began < patience)
        poll(NULL, 0, 5);
    if (config->rank != 0 && (status == ECH_E_AGAIN || tcp->coordinator.later)) return ECH_OK;
    if (status != ECH_E_AGAIN) return status;
    return echi_fail(err, ECH_E_TIMEOUT, "net.open", "--coordinator %s: no name service answered within %.1f s: try again or give a number",
                     tcp->coordinator_text, (double)patience * 1e-9);
}

static ech_status tcp_dial(struct echi_transport *t, int rank, const char *address, unsigned attempt, void *user,
                           struct echi_link **out, struct ech_error *err) {
    struct tcp *tcp = of(t);
    if (rank == 0) {
        const ech_status status = find_coordinator(tcp, err);
        if (status != ECH_OK && status != ECH_E_AGAIN && !tcp->coordinator.later) return status;
        if (status != ECH_OK)
            return echi_fail(err, ECH_E_AGAIN, "net.dial", "is not found by its name: %s",
                             tcp->coordinator.later ? tcp->coordinator.later : "no name service has answered yet");
    }
    struct echi_addresses to = tcp->coordinator;
    if (rank != 0) {
        ECHI_TRY(echi_address_parse(address, "the address of a node", false, false, &to, err));
        ECHI_TRY(check_guard(tcp, &to, "the address of a node", address, err));
    }
    const struct echi_address *one = &to.list[attempt % (unsigned)to.count];
    int fd = socket(one->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return echi_fail(err, ECH_E_IO, "net.dial", "cannot be dialled, no socket: %s", strerror(errno));
    int rc = connect(fd, (const struct sockaddr *)&one->at, one->len);
    if (rc != 0 && errno != EINPROGRESS && errno != EINTR) {
        ech_status status = echi_fail(err, ECH_E_PEER_LOST, "net.dial", "cannot be reached: %s", strerror(errno));
        close(fd);
        return status;
    }
    struct tcp_link *l = make_link(tcp, fd, one, EPOLLIN | EPOLLOUT, user);
    if (!l) {
        close(fd);
        return echi_fail_memory(err, "net.dial", "a connection");
    }
    *out = &l->link;
    return ECH_OK;
}

static ech_status tcp_dialled(struct echi_transport *t, struct echi_link *link, struct ech_error *err) {
    (void)t;
    int fd = ((struct tcp_link *)link)->fd, failure = 0;
    socklen_t len = sizeof failure;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len) != 0) failure = errno;
    if (failure) return echi_fail(err, ECH_E_PEER_LOST, "net.dial", "cannot be reached: %s", strerror(failure));
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 ? ECH_OK : ECH_E_AGAIN;
}

static struct echi_link *tcp_accept(struct echi_transport *t, void *user) {
    struct tcp *tcp = of(t);
    for (;;) {
        struct echi_address peer = {.len = sizeof peer.at};
        int fd = accept4(tcp->listener, (struct sockaddr *)&peer.at, &peer.len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            struct tcp_link *l = make_link(tcp, fd, &peer, EPOLLIN, user);
            if (l) return &l->link;
            close(fd);
        } else if (errno == EMFILE || errno == ENFILE) {
            /* Without this the one who waits would be reported for ever: take him with the spare and hang up. */
            close_fd(&tcp->spare);
            fd = accept(tcp->listener, NULL, NULL);
            if (fd >= 0) close(fd);
            tcp->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
            if (fd < 0) return NULL;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return NULL;
        }
    }
}

static void tcp_name(struct echi_transport *t, struct echi_link *link, char out[ECHI_NET_ADDRESS]) {
    (void)t;
    struct echi_address a = {.len = sizeof a.at};
    if (getpeername(((struct tcp_link *)link)->fd, (struct sockaddr *)&a.at, &a.len) == 0)
        echi_address_format(&a, out, ECHI_NET_ADDRESS);
    else
        strcpy(out, "?");
}

/* Every user of the machine reaches loopback. Where the system does not tell users apart, all are believed. */
static ech_status tcp_check_peer(struct echi_transport *t, struct echi_link *link, struct ech_error *err) {
    uid_t user = 0;
    if (!of(t)->guarded) return ECH_OK;
    const enum echi_peer_user found = echi_peer_user(((struct tcp_link *)link)->fd, &user);
    if (found == ECHI_PEER_USER_UNSUPPORTED || (found == ECHI_PEER_USER_FOUND && user == geteuid())) return ECH_OK;
    if (found == ECHI_PEER_USER_SHORTAGE)
        return echi_fail(err, ECH_E_IO, "net.join", "no socket to ask the system for a peer's user: %s", strerror(errno));
    if (found == ECHI_PEER_USER_NONE)
        return echi_fail(err, ECH_E_PEER_LOST, "net.join",
                         "has no owner on this machine: it ended, or a relay stands between: then give all nodes the same --key file");
    return echi_fail(err, ECH_E_MISMATCH, "net.join",
                     "belongs to user %u, not %u: give all nodes the same --key file, or --insecure if every user may join", (unsigned)user,
                     (unsigned)geteuid());
}

static ech_status tcp_read(struct echi_transport *t, struct echi_link *link, struct iovec *iov, int n, size_t *got,
                           struct ech_error *err) {
    (void)t;
    *got = 0;
    ssize_t rc;
    do rc = readv(((struct tcp_link *)link)->fd, iov, n);
    while (rc < 0 && errno == EINTR);
    if (rc > 0) *got = (size_t)rc;
    if (rc == 0) return echi_fail(err, ECH_E_END, "net.read", "closed the connection without a good-bye: it ended or was killed");
    if (rc > 0 || errno == EAGAIN || errno == EWOULDBLOCK) return ECH_OK;
    return echi_fail(err, ECH_E_PEER_LOST, "net.read", "is gone: %s", strerror(errno));
}

static ech_status tcp_write(struct echi_transport *t, struct echi_link *link, struct iovec *iov, int n, size_t *put,
                            struct ech_error *err) {
    (void)t;
    *put = 0;
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    ssize_t rc;
    do rc = sendmsg(((struct tcp_link *)link)->fd, &m, MSG_NOSIGNAL);
    while (rc < 0 && errno == EINTR);
    if (rc > 0) *put = (size_t)rc;
    if (rc >= 0 || errno == EAGAIN || errno == EWOULDBLOCK) return ECH_OK;
    return echi_fail(err, ECH_E_PEER_LOST, "net.write", "is gone: %s", strerror(errno));
}

static void tcp_watch_write(struct echi_transport *t, struct echi_link *link, bool on) {
    struct tcp_link *l = (struct tcp_link *)link;
    if (l->watched == on) return;
    l->watched = on;
    watch(of(t), EPOLL_CTL_MOD, l->fd, on ? EPOLLIN | EPOLLOUT : EPOLLIN, l);
}

static void tcp_await_bytes(struct echi_transport *t, struct echi_link *link, int bytes) {
    (void)t;
    struct tcp_link *l = (struct tcp_link *)link;
    const int awaited = bytes > 1 ? bytes : 0;
    if (awaited == l->awaited || setsockopt(l->fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) != 0) return;
    l->awaited = awaited;
}

static void tcp_hold_unsent(struct echi_transport *t, struct echi_link *link, uint32_t bytes) {
    (void)t;
    (void)setsockopt(((struct tcp_link *)link)->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
}

static void tcp_finish(struct echi_transport *t, struct echi_link *link) {
    (void)t;
    shutdown(((struct tcp_link *)link)->fd, SHUT_WR);
}

static void tcp_hang_up(struct echi_transport *t, struct echi_link *link) {
    (void)t;
    close(((struct tcp_link *)link)->fd); /* leaves the epoll with its last descriptor */
    free(link);
}

/* --- listening --- */

static ech_status listen_at(struct tcp *tcp, const struct echi_address *at, const char *option, const char *text,
                            struct ech_error *err) {
    int fd = socket(at->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    if (fd < 0) return echi_fail(err, ECH_E_IO, "net.listen", "%s %s: no socket: %s", option, text, strerror(errno));
    /* A run may begin right after another ended; it does not let two listen at once. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (const struct sockaddr *)&at->at, at->len) == 0 && listen(fd, ECHI_NET_WORLD_MAX) == 0 &&
        watch(tcp, EPOLL_CTL_ADD, fd, EPOLLIN, &tcp->listener)) {
        tcp->listener = fd;
        return ECH_OK;
    }
    int failure = errno;
    close(fd);
    if (failure == EADDRINUSE)
        return echi_fail(err, ECH_E_BUSY, "net.listen",
                         "%s %s: the port is in use: stop the program that has it or choose another port", option, text);
    if (failure == EADDRNOTAVAIL)
        return echi_fail(err, ECH_E_ARGUMENT, "net.listen", "%s %s is no address of this machine: give one of its own", option,
                         text);
    return echi_fail(err, ECH_E_IO, "net.listen", "%s %s: cannot listen there: %s", option, text, strerror(failure));
}

/* What a peer can dial of "any address": the one that leads off this machine by default. A machine with no way out has only itself to
 * tell. */
static void make_dialable(struct echi_address *bound) {
    if (!echi_address_is_any(bound)) return;
    const unsigned port = echi_address_port(bound);
    const bool v6 = bound->at.ss_family == AF_INET6;   /* IPv6's "any" takes calls over IPv4, too */
    struct echi_addresses self;
    if (echi_address_parse(v6 ? "[::1]:9" : "127.0.0.1:9", "", false, false, &self, NULL) == ECH_OK) *bound = self.list[0];
    (void)echi_route_from_default(v6, bound);
    echi_address_set_port(bound, port);
}

static ech_status tcp_listen(struct echi_transport *t, struct echi_link *beside, char *address, struct ech_error *err) {
    struct tcp *tcp = of(t);
    if (!beside) {
        ech_status status = ECH_E_ARGUMENT;
        for (int i = 0; i < tcp->coordinator.count && status != ECH_OK; i++)
            status = listen_at(tcp, &tcp->coordinator.list[i], "--coordinator", tcp->coordinator_text, err);
        ECHI_TRY(status);
        struct echi_address bound = name_of(tcp->listener);
        make_dialable(&bound);
        echi_address_format(&bound, address, ECHI_NET_ADDRESS);
        return ECH_OK;
    }
    struct echi_address route = name_of(((struct tcp_link *)beside)->fd);
    echi_address_set_port(&route, 0);
    struct echi_address at = tcp->has_bind ? tcp->bind.list[0] : route;
    if (echi_address_is_loopback(&at) && !echi_address_is_loopback(&route)) {
        char own[ECHI_NET_ADDRESS], from[ECHI_NET_ADDRESS];
        echi_address_format(&at, own, sizeof own);
        echi_address_format(&route, from, sizeof from);
        return echi_fail(err, ECH_E_ARGUMENT, "net.listen",
                         "--bind %s cannot be reached from other machines, but the coordinator is on one (the route there leaves from "
                         "%s): leave --bind out or give an address that the other nodes reach",
                         own, from);
    }
    if (tcp->listener < 0) {
        char text[ECHI_NET_ADDRESS];
        echi_address_format(&at, text, sizeof text);
        ECHI_TRY(listen_at(tcp, &at, "--bind", text, err));
    }
    /* Peers cannot dial "any address": they are told the one that leads to the coordinator. */
    struct echi_address bound = name_of(tcp->listener);
    if (echi_address_is_any(&bound)) {
        echi_address_set_port(&route, echi_address_port(&bound));
        bound = route;
    }
    echi_address_format(&bound, address, ECHI_NET_ADDRESS);
    return ECH_OK;
}

static void tcp_unlisten(struct echi_transport *t) { close_fd(&of(t)->listener); }

/* --- waiting --- */

/* epoll counts in milliseconds; a nearer deadline is waited for with poll, which counts in nanoseconds. A far one is waited
 * for in parts: a clock that has jumped is then noticed. */
static int wait_events(struct tcp *tcp, int64_t deadline, struct epoll_event *events) {
    const int64_t ms = 1000000, far = 20 * ms;
    if (deadline == INT64_MAX) return epoll_wait(tcp->epoll, events, EVENTS, -1);
    int64_t left = deadline - echi_now();
    if (left >= far) return epoll_wait(tcp->epoll, events, EVENTS, (int)(left / ms > WAIT_MAX ? WAIT_MAX : left / ms));
    if (left > 0) {
        struct pollfd p = {.fd = tcp->epoll, .events = POLLIN};
        struct timespec ts = {.tv_nsec = (long)left};
        int rc = ppoll(&p, 1, &ts, NULL);
        if (rc <= 0) return rc;
    }
    return epoll_wait(tcp->epoll, events, EVENTS, 0);
}

static ech_status tcp_wait(struct echi_transport *t, int64_t deadline, struct echi_ready *out, int cap, int *count,
                           struct ech_error *err) {
    struct tcp *tcp = of(t);
    struct epoll_event events[EVENTS];
    *count = 0;
    int n = wait_events(tcp, deadline, events);
    if (n < 0) {
        if (errno == EINTR) return ECH_OK;
        return echi_fail(err, ECH_E_IO, "net.wait", "waiting for the network failed: %s", strerror(errno));
    }
    for (int i = 0; i < n && *count < cap; i++) {
        void *tag = events[i].data.ptr;
        if (tag == &tcp->waker) continue;
        const uint32_t broken = EPOLLERR | EPOLLHUP;
        out[(*count)++] = (struct echi_ready){.user = tag == &tcp->listener ? NULL : ((struct tcp_link *)tag)->link.user,
                                              .read = (events[i].events & (EPOLLIN | broken)) != 0,
                                              .write = (events[i].events & (EPOLLOUT | broken)) != 0};
    }
    return ECH_OK;
}

static void tcp_wake(struct echi_transport *t) {
    int saved = errno;
    (void)!write(of(t)->waker, &(uint64_t){1}, sizeof(uint64_t));
    errno = saved;
}

static const struct echi_transport_ops tcp_ops = {
    .listen = tcp_listen,
    .unlisten = tcp_unlisten,
    .dial = tcp_dial,
    .dialled = tcp_dialled,
    .accept = tcp_accept,
    .name = tcp_name,
    .check_peer = tcp_check_peer,
    .read = tcp_read,
    .write = tcp_write,
    .watch_write = tcp_watch_write,
    .await_bytes = tcp_await_bytes,
    .hold_unsent = tcp_hold_unsent,
    .finish = tcp_finish,
    .hang_up = tcp_hang_up,
    .wait = tcp_wait,
    .wake = tcp_wake,
    .destroy = tcp_destroy,
};

ech_status echi_tcp_create(const struct echi_net_config *config, struct echi_transport **out, struct ech_error *err) {
    struct tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp) return echi_fail_memory(err, "net.open", "the TCP transport");
    tcp->base.ops = &tcp_ops;
    tcp->epoll = tcp->waker = tcp->listener = tcp->spare = -1;
    ech_status status = ECH_OK;
    echi_text_clean(tcp->coordinator_text, sizeof tcp->coordinator_text, (const uint8_t *)config->coordinator,
                    strlen(config->coordinator));
    const int64_t ms = config->unheard / 1000000;
    tcp->unheard = config->unheard <= 0 ? 0 : ms < 1 ? 1 : ms > INT32_MAX ? INT32_MAX : (unsigned)ms;
    tcp->guarded = !config->key && !config->insecure;
    tcp->has_bind = config->bind != NULL;
    if (tcp->has_bind) {
        ECHI_TRY_GOTO(echi_address_parse(config->bind, "--bind", true, true, &tcp->bind, err), fail);
        ECHI_TRY_GOTO(check_guard(tcp, &tcp->bind, "--bind", config->bind, err), fail);
    }
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    tcp->waker = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    tcp->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    /* The waker is reported once for each write (by its edge), so that nobody has to read it. */
    if (tcp->epoll < 0 || tcp->waker < 0 || !watch(tcp, EPOLL_CTL_ADD, tcp->waker, EPOLLIN | EPOLLET, &tcp->waker)) {
        status = echi_fail(err, ECH_E_IO, "net.open", "no descriptors for the network: %s", strerror(errno));
        goto fail;
    }
    ECHI_TRY_GOTO(first_look(tcp, config, err), fail);
    *out = &tcp->base;
    return ECH_OK;
fail:
    tcp_destroy(&tcp->base);
    return status;
}
