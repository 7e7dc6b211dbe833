/* SPDX-License-Identifier: Apache-2.0
 * What the files of ech_doctor share. Each part fills its place of `struct ech_doctor` (echelon_dev.h) and fails only where no run could
 * even be meant; what it finds is a check. */
#ifndef ECHI_DOCTOR_H
#define ECHI_DOCTOR_H
#include "echelon_dev.h"
#include "ech_status.h"

/* A check's outcome: `status` and, unless that is ECH_OK, err's sentence. */
void echi_doctor_note(struct ech_doctor_check *check, ech_status status, const struct ech_error *err);

void echi_doctor_devices(const struct ech_config *config, struct ech_doctor *out);
void echi_doctor_stacks(struct ech_doctor *out);
/* Interfaces, and which of them the run would use; and which of the two below there is to do. */
enum echi_doctor_part { ECHI_DOCTOR_NEITHER, ECHI_DOCTOR_PORT, ECHI_DOCTOR_LINK };
enum echi_doctor_part echi_doctor_network(const struct ech_config *config, struct ech_doctor *out);
void echi_doctor_port(const struct ech_config *config, struct ech_doctor *out);
void echi_doctor_link(const struct ech_config *config, struct ech_doctor *out);
/* After an attempt to meet a listener that failed so: *err also reports that one must run there, if that may be why. `option` names the
 * address. */
void echi_doctor_no_listener(const struct ech_config *config, const char *option, ech_status status, struct ech_error *err);
/* Purposes of meetings (echi_meet.h). */
#define ECHI_DOCTOR_MEET_LISTENER "the link to a listener"
#define ECHI_DOCTOR_MEET_LINKS "the links of all nodes"
/* The sentence that ech_doctor_links has of a slow link; "": none is. */
void echi_doctor_slow(const struct ech_doctor_links *table, char *text, size_t cap);
void echi_doctor_memory(const struct ech_config *config, const ech_model *model, const ech_data *data, struct ech_doctor *out);
#endif
