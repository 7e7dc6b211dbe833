/* SPDX-License-Identifier: Apache-2.0
 * Loans of payloads that stay on their node. */
#include "echi_loan.h"

#include <string.h>

bool echi_lends(const struct echi_plan *plan, int from, int to, enum echi_kind kind) {
    const bool by_part = echi_plan_grads_in_weights(plan) || plan->exchange == ECHI_EXCHANGE_RING;   /* each is read by one task */
    if (from != to) return false;
    return kind == ECHI_KIND_PUSH ? plan->shards == 0 || by_part : kind == ECHI_KIND_WEIGHTS && plan->shards == 0;
}

enum echi_role echi_lender_role(enum echi_kind kind) { return kind == ECHI_KIND_PUSH ? ECHI_ROLE_WORKER : ECHI_ROLE_OWNER; }

void echi_loans_init(struct echi_loans *l, int rank) {
    memset(l, 0, sizeof *l);
    l->rank = (uint16_t)rank;
}

/* Which of the loans is kept for this slot; ECHI_LOANS: none, it never borrows. The push has the last. */
static int number_of(const struct echi_loans *l, struct echi_slot slot) {
    const bool of_weights = slot.kind == ECHI_SLOT_WORKER_WEIGHTS || slot.kind == ECHI_SLOT_WORKER_COMING;
    if (slot.kind == ECHI_SLOT_OWNER_GRADS && slot.index == l->rank) return ECHI_WORKER_PLACES;
    return of_weights && slot.index < ECHI_WORKER_PLACES ? slot.index : ECHI_LOANS;
}

/* Reads nothing that the second message of a loan writes: a task that has the first may be at work then. */
static bool borrows(const struct echi_loans *l, struct echi_slot slot) {
    const int i = number_of(l, slot);
    return i < ECHI_LOANS && slot.kind != ECHI_SLOT_NONE && l->loan[i].borrower.kind == slot.kind;
}

void echi_loans_begin(struct echi_loans *l, enum echi_kind kind, struct echi_slot borrower, struct echi_slot lender) {
    const int i = number_of(l, borrower);
    if (i == ECHI_LOANS) return;
    struct echi_loan *loan = &l->loan[i];
    if (loan->messages++ > 0) return;
    loan->borrower = borrower;
    loan->lender = lender;
    loan->kind = (uint8_t)kind;
}

struct echi_loan echi_loans_end(struct echi_loans *l, struct echi_slot posted) {
    if (!borrows(l, posted)) return (struct echi_loan){0};
    struct echi_loan *loan = &l->loan[number_of(l, posted)];
    const struct echi_loan ended = *loan;
    *loan = (struct echi_loan){0};
    return ended;
}

struct echi_slot echi_loans_slot(const struct echi_loans *l, struct echi_slot slot) {
    return borrows(l, slot) ? l->loan[number_of(l, slot)].lender : slot;
}
