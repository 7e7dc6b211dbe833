/* SPDX-License-Identifier: Apache-2.0
 * simt.h as those who run a text see it. */
#ifndef SIMT_RUN_H
#define SIMT_RUN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
struct simt_launch {
    int groups[3], items;
    size_t shared;            /* bytes of shared memory that the launch gives a block */
    size_t shared_at;         /* where they begin: a multiple of 16 */
    bool copies_late, products_late;   /* of what goes on by itself: not at once, but when it is waited for */
    uint32_t seed;
};
/* `count` floats, zero, that kernels may use: beyond them lies memory that cannot be touched. All are freed at once. */
void *simt_array(size_t count);
void simt_free(void);
/* Whether kernels may also read [from, from + bytes): of memory that is not simt_array's. NULL, as at first: they may not. */
extern bool (*simt_reaches)(const void *from, size_t bytes);
/* Calls kernel(args) in every thread of every block. NULL, or what was done wrong: first of all in one block. */
const char *simt_run(void (*kernel)(void *args), void *args, const struct simt_launch *how);
#ifdef __cplusplus
}
#endif
#endif
