/* SPDX-License-Identifier: Apache-2.0
 * ech_doctor: looks at everything, and says what would make training fail. */
#include "echi_doctor.h"
#include "echi_error.h"
#include "echi_run.h"

#include <stdio.h>
#include <string.h>

void echi_doctor_note(struct ech_doctor_check *check, ech_status status, const struct ech_error *err) {
    check->status = status;
    snprintf(check->text, sizeof check->text, "%s", status == ECH_OK ? "" : err->text);
}

/* The first one counts: what comes later often follows from it. */
static void judge(struct ech_doctor *d, const struct ech_doctor_check *check) {
    if (d->status != ECH_OK || check->status == ECH_OK) return;
    d->status = check->status;
    snprintf(d->trouble, sizeof d->trouble, "%s", check->text);
}

ech_status ech_doctor(const ech_model *model, const ech_data *data, const struct ech_config *given, struct ech_doctor *out,
                      struct ech_error *err) {
    if (!model || !given || !out)
        return echi_fail(err, ECH_E_ARGUMENT, "doctor", "ech_doctor needs a model, a config and a place for what it finds");
    struct ech_config whole;
    const struct ech_config *config = &whole;
    ECHI_TRY(echi_config_whole(given, &whole, err));
    ECHI_TRY(ech_config_check(config, err));
    memset(out, 0, sizeof *out);
    snprintf(out->version, sizeof out->version, "%s", ECH_VERSION);
    out->rank = config->rank;
    out->world = config->world;
    out->threads = echi_node_threads(config);
    echi_doctor_devices(config, out);
    echi_doctor_stacks(out);
    const enum echi_doctor_part part = echi_doctor_network(config, out);
    if (part == ECHI_DOCTOR_PORT) echi_doctor_port(config, out);
    if (part == ECHI_DOCTOR_LINK) echi_doctor_link(config, out);
    echi_doctor_memory(config, model, data, out);
    for (int i = 0; i < out->n_devices; i++)
        if (out->device[i].used) judge(out, &out->device[i].check);
    judge(out, &out->network);
    judge(out, &out->port.check);
    judge(out, &out->link.check);
    judge(out, &out->memory.check);
    return ECH_OK;
}
