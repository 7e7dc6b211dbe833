/* SPDX-License-Identifier: Apache-2.0
 * Sums over a channel, and batch-norm, which is made of them: a group for each channel. Formulas as in ops/ref/batch_norm.c; sums are in
 * float, of what each item collects first, then in a tree. `stats` has the means of all channels and then their variances. */

/* The sum of every item's `mine`, known to all. `room` has ITEMS floats. */
FUNCTION float sum_of_group(OF_LOCAL float *room, float mine) {
    room[ITEM] = mine;
    WAIT;
    for (int reach = ITEMS / 2; reach > 0; reach /= 2) {
        if (ITEM < reach) room[ITEM] += room[ITEM + reach];
        WAIT;
    }
    const float sum = room[0];
    WAIT;
    return sum;
}

/* Numbers first to end of channel c in [n][channels][places], dealt to the items of a group: `at` goes from one of an item's to its next,
 * ITEMS further in the channel, without dividing. */
struct walk { int at, place, left; };
FUNCTION struct walk walk(int c, int channels, int places, int first, int end) {
    struct walk w;
    const int i = first + ITEM;
    w.place = i % places, w.left = end - i, w.at = (i / places * channels + c) * places + w.place;
    return w;
}
FUNCTION struct walk on(struct walk w, int channels, int places) {
    w.left -= ITEMS, w.place += ITEMS % places, w.at += ITEMS / places * channels * places + ITEMS % places;
    if (w.place >= places) w.place -= places, w.at += (channels - 1) * places;
    return w;
}
/* A channel's numbers are shared by groups along y, `share` each; what a group makes of its own comes behind that of the groups before. */
#define FIRST (GROUP(1) * share)
#define END (FIRST + share < count ? FIRST + share : count)
#define EACH_OF_SHARE(w) for (struct walk w = walk(c, channels, places, FIRST, END); w.left > 0; w = on(w, channels, places))

/* The gradient of a bias. */
KERNEL(ITEMS) sum_channels(GLOBAL const float *dy, GLOBAL float *sums, int channels, int places, int count, int share) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    float sum = 0;
    EACH_OF_SHARE(w) sum += dy[w.at];
    sum = sum_of_group(room, sum);
    if (ITEM == 0) sums[GROUP(1) * channels + c] = sum;
}

KERNEL(ITEMS) norm_statistics(GLOBAL const float *x, GLOBAL float *stats, int channels, int places, int count, int share) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0), own = END - FIRST;
    float sum = 0, squares = 0, off = 0;
    EACH_OF_SHARE(w) sum += x[w.at];
    const float mean = sum_of_group(room, sum) / own;
    EACH_OF_SHARE(again) {
        const float d = x[again.at] - mean;
        squares += d * d, off += d;
    }
    squares = sum_of_group(room, squares);
    off = sum_of_group(room, off) / own;     /* what rounding has left between the mean and `mean` */
    if (ITEM == 0) {
        GLOBAL float *to = stats + GROUP(1) * 2 * channels;
        to[c] = mean + off, to[channels + c] = squares / own - off * off;
    }
}

/* A channel's statistics from those of its `groups` shares (Chan, Golub and LeVeque, "Algorithms for computing the sample variance",
 * The American Statistician 37 (3), 1983): the variance is the mean of theirs, and that of their means. */
KERNEL(ITEMS) norm_join_statistics(GLOBAL const float *of_shares, GLOBAL float *stats, int channels, int count, int share, int groups) {
    const int c = AT;
    if (c >= channels) return;
    float mean = 0, variance = 0;
    for (int g = 0; g < groups; g++) {
        const int own = (g + 1) * share < count ? share : count - g * share, before = g * share;
        const float d = of_shares[g * 2 * channels + c] - mean, part = (float)own / (before + own);
        variance += (of_shares[(g * 2 + 1) * channels + c] - variance) * part + d * d * part * (1 - part);
        mean += d * part;
    }
    stats[c] = mean, stats[channels + c] = variance;
}

/* Of number i of [n][channels][places]. */
FUNCTION int channel_of(struct echi_window w, int i) {
    const int map = divided(i, w.by_in_map);
    return map - divided(map, w.by_in_c) * w.in_c;
}
FUNCTION float deviation(float variance, float epsilon) { return sqrt((variance > 0 ? variance : 0) + epsilon); }

KERNEL(ITEMS) norm_forward(GLOBAL const float *x, GLOBAL const float *stats, GLOBAL const float *weight, GLOBAL const float *bias,
                           GLOBAL float *y, int relu, float epsilon, struct echi_window w, int count) {
    if (AT >= count) return;
    const int c = channel_of(w, AT);
    y[AT] = rectified((x[AT] - stats[c]) / deviation(stats[w.in_c + c], epsilon) * weight[c] + bias[c], relu);
}

/* Sums of dy, and behind them those of dy times the deviation from the mean. */
KERNEL(ITEMS) norm_sums_backward(GLOBAL const float *x, GLOBAL const float *dy, GLOBAL const float *stats, GLOBAL float *sums, int channels,
                                 int places, int count, int share) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    const float mean = stats[c];
    float sum = 0, along = 0;
    EACH_OF_SHARE(w) {
        sum += dy[w.at];
        along += dy[w.at] * (x[w.at] - mean);
    }
    sum = sum_of_group(room, sum);
    along = sum_of_group(room, along);
    if (ITEM == 0) sums[GROUP(1) * 2 * channels + c] = sum, sums[(GROUP(1) * 2 + 1) * channels + c] = along;
}

/* dbias = sum dy, dweight = sum dy h, of `groups` such sums. */
KERNEL(ITEMS) norm_backward_params(GLOBAL const float *sums, GLOBAL const float *stats, GLOBAL float *dweight, GLOBAL float *dbias,
                                   float epsilon, int channels, int groups) {
    const int c = AT;
    if (c >= channels) return;
    float sum = 0, along = 0;
    for (int g = 0; g < groups; g++) sum += sums[g * 2 * channels + c], along += sums[(g * 2 + 1) * channels + c];
    dbias[c] = sum, dweight[c] = along / deviation(stats[channels + c], epsilon);
}

/* of_batch: the statistics are those of x, so they move with it. per_channel: numbers of a channel. */
KERNEL(ITEMS) norm_backward_input(GLOBAL const float *x, GLOBAL const float *dy, GLOBAL const float *stats, GLOBAL const float *weight,
                                  GLOBAL const float *dweight, GLOBAL const float *dbias, GLOBAL float *dx, int of_batch, int of_relu,
                                  int per_channel, float epsilon, struct echi_window w, int count) {
    if (AT >= count) return;
    const int c = channel_of(w, AT);
    const float s = deviation(stats[w.in_c + c], epsilon), h = (x[AT] - stats[c]) / s;
    const float moves = of_batch ? dbias[c] / per_channel + h * (dweight[c] / per_channel) : 0;
    dx[AT] = rectified_back(weight[c] / s * (dy[AT] - moves), x[AT], of_relu);
}
#undef FIRST
#undef END
#undef EACH_OF_SHARE
