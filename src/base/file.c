/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/step.h"

int file_read(const char *path, size_t max, struct buf *ret, struct err *err) {
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", path);

    size_t start = ret->len;
    for (;;) {
        char *room = buf_reserve(ret, 16384);
        if (!room)
            return err_errno(err, ret->error, "cannot read %s", path);
        ssize_t n = read(fd, room, 16384);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read %s", path);
        buf_commit(ret, (size_t) n);
        if (n == 0)
            return 0;
        if (ret->len - start > max)
            return err_set(err, EFBIG, "%s is larger than %zu bytes", path, max);
    }
}

static int write_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        len -= (size_t) n;
    }
    return 0;
}

int file_replace(const char *path, const void *data, size_t len, mode_t mode, struct err *err) {
    char temp[PATH_MAX];
    int n = snprintf(temp, sizeof(temp), "%s.XXXXXX", path);
    if (n < 0 || (size_t) n >= sizeof(temp))
        return err_errno(err, ENAMETOOLONG, "cannot write %s", path);

    step_end();
    _cleanup_close_ int fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot create a file beside %s", path);

    int r = write_all(fd, data, len);
    if (r == 0 && (fchmod(fd, mode) < 0 || fsync(fd) < 0 || rename(temp, path) < 0))
        r = -errno;
    if (r < 0) {
        (void) unlink(temp);
        return err_errno(err, -r, "cannot write %s", path);
    }
    return 0;
}

int file_copy(const char *from, const char *to, mode_t mode, struct err *err) {
    _cleanup_buf_ struct buf content = BUF_INIT(BUF_MAX_DEFAULT);
    int r = file_read(from, BUF_MAX_DEFAULT, &content, err);
    if (r < 0)
        return r;
    return file_replace(to, content.data, content.len, mode, err);
}

int dir_make(const char *path, mode_t mode, struct err *err) {
    char part[PATH_MAX];
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(part))
        return err_errno(err, ENAMETOOLONG, "cannot create directory '%s'", path);
    memcpy(part, path, len + 1);

    for (char *slash = part + 1;; slash++) {
        if (*slash != '/' && *slash != '\0')
            continue;
        char end = *slash;
        *slash = '\0';
        if (mkdir(part, mode) == 0) {
            if (chmod(part, mode) < 0)
                return err_errno(err, errno, "cannot set the mode of %s", part);
        } else if (errno != EEXIST) {
            return err_errno(err, errno, "cannot create directory %s", part);
        }
        *slash = end;
        if (end == '\0')
            break;
    }

    struct stat st;
    if (stat(path, &st) < 0)
        return err_errno(err, errno, "cannot use directory %s", path);
    if (!S_ISDIR(st.st_mode))
        return err_errno(err, ENOTDIR, "cannot use %s", path);
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk) {
    (void) st;
    (void) type;
    (void) walk;
    return remove(path) < 0 && errno != ENOENT ? -1 : 0;
}

int dir_remove(const char *path, struct err *err) {
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s", path);
    return 0;
}
