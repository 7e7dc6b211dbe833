/* SPDX-License-Identifier: Apache-2.0
 * Counts what is asked of malloc and what is given back. The linker turns the library's calls into these (--wrap), so that
 * nothing else differs. What libc allocates for itself is not seen. */
#include "fuzz.h"

static size_t asked;
static long held;

static void *count(void *p, size_t bytes) {
    asked = asked + bytes < asked ? SIZE_MAX : asked + bytes;
    held += p != NULL;
    return p;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
int __real_posix_memalign(void **p, size_t alignment, size_t bytes);
void __real_free(void *p);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes);
void __wrap_free(void *p);

void *__wrap_malloc(size_t bytes) { return count(__real_malloc(bytes), bytes); }
void *__wrap_calloc(size_t n, size_t bytes) {
    return count(__real_calloc(n, bytes), bytes && n > SIZE_MAX / bytes ? SIZE_MAX : n * bytes);
}
void *__wrap_realloc(void *p, size_t bytes) {
    void *moved = count(__real_realloc(p, bytes), bytes);
    held -= p && moved;
    return moved;
}
int __wrap_posix_memalign(void **p, size_t alignment, size_t bytes) {
    const int status = __real_posix_memalign(p, alignment, bytes);
    count(status == 0 ? *p : NULL, bytes);
    return status;
}
void __wrap_free(void *p) {
    held -= p != NULL;
    __real_free(p);
}

void fuzz_heap_begin(void) { asked = 0, held = 0; }
size_t fuzz_heap_asked(void) { return asked; }
long fuzz_heap_held(void) { return held; }
