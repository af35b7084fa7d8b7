/* SPDX-License-Identifier: Apache-2.0 */
#include "share/share_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/cleanup.h"

int share_file_create(const char *path, const void *head, size_t head_size, size_t size,
                      mode_t mode, struct err *err) {
    char temp[4096];
    _cleanup_close_ int fd = -1;
    int r = 0;

    if (access(path, F_OK) == 0)
        return 0;
    if (snprintf(temp, sizeof(temp), "%s.new", path) >= (int) sizeof(temp))
        return err_errno(err, ENAMETOOLONG, "cannot create %s", path);
    (void) unlink(temp);
    fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot create %s", temp);
    if (pwrite(fd, head, head_size, 0) != (ssize_t) head_size || ftruncate(fd, (off_t) size) < 0 ||
        fchmod(fd, mode) < 0 || rename(temp, path) < 0) {
        r = err_errno(err, errno, "cannot create %s", path);
        (void) unlink(temp);
    }
    return r;
}
