/* SPDX-License-Identifier: Apache-2.0
 * The table of sync policies. */
#include "echi_plan.h"

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
