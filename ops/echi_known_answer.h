/* SPDX-License-Identifier: Apache-2.0
 * Known answers: small problems that a device computes before anybody trusts it. */
#ifndef ECHI_KNOWN_ANSWER_H
#define ECHI_KNOWN_ANSWER_H
#include "echi_stack_impl.h"

/* Every op of a stack, forward (training, and evaluating) and backward, the loss, layers that often run as one, and the arithmetic on flat
 * ranges that every optimiser needs, on numbers that are the same everywhere. Each array must be what ops/ref makes of them on the CPU,
 * within ECHI_KNOWN_TOLERANCE of its largest number; by kernels that round what they multiply, and on single layers alone, within
 * ECHI_KNOWN_ROUNDINGS of theirs more. `impl`: whose kernels are tried (problems whose layers it refuses are left out);
 * NULL: those that a run takes unless told otherwise. *out_tried (may be NULL): problems whose answers were right, also on failure.
 * Takes milliseconds on a CPU. One thread at a time on a device.
 * ECH_E_UNSUPPORTED: the device computes wrongly; err->layer is the op, and the sentence says what of it. Else what the device fails
 * with. */
#define ECHI_KNOWN_TOLERANCE 2e-4   /* F(4x4, 3x3) has 5e-5, everything else 1e-5 */
#define ECHI_KNOWN_ROUNDINGS 4      /* of two factors each: bf16 and TF32 have 1.1 */
ech_status echi_known_answers(struct echi_device *device, const struct echi_stack_impl *impl, int *out_tried, struct ech_error *err);
#endif
