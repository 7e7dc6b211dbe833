/* SPDX-License-Identifier: Apache-2.0
 * A CUDA card for test_gpu_texts and bench_gpu_texts, by the driver alone: memory that host and card both address, images of the texts of
 * ops/gpu, launches. What fails ends the program with a sentence. One thread. */
#ifndef CARD_H
#define CARD_H
#include "gpu/echi_gpu_products.h"

struct card_launch { int groups[3], items, shared; };
/* False, with the reason in *why, where there is no card or no driver. Images are files in `folder`, of the build:
 * kernels.fatbin, which is the portable text's, products_f32.fatbin, ... */
bool card_open(const char *folder, struct echi_product_card *out, const char **why);
void *card_array(size_t count);         /* `count` floats, zero; all are freed at once */
void card_free(void);
/* Launches a kernel of a text with these parameters; card_finish waits. */
void card_launch(enum echi_product_text text, const char *kernel, void **parameters, const struct card_launch *how);
void card_finish(void);
/* Seconds that `work(context)`, which only launches, takes on the card: the least of `rounds`. */
double card_time(void (*work)(void *context), void *context, int rounds);
#endif
