/* SPDX-License-Identifier: Apache-2.0
 * Addresses: text to sockaddr and back. */
#include "echi_address.h"
#include "echi_error.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Splits "host:port", "[v6]:port" and, without a port, "host", "v6" and "[v6]". */
static bool split(const char *text, bool port_optional, char *host, size_t host_cap, long *port) {
    const char *host_start = text, *host_end, *colon;
    if (text[0] == '[') {
        host_start = text + 1;
        host_end = strchr(text, ']');
        if (!host_end || (host_end[1] != ':' && host_end[1] != 0)) return false;
        colon = host_end[1] == ':' ? host_end + 1 : NULL;
    } else {
        colon = strchr(text, ':');
        if (colon && strchr(colon + 1, ':')) colon = NULL; /* a bare IPv6 address has no port */
        host_end = colon ? colon : text + strlen(text);
    }
    *port = 0;
    if (colon) {
        char *end;
        *port = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end || *port < 0 || *port > 65535) return false;
    } else if (!port_optional) {
        return false;
    }
    size_t len = (size_t)(host_end - host_start);
    if (len == 0 || len >= host_cap) return false;
    memcpy(host, host_start, len);
    host[len] = 0;
    return true;
}

#ifdef ECHI_STATIC
/* GNU libc's resolver opens libraries at run time, of the very version that a program was linked with. A static program, which is to run
 * anywhere, has none and might crash; so it reads numbers by itself, knows localhost, and no other name. */

/* "fe80::1", "fe80::1%eth0" or, by the number of the interface, "fe80::1%2". */
static bool read_v6(const char *host, struct sockaddr_in6 *out) {
    char bare[INET6_ADDRSTRLEN];
    const size_t len = strcspn(host, "%");
    if (len >= sizeof bare) return false;
    memcpy(bare, host, len);
    bare[len] = 0;
    if (inet_pton(AF_INET6, bare, &out->sin6_addr) != 1) return false;
    if (!host[len]) return true;
    const char *scope = host + len + 1;
    const size_t digits = strspn(scope, "0123456789");
    out->sin6_scope_id = digits > 0 && digits <= 9 && !scope[digits] ? (uint32_t)strtoul(scope, NULL, 10) : if_nametoindex(scope);
    return out->sin6_scope_id != 0;
}

static ech_status look_up(const char *text, const char *option, const char *host, bool names, struct echi_addresses *out,
                          struct ech_error *err) {
    struct echi_address *to = &out->list[0];
    memset(to, 0, sizeof *to);
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&to->at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&to->at;
    const char *number = names && strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (inet_pton(AF_INET, number, &v4->sin_addr) == 1) {
        to->at.ss_family = AF_INET;
        to->len = sizeof *v4;
    } else if (read_v6(number, v6)) {
        to->at.ss_family = AF_INET6;
        to->len = sizeof *v6;
    } else {
        return echi_fail(err, ECH_E_ARGUMENT, "net.address",
                         "%s %s: %s is no number, and this static build asks no name service: give one, as in 10.0.0.1:7000", option,
                         text, host);
    }
    out->count = 1;
    return ECH_OK;
}
#else
static ech_status look_up(const char *text, const char *option, const char *host, bool names, struct echi_addresses *out,
                          struct ech_error *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = names ? 0 : AI_NUMERICHOST}, *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);
    /* A name server that does not answer may do so soon. A name that nobody knows may get an address: Kubernetes gives that of a Pod
     * out when the Pod is ready. */
    if (names && (rc == EAI_AGAIN || rc == EAI_SYSTEM || rc == EAI_NONAME || rc == EAI_NODATA)) out->later = gai_strerror(rc);
    if (rc == EAI_MEMORY) return echi_fail(err, ECH_E_MEMORY, "net.address", "%s %s: out of memory for looking it up", option, text);
    if (rc == EAI_AGAIN || rc == EAI_SYSTEM)
        return echi_fail(err, ECH_E_IO, "net.address", "%s %s: no name service answered for %s (%s): try again or give a number", option,
                         text, host, gai_strerror(rc));
    if (rc != 0)
        return echi_fail(err, ECH_E_ARGUMENT, "net.address",
                         "%s %s: the host %s was not found (%s): check the name or give a number", option, text, host,
                         gai_strerror(rc));
    for (struct addrinfo *a = found; a && out->count < ECHI_ADDRESSES_MAX; a = a->ai_next) {
        if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
        struct echi_address *to = &out->list[out->count++];
        memset(&to->at, 0, sizeof to->at);
        memcpy(&to->at, a->ai_addr, a->ai_addrlen);
        to->len = a->ai_addrlen;
    }
    freeaddrinfo(found);
    if (out->count == 0)
        return echi_fail(err, ECH_E_ARGUMENT, "net.address", "%s %s has neither an IPv4 nor an IPv6 address", option, text);
    return ECH_OK;
}
#endif

ech_status echi_address_parse(const char *text, const char *option, bool names, bool port_optional, struct echi_addresses *out,
                              struct ech_error *err) {
    char host[256];
    long port;
    out->count = 0;
    out->later = NULL;
    if (!split(text, port_optional, host, sizeof host, &port))
        return echi_fail(err, ECH_E_ARGUMENT, "net.address",
                         "%s %s is no address: write host:port or [IPv6 address]:port, port 0 to 65535", option, text);
    ECHI_TRY(look_up(text, option, host, names, out, err));
    for (int i = 0; i < out->count; i++) echi_address_set_port(&out->list[i], (unsigned)port);
    return ECH_OK;
}

void echi_address_format(const struct echi_address *address, char *out, size_t cap) {
    char host[INET6_ADDRSTRLEN + 20];
    if (getnameinfo((const struct sockaddr *)&address->at, address->len, host, sizeof host, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(host, sizeof host, "?");
    snprintf(out, cap, address->at.ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", host, echi_address_port(address));
}

/* sockaddr_storage may be read as the family's own struct: that is what it is for. */
static in_port_t *port_of(const struct echi_address *address) {
    return address->at.ss_family == AF_INET6 ? &((struct sockaddr_in6 *)(uintptr_t)&address->at)->sin6_port
                                             : &((struct sockaddr_in *)(uintptr_t)&address->at)->sin_port;
}

void echi_address_set_port(struct echi_address *address, unsigned port) { *port_of(address) = htons((uint16_t)port); }

unsigned echi_address_port(const struct echi_address *address) { return ntohs(*port_of(address)); }

bool echi_address_is_any(const struct echi_address *address) {
    if (address->at.ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)(const void *)&address->at)->sin6_addr);
    return ((const struct sockaddr_in *)(const void *)&address->at)->sin_addr.s_addr == htonl(INADDR_ANY);
}

bool echi_address_is_loopback(const struct echi_address *address) {
    const uint32_t v4_mask = htonl(0xff000000), v4_loopback = htonl(0x7f000000);
    if (address->at.ss_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)&address->at)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127);
    }
    return (((const struct sockaddr_in *)(const void *)&address->at)->sin_addr.s_addr & v4_mask) == v4_loopback;
}

bool echi_address_text_is_name(const char *text) {
    char host[256];
    long port;
    uint8_t number[sizeof(struct in6_addr)];
    if (!split(text, true, host, sizeof host, &port)) return false;
    host[strcspn(host, "%")] = 0; /* of fe80::1%eth0 the interface */
    return inet_pton(AF_INET, host, number) != 1 && inet_pton(AF_INET6, host, number) != 1;
}

bool echi_address_text_is_loopback(const char *text) {
    char host[256];
    long port;
    struct echi_address a = {.len = 0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&a.at;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&a.at;
    if (!split(text, true, host, sizeof host, &port)) return false;
    if (strcmp(host, "localhost") == 0) return true;
    a.at.ss_family = AF_INET;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) return echi_address_is_loopback(&a);
    a.at.ss_family = AF_INET6;
    return inet_pton(AF_INET6, host, &v6->sin6_addr) == 1 && echi_address_is_loopback(&a);
}
