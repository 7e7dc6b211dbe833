/* SPDX-License-Identifier: Apache-2.0
 * The bins of the histograms of staleness. */
#include "echi_staleness.h"

const double echi_staleness_edge[ECHI_STALENESS_BINS - 1] = {0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 16};

int echi_staleness_bin(double rounds) {
    int bin = 0;
    while (bin < ECHI_STALENESS_BINS - 1 && !(rounds <= echi_staleness_edge[bin])) bin++;   /* what is no number comes last */
    return bin;
}
