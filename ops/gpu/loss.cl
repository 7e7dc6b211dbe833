/* SPDX-License-Identifier: Apache-2.0
 * Softmax and cross-entropy, as in ops/ref/softmax.c: an item for each sample. correct[s] is 1 when its largest output, the first of equal
 * ones, is at its label; a NaN counts as larger than anything, and as wrong. */
KERNEL(ITEMS) softmax_loss(GLOBAL const float *y, GLOBAL const int *labels, float scale, GLOBAL float *dy, GLOBAL float *loss,
                           GLOBAL int *correct, int classes, int n) {
    if (AT >= n) return;
    GLOBAL const float *row = y + AT * classes;
    GLOBAL float *drow = dy + AT * classes;
    const int label = labels[AT];
    int best = 0;
    for (int k = 1; k < classes; k++)
        if (row[best] == row[best] && !(row[k] <= row[best])) best = k;
    const float m = row[best];
    float sum = 0, others = 0;   /* others: all but the label, so that p - 1 keeps its digits where p is close to 1 */
    for (int k = 0; k < classes; k++) {
        const float e = exp(row[k] - m);
        sum += e;
        others += k == label ? 0 : e;
    }
    loss[AT] = log(sum) - (row[label] - m);
    correct[AT] = best == label && m == m;
    for (int k = 0; k < classes; k++) drow[k] = k == label ? -scale * (others / sum) : scale * (exp(row[k] - m) / sum);
}
