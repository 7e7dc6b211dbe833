/* SPDX-License-Identifier: Apache-2.0
 * The table of sync policies. */
#include "echi_policy.h"

const struct echi_policy *echi_policy_of(enum echi_sync sync) {
    static const struct echi_policy *const table[ECHI_SYNCS] = {
        [ECHI_SYNC_BSP] = &echi_policy_bsp,
        [ECHI_SYNC_ASP] = &echi_policy_asp,
        [ECHI_SYNC_SSP] = &echi_policy_ssp,
        [ECHI_SYNC_GSSP] = &echi_policy_gssp,
        [ECHI_SYNC_LOCAL] = &echi_policy_local,
    };
    return table[sync];
}
