/* SPDX-License-Identifier: Apache-2.0
 * e^x and ln x without libm: the same bits on every machine. exp.c */
#ifndef ECHI_EXP_H
#define ECHI_EXP_H

double echi_exp(double x);   /* x <= 0 */
double echi_log(double x);   /* x in (0, 1] */
#endif
