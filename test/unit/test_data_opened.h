/* SPDX-License-Identifier: Apache-2.0
 * A folder with data, `folder` where the file is included, opened: as it should be, or with what is told of it. */
#ifndef TEST_DATA_OPENED_H
#define TEST_DATA_OPENED_H
#include "echelon.h"

static ech_data *open_good(const char *dir) {
    ech_data *data = NULL;
    struct ech_error err = {0};
    if (ech_data_open(dir, 1, &data, &err) != ECH_OK) fail_msg("%s", err.text);
    return data;
}

/* Opening must fail with this status and a sentence that has these words and tells what to do. */
static void expect_fail(const char *dir, ech_status want, const char *const *words) {
    ech_data *data = NULL;
    struct ech_error err = {0};
    assert_int_equal(ech_data_open(dir, 1, &data, &err), want);
    assert_null(data);
    assert_int_equal(err.code, want);
    for (; *words; words++)
        if (!strstr(err.text, *words)) fail_msg("'%s' does not say '%s'", err.text, *words);
    assert_true(strlen(err.text) < sizeof err.text - 1);   /* not cut */
    assert_int_equal(ech_data_open(dir, 1, &data, NULL), want);
}
#define EXPECT_FAIL(status, ...) expect_fail(folder, status, (const char *const[]){__VA_ARGS__, NULL})
#endif
