/* SPDX-License-Identifier: Apache-2.0
 * Which kernel computes a product of a layer on an NVIDIA card, and all that its launch needs. Pure: nothing is opened or allocated. */
#ifndef ECHI_GPU_PRODUCTS_H
#define ECHI_GPU_PRODUCTS_H
#include "echi_gpu_packed.h"
#include "echi_gpu_window.h"

#include <stdbool.h>
#include <stddef.h>

enum echi_product_op {
    ECHI_PRODUCT_MATRIX,                /* a fully connected layer's, in any direction */
    ECHI_PRODUCT_CONV_FORWARD, ECHI_PRODUCT_CONV_BACKWARD_WEIGHT, ECHI_PRODUCT_CONV_BACKWARD_INPUT
};
/* What numbers may be rounded to before they are multiplied; sums are float. What is allowed, not what must be. */
enum echi_product_precision { ECHI_PRODUCT_FLOAT, ECHI_PRODUCT_TF32, ECHI_PRODUCT_BF16 };

/* Numbers that there is room for: of what is packed of A and of B, and of parts of sums. */
struct echi_product_room { size_t a, b, parts; };

/* C = A B, with numbers of A row_a apart along its rows and k_a along k, and those of B likewise (as in products.cl); or a
 * convolution's, whose sizes `window` has. */
struct echi_product {
    enum echi_product_op op;
    enum echi_product_precision precision;
    bool bias;                          /* along the columns of a matrix, the output channels of a convolution: forward only */
    int rows, cols, depth;              /* a matrix's */
    int row_a, k_a, k_b, col_b;
    struct echi_window window;          /* a convolution's */
    const struct echi_product_room *room;   /* which the plan keeps within; NULL: it takes what it takes */
};
enum echi_product_text { ECHI_PRODUCT_PORTABLE, ECHI_PRODUCT_F32, ECHI_PRODUCT_SM80, ECHI_PRODUCT_SM90 };
struct echi_product_card {
    int major, minor;                   /* compute capability; major 0: no NVIDIA card, or none that is known */
    int units;                          /* multiprocessors */
    int shared_most;                    /* bytes of shared memory that a block may ask for */
    unsigned lacks;                     /* texts, bit 1 << text each, of which there is no machine code for it that computes rightly */
};
struct echi_product_pack {
    char kernel[16];                    /* (numbers, words, struct echi_pack) */
    struct echi_pack how;
    int groups;                         /* along x, of ECHI_PACK_ITEMS */
    size_t words;                       /* of 4 bytes, that it writes */
};
#define ECHI_PACK_ITEMS 256

/* For ECHI_PRODUCT_PORTABLE only `text` and `why` are set: products.cl, as gpu_stack.c launches it. Else: pack both operands, then launch
 * kernel(a, b, bias, to, rows, cols, words, slice, put, gather), `to` being the result or, with several parts, room for that many; which
 * sum_parts of products.cl then adds up. */
struct echi_product_plan {
    enum echi_product_text text;
    char kernel[40];
    struct echi_product_pack a, b;      /* a: of A, dy or the weights; b: of B, x or dy */
    int rows, cols, words, slice, parts;
    struct echi_put put;
    struct echi_gather gather;
    int groups[3], items;
    int shared;                         /* bytes of shared memory that the launch gives a block */
    char why[200];                      /* not a faster text; "" when there is none */
};
/* Which text has the kernels that pack for one: products_sm90.cu has none, as its words are those of products_sm80.cu. */
static inline enum echi_product_text echi_product_packs(enum echi_product_text text) {
    return text == ECHI_PRODUCT_SM90 ? ECHI_PRODUCT_SM80 : text;
}
/* To divide numbers below 2^31 by d >= 1. */
struct echi_divisor echi_divisor_of(int d);
/* Sizes are positive, and no operand or result has more than INT32_MAX numbers (gpu_stack.c sees to both). */
void echi_product_choose(const struct echi_product *product, const struct echi_product_card *card, struct echi_product_plan *out);
#endif
