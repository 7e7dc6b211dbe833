/* SPDX-License-Identifier: Apache-2.0
 * The number type of parameters, gradients and rows. In the library it is float. `make DOUBLE=1` builds an archive in which
 * it is double, on the reference operations: there sums in another order differ by 1e-15 and not by 1e-7, so a test can
 * tell a wrong sum from a rounded one (test/cluster/test_exact.c). Files, data sets and echelon.h keep float. */
#ifndef ECHI_REAL_H
#define ECHI_REAL_H
#include <float.h>

#ifdef ECHI_DOUBLE
typedef double echi_real;
#define ECHI_REAL_LEAST DBL_MIN   /* of the normal numbers above 0 */
#else
typedef float echi_real;
#define ECHI_REAL_LEAST FLT_MIN
#endif

/* A velocity as it is kept. One that no gradient feeds shrinks by the momentum until rounding holds it below the normal numbers (0.9 x 4
 * of their smallest steps is 4 again), and there each operation on it takes a processor some hundred times as long: so it is 0 there. */
static inline echi_real echi_velocity(echi_real v) { return v < ECHI_REAL_LEAST && v > -ECHI_REAL_LEAST ? 0 : v; }
#endif
