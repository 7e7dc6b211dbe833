/* SPDX-License-Identifier: Apache-2.0
 * All kernels, as one text: the Makefile puts what is included in place, and the whole into the archive. */
#include "prelude.cl"
#include "echi_gpu_window.h"
#include "numbers.cl"
#include "products.cl"
#include "each.cl"
#include "pools.cl"
#include "norm.cl"
#include "loss.cl"
