/* SPDX-License-Identifier: Apache-2.0
 * Runs the CUDA texts of ops/gpu on the host: every thread of a block is a context of its own, and the instructions of ops/gpu/ptx.cuh do
 * what the PTX ISA says of them (NVIDIA, "Parallel Thread Execution ISA"; sections are named in simt.c). What is executed here
 * is all of a text but the strings of assembly.
 *
 * What a processor is free to do is done in the way that shows mistakes: threads run in an order that `seed` draws, between any two points
 * where they wait for each other; what goes on by itself happens at once, or as late as it may. Shared memory is full of NaNs when a
 * block begins, and what does not lie in it or in an array named by simt_array is refused. One launch at a time. */
#ifndef SIMT_H
#define SIMT_H
#include "simt_run.h"

/* What CUDA C and ptx.cuh are elsewhere. */
extern int simt_group[3], simt_item;
#define KERNEL(items) static void
#define KERNEL_OF(items, blocks) static void
#define PTX static inline
#define FUNCTION static inline
#define GLOBAL
#define LOCAL static __attribute__((section("simt_static")))   /* filled with NaNs too */
#define GROUP(axis) simt_group[axis]
#define ITEM simt_item
#define UNROLL
#define PLAIN_LOOP
#define ALIGNED16 __attribute__((aligned(16)))
void simt_wait(void);
#define WAIT simt_wait()
unsigned ptx_shared(void);
unsigned ptx_tf32(float x);
unsigned ptx_bf16(float low, float high);
unsigned ptx_float(float x);
void ptx_load(float out[4], unsigned at);
void ptx_store(float *to, float x);
void ptx_store2(float *to, float x, float y);
void ptx_copy16(unsigned to, const void *from, int bytes);
void ptx_copy4(unsigned to, const void *from, int bytes);
void ptx_copy_commit(void);
void ptx_copy_wait(int left);
void ptx_ldmatrix(unsigned out[4], unsigned at);
void ptx_mma_tf32(float d[4], const unsigned a[4], const unsigned b[2]);
void ptx_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2]);
void ptx_barrier_init(unsigned at, int count);
void ptx_barrier_ready(void);
void ptx_barrier_arrive(unsigned at);
void ptx_barrier_expect(unsigned at, int bytes);
void ptx_barrier_wait(unsigned at, int parity);
void ptx_bulk(unsigned to, const void *from, int bytes, unsigned barrier);
void ptx_proxy_fence(void);
void ptx_wgmma_fence(void);
void ptx_wgmma_commit(void);
void ptx_wgmma_wait(int left);
static inline void ptx_settle(float *x) { (void)x; }   /* compilers here know of all that happens */
void ptx_wgmma_128_tf32(float d[64], unsigned long long a, unsigned long long b);
void ptx_wgmma_128_bf16(float d[64], unsigned long long a, unsigned long long b);
void ptx_wgmma_256_tf32(float d[128], unsigned long long a, unsigned long long b);
void ptx_wgmma_256_bf16(float d[128], unsigned long long a, unsigned long long b);
#endif
