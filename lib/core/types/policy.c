/* SPDX-License-Identifier: Apache-2.0
 * The table of sync policies; names of what else a plan chooses among. */
#include "echi_plan.h"

#include <stddef.h>

const char *echi_activations_name(int activations) {
    static const char *const name[ECHI_ACTIVATIONS] = {[ECHI_ACTIVATIONS_FP32] = "fp32", [ECHI_ACTIVATIONS_BF16] = "bf16"};
    return activations >= 0 && activations < ECHI_ACTIVATIONS ? name[activations] : NULL;
}

const struct echi_policy *echi_policy_of(enum echi_sync sync) {
    static const struct echi_policy table[ECHI_SYNCS] = {
        [ECHI_SYNC_BSP] = {.name = "bsp", .rounds = true},
        [ECHI_SYNC_ASP] = {.name = "asp"},
        [ECHI_SYNC_SSP] = {.name = "ssp", .bounded = true},
        [ECHI_SYNC_GSSP] = {.name = "gssp", .bounded = true, .grouped = true},
        [ECHI_SYNC_LOCAL] = {.name = "local", .rounds = true, .local = true},
    };
    return &table[sync];
}
