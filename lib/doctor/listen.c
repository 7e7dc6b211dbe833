/* SPDX-License-Identifier: Apache-2.0
 * The listener's end of a measured link: answers one caller after the other, and believes none of them. */
#include "echi_probe.h"
#include "echi_config_log.h"
#include "echi_error.h"
#include "echi_run.h"
#include "echi_os.h"

#include <stdlib.h>
#include <string.h>

#define LOOK (ECHI_SECOND / 5)   /* how often it is looked whether to stop */
#define LONGEST 6                /* deadlines that one caller may stay: a measurement has three parts */

struct listener {
    const struct ech_config *config;
    struct echi_probe_end end;
    bool told;                   /* on_bound was called */
    uint32_t got;                /* bulks since the last PING */
};

static bool stopped(const struct listener *l) { return l->config->stop && __atomic_load_n(l->config->stop, __ATOMIC_RELAXED); }

static ech_status answer(struct listener *l, const struct echi_net_event *event, const struct echi_probe *word, struct ech_error *err) {
    if (event->kind == ECHI_PROBE_BULK) {
        if (event->payload_len != ECHI_PROBE_BULK_BYTES)
            return echi_fail(err, ECH_E_FORMAT, "doctor.listen", "sends a bulk of %zu bytes", event->payload_len);
        if (l->got == ECHI_PROBE_MOST) return echi_fail(err, ECH_E_FORMAT, "doctor.listen", "sends more than %u bulks", ECHI_PROBE_MOST);
        ECHI_TRY(echi_probe_post(&l->end, event->cookie, err));
        return echi_probe_say(&l->end, ECHI_PROBE_GOT, ++l->got, err);
    }
    if (word->type == ECHI_PROBE_PING) {
        l->got = 0;
        return echi_probe_say(&l->end, ECHI_PROBE_PONG, word->number, err);
    }
    if (word->type == ECHI_PROBE_GIVE) return echi_probe_send(&l->end, word->number, err);
    return echi_fail(err, ECH_E_FORMAT, "doctor.listen", "says what only a listener says");
}

/* One caller, from being called to his leaving. ECH_E_END: it is time to stop. */
static ech_status serve(struct listener *l, struct ech_error *err) {
    const int64_t deadline = (int64_t)(l->config->deadline * 1e9);
    int64_t began = 0, heard = 0;    /* 0: nobody is connected */
    l->got = 0;
    while (!stopped(l)) {
        struct echi_net_event event;
        struct echi_probe word = {0};
        ECHI_TRY(echi_probe_next(&l->end, echi_now() + LOOK, &event, &word, err));
        if (event.type == ECHI_NET_WAITING && heard && echi_now() - heard > deadline)
            return echi_fail(err, ECH_E_TIMEOUT, "doctor.listen", "has said nothing for %g s", l->config->deadline);
        if (began && echi_now() - began > LONGEST * deadline)
            return echi_fail(err, ECH_E_TIMEOUT, "doctor.listen", "stays for longer than any measurement takes");
        if (event.type == ECHI_NET_WAITING) continue;
        if (event.type == ECHI_NET_LOST && event.orderly) return ECH_OK;
        if (event.type == ECHI_NET_LOST) return echi_fail(err, ECH_E_PEER_LOST, "doctor.listen", "%.200s", event.text);
        heard = echi_now();
        if (event.type == ECHI_NET_READY) began = heard;
        if (event.type == ECHI_NET_READY) ECHI_TRY(echi_probe_post_all(&l->end, err));
        else ECHI_TRY(answer(l, &event, &word, err));
    }
    return ECH_E_END;
}

ech_status ech_doctor_listen(const struct ech_config *given, struct ech_error *err) {
    struct ech_error why = {.peer = -1};
    struct ech_config whole;
    const struct ech_config *config = &whole;
    struct listener l = {.config = config};
    if (!given) return echi_fail(err, ECH_E_ARGUMENT, "doctor.listen", "ech_doctor_listen needs a config");
    ECHI_TRY(echi_config_whole(given, &whole, err));
    ECHI_TRY(ech_config_check(config, err));
    const char *port = strrchr(config->coordinator, ':');
    if (!port || atoi(port + 1) == 0)
        return echi_fail(err, ECH_E_ARGUMENT, "doctor.listen",
                         "--listen needs an address that the other nodes can name: give --coordinator HOST:PORT, "
                         "with a port from 1 to 65535");
    for (ech_status status = ECH_OK; status != ECH_E_END;) {
        ECHI_TRY(echi_probe_open(&l.end, config, 0, err));
        if (!l.told && config->on_bound) config->on_bound(config->user, echi_net_address(l.end.net));
        l.told = true;
        status = serve(&l, &why);
        if (status == ECH_OK) echi_config_log(config, ECH_LOG_INFO, "a node was served");
        else if (status != ECH_E_END) echi_config_log(config, ECH_LOG_WARN, "a node was dropped: it %s", why.text);
        echi_probe_close(&l.end);
        if (status == ECH_E_IO) return echi_fail(err, status, "doctor.listen", "%s", why.text);
    }
    return ECH_OK;
}
