/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "base/cleanup.h"
#include "sim/daemon_internal.h"

/* An answer under construction: header, list, descriptors to pass. */
struct answer {
    struct sim_reply reply;
    void *list; /* reply.count entries, in the daemon's buffer */
    size_t list_bytes;
    int fds[2];
    int nfds;
};

static int answer_send(int fd, struct answer *a) {
    struct iovec iov[2] = {{&a->reply, sizeof(a->reply)}, {a->list, a->list_bytes}};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    if (a->nfds > 0) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE((size_t) a->nfds * sizeof(int));
        struct cmsghdr *c = &control.header;
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN((size_t) a->nfds * sizeof(int));
        memcpy(CMSG_DATA(c), a->fds, (size_t) a->nfds * sizeof(int));
    }
    /* A client that does not read its answers is not waited for. */
    return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int peer_pid(int fd, pid_t *ret) {
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return -errno;
    *ret = cred.pid;
    return 0;
}

static int serve_hello(struct daemon *d, struct watch *w, const struct sim_request *q,
                       struct answer *a) {
    pid_t pid = 0;
    if (w->session || q->a != SIM_PROTO || peer_pid(w->fd, &pid) < 0)
        return -EPROTO;
    uint64_t token[2];
    if (getrandom(token, sizeof(token), 0) != (ssize_t) sizeof(token))
        return -EIO;
    w->session = session_begin(&d->machine, pid, token);
    if (!w->session)
        return -ENOMEM;
    a->reply.a = d->machine.ngpus;
    memcpy(a->reply.token, token, sizeof(token));
    return 0;
}

/* The token alone would do; the same process must also be at both ends. */
static int serve_attach(struct daemon *d, struct watch *w, const struct sim_request *q,
                        struct answer *a) {
    pid_t pid = 0;
    struct sim_session *s = session_by_token(&d->machine, q->token);
    if (!s || w->session || peer_pid(w->fd, &pid) < 0 || pid != s->pid)
        return -EPROTO;
    if (s->attached & (1ull << w->minor))
        return -EPROTO;
    w->session = s;
    s->attached |= 1ull << w->minor;
    a->fds[0] = d->page_fd[w->minor];
    a->nfds = 1;
    return 0;
}

static void serve_queue(struct daemon *d, struct sim_session *s, struct answer *a) {
    a->reply.status = daemon_session_queue(d, s, a->fds);
    if (a->reply.status == 0)
        a->nfds = 2;
}

static uint32_t visible_pid(const struct daemon *d, const struct pidns *reader, pid_t pid) {
    if (d->own_pids.depth == 0)
        return (uint32_t) pid; /* no /proc: nothing to translate with */
    if (reader->depth > 0 && reader->ns[0] == d->own_pids.ns[0])
        return (uint32_t) pid;
    struct pidns process;
    if (pidns_read(pid, &process) < 0)
        return 0;
    return (uint32_t) pidns_translate(reader, &process);
}

static void read_reader(const struct sim_session *s, struct pidns *ret) {
    memset(ret, 0, sizeof(*ret));
    if (pidns_read(s->pid, ret) < 0)
        ret->depth = 0;
}

static void serve_processes(struct daemon *d, struct sim_session *reader, uint32_t minor,
                            struct answer *a) {
    struct pidns pids;
    read_reader(reader, &pids);
    struct sim_process *list = d->list.processes;
    for (struct sim_session *s = d->machine.sessions; s; s = s->next) {
        const struct sim_channel *c = s->channel[minor];
        if (!c || c->contexts == 0 || a->reply.count == SIM_LIST_MAX)
            continue;
        uint32_t pid = visible_pid(d, &pids, s->pid);
        if (pid)
            list[a->reply.count++] = (struct sim_process){.pid = pid, .bytes = c->used};
    }
    a->list = list;
    a->list_bytes = a->reply.count * sizeof(*list);
}

static uint64_t wall_us(void) {
    struct timespec ts;
    (void) clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t) ts.tv_sec * 1000000ull + (uint64_t) ts.tv_nsec / 1000u;
}

/* Rounded to the nearest percent. */
static uint32_t percent_of_second(uint64_t busy_ns) {
    return (uint32_t) ((busy_ns + 5000000ull) / 10000000ull);
}

static void serve_samples(struct daemon *d, struct sim_session *reader, const struct sim_request *q,
                          struct answer *a) {
    struct pidns pids;
    read_reader(reader, &pids);
    uint64_t now = daemon_now();
    uint64_t stamp = wall_us();
    if (q->a >= stamp)
        return;
    struct sim_sample *list = d->list.samples;
    for (struct sim_session *s = d->machine.sessions; s; s = s->next) {
        struct sim_channel *c = s->channel[q->minor];
        if (!c || c->contexts == 0 || a->reply.count == SIM_LIST_MAX)
            continue;
        uint32_t sm = percent_of_second(meter_last_second(&c->meter, now));
        uint32_t pid = visible_pid(d, &pids, s->pid);
        if (pid)
            list[a->reply.count++] =
                (struct sim_sample){.pid = pid, .sm = sm, .memory = sm / 2, .time_us = stamp};
    }
    a->list = list;
    a->list_bytes = a->reply.count * sizeof(*list);
}

static void serve_utilization(struct daemon *d, uint32_t minor, struct answer *a) {
    uint32_t sm = percent_of_second(meter_last_second(&d->machine.gpu[minor].meter, daemon_now()));
    a->reply.a = sm;
    a->reply.b = sm / 2;
}

/* Requests about one device that the session has attached. */
static int serve_device(struct daemon *d, struct sim_session *s, const struct sim_request *q,
                        struct answer *a) {
    struct sim_channel *c = session_channel(s, q->minor);
    if (!c) {
        a->reply.status = -ENODEV;
        return 0;
    }
    switch (q->op) {
    case SIM_CTX_CREATE:
        a->reply.status = channel_context_create(c, &a->reply.a);
        return 0;
    case SIM_CTX_DESTROY:
        a->reply.status = channel_context_destroy(c);
        return 0;
    case SIM_ALLOC:
        a->reply.status = channel_take(c, q->a);
        return 0;
    case SIM_FREE:
        channel_give(c, q->a);
        return 0;
    case SIM_PROCESSES:
        serve_processes(d, s, q->minor, a);
        return 0;
    case SIM_SAMPLES:
        serve_samples(d, s, q, a);
        return 0;
    case SIM_UTILIZATION:
        serve_utilization(d, q->minor, a);
        return 0;
    default:
        return -EPROTO;
    }
}

int daemon_serve(struct daemon *d, struct watch *w, const struct sim_request *q) {
    struct answer a = {0};
    int r = 0;
    if (q->op == SIM_HELLO)
        r = serve_hello(d, w, q, &a);
    else if (q->op == SIM_ATTACH)
        r = serve_attach(d, w, q, &a);
    else if (!w->session)
        r = -EPROTO;
    else if (q->op == SIM_QUEUE)
        serve_queue(d, w->session, &a);
    else
        r = serve_device(d, w->session, q, &a);
    if (r == 0)
        r = answer_send(w->fd, &a);
    /* The ring and its doorbell are the client's alone; a device's page is everybody's. */
    for (int i = 0; q->op == SIM_QUEUE && i < a.nfds; i++)
        (void) close(a.fds[i]);
    return r;
}
