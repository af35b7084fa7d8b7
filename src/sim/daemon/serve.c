/* SPDX-License-Identifier: Apache-2.0 */

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/fault.h"
#include "sim/daemon/nvml_accounting.h"

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

static int serve_hello(struct daemon *d, struct watch *w, const struct sim_request *q,
                       struct answer *a) {
    pid_t pid = 0;
    if (w->session || q->a != SIM_PROTO || connection_pid(w->fd, &pid) < 0)
        return -EPROTO;
    uint64_t token[2];
    if (getrandom(token, sizeof(token), 0) != (ssize_t) sizeof(token))
        return -EIO;
    w->session = session_begin(&d->machine, pid, token);
    if (!w->session)
        return -ENOMEM;
    w->session->pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    w->session->administrator = connection_is_administrator(w->fd);
    if (d->machine.host->limits)
        w->session->proc = group_process(pid);
    a->reply.a = d->machine.ngpus;
    a->fds[0] = d->host_fd;
    a->nfds = 1;
    memcpy(a->reply.token, token, sizeof(token));
    return 0;
}

/* The token alone would do; the same process must also be at both ends. */
static int serve_attach(struct daemon *d, struct watch *w, const struct sim_request *q,
                        struct answer *a) {
    pid_t pid = 0;
    struct sim_session *s = session_by_token(&d->machine, q->token);
    if (!s || w->session || connection_pid(w->fd, &pid) < 0 || pid != s->pid)
        return -EPROTO;
    if (w->kind == WATCH_CAPABILITY) {
        w->session = s;
        return 0;
    }
    if (session_attached(s, w->minor))
        return -EPROTO;
    w->session = s;
    session_attach(s, w->minor);
    a->fds[0] = d->page_fd[w->minor];
    a->nfds = 1;
    return 0;
}

static void serve_queue(struct daemon *d, struct sim_session *s, struct answer *a) {
    a->reply.status = daemon_session_queue(d, s, a->fds);
    if (a->reply.status < 0)
        return;
    a->nfds = 2;
    a->close_fds = true; /* the ring and its doorbell are the client's alone */
}

/* A process has ended and was waited for. Its session may go on: a forked child, or a process that
 * shares its descriptors, keeps the connection. */
static bool is_gone(const struct sim_session *s) {
    return s->pidfd >= 0 && syscall(SYS_pidfd_send_signal, s->pidfd, 0, NULL, 0) < 0 &&
           errno == ESRCH;
}

/* 0: the reader is not shown the process. */
static uint32_t visible_pid(const struct daemon *d, const struct pidns *reader,
                            const struct sim_session *s) {
    pid_t pid = s->pid;
    if (!d->lists_dead && is_gone(s))
        return 0;
    /* Drivers of before 545; or no /proc: nothing to translate with. */
    if (d->machine.host->host_pids || d->own_pids.depth == 0)
        return (uint32_t) pid;
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

/* Those with a context on one unit. */
static void add_processes(struct daemon *d, const struct pidns *pids, uint32_t unit,
                          struct answer *a) {
    const struct sim_page *page = d->machine.gpu[unit].page;
    uint32_t part = 0;
    if (unit >= SIM_MAX_GPUS)
        part = SIM_PART | page->gpu_instance << 8 | page->compute_instance;
    for (struct sim_session *s = d->machine.sessions; s; s = s->next) {
        const struct sim_channel *c = s->channel[unit];
        if (!c || c->contexts == 0 || a->reply.count == SIM_LIST_MAX)
            continue;
        uint32_t pid = visible_pid(d, pids, s);
        if (pid)
            d->list.processes[a->reply.count++] = (struct sim_process){
                .pid = pid, .part = part | (c->mps ? SIM_OF_MPS : 0), .bytes = c->used};
    }
}

/* On a card, and on its parts: all of them together are for monitors only. */
static int serve_processes(struct daemon *d, struct sim_session *reader, uint32_t minor,
                           struct answer *a) {
    struct pidns pids;
    int r = d->machine.gpu[minor].division ? capability_check(d, reader, SIM_CAP_MONITOR, a) : 0;
    if (r < 0)
        return r;
    read_reader(reader, &pids);
    add_processes(d, &pids, minor, a);
    for (uint32_t i = SIM_MAX_GPUS; d->machine.gpu[minor].division && i < d->machine.nunits; i++)
        if (d->machine.gpu[i].page && d->machine.gpu[i].page->parent == minor)
            add_processes(d, &pids, i, a);
    a->list = d->list.processes;
    a->list_bytes = a->reply.count * sizeof(d->list.processes[0]);
    return 0;
}

/* When, for a reader's clock, `mono` was or will be. */
static uint64_t wall_of(const struct daemon *d, uint64_t mono) {
    uint64_t now = daemon_clock(d);
    return daemon_wall_us() - (now - mono) / 1000u;
}

static void serve_samples(struct daemon *d, struct sim_session *reader, const struct sim_request *q,
                          struct answer *a) {
    struct pidns pids;
    read_reader(reader, &pids);
    uint64_t now = daemon_clock(d);
    uint64_t edge = meter_edge(&d->machine.gpu[q->minor].meter, now);
    uint64_t stamp = wall_of(d, edge);
    if (q->a >= stamp)
        return;
    struct sim_sample *list = d->list.samples;
    for (struct sim_session *s = d->machine.sessions; s; s = s->next) {
        struct sim_channel *c = s->channel[q->minor];
        if (!c || c->contexts == 0 || a->reply.count == SIM_LIST_MAX)
            continue;
        uint32_t sm = meter_percent(&c->meter, now, edge);
        uint32_t pid = visible_pid(d, &pids, s);
        if (pid)
            list[a->reply.count++] =
                (struct sim_sample){.pid = pid, .sm = sm, .memory = sm / 2, .time_us = stamp};
    }
    a->list = list;
    a->list_bytes = a->reply.count * sizeof(*list);
}

static void serve_utilization(struct daemon *d, uint32_t minor, struct answer *a) {
    struct meter *meter = &d->machine.gpu[minor].meter;
    uint64_t now = daemon_clock(d);
    uint32_t sm = meter_percent(meter, now, meter_edge(meter, now));
    a->reply.a = sm;
    a->reply.b = sm / 2;
}

/* The card's own samples since a time stamp, oldest first. */
static void serve_history(struct daemon *d, const struct sim_request *q, struct answer *a) {
    struct meter *meter = &d->machine.gpu[q->minor].meter;
    uint64_t now = daemon_clock(d);
    uint64_t edge = meter_edge(meter, now);
    uint64_t wall = wall_of(d, edge);
    struct sim_sample *list = d->list.samples;
    for (uint64_t back = METER_PERIODS - 1; back-- > 0;) {
        uint64_t age = back * d->machine.gpu[q->minor].meter.period_ns;
        if (age > edge || wall - age / 1000u <= q->a)
            continue;
        uint32_t sm = meter_percent(meter, now, edge - age);
        list[a->reply.count++] =
            (struct sim_sample){.sm = sm, .memory = sm / 2, .time_us = wall - age / 1000u};
    }
    a->list = list;
    a->list_bytes = a->reply.count * sizeof(*list);
}

/* Running and ended processes. An ended process is in no PID namespace any more: only readers in
 * the daemon's own namespace see it. */
static void serve_accounts(struct daemon *d, struct sim_session *reader, uint32_t minor,
                           struct answer *a) {
    struct pidns pids;
    read_reader(reader, &pids);
    struct sim_account *list = d->list.accounts;
    uint64_t now = daemon_wall_us();
    for (struct sim_session *s = d->machine.sessions; s; s = s->next) {
        const struct sim_channel *c = s->channel[minor];
        uint32_t pid = c && c->start_us ? visible_pid(d, &pids, s) : 0;
        if (pid == 0 || a->reply.count == SIM_ACCOUNTS_MAX)
            continue;
        list[a->reply.count] = nvml_accounting_of(c, now);
        list[a->reply.count++].pid = pid;
    }
    bool all = d->machine.host->host_pids || pids.depth == 0 || d->own_pids.depth == 0 ||
               pids.ns[0] == d->own_pids.ns[0];
    const struct sim_account *ended;
    for (uint32_t i = 0; all && a->reply.count < SIM_ACCOUNTS_MAX &&
                         (ended = nvml_accounting_at(&d->machine.gpu[minor], i));
         i++)
        list[a->reply.count++] = *ended;
    a->list = list;
    a->list_bytes = a->reply.count * sizeof(*list);
}

static int serve_set(struct daemon *d, const struct sim_session *s, const struct sim_request *q) {
    struct sim_gpu *g = &d->machine.gpu[q->minor];
    uint64_t which = q->a >> 32;
    if (!s->administrator)
        return -EPERM;
    if (which >= SIM_SETTINGS)
        return -EINVAL;
    if (which == SIM_SETTING_ACCOUNTING)
        nvml_accounting_clear(g);
    if (which == SIM_SETTING_ECC_COUNTS) {
        uint32_t first = q->a & 1 ? SIM_ECC_CORRECTED_TOTAL : SIM_ECC_CORRECTED;
        atomic_store(&g->page->ecc_errors[first], 0);
        atomic_store(&g->page->ecc_errors[first + 1], 0);
    }
    atomic_store(&g->page->setting[which], (uint32_t) q->a);
    return 0;
}

/* Compute modes 2 (prohibited) and 3 (one process at a time) of NVML. The clients of MPS are all in
 * its one server process. */
static bool may_enter(const struct daemon *d, const struct sim_channel *c, uint32_t minor,
                      bool mps) {
    uint32_t mode = atomic_load(&c->gpu->page->setting[SIM_SETTING_COMPUTE_MODE]);
    for (const struct sim_session *s = d->machine.sessions; mode == 3 && s; s = s->next) {
        const struct sim_channel *other = s->channel[minor];
        if (other && other != c && other->contexts > 0 && !(mps && other->mps))
            return false;
    }
    return mode != 2;
}

/* A card that is out of order, or on which this process's contexts have died, takes nothing new. Of
 * one in MIG mode only the instances can be used. */
static bool takes_work(const struct sim_session *s, const struct sim_channel *c, uint32_t minor) {
    return !c->gpu->division && atomic_load(&c->gpu->page->state) == SIM_HEALTHY &&
           s->broken[minor] == 0;
}

static int enter(struct daemon *d, struct sim_channel *c, bool mps, uint64_t *ret_bytes) {
    int r = serve_context(d, c, ret_bytes);
    if (r == 0) {
        c->mps = mps;
        nvml_accounting_begin(c, daemon_wall_us());
    }
    return r;
}

static bool only_reads(uint32_t op) {
    return op == SIM_PROCESSES || op == SIM_SAMPLES || op == SIM_UTILIZATION || op == SIM_HISTORY ||
           op == SIM_ACCOUNTS;
}

/* Requests about one device that the session has attached. */
static int serve_device(struct daemon *d, struct sim_session *s, const struct sim_request *q,
                        struct answer *a) {
    struct sim_channel *c = session_channel(s, q->minor);
    if (!c && !(session_monitors(s, q->minor) && only_reads(q->op))) {
        a->reply.status = -ENODEV;
        return 0;
    }
    if (((q->op == SIM_CTX_CREATE || q->op == SIM_ALLOC || q->op == SIM_RESUME) &&
         !takes_work(s, c, q->minor)) ||
        (q->op == SIM_CTX_CREATE && !may_enter(d, c, q->minor, q->a == 1))) {
        a->reply.status = -ENODEV;
        return 0;
    }
    switch (q->op) {
    case SIM_CTX_CREATE:
        a->reply.status = enter(d, c, q->a == 1, &a->reply.a);
        return 0;
    case SIM_CTX_DESTROY:
        a->reply.status = channel_context_destroy(c);
        return 0;
    case SIM_ALLOC:
        a->reply.status = serve_take(d, c, q);
        return 0;
    case SIM_FREE:
        serve_give(c, q);
        return 0;
    case SIM_SUSPEND:
        a->reply.status = channel_suspend(c);
        return 0;
    case SIM_RESUME:
        a->reply.status = serve_resume(d, c);
        return 0;
    case SIM_PROCESSES:
        a->reply.status = serve_processes(d, s, q->minor, a);
        return 0;
    case SIM_SAMPLES:
        serve_samples(d, s, q, a);
        return 0;
    case SIM_UTILIZATION:
        serve_utilization(d, q->minor, a);
        return 0;
    case SIM_SET:
        a->reply.status = serve_set(d, s, q);
        return 0;
    case SIM_ACCOUNTS:
        serve_accounts(d, s, q->minor, a);
        return 0;
    case SIM_MIG:
        a->reply.status = serve_mig(d, s, q, a);
        if (a->reply.status > 0) {
            a->reply.a = (uint64_t) a->reply.status;
            a->reply.status = 0;
        }
        return 0;
    case SIM_HISTORY:
        serve_history(d, q, a);
        return 0;
    default:
        return -EPROTO;
    }
}

static void serve_open(struct sim_session *s, uint32_t minor, struct answer *a) {
    if (session_attached(s, minor))
        s->opened |= 1ull << minor;
    else
        a->reply.status = -ENODEV;
}

static void serve_fault(struct daemon *d, const struct sim_session *s, const struct sim_request *q,
                        struct answer *a) {
    uint32_t status = 0;
    a->reply.a = fault_judge(&d->machine, (uint32_t) (q->a >> 32), (uint32_t) q->a, s->pid,
                             (uint32_t) q->token[0], &status);
    a->reply.b = status;
}

int daemon_serve(struct daemon *d, struct watch *w, const struct sim_request *q, int fd) {
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
    else if (q->op == SIM_FAULT)
        serve_fault(d, w->session, q, &a);
    else if (q->op >= SIM_SHARE && q->op <= SIM_EVENT_CLOSE)
        r = serve_share(d, w->session, q, fd, &a);
    else if (q->op == SIM_OPEN && q->minor < SIM_MAX_GPUS)
        serve_open(w->session, q->minor, &a);
    else if (q->op == SIM_LIMITS)
        a.reply.status = serve_limits(d, w, q, fd, &a);
    else
        r = serve_device(d, w->session, q, &a);
    if (r == 0)
        r = answer_send(w->fd, &a);
    for (int i = 0; a.close_fds && i < a.nfds; i++)
        (void) close(a.fds[i]);
    return r;
}
