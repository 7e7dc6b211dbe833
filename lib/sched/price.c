/* SPDX-License-Identifier: Apache-2.0
 * The price of staleness, as it was measured. */
#include "echi_predict.h"

/* Epochs to 98.5 % over those of BSP, LeNet-5 on MNIST, by the mean staleness of a push in rounds of B samples.
 *
 * Head apart: only the trunk is stale, and the head takes its rows in smaller bites than a round, which is why a little of it
 * costs less than nothing.
 *   0.7  four nodes, 1 B under way, B 64: 1.0 to 1.6 epochs, where one node takes 1.10 to 1.80     (lib/DESIGN.md, section 11)
 *   0.9  sixteen nodes, spread 8, 1 B under way: 1.50 to 1.60 epochs, BSP 1.80                       (virtual time, 8 of 8 runs)
 *   2.0  four nodes, 2.75 B under way: 1.65 epochs, median of seven                                 (lib/DESIGN.md, section 11)
 * All layers stale, momentum 0.5 at the same lr / (1 - m), 1 B under way on sixteen nodes: 2.45 to 2.70 epochs where speeds
 * differ by 8, and where they are even just so in five epochs (98.6 % in the end): between 1.4 and 2.7 times BSP's. With
 * momentum 0.9 some runs never get there.
 * Beyond the last row the last slope goes on. */
struct price { double staleness, price; };
static const struct price apart[] = {{0, 1}, {0.7, 0.9}, {0.9, 0.87}, {2, 1.14}};
static const struct price whole[] = {{0, 1}, {0.9, 1.9}};

static double at(const struct price *row, int rows, double staleness) {
    int i = 1;
    while (i + 1 < rows && staleness > row[i].staleness) i++;
    const double slope = (row[i].price - row[i - 1].price) / (row[i].staleness - row[i - 1].staleness);
    return row[i - 1].price + slope * (staleness - row[i - 1].staleness);
}

double echi_price(bool separated, double staleness) {
    return separated ? at(apart, sizeof apart / sizeof apart[0], staleness) : at(whole, sizeof whole / sizeof whole[0], staleness);
}
