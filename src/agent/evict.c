/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/evict.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/num.h"

#define PASSES_MAX 16

static int pidfd_open_(int pid) {
    return (int) syscall(SYS_pidfd_open, pid, 0);
}

static int pidfd_kill(int fd) {
    return (int) syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

static bool kill_cgroup(int pid, const struct cgroup_id *id, const char *host_root) {
    char group[1024], path[1100];
    _cleanup_close_ int fd = -1;

    if (cgroup_directory(pid, id, host_root, group, sizeof(group)) < 0)
        return false;
    (void) snprintf(path, sizeof(path), "%s/cgroup.kill", group);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, "1", 1) == 1;
}

/* ---- one by one ---- */

static bool same_container(int pid, const struct cgroup_id *id) {
    struct cgroup_id now;

    return cgroup_of_pid(pid, &now) == 1 && strcmp(now.pod_uid, id->pod_uid) == 0 &&
           strcmp(now.container_id, id->container_id) == 0;
}

/* The number may be another process's by now: it is looked at again once it is held. */
static bool kill_one(int pid, const struct cgroup_id *id) {
    _cleanup_close_ int fd = pidfd_open_(pid);

    if (fd < 0)
        return errno == ENOSYS && same_container(pid, id) && kill(pid, SIGKILL) == 0;
    return same_container(pid, id) && pidfd_kill(fd) == 0;
}

static int kill_pass(const struct cgroup_id *id) {
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    struct dirent *e;
    uint64_t pid;
    int killed = 0;

    if (!proc)
        return -errno;
    while ((e = readdir(proc)))
        if (isdigit((unsigned char) e->d_name[0]) &&
            num_parse_u64(e->d_name, INT32_MAX, &pid) == 0 && same_container((int) pid, id))
            killed += kill_one((int) pid, id);
    return killed;
}

int evict_container(int pid, const struct cgroup_id *id, const char *host_root) {
    int total = 0, r = 1;

    if (!id->container_id[0])
        return -EINVAL;
    if (kill_cgroup(pid, id, host_root))
        return 1;
    /* Zombies are signalled again at each pass; a pass that signals no more than the last one found
     * nobody new. */
    for (int i = 0, before = -1; i < PASSES_MAX && r != before; i++) {
        before = r;
        r = kill_pass(id);
        if (r < 0)
            return r;
        total = r > total ? r : total;
    }
    return total > 0 ? total : -ESRCH;
}
