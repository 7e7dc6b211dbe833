/* SPDX-License-Identifier: Apache-2.0
 * The addresses of this machine, and by which of them it is left. */
#include "echi_interfaces.h"
#include "echi_error.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

ech_status echi_interfaces(struct echi_interface *out, int most, int *out_count, struct ech_error *err) {
    struct ifaddrs *list = NULL;
    int n = 0;
    *out_count = 0;
    if (getifaddrs(&list) != 0)
        return echi_fail(err, ECH_E_IO, "net.interfaces", "the system does not list its network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *i = list; i && n < most; i = i->ifa_next) {
        const int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
        if (!(i->ifa_flags & IFF_UP) || (family != AF_INET && family != AF_INET6)) continue;
        struct echi_interface *to = &out[n++];
        memset(to, 0, sizeof *to);
        snprintf(to->name, sizeof to->name, "%s", i->ifa_name);
        to->address.len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&to->address.at, i->ifa_addr, to->address.len);
        to->loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
    }
    freeifaddrs(list);
    *out_count = n;
    return ECH_OK;
}

bool echi_route_from(const struct echi_address *to, struct echi_address *out) {
    const int fd = socket(to->at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    struct echi_address own = {.len = sizeof own.at};
    const bool leads = connect(fd, (const struct sockaddr *)&to->at, to->len) == 0 &&
                       getsockname(fd, (struct sockaddr *)&own.at, &own.len) == 0;
    close(fd);
    if (!leads) return false;
    echi_address_set_port(&own, 0);
    *out = own;
    return true;
}

/* The addresses asked about are those that are kept for documentation, which are nobody's. */
bool echi_route_from_default(bool v6, struct echi_address *out) {
    static const char *const far[] = {"[2001:db8::1]:9", "192.0.2.1:9"};
    for (int i = v6 ? 0 : 1; i < 2; i++) {
        struct echi_addresses to;
        if (echi_address_parse(far[i], "", false, false, &to, NULL) == ECH_OK && echi_route_from(&to.list[0], out)) return true;
    }
    return false;
}

bool echi_address_same_host(const struct echi_address *a, const struct echi_address *b) {
    if (a->at.ss_family != b->at.ss_family) return false;
    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *x = (const void *)&a->at, *y = (const void *)&b->at;
        return memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) == 0;
    }
    const struct sockaddr_in *x = (const void *)&a->at, *y = (const void *)&b->at;
    return x->sin_addr.s_addr == y->sin_addr.s_addr;
}
