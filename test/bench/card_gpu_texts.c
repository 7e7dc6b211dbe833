/* SPDX-License-Identifier: Apache-2.0
 * test/ops/test_gpu_texts.c on a card. */
#define TEST_ON_CARD
#include "ops/test_gpu_texts.c"
