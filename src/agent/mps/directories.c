/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/mps/directories.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/os/selinux.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "gpu/nvml/compute_mode.h"

#define RECORD "compute-mode"

/* `pipe` has sockets and lock files. Runtimes give /dev/shm of a container 64 MiB: `shm` has as
 * much for each of the 48 clients that a card takes at most. */
#define PIPE_OPTIONS "size=1m,nr_inodes=1024,mode=0755"
#define SHM_OPTIONS "size=3072m,nr_inodes=65536,mode=1777"

int mps_directories_name(const char *dir, const char *uuid, struct mps_directories *ret,
                         struct err *err) {
    struct mps_directories d;
    int n = snprintf(d.base, sizeof(d.base), "%s/%s", dir, uuid);
    int pipe = n > 0 && (size_t) n < sizeof(d.base)
                   ? snprintf(d.pipe, sizeof(d.pipe), "%s/pipe", d.base)
                   : n;

    if (pipe < 0 || (size_t) pipe >= sizeof(d.pipe))
        return err_set(err, ENAMETOOLONG,
                       "the pipe directory of MPS below %s would have more than %d bytes; use a "
                       "shorter --state-dir",
                       dir, MPS_PIPE_MAX);
    (void) snprintf(d.log, sizeof(d.log), "%s/log", d.base);
    (void) snprintf(d.shm, sizeof(d.shm), "%s/shm", d.base);
    *ret = d;
    return 0;
}

static bool is_mounted(const struct mps_directories *d, const char *path) {
    struct stat outer, inner;

    return stat(d->base, &outer) == 0 && stat(path, &inner) == 0 && outer.st_dev != inner.st_dev;
}

/* Not MS_NOEXEC: a runtime that binds it in a user namespace may not take it off. */
static int bound(const struct mps_directories *d, const char *path, const char *options,
                 struct err *err) {
    if (is_mounted(d, path) || mount("aliquot", path, "tmpfs", MS_NOSUID | MS_NODEV, options) == 0)
        return 0;
    return err_errno(err, errno, "cannot mount a tmpfs on %s", path);
}

int mps_directories_make(const struct mps_directories *d, const char *selinux, bool bounded,
                         struct err *err) {
    int r = dir_make(d->pipe, 0755, err);

    if (r == 0)
        r = dir_make(d->log, 0755, err);
    if (r == 0)
        r = dir_make(d->shm, 01777, err);
    /* A mount would hide what the daemon has open. */
    if (bounded && mps_directories_holder(d) > 0)
        bounded = false;
    if (r == 0 && bounded)
        r = bound(d, d->pipe, PIPE_OPTIONS, err);
    if (r == 0 && bounded)
        r = bound(d, d->shm, SHM_OPTIONS, err);
    /* Of an older agent, or of another umask. */
    if (r == 0 && chmod(d->shm, 01777) < 0)
        r = err_errno(err, errno, "cannot change the mode of %s", d->shm);
    if (r == 0)
        r = selinux_label(d->pipe, selinux, err);
    return r == 0 ? selinux_label(d->shm, selinux, err) : r;
}

/* Lazily: the files that containers have made there take no time to remove. */
static int unmount(const char *path, struct err *err) {
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || errno == EINVAL || errno == ENOENT ||
        errno == EPERM)
        return 0;
    return err_errno(err, errno, "cannot unmount %s", path);
}

int mps_directories_remove(const struct mps_directories *d, struct err *err) {
    int r = unmount(d->pipe, err);

    if (r == 0)
        r = unmount(d->shm, err);
    return r == 0 ? dir_remove(d->base, err) : r;
}

int mps_directories_holder(const struct mps_directories *d) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[sizeof(d->pipe) + sizeof("/control_lock")];
    _cleanup_close_ int fd = -1;

    (void) snprintf(path, sizeof(path), "%s/control_lock", d->pipe);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
        return 0;
    return lock.l_pid > 0 ? lock.l_pid : 0;
}

static void record_path(const struct mps_directories *d, char ret[static 160]) {
    (void) snprintf(ret, 160, "%s/" RECORD, d->base);
}

int mps_record_write(const struct mps_directories *d, unsigned mode, struct err *err) {
    char path[160], text[16];

    record_path(d, path);
    if (access(path, F_OK) == 0)
        return 0;
    (void) snprintf(text, sizeof(text), "%u\n", mode);
    return file_replace(path, text, strlen(text), 0644, err);
}

int mps_record_read(const struct mps_directories *d, unsigned *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(65536);
    char path[160];
    uint64_t mode;
    int r;

    record_path(d, path);
    r = file_read(path, 16, &text, err);
    if (r < 0)
        return r;
    if (text.len > 0 && text.data[text.len - 1] == '\n')
        text.data[--text.len] = 0;
    if (num_parse_u64(buf_str(&text), GPU_COMPUTE_MODE_EXCLUSIVE_PROCESS, &mode) < 0)
        return err_set(err, EBADMSG, "%s is no record of a compute mode", path);
    *ret = (unsigned) mode;
    return 0;
}
