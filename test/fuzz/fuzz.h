/* SPDX-License-Identifier: Apache-2.0
 * What a fuzz driver is, and what it may use. A driver feeds bytes to one parser of foreign bytes and judges the answer:
 * no crash is the least of it. What was taken must keep the parser's promises, what was refused must come with a sentence.
 *
 * One thread. A check that fails ends the process; whoever runs the driver has the input and says so. */
#ifndef FUZZ_H
#define FUZZ_H
#include "ech_status.h"
#include "echi_random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FUZZ_INPUT_MAX 16384u /* bytes of an input at most, whatever the driver */

struct fuzz_driver {
    const char *name; /* also the folder of its corpus */
    /* Tries one input; true when the parser took it. bytes[0..len) is a block of just that size. */
    bool (*one)(const uint8_t *bytes, size_t len);
    /* The i-th input to start from, made by the library's own writers, so that it stays what it is when a format changes;
     * 0: no more. It must be taken; or refused, when *good comes back false. */
    size_t (*seed)(int i, uint8_t *out, size_t cap, bool *good);
    /* Makes bytes whole again that a mutation left with a stale length or checksum, or nothing would get past those; may be
     * NULL. Half of the mutated inputs pass through it. */
    void (*repair)(uint8_t *bytes, size_t *len, size_t cap);
    const char *const *words; /* of the format, NULL at the end; put in by mutations; may be NULL */
    size_t most;              /* bytes of an input, at most FUZZ_INPUT_MAX */
    /* The parser may ask malloc for so many bytes in all, and so many more for each byte of input. */
    size_t heap, heap_a_byte;
    uint32_t runs; /* of the short run, where an input takes milliseconds; 0: as many as of the others */
};

/* In this order everywhere. A new driver is a file with `const struct fuzz_driver fuzz_NAME` and its word here. */
#define FUZZ_DRIVERS(X)                                                                                                          \
    X(frame) X(hello) X(address)                                                                                                 \
    X(message) X(plan) X(times)                                                                                                  \
    X(model) X(json)                                                                                                             \
    X(idx) X(cifar)                                                                                                              \
    X(plan_file) X(config) X(hosts) X(profile) X(curves) X(import) X(report)                                                               \
    X(safetensors) X(checkpoint) X(recording)                                                                                    \
    X(coded) X(probe) X(ask)                                                                                                     \
    X(roles)
#define FUZZ_DECLARE(name) extern const struct fuzz_driver fuzz_##name;
FUZZ_DRIVERS(FUZZ_DECLARE)
#undef FUZZ_DECLARE
extern const struct fuzz_driver *const fuzz_drivers[]; /* NULL at the end */

/* Runs a driver on one input, in a block of its own, and checks what every parser promises: it asks the heap for no
 * more than its cap and gives all of it back. */
bool fuzz_run(const struct fuzz_driver *driver, const uint8_t *bytes, size_t len);

/* --- for drivers --- */
#define FUZZ_CHECK(ok) ((ok) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #ok))
_Noreturn void fuzz_fail(const char *file, int line, const char *what);
/* The refusal has its status and a sentence of one line without control characters, whatever foreign bytes it quotes. */
void fuzz_sentence(const struct ech_error *err, ech_status status);
/* The path of a file in memory that holds these bytes; `which` tells several apart (0..3). */
const char *fuzz_file(int which, const void *bytes, size_t len);
/* A folder that is removed when the program ends, in memory where the machine has such a place; a path in it to write to. */
const char *fuzz_out_folder(void);
const char *fuzz_out_path(void);
/* For `seed`: the i-th of some texts, NULL behind the last. */
size_t fuzz_seed_text(const char *const *texts, int i, uint8_t *out, size_t cap);
/* Reads a whole file; the block is the caller's. NULL when it cannot be read. */
uint8_t *fuzz_read(const char *path, size_t *out_len);
/* What is at fuzz_out_path, which fits into out[cap]: its length. */
size_t fuzz_saved(uint8_t *out, size_t cap);

/* --- mutate.c: changes an input of at most `cap` bytes; `other` is a second one to splice from --- */
void fuzz_mutate(struct echi_random *r, const struct fuzz_driver *driver, uint8_t *bytes, size_t *len, const uint8_t *other,
                 size_t other_len);

/* --- cover.c: which edges of the code the last input went through --- */
void fuzz_cover_begin(void);
/* How many features the last input had that none before it had: edges; with `counts` an edge taken once, twice, a few or
 * many times is a feature of its own. Always 0 where the library was compiled without -fsanitize-coverage=trace-pc. */
int fuzz_cover_end(bool counts);
void fuzz_cover_forget(void);
int fuzz_cover_features(void);

/* --- heap.c --- */
void fuzz_heap_begin(void);
size_t fuzz_heap_asked(void); /* bytes asked for since */
long fuzz_heap_held(void);    /* blocks not given back */
#endif
