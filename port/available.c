/* SPDX-License-Identifier: Apache-2.0
 * How much memory this process may still take, and how much processor time. Linux hands out more than there is and kills whoever touches
 * it, so a model that does not fit would end a run without a word; so large blocks are compared with what the system and the process'
 * control groups have left. Of processor time a control group may grant less than all processors have: then more threads only wait for
 * each other's turn. */
#include "echi_os.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A small file as text with a NUL behind it; of a longer one the begin. On the stack, because who asks how much memory there is
 * may have none. */
struct text { char at[8192]; };

static bool text_of(const char *root, const char *folder, const char *name, struct text *out) {
    char path[4096];
    size_t len = 0;
    ssize_t got = 0;
    if (snprintf(path, sizeof path, "%s%s%s", root, folder, name) >= (int)sizeof path) return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    while (len < sizeof out->at - 1 && (got = read(fd, out->at + len, sizeof out->at - 1 - len)) != 0) {
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) break;
        len += (size_t)got;
    }
    close(fd);
    out->at[len] = 0;
    return got >= 0;
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
    struct text text;
    return text_of(root, folder, name, &text) && number(text.at, key, out);
}

/* Where the two versions of control groups say the same: a limit, and what it is to be compared with. */
struct place { const char *controller, *mount, *limit, *beside; };

/* Of memory what counts against the limit, and the part of that which is copies of files, given back when somebody needs it. */
static const struct place memory_places[] = {
    {"0::", "/sys/fs/cgroup", "/memory.max", "/memory.current"},
    {":memory:", "/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes"},
};

static uint64_t left_in(const char *root, const char *folder, const struct place *at, uint64_t *beside) {
    uint64_t limit, used, files, sum = 0;
    if (!number_in(root, folder, at->limit, "", &limit) || !number_in(root, folder, at->beside, "", &used)) return UINT64_MAX;
    static const char *const kinds[] = {"inactive_file ", "active_file "};
    for (int i = 0; i < 2; i++)
        if (number_in(root, folder, "/memory.stat", kinds[i], &files)) sum += files;
    used -= sum < used ? sum : used;
    *beside = used;
    return used < limit ? limit - used : 0;
}

/* Of processor time the microseconds granted in each period of so many, which the second version writes behind them. v1 mounts the
 * controller alone or with the one that counts. */
static const struct place time_places[] = {
    {"0::", "/sys/fs/cgroup", "/cpu.max", NULL},
    {":cpu:", "/sys/fs/cgroup/cpu", "/cpu.cfs_quota_us", "/cpu.cfs_period_us"},
    {":cpu,cpuacct:", "/sys/fs/cgroup/cpu,cpuacct", "/cpu.cfs_quota_us", "/cpu.cfs_period_us"},
    {":cpuacct,cpu:", "/sys/fs/cgroup/cpuacct,cpu", "/cpu.cfs_quota_us", "/cpu.cfs_period_us"},
};

#define PARTS UINT64_C(1000000)   /* of a processor, in which shares of its time are compared */

/* Of each period, microseconds. Without a limit the quota is "max", which is no number, or -1. */
static uint64_t granted_in(const char *root, const char *folder, const struct place *at, uint64_t *period) {
    uint64_t quota;
    struct text text;
    if (!text_of(root, folder, at->limit, &text) || !number(text.at, "", &quota) || quota > INT64_MAX / PARTS) return UINT64_MAX;
    const char *behind = strchr(text.at, ' ');
    *period = 0;
    if (at->beside) number_in(root, folder, at->beside, "", period);
    else if (behind) number(behind, "", period);
    return *period > 0 ? quota * PARTS / *period : UINT64_MAX;
}


/* What is asked for; and *beside, what it was compared with. */
typedef uint64_t (*amount)(const char *root, const char *folder, const struct place *at, uint64_t *beside);

/* The least that the process' group, or one above it, says, where that is less than *least. In a container its path may be one that only
 * the host knows: then the mount itself is its group. */
static void least_of(const char *root, const struct place *place, const char *groups, amount of, uint64_t *least, uint64_t *out_beside) {
    const char *at = strstr(groups, place->controller);
    char folder[4096];
    if (!at) return;
    at += strlen(place->controller);
    if (snprintf(folder, sizeof folder, "%s%.*s", place->mount, (int)strcspn(at, "\n"), at) >= (int)sizeof folder) return;
    for (;;) {
        uint64_t beside = 0;
        const uint64_t said = of(root, folder, place, &beside);
        if (said < *least) {
            *least = said;
            *out_beside = beside;
        }
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(place->mount)) return;
        *slash = 0;
    }
}

static uint64_t least_in_groups(const char *root, const struct place *places, size_t count, amount of, uint64_t *out_beside) {
    uint64_t least = UINT64_MAX;
    struct text groups;
    const bool grouped = text_of(root, "/proc/self", "/cgroup", &groups);
    for (size_t i = 0; grouped && i < count; i++) least_of(root, &places[i], groups.at, of, &least, out_beside);
    return least;
}
#define PLACES(places) (places), sizeof (places) / sizeof (places)[0]

size_t echi_memory_available(const char *root) {
    uint64_t least = UINT64_MAX, kibibytes, used;
    if (number_in(root, "/proc", "/meminfo", "MemAvailable:", &kibibytes) && kibibytes < UINT64_MAX / 1024) least = kibibytes * 1024;
    const uint64_t left = least_in_groups(root, PLACES(memory_places), left_in, &used);
    if (left < least) least = left;
    return least < SIZE_MAX ? (size_t)least : SIZE_MAX;
}

int echi_cpu_granted(const char *root) {
    uint64_t period;
    const uint64_t parts = least_in_groups(root, PLACES(time_places), granted_in, &period);
    if (parts >= PARTS * INT_MAX) return INT_MAX;
    return parts > 0 ? (int)((parts + PARTS - 1) / PARTS) : 1;
}

bool echi_cpu_quota(const char *root, double *out_seconds, double *out_period) {
    uint64_t period = 0;
    const uint64_t parts = least_in_groups(root, PLACES(time_places), granted_in, &period);
    if (parts == 0 || parts == UINT64_MAX) return false;
    *out_period = (double)period * 1e-6;
    *out_seconds = *out_period * ((double)parts / (double)PARTS);
    return true;
}
