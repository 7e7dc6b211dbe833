/* SPDX-License-Identifier: Apache-2.0
 * What the tests of text files share: bytes written to a file, and a locale whose numbers have a comma. */
#ifndef TEXT_FILES_H
#define TEXT_FILES_H
#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static inline void write_bytes(const char *path, const char *bytes, size_t len) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* From here on the program's locale writes 1.5 as 1,5. Skips the test where the machine has no such locale. */
static inline void use_comma_locale(void) {
    static const char *const comma[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "nl_NL.UTF-8"};
    size_t i = 0, n = sizeof comma / sizeof comma[0];
    while (i < n && !setlocale(LC_ALL, comma[i])) i++;
    if (i == n) skip();
}
#endif
