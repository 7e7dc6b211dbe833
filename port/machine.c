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
#include <sys/syscall.h>

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

/* Linux gives a process the tiles' registers, eight KiB a thread, when it asks (Documentation/arch/x86/xstate.rst). */
static bool may_use_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static enum echi_cpu_bf16 look_bf16(void) {
    const uint64_t PAIRS = 1u << 5;                          /* leaf 7.1, eax: AVX512-BF16 */
    const uint64_t TILES = 1u << 24 | 1u << 22;              /* leaf 7.0, edx: AMX-TILE and AMX-BF16 */
    const uint64_t TILE_STATE = 3u << 17;                    /* XCR0 */
    unsigned a, b, c, d;
    if (echi_cpu_level() < ECHI_CPU_AVX512 || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !has(a, PAIRS)) return ECHI_CPU_BF16_NONE;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(d, TILES) || !has(saved_state(), TILE_STATE)) return ECHI_CPU_BF16_DOT;
    return may_use_tiles() ? ECHI_CPU_BF16_AMX : ECHI_CPU_BF16_DOT;
}

enum echi_cpu_bf16 echi_cpu_bf16(void) {
    static atomic_int known;   /* what it is, + 1 */
    int bf16 = atomic_load_explicit(&known, memory_order_relaxed) - 1;
    if (bf16 < 0) {
        bf16 = (int)look_bf16();
        atomic_store_explicit(&known, bf16 + 1, memory_order_relaxed);
    }
    return (enum echi_cpu_bf16)bf16;
}

const char *echi_cpu_bf16_lacks(void) {
    if (echi_cpu_bf16() != ECHI_CPU_BF16_NONE) return "";
    return echi_cpu_level() < ECHI_CPU_AVX512 ? "AVX-512, and with it AVX512-BF16 or AMX-BF16" : "AVX512-BF16 and AMX-BF16";
}

#else

enum echi_cpu_level echi_cpu_level(void) { return ECHI_CPU_BASE; }
enum echi_cpu_bf16 echi_cpu_bf16(void) { return ECHI_CPU_BF16_NONE; }
const char *echi_cpu_bf16_lacks(void) { return "AVX512-BF16 and AMX-BF16, which are of x86-64"; }

#endif

static const char *const level_names[ECHI_CPU_LEVELS] = {[ECHI_CPU_BASE] = "base", [ECHI_CPU_AVX2] = "avx2", [ECHI_CPU_AVX512] = "avx512"};

const char *echi_cpu_level_name(enum echi_cpu_level level) { return level_names[level]; }

bool echi_cpu_level_named(const char *name, enum echi_cpu_level *out) {
    for (int i = 0; i < ECHI_CPU_LEVELS; i++) {
        if (strcmp(name, level_names[i]) != 0) continue;
        *out = (enum echi_cpu_level)i;
        return true;
    }
    return false;
}

int echi_cpu_allowed(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    /* More processors than a cpu_set_t holds: count those that are on. */
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int echi_cpu_count(void) {
    const int allowed = echi_cpu_allowed(), granted = echi_cpu_granted("");
    return granted < allowed ? granted : allowed;
}

bool echi_cpu_bind(int part, int parts, struct echi_cpu_set *out_before) {
    cpu_set_t all, own;
    _Static_assert(sizeof all == sizeof *out_before, "a set of processors is kept as the kernel has it");
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) % parts != 0) return false;
    const int count = CPU_COUNT(&all) / parts;
    CPU_ZERO(&own);
    for (int cpu = 0, n = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &all) && n++ / count == part) CPU_SET((size_t)cpu, &own);
    memcpy(out_before, &all, sizeof all);
    return sched_setaffinity(0, sizeof own, &own) == 0;
}

void echi_cpu_unbind(const struct echi_cpu_set *before) {
    cpu_set_t all;
    memcpy(&all, before, sizeof all);
    (void)sched_setaffinity(0, sizeof all, &all);
}

/* FNV-1a, by bytes. */
static uint64_t hash(uint64_t of, const void *bytes, size_t len) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < len; i++) of = (of ^ at[i]) * UINT64_C(0x100000001b3);
    return of;
}

uint64_t echi_cpu_place(void) {
    char boot[64];
    cpu_set_t set;
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    const size_t len = f ? fread(boot, 1, sizeof boot, f) : 0;
    if (f) fclose(f);
    if (len == 0 || sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    return hash(hash(UINT64_C(0xcbf29ce484222325), boot, len), &set, sizeof set);
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
