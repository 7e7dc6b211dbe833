/* SPDX-License-Identifier: Apache-2.0
 * Stacks that take turns in one thread: the threads of a GPU's block, in tests. A switch asks nothing of the system, as swapcontext does
 * twice, nor of a sanitizer, as longjmp would. */
#ifndef SWITCH_H
#define SWITCH_H
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* What switch_to takes to begin `start` on this stack: `bytes` of them, a multiple of 16, aligned to 16. `start` never returns. */
void *switch_begin(void *stack, size_t bytes, void (*start)(void));
/* Leaves this stack, keeps in *left where to take it up, and goes on with another. */
void switch_to(void **left, void *take);
/* What was left on this stack never goes on: all of it may be written again. */
void switch_end(void *stack, size_t bytes);
#ifdef __cplusplus
}
#endif
#endif
