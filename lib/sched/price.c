/* SPDX-License-Identifier: Apache-2.0
 * The price of staleness, as it was measured. */
#include "echi_predict.h"

/* Epochs to 98.5 % over those of BSP, LeNet-5 on MNIST, by how many rounds of B samples the weights behind a push lack on average,
 * those of other groups that are still on their way included.
 *
 * Head apart: only the trunk is stale, and the head takes its rows in smaller bites than a round, which is why a little of it
 * costs less than nothing.
 *   1.0  four nodes, 1 B under way, B 64: 1.0 to 1.6 epochs, where one node takes 1.10 to 1.80     (lib/DESIGN.md, section 11)
 *   1.3  sixteen nodes in four groups, spread 8, 1 B under way: 1.50 to 1.60 epochs, BSP 1.80        (virtual time, 8 of 8 runs)
 *   2.3  four nodes, 2.75 B under way: 1.65 epochs, median of seven                                 (lib/DESIGN.md, section 11)
 * All layers stale, momentum 0.5 at the same lr / (1 - m), 1 B under way on sixteen nodes in four groups: 2.45 to 2.70 epochs where
 * speeds differ by 8, and where they are even just so in five epochs (98.6 % in the end): between 1.4 and 2.7 times BSP's. With
 * momentum 0.9 some runs never get there.
 * Beyond the last row the last slope goes on. */
struct price { double behind, price; };
static const struct price apart[] = {{0, 1}, {1.0, 0.9}, {1.3, 0.87}, {2.3, 1.14}};
static const struct price whole[] = {{0, 1}, {1.3, 1.9}};

static double at(const struct price *row, int rows, double behind) {
    int i = 1;
    while (i + 1 < rows && behind > row[i].behind) i++;
    const double slope = (row[i].price - row[i - 1].price) / (row[i].behind - row[i - 1].behind);
    return row[i - 1].price + slope * (behind - row[i - 1].behind);
}

double echi_price(bool separated, double behind) {
    return separated ? at(apart, sizeof apart / sizeof apart[0], behind) : at(whole, sizeof whole / sizeof whole[0], behind);
}
