/* SPDX-License-Identifier: Apache-2.0
 * Known answers: every set of kernels here has them; and kernels that are spoilt on purpose, one op at a time, forward or backward, are
 * found, and the op is named. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/echi_cpu_kernels.h"
#include "echi_known_answer.h"
#include "../part.h"
#include "problem.h"

#include <math.h>

static void has_them(struct echi_device *device, const struct echi_stack_impl *impl) {
    struct ech_error err = {.text = ""};
    int tried = 0;
    if (echi_known_answers(device, impl, &tried, &err) != ECH_OK) fail_msg("%s: %s", impl ? impl->name : "the usual", err.text);
    assert_int_equal(tried, 20 + 9);   /* stacks, flat ranges */
}

static void every_implementation_has_them(void **state) {
    (void)state;
    static const struct echi_stack_impl *const all[] = {NULL, &echi_stack_reference, &echi_stack_cpu, &echi_stack_cpu_close,
                                                        &echi_stack_cpu_plain, &echi_stack_cpu_fixed};
    for (enum echi_cpu_level level = ECHI_CPU_BASE; level <= echi_cpu_level(); level++) {
        struct echi_device *device = NULL;
        assert_int_equal(echi_device_open_at("cpu", 1, level, &device, NULL), ECH_OK);
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) has_them(device, all[i]);
        echi_device_close(device);
    }
}

/* ----- the reference, with one op that computes wrongly */

enum spoilt { FORWARD, EVALUATING, INPUT_GRAD, PARAMS_GRAD, LOSS, PLACES };
static struct { enum echi_op op; enum spoilt place; } plant;
struct spoilt_stack { void *inner; struct echi_layer layer[PROBLEM_LAYERS]; int count, n; bool trains; };

static bool planted(const struct spoilt_stack *s, enum spoilt place) {
    for (int i = 0; i < s->count; i++)
        if (s->layer[i].op == plant.op && plant.place == place) return true;
    return false;
}
static ech_status spoilt_create(struct echi_device *device, const struct echi_layer *layers, int count, int max_n, void **out_state,
                                struct echi_stack_unit *units, int *out_units, size_t *out_bytes, struct ech_error *err) {
    struct spoilt_stack *s = calloc(1, sizeof *s);
    memcpy(s->layer, layers, (size_t)count * sizeof *layers);
    s->count = count;
    *out_state = s;
    return echi_stack_reference.create(device, layers, count, max_n, &s->inner, units, out_units, out_bytes, err);
}
static void spoilt_destroy(void *state) {
    echi_stack_reference.destroy(((struct spoilt_stack *)state)->inner);
    free(state);
}
static void spoilt_input(void *state, int n, const echi_real *rows) {
    struct spoilt_stack *s = state;
    s->n = n;
    s->trains = false;
    echi_stack_reference.input(s->inner, n, rows);
}
static void spoilt_train(void *state, const struct echi_training *training) {
    struct spoilt_stack *s = state;
    s->trains = true;
    echi_stack_reference.train(s->inner, training);
}
static void spoilt_forward(void *state, int unit, const echi_real *params) {
    echi_stack_reference.forward(((struct spoilt_stack *)state)->inner, unit, params);
}
/* One number of many, by a hundredth of 1. */
static void spoilt_output(void *state, echi_real *rows) {
    struct spoilt_stack *s = state;
    echi_stack_reference.output(s->inner, rows);
    const size_t last = (size_t)s->n * echi_shape_size(s->layer[s->count - 1].out) - 1;
    if (planted(s, s->trains ? FORWARD : EVALUATING)) rows[last] += 0.01f;
}
static void spoilt_loss(void *state, const uint16_t *labels, echi_real scale, double *out_loss, int *out_correct) {
    struct spoilt_stack *s = state;
    echi_stack_reference.loss(s->inner, labels, scale, out_loss, out_correct);
    if (plant.place == LOSS) *out_loss *= 1.001;
}
static void spoilt_output_grad(void *state, const echi_real *rows) {
    echi_stack_reference.output_grad(((struct spoilt_stack *)state)->inner, rows);
}
static void spoilt_backward(void *state, int unit, const echi_real *params, echi_real *grads, bool need_input_grad) {
    struct spoilt_stack *s = state;
    echi_stack_reference.backward(s->inner, unit, params, grads, need_input_grad);
    const struct echi_layer *l = &s->layer[unit];
    if (l->op == plant.op && plant.place == PARAMS_GRAD && l->weights) grads[l->weight_at + l->weights - 1] *= 1.5f;
}
static void spoilt_input_grad(void *state, echi_real *rows) {
    struct spoilt_stack *s = state;
    echi_stack_reference.input_grad(s->inner, rows);
    if (planted(s, INPUT_GRAD)) rows[0] = NAN;
}
static const struct echi_stack_impl spoilt_impl = {
    .name = "spoilt", .create = spoilt_create, .destroy = spoilt_destroy, .input = spoilt_input, .train = spoilt_train,
    .forward = spoilt_forward, .output = spoilt_output, .loss = spoilt_loss, .output_grad = spoilt_output_grad,
    .backward = spoilt_backward, .input_grad = spoilt_input_grad};

static void a_wrong_op_is_named(void **state) {
    (void)state;
    for (int op = 0; op < ECHI_OPS; op++)
        for (int place = 0; place < PLACES; place++) {
            const bool has_params = op == ECHI_OP_CONV2D || op == ECHI_OP_FC || op == ECHI_OP_BATCH_NORM;
            if (place == LOSS || (place == PARAMS_GRAD && !has_params)) continue;
            if (test_few() && (op + place) % 3 != 0) continue;
            struct ech_error err = {.text = ""};
            plant.op = (enum echi_op)op;
            plant.place = (enum spoilt)place;
            if (echi_known_answers(problem_device, &spoilt_impl, NULL, &err) != ECH_E_UNSUPPORTED)
                fail_msg("%s, place %d: not seen", echi_op_name(plant.op), place);
            /* The add stands behind two tanhs, and is itself seen only where those are right. */
            if (strcmp(err.layer, echi_op_name(plant.op)) != 0)
                fail_msg("%s, place %d: said of %s", echi_op_name(plant.op), place, err.layer);
            assert_non_null(strstr(err.text, err.layer));
        }
    plant.op = ECHI_OPS;
    plant.place = LOSS;
    struct ech_error err;
    assert_int_equal(echi_known_answers(problem_device, &spoilt_impl, NULL, &err), ECH_E_UNSUPPORTED);
    assert_string_equal(err.layer, "softmax_cross_entropy");
}

/* ----- flat ranges, whose kernels are led through here (the Makefile wraps echi_kernels) */

static struct echi_cpu_kernels mine;
static const struct echi_cpu_kernels *in_use;
const struct echi_cpu_kernels *__real_echi_kernels(const struct echi_device *device);
const struct echi_cpu_kernels *__wrap_echi_kernels(const struct echi_device *device);
const struct echi_cpu_kernels *__wrap_echi_kernels(const struct echi_device *device) {
    return in_use ? in_use : __real_echi_kernels(device);
}

static void half_sgd(const struct echi_cpu_descent *d, size_t count) { __real_echi_kernels(problem_device)->descend(d, count - 1); }
static void half_adam(const struct echi_cpu_descent *d, size_t count) { __real_echi_kernels(problem_device)->adam(d, count - 1); }
static void short_add(float *sum, const float *a, const float *b, size_t count) {
    __real_echi_kernels(problem_device)->add(sum, a, b, count - 1);
}
static bool blind_finite(const float *x, size_t count) { return (void)x, (void)count, true; }

static void a_wrong_flat_range_is_named(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++) {
        static const char *const name[] = {"sgd", "adam", "add of gradients", "all_finite"};
        struct ech_error err = {.text = ""};
        mine = *__real_echi_kernels(problem_device);
        if (which == 0) mine.descend = half_sgd;
        if (which == 1) mine.adam = half_adam;
        if (which == 2) mine.add = short_add;
        if (which == 3) mine.finite = blind_finite;
        in_use = &mine;
        const ech_status status = echi_known_answers(problem_device, NULL, NULL, &err);
        in_use = NULL;
        assert_int_equal(status, ECH_E_UNSUPPORTED);
        assert_string_equal(err.layer, name[which]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_implementation_has_them),
        cmocka_unit_test(a_wrong_op_is_named),
        cmocka_unit_test(a_wrong_flat_range_is_named),
    };
    return cmocka_run_group_tests(tests, problem_open_device, problem_close_device);
}
