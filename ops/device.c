/* SPDX-License-Identifier: Apache-2.0
 * Devices for arithmetic: chosen, opened, and seen to compute rightly. */
#include "echi_error.h"
#include "echi_known_answer.h"

#include <string.h>

static ech_status open_checked(const char *spec, int threads, enum echi_cpu_level level, const char *keep, struct echi_device **out,
                               struct ech_error *err) {
    ECHI_TRY(echi_device_open_at(spec, threads, level, out, err));
    if (echi_device_describe(*out)->host_memory) return ECH_OK;
    echi_device_keep_programs(*out, keep);
    const ech_status status = echi_known_answers(*out, NULL, NULL, err);
    if (status == ECH_OK) return ECH_OK;
    echi_device_close(*out);
    *out = NULL;
    return status;
}

ech_status echi_ops_open(const char *spec, int threads, enum echi_cpu_level level, const char *keep, struct echi_device **out,
                         struct ech_error *err) {
    if (spec == NULL || strcmp(spec, "auto") != 0) return open_checked(spec, threads, level, keep, out, err);
    struct echi_device_info info;
    char at[32];
    for (int i = 0; echi_device_at(i, at, sizeof at, &info); i++)
        if (info.gpu && open_checked(at, threads, level, keep, out, NULL) == ECH_OK) return ECH_OK;
    return open_checked("cpu", threads, level, keep, out, err);
}
