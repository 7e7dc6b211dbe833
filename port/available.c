/* SPDX-License-Identifier: Apache-2.0
 * How much memory this process may still take. Linux hands out more than there is and kills whoever touches it, so a model that does not
 * fit would end a run without a word; so large blocks are compared with what the system and the process' control groups have left. */
#include "echi_os.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MOST ((size_t)1 << 20)

/* A small file as text with a NUL behind it, or NULL; the caller frees it. */
static char *text_of(const char *root, const char *folder, const char *name) {
    char path[4096];
    uint8_t *bytes = NULL;
    size_t len = 0;
    if (snprintf(path, sizeof path, "%s%s%s", root, folder, name) >= (int)sizeof path) return NULL;
    if (echi_file_read(path, TEXT_MOST, &bytes, &len, NULL) != ECH_OK) return NULL;
    char *text = realloc(bytes, len + 1);
    if (!text) free(bytes);
    else text[len] = 0;
    return text;
}

/* The number behind `key` at the begin of a line; with "" the text's first. False where there is none, as in "max". */
static bool number(const char *text, const char *key, uint64_t *out) {
    const size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, key, len) != 0) continue;
        char *end;
        *out = strtoull(line + len, &end, 10);
        return end > line + len;
    }
    return false;
}
static bool number_in(const char *root, const char *folder, const char *name, const char *key, uint64_t *out) {
    char *text = text_of(root, folder, name);
    const bool found = text && number(text, key, out);
    free(text);
    return found;
}

/* Where the two versions of control groups say the same: the limit, what counts against it, and the part of that which is copies of files,
 * given back when somebody needs it. */
static const struct version { const char *controller, *mount, *limit, *used; } versions[] = {
    {"0::", "/sys/fs/cgroup", "/memory.max", "/memory.current"},
    {":memory:", "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes"},
};

static uint64_t left_in(const char *root, const char *folder, const struct version *v) {
    uint64_t limit, used, files, sum = 0;
    if (!number_in(root, folder, v->limit, "", &limit) || !number_in(root, folder, v->used, "", &used)) return UINT64_MAX;
    static const char *const kinds[] = {"inactive_file ", "active_file "};
    for (int i = 0; i < 2; i++)
        if (number_in(root, folder, "/memory.stat", kinds[i], &files)) sum += files;
    used -= sum < used ? sum : used;
    return used < limit ? limit - used : 0;
}

/* The least that the process' group, or one above it, has left. In a container its path may be one that only the host knows: then the
 * mount itself is its group. */
static uint64_t left_in_groups(const char *root, const struct version *v, const char *groups) {
    const char *at = strstr(groups, v->controller);
    char folder[4096];
    uint64_t least = UINT64_MAX;
    if (!at) return least;
    at += strlen(v->controller);
    if (snprintf(folder, sizeof folder, "%s%.*s", v->mount, (int)strcspn(at, "\n"), at) >= (int)sizeof folder) return least;
    for (;;) {
        const uint64_t left = left_in(root, folder, v);
        if (left < least) least = left;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(v->mount)) return least;
        *slash = 0;
    }
}

size_t echi_memory_available(const char *root) {
    uint64_t least = UINT64_MAX, kibibytes;
    if (number_in(root, "/proc", "/meminfo", "MemAvailable:", &kibibytes) && kibibytes < UINT64_MAX / 1024) least = kibibytes * 1024;
    char *groups = text_of(root, "/proc/self", "/cgroup");
    for (size_t i = 0; groups && i < sizeof versions / sizeof versions[0]; i++) {
        const uint64_t left = left_in_groups(root, &versions[i], groups);
        if (left < least) least = left;
    }
    free(groups);
    return least < SIZE_MAX ? (size_t)least : SIZE_MAX;
}
