/* SPDX-License-Identifier: Apache-2.0
 * A point is a point: numbers as text without the program's locale. */
#include "echi_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void echi_point_begin(struct echi_point *p) {
    p->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    p->before = p->c ? uselocale(p->c) : (locale_t)0;
}

void echi_point_end(struct echi_point *p) {
    if (!p->c) return;
    uselocale(p->before);
    freelocale(p->c);
}

bool echi_parse_real(const char *text, double *out) {
    if (!*text || text[strspn(text, "0123456789.eE+-")]) return false;
    struct echi_point point;
    char *end;
    echi_point_begin(&point);
    const double value = strtod(text, &end);
    echi_point_end(&point);
    if (*end || !isfinite(value)) return false;
    *out = value;
    return true;
}

int echi_parse_reals(const char *text, double *out, int most) {
    char word[64];
    for (int n = 0; n < most; text++) {
        const size_t len = strcspn(text, ",");
        if (len >= sizeof word) return 0;
        memcpy(word, text, len);
        word[len] = 0;
        if (!echi_parse_real(word, &out[n++])) return 0;
        text += len;
        if (!*text) return n;
    }
    return 0;
}
