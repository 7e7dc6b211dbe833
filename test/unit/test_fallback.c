/* SPDX-License-Identifier: Apache-2.0
 * A run with a layer that the fast kernels lack (the Makefile wraps echi_cpu_op): the log names the layer once, and the run computes what
 * it computes with them. With --deterministic it is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/echi_cpu_stack.h"
#include "echelon.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = 6, CLASSES = 3, PARAMS = 4 * (9 + 1) + CLASSES * (4 * SIDE * SIDE + 1) };

static bool lacks_tanh;
const struct echi_cpu_op *__real_echi_cpu_op(enum echi_op op);
const struct echi_cpu_op *__wrap_echi_cpu_op(enum echi_op op);
const struct echi_cpu_op *__wrap_echi_cpu_op(enum echi_op op) {
    return lacks_tanh && op == ECHI_OP_TANH ? NULL : __real_echi_cpu_op(op);
}

static int read_samples(void *user, int test, const uint32_t *index, int n, float *rows, uint16_t *labels) {
    (void)user, (void)test;
    for (int s = 0; s < n; s++) {
        labels[s] = (uint16_t)(index[s] % CLASSES);
        for (int i = 0; i < SIDE * SIDE; i++) *rows++ = (i + (int)index[s]) % CLASSES == 0 ? 1.0f : -0.5f;
    }
    return 0;
}

static struct { int warnings; char line[300]; } seen;
static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user;
    if (level > ECH_LOG_WARN || seen.warnings++ > 0) return;
    snprintf(seen.line, sizeof seen.line, "%s", line);
}

static ech_status train(bool deterministic, float *out_params, struct ech_error *err) {
    static const char text[] = "input 1 6 6\nconv2d out 4 kernel 3 pad 1\ntanh\nfc out 3\n";
    static const struct ech_data_callback samples = {1, SIDE, SIDE, CLASSES, 96, 12, read_samples, NULL, "none"};
    struct ech_config config;
    ech_model *model = NULL;
    ech_data *data = NULL;
    memset(&seen, 0, sizeof seen);
    ech_config_init(&config);
    config.steps = 4;
    config.on_log = on_log;
    config.deterministic = deterministic;
    assert_int_equal(ech_model_parse(text, strlen(text), "tanh", &model, NULL), ECH_OK);
    assert_int_equal(ech_model_params(model), PARAMS);
    assert_int_equal(ech_data_from_callback(&samples, &data, NULL), ECH_OK);
    const ech_status status = ech_train(model, data, &config, out_params, NULL, err);
    ech_data_destroy(data);
    ech_model_destroy(model);
    return status;
}

static void the_layer_is_named_once(void **state) {
    (void)state;
    float wanted[PARAMS], got[PARAMS];
    struct ech_error err = {.text = ""};
    assert_int_equal(train(false, wanted, &err), ECH_OK);
    assert_int_equal(seen.warnings, 0);
    lacks_tanh = true;
    const ech_status status = train(false, got, &err);
    lacks_tanh = false;
    if (status != ECH_OK) fail_msg("%s", err.text);
    if (seen.warnings != 1 || !strstr(seen.line, "'tanh1'") || !strstr(seen.line, "reference"))
        fail_msg("%d warnings, the first: %s", seen.warnings, seen.line);
    for (int i = 0; i < PARAMS; i++)
        if (!(fabsf(got[i] - wanted[i]) <= 1e-5f)) fail_msg("weight %d is %g instead of %g", i, (double)got[i], (double)wanted[i]);
}

static void deterministic_refuses_it(void **state) {
    (void)state;
    float params[PARAMS];
    struct ech_error err;
    lacks_tanh = true;
    const ech_status status = train(true, params, &err);
    lacks_tanh = false;
    assert_int_equal(status, ECH_E_UNSUPPORTED);
    if (!strstr(err.text, "'tanh1'") || !strstr(err.text, "--deterministic")) fail_msg("%s", err.text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_layer_is_named_once),
        cmocka_unit_test(deterministic_refuses_it),
    };
    return cmocka_run_group_tests_name("fallback", tests, NULL, NULL);
}
