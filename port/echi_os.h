/* SPDX-License-Identifier: Apache-2.0
 * The machine and its operating system, as the rooms above see it. Every function here is the only place that
 * makes the corresponding system call. */
#ifndef ECHI_OS_H
#define ECHI_OS_H
#include "ech_status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- clock: nanoseconds; time means time, never a count of steps --- */
int64_t echi_now(void);                    /* monotonic, from an arbitrary start */
int64_t echi_wall_clock(void);             /* since 1970, as the machine believes: for people, and never to wait by */
int64_t echi_thread_cpu(void);             /* CPU time that the calling thread has used */
void echi_sleep_until(int64_t deadline);   /* absolute, on the clock of echi_now; a past deadline returns at once */
void echi_sleep(int64_t ns);               /* so long, less than a second, whatever clocks say meanwhile; a signal may end it */

/* --- threads --- */
struct echi_thread { pthread_t handle; };
struct echi_mutex { pthread_mutex_t handle; };
struct echi_cond { pthread_cond_t handle; };   /* waits on the clock of echi_now */
ech_status echi_thread_start(struct echi_thread *t, const char *name, void *(*run)(void *), void *arg, struct ech_error *err);
void echi_thread_join(struct echi_thread *t);
void echi_thread_leave(struct echi_thread *t);   /* instead of joining it: its memory goes when it ends */
int64_t echi_thread_cpu_of(const struct echi_thread *t);   /* CPU time that it has used; it must not have been joined */
ech_status echi_mutex_init(struct echi_mutex *m, struct ech_error *err);
void echi_mutex_destroy(struct echi_mutex *m);
void echi_mutex_lock(struct echi_mutex *m);
void echi_mutex_unlock(struct echi_mutex *m);
ech_status echi_cond_init(struct echi_cond *c, struct ech_error *err);
void echi_cond_destroy(struct echi_cond *c);
void echi_cond_signal(struct echi_cond *c);
void echi_cond_broadcast(struct echi_cond *c);
/* Waits for a signal; deadline INT64_MAX waits without one. False when the deadline passed. */
bool echi_cond_wait(struct echi_cond *c, struct echi_mutex *m, int64_t deadline);

/* --- memory --- */
void *echi_alloc_aligned(size_t bytes);    /* 64-byte aligned, zeroed, large pages asked for from 2 MiB on; NULL when there is none;
                                              free with echi_free_aligned, which gives blocks from 2 MiB on back to the system */
void echi_free_aligned(void *p);
/* Bytes that this process may still take, as the system and its control groups say; SIZE_MAX where nothing says so. `root` stands in front
 * of the files' paths: "", but for tests. */
size_t echi_memory_available(const char *root);
/* Those that blocks from 1 MiB on may take: 16 MiB are left to all that is smaller. A larger block is refused (NULL), also when others on
 * this machine have taken what there was with this function. */
size_t echi_memory_for_blocks(void);
/* A range of addresses: zeros, page by page memory once it is written; page aligned; NULL when there is none. */
void *echi_reserve(size_t bytes);
void echi_release(void *reserved, size_t bytes);   /* the same bytes; NULL is harmless */
/* Makes [at, at + len) of it memory, which nobody else may use yet; false when there is less than that, as with echi_alloc_aligned. */
bool echi_reserve_take(void *reserved, size_t at, size_t len);

/* --- files --- */
/* The whole file in one malloc'd block (caller frees). Refuses more than `most` bytes. Errors name the path. */
ech_status echi_file_read(const char *path, size_t most, uint8_t **out_bytes, size_t *out_len, struct ech_error *err);
/* The same for a secret, which the caller wipes: refuses a file of this user that others may read or change (as ssh does),
 * since then it is none. */
struct echi_file_owner { unsigned user, mode; bool others; };   /* others: somebody else than this process's user and root may read or
                                                                   change it; the permission bits */
ech_status echi_file_read_secret(const char *path, size_t most, uint8_t **out_bytes, size_t *out_len, struct echi_file_owner *out_owner,
                                 struct ech_error *err);
/* Writes a temporary file beside `path`, syncs it, renames it over `path` and syncs the folder: after a failure at any
 * moment `path` is either what it was or complete. */
ech_status echi_file_write(const char *path, const void *bytes, size_t len, struct ech_error *err);
bool echi_file_exists(const char *path);
/* A file written bit by bit while something goes on: made anew, then added to, and locked until echi_file_close. Nothing is written over,
 * nor through a link: where something has that name, ECH_E_BUSY while its writer has it open, else ECH_E_ARGUMENT. What is there is what
 * was appended so far; it is on the disk only after a sync. */
ech_status echi_file_create(const char *path, int *out_file, struct ech_error *err);
ech_status echi_file_append(int file, const void *bytes, size_t len, struct ech_error *err);
ech_status echi_file_sync(int file, struct ech_error *err);
void echi_file_close(int file);
/* The same in pieces: begin, put as often as you like, commit. After a failure, or abandon, nothing is left of it; `full` is then true
 * when the disk, or the user's quota, had no space for it. */
struct echi_file { int fd; bool replaces, full; unsigned mode; char path[4096], name[4096]; };
ech_status echi_file_begin(struct echi_file *file, const char *path, struct ech_error *err);
ech_status echi_file_put(struct echi_file *file, const void *bytes, size_t len, struct ech_error *err);
ech_status echi_file_commit(struct echi_file *file, struct ech_error *err);
void echi_file_abandon(struct echi_file *file);
/* Takes the name away; not an error when there is none. On the disk only after echi_folder_sync. */
ech_status echi_file_remove(const char *path, struct ech_error *err);

/* --- folders --- */
ech_status echi_folder_make(const char *path, struct ech_error *err);   /* its parent must be there; it may itself be */
/* Calls `each` with the name of everything in it, in no order, until it fails. */
ech_status echi_folder_list(const char *path, ech_status (*each)(void *self, const char *name), void *self, struct ech_error *err);
ech_status echi_folder_sync(const char *path, struct ech_error *err);   /* what was renamed or removed in it is on the disk */
/* One process at a time: ECH_E_BUSY while another holds it; ends with the process, or when *out_lock is given back. A file
 * system without locks gives one all the same. */
ech_status echi_folder_lock(const char *path, int *out_lock, struct ech_error *err);
void echi_folder_unlock(int lock);

/* --- dynamic loading, for GPU stacks found at run time --- */
void *echi_library_open(const char *name);             /* NULL when it is not there */
void *echi_library_symbol(void *library, const char *name);
void echi_library_close(void *library);

/* --- the machine --- */
enum echi_cpu_level { ECHI_CPU_BASE, ECHI_CPU_AVX2, ECHI_CPU_AVX512 };   /* AVX2: with FMA; AVX512: F, BW, DQ, VL */
#define ECHI_CPU_LEVELS 3
enum echi_cpu_level echi_cpu_level(void);  /* the most that processor and OS support together */
const char *echi_cpu_level_name(enum echi_cpu_level level);   /* "base", "avx2", "avx512" */
bool echi_cpu_level_named(const char *name, enum echi_cpu_level *out);   /* false: it is the name of none; the processor may lack it */
/* What it has for products of bf16 numbers, summed in float: pairs in vectors, AVX512-BF16, or tiles, AMX-BF16, which has those too and
 * needs the OS's leave: that is asked for here. NONE without AVX512. */
enum echi_cpu_bf16 { ECHI_CPU_BF16_NONE, ECHI_CPU_BF16_DOT, ECHI_CPU_BF16_AMX };
enum echi_cpu_bf16 echi_cpu_bf16(void);
const char *echi_cpu_bf16_lacks(void);     /* of bf16: what is missing, in words; "" when nothing is */
int echi_cpu_count(void);                  /* processors this process may run on, or as many as its control groups grant the time of */
/* The latter, at least 1; INT_MAX where nothing is said. `root` as above. */
int echi_cpu_granted(const char *root);
/* The tightest quota of its control groups: so many seconds of processor time in each period of so many. False where there is none. */
bool echi_cpu_quota(const char *root, double *out_seconds, double *out_period);
/* The same for all processes that may run on the same processors of the same machine, until it is started again; 0: the OS does not say. */
uint64_t echi_cpu_place(void);
int echi_cpu_allowed(void);                /* processors this process may run on */
/* From now on the calling thread, and those that it starts, run on part number `part` of those that it may run on, in so many equal parts.
 * False, and nothing has changed, where they cannot be divided so, or the OS does not bind. */
struct echi_cpu_set { uint64_t bits[16]; };
bool echi_cpu_bind(int part, int parts, struct echi_cpu_set *out_before);
void echi_cpu_unbind(const struct echi_cpu_set *before);
size_t echi_resident_peak(void);           /* bytes, 0 when the OS does not say */
ech_status echi_entropy(void *out, size_t len, struct ech_error *err);
#endif
