/* SPDX-License-Identifier: Apache-2.0
 * What goes number by number. As in ops/ref: a NaN stays one, and the derivative of ReLU at 0 is 0. */
KERNEL(ITEMS) relu_forward(GLOBAL const float *x, GLOBAL float *y, int count) {
    if (AT < count) y[AT] = x[AT] <= 0 ? 0 : x[AT];
}

/* By what the ReLU took, or gave: that says the same. dx may be dy. */
KERNEL(ITEMS) relu_backward(GLOBAL const float *x, GLOBAL const float *dy, GLOBAL float *dx, int count) {
    if (AT < count) dx[AT] = x[AT] <= 0 ? 0 : dy[AT];
}

KERNEL(ITEMS) tanh_forward(GLOBAL const float *x, GLOBAL float *y, int count) {
    if (AT < count) y[AT] = tanh(x[AT]);
}

KERNEL(ITEMS) tanh_backward(GLOBAL const float *y, GLOBAL const float *dy, GLOBAL float *dx, int count) {
    if (AT < count) dx[AT] = dy[AT] * (1 - y[AT] * y[AT]);
}

/* y = a + b; y may be a. */
KERNEL(ITEMS) add(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *y, int count) {
    if (AT < count) y[AT] = a[AT] + b[AT];
}

KERNEL(ITEMS) add_relu(GLOBAL const float *a, GLOBAL const float *b, GLOBAL float *y, int count) {
    if (AT < count) y[AT] = rectified(a[AT] + b[AT], 1);
}

/* Dropout, forward and backward: factors are 0 or 1 / (1 - p). */
KERNEL(ITEMS) multiply(GLOBAL const float *x, GLOBAL const float *factor, GLOBAL float *y, int count) {
    if (AT < count) y[AT] = x[AT] * factor[AT];
}
