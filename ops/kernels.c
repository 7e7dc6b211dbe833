/* SPDX-License-Identifier: Apache-2.0
 * The kernels that work on flat ranges here: those of the device's instruction set. */
#include "cpu/echi_cpu_kernels.h"
#include "ref/echi_ref.h"

#ifdef ECHI_DOUBLE   /* there are no vector kernels in double: the same operations in plain loops */
static void descend(const struct echi_cpu_descent *d, size_t count) {
    for (size_t i = 0; i < count; i++) echi_cpu_descend_one(d, i);
}
static void adam(const struct echi_cpu_descent *d, size_t count) {
    for (size_t i = 0; i < count; i++) echi_cpu_adam_one(d, i);
}
static void add(echi_real *sum, const echi_real *a, const echi_real *b, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
}
static void add_scaled(echi_real *sum, const echi_real *from, echi_real from_factor, const echi_real *x, echi_real factor, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] = from_factor * from[i] + factor * x[i];
}
static bool finite_all(const echi_real *x, size_t count) {
    bool good = true;
    for (size_t i = 0; i < count; i++) good = good && x[i] - x[i] == 0;
    return good;
}
static size_t count_from(const echi_real *x, size_t count, echi_real least) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += x[i] >= least || x[i] <= -least;
    return found;
}
static void to_bf16(uint16_t *to, const echi_real *x, size_t count) { echi_ref_to_bf16_double(count, x, to); }
static void from_bf16(echi_real *to, const uint16_t *x, size_t count) { echi_ref_from_bf16_double(count, x, to); }
const struct echi_cpu_kernels *echi_kernels(const struct echi_device *device) {
    (void)device;
    static const struct echi_cpu_kernels plain = {.descend = descend, .adam = adam, .add = add, .add_scaled = add_scaled,
                                                  .finite = finite_all, .count_from = count_from, .to_bf16 = to_bf16,
                                                  .from_bf16 = from_bf16};
    return &plain;
}
#else
const struct echi_cpu_kernels *echi_kernels(const struct echi_device *device) { return echi_cpu_kernels_for(echi_device_level(device)); }
#endif
