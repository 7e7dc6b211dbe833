/* SPDX-License-Identifier: Apache-2.0
 * The same drivers under clang's libFuzzer, which brings its own main, coverage and mutations. FUZZ_DRIVER names the driver. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    const char *name = getenv("FUZZ_DRIVER");
    int i = 0;
    FUZZ_CHECK(name != NULL);
    while (fuzz_drivers[i] && strcmp(fuzz_drivers[i]->name, name) != 0) i++;
    FUZZ_CHECK(fuzz_drivers[i] != NULL);
    if (len <= fuzz_drivers[i]->most) fuzz_run(fuzz_drivers[i], bytes, len);
    return 0;
}
