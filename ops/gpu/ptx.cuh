/* SPDX-License-Identifier: Apache-2.0
 * NVIDIA's instructions that CUDA C has no word for, each as a function: all inline assembly of this folder. On a host test/ops/simt.c
 * does what the document says that they do ("PTX ISA" of the CUDA toolkit, version 8.5: its sections are named), so that the kernels'
 * texts run there as they are. An address in shared memory is a number of 32 bits. */
#ifdef __CUDACC__
#include "prelude.cl"
#define PTX static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define PLAIN_LOOP _Pragma("unroll 1")

/* Where the block's own shared memory begins, which the launch gave it: at least 16-byte aligned. */
PTX unsigned ptx_shared(void) {
    extern __shared__ float4 shared_memory[];
    unsigned long long generic = (unsigned long long)shared_memory, at;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(generic));
    return (unsigned)at;
}

/* --- numbers that tensor cores take: 9.7.9.22, cvt --- */
/* A word that is a float of 10 bits of mantissa: nearest, ties away from zero. */
PTX unsigned ptx_tf32(float x) {
    unsigned word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
    return word;
}
/* A word of two bfloat16: nearest, ties to even; `low` in its lower half. */
PTX unsigned ptx_bf16(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

/* The word that is the float itself, for products in float. */
PTX unsigned ptx_float(float x) { return __float_as_uint(x); }

/* Four words of shared memory. */
PTX void ptx_load(float out[4], unsigned at) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(out[0]), "=f"(out[1]), "=f"(out[2]), "=f"(out[3]) : "r"(at) : "memory");
}

/* --- copies that go on by themselves, of which a thread sees its own at a wait: 9.7.9.25.3, cp.async --- */
/* 16 bytes, of which the first `bytes` are read and the others 0: with 0, `from` is not looked at. Both lie at a multiple of 16. */
PTX void ptx_copy16(unsigned to, GLOBAL const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
PTX void ptx_copy4(unsigned to, GLOBAL const void *from, int bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
PTX void ptx_copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Until all but the last `left` groups, a constant, are there. */
#define ptx_copy_wait(left) asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory")

/* --- products of a warp: 9.7.14.5 --- */
/* Four matrices of 8 rows of 16 bytes; thread 8 i + r of the warp gives the address of row r of matrix i, and thread 4 r + w gets word w of
 * row r of each (ldmatrix). */
PTX void ptx_ldmatrix(unsigned out[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
}
/* d += a b; a: 16 rows of 8 words, b: 8 columns of 8 words. Word w of row r of a quarter of a, or of column r of a half of b, is thread
 * 4 r + w's, whichever the precision (9.7.14.5.6 and 9.7.14.5.8, figures of .tf32 and .bf16). */
PTX void ptx_mma_tf32(float d[4], const unsigned a[4], const unsigned b[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PTX void ptx_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
