/* SPDX-License-Identifier: Apache-2.0
 * Runs the drivers. Each runs in a process of its own that leaves its input where this one finds it when it dies.
 *
 *   test_fuzz                                        a short run of all, the same each time: what `make test` does
 *   test_fuzz --seconds N [--only NAME] [--seed S] [--keep FOLDER]
 *                                                    N seconds of processor time for each driver, guided by coverage; inputs
 *                                                    that go new ways are kept in FOLDER/NAME
 *   test_fuzz --only NAME --merge TO FOLDER...       of all inputs in these folders the fewest that go the same ways, into TO
 *   test_fuzz --only NAME FILE...                    just these inputs, in this process: for a debugger */
#include "fuzz.h"
#include "part.h"
#include "sanitized.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SHORT_RUNS = 20000, LARGE_HEAP = 1 << 20, POOL_MAX = 20000, STUCK_SECONDS = 60 /* of processor time */ };

static struct {
    const char *only, *keep, *merge, *corpus;
    double seconds;
    uint64_t seed;
    bool shortly;
} options = {.corpus = "test/fuzz/corpus", .seed = 4, .shortly = true};

/* What a driver's process tells this one. */
static struct news {
    size_t len;
    uint8_t bytes[FUZZ_INPUT_MAX]; /* of the input that is tried now */
    uint64_t runs, taken;
    int pool, features;
} *news;

/* What must become of an input. Files in the corpus say it with their names: ok-, no-, and x- for either. */
enum fate { EITHER, TAKEN, REFUSED };
struct input {
    uint8_t *bytes;
    size_t len;
    enum fate fate;
    bool named; /* kept under a name of its own, not under its hash */
};
static struct input pool[POOL_MAX];
static int n_pool, taken[POOL_MAX], n_taken; /* taken: which of the pool the parser takes */

static void add(const uint8_t *bytes, size_t len, enum fate fate, bool named) {
    FUZZ_CHECK(n_pool < POOL_MAX);
    uint8_t *copy = malloc(len + 1);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, bytes, len);
    pool[n_pool++] = (struct input){copy, len, fate, named};
}

/* Files that this program wrote are called x- and the hash of what is in them. */
static void hashed_name(char out[32], const uint8_t *bytes, size_t len) {
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < len; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    snprintf(out, 32, "x-%016llx", (unsigned long long)hash);
}

static void write_input(const char *folder, const char *name, const uint8_t *bytes, size_t len) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, len, f) != len || fclose(f) != 0) perror(path);
}

static int is_file(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void load_folder(const char *folder, size_t most) {
    struct dirent **list;
    const int n = scandir(folder, &list, is_file, alphasort); /* sorted: the same pool on every machine */
    for (int i = 0; i < n; i++) {
        char path[512];
        size_t len;
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        uint8_t *bytes = fuzz_read(path, &len);
        const char *name = list[i]->d_name;
        const enum fate fate = !strncmp(name, "ok-", 3) ? TAKEN : !strncmp(name, "no-", 3) ? REFUSED : EITHER;
        if (bytes) add(bytes, len < most ? len : most, fate, fate != EITHER);
        free(bytes);
        free(list[i]);
    }
    if (n >= 0) free(list);
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool try_input(const struct fuzz_driver *d, const uint8_t *bytes, size_t len) {
    if (news->runs++ % 256 == 0) setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = STUCK_SECONDS}, NULL);
    news->len = len;
    if (bytes != news->bytes) memcpy(news->bytes, bytes, len);
    fuzz_cover_begin();
    const bool good = fuzz_run(d, news->bytes, len);
    news->taken += good;
    return good;
}

/* Inputs to start from: those that the driver makes; then those that were kept. */
static void load_pool(const struct fuzz_driver *d) {
    static uint8_t bytes[FUZZ_INPUT_MAX];
    char folder[400];
    size_t len;
    bool good = true;
    for (int i = 0; d->seed && (len = d->seed(i, bytes, d->most, &good)) > 0; i++, good = true)
        add(bytes, len, good ? TAKEN : REFUSED, true);
    const int made = n_pool;
    snprintf(folder, sizeof folder, "%s/%s", options.corpus, d->name);
    load_folder(folder, d->most);
    if (options.keep) {
        snprintf(folder, sizeof folder, "%s/%s", options.keep, d->name);
        mkdir(options.keep, 0777);
        mkdir(folder, 0777);
        load_folder(folder, d->most);
    }
    for (int i = 0; i < n_pool; i++) {
        const bool was = try_input(d, pool[i].bytes, pool[i].len);
        fuzz_cover_end(true);
        if (was) taken[n_taken++] = i;
        FUZZ_CHECK(pool[i].fate == EITHER || was == (pool[i].fate == TAKEN));
        if (!options.shortly || !was || i >= made) continue;
        /* Cut at each byte, at most at 300 places of a long one. */
        for (size_t cut = 0; cut < pool[i].len; cut += 1 + pool[i].len / 300) try_input(d, pool[i].bytes, cut);
    }
}

/* One of those that are taken, of the newest quarter, or of all: each a third. */
static const struct input *choose(struct echi_random *r) {
    const uint32_t all = (uint32_t)n_pool, newest = all / 4;
    switch (echi_random_below(r, 3)) {
    case 0: if (n_taken) return &pool[taken[echi_random_below(r, (uint32_t)n_taken)]]; break;
    case 1: if (newest) return &pool[all - newest + echi_random_below(r, newest)]; break;
    }
    return &pool[echi_random_below(r, all)];
}

static void fuzz(const struct fuzz_driver *d) {
    char folder[400], name[32];
    snprintf(folder, sizeof folder, "%s/%s", options.keep ? options.keep : "", d->name);
    load_pool(d);
    if (!n_pool) add((const uint8_t *)"", 0, EITHER, true);
    const double end = cpu_seconds() + options.seconds;
    /* A sanitizer is what this is for, but it hands out memory by the megabyte slowly. */
    const uint32_t runs = (d->runs ? d->runs : SHORT_RUNS) / (!ADDRESSES_WATCHED || d->heap > LARGE_HEAP ? test_part() : 1);
    for (uint32_t i = 0; options.shortly ? i < runs : i % 64 != 0 || cpu_seconds() < end; i++) {
        struct echi_random r;
        echi_random_init(&r, options.seed, ECHI_STREAM_TEST, i);
        const struct input *from = choose(&r), *other = choose(&r);
        size_t len = from->len;
        memcpy(news->bytes, from->bytes, len);
        fuzz_mutate(&r, d, news->bytes, &len, other->bytes, other->len);
        const bool good = try_input(d, news->bytes, len);
        if (options.shortly || n_pool == POOL_MAX || !fuzz_cover_end(true)) continue;
        if (good) taken[n_taken++] = n_pool;
        add(news->bytes, len, EITHER, false);
        hashed_name(name, news->bytes, len);
        if (options.keep) write_input(folder, name, news->bytes, len);
        news->pool = n_pool;
        news->features = fuzz_cover_features();
    }
    news->pool = n_pool;
    news->features = fuzz_cover_features();
}

/* In a process of its own; true when all was well. */
static bool run_driver(const struct fuzz_driver *d) {
    memset(news, 0, sizeof *news);
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        fuzz(d);
        exit(0); /* not _exit: gcov writes its counts, a sanitizer looks for leaks */
    }
    int status;
    struct rusage used;
    while (wait4(child, &status, 0, &used) < 0) continue;
    const double cpu = (double)used.ru_utime.tv_sec + (double)used.ru_stime.tv_sec +
                       1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    printf("%-12s %10llu inputs, %4.1f %% taken, %6.1f s, pool %d, features %d\n", d->name, (unsigned long long)news->runs,
           news->runs ? 100.0 * (double)news->taken / (double)news->runs : 0, cpu, news->pool, news->features);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        char name[64];
        snprintf(name, sizeof name, "bug-%s", d->name);
        write_input(".", name, news->bytes, news->len);
        printf("%s: %s; the input is in ./%s: run this program with --only %s %s\n", d->name,
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "a sanitizer ended it", name, d->name, name);
        return false;
    }
    /* A driver that takes everything or nothing tests nothing. */
    const bool both = news->taken * 200 > news->runs && (news->runs - news->taken) * 200 > news->runs;
    if (options.shortly && !both) printf("%s: too few inputs were taken, or too few refused\n", d->name);
    return both || !options.shortly;
}

static int by_length(const void *a, const void *b) {
    const struct input *x = a, *y = b;
    if (x->named != y->named) return x->named ? -1 : 1;
    return (x->len > y->len) - (x->len < y->len);
}

/* Greedy, the shortest first; what has a name of its own stays where it is, but what it covers needs no other. */
static int merge(const struct fuzz_driver *d, char **folders) {
    int kept = 0, named = 0;
    char name[32];
    load_pool(d);
    for (; *folders; folders++) load_folder(*folders, d->most);
    qsort(pool, (size_t)n_pool, sizeof *pool, by_length);
    fuzz_cover_forget();
    mkdir(options.merge, 0777);
    for (int i = 0; i < n_pool; i++) {
        try_input(d, pool[i].bytes, pool[i].len);
        named += pool[i].named;
        if (!fuzz_cover_end(false) || pool[i].named) continue;
        hashed_name(name, pool[i].bytes, pool[i].len);
        write_input(options.merge, name, pool[i].bytes, pool[i].len);
        kept++;
    }
    printf("%s: %d inputs with names, %d others of %d kept, %d edges\n", d->name, named, kept, n_pool - named, fuzz_cover_features());
    return 0;
}

static int run_files(const struct fuzz_driver *d, char **files) {
    for (; *files; files++) {
        size_t len;
        uint8_t *bytes = fuzz_read(*files, &len);
        if (!bytes) {
            perror(*files);
            return 1;
        }
        printf("%s: %s\n", *files, try_input(d, bytes, len < d->most ? len : d->most) ? "taken" : "refused");
        free(bytes);
    }
    return 0;
}

static int usage(void) {
    fprintf(stderr,
            "usage: test_fuzz [--seconds N] [--only NAME] [--seed S] [--keep FOLDER] [--corpus FOLDER] [--merge TO] [FILE|FOLDER...]\n"
            "NAME is one of:");
    for (int i = 0; fuzz_drivers[i]; i++) fprintf(stderr, " %s", fuzz_drivers[i]->name);
    fprintf(stderr, "\n");
    return 2;
}

static const struct fuzz_driver *find(const char *name) {
    for (int i = 0; fuzz_drivers[i]; i++)
        if (strcmp(fuzz_drivers[i]->name, name) == 0) return fuzz_drivers[i];
    return NULL;
}

int main(int argc, char **argv) {
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        const char *name = argv[at] + 2, *value = argv[at + 1];
        if (strcmp(name, "only") == 0) options.only = value;
        else if (strcmp(name, "keep") == 0) options.keep = value;
        else if (strcmp(name, "merge") == 0) options.merge = value;
        else if (strcmp(name, "corpus") == 0) options.corpus = value;
        else if (strcmp(name, "seed") == 0) options.seed = strtoull(value, NULL, 10);
        else if (strcmp(name, "seconds") == 0) options.seconds = strtod(value, NULL), options.shortly = false;
        else return usage();
    }
    const struct fuzz_driver *const only = options.only && *options.only ? find(options.only) : NULL;
    if ((options.only && *options.only && !only) || (at < argc && !only) || (options.merge && !only)) return usage();
    news = mmap(NULL, sizeof *news, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FUZZ_CHECK(news != MAP_FAILED);
    fuzz_out_folder(); /* before the first child, so that this process cleans up */
    if (options.merge) {
        options.shortly = false;
        return merge(only, argv + at);
    }
    if (at < argc) return run_files(only, argv + at);
    printf("seed %llu\n", (unsigned long long)options.seed);
    int failed = 0;
    for (int i = 0; fuzz_drivers[i]; i++)
        if (!only || fuzz_drivers[i] == only) failed += !run_driver(fuzz_drivers[i]);
    return failed != 0;
}
