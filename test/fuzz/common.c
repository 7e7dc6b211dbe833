/* SPDX-License-Identifier: Apache-2.0
 * What all drivers share: the table, one run, files in memory, and how a check fails. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUZZ_ADDRESS(name) &fuzz_##name,
const struct fuzz_driver *const fuzz_drivers[] = {FUZZ_DRIVERS(FUZZ_ADDRESS) NULL};

void fuzz_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
    abort();
}

bool fuzz_run(const struct fuzz_driver *driver, const uint8_t *bytes, size_t len) {
    uint8_t *exact = malloc(len ? len : 1); /* of just this size, so that a sanitizer sees one byte too far */
    FUZZ_CHECK(exact != NULL);
    memcpy(exact, bytes, len);
    fuzz_heap_begin();
    const bool taken = driver->one(len ? exact : exact + 1, len);
    FUZZ_CHECK(fuzz_heap_asked() <= driver->heap + driver->heap_a_byte * len);
    FUZZ_CHECK(fuzz_heap_held() == 0);
    free(exact);
    return taken;
}

void fuzz_sentence(const struct ech_error *err, ech_status status) {
    FUZZ_CHECK(status != ECH_OK && err->code == status);
    FUZZ_CHECK(strlen(err->text) > 10 && err->operation[0]);
    for (const unsigned char *c = (const unsigned char *)err->text; *c; c++) {
        FUZZ_CHECK(*c >= ' ' && *c != 0x7f);
        FUZZ_CHECK(c[0] != 0xc2 || c[1] < 0x80 || c[1] > 0x9f); /* "\u009b" begins a command to a terminal too */
    }
}

const char *fuzz_file(int which, const void *bytes, size_t len) {
    static struct { int fd; char path[40]; } file[4];
    if (!file[which].path[0]) {
        file[which].fd = memfd_create("fuzz", MFD_CLOEXEC);
        FUZZ_CHECK(file[which].fd >= 0);
        snprintf(file[which].path, sizeof file[which].path, "/proc/self/fd/%d", file[which].fd);
    }
    FUZZ_CHECK(ftruncate(file[which].fd, (off_t)len) == 0);
    FUZZ_CHECK(pwrite(file[which].fd, bytes, len, 0) == (ssize_t)len);
    return file[which].path;
}

static char out_folder[64];
static pid_t out_maker; /* children leave the folder alone */
static void remove_out(void) {
    if (getpid() != out_maker) return;
    DIR *folder = opendir(out_folder);
    char path[400];
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s", out_folder, entry->d_name);
        unlink(path); /* of "." and ".." it does nothing */
    }
    if (folder) closedir(folder);
    rmdir(out_folder);
}

const char *fuzz_out_folder(void) {
    if (out_folder[0]) return out_folder;
    snprintf(out_folder, sizeof out_folder, "%s/echelon-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(out_folder) != NULL);
    out_maker = getpid();
    atexit(remove_out);
    return out_folder;
}

const char *fuzz_out_path(void) {
    static char path[80];
    snprintf(path, sizeof path, "%s/out", fuzz_out_folder());
    return path;
}

size_t fuzz_seed_text(const char *const *texts, int i, uint8_t *out, size_t cap) {
    for (int k = 0; k <= i; k++)
        if (!texts[k]) return 0;
    const size_t len = strlen(texts[i]);
    FUZZ_CHECK(len <= cap);
    memcpy(out, texts[i], len);
    return len;
}

uint8_t *fuzz_read(const char *path, size_t *out_len) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    uint8_t *bytes = malloc(FUZZ_INPUT_MAX);
    FUZZ_CHECK(bytes != NULL);
    *out_len = fread(bytes, 1, FUZZ_INPUT_MAX, f);
    fclose(f);
    return bytes;
}

size_t fuzz_saved(uint8_t *out, size_t cap) {
    size_t len;
    uint8_t *file = fuzz_read(fuzz_out_path(), &len);
    FUZZ_CHECK(file != NULL && len <= cap);
    memcpy(out, file, len);
    free(file);
    return len;
}
