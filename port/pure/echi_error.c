/* SPDX-License-Identifier: Apache-2.0 */
#include "echi_error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

const char *ech_status_name(ech_status status) {
    switch (status) {
#define NAME(name, number, text, retry, remake)                                                                         \
    case name: return #name;
        ECH_STATUS_LIST(NAME)
#undef NAME
    }
    return "ECH_E_UNKNOWN";
}

const char *ech_status_text(ech_status status) {
    switch (status) {
#define TEXT(name, number, text, retry, remake)                                                                         \
    case name: return text;
        ECH_STATUS_LIST(TEXT)
#undef TEXT
    }
    return "this number is no status of Echelon";
}

int ech_status_may_retry(ech_status status) {
    switch (status) {
#define RETRY(name, number, text, retry, remake)                                                                        \
    case name: return retry;
        ECH_STATUS_LIST(RETRY)
#undef RETRY
    }
    return 0;
}

void echi_clean(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        const bool c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f;
        if (*c < ' ' || *c == 0x7f || c1) *c = '?';
        if (c1) *++c = '?';
    }
}

static ech_status fill(struct ech_error *err, ech_status code, const char *operation, int peer, const char *layer,
                       const char *fmt, va_list args) {
    if (!err) return code;
    err->code = code;
    err->peer = peer;
    snprintf(err->operation, sizeof err->operation, "%s", operation);
    snprintf(err->layer, sizeof err->layer, "%s", layer ? layer : "");
    vsnprintf(err->text, sizeof err->text, fmt, args);
    echi_clean(err->text);
    return code;
}

ech_status echi_fail(struct ech_error *err, ech_status code, const char *operation, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fill(err, code, operation, -1, NULL, fmt, args);
    va_end(args);
    return code;
}

ech_status echi_fail_at(struct ech_error *err, ech_status code, const char *operation, int peer, const char *layer,
                        const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fill(err, code, operation, peer, layer, fmt, args);
    va_end(args);
    return code;
}

ech_status echi_fail_memory(struct ech_error *err, const char *operation, const char *what) {
    return echi_fail(err, ECH_E_MEMORY, operation, "out of memory for %s: close other programs or use a smaller batch",
                     what);
}
