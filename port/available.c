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

static uint64_t left_in(const char *root, const char *folder, const struct place *at) {
    uint64_t limit, used, files, sum = 0;
    if (!number_in(root, folder, at->limit, "", &limit) || !number_in(root, folder, at->beside, "", &used)) return UINT64_MAX;
    static const char *const kinds[] = {"inactive_file ", "active_file "};
    for (int i = 0; i < 2; i++)
        if (number_in(root, folder, "/memory.stat", kinds[i], &files)) sum += files;
    used -= sum < used ? sum : used;
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

/* In processors, of which a part counts as one. Without a limit the quota is "max", which is no number, or -1. */
static uint64_t processors_in(const char *root, const char *folder, const struct place *at) {
    uint64_t quota, period = 0;
    struct text text;
    const bool limited = text_of(root, folder, at->limit, &text) && number(text.at, "", &quota) && quota <= INT64_MAX;
    const char *behind = limited ? strchr(text.at, ' ') : NULL;
    if (limited && at->beside) number_in(root, folder, at->beside, "", &period);
    else if (behind) number(behind, "", &period);
    return limited && period > 0 ? quota / period + (quota % period > 0) : UINT64_MAX;
}

typedef uint64_t (*amount)(const char *root, const char *folder, const struct place *at);

/* The least that the process' group, or one above it, says. In a container its path may be one that only the host knows: then the
 * mount itself is its group. */
static uint64_t least_of(const char *root, const struct place *place, const char *groups, amount of) {
    const char *at = strstr(groups, place->controller);
    char folder[4096];
    uint64_t least = UINT64_MAX;
    if (!at) return least;
    at += strlen(place->controller);
    if (snprintf(folder, sizeof folder, "%s%.*s", place->mount, (int)strcspn(at, "\n"), at) >= (int)sizeof folder) return least;
    for (;;) {
        const uint64_t said = of(root, folder, place);
        if (said < least) least = said;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(place->mount)) return least;
        *slash = 0;
    }
}

static uint64_t least_in_groups(const char *root, const struct place *places, size_t count, amount of) {
    uint64_t least = UINT64_MAX;
    struct text groups;
    const bool grouped = text_of(root, "/proc/self", "/cgroup", &groups);
    for (size_t i = 0; grouped && i < count; i++) {
        const uint64_t said = least_of(root, &places[i], groups.at, of);
        if (said < least) least = said;
    }
    return least;
}
#define PLACES(places) (places), sizeof (places) / sizeof (places)[0]

size_t echi_memory_available(const char *root) {
    uint64_t least = UINT64_MAX, kibibytes;
    if (number_in(root, "/proc", "/meminfo", "MemAvailable:", &kibibytes) && kibibytes < UINT64_MAX / 1024) least = kibibytes * 1024;
    const uint64_t left = least_in_groups(root, PLACES(memory_places), left_in);
    if (left < least) least = left;
    return least < SIZE_MAX ? (size_t)least : SIZE_MAX;
}

int echi_cpu_granted(const char *root) {
    const uint64_t processors = least_in_groups(root, PLACES(time_places), processors_in);
    return processors > INT_MAX ? INT_MAX : processors > 0 ? (int)processors : 1;
}
