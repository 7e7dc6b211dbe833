/* SPDX-License-Identifier: Apache-2.0
 * The same drivers under clang's libFuzzer, which brings its own main, coverage and mutations. FUZZ_DRIVER names the driver. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t len, size_t cap);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t len, size_t cap, unsigned seed);

static const struct fuzz_driver *driver(void) {
    const char *name = getenv("FUZZ_DRIVER");
    int i = 0;
    FUZZ_CHECK(name != NULL);
    while (fuzz_drivers[i] && strcmp(fuzz_drivers[i]->name, name) != 0) i++;
    FUZZ_CHECK(fuzz_drivers[i] != NULL);
    return fuzz_drivers[i];
}

/* What a driver makes once is made here, before anything is counted: main.c makes its seeds first. AFL++ begins here, too. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static uint8_t bytes[FUZZ_INPUT_MAX];
    bool good = true;
    (void)argc, (void)argv;
    if (driver()->seed) driver()->seed(0, bytes, driver()->most, &good);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    if (len <= driver()->most) fuzz_run(driver(), bytes, len);
    return 0;
}

/* As in main.c, half of the inputs have their lengths and checksums mended, or hardly any would get past those. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t len, size_t cap, unsigned seed) {
    const struct fuzz_driver *d = driver();
    if (cap > d->most) cap = d->most;
    len = LLVMFuzzerMutate(bytes, len < cap ? len : cap, cap);
    if (d->repair && seed % 2) d->repair(bytes, &len, cap);
    return len;
}
