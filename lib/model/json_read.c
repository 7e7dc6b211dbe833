/* SPDX-License-Identifier: Apache-2.0
 * A strict reader of JSON. */
#include "echi_json_read.h"

#include <string.h>

static bool wrong(struct echi_json *j, const char *why) {
    if (!j->wrong) j->wrong = why;
    return false;
}

void echi_json_begin(struct echi_json *j, const void *bytes, size_t len) {
    *j = (struct echi_json){.begin = bytes, .at = bytes, .end = (const uint8_t *)bytes + len};
}

static void skip_space(struct echi_json *j) {
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r')) j->at++;
}

/* Takes `c` if it is next. */
static bool take(struct echi_json *j, char c) {
    if (j->wrong) return false;
    skip_space(j);
    if (j->at == j->end || *j->at != (uint8_t)c) return false;
    j->at++;
    return true;
}

bool echi_json_object(struct echi_json *j) {
    if (!take(j, '{')) return wrong(j, "an object '{' is missing");
    return j->fresh = true;
}

bool echi_json_array(struct echi_json *j) {
    if (!take(j, '[')) return wrong(j, "an array '[' is missing");
    return j->fresh = true;
}

/* True when the open object or array has another piece. */
static bool another(struct echi_json *j, char close, const char *why) {
    if (j->wrong) return false;
    const bool first = j->fresh;
    j->fresh = false;
    if (take(j, close)) return false;
    return first || take(j, ',') || wrong(j, why);
}

bool echi_json_element(struct echi_json *j) { return another(j, ']', "',' or ']' is missing"); }

bool echi_json_member(struct echi_json *j, struct echi_json_string *out_key) {
    if (!another(j, '}', "',' or '}' is missing") || !echi_json_string(j, out_key)) return false;
    return take(j, ':') || wrong(j, "':' is missing");
}

bool echi_json_whole(struct echi_json *j, uint64_t *out) {
    if (j->wrong) return false;
    skip_space(j);
    const uint8_t *first = j->at;
    uint64_t value = 0;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++) {
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, (uint64_t)(*j->at - '0'), &value))
            return wrong(j, "a number is too large");
    }
    if (j->at == first) return wrong(j, "a whole number, 0 or more, is missing");
    if (*first == '0' && j->at - first > 1) return wrong(j, "a number begins with 0");
    if (j->at < j->end && (*j->at == '.' || *j->at == 'e' || *j->at == 'E')) return wrong(j, "a number is not whole");
    *out = value;
    return true;
}

static void keep(struct echi_json_string *s, uint8_t byte) {
    if (s->len < sizeof s->text) s->text[s->len] = (char)byte;
    s->len++;
}

static void keep_utf8(struct echi_json_string *s, uint32_t c) {
    if (c < 0x80) {
        keep(s, (uint8_t)c);
        return;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    keep(s, (uint8_t)(lead[more] | c >> 6 * more));
    for (int i = more - 1; i >= 0; i--) keep(s, (uint8_t)(0x80 | (c >> 6 * i & 0x3f)));
}

/* One character of more than one byte, as it stands in the text: refuses overlong forms, surrogates and what is above
 * U+10FFFF. */
static bool copy_utf8(struct echi_json *j, struct echi_json_string *s) {
    const uint8_t lead = *j->at;
    const int more = lead >= 0xc2 && lead < 0xe0 ? 1 : lead >= 0xe0 && lead < 0xf0 ? 2 : lead >= 0xf0 && lead < 0xf5 ? 3 : 0;
    if (!more || j->end - j->at <= more) return wrong(j, "a string is not UTF-8");
    uint32_t c = lead & (0x3fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((j->at[i] & 0xc0) != 0x80) return wrong(j, "a string is not UTF-8");
        c = c << 6 | (j->at[i] & 0x3fu);
    }
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (c < least[more] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff) return wrong(j, "a string is not UTF-8");
    j->at += more + 1;
    keep_utf8(s, c);
    return true;
}

static bool read_hex4(struct echi_json *j, uint32_t *out) {
    if (j->end - j->at < 4) return wrong(j, "a string does not end");
    *out = 0;
    for (int i = 0; i < 4; i++) {
        const uint8_t c = *j->at++;
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0) return wrong(j, "'\\u' needs four hexadecimal digits");
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

/* What follows "\u": four digits, or two times four for a character above U+FFFF. */
static bool read_unicode_escape(struct echi_json *j, struct echi_json_string *s) {
    uint32_t c, low;
    if (!read_hex4(j, &c)) return false;
    if (c >= 0xd800 && c < 0xe000) {
        if (c >= 0xdc00 || j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u') return wrong(j, "half of a surrogate pair");
        j->at += 2;
        if (!read_hex4(j, &low)) return false;
        if (low < 0xdc00 || low >= 0xe000) return wrong(j, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    keep_utf8(s, c);
    return true;
}

static bool read_escape(struct echi_json *j, struct echi_json_string *s) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    j->at++;
    if (j->at == j->end) return wrong(j, "a string does not end");
    const uint8_t c = *j->at++;
    if (c == 'u') return read_unicode_escape(j, s);
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) return wrong(j, "an escape that JSON does not know");
    keep(s, (uint8_t)to[found - from]);
    return true;
}

bool echi_json_string(struct echi_json *j, struct echi_json_string *out) {
    if (!take(j, '"')) return wrong(j, "a string is missing");
    out->len = 0;
    while (j->at < j->end) {
        const uint8_t c = *j->at;
        if (c == '"') {
            j->at++;
            return true;
        }
        if (c < 0x20) return wrong(j, "a control character in a string");
        if (c == '\\') {
            if (!read_escape(j, out)) return false;
        } else if (c >= 0x80) {
            if (!copy_utf8(j, out)) return false;
        } else {
            keep(out, c);
            j->at++;
        }
    }
    return wrong(j, "a string does not end");
}

/* Digits, one at least, of a number. */
static bool keep_digits(struct echi_json *j, struct echi_json_string *s) {
    const size_t before = s->len;
    for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++) keep(s, *j->at);
    return s->len > before || wrong(j, "a number lacks a digit");
}

/* One of these characters, if it is next. */
static bool keep_one_of(struct echi_json *j, struct echi_json_string *s, const char *which) {
    if (j->at == j->end || !*j->at || !strchr(which, *j->at)) return false;
    keep(s, *j->at++);
    return true;
}

bool echi_json_number(struct echi_json *j, struct echi_json_string *out) {
    if (j->wrong) return false;
    skip_space(j);
    out->len = 0;
    if (!keep_one_of(j, out, "-") && (j->at == j->end || *j->at < '0' || *j->at > '9')) return wrong(j, "a number is missing");
    const uint8_t *first = j->at;
    if (!keep_digits(j, out)) return false;
    if (*first == '0' && j->at - first > 1) return wrong(j, "a number begins with 0");
    if (keep_one_of(j, out, ".") && !keep_digits(j, out)) return false;
    if (keep_one_of(j, out, "eE")) {
        keep_one_of(j, out, "+-");
        if (!keep_digits(j, out)) return false;
    }
    if (out->len >= sizeof out->text) return wrong(j, "a number has more than 127 characters");
    out->text[out->len] = 0;
    return true;
}

/* Takes a word if it is next. */
static bool take_word(struct echi_json *j, const char *word) {
    const size_t len = strlen(word);
    if (j->wrong) return false;
    skip_space(j);
    if ((size_t)(j->end - j->at) < len || memcmp(j->at, word, len) != 0) return false;
    j->at += len;
    return true;
}

bool echi_json_null(struct echi_json *j) { return take_word(j, "null"); }

static bool skip(struct echi_json *j, int depth) {
    struct echi_json_string s;
    skip_space(j);
    const char next = j->at < j->end ? (char)*j->at : 0;
    if ((next == '{' || next == '[') && depth == ECHI_JSON_SKIPS) return wrong(j, "objects and arrays are in each other too deep");
    if (next == '{') {
        for (echi_json_object(j); echi_json_member(j, &s);) skip(j, depth + 1);
    } else if (next == '[') {
        for (echi_json_array(j); echi_json_element(j);) skip(j, depth + 1);
    } else if (next == '"') echi_json_string(j, &s);
    else if (next == '-' || (next >= '0' && next <= '9')) echi_json_number(j, &s);
    else if (!take_word(j, "true") && !take_word(j, "false") && !echi_json_null(j)) return wrong(j, "a value is missing");
    return !j->wrong;
}

bool echi_json_skip(struct echi_json *j) { return skip(j, 0); }

bool echi_json_end(struct echi_json *j) {
    if (j->wrong) return false;
    skip_space(j);
    return j->at == j->end || wrong(j, "more follows after its end");
}

bool echi_json_equal(const struct echi_json_string *s, const char *text) {
    return s->len <= sizeof s->text && s->len == strlen(text) && !memcmp(s->text, text, s->len);
}
