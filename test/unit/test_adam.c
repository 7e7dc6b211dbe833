/* SPDX-License-Identifier: Apache-2.0
 * Adam under asynchrony: the decays beta^f, what the moments weigh, and the owner's step by pushes of any weight, against the same rule
 * written out in double; a round's pushes do what the round would. */
#include "echi_random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "small_exec.h"

/* ---------------------------------------------------------------- decays */

static void powers(void **state) {
    (void)state;
    struct echi_random r;
    echi_random_init(&r, 1, ECHI_STREAM_TEST, 90);
    static const double betas[] = {0.9, 0.999, 0.5, 0.7071067811865475, 0.1, 1e-6, 0.95, ECHI_BETA_MAX};
    for (size_t b = 0; b < sizeof betas / sizeof betas[0]; b++) {
        assert_true(echi_power(betas[b], 1) == betas[b]);   /* to the last bit */
        for (int i = 0; i < 2000; i++) {
            const double f = i % 2 ? echi_random_unit(&r) * 2
                                   : (double)(1 + echi_random_below(&r, 4096)) / (double)(1 + echi_random_below(&r, 65536));
            const double is = echi_power(betas[b], f), exact = pow(betas[b], f);
            if (!(fabs(is - exact) <= 1e-15 * (1 - f * log(betas[b])) * exact) && !(exact < 1e-300 && is < 1e-300))
                fail_msg("%g^%g is %.17g, not %.17g", betas[b], f, is, exact);
            const double rest = echi_power(betas[b], f / 2);
            assert_true(fabs(rest * rest - is) <= 1e-14);
        }
    }
    assert_true(echi_power(0, 0.25) == 0 && echi_power(0, 1) == 0 && echi_power(0.5, 1e6) == 0);
}

/* What every machine and every compiler comes to: found on one of them, tried on another. */
#define BITS UINT64_C(0xbbcf5d0c9a9777b5)
static void powers_have_the_same_bits_everywhere(void **state) {
    (void)state;
    uint64_t hash = 0;
    for (int n = 1; n <= 4096; n++)
        for (int b = 0; b < 3; b++) {
            const double is = echi_power((const double[]){0.9, 0.999, 0.37}[b], n / 96.0);
            uint64_t bits;
            memcpy(&bits, &is, sizeof bits);
            hash = (hash ^ bits) * UINT64_C(0x100000001b3);
        }
    if (hash != BITS) fail_msg("other bits than everywhere else: %016llx", (unsigned long long)hash);
}

static void moments_weigh_what_was_put_in(void **state) {
    (void)state;
    const struct echi_adam adam = {0.9, 0.999, 1e-8};
    struct echi_random r;
    echi_random_init(&r, 2, ECHI_STREAM_TEST, 91);
    struct echi_adam_weights w = {0, 0};
    struct echi_adam_push push;
    double sum = 0;
    for (int i = 0; i < 3000; i++) {
        const double f = echi_random_unit(&r) * 2;
        echi_adam_take(&adam, f, &w, &push);
        sum += f;
        assert_true(fabs(push.keep1 + push.gain1 - 1) < 1e-15 && fabs(push.keep2 + push.gain2 - 1) < 1e-15);
        assert_true(fabs(w.first - (1 - pow(0.9, sum))) < 1e-13 && fabs(w.second - (1 - pow(0.999, sum))) < 1e-13);
    }
}

static void what_is_no_adam(void **state) {
    (void)state;
    const struct echi_adam good = {0.9, 0.999, 1e-8};
    assert_true(echi_adam_valid(&good) && echi_adam_valid(&(struct echi_adam){0, 0, 1}));
    for (int i = 0; i < 8; i++) {
        struct echi_adam a = good;
        double *const field[] = {&a.beta1, &a.beta2, &a.epsilon};
        if (i < 3) *field[i] = -1e-9;
        else if (i < 6) *field[i - 3] = (double)NAN;
        else *field[i - 6] = 1;
        assert_false(echi_adam_valid(&a));
    }
    assert_false(echi_adam_valid(&(struct echi_adam){0.9, 0.999, 0}) || echi_adam_valid(&(struct echi_adam){0.9, 0.999, 1.5}));
}

/* ------------------------------------------------------ the owner's step */

enum kind { WHOLE, STATES, HEAD, LOCAL, KINDS };   /* one owner; one of two; trunk and head apart; a worker of `local` by itself */

static void open_kind(enum kind kind, enum echi_optimizer optimizer) {
    begin_exec("input 1 6 6\nconv2d out 2 kernel 3\nrelu\nfc out 3\n",
               &(struct echi_plan){.sync = kind == LOCAL ? ECHI_SYNC_LOCAL : ECHI_SYNC_GSSP, .lr = 0.125, .decay = 0.25,
                                   .optimizer = (uint8_t)optimizer, .adam = {0.75, 0.875, 1e-3}}, kind == STATES);
    struct echi_plan *p = &setup.plan;
    p->inner[0] = p->inner[1] = kind == LOCAL;
    if (kind == HEAD) p->cut = (uint8_t)job.cut_params, p->head = 0, setup.cut = job.cut_params;
    open_exec();
}

static double gradient(size_t i) { return ((double)(i % 7) - 3) / 4; }
static double first_weight(size_t i) { return ((double)(i % 5) - 2) / 2; }

/* Pushes of f[0..n), each with the sum over its samples, divided by B: f times their mean. Weights end up in out. */
static void push(enum kind kind, const double *f, int n, echi_real *out) {
    echi_real *w[2] = {kind == LOCAL ? floats(ECHI_SLOT_LOCAL_WEIGHTS, 0) : floats(ECHI_SLOT_OWNER_WEIGHTS, 0), NULL};
    w[1] = kind == LOCAL ? w[0] : floats(ECHI_SLOT_OWNER_WEIGHTS, 1);
    struct echi_slot grads = {kind == LOCAL ? ECHI_SLOT_WORKER_GRADS : ECHI_SLOT_OWNER_GRADS, 0};
    for (size_t i = 0; i < job.n_params; i++) {
        w[0][i] = (echi_real)first_weight(i);
        if (kind == STATES) floats(ECHI_SLOT_OWNER_W0, 0)[i] = w[0][i], floats(ECHI_SLOT_OWNER_STATE, 0)[i] = 0;
        if (kind == HEAD) floats(ECHI_SLOT_HEAD_WEIGHTS, 0)[i] = w[0][i];
    }
    static struct echi_result result;
    for (int k = 0; k < n; k++) {
        const uint8_t from = (uint8_t)(kind == LOCAL ? 0 : k % 2), to = (uint8_t)(kind == LOCAL ? 0 : 1 - k % 2);
        struct echi_task t = {.kind = kind == LOCAL ? ECHI_TASK_LOCAL_APPLY : ECHI_TASK_APPLY,
                              .role = kind == LOCAL ? ECHI_ROLE_WORKER : ECHI_ROLE_OWNER, .grads = grads,
                              .samples = (uint32_t)(f[k] * 16), .divisor = 16, .weights = {ECHI_SLOT_OWNER_WEIGHTS, from},
                              .weights_out = {ECHI_SLOT_OWNER_WEIGHTS, to}};
        memset(t.peer, ECHI_NONE, sizeof t.peer);
        if (kind == STATES)
            t.state = (struct echi_slot){ECHI_SLOT_OWNER_STATE, from}, t.state_out = (struct echi_slot){ECHI_SLOT_OWNER_STATE, to};
        if (kind == LOCAL) {
            t.weights = t.weights_out = (struct echi_slot){ECHI_SLOT_LOCAL_WEIGHTS, 0};
            t.state = (struct echi_slot){ECHI_SLOT_LOCAL_MOMENTUM, 0};
        }
        for (size_t i = 0; i < job.n_params; i++) floats((enum echi_slot_kind)grads.kind, 0)[i] = (echi_real)(f[k] * gradient(i));
        assert_int_equal(echi_exec_run(exec, &t, &result, NULL), ECH_OK);
        if (kind != HEAD) continue;
        t.kind = ECHI_TASK_HEAD_APPLY;
        t.grads = (struct echi_slot){ECHI_SLOT_HEAD_GRADS, 0};
        t.weights = (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, from};
        t.weights_out = (struct echi_slot){ECHI_SLOT_HEAD_WEIGHTS, to};
        for (size_t i = 0; i < job.n_params; i++) floats(ECHI_SLOT_HEAD_GRADS, 0)[i] = (echi_real)(f[k] * gradient(i));
        assert_int_equal(echi_exec_run(exec, &t, &result, NULL), ECH_OK);
    }
    const int last = kind == LOCAL ? 0 : n % 2;
    memcpy(out, w[last], job.n_params * sizeof *out);
    const size_t cut = job.layer[job.cut_params].at;
    if (kind == HEAD) memcpy(out + cut, floats(ECHI_SLOT_HEAD_WEIGHTS, (uint8_t)last) + cut, (job.n_params - cut) * sizeof *out);
}

/* The rule of lib/PROTOCOL.md, "Optimisers under asynchrony", written out. */
static double written_out(const double *f, int n, size_t i, bool decoupled) {
    double w = first_weight(i), m = 0, s = 0, sum = 0;
    for (int k = 0; k < n; k++) {
        const double keep1 = pow(0.75, f[k]), keep2 = pow(0.875, f[k]), g = gradient(i) + (decoupled ? 0 : 0.25 * w);
        sum += f[k];
        m = keep1 * m + (1 - keep1) * g;
        s = keep2 * s + (1 - keep2) * g * g;
        if (decoupled) w -= f[k] * 0.125 * 0.25 * w;   /* PyTorch's order; what the step is divided by does not see w */
        w -= f[k] * 0.125 * (m / (1 - pow(0.75, sum))) / (sqrt(s / (1 - pow(0.875, sum))) + 1e-3);
    }
    return w;
}

static void pushes_of_any_weight(void **state) {
    (void)state;
    static const double f[] = {1, 0.5, 0.0625, 2.5, 0.25, 0.9375, 1, 0.125};
    enum { N = sizeof f / sizeof f[0] };
    for (int kind = 0; kind < KINDS; kind++)
        for (int decoupled = 0; decoupled < 2; decoupled++) {
            open_kind((enum kind)kind, decoupled ? ECHI_OPTIMIZER_ADAMW : ECHI_OPTIMIZER_ADAM);
            echi_real *out = calloc(job.n_params, sizeof *out);
            push((enum kind)kind, f, N, out);
            for (size_t i = 0; i < job.n_params; i++) {
                const double is = written_out(f, N, i, decoupled);
                if (!(fabs((double)out[i] - is) <= 3e-6))
                    fail_msg("kind %d, decoupled %d, [%zu] is %.9g, not %.9g", kind, decoupled, i, (double)out[i], is);
            }
            free(out);
            close_exec();
        }
}

/* Without decay, which sees the weights in between, equal pushes that make up rounds end where the rounds do. */
static void parts_do_what_rounds_do(void **state) {
    (void)state;
    static const double rounds[] = {1, 1, 1}, halves[] = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}, parts[] = {0.25, 0.75, 0.0625, 0.9375, 0.5, 0.5};
    echi_real *end[3];
    for (int way = 0; way < 3; way++) {
        open_kind(WHOLE, ECHI_OPTIMIZER_ADAM);
        setup.plan.decay = 0;
        end[way] = calloc(job.n_params, sizeof **end);
        push(WHOLE, way == 0 ? rounds : way == 1 ? halves : parts, way == 0 ? 3 : 6, end[way]);
        for (size_t i = 0; i < job.n_params; i++) {
            assert_true(fabs((double)(end[way][i] - end[0][i])) <= 1e-6);
            assert_true(gradient(i) == 0 ? end[way][i] == (echi_real)first_weight(i) : fabs((double)end[way][i] - first_weight(i)) > 0.3);
        }
        close_exec();
    }
    for (int way = 0; way < 3; way++) free(end[way]);
}

/* A worker of `local` has Adam; the owner's step is the outer one, with Nesterov's momentum and without decay,
 * and a memory of velocities alone. */
static void the_outer_step_is_none_of_adam(void **state) {
    (void)state;
    static struct echi_result result;
    open_kind(LOCAL, ECHI_OPTIMIZER_ADAM);
    setup.plan.outer_lr = 0.5;
    setup.plan.outer_momentum = 0.75;
    size_t bytes;
    echi_exec_slot(exec, (struct echi_slot){ECHI_SLOT_OWNER_MOMENTUM, 0}, &bytes);
    assert_int_equal(bytes, job.n_params * sizeof(echi_real));
    echi_exec_slot(exec, (struct echi_slot){ECHI_SLOT_LOCAL_MOMENTUM, 0}, &bytes);
    assert_true(bytes >= 2 * job.n_params * sizeof(echi_real) + sizeof(struct echi_adam_weights));
    for (size_t i = 0; i < job.n_params; i++) {
        floats(ECHI_SLOT_OWNER_WEIGHTS, 0)[i] = (echi_real)first_weight(i);
        floats(ECHI_SLOT_OWNER_SUM, 0)[i] = (echi_real)gradient(i);
    }
    struct echi_task t = {.kind = ECHI_TASK_APPLY, .role = ECHI_ROLE_OWNER, .grads = {ECHI_SLOT_OWNER_SUM, 0}, .samples = 16, .divisor = 16,
                          .weights = {ECHI_SLOT_OWNER_WEIGHTS, 0}, .weights_out = {ECHI_SLOT_OWNER_WEIGHTS, 1}};
    assert_int_equal(echi_exec_run(exec, &t, &result, NULL), ECH_OK);
    for (size_t i = 0; i < job.n_params; i++)
        assert_true(floats(ECHI_SLOT_OWNER_WEIGHTS, 1)[i] == (echi_real)(first_weight(i) - 0.5 * (1 + 0.75) * gradient(i)));
    close_exec();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers), cmocka_unit_test(powers_have_the_same_bits_everywhere), cmocka_unit_test(moments_weigh_what_was_put_in),
        cmocka_unit_test(what_is_no_adam), cmocka_unit_test(pushes_of_any_weight), cmocka_unit_test(parts_do_what_rounds_do),
        cmocka_unit_test(the_outer_step_is_none_of_adam),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
