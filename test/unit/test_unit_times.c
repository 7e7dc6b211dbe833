/* SPDX-License-Identifier: Apache-2.0
 * What is measured of the units of a step, and how much steps vary, by a clock that stands still but for known times of the model's
 * layers. */
#include "echi_measure.h"
#include "echi_ops.h"
#include "echi_os.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char text[] = "input 1 8 8\nconv2d out 4 kernel 3 pad 1\nrelu\nmax_pool kernel 2\nmax_pool kernel 2\n"
                           "conv2d out 6 kernel 3 pad 1\nbatch_norm\nrelu\nfc out 12\nrelu\nfc out 4\n";
static const char no_cut[] = "input 1 8 8\nmax_pool kernel 2\nfc out 12\nrelu\nfc out 4\n";

static int64_t clock_ns = 1;              /* of the processor */
static int64_t quota;                     /* after so many ns of it the clock on the wall passes as many more; 0: it never does */
static int64_t slept;                     /* while the clock on the wall went on */
static double slow = 1;
static int rows, cut;                     /* samples of the step under way; the first layer of the head, 0: none */
static double longer, swing;              /* of two steps of as many samples one takes by `swing` of its time more, the other less */
static int begun[129];                    /* steps of so many samples, in pairs where they are short: of a size one is timed, one watched */
static struct echi_times found;           /* by the last measurement */

/* Seconds that a layer takes: no two alike, and not in proportion to the samples. */
static double layer_seconds(int layer, enum echi_pass pass, int n) {
    const double swung = longer * (1 + ((longer > 1 ? begun[n] : begun[n] / 2) % 2 ? swing : -swing));
    return swung * ((layer + 1) * 1e-5 + (1 + 3 * layer % 5 + (pass == ECHI_BACKWARD ? 2 : 0)) * 1e-6 * n);
}

int64_t __wrap_echi_now(void);
int64_t __wrap_echi_now(void) { return clock_ns + slept + (quota ? clock_ns / quota * quota : 0); }
void __wrap_echi_sleep_until(int64_t at);
void __wrap_echi_sleep_until(int64_t at) { slept += at - __wrap_echi_now(); }
int64_t __wrap_echi_thread_cpu(void);
int64_t __wrap_echi_thread_cpu(void) { return clock_ns; }
int64_t __wrap_echi_team_cpu(const struct echi_team *team);
int64_t __wrap_echi_team_cpu(const struct echi_team *team) { return (void)team, 0; }
bool __wrap_echi_cpu_quota(const char *root, double *quota_seconds, double *period);
bool __wrap_echi_cpu_quota(const char *root, double *quota_seconds, double *period) {
    (void)root, (void)quota_seconds, (void)period;
    return false;
}

ech_status __real_echi_stack_input(struct echi_stack *stack, int n, const echi_real *from, struct ech_error *err);
ech_status __wrap_echi_stack_input(struct echi_stack *stack, int n, const echi_real *from, struct ech_error *err);
ech_status __wrap_echi_stack_input(struct echi_stack *stack, int n, const echi_real *from, struct ech_error *err) {
    rows = n;
    begun[n]++;
    return __real_echi_stack_input(stack, n, from, err);
}

/* A stack that begins with a fully connected layer behind a cut is the head. */
enum { HEADS = 8 };
static const struct echi_stack *heads[HEADS];
static int n_heads;   /* of the last measurement */
static bool is_head(const struct echi_stack *stack) {
    for (int i = 0; i < n_heads; i++)
        if (heads[i] == stack) return true;
    return false;
}
/* Memory of one that was destroyed may be another's now. */
static void made(const struct echi_stack *stack, bool of_head) {
    for (int i = 0; i < n_heads; i++)
        if (heads[i] == stack) heads[i] = NULL;
    assert_true(n_heads < HEADS);
    if (of_head) heads[n_heads++] = stack;
}
static void pass_time(const struct echi_stack *stack, int unit, enum echi_pass pass) {
    int first, end;
    echi_stack_unit(stack, unit, &first, &end);
    for (int l = first; l < end; l++) clock_ns += llround(layer_seconds((is_head(stack) ? cut : 0) + l, pass, rows) * 1e9);
}

ech_status __real_echi_stack_create(struct echi_device *device, enum echi_kernels kernels, const struct echi_layer *layers, int count,
                                    int most, struct echi_stack **out, struct ech_error *err);
ech_status __wrap_echi_stack_create(struct echi_device *device, enum echi_kernels kernels, const struct echi_layer *layers, int count,
                                    int most, struct echi_stack **out, struct ech_error *err);
ech_status __wrap_echi_stack_create(struct echi_device *device, enum echi_kernels kernels, const struct echi_layer *layers, int count,
                                    int most, struct echi_stack **out, struct ech_error *err) {
    const ech_status status = __real_echi_stack_create(device, kernels, layers, count, most, out, err);
    made(*out, cut > 0 && layers[0].op == ECHI_OP_FC);
    return status;
}

ech_status __real_echi_stack_forward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct ech_error *err);
ech_status __wrap_echi_stack_forward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct ech_error *err);
ech_status __wrap_echi_stack_forward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct ech_error *err) {
    pass_time(stack, unit, ECHI_FORWARD);
    return __real_echi_stack_forward(stack, unit, params, err);
}

ech_status __real_echi_stack_backward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct echi_buffer *grads,
                                      bool need_input_grad, struct ech_error *err);
ech_status __wrap_echi_stack_backward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct echi_buffer *grads,
                                      bool need_input_grad, struct ech_error *err);
ech_status __wrap_echi_stack_backward(struct echi_stack *stack, int unit, const struct echi_buffer *params, struct echi_buffer *grads,
                                      bool need_input_grad, struct ech_error *err) {
    pass_time(stack, unit, ECHI_BACKWARD);
    return __real_echi_stack_backward(stack, unit, params, grads, need_input_grad, err);
}

static int blank(void *user, int test, const uint32_t *index, int n, float *out, uint16_t *labels) {
    (void)user, (void)test, (void)index;
    memset(out, 0, (size_t)n * 64 * sizeof *out);
    memset(labels, 0, (size_t)n * sizeof *labels);
    return 0;
}

/* Of the model's layers from that unit's on, up to the next with parameters; the first unit has all before it. */
static double unit_seconds(const struct echi_job *job, int unit, enum echi_pass pass, int n) {
    double sum = 0;
    const int end = unit + 1 < job->n_layers ? job->layer[unit + 1].layer : job->model->n_layers;
    for (int l = unit ? job->layer[unit].layer : 0; l < end; l++) sum += layer_seconds(l, pass, n);
    return sum;
}

static void units_are_known(const struct echi_job *job, const struct echi_times *t) {
    assert_int_equal(t->units, job->n_layers);
    assert_int_equal(t->cut, job->cut_params);
    assert_true(t->sizes >= 2);
    for (int i = 0; i < t->sizes; i++) {
        const uint32_t n = t->n[t->size[i]];
        double trunk = 0, behind = 0;
        for (int u = 0; u < t->units; u++)
            for (int p = 0; p < ECHI_PASSES; p++) *(u < t->cut ? &trunk : &behind) += unit_seconds(job, u, (enum echi_pass)p, (int)n);
        if (fabs(echi_times_trunk(t, n) - trunk) > 1e-4 * trunk + 25e-6) fail_msg("a trunk takes %g, measured %g", trunk, t->trunk[0]);
        for (int u = 0; u < t->units; u++)
            for (int p = 0; p < ECHI_PASSES; p++) {
                const double side = u < t->cut ? echi_times_trunk(t, n) / trunk : echi_times_head(t, n) / behind;
                const double expected = side * unit_seconds(job, u, (enum echi_pass)p, (int)n);
                const double got = echi_times_unit(t, u, (enum echi_pass)p, n);
                if (!(fabs(got - expected) <= 1e-3 * expected))
                    fail_msg("unit %d, pass %d, %u samples: %g s, it took %g", u, p, n, got, expected);
            }
    }
}

static void measure(const char *model_text, double so_much_longer) {
    static const struct ech_data_callback read = {1, 8, 8, 4, 256, 0, blank, NULL, "none"};
    struct ech_config config;
    struct ech_error err = {0};
    ech_model *model;
    ech_data *data;
    struct echi_job job;
    struct echi_device *device;
    longer = so_much_longer;
    ech_config_init(&config);
    assert_int_equal(ech_model_parse(model_text, strlen(model_text), "known", &model, &err), ECH_OK);
    assert_int_equal(ech_data_from_callback(&read, &data, &err), ECH_OK);
    assert_int_equal(echi_job_make(model, data, &config, &job, &err), ECH_OK);
    assert_int_equal(echi_device_open("cpu", 1, &device, &err), ECH_OK);
    cut = job.border[job.cut_params].layer;
    n_heads = 0;
    if (echi_measure(&job, device, slow, NULL, (struct echi_cost_io){2.5e-6, 1e-10}, &found, &err) != ECH_OK) fail_msg("%s", err.text);
    if (swing == 0 && quota == 0 && slow == 1) units_are_known(&job, &found);
    echi_device_close(device);
    ech_data_destroy(data);
    ech_model_destroy(model);
}

static void units_take_what_they_take(void **state) {
    (void)state;
    measure(text, 1);
    measure(no_cut, 1);
}

/* Then the steps that are timed are those whose units are watched. */
static void those_of_long_steps_too(void **state) {
    (void)state;
    measure(text, 50);
    measure(text, 1000);   /* and few sizes are tried */
}

/* Of two or three steps the standard deviation is 1.15 to 1.42 swings, of many the middle half is two swings wide. */
static void steps_vary(void **state) {
    (void)state;
    measure(no_cut, 1000);
    assert_true(found.count < 3 && found.jitter < 1e-3);
    swing = 0.05;
    measure(no_cut, 1000);
    if (found.count > 2 || !(found.jitter > 1.1 * swing && found.jitter < 1.45 * swing))
        fail_msg("few steps, %u sizes: a jitter of %g", found.count, found.jitter);
    measure(no_cut, 1);
    if (!(found.jitter > 1.3 * swing && found.jitter < 1.6 * swing)) fail_msg("many steps: a jitter of %g", found.jitter);
    swing = 0.8;
    measure(no_cut, 1000);   /* stutters, then */
    assert_true(found.jitter > 0.1 && found.jitter < 0.2 && found.stutter == 0);
    swing = 0;
}

/* Short steps are measured at sizes between whole vectors, too. */
static void sizes_follow_steps(void **state) {
    (void)state;
    measure(no_cut, 1);
    assert_int_equal(found.n[0], 8);
    assert_int_equal(found.n[1], 12 % found.block == 0 ? 12 : 16);
    measure(no_cut, 1000);
    assert_int_equal(found.n[1], 16);
}

/* Of a processor that is one's own by halves steps take twice as long, whether they are shorter than the half or not: also where no control
 * group says so. Then others have the other half. */
static void a_quota_is_its_share(void **state) {
    static const double lengths[] = {1, 20};
    (void)state;
    for (int i = 0; i < 2; i++) {
        measure(text, lengths[i]);
        const struct echi_times whole = found;
        quota = 4000000;
        measure(text, lengths[i]);
        quota = 0;
        for (uint32_t k = 0; k < found.count && k < whole.count; k++) {
            const double ratio = echi_times_whole(&found, found.n[k]) / echi_times_whole(&whole, found.n[k]);
            if (!(ratio > 1.88 && ratio < 2.12)) fail_msg("%u samples: %g times as long", found.n[k], ratio);
        }
        assert_true(found.machine.id != 0 && found.machine.id == whole.machine.id && found.machine.takes == ECHI_PROCESSOR);
        assert_int_equal(found.machine.processors, echi_cpu_allowed());
        if (!(whole.machine.crowd < 1.01 && found.machine.crowd > 1.88 && found.machine.crowd < 2.12))
            fail_msg("alone %g, then %g times as long as the processor takes", whole.machine.crowd, found.machine.crowd);
    }
}

/* Whoever plays a slow node sleeps between its units: it takes a part of a processor, and its messages, which another thread sends,
 * take as long as ever. */
static void a_slow_node_sleeps(void **state) {
    (void)state;
    measure(text, 20);
    const struct echi_times whole = found;
    slow = 4;
    measure(text, 20);
    slow = 1;
    for (uint32_t k = 0; k < found.count && k < whole.count; k++) {
        const double ratio = echi_times_whole(&found, found.n[k]) / echi_times_whole(&whole, found.n[k]);
        if (!(ratio > 3.99 && ratio < 4.01)) fail_msg("%u samples: %g times as long", found.n[k], ratio);
    }
    assert_true(found.machine.takes == ECHI_PROCESSOR / 4 && found.machine.crowd >= 1 && found.machine.crowd < 1.01);
    const double copies = (found.exchange - found.add) / (whole.exchange - whole.add);
    assert_true(fabs(found.messages / whole.messages - 1) < 0.01 && fabs(copies - 1) < 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(units_take_what_they_take), cmocka_unit_test(those_of_long_steps_too),
                                       cmocka_unit_test(steps_vary), cmocka_unit_test(sizes_follow_steps),
                                       cmocka_unit_test(a_quota_is_its_share), cmocka_unit_test(a_slow_node_sleeps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
