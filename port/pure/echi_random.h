/* SPDX-License-Identifier: Apache-2.0
 * Counter-based randomness: every number is a pure function of (seed, stream, counter), never of call order,
 * thread or rank. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). */
#ifndef ECHI_RANDOM_H
#define ECHI_RANDOM_H
#include <stdint.h>

/* What a number is for; keeps streams of one seed apart. Values are part of what a seed means: append only. */
enum echi_stream { ECHI_STREAM_INIT = 1, ECHI_STREAM_SHUFFLE = 2, ECHI_STREAM_GLYPHS = 3, ECHI_STREAM_DROPOUT = 4, ECHI_STREAM_SAMPLE = 5,
                   ECHI_STREAM_STEP_TIME = 6, ECHI_STREAM_LOSS = 7, ECHI_STREAM_PREDICT = 8, ECHI_STREAM_AUGMENT = 9,
                   ECHI_STREAM_STRANGERS = 11,
                   ECHI_STREAM_TEST = 100 };

/* Four independent 32-bit words for (seed, stream, a, b). */
void echi_random4(uint64_t seed, enum echi_stream stream, uint32_t a, uint64_t b, uint32_t out[4]);

/* A convenience cursor over one stream: (seed, stream, a) fixed, b counting up. */
struct echi_random { uint64_t seed, at; uint32_t a, have, word[4]; enum echi_stream stream; };
void echi_random_init(struct echi_random *r, uint64_t seed, enum echi_stream stream, uint32_t a);
uint32_t echi_random_u32(struct echi_random *r);
double echi_random_unit(struct echi_random *r);                        /* [0, 1), 53 bits */
double echi_random_normal(struct echi_random *r);                      /* mean 0, deviation 1 (Box-Muller) */
uint32_t echi_random_below(struct echi_random *r, uint32_t bound);     /* [0, bound), unbiased; bound > 0 */

/* The image of `i` in a permutation of 0..count-1 that is fixed by (seed, epoch): a Feistel network over the next
 * power of four with cycle walking, so any place is found without storing the permutation. count 1..2^32-1, i < count. */
uint32_t echi_permute(uint64_t seed, uint32_t epoch, uint32_t count, uint32_t i);
#endif
