/* SPDX-License-Identifier: Apache-2.0
 * Size arithmetic that cannot wrap unseen: each returns false when the result does not fit. */
#ifndef ECHI_CHECKED_H
#define ECHI_CHECKED_H
#include <stdbool.h>
#include <stddef.h>

static inline bool echi_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
static inline bool echi_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
#endif
