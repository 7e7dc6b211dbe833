/* SPDX-License-Identifier: Apache-2.0
 * Threads of a block as stacks that take turns, and what NVIDIA's instructions do. See simt.h. */
#include "simt.h"
#include "switch.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS_MOST 512
#define STACK_BYTES ((size_t)128 << 10)
#define SHARED_MOST ((size_t)232448)    /* of a block, compute capability 9.0: CUDA C++ programming guide, "Technical specifications" */
#define COPIES_MOST 1024                /* of a thread that are under way */
#define ARRAYS_MOST 64
#define BARRIERS_MOST 32
#define BULKS_MOST 64
#define PRODUCTS_MOST 64                /* of four warps, under way */
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
    void *here;                         /* where its stack is taken up */
    bool over;
    const int *changes;                 /* what it waits for: to be other than `was` */
    int was;
    struct copy copies[COPIES_MOST];
    int groups[COPIES_MOST];            /* where each group of copies that is under way ends */
    int copy_count, group_count;
    bool fenced;                        /* wgmma may have its registers */
};
/* A barrier of shared memory; a copy it counts; and a product of four warps. */
struct barrier { unsigned at; int count, pending, phase; int64_t bytes; bool ready; };
struct bulk { unsigned to; const uint8_t *from; int bytes; struct barrier *barrier; };
struct wgmma { float *d; uint64_t a, b; int columns; bool bf16; };
struct product { struct wgmma of; float *d[128]; };
struct quad {
    struct meeting meeting;
    struct product products[PRODUCTS_MOST];
    int product_count, groups[PRODUCTS_MOST], group_count;
};
static struct thread *threads;          /* [THREADS_MOST] */
static char *stacks;
static void *scheduler;
static int running;
static struct meeting warps[THREADS_MOST / 32], block;
static struct quad quads[THREADS_MOST / 128];
static struct barrier barriers[BARRIERS_MOST];
static struct bulk bulks[BULKS_MOST];
static int barrier_count, bulk_count;
static _Alignas(1024) uint8_t shared[SHARED_MOST];
static int16_t unfenced[SHARED_MOST / 16];   /* 1 + the thread that wrote there and has not fenced since; 0: none */
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

bool (*simt_reaches)(const void *from, size_t bytes);

static bool in_arrays(const void *from, size_t bytes) {
    if (simt_reaches != NULL && simt_reaches(from, bytes)) return true;
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
    switch_to(&threads[running].here, scheduler);
}

static void start(void) {
    the_kernel(the_args);
    threads[running].over = true;
    steps++;
    leave();
}

/* Waits until all of the meeting are there with the same wish; the last of them fulfils it. */
static void meet(struct meeting *m, const char *what, void *mine, void (*fulfil)(void **given)) {
    const int place = running % m->size;
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

static void begin(int t) {
    struct thread *thread = &threads[t];
    thread->over = thread->fenced = false;
    thread->changes = NULL;
    thread->copy_count = thread->group_count = 0;
    thread->here = switch_begin(stacks + (size_t)t * STACK_BYTES, STACK_BYTES, start);
}

static void do_bulk(void);

static void run_block(int items) {
    poison();
    memset(unfenced, 0, sizeof unfenced);
    barrier_count = bulk_count = 0;
    for (int q = 0; q < items / 128; q++) {
        quads[q].meeting.size = 128, quads[q].meeting.came = 0;
        quads[q].product_count = quads[q].group_count = 0;
    }
    block.size = items, block.came = 0;
    for (int w = 0; w < items / 32; w++) warps[w].size = 32, warps[w].came = 0;
    for (int t = 0; t < items; t++) begin(t);
    for (int left = items; left > 0 && wrong[0] == 0;) {
        const long before = steps;
        const int first = (int)(draw() % (uint32_t)items), stride = (int)(draw() % 2) * 2 - 1;   /* whoever comes first, either way round */
        for (int i = 0; i < items && wrong[0] == 0; i++) {
            running = (first + stride * i + items) % items;
            struct thread *thread = &threads[running];
            if (thread->over || (thread->changes != NULL && *thread->changes == thread->was)) continue;
            thread->changes = NULL;
            simt_item = running;
            switch_to(&scheduler, thread->here);
            left -= thread->over;
        }
        if (steps == before && bulk_count > 0) do_bulk();
        else if (steps == before) refuse("waits for what does not come");
    }
    for (int t = 0; t < items && wrong[0] == 0; t++)
        for (int c = 0; c < threads[t].copy_count; c++)
            if (threads[t].copies[c].read > 0) running = t, refuse("is over while copies of its are under way");
    for (int t = 0; t < items && wrong[0] != 0; t++) switch_end(stacks + (size_t)t * STACK_BYTES, STACK_BYTES);
    if (bulk_count > 0) refuse("the block is over while bulk copies are under way");
    for (int q = 0; q < items / 128; q++)
        if (quads[q].product_count > 0) refuse("the block is over while products of four warps are under way");
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
void ptx_store(float *to, float x) {
    if (!in_arrays(to, 4)) refuse("a float goes to what is in no array");
    else *to = x;
}
void ptx_store2(float *to, float x, float y) {
    if ((uintptr_t)to % 8 != 0) refuse("two floats go to %p, which is no multiple of 8", (void *)to);
    else if (!in_arrays(to, 8)) refuse("two floats go to what is in no array");
    else to[0] = x, to[1] = y;
}

/* --- cp.async: PTX ISA 9.7.9.25.3. Copies of a thread may happen whenever they like, until it waits for their group. --- */

static void do_copy(struct copy *c) {
    if (c->done) return;
    uint8_t *to = in_shared(c->to, (unsigned)c->bytes, "a copy");
    if (wrong[0] != 0) return;
    memcpy(to, c->from, (size_t)c->read);
    memset(to + c->read, 0, (size_t)(c->bytes - c->read));
    unfenced[c->to / 16] = (int16_t)(running + 1);
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
        if (!launched->copies_late) do_copy(c);
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

/* m16n8k8, .tf32 (9.7.14.5.7): a0 (t / 4, t % 4), a1 (t / 4 + 8, t % 4), a2 (t / 4, t % 4 + 4), a3 (t / 4 + 8, t % 4 + 4);
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

/* --- mbarrier: PTX ISA 9.7.12.15. A phase ends when no arrival is pending and all bytes announced are there. --- */

static struct barrier *barrier_at(unsigned at, const char *what) {
    for (int i = 0; i < barrier_count; i++)
        if (barriers[i].at == at) return &barriers[i];
    refuse("%s at %u, where no barrier is", what, at);
    return &barriers[0];
}
static void look(struct barrier *b) {
    if (b->pending < 0) refuse("more arrivals at the barrier at %u than %d", b->at, b->count);
    if (b->pending != 0 || b->bytes != 0) return;
    b->phase++;
    b->pending = b->count;
    steps++;
}

void ptx_barrier_init(unsigned at, int count) {
    in_shared(at, 8, "a barrier");
    if (barrier_count == BARRIERS_MOST) refuse("%d barriers", BARRIERS_MOST);
    else barriers[barrier_count++] = (struct barrier){at, count, count, 0, 0, false};
}
void ptx_barrier_ready(void) {
    for (int i = 0; i < barrier_count; i++) barriers[i].ready = true;
}
static void arrive(unsigned at, int bytes) {
    struct barrier *b = barrier_at(at, "an arrival");
    if (!b->ready) refuse("an arrival at a barrier that others may not see yet");
    b->bytes += bytes;
    b->pending--;
    steps++;
    look(b);
}
void ptx_barrier_arrive(unsigned at) { arrive(at, 0); }
void ptx_barrier_expect(unsigned at, int bytes) { arrive(at, bytes); }
void ptx_barrier_wait(unsigned at, int parity) {
    const struct barrier *b = barrier_at(at, "a wait");
    /* "the phase indicated by phaseParity": the current one, of number `phase`, or the one before it, which has ended */
    while (b->phase % 2 == parity && wrong[0] == 0) {
        threads[running].changes = &b->phase;
        threads[running].was = b->phase;
        leave();
    }
}

/* --- cp.async.bulk: PTX ISA 9.7.9.25.5.2. Late: when nothing else can happen. --- */

static void do_bulk(void) {
    const struct bulk c = bulks[0];
    memmove(bulks, bulks + 1, (size_t)--bulk_count * sizeof *bulks);
    memcpy(shared + c.to, c.from, (size_t)c.bytes);
    c.barrier->bytes -= c.bytes;
    if (c.barrier->bytes < 0) refuse("more bytes come to the barrier at %u than were announced", c.barrier->at);
    steps++;
    look(c.barrier);
}
void ptx_bulk(unsigned to, const void *from, int bytes, unsigned barrier) {
    struct barrier *b = barrier_at(barrier, "a bulk copy");
    in_shared(to, 16, "a bulk copy");
    in_shared(to + (unsigned)bytes - 16, 16, "a bulk copy");
    if (bytes % 16 != 0 || (uintptr_t)from % 16 != 0) refuse("a bulk copy of %d bytes from %p, no multiple of 16", bytes, from);
    else if (!in_arrays(from, (size_t)bytes)) refuse("a bulk copy reads what is in no array");
    else if (bulk_count == BULKS_MOST) refuse("%d bulk copies under way", BULKS_MOST);
    if (wrong[0] != 0) return;
    bulks[bulk_count++] = (struct bulk){to, from, bytes, b};
    if (!launched->copies_late) do_bulk();
}

/* PTX ISA 8.3, "Proxies": what ordinary copies wrote is seen by wgmma after the writer's fence only. */
void ptx_proxy_fence(void) {
    for (size_t i = 0; i < sizeof unfenced / sizeof unfenced[0]; i++)
        if (unfenced[i] == running + 1) unfenced[i] = 0;
}

/* --- wgmma: PTX ISA 9.7.15. --- */

/* Byte `byte` of row `row` of a matrix whose rows have 32 bytes (9.7.15.5.1, "Shared memory matrix layout" and "Matrix descriptor"): bits
 * 0-13 the address, 32-45 what lies between eight rows and the next (both without their lowest 4 bits), 49-51 the base offset, 62-63 the
 * swizzle, 1 being that of 128 bytes: rows are 128 bytes apart, and bits 4-6 of an address are exchanged with its bits 7-9, by xor
 * (5.5.6). The leading dimension, bits 16-29, is not looked at with this swizzle and such rows. */
static unsigned place_in_matrix(uint64_t descriptor, int row, int byte) {
    const unsigned start = (unsigned)(descriptor & 0x3fff) << 4, eight = (unsigned)(descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0) refuse("a matrix that is not in the swizzle of 128 bytes, or has an offset");
    if (start % 1024 / 128 != 0 || start % 128 > 96) refuse("a matrix at %u, which is not in the first row of 1024 bytes", start);
    const unsigned at = start + (unsigned)(row / 8) * eight + (unsigned)(row % 8) * 128 + (unsigned)byte;
    return at ^ (at >> 7 & 7) << 4;
}
static double number_in_matrix(uint64_t descriptor, int row, int k, bool bf16) {
    const unsigned at = place_in_matrix(descriptor, row, bf16 ? k / 2 * 4 : k * 4);
    uint32_t word;
    memcpy(&word, in_shared(at, 4, "wgmma"), 4);
    if (unfenced[at / 16] != 0) refuse("wgmma reads %u, which thread %d wrote and did not fence", at, unfenced[at / 16] - 1);
    return bf16 ? bf16_of(word, k % 2) : tf32_of(word);
}

/* d of thread t: of warp t / 32 rows 16 (t / 32) + t % 32 / 4, and for i % 4 >= 2 8 more; columns i / 4 * 8 + t % 4 * 2 + i % 2
 * (9.7.15.5.1.1, figure of D). */
static void do_product(const struct product *p) {
    static double a[64][16], b[256][16];
    const int depth = p->of.bf16 ? 16 : 8;
    for (int k = 0; k < depth; k++) {
        for (int row = 0; row < 64; row++) a[row][k] = number_in_matrix(p->of.a, row, k, p->of.bf16);
        for (int col = 0; col < p->of.columns; col++) b[col][k] = number_in_matrix(p->of.b, col, k, p->of.bf16);
    }
    for (int t = 0; t < 128; t++)
        for (int i = 0; i < p->of.columns / 2; i++) {
            const int row = t / 32 * 16 + t % 32 / 4 + i % 4 / 2 * 8, col = i / 4 * 8 + t % 4 * 2 + i % 2;
            double sum = (double)p->d[t][i];
            for (int k = 0; k < depth; k++) sum += a[row][k] * b[col][k];
            p->d[t][i] = (float)sum;
        }
}

static struct quad *my_quad(void) { return &quads[running / 128]; }
static void meet_quad(const char *what, void *mine, void (*fulfil)(void **given)) { meet(&my_quad()->meeting, what, mine, fulfil); }

static void start_product(void **given) {
    struct quad *quad = my_quad();
    struct product product;
    const struct wgmma *first = given[0];
    product.of = *first;
    for (int t = 0; t < 128; t++) {
        const struct wgmma *of = given[t];
        if (of->a != first->a || of->b != first->b) refuse("wgmma, of whose threads not all have the same matrices");
        product.d[t] = of->d;
    }
    if (quad->product_count == PRODUCTS_MOST) refuse("%d products of four warps under way", PRODUCTS_MOST);
    else if (!launched->products_late) product.of.columns = (do_product(&product), 0);
    if (wrong[0] == 0) quad->products[quad->product_count++] = product;   /* with no columns left, if it is done */
}
static void wgmma(float *d, uint64_t a, uint64_t b, int columns, bool bf16) {
    struct wgmma mine = {d, a, b, columns, bf16};
    if (!threads[running].fenced) refuse("wgmma without wgmma.fence");
    meet_quad("wgmma", &mine, start_product);
}
void ptx_wgmma_128_tf32(float d[64], unsigned long long a, unsigned long long b) { wgmma(d, a, b, 128, false); }
void ptx_wgmma_128_bf16(float d[64], unsigned long long a, unsigned long long b) { wgmma(d, a, b, 128, true); }
void ptx_wgmma_256_tf32(float d[128], unsigned long long a, unsigned long long b) { wgmma(d, a, b, 256, false); }
void ptx_wgmma_256_bf16(float d[128], unsigned long long a, unsigned long long b) { wgmma(d, a, b, 256, true); }

void ptx_wgmma_fence(void) { threads[running].fenced = true; }
static void commit(void **given) {
    (void)given;
    struct quad *quad = my_quad();
    if (quad->group_count == PRODUCTS_MOST) refuse("%d groups of products under way", PRODUCTS_MOST);
    else quad->groups[quad->group_count++] = quad->product_count;
}
void ptx_wgmma_commit(void) { meet_quad("wgmma.commit_group", NULL, commit); }
static void finish(void **given) {
    struct quad *quad = my_quad();
    const int left = *(const int *)given[0], gone = quad->group_count - left;
    if (gone <= 0) return;
    const int products = quad->groups[gone - 1];
    for (int p = 0; p < products; p++)
        if (quad->products[p].of.columns > 0) do_product(&quad->products[p]);
    quad->product_count -= products;
    quad->group_count = left;
    memmove(quad->products, quad->products + products, (size_t)quad->product_count * sizeof *quad->products);
    for (int g = 0; g < left; g++) quad->groups[g] = quad->groups[g + gone] - products;
}
void ptx_wgmma_wait(int left) {
    threads[running].fenced = false;
    meet_quad("wgmma.wait_group", &left, finish);
}
