/* SPDX-License-Identifier: Apache-2.0
 * The bins of the histograms of staleness. */
#ifndef ECHI_STALENESS_H
#define ECHI_STALENESS_H

/* Staleness is counted in bins, in rounds: the first holds what is 0 (or below), bin i what is above edge i - 1 and at most
 * edge i, the last what is above them all. */
#define ECHI_STALENESS_BINS 13
extern const double echi_staleness_edge[ECHI_STALENESS_BINS - 1];
int echi_staleness_bin(double rounds);
#endif
