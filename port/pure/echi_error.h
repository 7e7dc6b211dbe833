/* SPDX-License-Identifier: Apache-2.0
 * How the library itself fills a struct ech_error. */
#ifndef ECHI_ERROR_H
#define ECHI_ERROR_H
#include "ech_status.h"

/* Fills *err (when not NULL) and returns `code`, so that a function can end with `return echi_fail(...)`.
 * `fmt` is printf's; the text is cut at the size of the field, and control characters in it become '?'. */
ech_status echi_fail(struct ech_error *err, ech_status code, const char *operation, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same, naming the rank or the layer concerned (peer -1 and layer NULL mean none). */
ech_status echi_fail_at(struct ech_error *err, ech_status code, const char *operation, int peer, const char *layer,
                        const char *fmt, ...) __attribute__((format(printf, 6, 7)));
/* Out of memory for `what`. */
ech_status echi_fail_memory(struct ech_error *err, const char *operation, const char *what);

/* Foreign bytes that are quoted end on terminals: control characters become '?', those of ASCII and U+0080 to U+009F in UTF-8. Other
 * bytes stay, for a path may be written in any script. */
void echi_clean(char *text);

/* Return at once when a call fails; the callee has filled the error. */
#define ECHI_TRY(call)                                                                                                  \
    do {                                                                                                                \
        ech_status echi_try_ = (call);                                                                                  \
        if (echi_try_ != ECH_OK) return echi_try_;                                                                      \
    } while (0)
/* Jump to the one exit label of the function; `status` must be a variable of type ech_status in scope. */
#define ECHI_TRY_GOTO(call, label)                                                                                      \
    do {                                                                                                                \
        status = (call);                                                                                                \
        if (status != ECH_OK) goto label;                                                                               \
    } while (0)
#endif
