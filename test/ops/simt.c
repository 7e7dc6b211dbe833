/* SPDX-License-Identifier: Apache-2.0
 * Threads of a block as contexts, and what NVIDIA's instructions do. See simt.h. */
#include "simt.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define THREADS_MOST 512
#define STACK_BYTES ((size_t)128 << 10)
#define SHARED_MOST ((size_t)232448)    /* of a block, compute capability 9.0: CUDA C++ programming guide, "Technical specifications" */
#define COPIES_MOST 1024                /* of a thread that are under way */
#define ARRAYS_MOST 64
#define POISON 0x7fc07fc0u                /* a NaN as a float, two as bfloat16, and a place far away */

int simt_group[3], simt_item;

/* Threads that act together: all are there, or each waits. */
struct meeting {
    int size, came, turn;
    const char *what;                   /* what those that came want to do */
    void *given[THREADS_MOST];          /* each thread's arguments, on its stack */
};
struct copy { unsigned to; const void *from; int bytes, read; bool done; };
struct thread {
    ucontext_t context;
    bool over;
    const int *changes;                 /* what it waits for: to be other than `was` */
    int was;
    struct copy copies[COPIES_MOST];
    int groups[COPIES_MOST];            /* where each group of copies that is under way ends */
    int copy_count, group_count;
};
static struct thread *threads;          /* [THREADS_MOST] */
static char *stacks;
static ucontext_t scheduler;
static int running;
static struct meeting warps[THREADS_MOST / 32], block;
static _Alignas(1024) uint8_t shared[SHARED_MOST];
static const struct simt_launch *launched;
static void (*the_kernel)(void *args);
static void *the_args;
static char wrong[256];
static long steps;                      /* whatever happens raises it: if a round of all threads does not, they wait for nothing */
static struct { uint8_t *map; size_t map_bytes; uint8_t *at; size_t bytes; } arrays[ARRAYS_MOST];
static int n_arrays;

/* The section of what kernels declare with LOCAL: named by the linker, and not there if none does. */
extern uint8_t __start_simt_static[] __attribute__((weak)), __stop_simt_static[] __attribute__((weak));

__attribute__((format(printf, 1, 2))) static void refuse(const char *format, ...) {
    if (wrong[0] != 0) return;
    const int at = snprintf(wrong, sizeof wrong, "block %d,%d,%d thread %d: ", simt_group[0], simt_group[1], simt_group[2], running);
    va_list list;
    va_start(list, format);
    vsnprintf(wrong + at, sizeof wrong - (size_t)at, format, list);
    va_end(list);
}

/* --- arrays, each at the end of its pages, so that the next byte cannot be touched --- */

void *simt_array(size_t count) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = count * sizeof(float);
    const size_t pages = (bytes + page - 1) / page * page;
    if (n_arrays == ARRAYS_MOST) abort();
    uint8_t *map = mmap(NULL, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + pages, page, PROT_NONE) != 0) abort();
    uint8_t *at = map + pages - bytes;
    arrays[n_arrays].map = map, arrays[n_arrays].map_bytes = pages + page, arrays[n_arrays].at = at, arrays[n_arrays].bytes = bytes;
    n_arrays++;
    return at;
}

void simt_free(void) {
    while (n_arrays > 0) {
        n_arrays--;
        munmap(arrays[n_arrays].map, arrays[n_arrays].map_bytes);
    }
}

static bool in_arrays(const void *from, size_t bytes) {
    for (int i = 0; i < n_arrays; i++) {
        const uint8_t *p = from;
        if (p >= arrays[i].at && p + bytes <= arrays[i].at + arrays[i].bytes) return true;
    }
    return false;
}

/* --- shared memory --- */

static uint8_t *in_shared(unsigned at, unsigned bytes, const char *what) {
    if (at % bytes != 0) refuse("%s at %u of shared memory, which is no multiple of %u", what, at, bytes);
    else if (at < launched->shared_at || at + bytes > launched->shared_at + launched->shared)
        refuse("%s at %u, and the shared memory is %zu bytes from %zu", what, at, launched->shared, launched->shared_at);
    else return shared + at;
    return shared;   /* something, as the rest does not count any more */
}

unsigned ptx_shared(void) { return (unsigned)launched->shared_at; }

/* --- threads --- */

static uint32_t random_state;
static uint32_t draw(void) {   /* Marsaglia's xorshift */
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    return random_state ^= random_state << 5;
}

static void leave(void) {
    swapcontext(&threads[running].context, &scheduler);
}

static void start(void) {
    the_kernel(the_args);
    threads[running].over = true;
    steps++;
    leave();
}

/* Waits until all of the meeting are there with the same wish; the last of them fulfils it. */
static void meet(struct meeting *m, const char *what, void *mine, void (*fulfil)(void **given)) {
    const int place = m == &block ? running : running % m->size;
    if (m->came == 0) m->what = what;
    if (strcmp(m->what, what) != 0) refuse("%s, where others of its group came for %s", what, m->what);
    m->given[place] = mine;
    steps++;
    if (++m->came == m->size) {
        if (fulfil != NULL && wrong[0] == 0) fulfil(m->given);
        m->came = 0;
        m->turn++;
        return;
    }
    threads[running].changes = &m->turn;
    threads[running].was = m->turn;
    leave();
}

void simt_wait(void) { meet(&block, "a barrier", NULL, NULL); }
static struct meeting *my_warp(void) { return &warps[running / 32]; }

static void poison(void) {
    for (size_t i = 0; i < sizeof shared; i += 4) memcpy(shared + i, &(uint32_t){POISON}, 4);
    if (__start_simt_static != NULL)
        for (uint8_t *p = __start_simt_static; p + 4 <= __stop_simt_static; p += 4) memcpy(p, &(uint32_t){POISON}, 4);
}

static void run_block(int items) {
    poison();
    block.size = items, block.came = 0;
    for (int w = 0; w < items / 32; w++) warps[w].size = 32, warps[w].came = 0;
    for (int t = 0; t < items; t++) {
        struct thread *thread = &threads[t];
        thread->over = false;
        thread->changes = NULL;
        thread->copy_count = thread->group_count = 0;
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = stacks + (size_t)t * STACK_BYTES;
        thread->context.uc_stack.ss_size = STACK_BYTES;
        thread->context.uc_link = NULL;
        makecontext(&thread->context, start, 0);
    }
    for (int left = items; left > 0 && wrong[0] == 0;) {
        const long before = steps;
        const int first = (int)(draw() % (uint32_t)items), stride = (int)(draw() % 2) * 2 - 1;   /* whoever comes first, either way round */
        for (int i = 0; i < items && wrong[0] == 0; i++) {
            running = (first + stride * i + items) % items;
            struct thread *thread = &threads[running];
            if (thread->over || (thread->changes != NULL && *thread->changes == thread->was)) continue;
            thread->changes = NULL;
            simt_item = running;
            swapcontext(&scheduler, &thread->context);
            left -= thread->over;
        }
        if (steps == before) refuse("waits for what does not come");
    }
    for (int t = 0; t < items && wrong[0] == 0; t++)
        for (int c = 0; c < threads[t].copy_count; c++)
            if (threads[t].copies[c].read > 0) running = t, refuse("is over while copies of its are under way");
}

const char *simt_run(void (*kernel)(void *args), void *args, const struct simt_launch *how) {
    if (threads == NULL) threads = calloc(THREADS_MOST, sizeof *threads), stacks = malloc(THREADS_MOST * STACK_BYTES);
    if (threads == NULL || stacks == NULL || how->items > THREADS_MOST || how->items % 32 != 0) abort();
    wrong[0] = 0;
    launched = how, the_kernel = kernel, the_args = args;
    random_state = how->seed | 1;
    simt_group[0] = simt_group[1] = simt_group[2] = running = 0;
    if (how->shared_at % 16 != 0 || how->shared_at + how->shared > sizeof shared) refuse("has no such shared memory");
    for (int z = 0; z < how->groups[2]; z++)
        for (int y = 0; y < how->groups[1]; y++)
            for (int x = 0; x < how->groups[0] && wrong[0] == 0; x++) {
                simt_group[0] = x, simt_group[1] = y, simt_group[2] = z;
                run_block(how->items);
            }
    return wrong[0] != 0 ? wrong : NULL;
}

/* --- numbers: PTX ISA 5.2.3, "Alternate floating-point data formats", and 9.7.9.22, cvt --- */

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The nearest float of `kept` bits of mantissa; which of two that are as near, `even` says, or the greater. */
static uint32_t nearest(float x, int kept, bool even) {
    if (isnan(x)) return 0x7fffffffu >> (23 - kept) << (23 - kept);
    const uint32_t bits = bits_of(x), dropped = 23u - (uint32_t)kept, half = 1u << (dropped - 1), tail = bits & ((1u << dropped) - 1);
    const uint32_t whole = bits >> dropped;
    const bool up = tail > half || (tail == half && (!even || whole % 2 == 1));
    return (whole + up) << dropped;   /* of a carry beyond the mantissa comes the next power of two, and beyond the largest, infinity */
}

unsigned ptx_tf32(float x) { return nearest(x, 10, false); }
unsigned ptx_bf16(float low, float high) { return nearest(low, 7, true) >> 16 | nearest(high, 7, true); }

unsigned ptx_float(float x) { return bits_of(x); }
void ptx_load(float out[4], unsigned at) { memcpy(out, in_shared(at, 16, "a load"), 16); }

/* --- cp.async: PTX ISA 9.7.9.25.3. Copies of a thread may happen whenever they like, until it waits for their group. --- */

static void do_copy(struct copy *c) {
    if (c->done) return;
    uint8_t *to = in_shared(c->to, (unsigned)c->bytes, "a copy");
    if (wrong[0] != 0) return;
    memcpy(to, c->from, (size_t)c->read);
    memset(to + c->read, 0, (size_t)(c->bytes - c->read));
    c->done = true;
}

static void start_copy(unsigned to, const void *from, int bytes, int read) {
    struct thread *t = &threads[running];
    if (read < 0 || read > bytes) refuse("a copy reads %d of %d bytes", read, bytes);
    else if ((uintptr_t)from % (unsigned)bytes != 0) refuse("a copy of %d bytes from %p, which is no multiple of that", bytes, from);
    else if (read > 0 && !in_arrays(from, (size_t)read)) refuse("a copy reads what is in no array");
    else if (t->copy_count == COPIES_MOST) refuse("has %d copies under way", COPIES_MOST);
    else {
        struct copy *c = &t->copies[t->copy_count++];
        *c = (struct copy){to, from, bytes, read, false};
        in_shared(to, (unsigned)bytes, "a copy");
        if (launched->haste == SIMT_EARLY) do_copy(c);
    }
}
void ptx_copy16(unsigned to, const void *from, int bytes) { start_copy(to, from, 16, bytes); }
void ptx_copy4(unsigned to, const void *from, int bytes) { start_copy(to, from, 4, bytes); }

void ptx_copy_commit(void) {
    struct thread *t = &threads[running];
    if (t->group_count == COPIES_MOST) refuse("has %d groups of copies under way", COPIES_MOST);
    else t->groups[t->group_count++] = t->copy_count;
}

void ptx_copy_wait(int left) {
    struct thread *t = &threads[running];
    const int gone = t->group_count - left;
    if (gone <= 0) return;
    const int copies = t->groups[gone - 1];
    for (int c = 0; c < copies; c++) do_copy(&t->copies[c]);
    t->copy_count -= copies;
    t->group_count = left;
    memmove(t->copies, t->copies + copies, (size_t)t->copy_count * sizeof *t->copies);
    for (int g = 0; g < left; g++) t->groups[g] = t->groups[g + gone] - copies;
}

/* --- ldmatrix: PTX ISA 9.7.14.5.15. Threads 8 i .. 8 i + 7 give the rows of matrix i; of row r, whose 16 bytes are four words, thread
 * 4 r + w gets word w. --- */

struct ldmatrix { unsigned *out, at; };
static void all_ldmatrix(void **given) {
    for (int matrix = 0; matrix < 4; matrix++)
        for (int row = 0; row < 8; row++) {
            const struct ldmatrix *address = given[matrix * 8 + row];
            const uint8_t *at = in_shared(address->at, 16, "ldmatrix");
            for (int word = 0; word < 4; word++) {
                const struct ldmatrix *to = given[row * 4 + word];
                memcpy(&to->out[matrix], at + word * 4, 4);
            }
        }
}
void ptx_ldmatrix(unsigned out[4], unsigned at) {
    struct ldmatrix mine = {out, at};
    meet(my_warp(), "ldmatrix", &mine, all_ldmatrix);
}

/* --- mma --- */

struct mma { float *d; const unsigned *a, *b; };

/* A word of .tf32 whose lower 13 bits are not 0 was not rounded: what mma does with them is undefined (9.7.14.5.14, "Notes" on .tf32). */
static double tf32_of(uint32_t word) {
    if ((word & 0x1fff) != 0 && !isnan(float_of(word))) refuse("mma takes the word %08x, which is no TF32", word);
    return (double)float_of(word);
}
static double bf16_of(uint32_t word, int half) { return (double)float_of(half == 1 ? word & 0xffff0000u : word << 16); }

/* d[16][8] += a[16][depth] b[depth][8]. Of d thread t has i = 0..3: row t / 4 and, for i >= 2, 8 more; column t % 4 * 2 + i % 2
 * (9.7.14.5.7 and 9.7.14.5.8: "c0, c1: groupID; c2, c3: groupID + 8"). The order of the sum, and how it is rounded, are not said; here
 * it is rounded once. */
static void multiply(void **given, double (*a)[16], double (*b)[8], int depth) {
    for (int t = 0; t < 32; t++) {
        const struct mma *to = given[t];
        for (int i = 0; i < 4; i++) {
            const int row = t / 4 + i / 2 * 8, col = t % 4 * 2 + i % 2;
            double sum = (double)to->d[i];
            for (int k = 0; k < depth; k++) sum += a[row][k] * b[k][col];
            to->d[i] = (float)sum;
        }
    }
}

/* m16n8k8, .tf32 (9.7.14.5.6): a0 (t / 4, t % 4), a1 (t / 4 + 8, t % 4), a2 (t / 4, t % 4 + 4), a3 (t / 4 + 8, t % 4 + 4);
 * b0 (t % 4, t / 4), b1 (t % 4 + 4, t / 4). */
static void all_mma_tf32(void **given) {
    double a[16][16], b[16][8];
    for (int t = 0; t < 32; t++) {
        const struct mma *from = given[t];
        for (int i = 0; i < 4; i++) a[t / 4 + i % 2 * 8][t % 4 + i / 2 * 4] = tf32_of(from->a[i]);
        for (int i = 0; i < 2; i++) b[t % 4 + i * 4][t / 4] = tf32_of(from->b[i]);
    }
    multiply(given, a, b, 8);
}
void ptx_mma_tf32(float d[4], const unsigned a[4], const unsigned b[2]) {
    struct mma mine = {d, a, b};
    meet(my_warp(), "mma tf32", &mine, all_mma_tf32);
}

/* m16n8k16, .bf16 (9.7.14.5.8), elements i = 0..7 of a, two a word: row t / 4 for i = 0, 1, 4, 5, else t / 4 + 8; column
 * t % 4 * 2 + i % 2, for i >= 4 and 8 more. Elements i = 0..3 of b: row t % 4 * 2 + i % 2, for i >= 2 and 8 more; column t / 4. */
static void all_mma_bf16(void **given) {
    double a[16][16], b[16][8];
    for (int t = 0; t < 32; t++) {
        const struct mma *from = given[t];
        for (int i = 0; i < 8; i++) {
            const int row = i < 2 || (i >= 4 && i < 6) ? t / 4 : t / 4 + 8, col = t % 4 * 2 + i % 2 + (i >= 4 ? 8 : 0);
            a[row][col] = bf16_of(from->a[i / 2], i % 2);
        }
        for (int i = 0; i < 4; i++) b[t % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0)][t / 4] = bf16_of(from->b[i / 2], i % 2);
    }
    multiply(given, a, b, 16);
}
void ptx_mma_bf16(float d[4], const unsigned a[4], const unsigned b[2]) {
    struct mma mine = {d, a, b};
    meet(my_warp(), "mma bf16", &mine, all_mma_bf16);
}
