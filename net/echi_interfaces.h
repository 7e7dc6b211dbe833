/* SPDX-License-Identifier: Apache-2.0
 * The addresses of this machine, and by which of them it is left. */
#ifndef ECHI_INTERFACES_H
#define ECHI_INTERFACES_H
#include "echi_address.h"

struct echi_interface {
    char name[16];                  /* "eth0" */
    struct echi_address address;    /* IPv4 or IPv6, port 0 */
    bool loopback;
};
/* Those that are up, one for each address, in the system's order; *out_count of them, at most `most`. ECH_E_IO: the system does not say. */
ech_status echi_interfaces(struct echi_interface *out, int most, int *out_count, struct ech_error *err);
/* The address, with port 0, from which what is sent to `to` leaves this machine. No packet is sent. False: there is no way there. */
bool echi_route_from(const struct echi_address *to, struct echi_address *out);
/* The same for whatever lies beyond all networks that this machine is part of; of IPv6 and IPv4, or of the latter alone. */
bool echi_route_from_default(bool v6, struct echi_address *out);
bool echi_address_same_host(const struct echi_address *a, const struct echi_address *b);   /* the ports may differ */
#endif
