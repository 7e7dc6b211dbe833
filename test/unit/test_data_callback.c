/* SPDX-License-Identifier: Apache-2.0
 * The user's own samples: read as given, checked, and agreed on by hash. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echi_data.h"

#include <string.h>

enum { C = 2, H = 3, W = 2, SIZE = C * H * W };
struct user { int calls, stop_at; float add; uint32_t odd; uint16_t odd_label; };

/* Value k of sample i is 100 i + k (negative in the test set), its label i mod 3, except for sample `odd`. */
static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    struct user *u = user;
    if (++u->calls == u->stop_at) return 7;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < SIZE; k++) rows[i * SIZE + k] = (test ? -1.0f : 1.0f) * ((float)(100 * index[i]) + (float)k);
        labels[i] = (uint16_t)(index[i] % 3);
        if (index[i] == u->odd) {
            rows[i * SIZE + SIZE - 1] += u->add;
            labels[i] = u->odd_label;
        }
    }
    return 0;
}

static struct user plain(void) { return (struct user){.odd = UINT32_MAX}; }
static struct ech_data_callback callback_of(struct user *u) {
    return (struct ech_data_callback){.channels = C, .height = H, .width = W, .classes = 3, .train_samples = 1000, .test_samples = 10,
                                      .read = read_samples, .user = u, .name = "mine"};
}
static void hash_of(const struct ech_data_callback *c, char out[65]) {
    ech_data *data;
    struct ech_error err = {0};
    if (ech_data_from_callback(c, &data, &err) != ECH_OK) fail_msg("%s", err.text);
    memcpy(out, data->hash, 65);
    ech_data_destroy(data);
}

static void samples_come_as_given(void **state) {
    (void)state;
    struct user u = plain();
    struct ech_data_callback c = callback_of(&u);
    ech_data *data;
    assert_int_equal(ech_data_from_callback(&c, &data, NULL), ECH_OK);
    assert_int_equal(u.calls, 64 + 10);
    memset(&c, 0, sizeof c);   /* the description is not needed any more */
    int ch, h, w, classes;
    ech_data_shape(data, &ch, &h, &w, &classes);
    assert_true(ch == C && h == H && w == W && classes == 3);
    assert_int_equal(ech_data_samples(data, 0), 1000);
    assert_int_equal(ech_data_samples(data, 1), 10);
    assert_string_equal(data->name, "mine");
    const uint32_t index[2] = {9, 4};
    float rows[2 * SIZE];
    uint16_t labels[2];
    assert_int_equal(ech_data_get(data, 1, index, 2, rows, labels, NULL), ECH_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(labels[i], index[i] % 3);
        for (int k = 0; k < SIZE; k++) assert_true(rows[i * SIZE + k] == -(float)(100 * (int)index[i] + k));
    }
    assert_int_equal(ech_data_get(data, 1, index, 0, NULL, NULL, NULL), ECH_OK);
    struct ech_error err = {0};
    const uint32_t beyond = 1000;
    assert_int_equal(ech_data_get(data, 0, &beyond, 1, rows, labels, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "sample 1000"));
    u.stop_at = u.calls + 1;
    assert_int_equal(ech_data_get(data, 0, index, 2, rows, labels, &err), ECH_E_ABORTED);
    assert_non_null(strstr(err.text, "returned 7 for 2 training samples from number 9"));
    u.odd = 4;
    u.odd_label = 3;
    assert_int_equal(ech_data_get(data, 1, index, 2, rows, labels, &err), ECH_E_FORMAT);
    assert_non_null(strstr(err.text, "label 3 for test sample 4"));
    ech_data_destroy(data);
}

static void the_hash_tells_data_sets_apart(void **state) {
    (void)state;
    char first[65], other[65];
    struct user u = plain();
    struct ech_data_callback c = callback_of(&u);
    hash_of(&c, first);
    hash_of(&c, other);
    assert_string_equal(first, other);
#define DIFFERS(change)                                                                                                  \
    do {                                                                                                                 \
        u = plain();                                                                                                     \
        c = callback_of(&u);                                                                                             \
        change;                                                                                                          \
        hash_of(&c, other);                                                                                              \
        assert_string_not_equal(first, other);                                                                           \
    } while (0)
    DIFFERS(c.name = "mina");
    DIFFERS(c.train_samples = 999);
    DIFFERS(c.test_samples = 0);
    DIFFERS(c.classes = 4);
    DIFFERS((c.height = W, c.width = H));
    DIFFERS((u.odd = 0, u.add = 0.5f));
    DIFFERS((u.odd = 0, u.odd_label = 1));
    DIFFERS((u.odd = 984, u.add = 0.5f));   /* the last of the 64 places: 63 * 1000 / 64 */
#undef DIFFERS
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    struct user u = plain();
    struct ech_error err = {0};
    ech_data *data = NULL;
#define REFUSED(status, words, change)                                                                                   \
    do {                                                                                                                 \
        u = plain();                                                                                                     \
        struct ech_data_callback c = callback_of(&u);                                                                    \
        change;                                                                                                          \
        assert_int_equal(ech_data_from_callback(&c, &data, &err), status);                                               \
        if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);                               \
        assert_null(data);                                                                                               \
    } while (0)
    REFUSED(ECH_E_ARGUMENT, "read function", c.read = NULL);
    REFUSED(ECH_E_ARGUMENT, "a name", c.name = NULL);
    REFUSED(ECH_E_ARGUMENT, "0 x 3 x 2", c.channels = 0);
    REFUSED(ECH_E_ARGUMENT, "2 x 65537 x 2", c.height = 65537);
    REFUSED(ECH_E_ARGUMENT, "2 x 3 x -1", c.width = -1);
    REFUSED(ECH_E_ARGUMENT, "1 classes", c.classes = 1);
    REFUSED(ECH_E_ARGUMENT, "65537 classes", c.classes = 65537);
    REFUSED(ECH_E_ARGUMENT, "train_samples is 0", c.train_samples = 0);
    REFUSED(ECH_E_ABORTED, "returned 7 for 1 training samples from number 15", u.stop_at = 2);
    REFUSED(ECH_E_ABORTED, "test samples from number 0", u.stop_at = 65);
    REFUSED(ECH_E_FORMAT, "label 200 for training sample 0", (u.odd = 0, u.odd_label = 200));
    REFUSED(ECH_E_FORMAT, "label 256 for training sample 0", (u.odd = 0, u.odd_label = 256));
#undef REFUSED
    assert_int_equal(ech_data_from_callback(NULL, &data, NULL), ECH_E_ARGUMENT);
    struct ech_data_callback c = callback_of(&u);
    assert_int_equal(ech_data_from_callback(&c, NULL, NULL), ECH_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_come_as_given),
        cmocka_unit_test(the_hash_tells_data_sets_apart),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
