/* SPDX-License-Identifier: Apache-2.0
 * Loans: pushes and weights that stay on their node are not copied. loan.c; every driver, live or simulated, asks here.
 *
 * A node lends the payload of such a message: from the MESSAGE on, the receiver's slot stands for the sender's memory, and the sender's
 * SENT is held back until the receiver posts that slot again, for whomever. So SENT has one meaning everywhere: nobody reads the slot any
 * more. The receiver of weights only reads. The receiver of a push may write (ADD, enum echi_task_kind): its sender needs the gradients
 * no more.
 *
 * No role waits in a ring for such a SENT. The owner posts the slot of a push again when its task is over, and that task waits for no
 * worker of the node. The worker posts the slot of weights again when the next weights are there, and the owner has a snapshot for each
 * copy that its own worker may hold (ECHI_SNAPSHOTS). */
#ifndef ECHI_LOAN_H
#define ECHI_LOAN_H
#include "echi_message.h"
#include "echi_task.h"

/* Messages of one push, or of one answer: they are lent from one slot, and come back together. messages 0: nothing is lent, and the
 * borrower is no slot. Only the count changes while tasks may read the rest. */
struct echi_loan { struct echi_slot borrower, lender; uint8_t kind; uint16_t messages; };
/* Those of one node, by the slot that borrows: OWNER_GRADS [rank]; WORKER_WEIGHTS, or coded WORKER_COMING, by index. */
#define ECHI_LOANS (ECHI_WORKER_PLACES + 1)
struct echi_loans { uint16_t rank; struct echi_loan loan[ECHI_LOANS]; };

/* Is the payload of such a message lent under this plan? Else it is copied: where there are several shards, weights of other owners come to
 * the same place. */
bool echi_lends(const struct echi_plan *plan, int from, int to, enum echi_kind kind);
/* The role that sent it, and hears that it is sent. */
enum echi_role echi_lender_role(enum echi_kind kind);

void echi_loans_init(struct echi_loans *loans, int rank);
/* A message that is lent is about to be given to its receiver: `borrower` is the slot that was posted for it, `lender` where it is. */
void echi_loans_begin(struct echi_loans *loans, enum echi_kind kind, struct echi_slot borrower, struct echi_slot lender);
/* This slot is posted, for anyone. So many messages as the answer says are sent now: a SENT for each, of its kind, from `lender`. */
struct echi_loan echi_loans_end(struct echi_loans *loans, struct echi_slot posted);
/* The slot whose memory this one stands for: itself, unless it borrows. Any thread that was given a task with that slot. */
struct echi_slot echi_loans_slot(const struct echi_loans *loans, struct echi_slot slot);
#endif
