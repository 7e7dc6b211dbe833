/* SPDX-License-Identifier: Apache-2.0
 * Which tensor of a file is which of the model's, when their names are not the model's own: PyTorch's "layer1.0.conv1.weight". */
#ifndef ECHI_TENSOR_MATCH_H
#define ECHI_TENSOR_MATCH_H
#include "echi_model.h"
#include "echi_print.h"

#define ECHI_TENSOR_DIMS 8 /* dimensions that are kept; ours have up to 4 */

/* What a tensor is called, and its shape. */
struct echi_tensor_form { char name[120]; uint64_t shape[ECHI_TENSOR_DIMS]; int dims; };

/* Safetensors files have their tensors in no order of the net, so only names tell it. The rules, none of which guesses:
 *   - The tensors of a layer have one name up to the last '.', then weight, bias, running_mean or running_var.
 *   - A layer fits a layer of the model with the same tensors of the same shapes. Among those of one shape the numbers in the
 *     names decide: "features.3" is before "features.10", "layer1.1.conv2" before "layer2.0.conv1".
 *   - A batch-norm may go with its convolution instead: "bn2" with "conv2", "downsample.1" with "downsample.0".
 *   - Names that differ in letters alone tell no order: two layers of one shape, so named, are refused. And so are names whose
 *     numbers contradict the order of the model's layers.
 * Fills match[i], the index in `file` of what own[i], the model's, is loaded from. False: `why` says it in a clause. */
bool echi_match_order(const struct ech_model *model, const struct echi_tensor_form *const *own, const struct echi_tensor_form *const *file,
                      int n, int *match, char *why, size_t why_cap);

bool echi_same_shape(const struct echi_tensor_form *a, const struct echi_tensor_form *b);
void echi_print_shape(struct echi_print *p, const struct echi_tensor_form *form); /* "[16,6,5,5]" */
#endif
