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

/* Place of number i of channel c in [n][channels][places]. */
#define NUMBER(i) ((i) / places * channels + c) * places + (i) % places

/* The gradient of a bias. */
KERNEL(ITEMS) sum_channels(GLOBAL const float *dy, GLOBAL float *sums, int channels, int places, int count) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    float sum = 0;
    for (int i = ITEM; i < count; i += ITEMS) sum += dy[NUMBER(i)];
    sum = sum_of_group(room, sum);
    if (ITEM == 0) sums[c] = sum;
}

KERNEL(ITEMS) norm_statistics(GLOBAL const float *x, GLOBAL float *stats, int channels, int places, int count) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    float sum = 0, squares = 0, off = 0;
    for (int i = ITEM; i < count; i += ITEMS) sum += x[NUMBER(i)];
    const float mean = sum_of_group(room, sum) / count;
    for (int i = ITEM; i < count; i += ITEMS) {
        const float d = x[NUMBER(i)] - mean;
        squares += d * d, off += d;
    }
    squares = sum_of_group(room, squares);
    off = sum_of_group(room, off) / count;     /* what rounding has left between the mean and `mean` */
    if (ITEM == 0) stats[c] = mean + off, stats[channels + c] = squares / count - off * off;
}

FUNCTION float deviation(float variance, float epsilon) { return sqrt((variance > 0 ? variance : 0) + epsilon); }

KERNEL(ITEMS) norm_forward(GLOBAL const float *x, GLOBAL const float *stats, GLOBAL const float *weight, GLOBAL const float *bias,
                           GLOBAL float *y, float epsilon, int channels, int places, int count) {
    if (AT >= count) return;
    const int c = AT / places % channels;
    y[AT] = (x[AT] - stats[c]) / deviation(stats[channels + c], epsilon) * weight[c] + bias[c];
}

/* dbias = sum dy, dweight = sum dy h. */
KERNEL(ITEMS) norm_backward_params(GLOBAL const float *x, GLOBAL const float *dy, GLOBAL const float *stats, GLOBAL float *dweight,
                                   GLOBAL float *dbias, float epsilon, int channels, int places, int count) {
    LOCAL float room[ITEMS];
    const int c = GROUP(0);
    float sum = 0, along = 0;
    for (int i = ITEM; i < count; i += ITEMS) {
        const int at = NUMBER(i);
        sum += dy[at];
        along += dy[at] * (x[at] - stats[c]);
    }
    sum = sum_of_group(room, sum);
    along = sum_of_group(room, along);
    if (ITEM == 0) dbias[c] = sum, dweight[c] = along / deviation(stats[channels + c], epsilon);
}

/* of_batch: the statistics are those of x, so they move with it. per_channel: numbers of a channel. */
KERNEL(ITEMS) norm_backward_input(GLOBAL const float *x, GLOBAL const float *dy, GLOBAL const float *stats, GLOBAL const float *weight,
                                  GLOBAL const float *dweight, GLOBAL const float *dbias, GLOBAL float *dx, int of_batch, int per_channel,
                                      float epsilon,
                                  int channels, int places, int count) {
    if (AT >= count) return;
    const int c = AT / places % channels;
    const float s = deviation(stats[channels + c], epsilon), h = (x[AT] - stats[c]) / s;
    const float moves = of_batch ? dbias[c] / per_channel + h * (dweight[c] / per_channel) : 0;
    dx[AT] = weight[c] / s * (dy[AT] - moves);
}
