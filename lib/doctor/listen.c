/* SPDX-License-Identifier: Apache-2.0
 * A node that waits: meets one caller after the other, and believes none of them. A caller measures the link to it, or asks it to take
 * part in a plan (answer.c). */
#include "echi_ask.h"
#include "echi_config_log.h"
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_meet.h"
#include "echi_options.h"

#include <stdlib.h>
#include <string.h>

struct listener {
    struct ech_config config;
    struct ech_doctor_links table;
    char ask[ECHI_MEET_ASK_MOST];
    bool told, stays;
};

/* One caller, from being waited for to his leaving. ECH_E_END: it is time to stop. */
static ech_status serve(struct listener *l, struct ech_error *err) {
    const struct ech_config *c = &l->config;
    struct echi_meet *meet;
    struct ech_error why = {.peer = -1};
    ECHI_TRY(echi_meet_open(c, 0, 2, ECHI_DOCTOR_MEET_LISTENER, INT64_MAX, &meet, err));
    meet->ask = l->ask;
    if (!l->told && c->on_bound) c->on_bound(c->user, echi_net_address(meet->net));
    l->told = true;
    memset(&l->table, 0, sizeof l->table);   /* not a literal: too large for the stack of a thread */
    l->table.world = 2;
    ech_status status = echi_meet_measure(meet, &l->table, &why);
    if (status == ECH_E_IO) (void)echi_fail(err, status, "doctor.listen", "%s", why.text);   /* this machine's, not the caller's */
    const bool broken = status == ECH_E_IO, asked = status == ECH_OK && meet->ask_len > 0;
    if (asked) status = echi_ask_answer(c, meet, &l->stays, &why);
    else echi_meet_close(meet);
    if (status == ECH_OK) echi_config_log(c, ECH_LOG_INFO, asked ? "the plan was made" : "a node was served");
    else if (status != ECH_E_END) echi_config_log(c, ECH_LOG_WARN, "%s: %s", asked ? "no plan was made" : "a node was dropped", why.text);
    if (l->stays) return echi_fail(err, ECH_E_TIMEOUT, "doctor.listen", "%s", why.text);
    return broken || status == ECH_E_END ? status : ECH_OK;
}

ech_status ech_doctor_listen(const struct ech_config *given, struct ech_error *err) {
    struct listener *l = calloc(1, sizeof *l);
    if (!given || !l) {
        free(l);
        return given ? echi_fail_memory(err, "doctor.listen", "a table of links")
                     : echi_fail(err, ECH_E_ARGUMENT, "doctor.listen", "ech_doctor_listen needs a config");
    }
    ech_status status = echi_config_whole(given, &l->config, err);
    if (status == ECH_OK) status = ech_config_check(&l->config, err);
    const char *port = strrchr(l->config.coordinator, ':');
    if (status == ECH_OK && (!port || atoi(port + 1) == 0))
        status = echi_fail(err, ECH_E_ARGUMENT, "doctor.listen",
                           "--listen needs an address that the other nodes can name: give --coordinator HOST:PORT, "
                           "with a port from 1 to 65535");
    while (status == ECH_OK) status = serve(l, err);
    free(l);
    return status == ECH_E_END ? ECH_OK : status;
}
