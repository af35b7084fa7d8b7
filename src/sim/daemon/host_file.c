/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/host_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

static int write_new(const char *path, const struct buf *text, struct err *err) {
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);
    if (fd < 0)
        return err_errno(err, errno, "cannot create %s", path);
    if (write(fd, buf_str(text), text->len) != (ssize_t) text->len)
        return err_errno(err, errno ? errno : EIO, "cannot write %s", path);
    return 0;
}

/* No fsync: a new daemon writes all of them anew. */
int host_file_put(const char *dir, const char *name, const struct buf *text, struct err *err) {
    char path[PATH_MAX], parent[PATH_MAX], new_path[PATH_MAX + 8];
    if (buf_error(text) < 0)
        return err_errno(err, -buf_error(text), "cannot make the text of %s", name);
    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int) sizeof(path))
        return err_set(err, ENAMETOOLONG, "%s/%s is too long for a path", dir, name);
    (void) snprintf(parent, sizeof(parent), "%s", path);
    *strrchr(parent, '/') = '\0';
    (void) snprintf(new_path, sizeof(new_path), "%s.new", path);
    int r = dir_make(parent, 0755, err);
    if (r == 0)
        r = write_new(new_path, text, err);
    if (r == 0 && rename(new_path, path) < 0)
        r = err_errno(err, errno, "cannot replace %s", path);
    return r;
}

void host_file_remove(const char *dir, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int) sizeof(path))
        return;
    (void) unlink(path);
    *strrchr(path, '/') = '\0';
    (void) rmdir(path);
}
