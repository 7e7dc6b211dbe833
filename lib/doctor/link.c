/* SPDX-License-Identifier: Apache-2.0
 * The link to the coordinator's machine, where `echelon doctor --listen` answers: a meeting of two. */
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_meet.h"
#include "echi_os.h"
#include "echi_timespec.h"

#include <stdlib.h>

/* A run that waits for its nodes turns away who only measures, and goes on waiting. */
void echi_doctor_no_listener(const struct ech_config *config, const char *option, ech_status status, struct ech_error *err) {
    if (status != ECH_E_MISMATCH && status != ECH_E_PEER_LOST && status != ECH_E_TIMEOUT) return;
    const struct ech_error why = *err;
    (void)echi_fail(err, status, "doctor.link", "%.270s: start `echelon doctor --listen --coordinator %.60s` there, or correct %s",
                    why.text, config->coordinator, option);
}

static ech_status measure(const struct ech_config *config, struct ech_doctor_links *table, struct ech_doctor *d, struct ech_error *err) {
    struct echi_meet *meet;
    ECHI_TRY(echi_meet_open(config, 1, 2, ECHI_DOCTOR_MEET_LISTENER, (int64_t)(config->join_timeout * 1e9), &meet, err));
    const ech_status status = echi_meet_measure(meet, table, err);
    const struct echi_links_pair *pair = &meet->pair[0];
    d->link.round_trip = pair->round_trip;
    d->link.out = pair->out.rate;
    d->link.out_highest = pair->out.highest;
    d->link.in = pair->in.rate;
    d->link.in_highest = pair->in.highest;
    d->link.offset = pair->offset;
    d->link.within = pair->round_trip / 2;
    echi_meet_close(meet);
    return status;
}

void echi_doctor_link(const struct ech_config *config, struct ech_doctor *d) {
    struct ech_error err = {.text = ""};
    struct ech_doctor_links *table = calloc(1, sizeof *table);
    const int64_t give_up = echi_now() + (int64_t)(config->join_timeout * 1e9);
    ech_status status = table ? ECH_OK : echi_fail_memory(&err, "doctor.link", "a table of links");
    d->link.done = 1;
    if (table) {
        table->rank = 1;
        table->world = 2;
        int mismatches = 0;
        int64_t since;
        do {
            since = echi_now();
            status = measure(config, table, d, &err);
        } while (echi_meet_again(status, since, &mismatches, give_up));
    }
    free(table);
    echi_doctor_no_listener(config, "--coordinator", status, &err);
    echi_doctor_note(&d->link.check, status, &err);
}
