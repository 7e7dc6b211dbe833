/* SPDX-License-Identifier: Apache-2.0
 * Text into a buffer of known size: prints what fits, counts what is needed, as the ech_..._text calls promise; and what
 * messages about words need. */
#ifndef ECHI_PRINT_H
#define ECHI_PRINT_H
#include <stddef.h>

/* Begin with {buf, cap, 0}. `len` grows by the full length of what was printed, also beyond `cap`. */
struct echi_print { char *buf; size_t cap, len; };
void echi_print(struct echi_print *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Foreign bytes made fit for a message: what is not printable ASCII becomes '?', and what is longer than `cap` - 1 is cut
 * with "..." at the end. cap at least 4. Returns `out`. */
const char *echi_printable(char *out, size_t cap, const char *bytes, size_t len);
/* The same for a path, of which the end says most: cut at the beginning. */
const char *echi_printable_path(char *out, size_t cap, const char *path);

/* The known word that was probably meant by one that is none of them; NULL when none is near. */
const char *echi_nearest(const char *word, size_t len, const char *const *known, size_t count);
#endif
