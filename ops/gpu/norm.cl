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

/* The numbers of channel c in [n][channels][places], dealt to the items of a group: `at` goes from one of an item's to its next, ITEMS
 * further in the channel, without dividing. */
struct walk { int at, place, left; };
FUNCTION struct walk walk(int c, int channels, int places, int count) {
    struct walk w;
    w.place = ITEM % places, w.left = count - ITEM, w.at = (ITEM / places * channels + c) * places + w.place;
    return w;
}
FUNCTION struct walk on(struct walk w, int channels, int places) {
    w.left -= ITEMS, w.place += ITEMS % places, w.at += ITEMS / places * channels * places + ITEMS % places;
    if (w.place >= places) w.place -= places, w.at += (channels - 1) * places;
    return w;
}
#define EACH_OF_CHANNEL(w) for (struct walk w = walk(c, channels, places, count); w.left > 0; w = on(w, channels, places))

/* The gradient of a bias. */
KERNEL(ITEMS) sum_channels(GLOBAL const float *dy, GLOBAL float *sums, int channels, int places, int count) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    float sum = 0;
    EACH_OF_CHANNEL(w) sum += dy[w.at];
    sum = sum_of_group(room, sum);
    if (ITEM == 0) sums[c] = sum;
}

KERNEL(ITEMS) norm_statistics(GLOBAL const float *x, GLOBAL float *stats, int channels, int places, int count) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    float sum = 0, squares = 0, off = 0;
    EACH_OF_CHANNEL(w) sum += x[w.at];
    const float mean = sum_of_group(room, sum) / count;
    EACH_OF_CHANNEL(again) {
        const float d = x[again.at] - mean;
        squares += d * d, off += d;
    }
    squares = sum_of_group(room, squares);
    off = sum_of_group(room, off) / count;     /* what rounding has left between the mean and `mean` */
    if (ITEM == 0) stats[c] = mean + off, stats[channels + c] = squares / count - off * off;
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

/* dbias = sum dy, dweight = sum dy h. */
KERNEL(ITEMS) norm_backward_params(GLOBAL const float *x, GLOBAL const float *dy, GLOBAL const float *stats, GLOBAL float *dweight,
                                   GLOBAL float *dbias, float epsilon, int channels, int places, int count) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    float sum = 0, along = 0;
    EACH_OF_CHANNEL(w) {
        sum += dy[w.at];
        along += dy[w.at] * (x[w.at] - stats[c]);
    }
    sum = sum_of_group(room, sum);
    along = sum_of_group(room, along);
    if (ITEM == 0) dbias[c] = sum, dweight[c] = along / deviation(stats[channels + c], epsilon);
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
