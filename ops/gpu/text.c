/* SPDX-License-Identifier: Apache-2.0
 * The kernels in the archive: the text of kernels.cl with all that it includes, as the Makefile has put it together, and what compilers
 * have made of it for CUDA. */
#include "echi_gpu.h"
#include "echi_gpu_products.h"

#if !defined ECHI_WITHOUT_cuda && !defined ECHI_STATIC
extern const unsigned char echi_image_kernels_fatbin[], echi_image_kernels_fatbin_end[];
extern const unsigned char echi_image_kernels_ptx[], echi_image_kernels_ptx_end[];
/* Of a text for NVIDIA's cards alone there is what nvcc makes of it, and nothing else. */
#define PRODUCTS(file)                                                                                                     \
    extern const unsigned char echi_image_##file##_fatbin[], echi_image_##file##_fatbin_end[];                             \
    static const struct echi_image images_##file[] = {                                                                     \
        {"cuda", "nvcc's image", echi_image_##file##_fatbin, echi_image_##file##_fatbin_end}, {0}};                        \
    static const struct echi_source file = {.name = #file ".cu", .images = images_##file};
static const struct echi_image images[] = {{"cuda", "nvcc's image", echi_image_kernels_fatbin, echi_image_kernels_fatbin_end},
                                           {"cuda", "clang's PTX", echi_image_kernels_ptx, echi_image_kernels_ptx_end},
                                           {0}};
#define IMAGES images
#else
static const struct echi_image none[] = {{0}};
#define PRODUCTS(file) static const struct echi_source file = {.name = #file ".cu", .images = none};
#define IMAGES NULL
#endif
PRODUCTS(products_f32)
PRODUCTS(products_sm80)
PRODUCTS(products_sm90)

const struct echi_source echi_gpu_source = {
    .name = "kernels.cl",
    .text =
#include "kernels.inc"
        ,
    .images = IMAGES,
};
const struct echi_source echi_gpu_source_cpu = {
    .name = "kernels.cl",
    .text = "#define CPU\n"
#include "kernels.inc"
        ,
};
const struct echi_source *const echi_gpu_product_sources[] = {
    [ECHI_PRODUCT_F32] = &products_f32, [ECHI_PRODUCT_SM80] = &products_sm80, [ECHI_PRODUCT_SM90] = &products_sm90};
