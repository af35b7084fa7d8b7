/* SPDX-License-Identifier: Apache-2.0 */

/* Descriptors by which clients pass shares on. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/daemon/daemon_internal.h"

static void export_path(const struct daemon *d, uint64_t number, char ret[static 512]) {
    (void) snprintf(ret, 512, "%s/" SIM_EXPORT_PREFIX "%llu", d->dir, (unsigned long long) number);
}

/* Its name is there as long as the descriptor, so that it can be found among the driver's files. */
static void unlink_export(const struct daemon *d, uint64_t number) {
    char path[512];
    export_path(d, number, path);
    (void) unlink(path);
}

static int open_fifo(const struct daemon *d, uint64_t number, int ends[2]) {
    char path[512];
    export_path(d, number, path);
    if (mkfifo(path, 0600) < 0)
        return -errno;
    ends[0] = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ends[1] = ends[0] < 0 ? -1 : open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    return ends[1] < 0 ? -errno : 0;
}

int daemon_export(struct daemon *d, struct sim_share *share) {
    int ends[2] = {-1, -1};
    uint64_t number = d->nexports++;
    struct stat st;
    int r = open_fifo(d, number, ends);
    _cleanup_close_ int ours = ends[0], theirs = ends[1];
    struct watch *w = r == 0 && fstat(ours, &st) == 0 ? watch_add(d, WATCH_EXPORT, ours, 0) : NULL;
    if (!w) {
        unlink_export(d, number);
        return r < 0 ? r : -ENOMEM;
    }
    (void) take_fd(&ours);
    w->share = share;
    w->number = number;
    w->inode = st.st_ino;
    w->file_system = st.st_dev;
    ipc_memory_export(share);
    return take_fd(&theirs);
}

/* Both ends of a FIFO have the same inode, and other file systems have inodes of that number. */
struct sim_share *daemon_exported(struct daemon *d, int fd) {
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode))
        return NULL;
    for (struct watch *w = d->watches; w; w = w->next)
        if (w->kind == WATCH_EXPORT && w->inode == st.st_ino && w->file_system == st.st_dev)
            return w->share;
    return NULL;
}

void export_end(struct daemon *d, struct watch *w) {
    ipc_memory_unexport(&d->machine, w->share);
    unlink_export(d, w->number);
    watch_close(d, w);
}

void export_ready(struct daemon *d, struct watch *w, uint32_t events) {
    char ignored[64];
    if (!(events & (EPOLLHUP | EPOLLERR))) {
        (void) !read(w->fd, ignored, sizeof(ignored)); /* no client writes here */
        return;
    }
    export_end(d, w);
}

void export_remove_stale(const struct daemon *d) {
    _cleanup_closedir_ DIR *dir = opendir(d->dir);
    const struct dirent *e;
    while (dir && (e = readdir(dir)))
        if (strncmp(e->d_name, SIM_EXPORT_PREFIX, strlen(SIM_EXPORT_PREFIX)) == 0)
            (void) unlinkat(dirfd(dir), e->d_name, 0);
}
