/* SPDX-License-Identifier: Apache-2.0
 * Asks Linux for the owner of a socket, by its two addresses (sock_diag(7)). The question names one socket: /proc/net/tcp lists all, can
 * miss one while others come and go, and grows with the machine. */
#include "echi_peer_user.h"
#include "echi_address.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* One end of the socket asked for. Linux keeps IPv4 within IPv6 (::ffff:127.0.0.1) as IPv4. Returns the family. */
static uint8_t put_end(const struct echi_address *end, __be16 *port, __be32 host[4]) {
    *port = htons((uint16_t)echi_address_port(end));
    if (end->at.ss_family == AF_INET) {
        memcpy(host, &((const struct sockaddr_in *)(const void *)&end->at)->sin_addr, 4);
        return AF_INET;
    }
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)&end->at)->sin6_addr;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(v6);
    memcpy(host, v6->s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    return mapped ? AF_INET : AF_INET6;
}

/* The owner of the connected socket at `at` whose peer is `to`. The kernel answers within the call of send. */
static bool find_owner(int diag, const struct echi_address *at, const struct echi_address *to, uid_t *out) {
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 wanted;
    } request = {.header = {.nlmsg_len = sizeof request, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST},
                 .wanted = {.sdiag_protocol = IPPROTO_TCP,
                            .idiag_states = UINT32_MAX,
                            .id.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    struct {
        struct nlmsghdr header;
        struct inet_diag_msg found;
    } answer;
    struct inet_diag_sockid *id = &request.wanted.id;
    request.wanted.sdiag_family = put_end(at, &id->idiag_sport, id->idiag_src);
    put_end(to, &id->idiag_dport, id->idiag_dst);
    if (send(diag, &request, sizeof request, 0) != (ssize_t)sizeof request) return false;
    if (recv(diag, &answer, sizeof answer, MSG_DONTWAIT) != (ssize_t)sizeof answer) return false; /* an error is shorter */
    /* Where no such connection is left, Linux answers with whatever listens at that port: it has no peer. A socket that no process has
     * open has no inode, and root for an owner. */
    if (answer.header.nlmsg_type != SOCK_DIAG_BY_FAMILY || answer.found.id.idiag_dport != id->idiag_dport) return false;
    *out = answer.found.idiag_uid;
    return answer.found.idiag_inode != 0;
}

static bool was_reset(int fd) {
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && info.tcpi_state == TCP_CLOSE;
}

enum echi_peer_user echi_peer_user(int fd, uid_t *out) {
    struct echi_address own = {.len = sizeof own.at}, peer = {.len = sizeof peer.at};
    if (getsockname(fd, (struct sockaddr *)&own.at, &own.len) != 0 || getpeername(fd, (struct sockaddr *)&peer.at, &peer.len) != 0)
        return ECHI_PEER_USER_NONE;
    const int diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (diag < 0) { /* a shortage passes; a peer must not be believed for it */
        const bool shortage = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        return shortage ? ECHI_PEER_USER_SHORTAGE : ECHI_PEER_USER_UNSUPPORTED;
    }
    uid_t self;
    enum echi_peer_user result = ECHI_PEER_USER_FOUND;
    /* A kernel without sock_diag for TCP answers as if there were no such socket, for our own end as well. */
    if (!find_owner(diag, &peer, &own, out))
        result = find_owner(diag, &own, &peer, &self) ? ECHI_PEER_USER_NONE : ECHI_PEER_USER_UNSUPPORTED;
    close(diag);
    /* After a reset our own end is not listed either, and both addresses are free for another connection. Our own end is looked at last:
     * as long as it lives, the answers were about this connection. */
    return was_reset(fd) ? ECHI_PEER_USER_NONE : result;
}
