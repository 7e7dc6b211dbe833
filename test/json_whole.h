/* SPDX-License-Identifier: Apache-2.0
 * Is this text one value of JSON, and nothing behind it? By the grammar of RFC 8259, for what programs write. */
#ifndef TEST_JSON_WHOLE_H
#define TEST_JSON_WHOLE_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Each takes what it is about from *at on, and is false where that is not there. The text ends with a NUL. */
static inline void json_space(const char **at) { *at += strspn(*at, " \t\n\r"); }

static inline bool json_string(const char **at) {
    if (*(*at)++ != '"') return false;
    for (; **at != '"'; ++*at) {
        if ((unsigned char)**at < 0x20) return false;
        if (**at != '\\') continue;
        ++*at;
        if (**at == 'u' && strspn(*at + 1, "0123456789abcdefABCDEF") >= 4) *at += 4;
        else if (!**at || !strchr("\"\\/bfnrt", **at)) return false;
    }
    ++*at;
    return true;
}

static inline bool json_digits(const char **at) {
    const size_t n = strspn(*at, "0123456789");
    *at += n;
    return n > 0;
}

static inline bool json_number(const char **at) {
    if (**at == '-') ++*at;
    if (**at == '0' ? (++*at, false) : !json_digits(at)) return false;
    if (**at == '.' && (++*at, !json_digits(at))) return false;
    if (**at != 'e' && **at != 'E') return true;
    ++*at;
    if (**at == '+' || **at == '-') ++*at;
    return json_digits(at);
}

static inline bool json_value(const char **at, int depth) {
    static const char *const word[] = {"true", "false", "null"};
    json_space(at);
    for (int i = 0; i < 3; i++)
        if (strncmp(*at, word[i], strlen(word[i])) == 0) return *at += strlen(word[i]), true;
    if (**at == '"') return json_string(at);
    if (**at != '{' && **at != '[') return json_number(at);
    const char end = **at == '{' ? '}' : ']';
    if (depth == 0) return false;
    ++*at;
    json_space(at);
    if (**at == end) return ++*at, true;
    for (;; ++*at) {
        json_space(at);
        if (end == '}' && (!json_string(at) || (json_space(at), *(*at)++ != ':'))) return false;
        if (!json_value(at, depth - 1)) return false;
        json_space(at);
        if (**at == end) return ++*at, true;
        if (**at != ',') return false;
    }
}

static inline bool json_whole(const char *text) {
    if (!json_value(&text, 16)) return false;
    json_space(&text);
    return !*text;
}
#endif
