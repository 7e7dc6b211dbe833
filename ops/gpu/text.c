/* SPDX-License-Identifier: Apache-2.0
 * The kernels in the archive: the text of kernels.cl with all that it includes, as the Makefile has put it together, and what compilers
 * have made of it for CUDA. */
#include "echi_gpu.h"

#if !defined ECHI_WITHOUT_cuda && !defined ECHI_STATIC
extern const unsigned char echi_image_kernels_fatbin[], echi_image_kernels_fatbin_end[];
extern const unsigned char echi_image_kernels_ptx[], echi_image_kernels_ptx_end[];
static const struct echi_image images[] = {{"cuda", "nvcc's image", echi_image_kernels_fatbin, echi_image_kernels_fatbin_end},
                                           {"cuda", "clang's PTX", echi_image_kernels_ptx, echi_image_kernels_ptx_end},
                                           {0}};
#define IMAGES images
#else
#define IMAGES NULL
#endif

const struct echi_source echi_gpu_source = {
    .text =
#include "kernels.inc"
        ,
    .images = IMAGES,
};
const struct echi_source echi_gpu_source_cpu = {
    .text = "#define CPU\n"
#include "kernels.inc"
        ,
};
