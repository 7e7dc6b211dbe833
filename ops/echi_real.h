/* SPDX-License-Identifier: Apache-2.0
 * The number type of parameters, gradients and rows. In the library it is float. `make DOUBLE=1` builds an archive in which
 * it is double, on the reference operations: there sums in another order differ by 1e-15 and not by 1e-7, so a test can
 * tell a wrong sum from a rounded one (test/cluster/test_exact.c). Files, data sets and echelon.h keep float. */
#ifndef ECHI_REAL_H
#define ECHI_REAL_H
#ifdef ECHI_DOUBLE
typedef double echi_real;
#else
typedef float echi_real;
#endif
#endif
