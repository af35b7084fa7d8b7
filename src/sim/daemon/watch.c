/* SPDX-License-Identifier: Apache-2.0 */

/* The daemon's clocks, the descriptors that it watches, and memory that it shares with clients. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/list.h"

uint64_t daemon_now(void) {
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t daemon_clock(const struct daemon *d) {
    return d->stepped ? d->clock : daemon_now();
}

uint64_t daemon_wall_us(void) {
    return clock_us(CLOCK_REALTIME);
}

uint64_t daemon_wall_s(void) {
    return (uint64_t) time(NULL);
}

struct watch *watch_add(struct daemon *d, enum watch_kind kind, int fd, uint32_t minor) {
    struct watch *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    *w = (struct watch){.kind = kind, .fd = fd, .minor = minor};
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = w};
    if (epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &ev) < 0) {
        free(w);
        return NULL;
    }
    w->next = d->watches;
    if (w->next)
        w->next->previous = w;
    d->watches = w;
    return w;
}

void watch_close(struct daemon *d, struct watch *w) {
    if (w->fd < 0)
        return;
    (void) epoll_ctl(d->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    if (w->kind != WATCH_USER)
        (void) close(w->fd);
    w->fd = -1;
    if (w->previous)
        w->previous->next = w->next;
    else
        d->watches = w->next;
    if (w->next)
        w->next->previous = w->previous;
    LIST_PUSH(d->dead, w, next);
}

void watch_free_dead(struct daemon *d) {
    while (d->dead) {
        struct watch *next = d->dead->next;
        free(d->dead);
        d->dead = next;
    }
}

int daemon_memory(const char *name, size_t size, void **ret_map) {
    _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t) size) < 0)
        return -errno;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return -errno;
    if (!ret_map)
        return take_fd(&fd);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return -errno;
    *ret_map = map;
    return take_fd(&fd);
}
