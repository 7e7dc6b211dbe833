/* SPDX-License-Identifier: Apache-2.0
 * port/ on this machine: clock, threads, memory, files, libraries, processor. */
#include "echi_os.h"
#include "sanitized.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

/* ------------------------------------------------------------------ clock */

static void clock_goes_forward(void **state) {
    (void)state;
    int64_t last = echi_now();
    for (int i = 0; i < 1000; i++) {
        const int64_t now = echi_now();
        assert_true(now >= last);
        last = now;
    }
}

static void sleep_reaches_its_deadline(void **state) {
    (void)state;
    const int64_t deadline = echi_now() + 20 * MS, cpu = echi_thread_cpu();
    echi_sleep_until(deadline);
    assert_true(echi_now() >= deadline);
    assert_true(echi_thread_cpu() - cpu < 20 * MS); /* sleeping is not computing */
    echi_sleep_until(echi_now() - SECOND);   /* these return at once */
    echi_sleep_until(INT64_MIN);
}

static void ignore_signal(int number) { (void)number; }

/* A timer that fires every 2 ms does not shorten a sleep. */
static void sleep_survives_signals(void **state) {
    (void)state;
    struct sigaction action = {.sa_handler = ignore_signal}, before;
    sigaction(SIGALRM, &action, &before);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    const struct itimerspec every = {{0, 2 * MS}, {0, 2 * MS}};
    assert_int_equal(timer_settime(timer, 0, &every, NULL), 0);
    const int64_t deadline = echi_now() + 30 * MS;
    echi_sleep_until(deadline);
    assert_true(echi_now() >= deadline);
    timer_delete(timer);
    sigaction(SIGALRM, &before, NULL);
}

/* ---------------------------------------------------------------- threads */

struct counter {
    struct echi_mutex mutex;
    struct echi_cond cond;
    int count, turn;
    bool masked;
};

static void counter_init(struct counter *c) {
    *c = (struct counter){0};
    assert_int_equal(echi_mutex_init(&c->mutex, NULL), ECH_OK);
    assert_int_equal(echi_cond_init(&c->cond, NULL), ECH_OK);
}

static void counter_destroy(struct counter *c) {
    echi_cond_destroy(&c->cond);
    echi_mutex_destroy(&c->mutex);
}

static void *count_up(void *arg) {
    struct counter *c = arg;
    for (int i = 0; i < 10000; i++) {
        echi_mutex_lock(&c->mutex);
        c->count++;
        echi_mutex_unlock(&c->mutex);
    }
    return NULL;
}

static void mutex_excludes(void **state) {
    (void)state;
    struct counter c;
    counter_init(&c);
    struct echi_thread t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(echi_thread_start(&t[i], "counter", count_up, &c, NULL), ECH_OK);
    for (int i = 0; i < 4; i++) echi_thread_join(&t[i]);
    assert_int_equal(c.count, 40000);
    counter_destroy(&c);
}

/* Two threads take turns; each waits for the other, so a lost signal would show as a hang. */
static void *take_odd_turns(void *arg) {
    struct counter *c = arg;
    echi_mutex_lock(&c->mutex);
    while (c->turn < 1000) {
        while (c->turn % 2 == 0 && c->turn < 1000) (void)echi_cond_wait(&c->cond, &c->mutex, INT64_MAX);
        c->turn++;
        echi_cond_signal(&c->cond);
    }
    echi_mutex_unlock(&c->mutex);
    return NULL;
}

static void cond_wakes(void **state) {
    (void)state;
    struct counter c;
    struct echi_thread t;
    counter_init(&c);
    assert_int_equal(echi_thread_start(&t, "odd", take_odd_turns, &c, NULL), ECH_OK);
    echi_mutex_lock(&c.mutex);
    while (c.turn < 1000) {
        while (c.turn % 2 == 1) assert_true(echi_cond_wait(&c.cond, &c.mutex, INT64_MAX));
        c.turn++;
        echi_cond_broadcast(&c.cond);
    }
    echi_mutex_unlock(&c.mutex);
    echi_thread_join(&t);
    assert_in_range(c.turn, 1000, 1001);
    counter_destroy(&c);
}

static void cond_times_out_on_our_clock(void **state) {
    (void)state;
    struct counter c;
    counter_init(&c);
    echi_mutex_lock(&c.mutex);
    const int64_t start = echi_now(), deadline = start + 20 * MS;
    while (echi_cond_wait(&c.cond, &c.mutex, deadline)) continue; /* a wait may wake for nothing */
    assert_true(echi_now() >= deadline);
    while (echi_cond_wait(&c.cond, &c.mutex, start - SECOND)) continue;
    echi_mutex_unlock(&c.mutex);
    counter_destroy(&c);
}

static void *describe_self(void *arg) {
    struct counter *c = arg;
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    c->masked = sigismember(&set, SIGINT) == 1 && sigismember(&set, SIGTERM) == 1;
    return NULL;
}

static void thread_leaves_signals_to_the_program(void **state) {
    (void)state;
    struct counter c = {0};
    struct echi_thread t;
    assert_int_equal(echi_thread_start(&t, "a name that is far too long", describe_self, &c, NULL), ECH_OK);
    echi_thread_join(&t);
    assert_true(c.masked);
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_int_equal(sigismember(&set, SIGINT), 0);
}

/* ----------------------------------------------------------------- memory */

static void memory_is_aligned_and_zeroed(void **state) {
    (void)state;
    for (size_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *p = echi_alloc_aligned(bytes);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < bytes; i++) assert_int_equal(p[i], 0);
        memset(p, 0xff, bytes);
        echi_free_aligned(p);
    }
    const size_t large = (size_t)2 << 20;
    for (size_t bytes = large - 64; bytes <= large + 1; bytes++) {   /* from here on large pages are asked for */
        unsigned char *p = echi_alloc_aligned(bytes);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (bytes > large - 64 ? large : 64), 0);
        assert_true(p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
        memset(p, 0xff, bytes);
        echi_free_aligned(p);
    }
    echi_free_aligned(NULL);
    assert_null(echi_alloc_aligned(SIZE_MAX));
    assert_null(echi_alloc_aligned(SIZE_MAX - 63));
}

static size_t resident(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    if (fscanf(file, "%*s %zu", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* malloc would keep the second of these, since the first is freed before it. */
static void large_blocks_go_back_to_the_system(void **state) {
    (void)state;
#if SANITIZED
    skip();
#endif
    const size_t before = resident(), most = (size_t)1 << 20;
    if (before == 0) skip();
    for (size_t size = (size_t)16 << 20; size >= (size_t)2 << 20; size /= 2) {
        void *p = echi_alloc_aligned(size);
        assert_non_null(p);
        assert_true(resident() >= before + size);
        echi_free_aligned(p);
        assert_true(resident() < before + most);
    }
}

/* Small blocks of 1 to 3 times 64 bytes go over some twenty beginnings of large pages, and none lies on one. */
static void small_blocks_are_told_from_large_ones(void **state) {
    (void)state;
#if SANITIZED
    skip();   /* all are malloc's */
#endif
    enum { BLOCKS = 1 << 18 };
    static void *block[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++) {
        block[i] = echi_alloc_aligned(64 * (1 + (i * 2654435761u >> 16) % 3));
        assert_non_null(block[i]);
        assert_int_not_equal((uintptr_t)block[i] % ((size_t)2 << 20), 0);
    }
    for (int i = 0; i < BLOCKS; i++) echi_free_aligned(block[i]);
}

/* Nodes that take large blocks do it in turn, or several would find the same memory. Here the turn is another process'. */
static void large_blocks_are_taken_in_turn(void **state) {
    (void)state;
    int ready[2];
    char byte;
    const int turn = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (turn < 0) skip();
    assert_int_equal(pipe(ready), 0);
    while (flock(turn, LOCK_EX) != 0) assert_int_equal(errno, EINTR);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(turn);
        (void)!write(ready[1], "s", 1);   /* small blocks wait for nobody */
        echi_free_aligned(echi_alloc_aligned((size_t)1 << 20));
        (void)!write(ready[1], "m", 1);
        echi_free_aligned(echi_alloc_aligned((size_t)16 << 20));
        (void)!write(ready[1], "l", 1);
        _exit(0);
    }
    assert_true(read(ready[0], &byte, 1) == 1 && byte == 's' && read(ready[0], &byte, 1) == 1 && byte == 'm');
    struct pollfd answer = {.fd = ready[0], .events = POLLIN};
    assert_int_equal(poll(&answer, 1, 200), 0);
    flock(turn, LOCK_UN);
    assert_true(read(ready[0], &byte, 1) == 1 && byte == 'l');
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(turn);
    close(ready[0]);
    close(ready[1]);
}

/* ------------------------------------------------------------------ files */

static char folder[64];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/echelon-test-port-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static char *in_folder(const char *name) {
    static char path[4][PATH_MAX];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, PATH_MAX, "%s/%s", folder, name);
    return p;
}

static int entries(void) {
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static int empty_folder(void **state) {
    (void)state;
    DIR *d = opendir(folder);
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char *path = in_folder(e->d_name);
        if (unlink(path) != 0) rmdir(path);
    }
    closedir(d);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static void check_content(const char *path, const void *bytes, size_t len) {
    uint8_t *got;
    size_t got_len;
    struct ech_error err = {0};
    if (echi_file_read(path, len, &got, &got_len, &err) != ECH_OK) fail_msg("%s", err.text);
    assert_int_equal(got_len, len);
    if (len) assert_memory_equal(got, bytes, len);
    free(got);
}

static void file_comes_back(void **state) {
    (void)state;
    uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 31);
    char *path = in_folder("file");
    assert_false(echi_file_exists(path));
    assert_int_equal(echi_file_write(path, bytes, sizeof bytes, NULL), ECH_OK);
    assert_true(echi_file_exists(path));
    check_content(path, bytes, sizeof bytes);
    assert_int_equal(echi_file_write(path, NULL, 0, NULL), ECH_OK);
    check_content(path, NULL, 0);
    assert_int_equal(entries(), 1);
    /* A path with no folder in it, too. */
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(echi_file_write("bare", "x", 1, NULL), ECH_OK);
    check_content("bare", "x", 1);
    assert_int_equal(chdir(before), 0);
}

static void file_keeps_mode_and_link(void **state) {
    (void)state;
    struct stat info;
    char *path = in_folder("file"), *link = in_folder("link");
    assert_int_equal(echi_file_write(path, "old", 3, NULL), ECH_OK);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(echi_file_write(link, "new", 3, NULL), ECH_OK);
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0640);
    check_content(path, "new", 3);
}

static void check_refused(ech_status got, ech_status wanted, const struct ech_error *err, const char *path) {
    assert_int_equal(got, wanted);
    assert_int_equal(err->code, wanted);
    if (!strstr(err->text, path)) fail_msg("the sentence does not name the file: %s", err->text);
}

static void read_refuses(void **state) {
    (void)state;
    uint8_t *bytes = NULL;
    size_t len = 77;
    struct ech_error err;
    char *path = in_folder("file"), *pipe = in_folder("pipe");
    check_refused(echi_file_read(path, 10, &bytes, &len, &err), ECH_E_IO, &err, path);
    check_refused(echi_file_read(folder, 10, &bytes, &len, &err), ECH_E_ARGUMENT, &err, folder);
    check_refused(echi_file_read("/dev/zero", 10, &bytes, &len, &err), ECH_E_ARGUMENT, &err, "/dev/zero");
    assert_int_equal(mkfifo(pipe, 0600), 0);
    check_refused(echi_file_read(pipe, 10, &bytes, &len, &err), ECH_E_ARGUMENT, &err, pipe);
    assert_int_equal(echi_file_write(path, "12345678901", 11, NULL), ECH_OK);
    check_refused(echi_file_read(path, 10, &bytes, &len, &err), ECH_E_FORMAT, &err, path);
    assert_int_equal(echi_file_read(path, 10, &bytes, &len, NULL), ECH_E_FORMAT);
    assert_null(bytes);
    assert_int_equal(len, 77);
}

/* Files under /proc have no size until they are read. */
static void read_does_not_trust_the_size(void **state) {
    (void)state;
    uint8_t *bytes;
    size_t len;
    struct ech_error err;
    assert_int_equal(echi_file_read("/proc/self/status", SIZE_MAX, &bytes, &len, NULL), ECH_OK);
    assert_true(len > 100);
    free(bytes);
    check_refused(echi_file_read("/proc/self/status", 100, &bytes, &len, &err), ECH_E_FORMAT, &err, "/proc/self/status");
}

static void write_refuses(void **state) {
    (void)state;
    struct ech_error err;
    char *nowhere = in_folder("no/such/file"), *dangling = in_folder("dangling");
    check_refused(echi_file_write(nowhere, "x", 1, &err), ECH_E_IO, &err, nowhere);
    check_refused(echi_file_write(folder, "x", 1, &err), ECH_E_ARGUMENT, &err, folder);
    check_refused(echi_file_write("/dev/null", "x", 1, &err), ECH_E_ARGUMENT, &err, "/dev/null");
    assert_int_equal(symlink(nowhere, dangling), 0);
    check_refused(echi_file_write(dangling, "x", 1, &err), ECH_E_IO, &err, dangling);
    char longest[PATH_MAX];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(echi_file_write(longest, "x", 1, &err), ECH_E_IO);
    assert_int_equal(entries(), 1);
}

/* The disk is full in the middle: here, files may not grow beyond 1,000 bytes. In a child, since the limit is one-way. */
static void failed_write_changes_nothing(void **state) {
    (void)state;
    static uint8_t bytes[5000];
    char *path = in_folder("file");
    assert_int_equal(echi_file_write(path, "old", 3, NULL), ECH_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const struct rlimit limit = {1000, 1000};
        struct ech_error err = {0};
        const bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0 && echi_file_write(path, bytes, sizeof bytes, &err) == ECH_E_IO &&
                          strstr(err.text, path) && echi_file_write(path, bytes, 1000, NULL) == ECH_OK &&
                          echi_file_write(path, "old", 3, NULL) == ECH_OK;
        _exit(good ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_content(path, "old", 3);
    assert_int_equal(entries(), 1);
}

/* A file that grows is refused no otherwise; the signal, which would end a program that does not expect it, does not come. */
static void growing_file_meets_its_limit(void **state) {
    (void)state;
    static uint8_t bytes[600];
    char *path = in_folder("growing");
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {1000, 1000};
        struct ech_error err = {0};
        int file;
        signal(SIGXFSZ, SIG_DFL);
        const bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0 && echi_file_create(path, &file, NULL) == ECH_OK &&
                          echi_file_append(file, bytes, sizeof bytes, NULL) == ECH_OK &&
                          echi_file_append(file, bytes, sizeof bytes, &err) == ECH_E_IO && strstr(err.text, "ulimit -f");
        _exit(good ? 0 : 1);
    }
    int status;
    struct stat info;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 1000);
}

/* It is a new one, of whom nobody else knows, and neither written over nor through a link. */
static void growing_file_is_new(void **state) {
    (void)state;
    char *path = in_folder("growing"), *link = in_folder("link"), *nowhere = in_folder("nowhere");
    struct ech_error err = {0};
    int file, other;
    assert_int_equal(echi_file_create(path, &file, &err), ECH_OK);
    assert_int_equal(echi_file_append(file, "old", 3, &err), ECH_OK);
    assert_int_equal(echi_file_create(path, &other, &err), ECH_E_BUSY);
    assert_non_null(strstr(err.text, "another run is writing"));
    assert_int_equal(echi_file_sync(file, &err), ECH_OK);
    echi_file_close(file);
    assert_int_equal(echi_file_create(path, &other, &err), ECH_E_ARGUMENT);
    assert_non_null(strstr(err.text, "growing' is there already"));
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(echi_file_create(link, &other, &err), ECH_E_ARGUMENT);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink(nowhere, link), 0);
    assert_int_equal(echi_file_create(link, &other, &err), ECH_E_ARGUMENT);
    assert_false(echi_file_exists(nowhere));
    check_content(path, "old", 3);
}

/* ---------------------------------------------------- libraries, machine */

static void library_is_found_or_not(void **state) {
    (void)state;
    assert_null(echi_library_open("libno-such-library-here.so.9"));
    assert_null(echi_library_symbol(NULL, "cos"));
    echi_library_close(NULL);
#ifndef ECHI_STATIC
    void *library = echi_library_open("libm.so.6");
    if (!library) skip(); /* another libc's name */
    assert_non_null(echi_library_symbol(library, "cos"));
    assert_null(echi_library_symbol(library, "no_such_symbol_here"));
    echi_library_close(library);
#endif
}

/* The kernel's own list of what it lets programs use. */
static inline bool listed(const char *flag) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    static char line[16384];
    bool found = false;
    if (!f) return false;
    while (!found && fgets(line, sizeof line, f)) {
        if (strncmp(line, "flags", 5) != 0) continue;
        for (char *word = strtok(line, " \t\n"); word && !found; word = strtok(NULL, " \t\n")) found = strcmp(word, flag) == 0;
        break;
    }
    fclose(f);
    return found;
}

/* Under an emulator the kernel lists another processor's: levels are x86's. */
static void cpu_level_is_what_the_kernel_says(void **state) {
    (void)state;
    enum echi_cpu_level expected = ECHI_CPU_BASE;
#if defined __x86_64__ || defined __i386__
    if (listed("avx2") && listed("fma")) expected = ECHI_CPU_AVX2;
    if (expected == ECHI_CPU_AVX2 && listed("avx512f") && listed("avx512bw") && listed("avx512dq") && listed("avx512vl"))
        expected = ECHI_CPU_AVX512;
#endif
    assert_int_equal(echi_cpu_level(), expected);
}

static void cpu_count_follows_affinity(void **state) {
    (void)state;
    assert_in_range(echi_cpu_count(), 1, 100000);
    cpu_set_t before, one;
    const uint64_t place = echi_cpu_place();
    assert_true(place != 0 && place == echi_cpu_place());
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    size_t first = 0;
    while (!CPU_ISSET(first, &before)) first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(echi_cpu_count(), 1);
    assert_int_equal(echi_cpu_allowed(), 1);
    assert_true(CPU_COUNT(&before) == 1 || echi_cpu_place() != place);   /* other processors, so shared with others */
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void *count_here(void *out) {
    *(int *)out = echi_cpu_allowed();
    return NULL;
}

/* Parts of all processors are equal, none is in two, and threads that are started meanwhile stay in theirs. */
static void processors_are_divided(void **state) {
    (void)state;
    struct echi_cpu_set all, before;
    cpu_set_t own, together;
    const int count = echi_cpu_allowed();
    CPU_ZERO(&together);
    for (int part = 0; part < count; part++) {
        int started = 0;
        struct echi_thread thread;
        assert_true(echi_cpu_bind(part, count, &before));
        assert_int_equal(echi_cpu_allowed(), 1);
        assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
        CPU_OR(&together, &together, &own);
        assert_int_equal(echi_thread_start(&thread, "here", count_here, &started, NULL), ECH_OK);
        echi_thread_join(&thread);
        assert_int_equal(started, 1);
        echi_cpu_unbind(&before);
        assert_int_equal(echi_cpu_allowed(), count);
    }
    assert_int_equal(CPU_COUNT(&together), count);
    assert_false(echi_cpu_bind(0, count + 1, &all));
    assert_int_equal(echi_cpu_allowed(), count);
}

static void resident_peak_grows(void **state) {
    (void)state;
    const size_t before = echi_resident_peak(), more = (size_t)64 << 20;
    assert_true(before > 0);
    void *p = echi_alloc_aligned(more);
    assert_non_null(p);
    assert_true(echi_resident_peak() >= before + more / 2);
    echi_free_aligned(p);
    assert_true(echi_resident_peak() >= before + more / 2); /* the peak, not what is held now */
}

static void entropy_differs(void **state) {
    (void)state;
    uint8_t a[1000] = {0}, b[1000] = {0};
    assert_int_equal(echi_entropy(a, sizeof a, NULL), ECH_OK);
    assert_int_equal(echi_entropy(b, sizeof b, NULL), ECH_OK);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a + 990, b + 990, 10);
    assert_int_equal(echi_entropy(a, 0, NULL), ECH_OK);
}

#define WITH_FOLDER(test) cmocka_unit_test_teardown(test, empty_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_goes_forward),
        cmocka_unit_test(sleep_reaches_its_deadline),
        cmocka_unit_test(sleep_survives_signals),
        cmocka_unit_test(mutex_excludes),
        cmocka_unit_test(cond_wakes),
        cmocka_unit_test(cond_times_out_on_our_clock),
        cmocka_unit_test(thread_leaves_signals_to_the_program),
        cmocka_unit_test(memory_is_aligned_and_zeroed),
        cmocka_unit_test(large_blocks_go_back_to_the_system),
        cmocka_unit_test(large_blocks_are_taken_in_turn),
        WITH_FOLDER(file_comes_back),
        WITH_FOLDER(file_keeps_mode_and_link),
        WITH_FOLDER(read_refuses),
        WITH_FOLDER(read_does_not_trust_the_size),
        WITH_FOLDER(write_refuses),
        WITH_FOLDER(failed_write_changes_nothing),
        WITH_FOLDER(growing_file_meets_its_limit),
        WITH_FOLDER(growing_file_is_new),
        cmocka_unit_test(library_is_found_or_not),
        cmocka_unit_test(cpu_level_is_what_the_kernel_says),
        cmocka_unit_test(cpu_count_follows_affinity), cmocka_unit_test(processors_are_divided),
        cmocka_unit_test(resident_peak_grows),
        cmocka_unit_test(small_blocks_are_told_from_large_ones),   /* after it: they leave a peak of 60 MB */
        cmocka_unit_test(entropy_differs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
