/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/daemon/daemon.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>

#include "base/cleanup.h"
#include "sim/daemon/daemon_internal.h"
#include "sim/daemon/engine.h"
#include "sim/daemon/host_view.h"
#include "sim/daemon/nvml_accounting.h"

/* Sleeps shorter than this are not worth the switch; a kernel's end is seen that much later. */
#define SLACK_NS 20000ull

int daemon_watch(struct daemon *d, int fd, void (*ready)(int fd, void *user), void *user) {
    struct watch *w = watch_add(d, WATCH_USER, fd, 0);
    if (!w)
        return -ENOMEM;
    w->ready = ready;
    w->user = user;
    return 0;
}

/* -- events ---------------------------------------------------------------------------------- */

/* Out of descriptors: accepts and closes the connection, or the queue keeps epoll awake. */
static void turn_away(struct daemon *d, int listener) {
    cleanup_closep(&d->spare);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    cleanup_closep(&fd);
    d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_listener(struct daemon *d, struct watch *w) {
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE)
            turn_away(d, w->fd);
        return;
    }
    static const enum watch_kind kinds[] = {[WATCH_LISTENER] = WATCH_DEVICE,
                                            [WATCH_CAPABILITY_LISTENER] = WATCH_CAPABILITY,
                                            [WATCH_CONTROL_LISTENER] = WATCH_CONTROL};
    enum watch_kind kind =
        w->kind == WATCH_LISTENER && w->minor == NO_MINOR ? WATCH_CTL : kinds[w->kind];
    bool refused = d->unloaded && kind != WATCH_CONTROL;
    if (refused || !watch_add(d, kind, fd, w->minor))
        (void) close(fd);
}

/* Receives one packet and the descriptor that came with it, if any. For more than one there is no
 * room, alignment included: the kernel closes what it cannot deliver. */
static ssize_t receive(int fd, void *data, size_t size, int *ret_fd) {
    struct iovec iov = {data, size};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = n >= 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
    return n;
}

static void on_client(struct daemon *d, struct watch *w) {
    union {
        struct sim_request request;
        char bytes[sizeof(struct sim_request) + 1];
    } in;
    _cleanup_close_ int passed = -1;
    ssize_t n = receive(w->fd, &in, sizeof(in.bytes), &passed);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    struct sim_request request;
    if (n <= 0 || request_parse(&in, (size_t) n, w->kind != WATCH_CTL, &request) < 0 ||
        daemon_serve(d, w, &request, passed) < 0)
        connection_hang_up(d, w);
}

static void on_control(struct daemon *d, struct watch *w) {
    char bytes[sizeof(struct sim_control) + 1];
    ssize_t n = recv(w->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    struct sim_control c;
    if (n <= 0 || control_parse(bytes, (size_t) n, &c) < 0 || control_serve(d, w->fd, &c) < 0)
        watch_close(d, w);
}

static void dispatch(struct daemon *d, struct watch *w, uint32_t events) {
    uint64_t ignored;
    if (w->fd < 0)
        return;
    switch (w->kind) {
    case WATCH_LISTENER:
    case WATCH_CAPABILITY_LISTENER:
    case WATCH_CONTROL_LISTENER:
        on_listener(d, w);
        break;
    case WATCH_CONTROL:
        on_control(d, w);
        break;
    case WATCH_CTL:
    case WATCH_DEVICE:
    case WATCH_CAPABILITY:
        /* Requests of an ended process are not served: release at once. */
        if (events & (EPOLLHUP | EPOLLERR))
            connection_hang_up(d, w);
        else
            on_client(d, w);
        break;
    case WATCH_BELL:
    case WATCH_TIMER:
        if (read(w->fd, &ignored, sizeof(ignored)) < 0)
            return;
        break;
    case WATCH_EXPORT:
        export_ready(d, w, events);
        break;
    case WATCH_USER:
        w->ready(w->fd, w->user);
        break;
    }
}

static void set_timer(struct daemon *d, uint64_t now, uint64_t when) {
    if (when != ENGINE_NEVER && when < now + SLACK_NS)
        when = now + SLACK_NS;
    if (when == d->timer_at)
        return;
    d->timer_at = when;
    struct itimerspec t = {0};
    if (when != ENGINE_NEVER) {
        t.it_value.tv_sec = (time_t) (when / 1000000000ull);
        t.it_value.tv_nsec = (long) (when % 1000000000ull);
    }
    (void) timerfd_settime(d->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

/* Brings the GPUs up to date and sets the timer for the next event. */
static void run_engine(struct daemon *d) {
    uint64_t now = daemon_clock(d);
    uint64_t next = engine_run(&d->machine, now);
    engine_set_bells(&d->machine, true);
    if (d->stepped)
        next = ENGINE_NEVER; /* nothing comes due by itself */
    if (engine_pending(&d->machine))
        next = d->stepped ? daemon_now() : now;
    set_timer(d, daemon_now(), next);
}

int daemon_run(struct daemon *d, struct err *err) {
    struct epoll_event events[64];
    while (!d->stop) {
        int n = epoll_wait(d->epoll, events, 64, -1);
        if (n < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait for clients");
        engine_set_bells(&d->machine, false);
        /* The past first: a request's answer must not depend on the time of the poll. */
        (void) engine_run(&d->machine, daemon_clock(d));
        for (int i = 0; i < n; i++)
            dispatch(d, events[i].data.ptr, events[i].events);
        watch_free_dead(d);
        run_engine(d);
    }
    return 0;
}

void daemon_stop(struct daemon *d) {
    d->stop = true;
}

/* -- start and end --------------------------------------------------------------------------- */

/* A page that clients can map, but never for writing. */
static int make_page(struct daemon *d, uint32_t minor, const struct daemon_options *o,
                     struct err *err) {
    struct sim_gpu *g = &d->machine.gpu[minor];
    void *map = NULL;
    _cleanup_close_ int fd = daemon_memory("aliquot-sim-page", 4096, &map);
    if (fd < 0)
        return err_set(err, -fd, "cannot make the shared page of GPU %u", minor);
    g->page = map;
    g->model = o->config->gpu[minor].model;
    g->now = daemon_clock(d);
    g->slice_ns = o->config->slice_ns;
    g->switch_ns = o->config->switch_ns;
    g->accounting = o->config->limits;
    g->meter.period_ns = o->config->sample_ns;
    config_describe_gpu(o->config, minor, o->seed, map);
    if (o->config->vgpu)
        machine_license(g->page, o->config->gpu[minor].licence, daemon_wall_s());
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
        return err_errno(err, errno, "cannot seal the shared page of GPU %u", minor);
    d->page_fd[minor] = take_fd(&fd);
    return 0;
}

static int make_host_page(struct daemon *d, const struct sim_config *config, struct err *err) {
    void *map = NULL;
    _cleanup_close_ int fd = daemon_memory("aliquot-sim-host", SIM_HOST_BYTES, &map);
    if (fd < 0)
        return err_set(err, -fd, "cannot make the machine's shared page");
    d->machine.host = map;
    config_describe_host(config, map);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
        return err_errno(err, errno, "cannot seal the machine's shared page");
    d->host_fd = take_fd(&fd);
    return 0;
}

static int open_sockets(struct daemon *d, struct err *err) {
    export_remove_stale(d);
    for (uint32_t i = 0; i < d->machine.ngpus; i++) {
        char name[32];
        (void) snprintf(name, sizeof(name), SIM_DEVICE_NAME "%u", i);
        int r = listener_add(d, &(struct listener){name, WATCH_LISTENER, i, 0666}, err);
        if (r < 0)
            return r;
    }
    int r = listener_add(
        d, &(struct listener){SIM_CONTROL_NAME, WATCH_CONTROL_LISTENER, NO_MINOR, 0600}, err);
    /* Last: a client that sees this socket may use the others at once. */
    return r < 0 ? r
                 : listener_add(d, &(struct listener){SIM_CTL_NAME, WATCH_LISTENER, NO_MINOR, 0666},
                                err);
}

static void raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int daemon_new(const struct daemon_options *o, struct daemon **ret, struct err *err) {
    uint32_t ngpus = o->config->ngpus;
    if (ngpus < 1 || ngpus > SIM_MAX_GPUS)
        return err_set(err, EINVAL, "a machine has 1 to %u GPUs, not %u", SIM_MAX_GPUS, ngpus);
    _cleanup_(daemon_freep) struct daemon *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(err, ENOMEM, "out of memory");
    d->epoll = d->timer = d->spare = d->host_fd = -1;
    memset(d->page_fd, 0xff, sizeof(d->page_fd));
    d->timer_at = ENGINE_NEVER;
    d->dir = strdup(o->dir);
    d->machine.ngpus = d->machine.nunits = ngpus;
    d->stepped = o->config->stepped;
    d->lists_dead = o->config->lists_dead;
    d->mig_needs_reset = o->config->mig_needs_reset;
    d->clock = daemon_now();
    (void) pidns_read(getpid(), &d->own_pids);
    raise_descriptor_limit();
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    d->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    d->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!d->dir || d->epoll < 0 || d->timer < 0)
        return err_errno(err, errno, "cannot start");
    if (!watch_add(d, WATCH_TIMER, d->timer, 0))
        return err_set(err, ENOMEM, "cannot start");
    int r = make_host_page(d, o->config, err);
    for (uint32_t i = 0; r == 0 && i < ngpus; i++)
        r = make_page(d, i, o, err);
    for (uint32_t i = 0; r == 0 && i < ngpus; i++)
        if (o->config->gpu[i].mig[0])
            r = daemon_divide(d, i, o->config->gpu[i].mig, err);
    if (r == 0)
        r = host_view_write(d->dir, &d->machine, err);
    if (r == 0)
        r = capability_start(d, err);
    for (uint32_t i = 0; r == 0 && i < ngpus; i++)
        r = capability_update(d, i, err);
    if (r == 0)
        r = open_sockets(d, err);
    if (r < 0)
        return r;
    *ret = take_ptr(d);
    return 0;
}

static void remove_socket(const struct daemon *d, const char *name) {
    char path[512];
    (void) snprintf(path, sizeof(path), "%s/%s", d->dir ? d->dir : "", name);
    (void) unlink(path);
}

void daemon_free(struct daemon *d) {
    if (!d)
        return;
    connection_tell_lost(d);
    while (d->machine.sessions)
        connection_end_session(d, d->machine.sessions);
    while (d->watches) {
        if (d->watches->kind == WATCH_EXPORT)
            export_end(d, d->watches);
        else
            watch_close(d, d->watches);
    }
    watch_free_dead(d);
    for (uint32_t i = 0; i < d->machine.nunits; i++) {
        char name[32];
        (void) snprintf(name, sizeof(name), SIM_DEVICE_NAME "%u", i);
        if (d->machine.gpu[i].page) {
            remove_socket(d, name);
            (void) munmap(d->machine.gpu[i].page, 4096);
            nvml_accounting_clear(&d->machine.gpu[i]);
            memlimit_done(&d->machine.gpu[i]);
            free(d->machine.gpu[i].division);
        }
        cleanup_closep(&d->page_fd[i]);
    }
    if (d->machine.host)
        (void) munmap(d->machine.host, SIM_HOST_BYTES);
    remove_socket(d, SIM_CONTROL_NAME);
    remove_socket(d, SIM_CTL_NAME);
    capability_end(d);
    if (d->dir)
        host_view_remove(d->dir);
    group_dirs_done(&d->groups);
    cleanup_closep(&d->host_fd);
    cleanup_closep(&d->epoll);
    cleanup_closep(&d->spare);
    free(d->dir);
    free(d);
}
