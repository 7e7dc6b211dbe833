/* SPDX-License-Identifier: Apache-2.0
 * Numbers as text are written and read with a point, whatever locale the host program has chosen. */
#ifndef ECHI_NUMBER_H
#define ECHI_NUMBER_H
#include <locale.h>
#include <stdbool.h>

/* From begin to end the calling thread prints and reads numbers as C does; other threads are not touched. When there is no
 * memory for it nothing changes. */
struct echi_point { locale_t c, before; };
void echi_point_begin(struct echi_point *point);
void echi_point_end(struct echi_point *point);

/* The whole of `text` as a finite decimal number, or false. */
bool echi_parse_real(const char *text, double *out);
/* Such numbers with commas between them, at most `most`. Returns how many there are, 0 when `text` is no such list. */
int echi_parse_reals(const char *text, double *out, int most);
#endif
