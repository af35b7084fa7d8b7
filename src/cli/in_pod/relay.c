/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/in_pod/relay.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/num.h"

#define REQUEST_MAX ((size_t) 4 << 20)
#define ANSWER_MAX ((size_t) 1 << 30)
#define ANSWER_MS 60000 /* for a list of a large cluster */
#define BACKLOG 64
#define PART (1 << 16) /* what is read at a time */

/* A connection: a request, its answer, and so on. */
struct peer {
    struct peer *prev, *next;
    struct relay *relay;
    uv_pipe_t pipe;
    struct buf in; /* what has come of the request */
    char *head;    /* its head; NULL: that is not complete */
    size_t head_size;
    struct kube_exchange_options request; /* borrows of both */
    struct kube_exchange *exchange;
    int status;
    uint32_t retry_s;     /* Retry-After of the answer; 0: none */
    struct buf body, out; /* of the answer */
    bool is_answered;     /* which is being written */
    uv_write_t write;
};

struct relay {
    uv_pipe_t pipe;
    struct kube_transport *transport;
    struct peer *peers;
    bool is_closed;
};

static void take_request(struct peer *p);

/* ---- ends ---- */

static void free_when_done(struct relay *relay) {
    if (relay->is_closed && !relay->peers)
        free(relay);
}

static void on_peer_closed(uv_handle_t *handle) {
    struct peer *p = handle->data;
    struct relay *relay = p->relay;

    DL_DELETE(relay->peers, p);
    buf_done(&p->in);
    buf_done(&p->body);
    buf_done(&p->out);
    free(p->head);
    free(p);
    free_when_done(relay);
}

static void end_peer(struct peer *p) {
    if (uv_is_closing((uv_handle_t *) &p->pipe))
        return;
    if (p->exchange)
        kube_exchange_cancel(take_ptr(p->exchange));
    uv_close((uv_handle_t *) &p->pipe, on_peer_closed);
}

static void on_relay_closed(uv_handle_t *handle) {
    struct relay *relay = handle->data;

    relay->is_closed = true;
    free_when_done(relay);
}

void relay_stop(struct relay *relay) {
    struct peer *p;

    DL_FOREACH(relay->peers, p)
        end_peer(p);
    uv_close((uv_handle_t *) &relay->pipe, on_relay_closed);
}

/* ---- the answer ---- */

static void on_written(uv_write_t *write, int status) {
    struct peer *p = write->data;

    if (status < 0) {
        end_peer(p);
        return;
    }
    buf_consume(&p->in, p->head_size + p->request.size);
    free(take_ptr(p->head));
    buf_done(&p->body);
    buf_reset(&p->out);
    p->is_answered = false;
    take_request(p);
}

/* With the body that is there. */
static void answer(struct peer *p, int status) {
    uv_buf_t parts[2];

    buf_printf(&p->out, "HTTP/1.1 %d -\r\nContent-Length: %zu\r\n", status, p->body.len);
    if (p->retry_s)
        buf_printf(&p->out, "Retry-After: %" PRIu32 "\r\n", p->retry_s);
    buf_puts(&p->out, "\r\n");
    parts[0] = uv_buf_init(p->out.data, (unsigned) p->out.len);
    parts[1] = uv_buf_init(p->body.data, (unsigned) p->body.len);
    p->is_answered = true;
    p->write.data = p;
    if (buf_error(&p->out) < 0 ||
        uv_write(&p->write, (uv_stream_t *) &p->pipe, parts, 2, on_written) < 0)
        end_peer(p);
}

/* As kubectl does where it does not reach the API server. `text` is copied. */
static void answer_bad_gateway(struct peer *p, const char *text) {
    buf_done(&p->body);
    p->body = BUF_INIT(0);
    p->retry_s = 0;
    buf_puts(&p->body, text);
    answer(p, 502);
}

static void on_status(int http_status, void *user) {
    struct peer *p = user;

    p->status = http_status;
}

static int on_data(const void *data, size_t size, void *user) {
    struct peer *p = user;

    buf_append(&p->body, data, size);
    return buf_error(&p->body);
}

static void on_done(const struct kube_outcome *outcome, void *user) {
    struct peer *p = user;

    p->exchange = NULL;
    p->retry_s = outcome->retry_s;
    if (outcome->error)
        answer_bad_gateway(p, outcome->text);
    else
        answer(p, p->status);
}

static const struct kube_exchange_handlers handlers = {on_status, on_data, on_done};

/* ---- the request ---- */

static char *value_of(char *line, const char *name) {
    size_t len = strlen(name);

    return strncasecmp(line, name, len) == 0 ? line + len : NULL;
}

static bool take_header(struct kube_exchange_options *request, char *line) {
    char *value;
    uint64_t size;

    if ((value = value_of(line, "Content-Length: "))) {
        if (num_parse_u64(value, REQUEST_MAX, &size) < 0)
            return false;
        request->size = size;
    } else if ((value = value_of(line, "Content-Type: "))) {
        request->content_type = value;
    } else if ((value = value_of(line, "Accept: "))) {
        request->accept = value;
    }
    return true;
}

/* "GET /api/v1/pods HTTP/1.1" and the headers behind it. */
static bool take_head(struct kube_exchange_options *request, char *head) {
    char *rest, *line = strtok_r(head, "\r\n", &rest);
    char *path = line ? strchr(line, ' ') : NULL;
    char *version = path ? strchr(path + 1, ' ') : NULL;

    if (!version || strcmp(version, " HTTP/1.1") != 0)
        return false;
    *path = *version = '\0';
    *request =
        (struct kube_exchange_options){.method = line, .path = path + 1, .timeout_ms = ANSWER_MS};
    while ((line = strtok_r(NULL, "\r\n", &rest)))
        if (!take_header(request, line))
            return false;
    return true;
}

static bool find_head(struct peer *p) {
    static const char end[] = "\r\n\r\n";
    const char *found = p->in.len > 0 ? memmem(p->in.data, p->in.len, end, strlen(end)) : NULL;

    if (!found)
        return true;
    p->head_size = (size_t) (found - p->in.data) + strlen(end);
    p->head = strndup(p->in.data, p->head_size);
    return p->head && take_head(&p->request, p->head);
}

/* Sends it when it is whole. */
static void take_request(struct peer *p) {
    struct err err = {0};

    if (!p->head && !find_head(p)) {
        end_peer(p);
        return;
    }
    if (!p->head || p->exchange || p->is_answered || p->in.len < p->head_size + p->request.size)
        return;
    p->request.body = p->request.size > 0 ? p->in.data + p->head_size : NULL;
    p->body = BUF_INIT(ANSWER_MAX);
    if (kube_exchange_start(p->relay->transport, &p->request, &handlers, p, &p->exchange, &err) < 0)
        answer_bad_gateway(p, err.text);
}

static void on_room(uv_handle_t *handle, size_t size, uv_buf_t *ret) {
    struct peer *p = handle->data;
    char *room = buf_reserve(&p->in, PART);

    (void) size;
    *ret = uv_buf_init(room, room ? PART : 0);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf) {
    struct peer *p = stream->data;

    (void) buf;
    if (n < 0) {
        end_peer(p);
        return;
    }
    buf_commit(&p->in, (size_t) n);
    take_request(p);
}

/* ---- the socket ---- */

static void on_connection(uv_stream_t *server, int status) {
    struct relay *relay = server->data;
    struct peer *p = status < 0 ? NULL : calloc(1, sizeof(*p));

    if (!p)
        return;
    p->relay = relay;
    p->in = BUF_INIT(2 * REQUEST_MAX);
    (void) uv_pipe_init(server->loop, &p->pipe, 0);
    p->pipe.data = p;
    DL_APPEND(relay->peers, p);
    if (uv_accept(server, (uv_stream_t *) &p->pipe) < 0 ||
        uv_read_start((uv_stream_t *) &p->pipe, on_room, on_read) < 0)
        end_peer(p);
}

int relay_start(uv_loop_t *loop, const char *socket, struct kube_transport *transport,
                struct relay **ret, struct err *err) {
    struct relay *relay = calloc(1, sizeof(*relay));
    int r;

    if (!relay)
        return err_errno(err, ENOMEM, "cannot serve on %s", socket);
    relay->transport = transport;
    (void) uv_pipe_init(loop, &relay->pipe, 0);
    relay->pipe.data = relay;
    r = uv_pipe_bind(&relay->pipe, socket);
    if (r == 0)
        r = uv_listen((uv_stream_t *) &relay->pipe, BACKLOG, on_connection);
    if (r < 0) {
        relay_stop(relay);
        return err_errno(err, -r, "cannot serve on %s", socket);
    }
    *ret = relay;
    return 0;
}
