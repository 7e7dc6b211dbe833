/* SPDX-License-Identifier: Apache-2.0
 * What this machine is: instruction sets, processors, memory used, entropy. */
#include "echi_error.h"
#include "echi_os.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

/* 32-bit programs have no kernels for more than the base, on whatever processor they run. */
#if defined(__x86_64__)
#include <cpuid.h>
#include <stdatomic.h>

/* The registers that the OS saves when it switches threads. A processor may have AVX-512 under an OS that does not. */
static uint64_t saved_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

static enum echi_cpu_level look(void) {
    const uint64_t FMA = 1u << 12, OSXSAVE = 1u << 27, AVX = 1u << 28;                    /* leaf 1, ecx */
    const uint64_t AVX2 = 1u << 5, F = 1u << 16, DQ = 1u << 17, BW = 1u << 30, VL = 1u << 31; /* leaf 7, ebx */
    const uint64_t YMM = 0x6, ZMM = 0xe6;                    /* XCR0: SSE and AVX; with opmask and the upper halves */
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, FMA | OSXSAVE | AVX)) return ECHI_CPU_BASE;
    const uint64_t saved = saved_state();
    if (!has(saved, YMM) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, AVX2)) return ECHI_CPU_BASE;
    return has(saved, ZMM) && has(b, F | DQ | BW | VL) ? ECHI_CPU_AVX512 : ECHI_CPU_AVX2;
}

/* Asking the processor takes microseconds on a virtual machine, so it is asked once; twice does no harm. */
enum echi_cpu_level echi_cpu_level(void) {
    static atomic_int known;   /* level + 1 */
    int level = atomic_load_explicit(&known, memory_order_relaxed) - 1;
    if (level < 0) {
        level = (int)look();
        atomic_store_explicit(&known, level + 1, memory_order_relaxed);
    }
    return (enum echi_cpu_level)level;
}

#else

enum echi_cpu_level echi_cpu_level(void) { return ECHI_CPU_BASE; }

#endif

int echi_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    /* More processors than a cpu_set_t holds: count those that are on. */
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

size_t echi_resident_peak(void) {
    /* getrusage's figure survives exec, so it may be that of the program that started this one. */
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    if (f) {
        char line[128];
        while (fgets(line, sizeof line, f))
            if (sscanf(line, "VmHWM: %zu", &kib) == 1) break;
        fclose(f);
    }
    struct rusage usage;
    if (!kib && getrusage(RUSAGE_SELF, &usage) == 0) kib = (size_t)usage.ru_maxrss;
    return kib * 1024;
}

ech_status echi_entropy(void *out, size_t len, struct ech_error *err) {
    for (uint8_t *at = out; len;) {
        const ssize_t got = getrandom(at, len, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return echi_fail(err, ECH_E_IO, "machine.entropy", "the OS gives no random bytes (getrandom: %s)", strerror(errno));
        at += got;
        len -= (size_t)got;
    }
    return ECH_OK;
}
