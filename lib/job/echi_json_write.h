/* SPDX-License-Identifier: Apache-2.0
 * JSON (RFC 8259) into a buffer, as reports are written: a key a line in the outermost object, what is inside of it on the key's line. */
#ifndef ECHI_JSON_WRITE_H
#define ECHI_JSON_WRITE_H
#include "echi_number.h"
#include "echi_print.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECHI_JSON_DEPTH 8
struct echi_json_put {
    struct echi_print text;           /* its len is what all of it needs */
    struct echi_point point;          /* numbers have a point in every locale */
    int depth;                        /* objects and lists that are open */
    bool some[ECHI_JSON_DEPTH];       /* something stands in them already */
    char end[ECHI_JSON_DEPTH];        /* what closes them */
};

/* Begins an object; a buf of NULL only counts. Between begin and end the thread's locale is changed: nothing else may be done. */
void echi_json_put_begin(struct echi_json_put *j, char *buf, size_t cap);
size_t echi_json_put_end(struct echi_json_put *j);   /* the length without the NUL */
/* In an object each value has a name; in a list the name is NULL. */
void echi_json_put_object(struct echi_json_put *j, const char *name);
void echi_json_put_list(struct echi_json_put *j, const char *name);
void echi_json_put_close(struct echi_json_put *j);   /* the innermost object or list */
void echi_json_put_text(struct echi_json_put *j, const char *name, const char *value);       /* what is not UTF-8 becomes U+FFFD */
void echi_json_put_whole(struct echi_json_put *j, const char *name, uint64_t value);
void echi_json_put_integer(struct echi_json_put *j, const char *name, int64_t value);
void echi_json_put_thousandths(struct echi_json_put *j, const char *name, int64_t value);   /* exactly: 1234 as 1.234 */
void echi_json_put_real(struct echi_json_put *j, const char *name, double value);       /* infinities and NaN, unknown to JSON: null */
void echi_json_put_optional(struct echi_json_put *j, const char *name, double value);   /* a negative number says "there is none": null */
void echi_json_put_bool(struct echi_json_put *j, const char *name, bool value);
#endif
