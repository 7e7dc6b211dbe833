/* SPDX-License-Identifier: Apache-2.0
 * The table of one instruction set. */
#include "echi_vec.h"

#define TEXT2(isa) #isa
#define TEXT(isa) TEXT2(isa)

const struct echi_cpu_kernels ISA(kernels) = {
    .name = TEXT(ECHI_ISA),
    .width = VEC_FLOATS,
    .most_outputs = VEC_REGISTERS == 32 ? 5 : 4,
    .most_taps = VEC_REGISTERS == 32 ? 5 : 3,
    .most_vectors = VEC_REGISTERS == 32 ? 4 : 2,
    .product = ISA(product),
    .conv_row = ISA(conv_row),
    .outer = ISA(outer),
    .winograd_input = ISA(winograd_input),
    .winograd_output = ISA(winograd_output),
    .winograd_weights = ISA(winograd_weights),
    .winograd_grad = ISA(winograd_grad),
    .winograd_weights_grad = ISA(winograd_weights_grad),
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
    .finite = ISA(finite),
    .count_from = ISA(count_from),
};
