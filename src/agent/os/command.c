/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/os/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"

struct command {
    uv_process_t process;
    uv_pipe_t in, out;
    uv_timer_t deadline;
    uv_write_t write;
    void (*done)(const struct command_result *result, void *userdata); /* NULL: over */
    void *userdata;
    int open; /* handles that are not closed yet */
    char input[COMMAND_INPUT_MAX];
    char output[COMMAND_OUTPUT_MAX + 1];
    size_t have;
    char rest[512]; /* for output beyond the maximum */
};

static void on_closed(uv_handle_t *handle) {
    struct command *c = handle->data;

    if (--c->open == 0)
        free(c);
}

static void close_handle(uv_handle_t *handle) {
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

/* The handle of the process is closed when the process has ended: libuv waits for it until then. */
static void close_others(struct command *c) {
    close_handle((uv_handle_t *) &c->in);
    close_handle((uv_handle_t *) &c->out);
    close_handle((uv_handle_t *) &c->deadline);
}

static void finish(struct command *c, struct command_result *result) {
    void (*done)(const struct command_result *, void *) = c->done;

    c->done = NULL;
    close_others(c);
    c->output[c->have] = 0;
    result->output = c->output;
    if (done)
        done(result, c->userdata);
}

static void kill_group(const struct command *c) {
    int pid = uv_process_get_pid(&c->process);

    if (pid > 0)
        (void) kill(-pid, SIGKILL);
}

/* ---- output ---- */

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *ret) {
    struct command *c = handle->data;
    size_t left = COMMAND_OUTPUT_MAX - c->have;

    (void) size;
    *ret = left > 0 ? uv_buf_init(c->output + c->have, (unsigned) left)
                    : uv_buf_init(c->rest, sizeof(c->rest));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct command *c = stream->data;

    if (n > 0 && buf->base != c->rest)
        c->have += (size_t) n;
    if (n < 0)
        (void) uv_read_stop(stream);
}

/* What is in the pipe when the process ends. Its end of file may never come: a daemon can have
 * inherited the other end. */
static void drain(struct command *c) {
    uv_os_fd_t fd;
    ssize_t n = 1;

    if (uv_is_closing((uv_handle_t *) &c->out) || uv_fileno((uv_handle_t *) &c->out, &fd) < 0)
        return;
    while (n > 0 && c->have < COMMAND_OUTPUT_MAX) {
        n = read(fd, c->output + c->have, COMMAND_OUTPUT_MAX - c->have);
        c->have += n > 0 ? (size_t) n : 0;
    }
}

/* ---- the end ---- */

static void on_exit_of(uv_process_t *process, int64_t status, int number) {
    struct command *c = process->data;
    struct command_result result = {.status = number != 0 ? -1 : (int) status, .signal = number};

    drain(c);
    close_handle((uv_handle_t *) process);
    finish(c, &result);
}

static void on_deadline(uv_timer_t *timer) {
    struct command *c = timer->data;
    struct command_result result = {.status = -1, .late = true};

    kill_group(c);
    drain(c);
    finish(c, &result);
}

void command_cancel(struct command *c) {
    c->done = NULL;
    kill_group(c);
    close_others(c);
}

/* ---- the beginning ---- */

static void on_written(uv_write_t *request, int status) {
    struct command *c = request->data;

    (void) status;
    close_handle((uv_handle_t *) &c->in);
}

/* Both outputs are one pipe, which keeps their order. */
static int spawn(uv_loop_t *loop, struct command *c, const struct command_options *o) {
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *) &c->in},
        {.flags = UV_INHERIT_FD},
        {.flags = UV_INHERIT_FD},
        {.flags = UV_INHERIT_FD, .data.fd = o->inherited},
    };
    uv_process_options_t options = {.exit_cb = on_exit_of,
                                    .file = o->argv[0],
                                    .args = (char **) (uintptr_t) o->argv,
                                    .env = (char **) (uintptr_t) o->env,
                                    .flags = UV_PROCESS_DETACHED,
                                    .stdio = stdio,
                                    .stdio_count = o->inherited > 0 ? 4 : 3};
    int pair[2], r;

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    stdio[1].data.fd = stdio[2].data.fd = pair[1];
    r = uv_pipe_open(&c->out, pair[0]);
    if (r < 0)
        (void) close(pair[0]);
    else
        r = uv_spawn(loop, &c->process, &options);
    (void) close(pair[1]);
    return r;
}

static void send_input(struct command *c) {
    uv_buf_t data = uv_buf_init(c->input, (unsigned) strlen(c->input));

    c->write.data = c;
    if (data.len == 0 || uv_write(&c->write, (uv_stream_t *) &c->in, &data, 1, on_written) < 0)
        close_handle((uv_handle_t *) &c->in);
}

int command_start(uv_loop_t *loop, const struct command_options *options, struct command **ret,
                  struct err *err) {
    struct command *c;
    int r;

    if (options->input && strlen(options->input) >= COMMAND_INPUT_MAX)
        return err_set(err, E2BIG, "the input of %s is too long", options->argv[0]);
    c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "out of memory");
    c->process.data = c->in.data = c->out.data = c->deadline.data = c;
    c->done = options->done;
    c->userdata = options->userdata;
    c->open = 4;
    text_copy(c->input, sizeof(c->input), options->input ? options->input : "");
    (void) uv_pipe_init(loop, &c->in, 0);
    (void) uv_pipe_init(loop, &c->out, 0);
    (void) uv_timer_init(loop, &c->deadline);
    r = spawn(loop, c, options);
    if (r < 0) {
        /* libuv has taken the handle of a process that it could not start, too. */
        if (c->process.type == UV_PROCESS)
            close_handle((uv_handle_t *) &c->process);
        else
            c->open--;
        close_others(c);
        return err_set(err, -r, "cannot run %s: %s", options->argv[0], uv_strerror(r));
    }
    (void) uv_timer_start(&c->deadline, on_deadline, options->deadline_ms, 0);
    (void) uv_read_start((uv_stream_t *) &c->out, on_alloc, on_read);
    send_input(c);
    *ret = c;
    return 0;
}
