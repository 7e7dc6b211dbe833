/* SPDX-License-Identifier: Apache-2.0
 * Options from the environment: the variables that name them, and rank and world as a launcher reports them. */
#include "echi_config_impl.h"
#include "echi_config_log.h"
#include "echi_error.h"
#include "echi_launcher.h"
#include "echi_options.h"
#include "echi_os.h"

#include <string.h>
#include <unistd.h>

/* "ECH_EVAL_EVERY" for "eval-every": does `variable`, of `len` bytes, name this option? */
static bool names_option(const char *variable, size_t len, const char *name) {
    if (strlen(name) != len - 4) return false;
    for (size_t c = 4; c < len; c++, name++) {
        char upper = *name == '-' ? '_' : *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name;
        if (variable[c] != upper) return false;
    }
    return true;
}

/* One variable whose name begins with ECH_. */
static ech_status take_variable(struct ech_config *config, const char *variable, const char *equals, struct ech_error *err) {
    const size_t len = (size_t)(equals - variable);
    const int shown = (int)(len < 80 ? len : 80);
    if (strncmp(variable, "ECH_INSTALL=", 12) == 0) return ECH_OK;   /* it is for our Makefile, not for a run */
    int i = 0, count;
    bool first;
    const struct ech_option *options = ech_options(&count);
    while (i < count && !names_option(variable, len, options[i].name)) i++;
    if (i == count && echi_variable_of_service(environ, variable, len, &first)) {
        if (first)
            echi_config_log(config, ECH_LOG_WARN,
                            "%.*s and others in the environment are of a Service of Kubernetes and no options: they are "
                            "ignored (enableServiceLinks: false in the Pod's spec leaves them out)", shown, variable);
        return ECH_OK;
    }
    if (i == count)
        return echi_refuse(err,
                           "the environment has %.*s, which is no option; unset it, or see `echelon train --help` for the names", shown,
                           variable);
    struct ech_error why;
    const ech_status status = ech_config_set(config, options[i].name, equals + 1, &why);
    return status == ECH_OK ? ECH_OK : echi_fail(err, status, "config", "%.*s in the environment: %s", shown, variable, why.text);
}

/* Threads of a node that its launcher has bound to some processors. Nodes may be bound to the same ones: as many as the part of the
 * machine that these are. */
static int bound_threads(int local_world) {
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int own = echi_cpu_count(), sharers = online > 0 ? (int)((own * (long)local_world + online - 1) / online) : 1;
    return sharers > 1 && own / sharers > 0 ? own / sharers : sharers > 1 ? 1 : own;
}

/* Which node this is, from whoever has started it: unless the program or the user has given that. */
static ech_status take_launch(struct ech_config *config, struct ech_error *err) {
    const bool rank = echi_variable(environ, "ECH_RANK") != NULL, world = echi_variable(environ, "ECH_WORLD") != NULL;
    if (strcmp(config->launcher, "off") == 0 || (rank && world)) return ECH_OK;
    if (!rank && !world && (config->rank != 0 || config->world != 1)) return ECH_OK;
    struct echi_launched launch;
    ECHI_TRY(echi_launched_from(environ, &launch, err));
    if (!launch.launcher || launch.world == 1) return ECH_OK;
    if (rank != world)
        return echi_refuse(err,
                           "the environment has ECH_%s without ECH_%s, beside %s of %s: give both, or neither", rank ? "RANK" : "WORLD",
                           rank ? "WORLD" : "RANK", launch.variables, launch.launcher);
    config->rank = launch.rank;
    config->world = launch.world;
    if (config->local_world == 0) {
        config->local_rank = launch.local_rank;
        config->local_world = launch.local_world;
        if (launch.bound && config->threads == 0) config->threads = bound_threads(launch.local_world);
    }
    if (!config->coordinator[0]) strcpy(config->coordinator, launch.coordinator);
    echi_config_log(config, ECH_LOG_INFO, "rank %d of %d, as %s reports (%s); %s%s", launch.rank, launch.world, launch.launcher,
                    launch.variables, config->coordinator[0] ? "the nodes meet at " : "it names no place to meet", config->coordinator);
    return ECH_OK;
}

ech_status ech_config_from_env(struct ech_config *config, struct ech_error *err) {
    if (!config) return echi_refuse(err, "ech_config_from_env needs a config");
    struct ech_config next;
    ECHI_TRY(echi_config_whole(config, &next, err));
    next.size = config->size;   /* a variable whose field the caller lacks is refused */
    for (char **at = environ; at && *at; at++) {
        const char *equals = strchr(*at, '=');
        if (strncmp(*at, "ECH_", 4) == 0 && equals) ECHI_TRY(take_variable(&next, *at, equals, err));
    }
    ECHI_TRY(take_launch(&next, err));
    echi_config_give_back(config, &next);
    return ECH_OK;
}
