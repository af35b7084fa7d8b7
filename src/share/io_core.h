/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* File calls that are no cancellation points, for the library in tenants' processes: a thread that
 * pthread_cancel ended in one of libc's would leave a lock of the library held. */

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int io_openat(int dir, const char *path, int flags) {
    return (int) syscall(SYS_openat, dir, path, flags, 0);
}

static inline int io_open(const char *path, int flags) {
    return io_openat(AT_FDCWD, path, flags);
}

static inline void io_close(int fd) {
    (void) syscall(SYS_close, fd);
}

static inline ssize_t io_read(int fd, void *buffer, size_t size) {
    return syscall(SYS_read, fd, buffer, size);
}

/* fallocate(2) with mode 0. */
static inline int io_fallocate(int fd, off_t at, off_t size) {
    return (int) syscall(SYS_fallocate, fd, 0, at, size);
}

/* fcntl(2) with F_OFD_SETLKW. */
static inline int io_lock_wait(int fd, struct flock *lock) {
    return (int) syscall(SYS_fcntl, fd, F_OFD_SETLKW, lock);
}
