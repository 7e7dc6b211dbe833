/* SPDX-License-Identifier: Apache-2.0
 * Which operations have kernels here. A unit whose operation has none is left to the reference (cpu_reference.c). */
#include "echi_cpu_stack.h"

static const struct echi_cpu_op ops[ECHI_OPS] = {
    [ECHI_OP_CONV2D] = {"conv", echi_cpu_conv_forward, echi_cpu_conv_backward, NULL},
    [ECHI_OP_FC] = {"fc", echi_cpu_fc_forward, echi_cpu_fc_backward, echi_cpu_fc_params},
    [ECHI_OP_MAX_POOL] = {"maxpool", echi_cpu_pool_forward, echi_cpu_pool_backward, NULL},
    [ECHI_OP_AVG_POOL] = {"avgpool", echi_cpu_pool_forward, echi_cpu_pool_backward, NULL},
    [ECHI_OP_GLOBAL_AVG_POOL] = {"globalavgpool", echi_cpu_pool_forward, echi_cpu_pool_backward, NULL},
    [ECHI_OP_RELU] = {"relu", echi_cpu_activation_forward, echi_cpu_activation_backward, NULL},
    [ECHI_OP_TANH] = {"tanh", echi_cpu_activation_forward, echi_cpu_activation_backward, NULL},
    [ECHI_OP_ADD] = {"add", echi_cpu_add_forward, echi_cpu_add_backward, NULL},
    [ECHI_OP_DROPOUT] = {"dropout", echi_cpu_dropout_forward, echi_cpu_dropout_backward, NULL},
    [ECHI_OP_BATCH_NORM] = {"batchnorm", echi_cpu_norm_forward, echi_cpu_norm_backward, NULL},
};

const struct echi_cpu_op *echi_cpu_op(enum echi_op op) { return (unsigned)op < ECHI_OPS && ops[op].name ? &ops[op] : NULL; }
