/* SPDX-License-Identifier: Apache-2.0
 * Micro-batches: the parts of a step that go through a separate head one by one (Huang et al., "GPipe", NeurIPS 2019, arXiv 1811.06965,
 * section 2). They are ranges of a lease, as long as each other but for a sample; under --deterministic but for a reduction block, so that
 * cutting a step changes no bit. */
#include "echi_lease.h"

static uint32_t unit_of(const struct echi_plan *plan) { return plan->deterministic ? ECHI_REDUCTION_BLOCK : 1; }
static uint32_t units_of(const struct echi_plan *plan, uint32_t n) { return (n + unit_of(plan) - 1) / unit_of(plan); }

int echi_micro_count(const struct echi_plan *plan, uint32_t n) {
    const uint32_t units = units_of(plan, n);
    return plan->micro_batches == 0 ? 1 : units < plan->micro_batches ? (int)units : plan->micro_batches;
}

uint32_t echi_micro_most(const struct echi_plan *plan, uint32_t n) {
    if (plan->micro_batches == 0) return n;
    const uint32_t units = units_of(plan, n), each = (units + plan->micro_batches - 1) / plan->micro_batches * unit_of(plan);
    return each < n ? each : n;
}

int echi_lease_micros(const struct echi_plan *plan, const struct echi_lease *lease) {
    return lease->again ? 1 : echi_micro_count(plan, lease->n);
}

struct echi_lease echi_lease_micro(const struct echi_plan *plan, const struct echi_lease *lease, int micro) {
    const uint64_t units = units_of(plan, lease->n), count = (uint64_t)echi_lease_micros(plan, lease);
    const uint32_t first = (uint32_t)(units * (uint64_t)micro / count) * unit_of(plan);
    const uint32_t end = (uint32_t)(units * ((uint64_t)micro + 1) / count) * unit_of(plan);
    struct echi_lease out = *lease;
    out.start += first;
    out.n = (end < lease->n ? end : lease->n) - first;
    return out;
}

int echi_plan_row_places(const struct echi_plan *plan) { return plan->micro_batches ? 2 : 1; }
