/* SPDX-License-Identifier: Apache-2.0
 * Damaged idx files, thousands of them: each opens as a set that can be read to its end, or is refused with a sentence. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "echelon.h"
#include "echi_random.h"

#include "test_data_files.h"

enum { CASES = 3000 };

static void damage(struct file *f, struct echi_random *r) {
    static const uint32_t odd[] = {0, 1, 4096, 4097, 0x7fffffff, 0x80000000, 0xffffffff, 0x801, 0x803, 0x1f8b0800, 0x10000, 1 << 20};
    size_t header = f->bytes[3] == 0x03 ? 16 : 8;
    switch (echi_random_below(r, 5)) {
    case 0: f->bytes[echi_random_below(r, (uint32_t)f->len)] ^= (uint8_t)(1u << echi_random_below(r, 8)); break;
    case 1: put_be(f->bytes + 4 * echi_random_below(r, (uint32_t)header / 4), odd[echi_random_below(r, sizeof odd / sizeof *odd)]); break;
    case 2: f->len = echi_random_below(r, (uint32_t)f->len + 1); break;
    case 3: f->len += echi_random_below(r, (uint32_t)(ROOM - f->len)); break;
    case 4: f->bytes[echi_random_below(r, (uint32_t)header)] = (uint8_t)echi_random_u32(r); break;
    }
}

static void read_all(const ech_data *data) {
    int c, h, w, classes;
    ech_data_shape(data, &c, &h, &w, &classes);
    assert_true(h >= 1 && w >= 1 && h * w <= ROOM);   /* no file has more bytes, so no image more pixels */
    for (int t = 0; t < 2; t++)
        for (uint32_t i = 0; i < ech_data_samples(data, t); i++) {
            float row[ROOM];
            uint8_t label;
            assert_int_equal(ech_data_get(data, t, &i, 1, row, &label, NULL), ECH_OK);
            assert_true(label < 10);
        }
}

static void damaged_files_do_no_damage(void **state) {
    (void)state;
    int opened = 0;
    for (uint32_t i = 0; i < CASES; i++) {
        struct echi_random r;
        echi_random_init(&r, 20, ECHI_STREAM_TEST, i);
        struct file file[FILES];
        make_files(file);
        for (uint32_t k = 1 + echi_random_below(&r, 3); k > 0; k--) {
            struct file *f = &file[echi_random_below(&r, FILES)];
            if (f->len) damage(f, &r);
        }
        write_files(file);
        ech_data *data = NULL;
        struct ech_error err = {0};
        ech_status status = ech_data_open(folder, 1, &data, &err);
        if (status == ECH_OK) {
            read_all(data);
            opened++;
        } else if (status != ECH_E_FORMAT || !strstr(err.text, "-ubyte") || data)
            fail_msg("case %u: %s, '%s'", (unsigned)i, ech_status_name(status), err.text);
        ech_data_destroy(data);
    }
    /* Flipped pixels are no defect; everything else nearly always is. Both ways out must be walked. */
    if (opened < CASES / 100 || opened > CASES / 2) fail_msg("%d of %d opened", opened, CASES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(damaged_files_do_no_damage, make_folder, remove_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
