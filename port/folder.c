/* SPDX-License-Identifier: Apache-2.0
 * Folders: made, listed, and kept to one process. */
#include "echi_error.h"
#include "echi_os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTED "listed"
static ech_status fail_folder(struct ech_error *err, const char *path, const char *what) {
    const int code = errno;
    const bool made = strcmp(what, LISTED) != 0;   /* it is to be written to */
    const char *advice = code == ENOENT                      ? made ? ": make the folder it is to be in first" : ": check its name"
                         : code == EACCES || code == EROFS   ? made ? ": choose a folder you may write to" : ": check its permissions"
                         : code == EEXIST || code == ENOTDIR ? ": it is no folder; give another name"
                                                             : "";
    return echi_fail(err, ECH_E_IO, "folder", "folder '%s' cannot be %s (%s)%s", path, what, strerror(code), advice);
}

ech_status echi_folder_make(const char *path, struct ech_error *err) {
    struct stat info;
    if (mkdir(path, 0777) == 0) return ECH_OK;
    if (errno != EEXIST) return fail_folder(err, path, "made");
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return ECH_OK;
    errno = EEXIST;
    return fail_folder(err, path, "made");
}

ech_status echi_folder_list(const char *path, ech_status (*each)(void *self, const char *name), void *self, struct ech_error *err) {
    DIR *folder = opendir(path);
    if (!folder) return fail_folder(err, path, LISTED);
    ech_status status = ECH_OK;
    errno = 0;
    for (struct dirent *entry; status == ECH_OK && (entry = readdir(folder)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) status = each(self, entry->d_name);
    if (status == ECH_OK && errno) status = fail_folder(err, path, LISTED);
    closedir(folder);
    return status;
}

ech_status echi_folder_lock(const char *path, int *out_lock, struct ech_error *err) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_folder(err, path, "opened");
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(fd);
        return echi_fail(err, ECH_E_BUSY, "folder", "another run uses the folder '%s': wait for its end, or give another folder", path);
    }
    if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0) {
        const ech_status status = fail_folder(err, path, "written to");
        close(fd);
        return status;
    }
    *out_lock = fd;
    return ECH_OK;
}

void echi_folder_unlock(int lock) {
    if (lock >= 0) close(lock);
}
