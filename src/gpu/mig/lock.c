/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/mig/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"
#include "base/text.h"

/* Another process may have made it meanwhile; the file shows whether it is there. */
static void make_directory(const char *path) {
    char dir[PATH_MAX];
    char *slash;

    text_copy(dir, sizeof(dir), path);
    slash = strrchr(dir, '/');
    if (!slash || slash == dir)
        return;
    *slash = 0;
    (void) mkdir(dir, 0755);
}

/* 0: the holder has not written it yet. */
static uint64_t read_holder(int fd) {
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    uint64_t pid = 0;

    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    return num_parse_u64(text, INT_MAX, &pid) == 0 ? pid : 0;
}

int gpu_mig_lock(const char *path, struct err *err) {
    _cleanup_close_ int fd = -1;
    char pid[32];
    int n = snprintf(pid, sizeof(pid), "%d\n", (int) getpid());

    make_directory(path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the lock %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        uint64_t holder = read_holder(fd);

        return holder > 0
                   ? err_set(err, EBUSY,
                             "process %d divides the GPUs of this machine now (lock %s)",
                             (int) holder, path)
                   : err_set(err, EBUSY,
                             "another process divides the GPUs of this machine now (lock %s)",
                             path);
    }
    if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t) n, 0) != n)
        return err_errno(err, errno ? errno : EIO, "cannot write the lock %s", path);
    return take_fd(&fd);
}
