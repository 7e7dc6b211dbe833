/* SPDX-License-Identifier: Apache-2.0
 * NVIDIA's instructions that CUDA C has no word for, each as a function: all inline assembly of this folder. On a host test/ops/simt.c
 * does what the document says that they do ("PTX ISA" of the CUDA toolkit; sections are named, whose numbers move from version to
 * version), so that the kernels' texts run there as they are. An address in shared memory is a number of 32 bits. */
#ifdef __CUDACC__
#include "prelude.cl"
#define PTX static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define PLAIN_LOOP _Pragma("unroll 1")
#define ALIGNED16 __align__(16)
#define KERNEL_OF(items, blocks) extern "C" __global__ __launch_bounds__(items, blocks) void

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

/* A float; and two side by side, at a multiple of 8. */
PTX void ptx_store(GLOBAL float *to, float x) { *to = x; }
PTX void ptx_store2(GLOBAL float *to, float x, float y) { *(GLOBAL float2 *)to = make_float2(x, y); }

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
 * 4 r + w's, whichever the precision (9.7.14.5.7 and 9.7.14.5.8, figures of .tf32 and .bf16). */
PTX void ptx_mma_tf32(float d[4], const unsigned a[4], const unsigned b[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PTX void ptx_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#if __CUDA_ARCH_FEAT_SM90_ALL
/* --- what only 9.0 has, for its architecture alone (sm_90a) --- */

/* Barriers in 8 bytes of shared memory, a multiple of 8: a phase ends when `count` arrivals and all bytes announced are there; waiting
 * for parity p is waiting for the end of a phase whose number is p modulo 2, and one before the first counts as ended (9.7.12.15). */
PTX void ptx_barrier_init(unsigned at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
/* By who initialised them, before others use them: copies and products too. */
PTX void ptx_barrier_ready(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
PTX void ptx_barrier_arrive(unsigned at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
/* An arrival that announces bytes of bulk copies. */
PTX void ptx_barrier_expect(unsigned at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
PTX void ptx_barrier_wait(unsigned at, int parity) {
    asm volatile("{\n.reg .pred over;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra.uni AGAIN;\n}"
                 ::"r"(at), "r"(parity) : "memory");
}

/* `bytes`, a multiple of 16, from one multiple of 16 to another, counted by a barrier: 9.7.9.25.5.2, cp.async.bulk. */
PTX void ptx_bulk(unsigned to, GLOBAL const void *from, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
/* What this thread wrote to shared memory, by itself or by ptx_copy that it waited for, is there for bulk copies and wgmma: 8.3. */
PTX void ptx_proxy_fence(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Products of four warps, 64 rows by n columns, that go on by themselves: 9.7.15. a and b are descriptors of rows of 32 bytes in shared
 * memory; before the first, and after others touched d, a fence; d is there after the wait. Warp w has rows 16 w .. of d, and of each 8
 * columns what mma gives it (9.7.15.5.1.1, "Register fragments"). */
PTX void ptx_wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
PTX void ptx_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define ptx_wgmma_wait(left) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory")
/* The compiler does not know that wgmma goes on by itself: it takes no use of a number of d across this. */
PTX void ptx_settle(float *x) { asm volatile("" : "+f"(*x)::"memory"); }

#define D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define D16(i) D4(i), D4((i) + 4), D4((i) + 8), D4((i) + 12)
#define D64(i) D16(i), D16((i) + 16), D16((i) + 32), D16((i) + 48)
#define FIRST_63 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
    "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
    "%54, %55, %56, %57, %58, %59, %60, %61, %62, "
#define NEXT_64 \
    "%63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, " \
    "%89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
#define WGMMA(shape, list, a, b, end) \
    "{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\nwgmma.mma_async.sync.aligned." shape " {" list "}, " a ", " b ", p, 1, 1" end ";\n}"
PTX void ptx_wgmma_128_tf32(float d[64], unsigned long long a, unsigned long long b) {
    asm volatile(WGMMA("m64n128k8.f32.tf32.tf32", FIRST_63 "%63", "%64", "%65", "") : D64(0) : "l"(a), "l"(b) : "memory");
}
PTX void ptx_wgmma_128_bf16(float d[64], unsigned long long a, unsigned long long b) {
    asm volatile(WGMMA("m64n128k16.f32.bf16.bf16", FIRST_63 "%63", "%64", "%65", ", 0, 0") : D64(0) : "l"(a), "l"(b) : "memory");
}
PTX void ptx_wgmma_256_tf32(float d[128], unsigned long long a, unsigned long long b) {
    asm volatile(WGMMA("m64n256k8.f32.tf32.tf32", FIRST_63 NEXT_64 "%127", "%128", "%129", "")
                 : D64(0), D64(64) : "l"(a), "l"(b) : "memory");
}
PTX void ptx_wgmma_256_bf16(float d[128], unsigned long long a, unsigned long long b) {
    asm volatile(WGMMA("m64n256k16.f32.bf16.bf16", FIRST_63 NEXT_64 "%127", "%128", "%129", ", 0, 0")
                 : D64(0), D64(64) : "l"(a), "l"(b) : "memory");
}
#endif
#endif
