/* SPDX-License-Identifier: Apache-2.0
 * What kernels of several files do to one number. */

/* Quotient of i >= 0; long has 64 bits in both languages. */
FUNCTION int divided(int i, struct echi_divisor by) { return (int)(((unsigned long)(unsigned)i * by.multiply) >> by.shift); }

/* What goes into memory in the place of a sum: behind a ReLU (a NaN stays one); and backward through one, whose output there is y. Where a
 * layer takes what a ReLU gave (of_relu), its gradient goes through that ReLU before it is written. */
FUNCTION float rectified(float sum, int relu) { return relu && sum <= 0 ? 0 : sum; }
FUNCTION float rectified_back(float sum, float y, int relu) { return relu && y <= 0 ? 0 : sum; }
