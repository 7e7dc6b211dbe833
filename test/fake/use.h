/* SPDX-License-Identifier: Apache-2.0
 * For test programs: the CUDA driver that they are tried with. */
#ifndef FAKE_USE_H
#define FAKE_USE_H
#include "fake_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens the fake driver and the fake NVRTC, which then are what the library finds under their names; to be called before the library looks.
 * NULL, and a line, where the build has none (it needs a C++ compiler), or TEST_CUDA=real asks for the machine's own. */
static inline struct fake_cuda *fake_cuda_open(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libcuda.so.1"};
    const char *which = getenv("TEST_CUDA");
    char path[4096] = "";
    void *library = NULL;
    if (which != NULL && strcmp(which, "real") == 0) return NULL;
    const ssize_t len = readlink("/proc/self/exe", path, sizeof path - 64);
    for (int up = 0; len > 0 && up < 2; up++) *strrchr(path, '/') = '\0';   /* build/test/unit/test_hal -> build/test */
    char *end = path + strlen(path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(end, 64, "/fake/%s", names[i]);
        library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    struct fake_cuda *(*get)(void) = NULL;
    if (library != NULL) *(void **)(void *)&get = dlsym(library, "fake_cuda");
    if (get == NULL) printf("no fake CUDA driver in %s: not tried\n", path);
    return get != NULL ? get() : NULL;
}
#endif
