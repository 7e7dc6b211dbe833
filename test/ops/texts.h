/* SPDX-License-Identifier: Apache-2.0
 * The kernels of the CUDA texts of ops/gpu that only NVIDIA's cards have, by name, for simt.h to run: for test_gpu_texts.c, and for the
 * driver of test/fake. */
#ifndef TEXTS_H
#define TEXTS_H
#include "simt_run.h"

#ifdef __cplusplus
extern "C" {
#endif
#define TEXT_PARAMETERS_MOST 10
struct text_kernel {
    const char *name;
    int parameters, bytes[TEXT_PARAMETERS_MOST];   /* how many, and of how many bytes each */
    void (*call)(void *values);                    /* for simt_run: an array of pointers to the parameters' values */
};
const struct text_kernel *text_kernel(const char *name);   /* NULL when there is none */
const struct text_kernel *text_kernel_at(int i);           /* NULL beyond the last */
#ifdef __cplusplus
}
#endif
#endif
