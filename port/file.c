/* SPDX-License-Identifier: Apache-2.0
 * Whole files: read with a bound, written so that nobody ever sees half of one. */
#include "echi_error.h"
#include "echi_os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool echi_file_exists(const char *path) { return access(path, F_OK) == 0; }

/* ---------------------------------------------------------------- reading */

static ech_status fail_read(struct ech_error *err, const char *path) {
    const int code = errno;
    const char *advice = code == ENOENT ? ": check the path" : code == EACCES ? ": check its permissions" : "";
    return echi_fail(err, ECH_E_IO, "file.read", "cannot read '%s' (%s)%s", path, strerror(code), advice);
}

/* Reads to the end of `fd` and not only as far as fstat says: files under /proc say 0, others grow. */
static ech_status read_all(int fd, const char *path, size_t expected, size_t most, uint8_t **out_bytes, size_t *out_len, struct ech_error *err) {
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
        return echi_fail(err, ECH_E_FORMAT, "file.read", "'%s' has more than the %zu bytes allowed here: is it the right file?", path, most);
    }
    *out_bytes = bytes;
    *out_len = len;
    return ECH_OK;
}

ech_status echi_file_read(const char *path, size_t most, uint8_t **out_bytes, size_t *out_len, struct ech_error *err) {
    /* Non-blocking: opening a pipe that nobody writes to would wait for ever. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return fail_read(err, path);
    struct stat info;
    ech_status status;
    if (fstat(fd, &info) != 0) status = fail_read(err, path);
    else if (!S_ISREG(info.st_mode))
        status = echi_fail(err, ECH_E_ARGUMENT, "file.read", "'%s' is %s, not a file: give the path of a file", path,
                           S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    else if ((uintmax_t)info.st_size > most)
        status = echi_fail(err, ECH_E_FORMAT, "file.read", "'%s' has %ju bytes, more than the %zu allowed here: is it the right file?", path,
                           (uintmax_t)info.st_size, most);
    else
        status = read_all(fd, path, (size_t)info.st_size, most, out_bytes, out_len, err);
    close(fd);
    return status;
}

/* ---------------------------------------------------------------- writing */

static ech_status fail_write(struct ech_error *err, const char *path, const char *what) {
    const int code = errno;
    const char *advice = code == ENOENT || code == ENOTDIR    ? ": make its folder first"
                         : code == ENOSPC || code == EDQUOT   ? ": free some space"
                         : code == EACCES || code == EROFS    ? ": choose a folder you may write to"
                                                              : "";
    return echi_fail(err, ECH_E_IO, "file.write", "cannot write '%s' (%s: %s)%s", path, what, strerror(code), advice);
}

static bool write_all(int fd, const uint8_t *at, size_t len) {
    while (len) {
        const ssize_t put = write(fd, at, len);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        at += put;
        len -= (size_t)put;
    }
    return true;
}

/* Syncs the folder that holds `path`, so that the rename is on the disk too. */
static bool sync_folder(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash) snprintf(folder, sizeof folder, ".");
    else snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    /* Some network file systems cannot sync a folder, and say EINVAL. */
    const bool good = fsync(fd) == 0 || errno == EINVAL;
    const int code = errno;
    close(fd);
    errno = code;
    return good;
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
        const int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

/* `path` names the file itself, not a link to it. `before` describes the file that it replaces, or is NULL. */
static ech_status replace(const char *path, const struct stat *before, const void *bytes, size_t len, struct ech_error *err) {
    char name[PATH_MAX];
    const int fd = create_beside(path, name);
    if (fd < 0) return fail_write(err, path, "creating a temporary file beside it");
    const char *failed = !write_all(fd, bytes, len)                       ? "writing"
                         : before && fchmod(fd, before->st_mode & 07777)  ? "keeping its permissions"
                         : fsync(fd)                                      ? "syncing"
                                                                          : NULL;
    const int code = errno;
    if (close(fd) != 0 && !failed) failed = "closing";
    else if (failed) errno = code;
    if (!failed && rename(name, path) != 0) failed = "renaming";
    if (failed) {
        const ech_status status = fail_write(err, path, failed);
        unlink(name);
        return status;
    }
    return sync_folder(path) ? ECH_OK : fail_write(err, path, "syncing its folder");
}

ech_status echi_file_write(const char *path, const void *bytes, size_t len, struct ech_error *err) {
    struct stat link, info;
    if (lstat(path, &link) != 0) return errno == ENOENT ? replace(path, NULL, bytes, len, err) : fail_write(err, path, "looking at it");
    /* A rename over /dev/null or /dev/stdout would replace the device, or the link, itself. */
    char target[PATH_MAX];
    if (S_ISLNK(link.st_mode) && !realpath(path, target)) return fail_write(err, path, "following the link");
    if (stat(path, &info) != 0) return fail_write(err, path, "looking at it");
    if (!S_ISREG(info.st_mode))
        return echi_fail(err, ECH_E_ARGUMENT, "file.write", "'%s' is %s, not a file: give the path of a file to write", path,
                         S_ISDIR(info.st_mode) ? "a folder" : "a device or pipe");
    return replace(S_ISLNK(link.st_mode) ? target : path, &info, bytes, len, err);
}

ech_status echi_file_create(const char *path, int *out_file, struct ech_error *err) {
    /* Non-blocking: opening a pipe that nobody reads would wait for ever. */
    *out_file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    return *out_file < 0 ? fail_write(err, path, "creating it") : ECH_OK;
}

ech_status echi_file_append(int file, const void *bytes, size_t len, struct ech_error *err) {
    if (write_all(file, bytes, len)) return ECH_OK;
    return echi_fail(err, ECH_E_IO, "file.append", "writing failed (%s)%s", strerror(errno), errno == ENOSPC || errno == EDQUOT ? ": free some space" : "");
}

void echi_file_close(int file) { close(file); }

/* ---------------------------------------------------------------- folders */

ech_status echi_folder_make(const char *path, struct ech_error *err) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return ECH_OK;
    const int code = errno;
    if (code == EEXIST && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return ECH_OK;
    return echi_fail(err, ECH_E_IO, "folder.make", "cannot make the folder '%s' (%s)%s", path, strerror(code),
                     code == ENOENT ? ": make the folder that it is in first" : code == EEXIST ? ": a file has that name" : "");
}
