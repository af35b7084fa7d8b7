/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/audit/holder_scan.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "gpu/device.h"

#define QUIET_MS 1000 /* without a record: the child hangs */
#define WHOLE_MS 5000
#define FOUND_MAX 4096

/* One run of the child. It outlives the scan until its end is known. */
struct child {
    uv_process_t process;
    uv_pipe_t pipe;
    int open;                 /* handles that are not closed yet */
    struct holder_scan *scan; /* NULL: its records are ignored */
    struct holder record;     /* the one that is being received */
};

struct holder_scan {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct child *child;
    size_t have; /* bytes of the record */
    char program[256], dir[256];
    char skip[1024]; /* containers with a process on which a child hung */
    uint64_t began_ms;
    struct holder looking; /* the last HOLDER_LOOKING; PID 0: another record followed it */
    struct holder *found;
    size_t nfound;
    bool complete;
    bool lost;             /* something that was found, for lack of room */
    holder_scan_done done; /* NULL: cancelled */
    void *userdata;
};

static int start_child(struct holder_scan *s, uint32_t from);

/* ---- the end ---- */

static void on_scan_closed(uv_handle_t *handle) {
    struct holder_scan *s = handle->data;

    if (s->done)
        s->done(s->found, s->nfound, s->complete, s->userdata);
    free(s->found);
    free(s);
}

static void on_child_closed(uv_handle_t *handle) {
    struct child *c = handle->data;

    if (--c->open == 0)
        free(c);
}

/* The process is closed when it has ended: libuv waits for it until then. */
static void on_exit_of(uv_process_t *process, int64_t status, int number) {
    (void) status;
    (void) number;
    uv_close((uv_handle_t *) process, on_child_closed);
}

static void drop_child(struct holder_scan *s) {
    struct child *c = s->child;

    if (!c)
        return;
    s->child = NULL;
    c->scan = NULL;
    (void) uv_process_kill(&c->process, SIGKILL);
    uv_close((uv_handle_t *) &c->pipe, on_child_closed);
}

static void finish(struct holder_scan *s, bool complete) {
    drop_child(s);
    s->complete = complete && !s->lost;
    if (!uv_is_closing((uv_handle_t *) &s->timer))
        uv_close((uv_handle_t *) &s->timer, on_scan_closed);
}

/* ---- records ---- */

static void add_found(struct holder_scan *s, const struct holder *h) {
    struct holder *grown;

    if (s->nfound % 64 == 0 && s->nfound < FOUND_MAX) {
        grown = realloc(s->found, (s->nfound + 64) * sizeof(*grown));
        s->lost |= !grown;
        if (!grown)
            return;
        s->found = grown;
    }
    s->lost |= s->nfound == FOUND_MAX;
    if (s->nfound < FOUND_MAX)
        s->found[s->nfound++] = *h;
}

/* Returns false after the last one. */
static bool read_record(struct holder_scan *s, const struct holder *h) {
    s->looking = (struct holder){0};
    if (h->how == HOLDER_END)
        return false;
    if (h->how == HOLDER_LOOKING)
        s->looking = *h;
    else
        add_found(s, h);
    return true;
}

static void on_quiet(uv_timer_t *timer) {
    struct holder_scan *s = timer->data;
    uint32_t stuck = s->looking.pid;

    drop_child(s);
    if (stuck > 0) {
        size_t used = strlen(s->skip);

        s->looking.how = HOLDER_UNREADABLE;
        add_found(s, &s->looking);
        (void) snprintf(s->skip + used, sizeof(s->skip) - used, "%s,", s->looking.id.container_id);
    }
    if (stuck == 0 || uv_now(s->loop) - s->began_ms >= WHOLE_MS || start_child(s, stuck + 1) < 0)
        finish(s, false);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *ret) {
    struct child *c = handle->data;

    (void) size;
    *ret = c->scan ? uv_buf_init((char *) &c->record + c->scan->have,
                                 (unsigned) (sizeof(c->record) - c->scan->have))
                   : uv_buf_init(NULL, 0);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct child *c = stream->data;
    struct holder_scan *s = c->scan;

    (void) buf;
    if (!s || n == 0)
        return;
    if (n < 0) {
        finish(s, false);
        return;
    }
    s->have += (size_t) n;
    if (s->have < sizeof(c->record))
        return;
    s->have = 0;
    (void) uv_timer_again(&s->timer);
    if (!read_record(s, &c->record))
        finish(s, true);
    else if (uv_now(s->loop) - s->began_ms >= WHOLE_MS)
        finish(s, false);
}

/* ---- the beginning ---- */

static int spawn(struct holder_scan *s, struct child *c, uint32_t from) {
    char arg0[] = "aliquot-holders", arg1[] = HOLDERS_COMMAND, arg2[16];
    char *args[] = {arg0, arg1, arg2, s->skip, s->dir, NULL};
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *) &c->pipe},
        {.flags = UV_INHERIT_FD, .data.fd = 2},
    };
    uv_process_options_t options = {
        .exit_cb = on_exit_of, .file = s->program, .args = args, .stdio = stdio, .stdio_count = 3};

    (void) snprintf(arg2, sizeof(arg2), "%u", from);
    return uv_spawn(s->loop, &c->process, &options);
}

static int start_child(struct holder_scan *s, uint32_t from) {
    struct child *c = calloc(1, sizeof(*c));
    int r = c ? uv_pipe_init(s->loop, &c->pipe, 0) : UV_ENOMEM;

    if (r < 0) {
        free(c);
        return r;
    }
    c->process.data = c;
    c->pipe.data = c;
    c->open = 2;
    r = spawn(s, c, from);
    if (r < 0) {
        /* libuv has taken the handle of a process that it could not start, too. */
        uv_close((uv_handle_t *) &c->process, on_child_closed);
        uv_close((uv_handle_t *) &c->pipe, on_child_closed);
        return r;
    }
    c->scan = s;
    s->child = c;
    s->have = 0;
    s->looking = (struct holder){0};
    (void) uv_read_start((uv_stream_t *) &c->pipe, on_alloc, on_read);
    return uv_timer_start(&s->timer, on_quiet, QUIET_MS, QUIET_MS);
}

struct holder_scan *holder_scan_start(uv_loop_t *loop, const char *program, const char *dir,
                                      holder_scan_done done, void *userdata) {
    struct holder_scan *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    *s = (struct holder_scan){
        .loop = loop, .done = done, .userdata = userdata, .began_ms = uv_now(loop)};
    text_copy(s->program, sizeof(s->program), program);
    text_copy(s->dir, sizeof(s->dir), dir);
    (void) uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    if (start_child(s, 0) == 0)
        return s;
    holder_scan_cancel(s);
    return NULL;
}

void holder_scan_cancel(struct holder_scan *s) {
    s->done = NULL;
    finish(s, false);
}
