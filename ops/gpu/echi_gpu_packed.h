/* SPDX-License-Identifier: Apache-2.0
 * What the products of NVIDIA's tensor cores are told. Host and kernels include this text: ints only, so both lay it out alike.
 *
 * Tensor cores take words of 32 bits: one number rounded to TF32, or two to bfloat16. Matrices are packed into such words once, before
 * they are multiplied, and from then on nothing asks which precision it is, but the instruction. */
#ifndef ECHI_GPU_PACKED_H
#define ECHI_GPU_PACKED_H
#include "echi_gpu_window.h"
#define ECHI_PACKED_ROWS 128   /* of a tile */
#define ECHI_PACKED_WORDS 32   /* of a row of a tile: 128 bytes, all banks of shared memory */

/* A matrix of words out of numbers that lie elsewhere. Of word (r, w), with N numbers a word, number e is
 *     from[r / row_inner * row_outer + r % row_inner * row_step + w / word_inner * word_outer + w % word_inner * word_step + e * part_step]
 * The numbers of a word follow each other along one of these four: there are `bound` numbers along it, and beyond them a word has zeros. */
enum echi_pack_along { ECHI_PACK_ROW_OUTER, ECHI_PACK_WORD_OUTER, ECHI_PACK_WORD_INNER };
struct echi_pack {
    int rows, words;
    int row_inner, row_outer, row_step;
    int word_inner, word_outer, word_step;
    int along, part_step, bound;
    int stride;                /* words between rows of the result, which are 0 from `words` on; 0: in tiles, which are 0 beyond both */
    struct echi_divisor by_row_inner, by_word_inner, by_across;   /* across: blocks side by side, of 32 words of the result */
};

/* Where the words of an image lie that a convolution multiplies: those that its kernel covers. A *place* is (sample, row, column) of the
 * map that the sums, or their factors, are of; a *tap* is (row, column) of the kernel. The two add up to a row and a column of the image;
 * where the image is the smaller map (a stride, backward) both are divided, and there is a word only where that leaves nothing. */
struct echi_gather {
    int places_h, places_w, sample_step;
    int mul_h, mul_w, add_h, add_w;   /* row of the image = row of the place * mul + add + row of the tap * sign */
    int kernel_h, kernel_w, sign;
    int divide_h, divide_w;
    int in_h, in_w, in_step;          /* of the image; words from one column to the next */
    struct echi_divisor by_places, by_places_w, by_kernel, by_kernel_w, by_divide_h, by_divide_w, by_in_step;   /* of maps: h times w */
};

/* Where sum (row, col) goes: to[col / inner * outer + col % inner + row * row_step]; and the bias it has: none, its row's, its column's. */
enum echi_put_bias { ECHI_PUT_PLAIN, ECHI_PUT_BIAS_OF_ROW, ECHI_PUT_BIAS_OF_COL };
struct echi_put { int inner, outer, row_step, bias; };
#endif
