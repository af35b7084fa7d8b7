/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/nvml/child.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/step.h"
#include "base/text.h"
#include "gpu/nvml/worker.h"

#define TURN_MAX 4096 /* packets taken in one turn of the loop */

struct gpu_child {
    struct gpu_child_options options;
    uv_process_t process;
    uv_poll_t poll; /* of fd */
    uv_timer_t timer;
    int fd;
    unsigned handles; /* that are not closed */
    bool killed;
    max_align_t message[]; /* of the protocol's maximum */
};

static int check_message(const void *message, size_t size) {
    return gpu_message_check(message, size);
}

static const struct gpu_child_protocol nvml = {GPU_WORKER_COMMAND, sizeof(union gpu_message),
                                               check_message};

/* ---- end ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct gpu_child *c = handle->data;

    if (--c->handles > 0)
        return;
    (void) close(c->fd);
    if (c->options.handlers)
        c->options.handlers->on_freed(c->options.userdata);
    free(c);
}

/* The last messages are still in the channel; its end of file follows them. */
static void on_exit_of_child(uv_process_t *process, int64_t status, int signal_number) {
    (void) status;
    (void) signal_number;
    uv_close((uv_handle_t *) process, on_handle_closed);
}

void gpu_child_kill(struct gpu_child *c) {
    if (c->killed)
        return;
    c->killed = true;
    if (uv_is_active((uv_handle_t *) &c->process))
        (void) uv_process_kill(&c->process, SIGKILL);
    uv_close((uv_handle_t *) &c->poll, on_handle_closed);
    uv_close((uv_handle_t *) &c->timer, on_handle_closed);
}

/* ---- messages ---- */

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct gpu_child *c = poll->data;
    const struct gpu_child_protocol *protocol = c->options.protocol;

    (void) status;
    (void) events;
    /* Not until nothing comes any more: a child gone mad would hold up the loop. */
    for (int i = 0; i < TURN_MAX && !c->killed; i++) {
        ssize_t n;
        int type;

        step_end();
        n = recv(c->fd, c->message, protocol->message_max, MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        type = n <= 0                               ? -EPIPE
               : (size_t) n > protocol->message_max ? -EBADMSG
                                                    : protocol->check(c->message, (size_t) n);
        if (type < 0)
            c->options.handlers->on_end(n > 0, c->options.userdata);
        else
            c->options.handlers->on_message(c->message, type, c->options.userdata);
    }
}

int gpu_child_send(struct gpu_child *c, const void *message, size_t size) {
    return send(c->fd, message, size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void on_timer(uv_timer_t *timer) {
    struct gpu_child *c = timer->data;

    c->options.handlers->on_timer(c->options.userdata);
}

void gpu_child_arm(struct gpu_child *c, uint64_t ms) {
    (void) uv_timer_start(&c->timer, on_timer, ms, 0);
}

int gpu_child_pid(const struct gpu_child *c) {
    return uv_process_get_pid(&c->process);
}

/* ---- start ---- */

static int spawn(struct gpu_child *c, uv_loop_t *loop, int fd) {
    char arg0[] = "aliquot-nvml", arg1[32], arg2[512], arg3[16], arg4[64];
    char *args[] = {
        arg0, arg1, arg2, c->options.mode ? arg3 : NULL, c->options.visible ? arg4 : NULL, NULL};
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
        {.flags = UV_INHERIT_FD, .data.fd = fd},
    };
    uv_process_options_t options = {.exit_cb = on_exit_of_child,
                                    .file = c->options.program,
                                    .args = args,
                                    .stdio = stdio,
                                    .stdio_count = 4};

    text_copy(arg1, sizeof(arg1), c->options.protocol->command);
    text_copy(arg2, sizeof(arg2), c->options.library);
    text_copy(arg3, sizeof(arg3), c->options.mode ? c->options.mode : "");
    text_copy(arg4, sizeof(arg4), c->options.visible ? c->options.visible : "");
    return uv_spawn(loop, &c->process, &options);
}

int gpu_child_start(uv_loop_t *loop, const struct gpu_child_options *options,
                    struct gpu_child **ret) {
    const struct gpu_child_protocol *protocol = options->protocol ? options->protocol : &nvml;
    _cleanup_close_ int ours = -1, theirs = -1;
    struct gpu_child *c;
    int pair[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ours = pair[0];
    theirs = pair[1];
    c = calloc(1, sizeof(*c) + protocol->message_max);
    if (!c)
        return -ENOMEM;
    c->options = *options;
    c->options.protocol = protocol;
    c->process.data = c->poll.data = c->timer.data = c;
    c->fd = ours;
    r = uv_poll_init(loop, &c->poll, ours);
    if (r < 0) {
        free(c);
        return r;
    }
    c->handles = 3;
    (void) uv_timer_init(loop, &c->timer);
    (void) uv_poll_start(&c->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    ours = -1; /* closed with the handles; NOLINT: not here */
    r = spawn(c, loop, theirs);
    if (r < 0) {
        c->options.handlers = NULL;
        if (c->process.type == UV_PROCESS)
            uv_close((uv_handle_t *) &c->process, on_handle_closed);
        else
            c->handles--;
        gpu_child_kill(c);
        return r;
    }
    *ret = c;
    return 0;
}
