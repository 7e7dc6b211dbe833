/* SPDX-License-Identifier: Apache-2.0
 * The user at the other end of a connection over loopback: on both sides, over IPv4, IPv6 and IPv4 within IPv6; ends that were closed,
 * reset or not accepted yet; systems that do not answer. As root also the ends of another user. (Nodes of two users:
 * test/cluster/test_two_users.sh.) */
#include "echi_peer_user.h"
#include "net_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the place of libc's: a system without such sockets, and one that leaves questions without an answer. */
static int refusal;
static bool mute;
static int *reset_first; /* the end that is reset before the next question, or NULL */
static void reset(int *fd);

#ifdef SYS_socket
int socket(int domain, int type, int protocol) {
    if (domain == AF_NETLINK && refusal) {
        errno = refusal;
        return -1;
    }
    return (int)syscall(SYS_socket, domain, type, protocol);
}
#endif
ssize_t send(int fd, const void *bytes, size_t len, int flags) {
    if (mute) return (ssize_t)len;
    if (reset_first) reset(reset_first);
    reset_first = NULL;
    return sendto(fd, bytes, len, flags, NULL, 0);
}

/* --- a connection with both ends in this process --- */

struct pair { int listener, caller, accepted; };

static struct sockaddr_in6 loopback(const char *kind, socklen_t *len) {
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    *len = sizeof at;
    if (strcmp(kind, "mapped") == 0) at.sin6_addr = (struct in6_addr){.s6_addr = {[10] = 255, [11] = 255, [12] = 127, [15] = 1}};
    if (strcmp(kind, "v4") != 0) return at;
    const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memset(&at, 0, sizeof at);
    memcpy(&at, &v4, sizeof v4);
    *len = sizeof v4;
    return at;
}

/* False: this machine has no IPv6. */
static bool call(const char *kind, struct pair *p) {
    socklen_t len;
    struct sockaddr_in6 at = loopback(kind, &len);
    *p = (struct pair){socket(at.sin6_family, SOCK_STREAM, 0), socket(at.sin6_family, SOCK_STREAM, 0), -1};
    if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&at, len) != 0) {
        close(p->listener);
        close(p->caller);
        return false;
    }
    assert_int_equal(listen(p->listener, 4), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(connect(p->caller, (struct sockaddr *)&at, len), 0);
    return true;
}

static void answer(struct pair *p) {
    p->accepted = accept(p->listener, NULL, NULL);
    assert_true(p->accepted >= 0);
}

static bool connected(const char *kind, struct pair *p) {
    if (!call(kind, p)) return false;
    answer(p);
    return true;
}

static void end(struct pair *p) {
    if (p->listener >= 0) close(p->listener);
    if (p->caller >= 0) close(p->caller);
    if (p->accepted >= 0) close(p->accepted);
}

static void reset(int *fd) {
    assert_int_equal(setsockopt(*fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger)), 0);
    close(*fd);
    *fd = -1;
}

static void assert_user(int fd, enum echi_peer_user wanted) {
    uid_t user = (uid_t)-1;
    assert_int_equal(echi_peer_user(fd, &user), wanted);
    if (wanted == ECHI_PEER_USER_FOUND) assert_int_equal(user, geteuid());
}

static void wait_for(int fd, short events) {
    struct pollfd p = {.fd = fd, .events = events};
    assert_int_equal(poll(&p, 1, -1), 1);
}

/* --- what is found --- */

static void test_own(void **state) {
    (void)state;
    static const char *const kinds[] = {"v4", "v6", "mapped"};
    for (int i = 0; i < 3; i++) {
        struct pair p;
        if (!connected(kinds[i], &p)) continue;
        assert_user(p.accepted, ECHI_PEER_USER_FOUND);
        assert_user(p.caller, ECHI_PEER_USER_FOUND);
        end(&p);
    }
}

/* Linux reports user 0 for a socket that no process has open. */
static void test_closed(void **state) {
    (void)state;
    static const char *const kinds[] = {"v4", "v6", "mapped"};
    for (int i = 0; i < 3; i++) {
        struct pair p;
        if (!connected(kinds[i], &p)) continue;
        close(p.caller);
        p.caller = -1;
        wait_for(p.accepted, POLLIN);
        assert_user(p.accepted, ECHI_PEER_USER_NONE);
        end(&p);
    }
}

static void test_reset(void **state) {
    (void)state;
    struct pair p;
    assert_true(connected("v4", &p));
    assert_int_equal(write(p.caller, "hello", 5), 5);
    reset(&p.caller);
    wait_for(p.accepted, POLLERR);
    assert_user(p.accepted, ECHI_PEER_USER_NONE);
    end(&p);
}

/* Then neither end is listed, as on a system that does not answer. */
static void test_reset_while_asked(void **state) {
    (void)state;
    struct pair p;
    assert_true(connected("v4", &p));
    reset_first = &p.caller;
    assert_user(p.accepted, ECHI_PEER_USER_NONE);
    end(&p);
}

/* Where no peer is left Linux reports the listener at that port, which is not the peer. */
static void test_not_accepted_yet(void **state) {
    (void)state;
    struct pair p;
    assert_true(call("v4", &p));
    assert_user(p.caller, ECHI_PEER_USER_NONE);
    answer(&p);
    assert_user(p.caller, ECHI_PEER_USER_FOUND);
    reset(&p.accepted);
    wait_for(p.caller, POLLERR);
    assert_user(p.caller, ECHI_PEER_USER_NONE);
    end(&p);
}

static void test_no_answer(void **state) {
    (void)state;
    static const struct { int refusal; enum echi_peer_user result; } cases[] = {
        {EPERM, ECHI_PEER_USER_UNSUPPORTED}, {EAFNOSUPPORT, ECHI_PEER_USER_UNSUPPORTED}, {EPROTONOSUPPORT, ECHI_PEER_USER_UNSUPPORTED},
        {EMFILE, ECHI_PEER_USER_SHORTAGE}, {ENFILE, ECHI_PEER_USER_SHORTAGE}};
    struct pair p;
    assert_true(connected("v4", &p));
#ifdef SYS_socket
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        refusal = cases[i].refusal;
        assert_user(p.accepted, cases[i].result);
    }
    refusal = 0;
#else
    (void)cases;
#endif
    mute = true;
    assert_user(p.accepted, ECHI_PEER_USER_UNSUPPORTED);
    reset(&p.caller);
    wait_for(p.accepted, POLLERR);
    assert_user(p.accepted, ECHI_PEER_USER_NONE);
    mute = false;
    end(&p);
}

/* --- another user --- */

#define NOBODY 65534
static void become_nobody(void) {
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0) _exit(99);
}

static void test_other(void **state) {
    (void)state;
    if (geteuid() != 0) skip();
    struct sockaddr_in6 at;
    socklen_t len;
    at = loopback("v4", &len);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    const pid_t child = fork();
    if (child == 0) {
        become_nobody();
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        char byte;
        uid_t user = 1;
        if (connect(fd, (struct sockaddr *)&at, len) != 0 || read(fd, &byte, 1) != 1) _exit(98);
        const bool right = echi_peer_user(fd, &user) == ECHI_PEER_USER_FOUND && user == 0;
        _exit(read(fd, &byte, 1) == 0 && right ? 0 : 97);
    }
    const int fd = accept(listener, NULL, NULL);
    uid_t user = 0;
    assert_int_equal(echi_peer_user(fd, &user), ECHI_PEER_USER_FOUND);
    assert_int_equal(user, NOBODY);
    assert_int_equal(write(fd, "x", 1), 1);
    shutdown(fd, SHUT_WR);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(fd);
    close(listener);
}

/* --- nodes --- */

static void say_ready(struct node *node) { expect(node, ECHI_NET_READY); }

/* Where the system does not answer nodes meet as before. */
static void test_nodes_without_answer(void **state) {
    (void)state;
#ifdef SYS_socket
    refusal = EPERM;
    run_world(3, "127.0.0.1:0", say_ready, NULL);
    refusal = 0;
    assert_int_equal(failures, 0);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_closed),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_reset_while_asked),
        cmocka_unit_test(test_not_accepted_yet),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_other),
        cmocka_unit_test(test_nodes_without_answer),
    };
    const int diag = socket(AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG);
    if (diag < 0) {
        puts("this system has no sock_diag: nothing to test");
        return 0;
    }
    close(diag);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
