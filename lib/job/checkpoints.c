/* SPDX-License-Identifier: Apache-2.0
 * The folder of checkpoints: which are there, which are whole; the next is written, the oldest go. A thread of its own writes. */
#include "echi_checkpoint_impl.h"
#include "echi_bytes.h"
#include "echi_config_log.h"
#include "echi_error.h"
#include "echi_print.h"
#include "echi_sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA ".safetensors"
#define MARK ".complete"
#define MARK_MAX 512
#define DIGITS_MAX 15          /* of a number; a run that counts on from one never comes to a longer one */
#define CHUNK 4096             /* floats made bytes at once */

struct echi_checkpoints {
    const struct ech_config *config;
    const struct echi_job *job;
    int lock;
    uint64_t *number;          /* of those with a mark, ascending, in the rotation; room for one more than there may be */
    int count, room;
    uint64_t next;
    bool resumed, gave_space;  /* the last write removed older checkpoints because the disk was full */
    struct echi_checkpoint from;
    /* writing */
    struct echi_plan plan;
    const float *kept[1 + ECHI_GROUPS_MAX];
    struct echi_tensors *tensors;
    uint8_t *header;
    size_t header_room;
    char last[sizeof ((struct ech_config *)0)->checkpoint + 48];
    /* the thread; what follows is under the mutex */
    struct echi_thread thread;
    struct echi_mutex mutex;
    struct echi_cond changed;
    bool running, quit, has_work, has_done;
    void (*notify)(void *self);
    void *notify_self;
    struct echi_task task;
    struct echi_standing at;
    struct echi_done done;     /* of the last write */
};

static void path_of(const struct echi_checkpoints *f, uint64_t number, const char *ending, char out[sizeof f->last]) {
    snprintf(out, sizeof f->last, "%s/checkpoint-%08" PRIu64 "%s", f->config->checkpoint, number, ending);
}

/* ---------------------------------------------------------------- marks */

static size_t mark_text(uint64_t number, uint64_t bytes, const uint8_t digest[32], char out[MARK_MAX]) {
    char hex[65];
    echi_sha256_hex(digest, hex);
    return (size_t)snprintf(out, MARK_MAX,
                            "This checkpoint is complete.\nfile checkpoint-%08" PRIu64 DATA "\nbytes %" PRIu64 "\nsha256 %s\n",
                            number, bytes, hex);
}

/* A checkpoint is whole when its mark is, byte for byte, the one that its file would be given. */
static ech_status read_whole(const struct echi_checkpoints *f, uint64_t number, uint8_t **out_bytes, size_t *out_len,
                             struct ech_error *err) {
    char path[sizeof f->last], expected[MARK_MAX];
    uint8_t *mark, digest[32];
    size_t mark_len;
    const uint64_t most = UINT64_C(1) << 40;
    path_of(f, number, MARK, path);
    ECHI_TRY(echi_file_read(path, MARK_MAX, &mark, &mark_len, err));
    path_of(f, number, DATA, path);
    ech_status status = echi_file_read(path, most < SIZE_MAX / 2 ? (size_t)most : SIZE_MAX / 2, out_bytes, out_len, err);
    if (status == ECH_OK) {
        struct echi_sha256 sha;
        echi_sha256_begin(&sha);
        echi_sha256_add(&sha, *out_bytes, *out_len);
        echi_sha256_end(&sha, digest);
        if (mark_text(number, *out_len, digest, expected) != mark_len || memcmp(expected, mark, mark_len) != 0) {
            free(*out_bytes);
            status = echi_fail(err, ECH_E_FORMAT, "checkpoint.read", "%s is not what was written: its mark has another size or SHA-256",
                               path);
        }
    }
    free(mark);
    return status;
}

/* -------------------------------------------------------------- opening */

enum part { P_NONE, P_DATA, P_MARK, P_TEMPORARY, P_TOO_HIGH };

static bool ends_with(const char *text, const char *end) {
    const size_t len = strlen(text), most = strlen(end);
    return len >= most && strcmp(text + len - most, end) == 0;
}

/* What a file in the folder is, by the exact form of our names; P_NONE: not ours. */
static enum part part_of(const char *name, uint64_t *out_number) {
    static const char begin[] = "checkpoint-";
    if (strncmp(name, begin, sizeof begin - 1) != 0) return P_NONE;
    const char *digits = name + sizeof begin - 1;
    const size_t n = strspn(digits, "0123456789");
    const char *rest = digits + n;
    if (n < 8 || (n > 8 && *digits == '0')) return P_NONE;
    if (n > DIGITS_MAX) return strcmp(rest, DATA) == 0 || strcmp(rest, MARK) == 0 ? P_TOO_HIGH : P_NONE;
    *out_number = strtoull(digits, NULL, 10);
    if (strcmp(rest, DATA) == 0) return P_DATA;
    if (strcmp(rest, MARK) == 0) return P_MARK;
    const bool ours = strncmp(rest, DATA ".", sizeof DATA) == 0 || strncmp(rest, MARK ".", sizeof MARK) == 0;
    return ours && ends_with(rest, ".tmp") ? P_TEMPORARY : P_NONE;
}

/* The folder while it is opened: what is in it, with the first sentence that refuses it. */
struct opening {
    struct echi_checkpoints *folder;
    int marks;                           /* in folder->number, those of broken checkpoints too */
    struct ech_error *err;
};

static ech_status list_one(void *self, const char *name) {
    const struct opening *opening = self;
    struct echi_checkpoints *f = opening->folder;
    uint64_t number;
    const enum part part = part_of(name, &number);
    if (part == P_NONE) return ECH_OK;
    if (part == P_TOO_HIGH)
        return echi_fail(opening->err, ECH_E_ARGUMENT, "checkpoint.open",
                         "'%s/%.60s' has a number of more than %d digits, from which nothing can be counted on: rename or remove it, or "
                         "give another folder", f->config->checkpoint, name, DIGITS_MAX);
    if (number >= f->next) f->next = number + 1;
    if (part != P_MARK) return ECH_OK;
    if (f->count + 1 >= f->room) {
        const int room = 2 * f->room;
        uint64_t *larger = realloc(f->number, (size_t)room * sizeof *larger);
        if (!larger) return echi_fail_memory(opening->err, "checkpoint.open", "the list of checkpoints");
        f->number = larger;
        f->room = room;
    }
    f->number[f->count++] = number;
    return ECH_OK;
}

static int ascending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What a run left that was cut in the middle of a write: temporary files, and data whose mark was never written. */
static ech_status clean_one(void *self, const char *name) {
    const struct opening *opening = self;
    const struct echi_checkpoints *f = opening->folder;
    char path[sizeof f->config->checkpoint + 300];
    uint64_t number;
    const enum part part = part_of(name, &number);
    const bool unmarked =
        part == P_DATA && !bsearch(&number, f->number, (size_t)opening->marks, sizeof number, ascending);
    if (!unmarked && part != P_TEMPORARY) return ECH_OK;
    if (snprintf(path, sizeof path, "%s/%s", f->config->checkpoint, name) >= (int)sizeof path) return ECH_OK;
    if (echi_file_remove(path, NULL) == ECH_OK && unmarked)
        echi_config_log(f->config, ECH_LOG_INFO, "removed %s, which a run had not finished writing when it ended", path);
    return ECH_OK;
}

/* The newest that is whole. One that is broken stays where it is, for whoever wants to look at it, but out of the rotation. */
static ech_status resume(struct echi_checkpoints *f, struct ech_error *err) {
    const int there = f->count;
    while (f->count > 0) {
        const uint64_t number = f->number[f->count - 1];
        char path[sizeof f->last];
        uint8_t *bytes;
        size_t len;
        struct ech_error why;
        path_of(f, number, DATA, path);
        const ech_status whole = read_whole(f, number, &bytes, &len, &why);
        if (whole == ECH_E_MEMORY) return echi_fail_memory(err, "checkpoint.read", path);
        if (whole == ECH_OK) {
            const ech_status status = echi_checkpoint_parse(path, bytes, len, f->job, &f->from, err);
            free(bytes);
            if (status != ECH_OK) return status;
            f->resumed = true;
            echi_config_log(f->config, ECH_LOG_INFO, "going on from %s: %" PRIu64 " samples, %.2f epochs", path, f->from.at.samples,
                            (double)f->from.at.samples / f->job->train_samples);
            return ECH_OK;
        }
        echi_config_log(f->config, ECH_LOG_WARN, "checkpoint %" PRIu64 " is broken and skipped: %s", number, why.text);
        f->count--;
    }
    if (there > 0)
        return echi_fail(err, ECH_E_FORMAT, "checkpoint.open",
                         "none of the %d checkpoints in '%s' is whole: give another --checkpoint folder to begin at the beginning",
                         there, f->config->checkpoint);
    echi_config_log(f->config, ECH_LOG_INFO, "no checkpoint in '%s' yet: beginning at the beginning", f->config->checkpoint);
    return ECH_OK;
}

static ech_status open_folder(struct echi_checkpoints *f, struct ech_error *err) {
    const char *folder = f->config->checkpoint;
    ECHI_TRY(echi_folder_make(folder, err));
    ECHI_TRY(echi_folder_lock(folder, &f->lock, err));
    f->room = f->config->keep + 2;
    f->number = calloc((size_t)f->room, sizeof *f->number);
    if (!f->number) return echi_fail_memory(err, "checkpoint.open", "the list of checkpoints");
    struct opening opening = {.folder = f, .err = err};
    ECHI_TRY(echi_folder_list(folder, list_one, &opening, err));
    opening.marks = f->count;
    qsort(f->number, (size_t)f->count, sizeof *f->number, ascending);
    if (!f->config->resume && f->count > 0)
        return echi_fail(err, ECH_E_ARGUMENT, "checkpoint.open",
                         "'%s' has checkpoints of an earlier run (the newest is number %" PRIu64 "): give --resume to go on from it, "
                         "or another folder", folder, f->number[f->count - 1]);
    if (f->config->resume) ECHI_TRY(resume(f, err));
    return echi_folder_list(folder, clean_one, &opening, err);
}

ech_status echi_checkpoints_open(const struct ech_config *config, const struct echi_job *job, struct echi_checkpoints **out,
                                 struct ech_error *err) {
    struct echi_checkpoints *f = calloc(1, sizeof *f);
    if (!f) return echi_fail_memory(err, "checkpoint.open", "the folder of checkpoints");
    f->config = config;
    f->job = job;
    f->lock = -1;
    f->next = 1;
    ech_status status = echi_mutex_init(&f->mutex, err);
    if (status != ECH_OK) {
        free(f);
        return status;
    }
    status = echi_cond_init(&f->changed, err);
    if (status != ECH_OK) {
        echi_mutex_destroy(&f->mutex);
        free(f);
        return status;
    }
    status = open_folder(f, err);
    if (status != ECH_OK) echi_checkpoints_close(f);
    else *out = f;
    return status;
}

void echi_checkpoints_close(struct echi_checkpoints *f) {
    if (!f) return;
    echi_checkpoints_stop(f);
    echi_cond_destroy(&f->changed);
    echi_mutex_destroy(&f->mutex);
    echi_folder_unlock(f->lock);
    echi_checkpoint_free(&f->from);
    echi_tensors_destroy(f->tensors);
    free(f->number);
    free(f->header);
    free(f);
}

const struct echi_checkpoint *echi_checkpoints_from(const struct echi_checkpoints *f) { return f->resumed ? &f->from : NULL; }
const char *echi_checkpoints_last(const struct echi_checkpoints *f) { return f->last; }
int echi_checkpoints_squeezed(const struct echi_checkpoints *f) { return f->gave_space && f->count < f->config->keep ? f->count : 0; }

/* -------------------------------------------------------------- writing */

static ech_status put(struct echi_file *file, struct echi_sha256 *sha, const void *bytes, size_t len, uint64_t *total,
                      struct ech_error *err) {
    echi_sha256_add(sha, bytes, len);
    *total += len;
    return echi_file_put(file, bytes, len, err);
}

static bool with_adam(const struct echi_checkpoints *f) { return echi_optimizer_adam(echi_plan_owner_optimizer(&f->plan)); }

/* Where the moments of a group, or of the head, lie among what is kept. */
static struct echi_memory memory_of(const struct echi_checkpoints *f, bool head) {
    struct echi_memory m;
    echi_job_memory(f->job, &f->plan, echi_plan_owner_optimizer(&f->plan), head, &m);
    return m;
}

static int make_words(const struct echi_checkpoints *f, const struct echi_standing *at, struct echi_word words[ECHI_CHECKPOINT_WORDS]) {
    struct echi_adam_weights weigh[ECHI_GROUPS_MAX][2] = {0};
    for (int g = 0; with_adam(f) && g < f->plan.n_groups; g++)
        for (int head = 0; head <= (g == 0 && f->plan.cut > 0); head++)
            memcpy(&weigh[g][head], (const uint8_t *)f->kept[1 + g] + memory_of(f, head).at, sizeof weigh[g][head]);
    return echi_checkpoint_words(words, f->job, &f->plan, at, with_adam(f) ? weigh : NULL);
}

/* Everything but begin and commit: a failure has given the file up. */
static ech_status put_all(struct echi_checkpoints *f, const struct echi_standing *at, struct echi_file *file, struct echi_sha256 *sha,
                          uint64_t *total, struct ech_error *err) {
    struct echi_word words[ECHI_CHECKPOINT_WORDS];
    const float *values;
    size_t count;
    const int n_words = make_words(f, at, words);
    const size_t len = echi_tensors_header(f->tensors, words, n_words, f->header, f->header_room);
    ECHI_TRY(put(file, sha, f->header, len, total, err));
    for (int i = 0; echi_tensors_data(f->tensors, i, &values, &count); i++) {
        for (size_t done = 0; done < count;) {
            uint8_t bytes[4 * CHUNK];
            const size_t n = count - done < CHUNK ? count - done : CHUNK;
            for (size_t k = 0; k < n; k++) {
                uint32_t bits;
                memcpy(&bits, &values[done + k], 4);
                echi_store32(bytes + 4 * k, bits);
            }
            ECHI_TRY(put(file, sha, bytes, 4 * n, total, err));
            done += n;
        }
    }
    return ECH_OK;
}

static ech_status write_data(struct echi_checkpoints *f, const char *path, const struct echi_standing *at, struct echi_file *file,
                             uint64_t *out_total, uint8_t digest[32], struct ech_error *err) {
    struct echi_sha256 sha;
    *out_total = 0;
    echi_sha256_begin(&sha);
    ECHI_TRY(echi_file_begin(file, path, err));
    ECHI_TRY(put_all(f, at, file, &sha, out_total, err));
    echi_sha256_end(&sha, digest);
    return echi_file_commit(file, err);
}

static ech_status write_mark(const char *path, const char *text, size_t len, struct echi_file *file, struct ech_error *err) {
    ECHI_TRY(echi_file_begin(file, path, err));
    ECHI_TRY(echi_file_put(file, text, len, err));
    return echi_file_commit(file, err);
}

/* Both files of one checkpoint, or none of them. *out_full: the disk had no space. */
static ech_status write_both(struct echi_checkpoints *f, uint64_t number, const struct echi_standing *at, bool *out_full,
                             struct ech_error *err) {
    struct echi_file file;
    char path[sizeof f->last], mark[MARK_MAX], mark_path[sizeof f->last];
    uint8_t digest[32];
    uint64_t bytes;
    path_of(f, number, DATA, path);
    path_of(f, number, MARK, mark_path);
    ech_status status = write_data(f, path, at, &file, &bytes, digest, err);
    if (status == ECH_OK) status = write_mark(mark_path, mark, mark_text(number, bytes, digest, mark), &file, err);
    *out_full = file.full;
    if (status != ECH_OK) {
        echi_file_remove(mark_path, NULL);
        echi_file_remove(path, NULL);
    }
    return status;
}

/* The oldest goes, mark first: a mark without its file would be a broken checkpoint. False: it is still there. */
static bool remove_oldest(struct echi_checkpoints *f) {
    char path[sizeof f->last];
    path_of(f, f->number[0], MARK, path);
    if (echi_file_remove(path, NULL) != ECH_OK || echi_folder_sync(f->config->checkpoint, NULL) != ECH_OK) return false;
    path_of(f, f->number[0], DATA, path);
    echi_file_remove(path, NULL);
    memmove(&f->number[0], &f->number[1], (size_t)--f->count * sizeof f->number[0]);
    return true;
}

/* The newest in the rotation is whole: the run wrote it, or goes on from it. So a full disk may take all others. */
ech_status echi_checkpoints_write(struct echi_checkpoints *f, const struct echi_standing *at, struct ech_error *err) {
    const uint64_t number = f->next++;
    bool full;
    f->gave_space = false;
    for (;;) {
        const ech_status status = write_both(f, number, at, &full, err);
        if (status == ECH_OK) break;
        if (!full || f->count < 2 || !remove_oldest(f)) return status;
        f->gave_space = true;
    }
    path_of(f, number, DATA, f->last);
    f->number[f->count++] = number;
    while (f->count > f->config->keep && remove_oldest(f)) {}   /* a failure harms none that is kept, and is tried again the next time */
    return ECH_OK;
}

/* ----------------------------------------------------------- the thread */

static void *write_main(void *self) {
    struct echi_checkpoints *f = self;
    echi_mutex_lock(&f->mutex);
    for (;;) {
        while (!f->has_work && !f->quit) echi_cond_wait(&f->changed, &f->mutex, INT64_MAX);
        if (!f->has_work) break;
        const struct echi_standing at = f->at;
        struct echi_done done = {.task = f->task};
        echi_mutex_unlock(&f->mutex);
        done.status = echi_checkpoints_write(f, &at, &done.error);
        done.result.kept = done.status == ECH_OK;
        echi_mutex_lock(&f->mutex);
        f->done = done;
        f->has_work = false;
        f->has_done = true;
        f->notify(f->notify_self);
    }
    echi_mutex_unlock(&f->mutex);
    return NULL;
}

ech_status echi_checkpoints_prepare(struct echi_checkpoints *f, const struct echi_plan *plan, const float *const *kept,
                                    struct ech_error *err) {
    struct echi_checkpoint_part parts[ECHI_CHECKPOINT_PARTS];
    struct echi_word words[ECHI_CHECKPOINT_WORDS];
    const struct echi_standing longest = {.samples = 0};
    f->plan = *plan;
    memcpy(f->kept, kept, (size_t)(1 + plan->n_groups) * sizeof *kept);
    const int n = echi_checkpoint_parts(f->job, plan->n_groups, plan->cut, with_adam(f), parts);
    for (int i = 0; i < n; i++) {
        const struct echi_checkpoint_part *p = &parts[i];
        const struct echi_memory m = memory_of(f, p->head);
        const float *values = f->kept[1 + p->group] + (p->group < 0 ? 0 : p->second ? m.second : m.first);
        memcpy(&parts[i].set.values, &values, sizeof values);   /* only read */
        if (p->head) parts[i].set.at = f->job->layer[plan->cut].at;
    }
    ECHI_TRY(echi_checkpoint_tensors(f->job, parts, n, &f->tensors, err));
    const int n_words = make_words(f, &longest, words);
    f->header_room = echi_tensors_header(f->tensors, words, n_words, NULL, 0) + sizeof words;   /* more than words can grow */
    f->header = malloc(f->header_room);
    return f->header ? ECH_OK : echi_fail_memory(err, "checkpoint.start", "the head of a file");
}

ech_status echi_checkpoints_start(struct echi_checkpoints *f, const struct echi_plan *plan, const float *const *kept,
                                  void (*notify)(void *self), void *self, struct ech_error *err) {
    ECHI_TRY(echi_checkpoints_prepare(f, plan, kept, err));
    f->notify = notify;
    f->notify_self = self;
    ECHI_TRY(echi_thread_start(&f->thread, "ech-keep", write_main, f, err));
    f->running = true;
    return ECH_OK;
}

void echi_checkpoints_submit(struct echi_checkpoints *f, const struct echi_task *task, const struct echi_standing *at) {
    echi_mutex_lock(&f->mutex);
    f->task = *task;
    f->at = *at;
    f->has_work = true;
    echi_cond_broadcast(&f->changed);
    echi_mutex_unlock(&f->mutex);
}

bool echi_checkpoints_take(struct echi_checkpoints *f, struct echi_done *out) {
    echi_mutex_lock(&f->mutex);
    const bool some = f->has_done;
    if (some) *out = f->done;
    f->has_done = false;
    echi_mutex_unlock(&f->mutex);
    return some;
}

void echi_checkpoints_stop(struct echi_checkpoints *f) {
    if (!f || !f->running) return;
    echi_mutex_lock(&f->mutex);
    f->quit = true;
    echi_cond_broadcast(&f->changed);
    echi_mutex_unlock(&f->mutex);
    echi_thread_join(&f->thread);
    f->running = false;
}

ech_status echi_checkpoints_outcome(const struct echi_checkpoints *f, struct ech_error *err) {
    if (f->done.status != ECH_OK && err) *err = f->done.error;
    return f->done.status;
}
