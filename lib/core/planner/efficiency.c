/* SPDX-License-Identifier: Apache-2.0
 * Statistical efficiency under staleness: as earlier runs have measured it, else by a table. */
#include "echi_efficiency.h"

/* Epochs to 98.5 % over those of BSP, LeNet-5 on MNIST, by how many rounds of B samples the weights behind a push lack on average,
 * those of other groups that are still on their way included.
 *
 * Layer separation: only the trunk is stale, and the head takes its rows in smaller bites than a round, which is why a little of it
 * costs less than nothing.
 *   1.0  four nodes, 1 B under way, B 64: 1.0 to 1.6 epochs, where one node takes 1.10 to 1.80     (test/bench/results, defaults)
 *   1.3  sixteen nodes in four groups, spread 8, 1 B under way: 1.50 to 1.60 epochs, BSP 1.80        (virtual time, 8 of 8 runs)
 *   2.3  four nodes, 2.75 B under way: 1.65 epochs, median of seven                                 (test/bench/results, defaults)
 * All layers stale, momentum 0.5 at the same lr / (1 - m), 1 B under way on sixteen nodes in four groups: 2.45 to 2.70 epochs where
 * speeds differ by 8, and where they are even just so in five epochs (98.6 % in the end): between 1.4 and 2.7 times BSP's. With
 * momentum 0.9 some runs never get there.
 * Beyond the last row the last slope goes on.
 *
 * The first table is for heads that hold most of the model: LeNet-5's has 96 % of the parameters. ResNet-18 and VGG-19 end in one layer
 * with under 1 % of theirs; with that separated all the rest is as stale as ever. Sixteen nodes, `strong`, momentum 0.9, layer separation,
 * narrowed nets with batch-norm on CIFAR-10, single runs (test/bench/results, gssp-nets):
 *   2.6 rounds of 256 (10 of 64)   ResNet-18: 81.3 % after 10 epochs, 86.7 after 20, BSP 84.5 after 10: 1.5; six convolutions: 1.9
 *   4.5                            VGG-19: 33 % after two epochs, BSP 46 % at half of them: more than 2
 *   7.1                            six convolutions: 49 % after five epochs, BSP 54 % after two: more than 2.5
 * That is between the tables. The second is taken: epochs are given, and with as many of them what is stale ends points lower. */
struct row { double behind, epochs; };   /* epochs: by those of BSP */
static const struct row trunk[] = {{0, 1}, {1.0, 0.9}, {1.3, 0.87}, {2.3, 1.14}};
static const struct row whole[] = {{0, 1}, {1.3, 1.9}};

bool echi_mostly_separated(const struct echi_load *load, bool separated) { return separated && load->head >= load->trunk; }

static double at(const struct row *row, int rows, double behind) {
    int i = 1;
    while (i + 1 < rows && behind > row[i].behind) i++;
    const double slope = (row[i].epochs - row[i - 1].epochs) / (row[i].behind - row[i - 1].behind);
    return row[i - 1].epochs + slope * (behind - row[i - 1].behind);
}

double echi_statistical_efficiency(bool mostly_separated, double behind) {
    return 1 / (mostly_separated ? at(trunk, sizeof trunk / sizeof trunk[0], behind) : at(whole, sizeof whole / sizeof whole[0], behind));
}

/* Of the table, from one round behind on: epochs of its runs differ by as much (four nodes: 1.0 to 1.6), and it was made with one small
 * net. Half a round costs half as much, and is known twice as well. */
#define TABLE_ERROR 0.15
static struct echi_efficiency of_table(bool mostly_separated, double behind) {
    return (struct echi_efficiency){echi_statistical_efficiency(mostly_separated, behind), TABLE_ERROR * (behind < 1 ? behind : 1), false};
}

/* A measurement tells of stalenesses up to so many times its own, or down to such a part of it. */
#define REACH 2.0
static bool tells(const struct echi_measured *m, int sync, bool separated, double behind) {
    return m->sync == sync && m->separated == separated && m->behind <= REACH * behind && behind <= REACH * m->behind;
}

/* How far apart two stalenesses are. */
static double apart(double a, double b) { return a > b ? a / b : b / a; }

/* Of two measurements the one at the nearer staleness is taken. What staleness costs in samples is proportional to it, as in the table;
 * what it gains, which is seldom much, is not taken for more than was measured. */
struct echi_efficiency echi_efficiency_of(const struct echi_evidence *evidence, int sync, bool separated, bool mostly_separated,
                                          double behind) {
    const struct echi_measured *best = NULL;
    for (int i = 0; i < evidence->count; i++) {
        const struct echi_measured *m = &evidence->of[i];
        if (tells(m, sync, separated, behind) && (!best || apart(m->behind, behind) < apart(best->behind, behind))) best = m;
    }
    if (!best) return of_table(mostly_separated, behind);
    const double costs = 1 / best->efficiency - 1, scale = costs < 0 && behind > best->behind ? 1 : behind / best->behind;
    return (struct echi_efficiency){1 / (1 + costs * scale), best->error, true};
}
