/* SPDX-License-Identifier: Apache-2.0
 * The listener's end of a measured link: meets one caller after the other, and believes none of them. */
#include "echi_config_log.h"
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_meet.h"
#include "echi_options.h"

#include <stdlib.h>
#include <string.h>

/* One caller, from being waited for to his leaving. ECH_E_END: it is time to stop. */
static ech_status serve(const struct ech_config *config, bool *told, struct ech_doctor_links *table, struct ech_error *err) {
    struct echi_meet *meet;
    struct ech_error why = {.peer = -1};
    ECHI_TRY(echi_meet_open(config, 0, 2, ECHI_DOCTOR_MEET_LISTENER, INT64_MAX, &meet, err));
    if (!*told && config->on_bound) config->on_bound(config->user, echi_net_address(meet->net));
    *told = true;
    memset(table, 0, sizeof *table);   /* not a literal: too large for the stack of a thread */
    table->world = 2;
    const ech_status status = echi_meet_measure(meet, table, &why);
    echi_meet_close(meet);
    if (status == ECH_OK) echi_config_log(config, ECH_LOG_INFO, "a node was served");
    else if (status != ECH_E_END) echi_config_log(config, ECH_LOG_WARN, "a node was dropped: %s", why.text);
    if (status == ECH_E_IO) return echi_fail(err, status, "doctor.listen", "%s", why.text);
    return status == ECH_E_END ? status : ECH_OK;
}

ech_status ech_doctor_listen(const struct ech_config *given, struct ech_error *err) {
    struct ech_config config;
    if (!given) return echi_fail(err, ECH_E_ARGUMENT, "doctor.listen", "ech_doctor_listen needs a config");
    ECHI_TRY(echi_config_whole(given, &config, err));
    ECHI_TRY(ech_config_check(&config, err));
    const char *port = strrchr(config.coordinator, ':');
    if (!port || atoi(port + 1) == 0)
        return echi_fail(err, ECH_E_ARGUMENT, "doctor.listen",
                         "--listen needs an address that the other nodes can name: give --coordinator HOST:PORT, "
                         "with a port from 1 to 65535");
    struct ech_doctor_links *table = malloc(sizeof *table);
    ech_status status = table ? ECH_OK : echi_fail_memory(err, "doctor.listen", "a table of links");
    for (bool told = false; status == ECH_OK;) status = serve(&config, &told, table, err);
    free(table);
    return status == ECH_E_END ? ECH_OK : status;
}
