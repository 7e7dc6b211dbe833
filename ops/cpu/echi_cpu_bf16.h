/* SPDX-License-Identifier: Apache-2.0
 * bf16_x86.c: what cpu_matrix.c is made of when numbers are rounded to bf16. Only where echi_cpu_bf16() says so. */
#ifndef ECHI_CPU_BF16_H
#define ECHI_CPU_BF16_H
#include "echi_cpu_kernels.h"

#if defined(__x86_64__)
enum { ECHI_CPU_BF16_PANEL = 32, ECHI_CPU_BF16_STEPS = 32 };   /* lines of a panel, either side; the depth is filled up to whole steps */
void echi_cpu_bf16_pack_rows(const struct echi_cpu_lines *lines, void *to);
void echi_cpu_bf16_pack_columns(const struct echi_cpu_lines *lines, void *to);
void echi_cpu_bf16_panel_amx(const struct echi_cpu_panel *p);   /* between begin and end, on their thread */
void echi_cpu_bf16_panel_dot(const struct echi_cpu_panel *p);
void echi_cpu_amx_begin(void);
void echi_cpu_amx_end(void);
void echi_cpu_to_rows_avx512(const float *vectors, ptrdiff_t vector, int lanes, int columns, float *rows, ptrdiff_t row);
#endif
#endif
