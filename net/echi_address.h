/* SPDX-License-Identifier: Apache-2.0
 * "host:port" and "[address]:port" to socket addresses and back. */
#ifndef ECHI_ADDRESS_H
#define ECHI_ADDRESS_H
#include "ech_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define ECHI_ADDRESSES_MAX 4
struct echi_address {
    struct sockaddr_storage at;
    socklen_t len;
};
struct echi_addresses {
    int count;
    struct echi_address list[ECHI_ADDRESSES_MAX];
    const char *later; /* of a name that was not found: why, where it may be found later; else NULL */
};

/* `option` is what the user calls the text ("--coordinator"). With `names` host names are looked up, which may take as
 * long as the system's resolver does; without, only numbers are understood. `port_optional`: a missing port is 0. */
ech_status echi_address_parse(const char *text, const char *option, bool names, bool port_optional, struct echi_addresses *out,
                              struct ech_error *err);
/* "127.0.0.1:40001", "[::1]:40001". */
void echi_address_format(const struct echi_address *address, char *out, size_t cap);
void echi_address_set_port(struct echi_address *address, unsigned port);
unsigned echi_address_port(const struct echi_address *address);
bool echi_address_is_loopback(const struct echi_address *address); /* 127.0.0.0/8 or ::1 */
/* Is the host of this text a name, which must be looked up? */
bool echi_address_text_is_name(const char *text);
/* Is this the text of an address that only its own machine reaches? Host names are not looked up; localhost is known. */
bool echi_address_text_is_loopback(const char *text);
bool echi_address_is_any(const struct echi_address *address); /* 0.0.0.0 or :: */
#endif
