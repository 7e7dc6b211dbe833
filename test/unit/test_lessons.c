/* SPDX-License-Identifier: Apache-2.0
 * Flaws that others had, each with the test that we do not have it: the parsers of files, messages and options. The names
 * are those of the advisories; test/fuzz/README.md has the list of all, with those of the wire and those that cannot be. */
#include "echi_bytes.h"
#include "echi_data.h"
#include "echi_model.h"
#include "echi_os.h"
#include "echi_priority.h"
#include "echi_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/echelon-lessons-XXXXXX";
static char path[64];
static struct ech_error error;

static void write_bytes(const char *to, const void *bytes, size_t len) {
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* For this very reason and not for another one. */
static void assert_refused(ech_status status, ech_status expected, const char *reason) {
    if (status != expected || error.code != expected || !strstr(error.text, reason))
        fail_msg("%s, not %s: '%s' does not say '%s'", ech_status_name(status), ech_status_name(expected), error.text, reason);
}

static void refuse_model(const char *text, ech_status expected, const char *reason) {
    ech_model *model = NULL;
    assert_refused(ech_model_parse(text, strlen(text), "m", &model, &error), expected, reason);
    assert_null(model);
}

static void refuse_plan(const char *line, const char *reason) {
    char text[400];
    struct echi_plan plan;
    const int n = snprintf(text, sizeof text, "sync gssp\nworld 4\nround 64\nlr 0.02\n%s\n", line);
    write_bytes(path, text, (size_t)n);
    assert_refused(echi_plan_load(path, 2, &plan, NULL, &error), ECH_E_FORMAT, reason);
}

/* A safetensors file with this header, stated to be `stated` bytes long (0: as long as it is), for a model of 9 floats. */
static void refuse_tensors(const char *header, uint64_t stated, ech_status expected, const char *reason) {
    static const char text[] = "input 1 2 2\nconv2d out 1 kernel 2\nfc out 2\n";
    uint8_t file[1024] = {0};
    float params[9] = {0};
    ech_model *model = NULL;
    const size_t len = strlen(header);
    assert_int_equal(ech_model_parse(text, sizeof text - 1, "tiny", &model, NULL), ECH_OK);
    echi_store64(file, stated ? stated : len);
    memcpy(file + 8, header, len);
    memset(file + 8 + len, 0x55, sizeof params);
    write_bytes(path, file, 8 + len + sizeof params);
    assert_refused(echi_safetensors_load(path, model, params, NULL, NULL, &error), expected, reason);
    for (int i = 0; i < 9; i++) assert_true(params[i] == 0);
    ech_model_destroy(model);
}

#define TENSOR(name, shape, from, to) "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"
#define FIRST_THREE                                                                                                              \
    "{" TENSOR("conv1.weight", "[1,1,2,2]", "0", "16") "," TENSOR("conv1.bias", "[1]", "16", "20") ","                            \
    TENSOR("fc1.weight", "[2,1]", "20", "28") ","

/* A folder of idx files whose training images have this header and four pixels. */
static void refuse_images(uint32_t n, uint32_t h, uint32_t w, const char *reason) {
    static const char *const name[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                       "t10k-labels-idx1-ubyte"};
    const uint32_t field[4] = {0x803, n, h, w};
    uint8_t bytes[20] = {0};
    char file[128];
    ech_data *data = NULL;
    for (int i = 0; i < 16; i++) bytes[i] = (uint8_t)(field[i / 4] >> (24 - 8 * (i % 4)));
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, name[i]);
        write_bytes(file, bytes, sizeof bytes);
    }
    const ech_status status = ech_data_open(folder, 1, &data, &error);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, name[i]);
        unlink(file);
    }
    assert_refused(status, ECH_E_FORMAT, reason);
    assert_null(data);
}

/* ---- CVE-2026-7482: an offset and a length whose sum wraps pass a check against the size of the file ---- */

static void cve_2026_7482_offset_and_length_wrap(void **state) {
    (void)state;
    refuse_tensors("{}", UINT64_MAX, ECH_E_FORMAT, "its header would have 18446744073709551615 bytes");
    refuse_tensors("{}", UINT64_MAX - 7, ECH_E_FORMAT, "its header would have");   /* + 8 is 0 */
    refuse_tensors("{}", UINT64_C(100000001), ECH_E_FORMAT, "its header would have");
    refuse_tensors(FIRST_THREE TENSOR("fc1.bias", "[2]", "18446744073709551612", "4") "}", 0, ECH_E_FORMAT, "needs 8 bytes");
    refuse_tensors(FIRST_THREE TENSOR("fc1.bias", "[2]", "18446744073709551608", "18446744073709551616") "}", 0, ECH_E_FORMAT, "too large");
    refuse_tensors(FIRST_THREE TENSOR("fc1.bias", "[2]", "18446744073709551600", "18446744073709551608") "}", 0, ECH_E_FORMAT,
                   "but the file has only 36");
    refuse_tensors(FIRST_THREE TENSOR("fc1.bias", "[2]", "32", "40") "}", 0, ECH_E_FORMAT, "ends at byte 40");
    refuse_tensors(FIRST_THREE TENSOR("fc1.bias", "[2]", "20", "28") "}", 0, ECH_E_FORMAT, "begins at byte 20");   /* two in one place */
}

/* ---- CVE-2026-72852: sizes of a convolution multiplied in 32 bits; an index of another layer; sscanf("%s") ---- */

static void cve_2026_72852_sizes_of_a_network_file(void **state) {
    (void)state;
    refuse_model("input 65536 1 1\nconv2d out 65536 kernel 1\n", ECH_E_SHAPE, "more than 2147483647 parameters");      /* 2^32 */
    refuse_model("input 1 1 65536\nfc out 65536\n", ECH_E_SHAPE, "more than 2147483647 parameters");
    refuse_model("input 1 65536 65536\nfc out 1\n", ECH_E_SHAPE, "at most 2147483647 values");
    refuse_model("input 65536 65536 65536\nfc out 1\n", ECH_E_SHAPE, "at most 2147483647 values");                        /* 2^48 */
    refuse_model("input 1 1 32768\nconv2d out 65536 kernel 1\n", ECH_E_SHAPE, "more than 2147483647 values");           /* 2^31 */
    refuse_model("input 1 65536 30000\nconv2d out 1 kernel 1 pad 65536\n", ECH_E_SHAPE, "use a smaller pad");           /* with pad */
    refuse_model("input 1 8 8\nfc out 4294967298\n", ECH_E_FORMAT, "whole number from 0 to 65536");                      /* 2 in 32 bits */
    refuse_model("input 1 8 8\nfc out 18446744073709551618\n", ECH_E_FORMAT, "whole number from 0 to 65536");            /* 2 in 64 */
    refuse_model("input 1 8 8\nfc out -1\n", ECH_E_FORMAT, "whole number from 0 to 65536");
    /* A word of any length: quoted in part. */
    char text[3000] = "input 1 8 8\n";
    memset(text + 12, 'x', sizeof text - 13);
    text[sizeof text - 1] = 0;
    refuse_model(text, ECH_E_FORMAT, "...'");
    /* Our files name no other layer; a plan names groups and ranks. */
    refuse_plan("group 8 owner 0 workers 0:8", "group needs a number from 0 to 7");
    refuse_plan("group 0 owner 1024 workers 0:8", "owner needs a rank");
    refuse_plan("group 0 owner 0 workers 1024:8", "rank is a number from 0 to 1023");
    refuse_plan("group 0 owner 0 workers 0:8 63:8", "rank 63 is a worker, but the ranks are 0 to 3");
}

/* ---- CVE-2026-43629: a size that overflows, then a block of that size ---- */

static void cve_2026_43629_sizes_that_overflow(void **state) {
    (void)state;
    refuse_images(UINT32_MAX, UINT32_MAX, UINT32_MAX, sizeof(size_t) > 4 ? "overflow" : "counts");
    refuse_images(65536, 256, 256, "truncated");      /* 2^32 */
    refuse_images(4096, 1024, 1024, "truncated");     /* 2^32 */
    refuse_images(0x80000000u, 2, 1, "truncated");    /* 2^32 */
    refuse_images(1, 4097, 1, "sides of 1 to 4096");
    /* What the shapes say must be what the model needs, whatever their product wraps to. */
    refuse_tensors(FIRST_THREE TENSOR("fc1.bias", "[4611686018427387906]", "28", "36") "}", 0, ECH_E_SHAPE,
                   "has shape [4611686018427387906]");
    refuse_tensors("{" TENSOR("conv1.weight", "[1,1,2,9223372036854775809]", "0", "16") "}", 0, ECH_E_SHAPE, "needs [1,1,2,2]");
}

/* ---- CVE-2024-42477: a number of a type is an index into a table ---- */

static void cve_2024_42477_numbers_beyond_a_table(void **state) {
    (void)state;
    struct echi_msg m;
    uint8_t bytes[64] = {0};
    for (int kind = -2; kind < 300; kind++) {
        if (kind >= 0 && kind < ECHI_KINDS) continue;
        assert_false(echi_msg_decode(kind, bytes, 2, &m));
        assert_null(echi_kind_name(kind));
        assert_false(echi_kind_has_payload(kind));
        if (kind >= 0 && kind <= UINT8_MAX)
            assert_int_equal(echi_msg_priority(&(struct echi_plan){0}, &(struct echi_msg){.kind = (uint8_t)kind}), ECHI_PRIORITIES - 1);
    }
    for (int role = 0; role < 256; role++) {
        const uint8_t to[2] = {(uint8_t)role, 0}, from[2] = {0, (uint8_t)role};
        assert_int_equal(echi_msg_decode(ECHI_KIND_HOLD, to, 2, &m), role < ECHI_ROLES);
        assert_int_equal(echi_msg_decode(ECHI_KIND_HOLD, from, 2, &m), role < ECHI_ROLES);
    }
    /* A plan of one node: each field that is an index or an enum, at every value of its byte. */
    struct echi_plan plan = {.sync = ECHI_SYNC_BSP, .world = 1, .n_groups = 1, .head = ECHI_NO_RANK, .n = {64}, .round = 64, .flights = 1};
    uint8_t good[ECHI_PLAN_BYTES_MAX];
    const size_t len = echi_plan_encode(&plan, good, sizeof good);
    assert_true(echi_plan_decode(good, len, &plan));
    static const struct { size_t field; int valid; } byte[] = {
        {offsetof(struct echi_plan, sync), ECHI_SYNCS - 2 /* asp's and local's have more bytes */}, {offsetof(struct echi_plan, world), 1},
        {offsetof(struct echi_plan, n_groups), 1},
        {offsetof(struct echi_plan, cut), 1},     {offsetof(struct echi_plan, head), 1},  {offsetof(struct echi_plan, flights), 1},
        {offsetof(struct echi_plan, owner_of), 1},      {offsetof(struct echi_plan, group_of), 1}};
    for (size_t i = 0; i < sizeof byte / sizeof *byte; i++) {
        struct echi_plan changed = plan;
        uint8_t other[ECHI_PLAN_BYTES_MAX];
        int taken = 0;
        size_t at = 0;   /* where the plan's bytes keep it: the first that differs when it does */
        ((uint8_t *)&changed)[byte[i].field] ^= 1;
        assert_true(echi_plan_encode(&changed, other, sizeof other) > 0);
        while (good[at] == other[at]) at++;
        const uint8_t was = good[at];
        for (int value = 0; value < 256; value++) {
            good[at] = (uint8_t)value;
            taken += echi_plan_decode(good, len, &changed);
        }
        good[at] = was;
        if (taken != byte[i].valid) fail_msg("field at %zu: %d values were taken, not %d", byte[i].field, taken, byte[i].valid);
    }
    refuse_tensors(FIRST_THREE "\"fc1.bias\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[28,36]}}", 0, ECH_E_UNSUPPORTED, "F99");
    struct ech_config config;
    ech_config_init(&config);
    assert_refused(ech_config_set(&config, "sync", "4", &error), ECH_E_ARGUMENT, "give bsp, asp, ssp, gssp, local or auto");
}

/* ---- CVE-2026-34159: what is absent skips the check of what is there ---- */

static void cve_2026_34159_what_is_absent(void **state) {
    (void)state;
    refuse_tensors(FIRST_THREE "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, ECH_E_FORMAT,
                   "must have a dtype, a shape and two data_offsets");
    refuse_tensors(FIRST_THREE "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[]}}", 0, ECH_E_FORMAT, "two data_offsets");
    refuse_tensors(FIRST_THREE "\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[28,36]}}", 0, ECH_E_SHAPE, "needs [2]");
    refuse_tensors(FIRST_THREE "\"fc1.bias\":{}}", 0, ECH_E_FORMAT, "must have a dtype");
    refuse_tensors(FIRST_THREE "\"fc1.bias\":null}", 0, ECH_E_FORMAT, "'{' is missing");
    refuse_tensors("{}", 0, ECH_E_SHAPE, "it lacks conv1.weight");
    refuse_plan("", "not a whole plan");
    refuse_plan("group 1 owner 0 workers 0:8", "not a whole plan");   /* and no group 0 */
    refuse_plan("group 0 owner 0 workers", "not a whole plan");
    refuse_plan("head", "head needs a rank");
    refuse_model("fc out 10\n", ECH_E_FORMAT, "comes before 'input'");
    refuse_model("input 1 8 8\nconv2d kernel 3\n", ECH_E_FORMAT, "needs 'out'");
    /* A lease that is none, of a rank without a worker, of a group without an owner. */
    struct echi_plan plan = {.world = 2, .n_groups = 1, .head = ECHI_NO_RANK, .n = {64}, .round = 64, .flights = 1};
    memset(plan.owner_of, 0xff, sizeof plan.owner_of);
    memset(plan.group_of, ECHI_NONE, sizeof plan.group_of);
    plan.owner_of[0] = plan.group_of[0] = 0;
    const struct echi_lease good = {.id = 1, .n = 64, .round_size = 64};
    struct echi_lease bad = good;
    assert_true(echi_lease_valid(&good, &plan));
    bad.id = 0;
    assert_false(echi_lease_valid(&bad, &plan));
    bad = good, bad.worker = 1;
    assert_false(echi_lease_valid(&bad, &plan));
    bad = good, bad.worker = ECHI_NO_RANK;
    assert_false(echi_lease_valid(&bad, &plan));
    bad = good, bad.owner = ECHI_NO_RANK;
    assert_false(echi_lease_valid(&bad, &plan));
}

/* ---- CVE-2022-0315: a temporary file whose name can be foreseen is a link that somebody else has put there ---- */

static void cve_2022_0315_temporary_files(void **state) {
    (void)state;
    char victim[80], name[160];
    snprintf(victim, sizeof victim, "%s/victim", folder);
    write_bytes(victim, "mine", 4);
    for (int i = 0; i < 64; i++) {   /* every name that the next writes can take */
        snprintf(name, sizeof name, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        assert_int_equal(symlink(victim, name), 0);
    }
    unlink(path);
    assert_int_equal(echi_file_write(path, "theirs", 6, &error), ECH_OK);
    uint8_t *bytes = NULL;
    size_t len = 0;
    assert_int_equal(echi_file_read(victim, 100, &bytes, &len, &error), ECH_OK);
    assert_int_equal(len, 4);
    assert_memory_equal(bytes, "mine", 4);
    free(bytes);
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISREG(info.st_mode) && info.st_size == 6);
    for (int i = 0; i < 64; i++) {
        snprintf(name, sizeof name, "%s.%ld-%d.tmp", path, (long)getpid(), i);
        unlink(name);
    }
    unlink(victim);
}

/* ---- terminals: what a sentence quotes must not command the terminal that shows it ---- */

static void sentences_hold_no_commands(void **state) {
    (void)state;
    static const char *const foreign[] = {"\x1b[2J", "\x1b]0;x\x07", "\xc2\x9b[31m", "\x7f\x08\x08"};
    struct ech_config config;
    ech_config_init(&config);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        char line[64];
        snprintf(line, sizeof line, "flights %s", foreign[i]);
        for (int what = 0; what < 3; what++) {
            memset(&error, 0, sizeof error);
            if (what == 0) refuse_plan(line, "flights is 1 or 2");
            if (what == 1) refuse_model(foreign[i], ECH_E_FORMAT, "is no layer");
            if (what == 2) assert_refused(ech_config_set(&config, "sync", foreign[i], &error), ECH_E_ARGUMENT, "sync is");
            for (const unsigned char *c = (const unsigned char *)error.text; *c; c++)
                assert_true(*c >= ' ' && *c != 0x7f && !(c[0] == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f));
        }
    }
    /* What is no command stays: names are written in every script. */
    assert_refused(ech_config_set(&config, "sync", "Z\xc3\xbcrich", &error), ECH_E_ARGUMENT, "'Z\xc3\xbcrich'");
}

static int make_folder(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cve_2026_7482_offset_and_length_wrap), cmocka_unit_test(cve_2026_72852_sizes_of_a_network_file),
        cmocka_unit_test(cve_2026_43629_sizes_that_overflow),   cmocka_unit_test(cve_2024_42477_numbers_beyond_a_table),
        cmocka_unit_test(cve_2026_34159_what_is_absent),        cmocka_unit_test(cve_2022_0315_temporary_files),
        cmocka_unit_test(sentences_hold_no_commands),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
