/* SPDX-License-Identifier: Apache-2.0
 * The interfaces of this machine, which of them a run would use and why; and whether rank 0 can listen where it is told to. */
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_interfaces.h"
#include "echi_run.h"

#include <stdio.h>
#include <string.h>

#define HOST_TEXT sizeof(((struct ech_doctor_interface *)NULL)->address)
/* Of one address: without its port, "10.0.0.5" or "fe80::1%eth0". */
static void host_text(const struct echi_address *address, char out[HOST_TEXT]) {
    char text[HOST_TEXT];
    echi_address_format(address, text, sizeof text);
    char *end = strrchr(text, ':'), *begin = text;
    if (end) *end = 0;
    if (*begin == '[') {
        begin++;
        begin[strcspn(begin, "]")] = 0;
    }
    memmove(out, begin, strlen(begin) + 1);
}

static bool ours(const struct echi_address *address, const struct echi_interface *list, int n) {
    if (echi_address_is_any(address) || echi_address_is_loopback(address)) return true;
    for (int i = 0; i < n; i++)
        if (echi_address_same_host(address, &list[i].address)) return true;
    return false;
}

/* The address by which this node would be known to the others, as net decides it (net/tcp.c), and why in words. */
static ech_status choose(const struct ech_config *c, enum echi_doctor_part part, const struct echi_addresses *coordinator,
                         struct echi_address *out, char *why, size_t cap, struct ech_error *err) {
    const struct echi_address *meet = &coordinator->list[0];
    if (part == ECHI_DOCTOR_NEITHER) {
        if (!echi_route_from_default(false, out)) return ECH_E_AGAIN;   /* nothing leads off this machine, and nobody asked for it */
        snprintf(why, cap, "the default route leaves here");
    } else if (part == ECHI_DOCTOR_PORT && !echi_address_is_any(meet)) {
        *out = *meet;
        snprintf(why, cap, "--coordinator names it");
    } else if (part == ECHI_DOCTOR_PORT) {
        if (!echi_route_from_default(meet->at.ss_family == AF_INET6, out))
            return echi_fail(err, ECH_E_IO, "doctor.network",
                             "--coordinator %s listens everywhere, but no network leads off this machine: connect it, "
                             "or give the address that the other nodes reach", c->coordinator);
        snprintf(why, cap, "--coordinator listens everywhere, and the default route leaves here");
    } else if (c->bind[0]) {
        struct echi_addresses bind;
        ECHI_TRY(echi_address_parse(c->bind, "--bind", true, true, &bind, err));
        *out = bind.list[0];
        snprintf(why, cap, "--bind names it");
        if (!echi_address_is_any(out)) return ECH_OK;
    }
    if (part != ECHI_DOCTOR_LINK) return ECH_OK;
    if (!echi_route_from(meet, out))
        return echi_fail(err, ECH_E_IO, "doctor.network",
                         "no network of this machine leads to --coordinator %s: connect it, or correct the address", c->coordinator);
    snprintf(why, cap, "the route to the coordinator leaves here");
    return ECH_OK;
}

enum echi_doctor_part echi_doctor_network(const struct ech_config *c, struct ech_doctor *d) {
    struct echi_interface list[ECH_DOCTOR_INTERFACES];
    struct echi_addresses coordinator = {.count = 0};
    struct echi_address used;
    struct ech_error err = {.text = ""};
    char why[120] = "";
    enum echi_doctor_part part = ECHI_DOCTOR_NEITHER;
    ech_status status = echi_interfaces(list, ECH_DOCTOR_INTERFACES, &d->n_interfaces, &err);
    if (status == ECH_OK && c->coordinator[0])
        status = echi_address_parse(c->coordinator, "--coordinator", true, false, &coordinator, &err);
    if (coordinator.count > 0)
        part = c->rank == 0 && (c->world > 1 || ours(&coordinator.list[0], list, d->n_interfaces)) ? ECHI_DOCTOR_PORT : ECHI_DOCTOR_LINK;
    if (status == ECH_OK) status = choose(c, part, &coordinator, &used, why, sizeof why, &err);
    for (int i = 0; i < d->n_interfaces; i++) {
        struct ech_doctor_interface *to = &d->interface[i];
        memcpy(to->name, list[i].name, sizeof to->name);
        host_text(&list[i].address, to->address);
        to->loopback = list[i].loopback;
        if (status == ECH_OK && echi_address_same_host(&list[i].address, &used)) snprintf(to->used, sizeof to->used, "%s", why);
    }
    echi_doctor_note(&d->network, status == ECH_E_AGAIN ? ECH_OK : status, &err);
    return status == ECH_OK || status == ECH_E_AGAIN ? part : ECHI_DOCTOR_NEITHER;
}

/* As a run would: so what is refused is what a run would be refused, in its words. */
void echi_doctor_port(const struct ech_config *c, struct ech_doctor *d) {
    static const struct echi_net_kind kinds[] = {{.name = "nothing"}};
    struct echi_net_config config;
    struct echi_net *net = NULL;
    struct ech_error err = {.text = ""};
    ech_status status = echi_wire_options(c, &config, &err);
    if (status == ECH_OK) {
        config.rank = 0;
        config.world = c->world > 1 ? c->world : 2;
        config.kinds = kinds;
        config.n_kinds = 1;
        status = echi_net_open(&config, &net, &err);
        echi_wire_options_end(&config);
    }
    d->port.done = 1;
    if (status == ECH_OK) snprintf(d->port.address, sizeof d->port.address, "%s", echi_net_address(net));
    echi_net_close(net, 0);
    echi_doctor_note(&d->port.check, status, &err);
}
