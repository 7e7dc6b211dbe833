/* SPDX-License-Identifier: Apache-2.0
 * Whole files: read with a bound, written so that nobody ever sees half of one. Files that grow: see echi_file_append. */
#include "echi_error.h"
#include "echi_os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool echi_file_exists(const char *path) { return access(path, F_OK) == 0; }

/* A signal to the host program must not cost it a file: on network file systems these calls may be interrupted. */
static int open_again(const char *path, int flags, mode_t mode) {
    int fd;
    do fd = open(path, flags, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static int sync_again(int fd) {
    int code;
    do code = fsync(fd);
    while (code != 0 && errno == EINTR);
    return code;
}

/* ---------------------------------------------------------------- reading */

static ech_status fail_read(struct ech_error *err, const char *path) {
    const int code = errno;
    const char *advice = code == ENOENT ? ": check the path" : code == EACCES ? ": check its permissions" : "";
    return echi_fail(err, ECH_E_IO, "file.read", "cannot read '%s' (%s)%s", path, strerror(code), advice);
}

/* Reads to the end of `fd` and not only as far as fstat says: files under /proc say 0, others grow. */
static ech_status read_all(int fd, const char *path, size_t expected, size_t most, uint8_t **out_bytes, size_t *out_len,
                           struct ech_error *err) {
    const size_t top = most < SIZE_MAX ? most + 1 : most; /* one byte more than allowed tells "too long" from "just fits" */
    size_t room = expected < top ? expected + 1 : top, len = 0;
    uint8_t *bytes = malloc(room);
    if (!bytes) return echi_fail_memory(err, "file.read", path);
    for (;;) {
        const ssize_t got = read(fd, bytes + len, room - len);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            free(bytes);
            return fail_read(err, path);
        }
        len += (size_t)got;
        if (got == 0) break;
        if (len < room) continue;
        if (room == top) break;
        room = room < top / 2 ? room * 2 : top;
        uint8_t *larger = realloc(bytes, room);
        if (!larger) {
            free(bytes);
            return echi_fail_memory(err, "file.read", path);
        }
        bytes = larger;
    }
    if (len > most) {
        free(bytes);
        return echi_fail(err, ECH_E_FORMAT, "file.read", "'%s' has more than the %zu bytes allowed here: is it the right file?", path,
                         most);
    }
    *out_bytes = bytes;
    *out_len = len;
    return ECH_OK;
}

static ech_status read_file(const char *path, struct echi_file_owner *secret, size_t most, uint8_t **out_bytes, size_t *out_len,
                            struct ech_error *err) {
    /* Non-blocking: opening a pipe that nobody writes to would wait for ever. */
    const int fd = open_again(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return fail_read(err, path);
    struct stat info;
    ech_status status;
    if (fstat(fd, &info) != 0) status = fail_read(err, path);
    else if (!S_ISREG(info.st_mode))
        status = echi_fail(err, ECH_E_ARGUMENT, "file.read", "'%s' is %s, not a file: give the path of a file", path,
                           S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    else if (secret && info.st_uid == geteuid() && (info.st_mode & (S_IRWXG | S_IRWXO)))
        status = echi_fail(err, ECH_E_ARGUMENT, "file.read",
                           "'%s' is a secret that others may read or change (its mode is %03o): chmod 600 it, and make a new one if "
                           "somebody may have read it",
                           path, (unsigned)info.st_mode & 0777);
    else if ((uintmax_t)info.st_size > most)
        status = echi_fail(err, ECH_E_FORMAT, "file.read", "'%s' has %ju bytes, more than the %zu allowed here: is it the right file?",
                           path, (uintmax_t)info.st_size, most);
    else
        status = read_all(fd, path, (size_t)info.st_size, most, out_bytes, out_len, err);
    if (secret && status == ECH_OK) {
        const unsigned mode = (unsigned)info.st_mode & 0777, user = (unsigned)info.st_uid;
        *secret = (struct echi_file_owner){user, mode, user != geteuid() && (user != 0 || (mode & 077) != 0)};
    }
    close(fd);
    return status;
}

ech_status echi_file_read(const char *path, size_t most, uint8_t **out_bytes, size_t *out_len, struct ech_error *err) {
    return read_file(path, NULL, most, out_bytes, out_len, err);
}

ech_status echi_file_read_secret(const char *path, size_t most, uint8_t **out_bytes, size_t *out_len, struct echi_file_owner *out_owner,
                                 struct ech_error *err) {
    return read_file(path, out_owner, most, out_bytes, out_len, err);
}

/* ---------------------------------------------------------------- writing */

static const char *advice_on(int code) {
    return code == ENOENT || code == ENOTDIR    ? ": make its folder first"
           : code == ENOSPC || code == EDQUOT   ? ": free some space"
           : code == EFBIG                      ? ": raise the limit of file sizes (ulimit -f)"
           : code == EACCES || code == EROFS    ? ": choose a folder you may write to"
                                                : "";
}

static ech_status fail_write(struct ech_error *err, const char *path, const char *what) {
    const int code = errno;
    return echi_fail(err, ECH_E_IO, "file.write", "cannot write '%s' (%s: %s)%s", path, what, strerror(code), advice_on(code));
}

static bool write_all(int fd, const uint8_t *at, size_t len) {
    while (len) {
        const ssize_t put = write(fd, at, len);
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = EIO;   /* a device that takes nothing and says nothing: trying for ever would help nobody */
        if (put <= 0) return false;
        at += put;
        len -= (size_t)put;
    }
    return true;
}

/* A file larger than the process may write raises SIGXFSZ in the thread that writes, which ends a program that does not expect
 * it. Here it is only an error: the signal is held back, and one that came of this write is taken away. */
static bool write_quietly(int fd, const uint8_t *at, size_t len) {
    sigset_t too_large, before, waiting;
    sigemptyset(&too_large);
    sigaddset(&too_large, SIGXFSZ);
    sigpending(&waiting);
    pthread_sigmask(SIG_BLOCK, &too_large, &before);
    const bool good = write_all(fd, at, len);
    const int code = errno;
    if (!good && code == EFBIG && !sigismember(&waiting, SIGXFSZ)) sigtimedwait(&too_large, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return good;
}

static bool sync_folder(const char *folder) {
    const int fd = open_again(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    /* Some network file systems cannot sync a folder, and say EINVAL. */
    const bool good = sync_again(fd) == 0 || errno == EINVAL;
    const int code = errno;
    close(fd);
    errno = code;
    return good;
}

/* Syncs the folder that holds `path`, so that the rename is on the disk too. */
static bool sync_around(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash) snprintf(folder, sizeof folder, ".");
    else snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return sync_folder(folder);
}

/* Creates a file of a new name beside `path`. open and not mkstemp: the file gets the permissions of the user's umask. */
static int create_beside(const char *path, char name[PATH_MAX]) {
    static atomic_uint count;
    for (int tries = 0; tries < 100; tries++) {
        const int len = snprintf(name, PATH_MAX, "%s.%ld-%u.tmp", path, (long)getpid(), atomic_fetch_add(&count, 1));
        if (len >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const int fd = open_again(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

void echi_file_abandon(struct echi_file *f) {
    close(f->fd);
    unlink(f->name);
}

static ech_status fail_file(struct echi_file *f, const char *what, struct ech_error *err) {
    f->full = errno == ENOSPC || errno == EDQUOT;
    return fail_write(err, f->path, what);
}

/* The failure's own errno is the one to tell of. */
static ech_status give_up(struct echi_file *f, const char *what, struct ech_error *err) {
    const ech_status status = fail_file(f, what, err);
    echi_file_abandon(f);
    return status;
}

ech_status echi_file_begin(struct echi_file *f, const char *path, struct ech_error *err) {
    struct stat link, info;
    const bool there = lstat(path, &link) == 0;
    f->full = false;
    if (!there && errno != ENOENT) return fail_write(err, path, "looking at it");
    /* A rename over /dev/null or /dev/stdout would replace the device, or the link, itself. */
    f->replaces = there;
    if (there && S_ISLNK(link.st_mode)) {
        if (!realpath(path, f->path)) return fail_write(err, path, "following the link");
    } else if (snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path) {
        errno = ENAMETOOLONG;
        return fail_write(err, path, "looking at it");
    }
    if (there && stat(path, &info) != 0) return fail_write(err, path, "looking at it");
    if (there && !S_ISREG(info.st_mode))
        return echi_fail(err, ECH_E_ARGUMENT, "file.write", "'%s' is %s, not a file: give the path of a file to write", path,
                         S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    f->mode = there ? info.st_mode & 07777 : 0;
    f->fd = create_beside(f->path, f->name);
    return f->fd < 0 ? fail_file(f, "creating a temporary file beside it", err) : ECH_OK;
}

ech_status echi_file_put(struct echi_file *f, const void *bytes, size_t len, struct ech_error *err) {
    return write_quietly(f->fd, bytes, len) ? ECH_OK : give_up(f, "writing", err);
}

ech_status echi_file_commit(struct echi_file *f, struct ech_error *err) {
    if (f->replaces && fchmod(f->fd, f->mode) != 0) return give_up(f, "keeping its permissions", err);
    if (sync_again(f->fd) != 0) return give_up(f, "syncing", err);
    /* An interrupted close has closed all the same, and what was written is synced. */
    const bool closed = close(f->fd) == 0 || errno == EINTR;
    const char *failed = !closed ? "closing" : rename(f->name, f->path) != 0 ? "renaming" : NULL;
    if (failed) {
        const ech_status status = fail_file(f, failed, err);
        unlink(f->name);
        return status;
    }
    return sync_around(f->path) ? ECH_OK : fail_file(f, "syncing its folder", err);
}

ech_status echi_file_write(const char *path, const void *bytes, size_t len, struct ech_error *err) {
    struct echi_file f;
    ECHI_TRY(echi_file_begin(&f, path, err));
    ECHI_TRY(echi_file_put(&f, bytes, len, err));
    return echi_file_commit(&f, err);
}

ech_status echi_file_remove(const char *path, struct ech_error *err) {
    return unlink(path) == 0 || errno == ENOENT ? ECH_OK : fail_write(err, path, "removing it");
}

ech_status echi_folder_sync(const char *path, struct ech_error *err) {
    return sync_folder(path) ? ECH_OK : fail_write(err, path, "syncing the folder");
}

/* Does a process have the file open that is there? Non-blocking: it may be a pipe. A file system without locks knows of none. */
static bool is_written(const char *path) {
    const int fd = open_again(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    const bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return locked;
}

ech_status echi_file_create(const char *path, int *out_file, struct ech_error *err) {
    *out_file = open_again(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (*out_file >= 0) {
        flock(*out_file, LOCK_EX | LOCK_NB);
        return ECH_OK;
    }
    if (errno != EEXIST) return fail_write(err, path, "creating it");
    if (is_written(path))
        return echi_fail(err, ECH_E_BUSY, "file.create", "another run is writing '%s': wait for its end, or give another folder", path);
    return echi_fail(err, ECH_E_ARGUMENT, "file.create",
                     "'%s' is there already and is not written over: remove it, or give another folder", path);
}

static ech_status fail_append(struct ech_error *err, const char *what) {
    const int code = errno;
    return echi_fail(err, ECH_E_IO, "file.append", "%s failed (%s)%s", what, strerror(code), advice_on(code));
}

ech_status echi_file_append(int file, const void *bytes, size_t len, struct ech_error *err) {
    return write_quietly(file, bytes, len) ? ECH_OK : fail_append(err, "writing");
}

ech_status echi_file_sync(int file, struct ech_error *err) { return sync_again(file) == 0 ? ECH_OK : fail_append(err, "syncing"); }

void echi_file_close(int file) { close(file); }
