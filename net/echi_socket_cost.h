/* SPDX-License-Identifier: Apache-2.0
 * What it takes a processor to move messages through TCP. socket_cost.c */
#ifndef ECHI_SOCKET_COST_H
#define ECHI_SOCKET_COST_H
#include "ech_status.h"

#include <stdbool.h>
#include <stddef.h>

/* Seconds of a thread's processor time, at one end: the mean of sending and receiving. */
struct echi_socket_cost {
    double byte;        /* of a payload, in frames of ECHI_NET_CHUNK */
    double message;     /* of the least message: a call that sends it; a wait for it, the call that reads it and one that finds no more */
};

/* Measures over loopback, both ends on the calling thread, with payloads from one block of `size` bytes into another: what caches hold
 * of them counts. `sealed`: with an authenticator for every frame. Some 20 ms of processor time, and twice `size`, at most 4 MiB, of
 * memory: ECH_E_MEMORY without it. Where there is no loopback *out stays as it was. */
ech_status echi_socket_cost(size_t size, bool sealed, struct echi_socket_cost *out, struct ech_error *err);
#endif
