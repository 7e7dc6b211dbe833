/* SPDX-License-Identifier: Apache-2.0
 * Libraries found at run time: GPU drivers. A fully static program (STATIC=1) has no loader and finds none. */
#include "echi_os.h"

#ifdef ECHI_STATIC

void *echi_library_open(const char *name) {
    (void)name;
    return NULL;
}

void *echi_library_symbol(void *library, const char *name) {
    (void)library;
    (void)name;
    return NULL;
}

void echi_library_close(void *library) { (void)library; }

#else

#include <dlfcn.h>

void *echi_library_open(const char *name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

void *echi_library_symbol(void *library, const char *name) { return library ? dlsym(library, name) : NULL; }

void echi_library_close(void *library) {
    if (library) dlclose(library);
}

#endif
