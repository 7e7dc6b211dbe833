/* SPDX-License-Identifier: Apache-2.0
 * A strict reader of JSON (RFC 8259) from foreign bytes: pulls one piece after the other, builds no tree, allocates nothing.
 *
 * Once something is wrong every call returns false and `wrong` says what, `at` where. So a loop needs no checks inside:
 *     for (echi_json_object(&j); echi_json_member(&j, &key);) ...
 *     if (j.wrong) ... */
#ifndef ECHI_JSON_READ_H
#define ECHI_JSON_READ_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct echi_json {
    const uint8_t *begin, *at, *end;
    bool fresh;          /* an object or array was just opened: no comma before its next piece */
    const char *wrong;   /* NULL while all is well */
};
/* A string in UTF-8. `len` is its full length; of a longer one only the first sizeof text bytes are kept. */
struct echi_json_string { char text[128]; size_t len; };

void echi_json_begin(struct echi_json *j, const void *bytes, size_t len);
/* The value that comes next must be of the kind the name says. */
bool echi_json_object(struct echi_json *j);
bool echi_json_array(struct echi_json *j);
bool echi_json_string(struct echi_json *j, struct echi_json_string *out);
bool echi_json_whole(struct echi_json *j, uint64_t *out);   /* 0 .. 2^64 - 1: no sign, fraction or exponent */
/* Any number, as it is written, with a NUL behind it: of at most sizeof text - 1 characters. */
bool echi_json_number(struct echi_json *j, struct echi_json_string *out);
/* Any value, which is read and forgotten: objects and arrays in each other at most so deep. */
#define ECHI_JSON_SKIPS 32
bool echi_json_skip(struct echi_json *j);
/* Takes `null` if that comes next; nothing is wrong if it does not. */
bool echi_json_null(struct echi_json *j);
/* The next member of the open object (its key; the value comes next) or element of the open array; false at its end, which
 * is then behind us. */
bool echi_json_member(struct echi_json *j, struct echi_json_string *out_key);
bool echi_json_element(struct echi_json *j);
/* Nothing but space may follow. */
bool echi_json_end(struct echi_json *j);
bool echi_json_equal(const struct echi_json_string *s, const char *text);
#endif
