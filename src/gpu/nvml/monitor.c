/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/monitor.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "abi/nvml.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "gpu/nvml/worker.h"
#include "gpu/nvml/worker_protocol.h"

#define RESTART_MIN_MS 100
#define RESTART_MAX_MS 5000
#define TURN_MAX 4096 /* packets taken in one turn of the loop */
#define SEARCH_MS 500 /* search interval while there is no driver */

/* The child as libuv sees it. */
struct child {
    uv_process_t process;
    struct gpu_monitor *monitor; /* NULL after the monitor has closed it */
};

struct gpu_monitor {
    uv_loop_t *loop;
    struct gpu_monitor_options options;
    char program[256];
    struct child *child;
    int fd;         /* our end of the pair, -1: none */
    uv_poll_t poll; /* of fd */
    bool poll_open;
    uv_timer_t timer; /* next: poll, deadline of a poll, or start of a child */
    enum { MONITOR_WAITING, MONITOR_POLLING, MONITOR_RESTARTING, MONITOR_CLOSING } state;
    bool poll_again;
    unsigned backoff_ms;
    uint32_t sequence;
    uint64_t answered_at; /* loop time of the last END */
    struct gpu_snapshot now;
    struct gpu_snapshot next;     /* being received */
    struct gpu_device *receiving; /* the last one of it; NULL: it is left out */
    struct {
        char uuid[GPU_UUID_MAX];
        uint64_t bytes;
    } contexts[GPU_MAX]; /* measured, or known from before */
    size_t ncontexts;
    bool complete;
    uint64_t polls, restarts, hangs;
    char text[ERR_TEXT_MAX];
    int handles; /* open libuv handles, while closing */
    void (*on_closed)(void *userdata);
    void *closed_userdata;
};

static void start_child(struct gpu_monitor *m);
static void on_timer(uv_timer_t *timer);

static void changed(struct gpu_monitor *m) {
    m->options.on_update(m->options.userdata);
}

/* ---- letting go of a child ---- */

/* While the monitor closes: one of its handles is done. The last one frees it. */
static void let_go(struct gpu_monitor *m) {
    void (*on_closed)(void *) = m->on_closed;
    void *userdata = m->closed_userdata;

    if (m->state != MONITOR_CLOSING || --m->handles > 0)
        return;
    free(m);
    if (on_closed)
        on_closed(userdata);
}

static void on_child_closed(uv_handle_t *handle) {
    struct child *c = handle->data;

    if (c->monitor)
        let_go(c->monitor);
    free(c);
}

/* The child's last messages are still in the channel; its end of file starts the next child. */
static void on_child_exit(uv_process_t *process, int64_t status, int signal_number) {
    struct child *c = process->data;

    (void) status;
    (void) signal_number;
    c->monitor->child = NULL;
    if (c->monitor->state != MONITOR_CLOSING)
        c->monitor = NULL;
    uv_close((uv_handle_t *) process, on_child_closed);
}

static void on_poll_closed(uv_handle_t *handle) {
    struct gpu_monitor *m = handle->data;
    int fd = take_fd(&m->fd);

    cleanup_closep(&fd);
    m->poll_open = false;
    let_go(m);
}

static void on_timer_closed(uv_handle_t *handle) {
    let_go(handle->data);
}

static void close_channel(struct gpu_monitor *m) {
    if (m->poll_open && !uv_is_closing((uv_handle_t *) &m->poll))
        uv_close((uv_handle_t *) &m->poll, on_poll_closed);
}

/* Ends the child, whatever it is doing, and plans the next one. */
static void restart(struct gpu_monitor *m, const char *why) {
    if (why)
        text_copy(m->text, sizeof(m->text), why);
    if (m->child)
        (void) uv_process_kill(&m->child->process, SIGKILL);
    close_channel(m);
    gpu_snapshot_done(&m->next);
    m->receiving = NULL;
    m->state = MONITOR_RESTARTING;
    m->backoff_ms = m->backoff_ms * 2 > RESTART_MAX_MS ? RESTART_MAX_MS : m->backoff_ms * 2;
    (void) uv_timer_start(&m->timer, on_timer, m->backoff_ms, 0);
    changed(m);
}

/* ---- health ---- */

static void set_unhealthy(struct gpu_device *d, const char *why) {
    d->healthy = false;
    text_copy(d->reason, sizeof(d->reason), why);
    memset(&d->sample, 0, sizeof(d->sample));
    d->nprocesses = 0;
}

static bool stale(const struct gpu_monitor *m) {
    return uv_now(m->loop) - m->answered_at >= MONITOR_STALE_MS;
}

static void mark_stale(struct gpu_monitor *m) {
    bool any = false;

    if (!stale(m))
        return;
    for (uint32_t i = 0; i < m->now.ndevices; i++) {
        any = any || m->now.devices[i].healthy;
        set_unhealthy(&m->now.devices[i], m->text[0] ? m->text : "the driver does not answer");
    }
    if (any)
        changed(m);
}

/* ---- contexts ---- */

static uint64_t known_context(const struct gpu_monitor *m, const char *uuid) {
    for (size_t i = 0; i < m->ncontexts; i++)
        if (strcmp(m->contexts[i].uuid, uuid) == 0)
            return m->contexts[i].bytes;
    return 0;
}

static void learn_context(struct gpu_monitor *m, const char *uuid, uint64_t bytes) {
    size_t i = 0;

    while (i < m->ncontexts && strcmp(m->contexts[i].uuid, uuid) != 0)
        i++;
    if (i == GPU_MAX)
        return;
    if (i == m->ncontexts)
        m->ncontexts++;
    text_copy(m->contexts[i].uuid, sizeof(m->contexts[i].uuid), uuid);
    m->contexts[i].bytes = bytes;
    for (uint32_t d = 0; d < m->now.ndevices; d++)
        if (strcmp(m->now.devices[d].uuid, uuid) == 0)
            m->now.devices[d].context_bytes = bytes;
}

/* Measuring takes memory of the card for a moment: only while there is a card to learn about. */
static bool must_measure(const struct gpu_monitor *m) {
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        if (gpu_gives_shares(&m->now.devices[i]) && m->now.devices[i].context_bytes == 0)
            return true;
    return m->now.ndevices == 0;
}

/* ---- receiving ---- */

/* The device that came last, if it has that index; NULL: it is left out. */
static struct gpu_device *next_device(struct gpu_monitor *m, uint32_t index) {
    return m->receiving && m->receiving->index == index ? m->receiving : NULL;
}

/* Parts of different cards have the same indexes, and so have a card and a device of another kind.
 */
static const struct gpu_device *known_device(const struct gpu_monitor *m,
                                             const struct gpu_message_device *msg) {
    for (uint32_t i = 0; i < m->now.ndevices; i++)
        if (m->now.devices[i].kind == (enum gpu_kind) msg->kind &&
            m->now.devices[i].index == msg->header.index &&
            strcmp(m->now.devices[i].parent, msg->parent) == 0)
            return &m->now.devices[i];
    return NULL;
}

static void receive_links(struct gpu_monitor *m, const struct gpu_message_links *msg) {
    struct gpu_device *d = next_device(m, msg->header.index);

    if (d)
        d->links = msg->links;
}

static void receive_device(struct gpu_monitor *m, const struct gpu_message_device *msg) {
    const struct gpu_device *known = known_device(m, msg);
    struct gpu_device d = {.kind = (enum gpu_kind) msg->kind,
                           .divided = msg->divided != 0,
                           .index = msg->header.index,
                           .minor = msg->minor,
                           .memory = msg->memory,
                           .mig = msg->mig,
                           .recovery_action = msg->recovery_action};

    m->receiving = NULL;
    memcpy(d.uuid, msg->uuid, sizeof(d.uuid));
    memcpy(d.parent, msg->parent, sizeof(d.parent));
    memcpy(d.model, msg->model, sizeof(d.model));
    memcpy(d.pci, msg->pci, sizeof(d.pci));
    if (msg->status != 0) {
        /* A lost card does not report its UUID; it is identified by its last index. */
        if (!d.uuid[0] || d.minor < 0 || d.memory == 0) {
            if (!known)
                return;
            gpu_copy_identity(&d, known);
        }
        set_unhealthy(&d, msg->error);
    } else {
        d.healthy = true;
        d.sample = msg->sample;
    }
    d.context_bytes = known_context(m, d.uuid);
    if (m->next.ndevices == GPU_MAX || gpu_find(&m->next, d.uuid))
        return;
    m->receiving = &m->next.devices[m->next.ndevices++];
    *m->receiving = d;
}

static void receive_processes(struct gpu_monitor *m, const struct gpu_message_processes *msg) {
    struct gpu_device *d = next_device(m, msg->header.index);
    size_t have = d ? d->nprocesses : 0;
    struct gpu_process *grown;

    if (!d || have + msg->count > GPU_PROCESSES_MAX || msg->count == 0)
        return;
    grown = realloc(d->processes, (have + msg->count) * sizeof(*grown));
    if (!grown)
        return;
    d->processes = grown;
    for (uint32_t i = 0; i < msg->count; i++)
        grown[have + i] = (struct gpu_process){
            .pid = msg->processes[i].pid,
            .sm_percent = msg->processes[i].sm_percent,
            .memory = msg->processes[i].memory,
        };
    d->nprocesses = have + msg->count;
}

static void receive_end(struct gpu_monitor *m) {
    gpu_snapshot_move(&m->now, &m->next);
    m->receiving = NULL;
    m->answered_at = uv_now(m->loop);
    m->complete = true;
    m->text[0] = 0;
    m->backoff_ms = RESTART_MIN_MS;
    m->polls++;
    m->state = MONITOR_WAITING;
    (void) uv_timer_start(&m->timer, on_timer, m->poll_again ? 0 : m->options.interval_ms, 0);
    m->poll_again = false;
    changed(m);
}

static enum gpu_limit_result limit_result_of(int32_t status) {
    return status == NVML_SUCCESS               ? GPU_LIMIT_SET
           : status == NVML_ERROR_NOT_SUPPORTED ? GPU_LIMIT_UNSUPPORTED
                                                : GPU_LIMIT_REFUSED;
}

static void receive_limit(struct gpu_monitor *m, const struct gpu_message_limit *msg) {
    const struct gpu_limit_answer answer = {.uuid = msg->uuid,
                                            .cgroup = msg->cgroup,
                                            .bytes = msg->bytes,
                                            .before = msg->before,
                                            .result = limit_result_of(msg->status),
                                            .text = msg->error};

    if (m->options.on_limit)
        m->options.on_limit(&answer, m->options.userdata);
}

static const char *uuid_of_card(const struct gpu_snapshot *s, uint32_t index) {
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (s->devices[i].kind == GPU_CARD && s->devices[i].index == index)
            return s->devices[i].uuid;
    return "";
}

static void receive_event(struct gpu_monitor *m, const struct gpu_message_event *msg) {
    const struct gpu_xid xid = {.uuid = uuid_of_card(&m->now, msg->header.index),
                                .index = msg->header.index,
                                .gi = msg->gi,
                                .ci = msg->ci,
                                .xid = msg->xid};

    if (m->options.on_xid)
        m->options.on_xid(&xid, m->options.userdata);
    (void) gpu_monitor_poll(m);
}

static void receive(struct gpu_monitor *m, const union gpu_message *msg, size_t len) {
    int type = gpu_message_check(msg, len);

    if (type < 0 || type == GPU_MESSAGE_POLL) {
        restart(m, "the NVML process sent something malformed");
        return;
    }
    if (type == GPU_MESSAGE_FAILED) {
        restart(m, msg->text.text);
        return;
    }
    if (type == GPU_MESSAGE_CONTEXT) {
        learn_context(m, msg->context.uuid, msg->context.bytes);
        changed(m);
        return;
    }
    if (type == GPU_MESSAGE_EVENT) {
        receive_event(m, &msg->event);
        return;
    }
    if (type == GPU_MESSAGE_LIMIT) {
        receive_limit(m, &msg->limit);
        return;
    }
    if (m->state != MONITOR_POLLING || msg->header.sequence != m->sequence)
        return;
    switch (type) {
    case GPU_MESSAGE_DRIVER:
        gpu_snapshot_done(&m->next);
        m->receiving = NULL;
        text_copy(m->next.driver_version, sizeof(m->next.driver_version), msg->text.text);
        break;
    case GPU_MESSAGE_DEVICE:
        receive_device(m, &msg->device);
        break;
    case GPU_MESSAGE_LINKS:
        receive_links(m, &msg->links);
        break;
    case GPU_MESSAGE_PROCESSES:
        receive_processes(m, &msg->processes);
        break;
    default:
        receive_end(m);
        break;
    }
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct gpu_monitor *m = poll->data;
    union gpu_message msg;

    (void) status;
    (void) events;
    /* Not until nothing comes any more: a child gone mad would hold up the loop. */
    for (int i = 0; i < TURN_MAX && !uv_is_closing((uv_handle_t *) poll); i++) {
        ssize_t n = recv(m->fd, &msg, sizeof(msg), MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            restart(m, m->text[0] ? NULL : "the NVML process ended");
            return;
        }
        receive(m, &msg, (size_t) n);
    }
}

/* ---- asking ---- */

static void send_poll(struct gpu_monitor *m) {
    struct gpu_message_header msg = {
        .magic = GPU_MESSAGE_MAGIC, .type = GPU_MESSAGE_POLL, .sequence = ++m->sequence};

    if (m->options.on_poll)
        m->options.on_poll(m->options.userdata);
    if (send(m->fd, &msg, sizeof(msg), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        restart(m, "the NVML process takes no requests");
        return;
    }
    m->state = MONITOR_POLLING;
    (void) uv_timer_start(&m->timer, on_timer, m->options.deadline_ms, 0);
}

static void on_timer(uv_timer_t *timer) {
    struct gpu_monitor *m = timer->data;

    mark_stale(m);
    if (m->state == MONITOR_WAITING) {
        send_poll(m);
    } else if (m->state == MONITOR_POLLING) {
        m->hangs++;
        restart(m, "a call of the driver did not return in time; its process was killed");
        mark_stale(m);
    } else if (m->child || m->poll_open) {
        /* Not dead yet: another one would only hang beside it. */
        (void) uv_timer_start(&m->timer, on_timer, RESTART_MIN_MS, 0);
    } else {
        start_child(m);
    }
}

/* ---- starting ---- */

static int spawn(struct gpu_monitor *m, const char *library, int fd, struct child *c) {
    char arg0[] = "aliquot-nvml", arg1[] = GPU_WORKER_COMMAND, arg3[] = GPU_WORKER_MEASURE;
    char arg2[512];
    char *args[] = {arg0, arg1, arg2, must_measure(m) ? arg3 : NULL, NULL};
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = fd},
    };
    uv_process_options_t options = {.exit_cb = on_child_exit,
                                    .file = m->program,
                                    .args = args,
                                    .stdio = stdio,
                                    .stdio_count = 4};

    text_copy(arg2, sizeof(arg2), library);
    c->process.data = c;
    return uv_spawn(m->loop, &c->process, &options);
}

static int open_channel(struct gpu_monitor *m, int *ret_child_end) {
    int pair[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    r = uv_poll_init(m->loop, &m->poll, pair[0]);
    if (r < 0) {
        (void) close(pair[0]);
        (void) close(pair[1]);
        return r;
    }
    m->fd = pair[0];
    m->poll.data = m;
    m->poll_open = true;
    *ret_child_end = pair[1];
    return uv_poll_start(&m->poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

static void start_child(struct gpu_monitor *m) {
    const char *library = m->options.library(m->options.userdata);
    _cleanup_close_ int child_end = -1;
    struct child *c;
    int r;

    m->state = MONITOR_RESTARTING;
    if (!library) {
        text_copy(m->text, sizeof(m->text), "no GPU driver was found on this node");
        (void) uv_timer_start(&m->timer, on_timer, SEARCH_MS, 0);
        return;
    }
    c = calloc(1, sizeof(*c));
    r = c ? open_channel(m, &child_end) : -ENOMEM;
    if (r == 0)
        r = spawn(m, library, child_end, c);
    if (r < 0) {
        if (c && c->process.type == UV_PROCESS)
            uv_close((uv_handle_t *) &c->process, on_child_closed);
        else
            free(c);
        restart(m, "cannot start the NVML process");
        return;
    }
    c->monitor = m;
    m->child = c;
    m->restarts++;
    send_poll(m);
}

int gpu_monitor_start(uv_loop_t *loop, const struct gpu_monitor_options *options,
                      struct gpu_snapshot *initial, struct gpu_monitor **ret, struct err *err) {
    struct gpu_monitor *m = calloc(1, sizeof(*m));

    if (!m)
        return err_set(err, ENOMEM, "out of memory");
    m->loop = loop;
    m->options = *options;
    m->options.interval_ms = options->interval_ms ? options->interval_ms : 1000;
    m->options.deadline_ms = options->deadline_ms ? options->deadline_ms : 4000;
    m->fd = -1;
    m->backoff_ms = RESTART_MIN_MS;
    m->state = MONITOR_RESTARTING;
    m->answered_at = uv_now(loop);
    text_copy(m->program, sizeof(m->program), options->program);
    if (initial) {
        gpu_snapshot_move(&m->now, initial);
        for (uint32_t i = 0; i < m->now.ndevices; i++)
            if (m->now.devices[i].context_bytes > 0)
                learn_context(m, m->now.devices[i].uuid, m->now.devices[i].context_bytes);
    }
    (void) uv_timer_init(loop, &m->timer);
    m->timer.data = m;
    (void) uv_timer_start(&m->timer, on_timer, 0, 0);
    *ret = m;
    return 0;
}

void gpu_monitor_close(struct gpu_monitor *m, void (*on_closed)(void *userdata), void *userdata) {
    if (m->child)
        (void) uv_process_kill(&m->child->process, SIGKILL);
    m->on_closed = on_closed;
    m->closed_userdata = userdata;
    m->state = MONITOR_CLOSING;
    m->handles = 1 + (m->poll_open ? 1 : 0) + (m->child ? 1 : 0);
    gpu_snapshot_done(&m->now);
    gpu_snapshot_done(&m->next);
    close_channel(m);
    uv_close((uv_handle_t *) &m->timer, on_timer_closed);
}

const struct gpu_snapshot *gpu_monitor_snapshot(const struct gpu_monitor *m) {
    return &m->now;
}

uint64_t gpu_monitor_poll(struct gpu_monitor *m) {
    if (m->state == MONITOR_WAITING) {
        (void) uv_timer_start(&m->timer, on_timer, 0, 0);
        return m->polls + 1;
    }
    if (m->state != MONITOR_POLLING)
        return 0;
    m->poll_again = true;
    return m->polls + 2;
}

int gpu_monitor_limit(struct gpu_monitor *m, const char *uuid, const char *cgroup, uint64_t bytes) {
    union gpu_message msg = {0};

    if (strlen(cgroup) >= sizeof(msg.limit.cgroup) || strlen(uuid) >= sizeof(msg.limit.uuid))
        return -ENAMETOOLONG;
    if (m->state != MONITOR_WAITING && m->state != MONITOR_POLLING)
        return -EAGAIN;
    msg.header = (struct gpu_message_header){.magic = GPU_MESSAGE_MAGIC, .type = GPU_MESSAGE_LIMIT};
    msg.limit.bytes = bytes;
    text_copy(msg.limit.uuid, sizeof(msg.limit.uuid), uuid);
    text_copy(msg.limit.cgroup, sizeof(msg.limit.cgroup), cgroup);
    return send(m->fd, &msg, sizeof(msg.limit), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -EAGAIN : 0;
}

void gpu_monitor_set_interval(struct gpu_monitor *m, unsigned interval_ms) {
    m->options.interval_ms = interval_ms;
}

void gpu_monitor_status(const struct gpu_monitor *m, struct gpu_monitor_status *ret) {
    *ret = (struct gpu_monitor_status){
        .answering = m->complete && !stale(m),
        .complete = m->complete,
        .pid = m->child ? uv_process_get_pid(&m->child->process) : 0,
        .polls = m->polls,
        .restarts = m->restarts > 0 ? m->restarts - 1 : 0,
        .hangs = m->hangs,
        .text = m->text,
    };
}
