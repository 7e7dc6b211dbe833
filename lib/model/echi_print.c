/* SPDX-License-Identifier: Apache-2.0
 * Text into a buffer of known size. */
#include "echi_print.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void echi_print(struct echi_print *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    size_t room = p->len < p->cap ? p->cap - p->len : 0;
    int n = vsnprintf(room ? p->buf + p->len : NULL, room, fmt, args);
    va_end(args);
    if (n > 0) p->len += (size_t)n;
}

const char *echi_printable(char *out, size_t cap, const char *bytes, size_t len) {
    size_t shown = len < cap ? len : cap - 1;
    for (size_t i = 0; i < shown; i++) out[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    out[shown] = 0;
    if (shown < len) memcpy(out + shown - 3, "...", 3);
    return out;
}

const char *echi_printable_path(char *out, size_t cap, const char *path) {
    size_t len = strlen(path), skip = len < cap ? 0 : len - (cap - 1);
    echi_printable(out, cap, path + skip, len - skip);
    if (skip) memcpy(out, "...", 3);
    return out;
}
