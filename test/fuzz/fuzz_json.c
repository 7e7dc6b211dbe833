/* SPDX-License-Identifier: Apache-2.0
 * The JSON reader beside a second one, written from the grammar: both must take and refuse the same texts and see the same
 * pieces in them; and what skips a value takes just those. The language is JSON (RFC 8259) that is not nested too deep and whose numbers
 * have at most 127 characters. */
#include "fuzz.h"

#include "echi_json_read.h"

#include <string.h>

enum { DEEPEST = ECHI_JSON_SKIPS, LONGEST = 127 };

struct pieces {
    uint64_t hash;
};
static void piece(struct pieces *p, char kind, uint64_t value) {
    p->hash = (p->hash ^ (uint64_t)kind) * 1099511628211u;
    p->hash = (p->hash ^ value ^ value >> 29) * 1099511628211u;
}
static void string_piece(struct pieces *p, const char *text, size_t len) {
    piece(p, 's', len);
    for (size_t i = 0; i < len && i < sizeof ((struct echi_json_string *)0)->text; i++) piece(p, 'c', (uint8_t)text[i]);
}

/* --- the library's, driven by what comes next --- */

static char next(const struct echi_json *j) {
    const uint8_t *at = j->at;
    while (at < j->end && strchr(" \t\r\n", *at) && *at) at++;
    return at < j->end ? (char)*at : 0;
}

/* A whole number that fits 64 bits as such, any other by its characters. */
static bool walk_number(struct echi_json *j, struct pieces *p) {
    struct echi_json whole = *j;
    struct echi_json_string s;
    uint64_t value;
    if (!echi_json_number(j, &s)) {
        FUZZ_CHECK(!echi_json_whole(&whole, &value) || s.len > LONGEST);
        return false;
    }
    FUZZ_CHECK(s.len == strlen(s.text));
    if (echi_json_whole(&whole, &value)) {
        FUZZ_CHECK(whole.at == j->at);
        piece(p, 'n', value);
    } else string_piece(p, s.text, s.len);
    return true;
}

static bool walk(struct echi_json *j, struct pieces *p, int depth) {
    struct echi_json_string s;
    FUZZ_CHECK(j->at >= j->begin && j->at <= j->end);
    switch (next(j)) {
    case '{':
        piece(p, '{', 0);
        echi_json_object(j);
        while (depth < DEEPEST && echi_json_member(j, &s)) {
            string_piece(p, s.text, s.len);
            if (!walk(j, p, depth + 1)) return false;
        }
        piece(p, '}', 0);
        return depth < DEEPEST && !j->wrong;
    case '[':
        piece(p, '[', 0);
        echi_json_array(j);
        while (depth < DEEPEST && echi_json_element(j))
            if (!walk(j, p, depth + 1)) return false;
        piece(p, ']', 0);
        return depth < DEEPEST && !j->wrong;
    case '"':
        if (!echi_json_string(j, &s)) return false;
        FUZZ_CHECK(s.len <= (size_t)(j->at - j->begin));
        string_piece(p, s.text, s.len);
        return true;
    case 'n':
        piece(p, 'w', 'n');
        return echi_json_null(j);
    case 't': case 'f':
        piece(p, 'w', (uint64_t)next(j));
        return echi_json_skip(j);
    default:
        return walk_number(j, p);
    }
}

/* --- the grammar --- */

struct text {
    const uint8_t *at, *end;
};
static int peek(const struct text *t) { return t->at < t->end ? *t->at : -1; }
static void space(struct text *t) {
    while (peek(t) == ' ' || peek(t) == '\t' || peek(t) == '\n' || peek(t) == '\r') t->at++;
}
static bool eat(struct text *t, int c) {
    space(t);
    if (peek(t) != c) return false;
    t->at++;
    return true;
}

static bool hex4(struct text *t, uint32_t *out) {
    static const char digits[] = "0123456789abcdefABCDEF";
    *out = 0;
    for (int i = 0; i < 4; i++, t->at++) {
        const char *found = peek(t) > 0 ? strchr(digits, peek(t)) : NULL;
        if (!found) return false;
        *out = *out * 16 + (uint32_t)(found - digits > 15 ? found - digits - 6 : found - digits);
    }
    return true;
}

/* UTF-8 of a code point; 0 for what has none. */
static size_t utf8(uint32_t c, char out[4]) {
    if (c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) return out[0] = (char)(0xC0 + c / 64), out[1] = (char)(0x80 + c % 64), 2;
    if (c >= 0xD800 && c <= 0xDFFF) return 0;
    if (c < 0x10000) return out[0] = (char)(0xE0 + c / 4096), out[1] = (char)(0x80 + c / 64 % 64), out[2] = (char)(0x80 + c % 64), 3;
    if (c > 0x10FFFF) return 0;
    out[0] = (char)(0xF0 + c / 262144), out[1] = (char)(0x80 + c / 4096 % 64);
    return out[2] = (char)(0x80 + c / 64 % 64), out[3] = (char)(0x80 + c % 64), 4;
}

/* The character at t, be it escaped, of one byte or of several: its UTF-8. A sequence is right when its code point, written
 * anew, gives the same bytes. */
static size_t character(struct text *t, char out[4]) {
    const int c = peek(t);
    uint32_t code, low;
    if (c < 0x20) return 0;
    t->at++;
    if (c == '\\') {
        static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
        const int e = peek(t);
        if (e < 1) return 0;
        t->at++;
        for (int i = 0; escapes[i]; i += 2)
            if (escapes[i] == e) return out[0] = escapes[i + 1], 1;
        if (e != 'u' || !hex4(t, &code)) return 0;
        if (code >= 0xD800 && code <= 0xDBFF && t->end - t->at >= 2 && t->at[0] == '\\' && t->at[1] == 'u') {
            t->at += 2;
            if (!hex4(t, &low) || low < 0xDC00 || low > 0xDFFF) return 0;
            code = 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
        }
        return utf8(code, out);
    }
    if (c < 0x80) return out[0] = (char)c, 1;
    const size_t n = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC0 || c >= 0xF8 || (size_t)(t->end - t->at) < n - 1) return 0;
    code = (uint32_t)c & (0xFFu >> (n + 1));
    for (size_t i = 1; i < n; i++) code = code * 64 + (t->at[i - 1] & 0x3Fu);
    if (utf8(code, out) != n || memcmp(out, t->at - 1, n) != 0) return 0;
    t->at += n - 1;
    return n;
}

static bool quoted(struct text *t, struct pieces *p) {
    static char all[FUZZ_INPUT_MAX];
    size_t len = 0;
    if (!eat(t, '"')) return false;
    while (peek(t) != '"') {
        char one[4];
        const size_t n = character(t, one);
        if (!n) return false;
        memcpy(all + len, one, n);
        len += n;
    }
    t->at++;
    string_piece(p, all, len);
    return true;
}

static size_t digits(struct text *t) {
    const uint8_t *first = t->at;
    while (peek(t) >= '0' && peek(t) <= '9') t->at++;
    return (size_t)(t->at - first);
}

static bool number(struct text *t, struct pieces *p) {
    const uint8_t *first = t->at;
    uint64_t value = 0;
    if (peek(t) == '-') t->at++;
    const int lead = peek(t);
    const size_t n = digits(t);
    if (n == 0 || (n > 1 && lead == '0')) return false;
    bool fits = *first != '-';
    for (const uint8_t *c = first; fits && c < t->at; c++) {
        const uint64_t digit = (uint64_t)(*c - '0');
        fits = value <= (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
    }
    if (peek(t) == '.') {
        t->at++;
        fits = false;
        if (digits(t) == 0) return false;
    }
    if (peek(t) == 'e' || peek(t) == 'E') {
        t->at++;
        fits = false;
        if (peek(t) == '+' || peek(t) == '-') t->at++;
        if (digits(t) == 0) return false;
    }
    if (t->at - first > LONGEST) return false;
    if (fits) piece(p, 'n', value);
    else string_piece(p, (const char *)first, (size_t)(t->at - first));
    return true;
}

static bool word(struct text *t, struct pieces *p) {
    static const char *const words[] = {"null", "true", "false"};
    for (int i = 0; i < 3; i++) {
        const size_t len = strlen(words[i]);
        if ((size_t)(t->end - t->at) < len || memcmp(t->at, words[i], len) != 0) continue;
        piece(p, 'w', (uint64_t)words[i][0]);
        t->at += len;
        return true;
    }
    return false;
}

static bool grammar(struct text *t, struct pieces *p, int depth) {
    space(t);
    const int open = peek(t), close = open == '{' ? '}' : ']';
    if (open == '"') return quoted(t, p);
    if (open == 'n' || open == 't' || open == 'f') return word(t, p);
    if (open != '{' && open != '[') return number(t, p);
    t->at++;
    piece(p, (char)open, 0);
    if (depth == DEEPEST) return false;
    if (!eat(t, close)) {
        do {
            if (open == '{' && (!quoted(t, p) || !eat(t, ':'))) return false;
            if (!grammar(t, p, depth + 1)) return false;
        } while (eat(t, ','));
        if (!eat(t, close)) return false;
    }
    piece(p, (char)close, 0);
    return true;
}

static bool one(const uint8_t *bytes, size_t len) {
    struct echi_json j;
    struct pieces ours = {1}, theirs = {1};
    struct text t = {bytes, bytes + len};
    echi_json_begin(&j, bytes, len);
    const bool taken = walk(&j, &ours, 0) && echi_json_end(&j);
    const bool right = grammar(&t, &theirs, 0) && (space(&t), t.at == t.end);
    FUZZ_CHECK(taken == right);
    FUZZ_CHECK(!taken || ours.hash == theirs.hash);
    FUZZ_CHECK(!taken || !j.wrong);
    struct echi_json skipped;
    echi_json_begin(&skipped, bytes, len);
    FUZZ_CHECK((echi_json_skip(&skipped) && echi_json_end(&skipped)) == right);
    if (j.wrong) { /* from then on nothing is right */
        struct echi_json_string s;
        uint64_t value;
        FUZZ_CHECK(!echi_json_object(&j) && !echi_json_array(&j) && !echi_json_member(&j, &s) && !echi_json_element(&j));
        FUZZ_CHECK(!echi_json_string(&j, &s) && !echi_json_whole(&j, &value) && !echi_json_number(&j, &s) && !echi_json_null(&j));
        FUZZ_CHECK(!echi_json_skip(&j) && !echi_json_end(&j));
    }
    return taken;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {
        "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},\"__metadata__\":{\"k\":\"v\"}}  ",
        "[ 0, 18446744073709551615 ,[],{} , \"\\u00e4\\ud83d\\ude00\\n\\\"\\\\\\/\\b\\f\\r\\t\" ]",
        "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80 a string that is longer than what is kept of one, so that its end is counted and no longer "
        "looked at, which wants more than one hundred and twenty-eight bytes of it\"",
        "[[[[[[[[[[{\"\":[]}]]]]]]]]]]",
        "[null, true,false , -0, -12.5e+3, 0.25, 1E-300, 18446744073709551616, {\"a\": null}]",
        NULL,
    };
    (void)good; /* all are */
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0000", "\\ud800", "\\udc00", "\\ud83d\\ude00", "18446744073709551615",
    "18446744073709551616", "-1", "1.5", "1e3", "0", "00", "[[[[[[[[", "]]]]]]]]", "{\"a\":", "\"a\"", "\"\"", "\xf0\x90\x80\x80",
    "\xed\xa0\x80", "\xc0\x80", "\xf4\x90\x80\x80", "null", "true", "false", ".5", "e+", "-", "\n", "\t", "", "\x1f", ",]", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_json = {.name = "json", .one = one, .seed = seed, .words = words, .most = 4096};
