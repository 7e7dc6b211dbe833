/* SPDX-License-Identifier: Apache-2.0
 * The table of one instruction set. */
#include "echi_vec.h"

#include <limits.h>

#define TEXT2(isa) #isa
#define TEXT(isa) TEXT2(isa)

#ifdef ECHI_WIDE
#define PACKED(name) ISA(packed_##name)
#else
#define PACKED(name) ISA(name)
#endif
/* x4 and x2: no Winograd, since whoever would take it has no use for the table. */
#if defined(ECHI_WIDE) && !defined(ECHI_EIGHTS)
#define WINOGRAD(name) NULL
#else
#define WINOGRAD(name) ISA(name)
#endif

const struct echi_cpu_kernels ISA(kernels) = {
    .name = TEXT(ECHI_ISA),
    .width = VEC_FLOATS,
    .most_outputs = VEC_REGISTERS == 32 ? 5 : 4,
    .most_taps = VEC_REGISTERS == 32 ? 5 : 3,
#ifdef ECHI_WIDE
    .wide = &ISA_JOIN(echi_cpu_kernels, ECHI_WIDE),
    .most_vectors = INT_MAX,
#else
    .wide = &ISA(kernels),
    .most_vectors = VEC_REGISTERS == 32 ? 4 : 2,
#endif
#ifdef ECHI_NARROW
    .narrow = &ISA_JOIN(echi_cpu_kernels, ECHI_NARROW),
#endif
#ifdef ECHI_HALF
    .half = &ISA_JOIN(echi_cpu_kernels, ECHI_HALF),
#endif
    .matrix_rows = VEC_MATRIX_ROWS,
    .matrix_columns = VEC_MATRIX_VECTORS * VEC_FLOATS,
    .product = PACKED(product),
    .conv_row = PACKED(conv_row),
    .matrix_pack_rows = ISA(matrix_pack_rows),
    .matrix_pack_columns = ISA(matrix_pack_columns),
    .matrix_panel = ISA(matrix_panel),
    .outer = PACKED(outer),
    .winograd_input = WINOGRAD(winograd_input),
    .winograd_output = WINOGRAD(winograd_output),
    .winograd_weights = WINOGRAD(winograd_weights),
    .winograd_grad = WINOGRAD(winograd_grad),
    .winograd_weights_grad = WINOGRAD(winograd_weights_grad),
    .reduce = ISA(reduce),
    .to_vectors = ISA(to_vectors),
    .to_rows = ISA(to_rows),
    .relu = ISA(relu),
    .relu_back = ISA(relu_back),
    .tanh = ISA(tanh),
    .tanh_back = ISA(tanh_back),
    .plus = ISA(plus),
    .times = ISA(times),
    .norm_sum = ISA(norm_sum),
    .norm_squares = ISA(norm_squares),
    .norm = ISA(norm),
    .norm_back_sums = ISA(norm_back_sums),
    .norm_back = ISA(norm_back),
    .relu_pool = ISA(relu_pool),
    .relu_pool_back = ISA(relu_pool_back),
    .max_pool = ISA(max_pool),
    .max_pool_back = ISA(max_pool_back),
    .avg_pool = ISA(avg_pool),
    .avg_pool_back = ISA(avg_pool_back),
    .softmax_loss = ISA(softmax_loss),
    .descend = ISA(descend),
    .adam = ISA(adam),
    .add = ISA(add),
    .add_scaled = ISA(add_scaled),
    .finite = ISA(finite),
    .count_from = ISA(count_from),
    .to_bf16 = ISA(to_bf16),
    .from_bf16 = ISA(from_bf16),
};
