/* SPDX-License-Identifier: Apache-2.0
 * Checkpoints on a disk that fails. This program has open, write, fsync, rename and unlink of its own, which count and, at
 * the k-th call, refuse, or let the power go: then nothing happens any more, and what was not synced may be lost. For every
 * k the newest whole checkpoint is found, and it holds what was kept. */
#include "echi_checkpoint.h"
#include "echi_print.h"
#include "echi_random.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

/* ------------------------------------------------------------- the disk */

/* REFUSES: the k-th call alone; FULL: from then on nothing is written; BROKEN: nor is it then, for another reason; CUT: the power goes */
enum mode { GOOD, REFUSES, FULL, BROKEN, CUT };
enum step { CREATED, RENAMED, REMOVED };
enum { STEPS = 64, NAME = 512 };
static struct {
    enum mode mode;
    int at, calls;                        /* which call it is; calls so far */
    bool off;                             /* the power is */
    /* not on the disk yet */
    struct { enum step what; char from[NAME], to[NAME]; } step[STEPS];
    int steps;
    struct { int fd; char name[NAME]; bool dirty; } file[STEPS];
    int files, stashed;
    long capacity;                        /* bytes; 0: endless */
} disk;
static char root[64], folder[80], stash[80];

/* What lies in the folder. */
static ech_status add_size(void *self, const char *name) {
    char path[NAME];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &info) == 0) *(long *)self += (long)info.st_size;
    return ECH_OK;
}
static long used(void) {
    long sum = 0;
    echi_folder_list(folder, add_size, &sum, NULL);
    return sum;
}

/* True when this call is to fail. */
static bool fails(bool needs_room) {
    if (disk.mode == GOOD || disk.off) {
        errno = EIO;
        return disk.off;
    }
    const int call = ++disk.calls;
    if (disk.mode == CUT && call == disk.at) disk.off = true;
    errno = disk.mode >= BROKEN ? EIO : ENOSPC;
    return disk.mode == FULL || disk.mode == BROKEN ? call >= disk.at && needs_room : call == disk.at;
}

static void note(enum step what, const char *from, const char *to) {
    assert_true(disk.steps < STEPS);
    disk.step[disk.steps].what = what;
    snprintf(disk.step[disk.steps].from, NAME, "%s", from);
    snprintf(disk.step[disk.steps++].to, NAME, "%s", to);
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    const bool ours = (flags & O_CREAT) && strncmp(path, folder, strlen(folder)) == 0 && *folder;
    if (ours && fails(true)) return -1;
    const int fd = openat(AT_FDCWD, path, flags, mode);
    if (!ours || fd < 0) return fd;
    assert_true(disk.files < STEPS);
    disk.file[disk.files].fd = fd;
    disk.file[disk.files].dirty = false;
    snprintf(disk.file[disk.files++].name, NAME, "%s", path);
    note(CREATED, path, "");
    return fd;
}

static int find(int fd) {
    for (int i = disk.files - 1; i >= 0; i--)
        if (disk.file[i].fd == fd) return i;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t len) {
    const int i = find(fd);
    if (i >= 0 && *folder) {
        if (fails(true)) {
            if (!disk.off) return -1;
            if (disk.calls == disk.at && len > 1) (void)!syscall(SYS_write, fd, bytes, len / 2);   /* half of it arrived */
            disk.calls++;
            return -1;
        }
        if (disk.capacity && used() + (long)len > disk.capacity) {
            errno = ENOSPC;
            return -1;
        }
        disk.file[i].dirty = true;
    }
    return syscall(SYS_write, fd, bytes, len);
}

int fsync(int fd) {
    struct stat info;
    if (!*folder) return (int)syscall(SYS_fsync, fd);
    if (fails(false)) return -1;
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) disk.steps = 0;
    else if (find(fd) >= 0) disk.file[find(fd)].dirty = false;
    return 0;                             /* the real one would take its time, a thousand times over */
}

int rename(const char *from, const char *to) {
    struct stat info;
    if (fails(true)) return -1;
    assert_int_not_equal(stat(to, &info), 0);   /* nothing is ever written over */
    note(RENAMED, from, to);
    for (int i = 0; i < disk.files; i++)
        if (strcmp(disk.file[i].name, from) == 0) snprintf(disk.file[i].name, NAME, "%s", to);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlink(const char *path) {
    char away[NAME];
    if (strncmp(path, folder, strlen(folder)) != 0 || !*folder) return unlinkat(AT_FDCWD, path, 0);
    if (fails(false)) return -1;
    snprintf(away, sizeof away, "%s/%d", stash, disk.stashed++);
    if (renameat(AT_FDCWD, path, AT_FDCWD, away) != 0) return -1;
    note(REMOVED, away, path);
    return 0;
}

/* The machine starts again. What was never synced has reached the disk, or it has not, or of the names only the last change. */
enum lost { NOTHING, ALL, ALL_BUT_THE_LAST };
static void power_on(enum lost lost) {
    disk.mode = GOOD;
    disk.capacity = 0;
    disk.off = false;
    for (int i = 0; lost && i < disk.files; i++)
        if (disk.file[i].dirty) assert_int_equal(truncate(disk.file[i].name, 0) == 0 || errno == ENOENT, 1);
    for (int i = disk.steps - (lost == ALL_BUT_THE_LAST ? 2 : 1); lost && i >= 0; i--) {
        if (disk.step[i].what == CREATED) unlinkat(AT_FDCWD, disk.step[i].from, 0);
        else if (disk.step[i].what == RENAMED) renameat(AT_FDCWD, disk.step[i].to, AT_FDCWD, disk.step[i].from);
        else renameat(AT_FDCWD, disk.step[i].from, AT_FDCWD, disk.step[i].to);
    }
    disk.steps = disk.files = disk.calls = 0;
}

static void fail_at(enum mode mode, int at) {
    disk.steps = disk.files = disk.calls = 0;
    disk.mode = mode;
    disk.at = at;
}

/* -------------------------------------------------------------- the run */

static struct ech_model *model;
static struct ech_data data = {.name = "a set", .shape = {1, 6, 6}, .classes = 3, .n_train = 100, .n_test = 10, .hash = "d1"};
static struct echi_job job;
static struct ech_config config;
static struct echi_plan plan;
static struct ech_error error;
static float *values[1 + ECHI_GROUPS_MAX];
static char logged[4096];

static void on_log(void *user, enum ech_log_level level, const char *line) {
    (void)user, (void)level;
    const size_t len = strlen(logged);
    snprintf(logged + len, sizeof logged - len, "%s\n", line);
}

static void set_job(const char *text) {
    ech_model_destroy(model);
    assert_int_equal(ech_model_parse(text, strlen(text), "small", &model, &error), ECH_OK);
    job = (struct echi_job){.model = model, .data = &data, .train_samples = data.n_train, .seed = 7, .shuffle = true};
    job.n_layers = echi_model_param_layers(model, job.layer, ECHI_LAYERS_MAX);
    job.n_params = model->n_params;
    const struct ech_config of_run = {.separate = -1};
    assert_int_equal(echi_job_find_cuts(&of_run, &job, &error), ECH_OK);
}
static const char usual[] = "input 1 6 6\nconv2d out 2 kernel 3\nrelu\nfc out 4\nrelu\nfc out 3\n";

static void set_plan(int groups, bool separated) {
    plan = (struct echi_plan){.sync = groups > 1 ? ECHI_SYNC_GSSP : ECHI_SYNC_BSP, .world = (uint8_t)groups, .n_groups = (uint8_t)groups,
                              .cut = separated ? (uint8_t)job.cut_params : 0,
                              .head = separated ? 0 : ECHI_NO_RANK, .flights = 1, .round = 8, .lr = 0.1,
                              .momentum = 0.9};
}

/* Values that tell which checkpoint, which slot and which place they are from. */
static float value_at(uint64_t samples, int slot, size_t i) { return (float)samples + 1000.0f * (float)slot + (float)i / 1024; }

static struct echi_standing standing_at(uint64_t samples) {
    return (struct echi_standing){.epoch = (uint32_t)(samples / 100), .start = (uint32_t)(samples % 100), .samples = samples, .evals = 2,
                                  .clock = 5000000000 + (int64_t)samples, .measuring = 7, .keeping = 8, .accuracy = 0.5,
                                  .best_accuracy = 0.985, .loss = 1.25, .target_at = -1};
}

static struct echi_checkpoints *open_folder(bool resume) {
    struct echi_checkpoints *c = NULL;
    config.resume = resume;
    logged[0] = 0;
    if (echi_checkpoints_open(&config, &job, &c, &error) != ECH_OK) return NULL;
    assert_int_equal(echi_checkpoints_prepare(c, &plan, (const float *const *)values, &error), ECH_OK);
    return c;
}

static ech_status keep(struct echi_checkpoints *c, uint64_t samples) {
    const struct echi_standing at = standing_at(samples);
    for (int s = 0; s <= plan.n_groups; s++)
        for (size_t i = 0; i < job.n_params; i++) values[s][i] = value_at(samples, s, i);
    return echi_checkpoints_write(c, &at, &error);
}

/* Samples of the checkpoint that a run would go on from, its whole content compared; 0: from the beginning. */
static uint64_t resumes_at(void) {
    struct echi_checkpoints *c = open_folder(true);
    if (!c) print_error("%s\n%s", error.text, logged);
    assert_non_null(c);
    const struct echi_checkpoint *from = echi_checkpoints_from(c);
    const uint64_t samples = from ? from->at.samples : 0;
    if (from) {
        const struct echi_standing at = standing_at(samples);
        assert_memory_equal(&from->at, &at, sizeof at);
        assert_int_equal(from->groups, plan.n_groups);
        assert_true(from->cut == plan.cut);
        for (size_t i = 0; i < job.n_params; i++) assert_true(from->weights[i] == value_at(samples, 0, i));
        for (int g = 0; g < from->groups; g++)
            for (size_t i = 0; i < job.n_params; i++) {
                const bool there = !plan.cut || g == 0 || i < job.layer[job.cut_params].at;
                assert_true(from->momentum[(size_t)g * job.n_params + i] == (there ? value_at(samples, 1 + g, i) : 0));
            }
    }
    echi_checkpoints_close(c);
    return samples;
}

static ech_status remove_one(void *self, const char *name) {
    char path[NAME];
    snprintf(path, sizeof path, "%s/%s", (const char *)self, name);
    unlinkat(AT_FDCWD, path, 0);
    return ECH_OK;
}
static void empty(void) {
    power_on(NOTHING);
    echi_folder_list(folder, remove_one, folder, NULL);
    echi_folder_list(stash, remove_one, stash, NULL);
    disk.stashed = 0;
}

static int counted, temporaries, marks_alone;
static ech_status count_one(void *self, const char *name) {
    const size_t len = strlen(name), end = strlen(self);
    const char *dot = strrchr(name, '.');
    char path[NAME];
    if (dot && strcmp(dot, ".complete") == 0) {
        snprintf(path, sizeof path, "%s/%.*s.safetensors", folder, (int)(dot - name), name);
        marks_alone += !echi_file_exists(path);
    }
    if (len > 4 && strcmp(name + len - 4, ".tmp") == 0) temporaries++;
    if (len >= end && strcmp(name + len - end, self) == 0) counted++;
    return ECH_OK;
}
static int count(const char *ending) {
    char end[64];
    counted = temporaries = marks_alone = 0;
    snprintf(end, sizeof end, "%s", ending);
    assert_int_equal(echi_folder_list(folder, count_one, end, NULL), ECH_OK);
    return counted;
}

static int set_up(void **state) {
    (void)state;
    snprintf(root, sizeof root, "%s/echelon-checkpoint.XXXXXX",
             getenv("TMPDIR") && strlen(getenv("TMPDIR")) < 30 ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) return -1;
    snprintf(stash, sizeof stash, "%s/stash", root);
    if (mkdir(stash, 0700) != 0) return -1;
    set_job(usual);
    set_plan(2, true);
    for (int s = 0; s <= ECHI_GROUPS_MAX; s++) values[s] = calloc(4096, sizeof(float));
    ech_config_init(&config);
    config.on_log = on_log;
    config.keep = 2;
    snprintf(folder, sizeof folder, "%s/kept", root);
    snprintf(config.checkpoint, sizeof config.checkpoint, "%s", folder);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    empty();
    rmdir(folder);
    rmdir(stash);
    rmdir(root);
    for (int s = 0; s <= ECHI_GROUPS_MAX; s++) free(values[s]);
    ech_model_destroy(model);
    return 0;
}

/* ---------------------------------------------------------------- tests */

static void the_last_ones_are_kept(void **state) {
    (void)state;
    for (int k = 1; k <= 4; k++) {
        empty();
        config.keep = k;
        struct echi_checkpoints *c = open_folder(true);
        assert_non_null(c);
        assert_non_null(strstr(logged, "beginning at the beginning"));
        assert_null(echi_checkpoints_from(c));
        for (int i = 1; i <= 6; i++) {
            assert_int_equal(keep(c, 8 * (uint64_t)i), ECH_OK);
            assert_int_equal(count(".complete"), i < k ? i : k);
            assert_int_equal(count(".safetensors"), i < k ? i : k);
        }
        echi_checkpoints_close(c);
        assert_int_equal(resumes_at(), 48);
        assert_int_equal(count(".complete"), k);
        assert_int_equal(temporaries, 0);
    }
    config.keep = 2;
}

/* What one write did, then a restart. `before`: samples of the newest before it. */
static void check_after(enum mode mode, int k, enum lost lost, ech_status status, uint64_t before, uint64_t tried) {
    power_on(lost);
    assert_int_equal((count(".complete"), marks_alone), 0);
    const uint64_t found = resumes_at();
    if (found != before && found != tried) print_error("mode %d, call %d, lost %d: resumes at %d\n", mode, k, lost, (int)found);
    assert_true(found == before || found == tried);
    if (status == ECH_OK) assert_int_equal(found, tried);
    if (mode != CUT && status != ECH_OK) assert_int_equal(found, before);   /* it was told, and has taken it back */
    assert_int_equal((count(".complete"), temporaries), 0);
    /* The run goes on as ever. */
    struct echi_checkpoints *c = open_folder(true);
    assert_non_null(c);
    assert_int_equal(keep(c, 96), ECH_OK);
    echi_checkpoints_close(c);
    assert_true(count(".complete") <= config.keep);
    assert_int_equal(resumes_at(), 96);
}

/* Writes `old` good checkpoints, then one that meets the k-th call; false when it has fewer calls. */
static bool cut_at(enum mode mode, int k, int old, enum lost lost) {
    empty();
    struct echi_checkpoints *c = open_folder(true);
    assert_non_null(c);
    for (int i = 1; i <= old; i++) assert_int_equal(keep(c, 8 * (uint64_t)i), ECH_OK);
    fail_at(mode, k);
    const ech_status status = keep(c, 8 * (uint64_t)old + 8);
    const bool met = disk.calls >= k;
    if (status != ECH_OK) assert_true(error.text[0] && status == ECH_E_IO);
    if (mode == GOOD || !met) assert_int_equal(status, ECH_OK);
    echi_checkpoints_close(c);
    check_after(mode, k, lost, status, 8 * (uint64_t)old, 8 * (uint64_t)old + 8);
    return met;
}

static void cut_at_every_call(void **state) {
    (void)state;
    static const enum mode modes[] = {REFUSES, FULL, BROKEN, CUT};
    for (int m = 0; m < 4; m++)
        for (int keeps = 1; keeps <= 2; keeps++)
            for (int old = 0; old <= 3; old++)
                for (int lost = NOTHING; lost <= (modes[m] == CUT ? ALL_BUT_THE_LAST : NOTHING); lost++) {
                    int k = 1;
                    config.keep = keeps;
                    while (cut_at(modes[m], k, old, (enum lost)lost)) k++;
                    assert_true(k > 20);   /* header and tensors, two syncs and a rename for each of two files */
                }
    config.keep = 2;
}

/* Older ones make space for the next as long as one is left, and are not missed where space is not what is missing. */
static void a_small_disk_keeps_what_fits(void **state) {
    (void)state;
    config.keep = 3;
    for (int fit = 1; fit <= 3; fit++) {
        empty();
        struct echi_checkpoints *c = open_folder(true);
        assert_int_equal(keep(c, 8), ECH_OK);
        disk.capacity = used() * fit + used() / 2;
        for (int i = 2; i <= 6; i++) {
            const bool none_fits = fit == 1;   /* the one that is there stays */
            assert_int_equal(keep(c, 8 * (uint64_t)i), none_fits ? ECH_E_IO : ECH_OK);
            if (none_fits) assert_non_null(strstr(error.text, "free some space"));
            assert_int_equal(count(".complete"), i < fit ? i : fit);
            assert_int_equal(count(".safetensors"), i < fit ? i : fit);
            assert_int_equal(echi_checkpoints_squeezed(c), fit == 2 && i > 2 ? 2 : 0);
        }
        echi_checkpoints_close(c);
        assert_int_equal(resumes_at(), fit == 1 ? 8 : 48);
        assert_int_equal((count(".complete"), temporaries), 0);
    }
    /* A disk that fails takes no checkpoint away, and one that stays full all but one. */
    for (int full = 0; full <= 1; full++) {
        empty();
        struct echi_checkpoints *c = open_folder(true);
        for (int i = 1; i <= 3; i++) assert_int_equal(keep(c, 8 * (uint64_t)i), ECH_OK);
        fail_at(full ? FULL : BROKEN, 1);
        assert_int_equal(keep(c, 32), ECH_E_IO);
        echi_checkpoints_close(c);
        power_on(NOTHING);
        assert_int_equal(count(".complete"), full ? 1 : 3);
        assert_int_equal(resumes_at(), 24);
    }
    config.keep = 2;
}

static uint8_t *read_file(const char *name, size_t *len) {
    char path[NAME];
    uint8_t *bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(echi_file_read(path, 1 << 20, &bytes, len, &error), ECH_OK);
    return bytes;
}
static void write_file(const char *name, const uint8_t *bytes, size_t len) {
    char path[NAME];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void two_checkpoints(void) {
    empty();
    struct echi_checkpoints *c = open_folder(true);
    assert_int_equal(keep(c, 8), ECH_OK);
    assert_int_equal(keep(c, 16), ECH_OK);
    echi_checkpoints_close(c);
}

/* Every byte of the newest, of its mark and of its file, changed; every shorter length, and one longer. */
static void damage_is_noticed(void **state) {
    (void)state;
    static const char *const names[] = {"checkpoint-00000002.complete", "checkpoint-00000002.safetensors"};
    two_checkpoints();
    for (int n = 0; n < 2; n++) {
        size_t len;
        uint8_t *bytes = read_file(names[n], &len);
        for (size_t i = 0; i < len; i++) {
            bytes[i] ^= (uint8_t)(1 << i % 8);
            write_file(names[n], bytes, len);
            assert_int_equal(resumes_at(), 8);
            assert_non_null(strstr(logged, "checkpoint 2 is broken and skipped"));
            bytes[i] ^= (uint8_t)(1 << i % 8);
        }
        for (size_t cut = 0; cut < len; cut += n == 0 ? 1 : 37) {
            write_file(names[n], bytes, cut);
            assert_int_equal(resumes_at(), 8);
        }
        uint8_t *longer = malloc(len + 1);
        memcpy(longer, bytes, len);
        longer[len] = '\n';
        write_file(names[n], longer, len + 1);
        assert_int_equal(resumes_at(), 8);
        write_file(names[n], bytes, len);
        assert_int_equal(resumes_at(), 16);
        free(longer);
        free(bytes);
    }
}

static void only_sound_folders_are_used(void **state) {
    (void)state;
    two_checkpoints();
    /* Not without --resume: the rotation would take an earlier run's away. */
    assert_null(open_folder(false));
    assert_int_equal(error.code, ECH_E_ARGUMENT);
    assert_non_null(strstr(error.text, "--resume"));
    /* One run at a time. */
    struct echi_checkpoints *c = open_folder(true);
    assert_non_null(c);
    assert_null(open_folder(true));
    assert_int_equal(error.code, ECH_E_BUSY);
    echi_checkpoints_close(c);
    /* Nothing whole is left: no silent beginning. */
    write_file("checkpoint-00000001.complete", (const uint8_t *)"", 0);
    write_file("checkpoint-00000002.complete", (const uint8_t *)"", 0);
    assert_null(open_folder(true));
    assert_int_equal(error.code, ECH_E_FORMAT);
    assert_non_null(strstr(error.text, "none of the 2"));
    /* Data without a mark is what a killed run left: it goes. What is not ours, by the exact form of the name, is left alone. */
    static const char *const others[] = {
        "checkpoint-7.complete", "notes.tmp", "checkpoint-000000007.safetensors",
        "checkpoint-00000007.tmp", "checkpoint-00000007.safetensors.old", "checkpoint-00000008.SAFETENSORS",
        "xcheckpoint-00000007.safetensors", "checkpoint-0x000007.safetensors",
    };
    empty();
    write_file("checkpoint-00000004.safetensors", (const uint8_t *)"x", 1);
    write_file("checkpoint-00000004.safetensors.123-4.tmp", (const uint8_t *)"x", 1);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) write_file(others[i], (const uint8_t *)"x", 1);
    c = open_folder(false);
    assert_non_null(c);
    assert_non_null(strstr(logged, "removed "));
    assert_non_null(strstr(logged, "checkpoint-00000004.safetensors, which a run had not finished"));
    assert_int_equal(count("checkpoint-00000004.safetensors"), 0);
    assert_int_equal(count("-4.tmp"), 0);
    assert_int_equal(keep(c, 8), ECH_OK);
    assert_non_null(strstr(echi_checkpoints_last(c), "checkpoint-00000005.safetensors"));
    echi_checkpoints_close(c);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) assert_int_equal(count(others[i]), 1);
    assert_int_equal(resumes_at(), 8);
    /* Of a checkpoint with a mark nothing goes, be it broken or whole. */
    write_file("checkpoint-00000006.safetensors", (const uint8_t *)"x", 1);
    write_file("checkpoint-00000006.complete", (const uint8_t *)"x", 1);
    assert_int_equal(resumes_at(), 8);
    assert_int_equal(count("checkpoint-00000005.safetensors"), 1);
    assert_int_equal(count("checkpoint-00000006.safetensors"), 1);
    /* Its parent must be there, and it must be a folder. */
    snprintf(config.checkpoint, sizeof config.checkpoint, "%s/not/there", root);
    assert_null(open_folder(true));
    assert_int_equal(error.code, ECH_E_IO);
    snprintf(config.checkpoint, sizeof config.checkpoint, "%s/checkpoint-7.complete", folder);
    assert_null(open_folder(true));
    assert_int_equal(error.code, ECH_E_IO);
    snprintf(config.checkpoint, sizeof config.checkpoint, "%s", folder);
}

/* Counting on from the largest number would write over what is there, or come to one that is not seen the next time. */
static void numbers_that_end_are_refused(void **state) {
    (void)state;
    static const char *const ends[] = {"1000000000000000", "999999999999999999", "1000000000000000000", "18446744073709551616"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        for (int marked = 0; marked <= 1; marked++)
            for (int resumes = 0; resumes <= 1; resumes++) {
                char name[64];
                empty();
                snprintf(name, sizeof name, "checkpoint-%s.%s", ends[i], marked ? "complete" : "safetensors");
                write_file("checkpoint-00000001.safetensors", (const uint8_t *)"x", 1);
                write_file(name, (const uint8_t *)"x", 1);
                assert_null(open_folder(resumes));
                assert_int_equal(error.code, ECH_E_ARGUMENT);
                assert_non_null(strstr(error.text, name));
                assert_non_null(strstr(error.text, "rename or remove it"));
                assert_int_equal(count("checkpoint-00000001.safetensors"), 1);   /* what is refused is left as it is */
            }
    /* From the largest that is taken a run can count on, and is found again. */
    empty();
    write_file("checkpoint-999999999999998.safetensors", (const uint8_t *)"x", 1);
    struct echi_checkpoints *c = open_folder(true);
    assert_non_null(c);
    assert_int_equal(keep(c, 8), ECH_OK);
    assert_non_null(strstr(echi_checkpoints_last(c), "checkpoint-999999999999999.safetensors"));
    echi_checkpoints_close(c);
    assert_int_equal(resumes_at(), 8);
}

static void refused(const char *one, const char *other) {
    assert_null(open_folder(true));
    assert_int_equal(error.code, ECH_E_ARGUMENT);
    assert_non_null(strstr(error.text, one));
    assert_non_null(strstr(error.text, other));
}

static void other_runs_are_refused(void **state) {
    (void)state;
    two_checkpoints();
    job.seed = 8;
    refused("seed 7", "seed 8");
    job.shuffle = false;
    refused("seed 7", "order of the file");
    set_job(usual);
    strcpy(data.hash, "d2");
    refused("d1", "d2");
    strcpy(data.hash, "d1");
    set_job("input 1 6 6\nconv2d out 2 kernel 3\nrelu\nfc out 5\nrelu\nfc out 3\n");
    refused("model small", "this run has model");
    set_job(usual);
    assert_int_equal(resumes_at(), 16);
}

static float at_place(int g, size_t i) { return (float)(1 << g) + (float)i / 1024; }

/* Every group keeps its own momentum; the sum over groups is what it was, for the trunk and for the head. */
static void momentum_finds_its_groups(void **state) {
    (void)state;
    const size_t n = job.n_params;
    float *got = calloc(n, sizeof *got), *momentum = calloc(4 * n, sizeof *momentum);
    for (int from = 1; from <= 4; from++)
        for (int was_apart = 0; was_apart <= 1; was_apart++)
            for (int to = 1; to <= 4; to++)
                for (int apart = 0; apart <= 1; apart++) {
                    struct echi_checkpoint c = {.groups = from, .cut = was_apart ? job.cut_params : 0, .momentum = momentum};
                    set_plan(to, apart);
                    size_t head, count_head;
                    struct echi_plan cut = plan;
                    cut.cut = (uint8_t)job.cut_params;
                    echi_job_range(&job, &cut, true, &head, &count_head);
                    for (int g = 0; g < from; g++)
                        for (size_t i = 0; i < n; i++) momentum[(size_t)g * n + i] = was_apart && g > 0 && i >= head ? 0 : at_place(g, i);
                    for (int g = 0; g < to; g++) {
                        for (size_t i = 0; i < n; i++) got[i] = -1;
                        echi_checkpoint_momentum(&c, &job, &plan, g, got);
                        for (size_t i = 0; i < n; i++) {
                            const int owners = apart && i >= head ? 1 : to;
                            float expected = 0;
                            if (g >= owners) continue;   /* the head's layers are not this group's */
                            for (int f = 0; f < from; f++)
                                if (f == g || (g == 0 && f >= owners)) expected += momentum[(size_t)f * n + i];
                            assert_true(got[i] == expected);
                        }
                    }
                    plan.momentum = 0;   /* none goes on */
                    echi_checkpoint_momentum(&c, &job, &plan, 0, got);
                    for (size_t i = 0; i < n; i++) assert_true(got[i] == 0);
                }
    free(got);
    free(momentum);
    set_plan(2, true);
}

/* Adam's moments: each group its own, others those of the first that has any; a moment divided by what it weighs stays what it was. */
static float moment_at(int g, bool second, size_t i) { return (second ? 64.0f : 1.0f) * at_place(g, i); }
static void moments_find_their_groups(void **state) {
    (void)state;
    const size_t n = job.n_params, cut = job.layer[job.cut_params].at;
    float *first = calloc(4 * n, sizeof *first), *second = calloc(4 * n, sizeof *second);
    for (int from = 1; from <= 4; from++)
        for (int was_apart = 0; was_apart <= 1; was_apart++)
            for (int lost = -1; lost < (from > 1 ? from : 0); lost++)
                for (int to = 1; to <= 4; to++)
                    for (int apart = 0; apart <= 1; apart++) {
                        struct echi_checkpoint c = {.groups = from, .cut = was_apart ? job.cut_params : 0, .adam = true, .momentum = first,
                                                    .second = second};
                        for (int g = 0; g < from; g++) {
                            if (g != lost) c.weigh[g][0] = (struct echi_adam_weights){1 - 0.125 * g, 0.5 - 0.125 * g};
                            for (size_t i = 0; i < n; i++) {
                                const bool there = was_apart && i >= cut ? g == 0 : g != lost;
                                first[(size_t)g * n + i] = there ? moment_at(g, false, i) : 0;
                                second[(size_t)g * n + i] = there ? moment_at(g, true, i) : 0;
                            }
                        }
                        if (was_apart) c.weigh[0][1] = (struct echi_adam_weights){0.25, 0.125};
                        set_plan(to, apart);
                        plan.optimizer = ECHI_OPTIMIZER_ADAMW;
                        const size_t bytes = echi_job_memory_bytes(&job, plan.optimizer);
                        assert_true(bytes <= 4096 * sizeof(float) && echi_checkpoint_carries(&c, &plan));
                        for (int g = 0; g < to; g++) {
                            memset(values[0], 0xff, bytes);
                            echi_checkpoint_momentum(&c, &job, &plan, g, values[0]);
                            for (size_t i = 0; i < n; i++) {
                                const bool of_head = apart && i >= cut;
                                if (of_head && g > 0) continue;   /* the head's layers are not this group's */
                                struct echi_memory m;
                                size_t at, count;
                                struct echi_adam_weights is, was;
                                echi_job_memory(&job, &plan, plan.optimizer, of_head, &m);
                                echi_job_range(&job, &plan, of_head, &at, &count);
                                memcpy(&is, (uint8_t *)values[0] + m.at, sizeof is);
                                int own = g < from && g != lost ? g : lost == 0 ? 1 : 0;
                                const bool from_head = was_apart && i >= cut;
                                if (from_head) own = 0;
                                was = c.weigh[own][from_head];
                                assert_true(was.first > 0 && is.first > 0);
                                const double m1 = (double)values[0][m.first + i - at] / is.first,
                                    m2 = (double)values[0][m.second + i - at] / is.second;
                                const double w1 = (double)moment_at(own, false, i) / was.first,
                                    w2 = (double)moment_at(own, true, i) / was.second;
                                if (fabs(m1 - w1) > 1e-6 * w1 || fabs(m2 - w2) > 1e-6 * w2)
                                    fail_msg("%d groups, head apart %d, lost %d, to %d and %d: group %d [%zu] is %g, %g, not %g, %g", from,
                                             was_apart, lost, to, apart, g, i, m1, m2, w1, w2);
                                if (was_apart == apart && own == g)
                                    assert_true(values[0][m.first + i - at] == moment_at(own, false, i) &&
                                                memcmp(&is, &was, sizeof is) == 0);
                            }
                        }
                    }
    free(first);
    free(second);
    set_plan(2, true);
}

/* Written and read, every bit of them; nothing is taken over between Adam's and other memories. */
static void moments_are_kept(void **state) {
    (void)state;
    for (int apart = 0; apart <= 1; apart++) {
        empty();
        set_plan(2, apart);
        plan.optimizer = ECHI_OPTIMIZER_ADAM;
        struct echi_checkpoints *c = open_folder(true);
        assert_non_null(c);
        const struct echi_standing at = standing_at(8);
        const size_t bytes = echi_job_memory_bytes(&job, plan.optimizer);
        float *kept[3];
        for (int s = 0; s < 3; s++) {
            for (size_t i = 0; i < bytes / sizeof(float); i++) values[s][i] = 0.3f + value_at(8, s, i);
            for (int head = 0; s > 0 && head <= apart; head++) {
                struct echi_memory m;
                echi_job_memory(&job, &plan, plan.optimizer, head, &m);
                const struct echi_adam_weights w = {1.0 / (3 + s + head), 1.0 / (7 + s + head)};
                memcpy((uint8_t *)values[s] + m.at, &w, sizeof w);
            }
            kept[s] = malloc(bytes);
            memcpy(kept[s], values[s], bytes);
        }
        assert_int_equal(echi_checkpoints_write(c, &at, &error), ECH_OK);
        echi_checkpoints_close(c);
        c = open_folder(true);
        assert_non_null(c);
        const struct echi_checkpoint *from = echi_checkpoints_from(c);
        assert_true(from && from->adam && strcmp(from->optimizer, "adam") == 0);
        for (int g = 0; g < 2; g++) {
            memset(values[0], 0, bytes);
            echi_checkpoint_momentum(from, &job, &plan, g, values[0]);
            for (int head = 0; head <= (apart && g == 0); head++) {
                struct echi_memory m;
                echi_job_memory(&job, &plan, plan.optimizer, head, &m);
                assert_memory_equal((uint8_t *)values[0] + m.at, (uint8_t *)kept[1 + g] + m.at, m.bytes);
            }
        }
        plan.optimizer = ECHI_OPTIMIZER_ADAMW;
        assert_true(echi_checkpoint_carries(from, &plan));
        for (int o = 0; o < 2; o++) {
            plan.optimizer = o ? ECHI_OPTIMIZER_NESTEROV : ECHI_OPTIMIZER_ADAM;
            plan.sync = o ? ECHI_SYNC_BSP : ECHI_SYNC_LOCAL;
            assert_false(echi_checkpoint_carries(from, &plan));
            values[0][0] = 1;
            echi_checkpoint_momentum(from, &job, &plan, 0, values[0]);
            for (size_t i = 0; i < job.n_params; i++) assert_true(values[0][i] == 0);
        }
        echi_checkpoints_close(c);
        for (int s = 0; s < 3; s++) free(kept[s]);
    }
    set_plan(2, true);
}

/* What a lost owner had is gone; what the head keeps beside it is not, where there is one. */
static void momentum_of_a_lost_owner_is_gone(void **state) {
    (void)state;
    const size_t n = job.n_params;
    float *momentum = malloc(n * sizeof *momentum);
    for (int apart = 0; apart <= 1; apart++) {
        set_plan(2, apart);
        const size_t cut = apart ? job.layer[job.cut_params].at : n;
        assert_true(cut > 0 && (apart ? cut < n : cut == n));
        for (size_t i = 0; i < n; i++) momentum[i] = 1;
        echi_checkpoint_forget(&job, &plan, momentum);
        for (size_t i = 0; i < n; i++) assert_true(momentum[i] == (i >= cut));
    }
    free(momentum);
    set_plan(2, true);
}

/* Bytes from a stranger: they are refused with a sentence, or are a checkpoint that makes sense. */
static void strange_bytes_do_no_harm(void **state) {
    (void)state;
    static const char *const pieces[] = {"none", "0", "-1", "18446744073709551615", "9223372036854775808", "\"", "\\u0000", "groups",
                                         "momentum.1.", "__metadata__", "{", "}", "0.5", "1.0000000000", "\"2\"", "seed 7", "[0,0]"};
    struct echi_random r;
    size_t len;
    two_checkpoints();
    uint8_t *bytes = read_file("checkpoint-00000002.safetensors", &len), *changed = malloc(len + 64);
    const size_t header = 8 + (size_t)bytes[0] + 256 * (size_t)bytes[1];
    echi_random_init(&r, 5, ECHI_STREAM_TEST, 1);
    int good = 0;
    for (int i = 0; i < 30000; i++) {
        struct echi_checkpoint c = {.groups = 0};
        size_t size = len;
        memcpy(changed, bytes, len);
        for (uint32_t n = echi_random_below(&r, 3); n < 3; n++) {
            const char *piece = pieces[echi_random_below(&r, sizeof pieces / sizeof pieces[0])];
            const size_t at = echi_random_below(&r, (uint32_t)header);
            if (echi_random_below(&r, 3)) changed[at] = (uint8_t)echi_random_below(&r, 256);
            else if (at + strlen(piece) < header) memcpy(changed + at, piece, strlen(piece));
        }
        if (echi_random_below(&r, 10) == 0) size = echi_random_below(&r, (uint32_t)len + 64);
        uint8_t *exact = malloc(size ? size : 1);   /* so that a sanitizer sees a read beyond its end */
        memcpy(exact, changed, size);
        memset(&error, 0, sizeof error);
        if (echi_checkpoint_parse("f", exact, size, &job, &c, &error) == ECH_OK) {
            good++;
            assert_true(c.groups >= 1 && c.groups <= ECHI_GROUPS_MAX && c.at.start <= data.n_train && c.weights && c.momentum);
            assert_true(c.at.samples == (uint64_t)c.at.epoch * data.n_train + c.at.start && c.at.best_accuracy <= 1 && c.at.clock >= 0);
            echi_checkpoint_free(&c);
        } else {
            assert_true(error.text[0] != 0 && !c.weights && !c.momentum);
        }
        free(exact);
    }
    assert_in_range(good, 1, 29999);
    free(bytes);
    free(changed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_ones_are_kept), cmocka_unit_test(cut_at_every_call), cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(a_small_disk_keeps_what_fits), cmocka_unit_test(numbers_that_end_are_refused),
        cmocka_unit_test(only_sound_folders_are_used), cmocka_unit_test(other_runs_are_refused),
        cmocka_unit_test(momentum_finds_its_groups), cmocka_unit_test(moments_find_their_groups), cmocka_unit_test(moments_are_kept),
        cmocka_unit_test(momentum_of_a_lost_owner_is_gone), cmocka_unit_test(strange_bytes_do_no_harm),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
