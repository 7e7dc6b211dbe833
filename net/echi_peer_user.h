/* SPDX-License-Identifier: Apache-2.0
 * The user at the other end of a TCP connection within this machine. */
#ifndef ECHI_PEER_USER_H
#define ECHI_PEER_USER_H
#include <sys/types.h>

enum echi_peer_user {
    ECHI_PEER_USER_FOUND,      /* the other end has an owner: *out */
    ECHI_PEER_USER_NONE,       /* it has none: it was closed, was not accepted yet, or lies outside this network namespace */
    ECHI_PEER_USER_SHORTAGE,   /* no socket could be had for the question: errno */
    ECHI_PEER_USER_UNSUPPORTED /* the system does not answer such questions */
};
/* `fd` is a connected socket. Ask after the peer has sent something: then it was accepted. Never blocks. */
enum echi_peer_user echi_peer_user(int fd, uid_t *out);
#endif
