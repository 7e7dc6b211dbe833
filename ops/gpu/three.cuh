/* SPDX-License-Identifier: Apache-2.0
 * The three kinds of B, for one precision and one size of a tile: NAME(product) is the kernel's name. */
#define B_WORDS ECHI_PACKED_WORDS   /* packed: fully connected layers */
#define PRODUCT NAME(product)
#include THE_PRODUCT
#undef B_WORDS

#define B_WORDS 4                   /* an image, its channels side by side: convolutions forward, and backward to their input */
#define B_ROW(i) place_of(gather, i)
#define B_WORD(k) tap_of_word(gather, k)
#define PRODUCT NAME(conv)
#include THE_PRODUCT
#undef B_WORDS
#undef B_ROW
#undef B_WORD

#define B_WORDS 1                   /* an image, its columns side by side: gradients of a convolution's weights, summed over places */
#define B_ROW(i) tap_of_number(gather, i)
#define B_WORD(k) place_of(gather, k)
#define PRODUCT NAME(conv_weight)
#include THE_PRODUCT
#undef B_WORDS
#undef B_ROW
#undef B_WORD
