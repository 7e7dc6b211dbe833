/* SPDX-License-Identifier: Apache-2.0
 * JSON into a buffer. */
#include "echi_json_write.h"

#include <math.h>

/* The bytes of one UTF-8 character at `at` (its sequence whole, shortest and no surrogate), or 0. */
static int utf8(const unsigned char *at) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (at[0] < 0x80) return 1;
    int n = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4) return 0;
    uint32_t code = at[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {   /* a NUL is no continuation, so this stays inside the string */
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    return code >= least[n] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

/* So many bytes from here on are written as they are. */
static int plain(const unsigned char *at) {
    int all = 0;
    for (int n = 1; n > 0 && all < 1024 && at[all] >= 0x20; all += n)
        n = at[all] == '"' || at[all] == '\\' || at[all] == 0x7f ? 0 : utf8(at + all);
    return all;
}

/* A path may hold any bytes; JSON may not. */
static void add_string(struct echi_print *t, const char *string) {
    echi_print(t, "\"");
    for (const unsigned char *at = (const unsigned char *)string; *at;) {
        const int n = plain(at);
        if (n > 0) echi_print(t, "%.*s", n, (const char *)at);
        else if (*at == '"' || *at == '\\') echi_print(t, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f) echi_print(t, "\\u%04x", *at);
        else echi_print(t, "\\ufffd");
        at += n > 0 ? n : 1;
    }
    echi_print(t, "\"");
}

static void next(struct echi_json_put *j, const char *name) {
    const int inside = j->depth - 1;
    if (j->some[inside]) echi_print(&j->text, ",");
    if (inside == 0) echi_print(&j->text, "\n  ");
    else if (j->some[inside]) echi_print(&j->text, " ");
    j->some[inside] = true;
    if (!name) return;
    add_string(&j->text, name);
    echi_print(&j->text, ": ");
}

static void begin(struct echi_json_put *j, char first, char end) {
    echi_print(&j->text, "%c", first);
    j->some[j->depth] = false;
    j->end[j->depth++] = end;
}

void echi_json_put_begin(struct echi_json_put *j, char *buf, size_t cap) {
    *j = (struct echi_json_put){.text = {.buf = buf, .cap = buf ? cap : 0}};
    if (buf && cap) buf[0] = 0;
    echi_point_begin(&j->point);
    begin(j, '{', '}');
}

size_t echi_json_put_end(struct echi_json_put *j) {
    echi_print(&j->text, "\n}\n");
    echi_point_end(&j->point);
    return j->text.len;
}

void echi_json_put_object(struct echi_json_put *j, const char *name) {
    next(j, name);
    begin(j, '{', '}');
}

void echi_json_put_list(struct echi_json_put *j, const char *name) {
    next(j, name);
    begin(j, '[', ']');
}

void echi_json_put_close(struct echi_json_put *j) { echi_print(&j->text, "%c", j->end[--j->depth]); }

void echi_json_put_text(struct echi_json_put *j, const char *name, const char *value) {
    next(j, name);
    add_string(&j->text, value);
}

void echi_json_put_whole(struct echi_json_put *j, const char *name, uint64_t value) {
    next(j, name);
    echi_print(&j->text, "%llu", (unsigned long long)value);
}

void echi_json_put_integer(struct echi_json_put *j, const char *name, int64_t value) {
    next(j, name);
    echi_print(&j->text, "%lld", (long long)value);
}

void echi_json_put_thousandths(struct echi_json_put *j, const char *name, int64_t value) {
    const uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    next(j, name);
    echi_print(&j->text, "%s%llu.%03u", value < 0 ? "-" : "", (unsigned long long)(size / 1000), (unsigned)(size % 1000));
}

void echi_json_put_real(struct echi_json_put *j, const char *name, double value) {
    next(j, name);
    if (isfinite(value)) echi_print(&j->text, "%.10g", value);
    else echi_print(&j->text, "null");
}

void echi_json_put_optional(struct echi_json_put *j, const char *name, double value) {
    echi_json_put_real(j, name, value < 0 ? (double)NAN : value);
}

void echi_json_put_bool(struct echi_json_put *j, const char *name, bool value) {
    next(j, name);
    echi_print(&j->text, value ? "true" : "false");
}
