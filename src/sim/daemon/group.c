/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/group.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"

#define ROOT_ID 1u

struct group_dir {
    struct group_dir *next;
    uint64_t id;
    int fd;
};

int group_process(pid_t pid) {
    char path[32];
    (void) snprintf(path, sizeof(path), "/proc/%d", (int) pid);
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool is_group(int fd, uint64_t *ret_id) {
    struct statfs fs;
    struct stat st;
    if (fstatfs(fd, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC || fstat(fd, &st) < 0)
        return false;
    *ret_id = st.st_ino;
    return true;
}

/* Its directory may be open yet. */
static bool is_removed(int fd) {
    return faccessat(fd, "cgroup.procs", F_OK, 0) < 0 && errno == ENOENT;
}

int group_of_directory(int fd, struct sim_groups *ret) {
    _cleanup_close_ int at = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    uint64_t id;
    ret->depth = 0;
    if (at < 0 || !is_group(at, &id) || is_removed(at))
        return -EINVAL;
    while (id != ROOT_ID && ret->depth < MEMLIMIT_DEPTH) {
        ret->id[ret->depth++] = id;
        int up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0)
            break;
        (void) close(at);
        at = up;
        if (!is_group(at, &id))
            break; /* above the mount */
    }
    return 0;
}

/* The path of the second version in /proc/PID/cgroup. */
static bool read_path(int proc, char *ret, size_t size) {
    int fd = openat(proc, "cgroup", O_RDONLY | O_CLOEXEC);
    _cleanup_fclose_ FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (!f && fd >= 0)
        (void) close(fd);
    while (f && fgets(ret, (int) size, f)) {
        if (strncmp(ret, "0::/", 4) != 0)
            continue;
        ret[strcspn(ret, "\n")] = '\0';
        memmove(ret, ret + 3, strlen(ret + 3) + 1);
        return true;
    }
    return false;
}

void group_of_process(int proc, struct sim_groups *ret) {
    static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup"};
    char group[2048], path[2112];
    ret->depth = 0;
    if (proc < 0 || !read_path(proc, group, sizeof(group)))
        return;
    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        (void) snprintf(path, sizeof(path), "%s%s", mounts[i], group);
        _cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && group_of_directory(fd, ret) == 0)
            return;
    }
}

int group_dirs_add(struct group_dir **dirs, uint64_t id, int fd) {
    for (const struct group_dir *i = *dirs; i; i = i->next)
        if (i->id == id)
            return 0;
    struct group_dir *dir = calloc(1, sizeof(*dir));
    if (!dir)
        return -ENOMEM;
    *dir = (struct group_dir){.next = *dirs, .id = id, .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    if (dir->fd < 0) {
        free(dir);
        return -errno;
    }
    *dirs = dir;
    return 0;
}

uint64_t group_dirs_gone(struct group_dir **dirs) {
    for (struct group_dir **p = dirs; *p; p = &(*p)->next) {
        struct group_dir *dir = *p;
        if (!is_removed(dir->fd))
            continue;
        uint64_t id = dir->id;
        *p = dir->next;
        (void) close(dir->fd);
        free(dir);
        return id;
    }
    return 0;
}

void group_dirs_done(struct group_dir **dirs) {
    while (*dirs) {
        struct group_dir *dir = *dirs;
        *dirs = dir->next;
        (void) close(dir->fd);
        free(dir);
    }
}
