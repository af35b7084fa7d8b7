/* SPDX-License-Identifier: Apache-2.0 */

/* Connections of clients and their sessions: peers, rings, and the end of both. */

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi/cuda.h"
#include "base/cleanup.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/fault.h"
#include "sim/daemon/nvml_accounting.h"
#include "sim/daemon/wake.h"

int connection_pid(int fd, pid_t *ret) {
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return -errno;
    *ret = cred.pid;
    return 0;
}

/* The effective capabilities of a process, of which those in another user namespace do not count.
 */
static bool has_sys_admin(pid_t pid) {
    struct stat theirs, ours;
    char path[64];
    (void) snprintf(path, sizeof(path), "/proc/%d/ns/user", (int) pid);
    if (stat(path, &theirs) < 0 || stat("/proc/self/ns/user", &ours) < 0 ||
        theirs.st_ino != ours.st_ino || theirs.st_dev != ours.st_dev)
        return false;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, pid};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    return syscall(SYS_capget, &header, data) == 0 &&
           (data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)) != 0;
}

bool connection_is_administrator(int fd) {
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return false;
    return geteuid() == 0 ? has_sys_admin(cred.pid) : cred.uid == geteuid();
}

int daemon_session_queue(struct daemon *d, struct sim_session *s, int ret_fds[2]) {
    if (s->ring)
        return -EBUSY;
    void *map = NULL;
    _cleanup_close_ int fd = daemon_memory("aliquot-sim-ring", sizeof(struct sim_ring), &map);
    if (fd < 0)
        return fd;
    _cleanup_close_ int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    _cleanup_close_ int ours = bell >= 0 ? fcntl(bell, F_DUPFD_CLOEXEC, 3) : -1;
    struct watch *w = ours >= 0 ? watch_add(d, WATCH_BELL, ours, 0) : NULL;
    if (!w) {
        (void) munmap(map, sizeof(struct sim_ring));
        return -ENOMEM;
    }
    (void) take_fd(&ours);
    w->session = s;
    s->ring = map;
    ret_fds[0] = take_fd(&fd);
    ret_fds[1] = take_fd(&bell);
    return 0;
}

static void account_for(struct sim_session *s, uint32_t minor) {
    if (s->channel[minor])
        nvml_accounting_end(s->channel[minor], daemon_wall_us());
}

void connection_end_session(struct daemon *d, struct sim_session *s) {
    struct watch *next;
    for (uint32_t i = 0; i < d->machine.nunits; i++)
        account_for(s, i);
    for (struct watch *w = d->watches; w; w = next) {
        next = w->next;
        if (w->session != s)
            continue;
        w->session = NULL;
        if (w->kind == WATCH_BELL)
            watch_close(d, w);
    }
    if (s->ring) {
        (void) munmap(s->ring, sizeof(*s->ring));
        s->ring = NULL;
    }
    cleanup_closep(&s->pidfd);
    session_end(s);
}

void connection_hang_up(struct daemon *d, struct watch *w) {
    struct sim_session *s = w->session;
    w->session = NULL;
    if (s && w->kind == WATCH_CTL)
        connection_end_session(d, s);
    else if (s && w->kind == WATCH_DEVICE) {
        account_for(s, w->minor);
        session_detach(s, w->minor);
    }
    watch_close(d, w);
}

void connection_tell_lost(struct daemon *d) {
    for (struct sim_session *s = d->machine.sessions; s; s = s->next) {
        if (!s->ring)
            continue;
        atomic_store(&s->ring->lost, 1);
        /* Before the session's pending work ends: none of it may count as complete. */
        for (uint32_t i = 0; i < SIM_MAX_UNITS; i++)
            atomic_store(&s->ring->broken[i], (uint32_t) CUDA_ERROR_DEVICE_UNAVAILABLE);
        for (uint32_t i = 0; i < SIM_QUEUES; i++)
            if (atomic_exchange(&s->ring->queue[i].waiters, 0))
                sim_wake(&s->ring->queue[i].done);
    }
}

/* Also where there is no session (yet): the connection itself ends. */
static void hang_up_all(struct daemon *d, enum watch_kind kind) {
    struct watch *next;
    for (struct watch *w = d->watches; w; w = next) {
        next = w->next;
        if (w->kind == kind)
            connection_hang_up(d, w);
    }
}

void daemon_unload(struct daemon *d) {
    d->unloaded = true;
    connection_tell_lost(d);
    /* Device connections first: the end of a session closes no other connection than bells. */
    hang_up_all(d, WATCH_DEVICE);
    hang_up_all(d, WATCH_CAPABILITY);
    while (d->machine.sessions)
        connection_end_session(d, d->machine.sessions);
    hang_up_all(d, WATCH_CTL);
}

void daemon_load(struct daemon *d) {
    d->unloaded = false;
    for (uint32_t i = 0; i < d->machine.ngpus; i++)
        if (atomic_load(&d->machine.gpu[i].page->state) == SIM_NEEDS_RESET)
            (void) fault_reset(&d->machine, i);
}
