/* SPDX-License-Identifier: Apache-2.0
 * The controls of the CUDA driver that is none. A program that has opened it finds fake_cuda() by dlsym; others say in the environment,
 * FAKE_CUDA="devices=2 capability=53", what is other than here. */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H
#ifdef __cplusplus
extern "C" {
#endif
struct fake_cuda {
    int devices;            /* 1. Read by cuInit, like the next */
    int init;               /* what cuInit answers: 0 */
    int version;            /* 13000: of the driver */
    int capability;         /* 90 */
    int memory;             /* MiB: 1024 */
    int taken;              /* of it, by other programs: 0 */
    int pageable;           /* 0: copies from and to memory of the host that is not pinned are refused: 1 */
    int shared;             /* KiB of shared memory that a block may have: 48. With 227, as a 9.0 has, the texts for cards alone are run */
    int bus;                /* of device 0 on PCI: 0x3b; the others behind it */
    int fatbin;             /* 0: machine code and what comes with it is refused, as by a driver that is too old for it. 1 */
    int ptx;                /* 0: so is PTX. 1 */
    int lost_after;         /* so many calls from now on work, then the device is gone; 0: it stays */
    char fail[48];          /* the next call of this name fails ... */
    int fail_after;         /* ... after so many that do not ... */
    int fail_with;          /* ... with this code, once */
    char spoil[32];         /* kernels whose name has this do nothing ... */
    int spoil_with;         /* ... and, if not 0, break the context with this code */
    int pause;              /* seconds that each launch takes longer, by the clock of a test that adds `late`: 0 */
    /* what happened */
    int calls, launches, alive;     /* alive: contexts, allocations, streams, events and modules not given back */
    long long pinned;               /* bytes */
    long long late;                 /* ns, of all pauses */
    char complaint[200];    /* the first thing that a program did and must not: memory written past its end, no context, ... */
};
struct fake_cuda *fake_cuda(void);
#ifdef __cplusplus
}
#endif
#endif
