/* SPDX-License-Identifier: Apache-2.0
 * Profiles: what is saved is loaded, every refusal names file and line, other models cost in proportion to their multiply-adds, and
 * this machine can be measured. Files of a stranger are in test/fuzz. */
#include "echi_run.h"
#include "text_files.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char path[64];
static struct echi_profile profile;
static struct ech_error error;

static const char good[] = "# a machine\n"                        /* 1 */
                           "machine A small one, base   # old\n"   /* 2 */
                           "model mine\r\n"                        /* 3 */
                           "trunk_operations 1000\n"               /* 4 */
                           "head_operations 200\n"                 /* 5 */
                           "parameters 50\n"                       /* 6 */
                           "trunk_units 1\n"                       /* 7 */
                           "apply 0.5 ns\n"                        /* 8 */
                           "add 0.25ns\n"                          /* 9 */
                           "refresh 1 ns\n"                        /* 10 */
                           "copy 0.125 ns\n"                       /* 11 */
                           "message 10 us\n"                       /* 12 */
                           "look 2 ms\n"                           /* 13 */
                           "step 8 trunk 1 ms head 100 us\n"       /* 14 */
                           "\tstep 64 trunk 0.008 s head 800us\n"  /* 15 */
                           "unit 1 at 64 forward 1 ms backward 3 ms\n"   /* 16: half of the trunk's time, in the same proportion */
                           "unit 2 at 64 forward 200 us backward 600us";  /* 17: no end of line */

static ech_status load(const char *text, size_t len) {
    write_bytes(path, text, len);
    memset(&error, 0, sizeof error);
    return echi_profile_load(path, &profile, &error);
}

static void is(double a, double b) {
    if (!(fabs(a - b) <= 1e-12 * fabs(b))) fail_msg("%.17g is not %.17g", a, b);
}

/* Shares of units are whole numbers of 1 / 65,535. */
static void about(double a, double b) {
    if (!(fabs(a - b) <= 1e-4 * fabs(b))) fail_msg("%.17g is not about %.17g", a, b);
}

static void a_profile_is_read(void **state) {
    (void)state;
    if (load(good, strlen(good)) != ECH_OK) fail_msg("%s", error.text);
    assert_string_equal(profile.machine, "A small one, base");
    assert_string_equal(profile.model, "mine");
    assert_true(profile.trunk_ops == 1000 && profile.head_ops == 200 && profile.parameters == 50);
    is(profile.apply, 5e-10), is(profile.add, 2.5e-10), is(profile.refresh, 1e-9), is(profile.copy, 1.25e-10);
    is(profile.message, 1e-5), is(profile.eval, 2e-3);
    assert_int_equal(profile.times.count, 2);
    assert_true(profile.times.n[0] == 8 && profile.times.n[1] == 64);
    is(profile.times.trunk[0], 1e-3), is(profile.times.trunk[1], 8e-3), is(profile.times.head[0], 1e-4), is(profile.times.head[1], 8e-4);
    /* What the planner takes: a push of 50 floats out of a socket and added; six messages a step. */
    is(profile.times.exchange, 50 * (4 * 1.25e-10 + 2.5e-10));
    is(profile.times.update, 50 * 5e-10);
    is(profile.times.messages, 6e-5);
    is(echi_profile_images(&profile), 64 / 8.8e-3);
    assert_true(profile.times.units == 2 && profile.times.cut == 1 && profile.times.sizes == 1 && profile.times.size[0] == 1);
    about(echi_times_unit(&profile.times, 0, ECHI_FORWARD, 64), 2e-3);
    about(echi_times_unit(&profile.times, 0, ECHI_BACKWARD, 64), 6e-3);
    about(echi_times_unit(&profile.times, 0, ECHI_BACKWARD, 8), 0.75e-3);
    about(echi_times_unit(&profile.times, 1, ECHI_BACKWARD, 64), 0.6e-3);
}

static size_t read_back(char *out, size_t cap) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t len = fread(out, 1, cap, f);
    fclose(f);
    return len;
}

static void what_is_saved_is_loaded(void **state) {
    (void)state;
    static char once[8192], twice[8192];
    struct echi_profile builtin;
    echi_profile_builtin(&builtin);
    builtin.machine[3] = '#', builtin.model[1] = '\n';   /* would be a comment, and a line of its own */
    builtin.apply *= 1.0 / 3;
    assert_int_equal(echi_profile_save(path, &builtin, &error), ECH_OK);
    const size_t len = read_back(once, sizeof once);
    if (echi_profile_load(path, &profile, &error) != ECH_OK) fail_msg("%s", error.text);
    assert_int_equal(profile.times.count, builtin.times.count);
    for (uint32_t i = 0; i < builtin.times.count; i++) {
        assert_true(profile.times.n[i] == builtin.times.n[i]);
        assert_true(fabs(profile.times.trunk[i] / builtin.times.trunk[i] - 1) < 1e-5 &&
                    fabs(profile.times.head[i] / builtin.times.head[i] - 1) < 1e-5);
    }
    assert_true(fabs(profile.apply / builtin.apply - 1) < 1e-5 && profile.machine[3] == '?' && profile.model[1] == '?');
    assert_memory_equal(profile.times.share, builtin.times.share, sizeof builtin.times.share);
    /* Six digits are kept, and those for ever. */
    assert_int_equal(echi_profile_save(path, &profile, &error), ECH_OK);
    assert_int_equal(read_back(twice, sizeof twice), len);
    assert_memory_equal(once, twice, len);
    assert_int_not_equal(echi_profile_save("/nowhere/profile", &profile, &error), ECH_OK);
    assert_non_null(strstr(error.text, "/nowhere/profile"));
}

/* The good profile with line `line` replaced; or without it where `text` is NULL. */
static ech_status load_with(int line, const char *text) {
    char all[2048];
    size_t size = 0;
    const char *at = good;
    for (int i = 1; at && *at; i++) {
        const char *end = strchr(at, '\n'), *from = i == line ? text ? text : "" : at;
        const size_t len = i == line ? strlen(from) : end ? (size_t)(end - at) : strlen(at);
        assert_true(size + len + 1 < sizeof all);
        memcpy(all + size, from, len);
        size += len;
        if (end) all[size++] = '\n';
        at = end ? end + 1 : NULL;
    }
    return load(all, size);
}

static void a_refusal_names_file_and_line(void **state) {
    (void)state;
    static const struct { int line; const char *text, *says; } table[] = {
        {4, "trunk_operation 5", "did you mean 'trunk_operations'"}, {4, "speed 5", "'speed' is no line of a profile"},
        {4, "trunk_operations 0", "from 1 to"}, {4, "trunk_operations 5 s", "nothing more"}, {4, "trunk_operations nan", "found 'nan'"},
        {5, "head_operations -1", "found '-1'"}, {5, "head_operations", "end of the line"}, {6, "parameters 0", "from 1 to"},
        {7, "forward 0.25", "had times per unit: measure again, with `echelon train --profile-out`"}, {7, "trunk_units 0", "from 1 to 256"},
        {14, "block 0", "block needs a number of samples, from 1 to 65535"}, {14, "block 65536", "found '65536'"},
        {7, "trunk_units 257", "from 1 to 256"}, {8, "apply 1", "s, ms, us or ns"},
        {8, "apply -1 ns", "found '-1'"},
        {8, "apply 1 h", "found '1 h'"}, {8, "apply 2 s", "apply needs a time up to 0.001 s"}, {9, "apply 1 ns", "said before"},
        {12, "message 1 us 2", "nothing more"}, {14, "step", "a number of samples"}, {14, "step 0 trunk 1 ms head 1 ms", "found '0'"},
        {14, "step 65537 trunk 1 ms head 1 ms", "a number of samples"}, {14, "step 8 trunk 1 ms", "is written like"},
        {14, "step 8 head 1 ms trunk 1 ms", "found 'head'"}, {14, "step 8 trunk 0 ms head 1 ms", "above 0"},
        {14, "step 8 trunk nan ms head 1 ms", "found 'nan'"}, {14, "step 8 trunk 1 ms head -1 ms", "found '-1'"},
        {14, "step 8 trunk 1 ms head 4000 s", "up to 3600 s"}, {15, "step 8 trunk 1 ms head 1 ms", "above that of the line before"},
        {16, "unit", "needs its number"}, {16, "unit 0 at 64 forward 1 ms backward 1 ms", "found '0'"},
        {16, "unit 257 at 64 forward 1 ms backward 1 ms", "found '257'"},
        {16, "unit 2 at 64 forward 1 ms backward 1 ms", "numbered from 1"},
        {16, "unit 1 of 64 forward 1 ms backward 1 ms", "found 'of'"}, {16, "unit 1 at 64 backward 1 ms", "is written like"},
        {16, "unit 1 at 64 forward nan ms backward 1 ms", "found 'nan'"}, {16, "unit 1 at 64 forward 1 ms backward -1 ms", "found '-1'"},
        {16, "unit 1 at 64 forward 1 ms backward 1 ms 1", "nothing more"},
        {17, "unit 1 at 64 forward 1 ms backward 1 ms", "numbered from 1"},
        {17, "unit 1 at 8 forward 1 ms backward 1 ms", "fewer samples come before"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char place[80];
        snprintf(place, sizeof place, "%s:%d: ", path, table[i].line);
        const struct echi_profile before = profile;
        if (load_with(table[i].line, table[i].text) != ECH_E_FORMAT) fail_msg("'%s' was taken", table[i].text);
        if (strncmp(error.text, place, strlen(place)) != 0 || !strstr(error.text, table[i].says))
            fail_msg("'%s': '%s' does not begin '%s' and say '%s'", table[i].text, error.text, place, table[i].says);
        assert_memory_equal(&before, &profile, sizeof before);
    }
    char many[2048];
    strcpy(many, good);
    for (int i = 0; i < 11; i++) snprintf(many + strlen(many), sizeof many - strlen(many), "\nstep %d trunk 1 s head 0 s", 65 + i);
    assert_int_equal(load(many, strlen(many)), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, ":28: a profile has at most 12"));
    strcpy(many, good);
    for (int i = 0; i < 3; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "\nunit 1 at %d forward 1 s backward 1 s", 65 + i);
    assert_int_equal(load(many, strlen(many)), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, ":20: a profile has units at three numbers of samples at most"));
    /* What only the whole file tells. */
    static const struct { int line; const char *text, *says; } whole[] = {
        {14, "block 8\nblock 8", "said before"},
        {7, "trunk_units 3", "it has fewer units than trunk_units says"},
        {15, "step 63 trunk 1 ms head 1 ms", "of which no step is written"},
        {17, "unit 2 at 64 forward 0 s backward 0 s", "its units take no time"},
        {15, "step 64 trunk 1 ms head 0 s", "a step whose head takes no time"},
        {17, "unit 2 at 64 forward 1 ms backward 1 ms\nunit 1 at 128 forward 1 ms backward 1 ms\nstep 128 trunk 1 s head 1 s",
         "it has not the same units at all numbers of samples"},
    };
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
        if (load_with(whole[i].line, whole[i].text) != ECH_E_FORMAT) fail_msg("'%s' was taken", whole[i].text);
        if (!strstr(error.text, whole[i].says) || !strstr(error.text, path)) fail_msg("'%s': %s", whole[i].text, error.text);
    }
}

static void every_line_must_be_there(void **state) {
    (void)state;
    static const char *const key[] = {"machine", "model", "trunk_operations", "head_operations", "parameters", "trunk_units", "apply",
                                      "add", "refresh", "copy", "message", "look"};
    for (int line = 2; line <= 13; line++) {
        assert_int_equal(load_with(line, NULL), ECH_E_FORMAT);
        char says[40];
        snprintf(says, sizeof says, "'%s' is missing", key[line - 2]);
        if (!strstr(error.text, says) || !strstr(error.text, path)) fail_msg("line %d: %s", line, error.text);
    }
    assert_int_equal(load_with(14, NULL), ECH_OK);   /* one size will do, none will not */
    assert_int_equal(profile.times.block, 1);        /* and no line of blocks */
    assert_int_equal(load_with(13, "look 2 ms\nblock 16"), ECH_OK);
    assert_int_equal(profile.times.block, 16);
    assert_int_equal(load(good, (size_t)(strstr(good, "step") - good)), ECH_E_FORMAT);
    assert_non_null(strstr(error.text, "'step' is missing"));
    assert_int_equal(load("", 0), ECH_E_FORMAT);
    assert_int_equal(load("model\0x", 7), ECH_E_FORMAT);
    unlink(path);
    assert_int_equal(echi_profile_load(path, &profile, &error), ECH_E_IO);
}

static ech_model *model_of(const char *text) {
    ech_model *model;
    if (ech_model_parse(text, strlen(text), "test", &model, &error) != ECH_OK) fail_msg("%s", error.text);
    return model;
}

/* Costs of the good profile: 1 us a multiply-add of convolutions at 8 samples, 0.5 us of fully connected layers. */
static void other_models_cost_by_their_operations(void **state) {
    (void)state;
    static const struct { const char *text; double trunk_ops, head_ops, params, trunk, head; } table[] = {
        {"input 1 4 4\nconv2d out 3 kernel 3 pad 1\nrelu\nfc out 10\n", 3 * 16 * 9, 480, 30 + 490, 432e-6, 240e-6},
        {"input 1 4 4\nfc out 20\nrelu\nfc out 10\n", 320 + 200, 0, 340 + 210, 260e-6, 0},   /* no cut: all of it is the trunk */
        {"input 1 4 4\nconv2d out 10 kernel 4\n", 160, 0, 170, 160e-6, 0},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        ech_model *model = model_of(table[i].text);
        assert_int_equal(load(good, strlen(good)), ECH_OK);
        assert_true(echi_profile_fit(&profile, model));
        assert_true(profile.trunk_ops == table[i].trunk_ops && profile.head_ops == table[i].head_ops &&
                    profile.parameters == table[i].params);
        for (int size = 0; size < 2; size++) {   /* the good one's costs are eight times as high at the second size */
            is(profile.times.trunk[size], table[i].trunk * (size ? 8 : 1));
            is(profile.times.head[size], table[i].head * (size ? 8 : 1));
        }
        is(profile.eval, 2e-3 * (table[i].trunk_ops + table[i].head_ops) / 1200);
        is(profile.times.exchange, table[i].params * (4 * 1.25e-10 + 2.5e-10));
        is(profile.times.update, table[i].params * 5e-10);
        is(profile.times.messages, 6e-5);
        assert_string_equal(profile.model, "test");
        assert_int_equal(profile.times.units, table[i].head_ops > 0 ? 2 : i == 1 ? 2 : 1);
        const struct echi_profile fitted = profile;
        assert_false(echi_profile_fit(&profile, model));
        assert_memory_equal(&fitted.times, &profile.times, sizeof fitted.times);
        ech_model_destroy(model);
    }
    /* Measured on a model without a cut: all layers cost alike. */
    ech_model *cut = model_of(table[0].text);
    assert_int_equal(load_with(5, "head_operations 0"), ECH_OK);
    assert_true(echi_profile_fit(&profile, cut));
    is(profile.times.head[0], 480e-6);
    /* Another model's units: of the trunk a quarter is forward, as measured; backward twice the operations, but for the first layer. */
    static const char three[] = "input 1 4 4\nconv2d out 3 kernel 3 pad 1\nconv2d out 3 kernel 3 pad 1\nrelu\nfc out 10\n";
    ech_model *other = model_of(three);
    const double first = 3 * 16 * 9 + 1, second = 3 * 16 * 27 + 1;
    assert_int_equal(load(good, strlen(good)), ECH_OK);
    assert_true(echi_profile_fit(&profile, other));
    assert_true(profile.times.units == 3 && profile.times.cut == 2);
    const double trunk = echi_times_trunk(&profile.times, 64), head = echi_times_head(&profile.times, 64);
    about(echi_times_unit(&profile.times, 0, ECHI_FORWARD, 64), trunk * 0.25 * first / (first + second));
    about(echi_times_unit(&profile.times, 0, ECHI_BACKWARD, 64), trunk * 0.75 * first / (first + 2 * second));
    about(echi_times_unit(&profile.times, 1, ECHI_BACKWARD, 64), trunk * 0.75 * 2 * second / (first + 2 * second));
    about(echi_times_unit(&profile.times, 2, ECHI_FORWARD, 64), head * 0.25);
    ech_model_destroy(other);
    ech_model_destroy(cut);
}

/* The built-in profile is LeNet-5's, whole: nothing has to be changed for that model, by multiply-adds counted by hand. */
static void the_built_in_profile_is_lenet5s(void **state) {
    (void)state;
    ech_model *lenet;
    assert_int_equal(ech_model_open("lenet5", &lenet, &error), ECH_OK);
    echi_profile_builtin(&profile);
    assert_true(profile.trunk_ops == 6 * 28 * 28 * 25 + 16 * 10 * 10 * 150 && profile.head_ops == 400 * 120 + 120 * 84 + 84 * 10);
    assert_true(profile.parameters == 61706);
    const struct echi_profile before = profile;
    assert_false(echi_profile_fit(&profile, lenet));
    assert_memory_equal(&before.times, &profile.times, sizeof before.times);
    for (uint32_t i = 1; i < profile.times.count; i++)
        assert_true(profile.times.n[i] > profile.times.n[i - 1] && profile.times.trunk[i] >= profile.times.trunk[i - 1] &&
                    profile.times.head[i] >= profile.times.head[i - 1]);
    assert_true(profile.times.units == 5 && profile.times.cut == 2 && profile.times.sizes == ECHI_UNIT_SIZES);
    assert_true(profile.apply > 0 && profile.add > 0 && profile.refresh > 0 &&
                profile.copy > 0);
    assert_true(profile.message > 0 && profile.eval > 0 && profile.machine[0]);
    ech_model_destroy(lenet);
}

/* The numbers are this machine's, so only what must hold on all machines can be asked. */
static void this_machine_can_be_measured(void **state) {
    (void)state;
    ech_model *lenet;
    ech_data *data;
    struct ech_config config;
    struct echi_job job;
    struct echi_device *device;
    struct echi_times times = {.count = 2, .n = {8, 16}, .trunk = {1e-3, 2e-3}, .head = {1e-4, 2e-4}, .exchange = 5e-4, .add = 1e-4,
                               .update = 2e-4, .messages = 3 * 6e-5};
    const struct echi_cost_io io = {2.5e-6, 1e-10};
    ech_config_init(&config);
    assert_int_equal(ech_model_open("lenet5", &lenet, &error), ECH_OK);
    assert_int_equal(ech_data_open("glyphs", 1, &data, &error), ECH_OK);
    assert_int_equal(echi_job_make(lenet, data, &config, &job, &error), ECH_OK);
    assert_int_equal(echi_device_open("cpu", 1, &device, &error), ECH_OK);
    echi_profile_of(&profile, echi_device_describe(device)->name, lenet, &times);
    if (echi_measure_costs(&job, device, &times, NULL, io, &profile, &error) != ECH_OK) fail_msg("%s", error.text);
    is(profile.message, 3e-5);   /* a host with a third of a processor: times.messages says so */
    assert_int_equal(profile.times.units, 5);   /* not measured: by multiply-adds */
    is(profile.copy, 3e-10);
    is(profile.add, 1e-4 / (double)lenet->n_params);
    is(profile.apply, 2e-4 / (double)lenet->n_params);
    const double cost[] = {profile.apply, profile.add, profile.refresh, profile.copy, profile.eval};
    for (int i = 0; i < 5; i++)
        if (!(cost[i] > 0 && cost[i] < 1e-2)) fail_msg("cost %d is %g", i, cost[i]);
    assert_true(profile.eval > 100 * profile.add);   /* a sample's forward pass is more than an addition */
    times.units = profile.times.units, times.cut = profile.times.cut, times.sizes = profile.times.sizes;
    memcpy(times.share, profile.times.share, sizeof times.share);
    assert_memory_equal(&profile.times, &times, sizeof times);
    assert_int_equal(echi_profile_save(path, &profile, &error), ECH_OK);
    assert_int_equal(echi_profile_load(path, &profile, &error), ECH_OK);
    assert_false(echi_profile_fit(&profile, lenet));
    echi_device_close(device);
    ech_data_destroy(data);
    ech_model_destroy(lenet);
}

static int clean_up(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/echelon-profile-%ld", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_is_read),
        cmocka_unit_test(what_is_saved_is_loaded),
        cmocka_unit_test(a_refusal_names_file_and_line),
        cmocka_unit_test(every_line_must_be_there),
        cmocka_unit_test(other_models_cost_by_their_operations),
        cmocka_unit_test(the_built_in_profile_is_lenet5s),
        cmocka_unit_test(this_machine_can_be_measured),
    };
    return cmocka_run_group_tests(tests, NULL, clean_up);
}
