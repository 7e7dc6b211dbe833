/* SPDX-License-Identifier: Apache-2.0
 * The texts, as simt.h lets a compiler of the host have them. */
#include "texts.h"
#include "simt.h"

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function"
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include "gpu/products_f32.cu"
#include "gpu/products_sm80.cu"
#include "gpu/products_sm90.cu"
#pragma GCC diagnostic pop

#include <string.h>

#define PACKS(X) X(pack_float) X(pack_tf32) X(pack_bf16)
#define THREE(X, of) X(product_##of) X(conv_##of) X(conv_weight_##of)
#define SM80(X, of) THREE(X, of##_128x128) THREE(X, of##_64x128)
#define SM90(X, of) THREE(X, wgmma_##of##_128x128) X(product_wgmma_##of##_128x256)
#define PRODUCTS(X) SM80(X, float) SM80(X, tf32) SM80(X, bf16) SM90(X, tf32) SM90(X, bf16)
#define AT(type, i) (*(type *)v[i])
#define CALL_PACK(name)                                                             \
    static void call_##name(void *values) {                                         \
        void **v = values;                                                          \
        name(AT(const float *, 0), AT(unsigned *, 1), AT(struct echi_pack, 2));     \
    }
#define CALL_PRODUCT(name)                                                                                                              \
    static void call_##name(void *values) {                                                                                             \
        void **v = values;                                                                                                              \
        name(AT(const unsigned *, 0), AT(const unsigned *, 1), AT(const float *, 2), AT(float *, 3), AT(int, 4), AT(int, 5), AT(int, 6), \
             AT(int, 7), AT(struct echi_put, 8), AT(struct echi_gather, 9));                                                            \
    }
PACKS(CALL_PACK)
PRODUCTS(CALL_PRODUCT)
static const struct text_kernel kernels[] = {
#define POINTER sizeof(void *)
#define PACK_ENTRY(name) {#name, 3, {POINTER, POINTER, sizeof(struct echi_pack)}, call_##name},
#define PRODUCT_ENTRY(name)                                                                                                 \
    {#name, 10, {POINTER, POINTER, POINTER, POINTER, sizeof(int), sizeof(int), sizeof(int), sizeof(int), sizeof(struct echi_put), \
                 sizeof(struct echi_gather)}, call_##name},
    PACKS(PACK_ENTRY) PRODUCTS(PRODUCT_ENTRY)
};

const struct text_kernel *text_kernel_at(int i) { return i >= 0 && (size_t)i < sizeof kernels / sizeof kernels[0] ? &kernels[i] : NULL; }

const struct text_kernel *text_kernel(const char *name) {
    for (int i = 0; text_kernel_at(i) != NULL; i++)
        if (strcmp(kernels[i].name, name) == 0) return &kernels[i];
    return NULL;
}
