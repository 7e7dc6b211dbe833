/* SPDX-License-Identifier: Apache-2.0
 * The table of the policies' rules. */
#include "echi_sync.h"

const struct echi_sync_rules *echi_sync_rules_of(enum echi_sync sync) {
    static const struct echi_sync_rules *const table[ECHI_SYNCS] = {
        [ECHI_SYNC_BSP] = &echi_sync_bsp,
        [ECHI_SYNC_ASP] = &echi_sync_asp,
        [ECHI_SYNC_SSP] = &echi_sync_ssp,
        [ECHI_SYNC_GSSP] = &echi_sync_gssp,
        [ECHI_SYNC_LOCAL] = &echi_sync_local,
    };
    return table[sync];
}
