/* SPDX-License-Identifier: Apache-2.0 */

/* Requests about what processes share: memory and events. */

#include <sys/mman.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/shared_event.h"

/* Names are random: a process can use only a name that it was given. */
static int make_name(uint64_t name[2]) {
    return getrandom(name, 2 * sizeof(name[0]), 0) == (ssize_t) (2 * sizeof(name[0])) ? 0 : -EIO;
}

static void pass_memory(const struct sim_share *share, struct answer *a) {
    a->reply.a = share->bytes;
    a->reply.b = share->minor;
    a->reply.token[0] = share->id[0];
    a->reply.token[1] = share->id[1];
    a->fds[0] = share->fd;
    a->nfds = 1;
}

static int share_begin(struct sim_session *s, const struct sim_request *q, struct answer *a) {
    struct sim_channel *c = session_channel(s, q->minor);
    if (!c)
        return -ENODEV;
    if (q->a > INT64_MAX - 4096)
        return -EINVAL;
    uint64_t name[2];
    int r = make_name(name);
    if (r < 0)
        return r;
    /* Whole pages, and one where there are no bytes: a name that can be passed on. */
    size_t size = q->a ? (q->a + 4095) / 4096 * 4096 : 4096;
    _cleanup_close_ int fd = daemon_memory("aliquot-sim-share", size, NULL);
    if (fd < 0)
        return fd;
    r = ipc_memory_new(c, q->a, fd, name);
    if (r < 0)
        return r;
    (void) take_fd(&fd);
    pass_memory(ipc_memory_find(s->machine, name), a);
    return 0;
}

static int share_open(struct sim_session *s, struct sim_share *share, struct answer *a) {
    if (!share)
        return -ENOENT;
    int r = ipc_memory_hold(share, s);
    if (r == 0)
        pass_memory(share, a);
    return r;
}

static int share_export_fd(struct daemon *d, struct sim_share *share, struct answer *a) {
    if (!share)
        return -ENOENT;
    int fd = daemon_export(d, share);
    if (fd < 0)
        return fd;
    a->fds[0] = fd;
    a->nfds = 1;
    a->close_fds = true;
    return 0;
}

static void pass_event(const struct sim_shared_event *e, uint32_t slot, struct answer *a) {
    a->reply.a = slot;
    a->reply.token[0] = e->id[0];
    a->reply.token[1] = e->id[1];
    a->fds[0] = e->fd;
    a->nfds = 1;
}

static int event_begin(struct sim_session *s, struct answer *a) {
    uint64_t name[2];
    uint32_t slot;
    void *page = NULL;
    int r = make_name(name);
    if (r < 0)
        return r;
    _cleanup_close_ int fd =
        daemon_memory("aliquot-sim-event", sizeof(struct sim_shared_event_page), &page);
    if (fd < 0)
        return fd;
    r = shared_event_new(s, page, fd, name, &slot);
    if (r < 0) {
        (void) munmap(page, sizeof(struct sim_shared_event_page));
        return r;
    }
    (void) take_fd(&fd);
    pass_event(s->event[slot], slot, a);
    return 0;
}

static int event_open(struct sim_session *s, const struct sim_request *q, struct answer *a) {
    uint32_t slot;
    struct sim_shared_event *e = shared_event_find(s->machine, q->token);
    if (!e)
        return -ENOENT;
    int r = shared_event_open(s, e, &slot);
    if (r == 0)
        pass_event(e, slot, a);
    return r;
}

int serve_share(struct daemon *d, struct sim_session *s, const struct sim_request *q, int fd,
                struct answer *a) {
    struct sim_share *share = ipc_memory_find(&d->machine, q->token);
    switch (q->op) {
    case SIM_SHARE:
        a->reply.status = share_begin(s, q, a);
        return 0;
    case SIM_SHARE_OPEN:
        a->reply.status = share_open(s, share, a);
        return 0;
    case SIM_SHARE_CLOSE:
        a->reply.status = share ? ipc_memory_release(share, s) : -ENOENT;
        return 0;
    case SIM_SHARE_EXPORT:
        a->reply.status = share_export_fd(d, share, a);
        return 0;
    case SIM_SHARE_IMPORT:
        a->reply.status = share_open(s, daemon_exported(d, fd), a);
        return 0;
    case SIM_EVENT_SHARE:
        a->reply.status = event_begin(s, a);
        return 0;
    case SIM_EVENT_OPEN:
        a->reply.status = event_open(s, q, a);
        return 0;
    case SIM_EVENT_CLOSE:
        a->reply.status = shared_event_close(s, q->a);
        return 0;
    default:
        return -EPROTO;
    }
}
