/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/h2.h"

#include <assert.h>
#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"

#define TRAILERS_MAX 4
#define FIELDS_MAX 12
#define WINDOW_DEFAULT 65535u
/* A queue that is empty again gives back what is more than this. */
#define QUEUE_KEEP 4096u

struct h2_conn {
    nghttp2_session *session;
    const struct h2_handlers *handlers;
    void *user;
    struct h2_stream *streams;
    unsigned corked;
    bool server;
    bool dead; /* being freed: nothing can be sent */
    bool wake_wanted;
    int failed; /* negative errno: a reset could not be queued, so that the connection has to end */
};

struct h2_stream {
    struct h2_conn *conn;
    struct h2_stream *prev, *next;
    void *user;
    struct buf out;
    size_t out_sent; /* bytes of `out` that were given to nghttp2 */
    struct h2_field trailers[TRAILERS_MAX];
    size_t n_trailers;
    int32_t id;
    bool responded;
    bool finished; /* no more h2_write */
    bool deferred; /* nghttp2 waits for nghttp2_session_resume_data */
    bool peer_ended;
    bool closing; /* our RST_STREAM is queued */
};

/* ---- memory: through our own malloc, so that tests can make it fail ---- */

static void *mem_malloc(size_t size, void *user) {
    (void) user;
    return malloc(size);
}

static void mem_free(void *p, void *user) {
    (void) user;
    free(p);
}

static void *mem_calloc(size_t n, size_t size, void *user) {
    (void) user;
    return calloc(n, size);
}

static void *mem_realloc(void *p, size_t size, void *user) {
    (void) user;
    return realloc(p, size);
}

/* ---- streams ---- */

static int errno_of(int nghttp2_error) {
    switch (nghttp2_error) {
    case 0:
        return 0;
    case NGHTTP2_ERR_NOMEM:
        return -ENOMEM;
    case NGHTTP2_ERR_FLOODED:
        return -ECONNABORTED;
    default:
        return -EPROTO;
    }
}

static void request_write(struct h2_conn *conn) {
    if (conn->corked)
        conn->wake_wanted = true;
    else if (conn->handlers->on_wake && !conn->dead)
        conn->handlers->on_wake(conn->user);
}

static struct h2_stream *stream_new(struct h2_conn *conn, void *user) {
    struct h2_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return NULL;
    stream->conn = conn;
    stream->user = user;
    DL_APPEND(conn->streams, stream);
    return stream;
}

static void trailers_free(struct h2_stream *stream) {
    for (size_t i = 0; i < stream->n_trailers; i++) {
        free((void *) (uintptr_t) stream->trailers[i].name);
        free((void *) (uintptr_t) stream->trailers[i].value);
    }
    stream->n_trailers = 0;
}

static void stream_free(struct h2_stream *stream) {
    DL_DELETE(stream->conn->streams, stream);
    trailers_free(stream);
    buf_done(&stream->out);
    free(stream);
}

static void stream_close(struct h2_stream *stream, uint32_t code, bool lost) {
    if (stream->conn->handlers->on_close)
        stream->conn->handlers->on_close(stream, code, lost);
    stream_free(stream);
}

void h2_reset(struct h2_stream *stream, uint32_t code) {
    struct h2_conn *conn = stream->conn;
    if (conn->dead || stream->closing)
        return;
    stream->closing = true;
    int r = nghttp2_submit_rst_stream(conn->session, NGHTTP2_FLAG_NONE, stream->id, code);
    if (r != 0)
        conn->failed = errno_of(r);
    request_write(conn);
}

/* What a handler answered. A failure (in practice: no memory) costs its stream, not the connection.
 */
static void reset_on_error(struct h2_stream *stream, int result) {
    if (result < 0)
        h2_reset(stream, H2_INTERNAL_ERROR);
}

static ssize_t read_queue(nghttp2_session *session, int32_t id, uint8_t *data, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *user) {
    (void) user;
    struct h2_stream *stream = source->ptr;
    assert(stream->out_sent <= stream->out.len);
    size_t left = stream->out.len - stream->out_sent;
    size_t n = left < size ? left : size;
    if (n > 0)
        memcpy(data, stream->out.data + stream->out_sent, n);
    stream->out_sent += n;
    if (n < left)
        return (ssize_t) n;

    buf_reset(&stream->out);
    stream->out_sent = 0;
    if (stream->out.cap > QUEUE_KEEP)
        buf_done(&stream->out);
    if (!stream->finished) {
        stream->deferred = n == 0;
        return n == 0 ? NGHTTP2_ERR_DEFERRED : (ssize_t) n;
    }

    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream->n_trailers > 0) {
        nghttp2_nv nv[TRAILERS_MAX];
        for (size_t i = 0; i < stream->n_trailers; i++)
            nv[i] = (nghttp2_nv){.name = (uint8_t *) (uintptr_t) stream->trailers[i].name,
                                 .namelen = strlen(stream->trailers[i].name),
                                 .value = (uint8_t *) (uintptr_t) stream->trailers[i].value,
                                 .valuelen = strlen(stream->trailers[i].value)};
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, id, nv, stream->n_trailers) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t) n;
}

/* ---- callbacks of nghttp2 ---- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    struct h2_conn *conn = user;
    if (!conn->server || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct h2_stream *stream = stream_new(conn, NULL);
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    stream->id = frame->hd.stream_id;
    if (nghttp2_session_set_stream_user_data(session, stream->id, stream) != 0) {
        stream_free(stream);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (conn->handlers->on_open)
        reset_on_error(stream, conn->handlers->on_open(stream, conn->user));
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user) {
    (void) name_len, (void) value_len, (void) flags;
    struct h2_conn *conn = user;
    struct h2_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream && conn->handlers->on_field)
        reset_on_error(stream,
                       conn->handlers->on_field(stream, (const char *) name, (const char *) value));
    return 0;
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                         size_t size, void *user) {
    (void) flags;
    struct h2_conn *conn = user;
    struct h2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    if (stream && !stream->closing && conn->handlers->on_data)
        reset_on_error(stream, conn->handlers->on_data(stream, data, size));
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    struct h2_conn *conn = user;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        if (conn->handlers->on_goaway)
            conn->handlers->on_goaway(conn->user);
        return 0;
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;

    struct h2_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!stream || stream->closing)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && conn->handlers->on_fields_end)
        reset_on_error(stream, conn->handlers->on_fields_end(stream));
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && !stream->peer_ended && !stream->closing) {
        stream->peer_ended = true;
        if (conn->handlers->on_end)
            reset_on_error(stream, conn->handlers->on_end(stream));
    }
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user) {
    (void) user;
    struct h2_stream *stream = nghttp2_session_get_stream_user_data(session, id);
    if (stream)
        stream_close(stream, code, false);
    return 0;
}

/* A response that ends before its request makes the rest of that useless: RFC 9113, 8.1 lets the
 * server say so. Not before the response has left: a queued RST_STREAM would overtake it. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
    struct h2_conn *conn = user;
    if (!conn->server || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    struct h2_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream && !stream->peer_ended)
        h2_reset(stream, H2_NO_ERROR);
    return 0;
}

/* ---- the connection ---- */

static int make_session(struct h2_conn *conn, nghttp2_session_callbacks *callbacks,
                        nghttp2_option *option, const struct h2_options *options) {
    nghttp2_mem mem = {
        .malloc = mem_malloc, .free = mem_free, .calloc = mem_calloc, .realloc = mem_realloc};
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_option_set_no_http_messaging(option, options->lenient);
    nghttp2_option_set_no_closed_streams(option, 1);

    int r = conn->server
                ? nghttp2_session_server_new3(&conn->session, callbacks, conn, option, &mem)
                : nghttp2_session_client_new3(&conn->session, callbacks, conn, option, &mem);
    return errno_of(r);
}

static int say_settings(struct h2_conn *conn, const struct h2_options *options) {
    uint32_t stream_window = options->stream_window ? options->stream_window : WINDOW_DEFAULT;
    uint32_t conn_window = options->conn_window ? options->conn_window : stream_window;
    assert(stream_window <= INT32_MAX && conn_window <= INT32_MAX);
    nghttp2_settings_entry entries[2] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, stream_window},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
    };
    if (conn->server)
        entries[1] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                              options->max_streams ? options->max_streams : 100};
    int r = nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, entries, 2);
    if (r == 0 && conn_window > WINDOW_DEFAULT)
        r = nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0,
                                                  (int32_t) conn_window);
    return errno_of(r);
}

static void callbacks_freep(nghttp2_session_callbacks **callbacks) {
    nghttp2_session_callbacks_del(*callbacks);
}

static void option_freep(nghttp2_option **option) {
    nghttp2_option_del(*option);
}

static int conn_init(struct h2_conn *conn, const struct h2_options *options) {
    _cleanup_(callbacks_freep) nghttp2_session_callbacks *callbacks = NULL;
    _cleanup_(option_freep) nghttp2_option *option = NULL;
    conn->handlers = options->handlers;
    conn->user = options->user;
    conn->server = options->server;
    if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&option) != 0)
        return -ENOMEM;
    int r = make_session(conn, callbacks, option, options);
    return r < 0 ? r : say_settings(conn, options);
}

int h2_conn_new(const struct h2_options *options, struct h2_conn **ret) {
    struct h2_conn *conn = calloc(1, sizeof(*conn));
    if (!conn)
        return -ENOMEM;
    int r = conn_init(conn, options);
    if (r < 0) {
        h2_conn_free(conn);
        return r;
    }
    *ret = conn;
    return 0;
}

void h2_conn_free(struct h2_conn *conn) {
    if (!conn)
        return;
    conn->dead = true;
    struct h2_stream *stream, *next;
    DL_FOREACH_SAFE(conn->streams, stream, next) {
        stream_close(stream, H2_CANCEL, true);
    }
    nghttp2_session_del(conn->session);
    free(conn);
}

int h2_conn_feed(struct h2_conn *conn, const uint8_t *data, size_t size) {
    conn->corked++;
    ssize_t used = nghttp2_session_mem_recv(conn->session, data, size);
    conn->corked--;
    conn->wake_wanted = false;
    return used < 0 ? errno_of((int) used) : conn->failed;
}

ssize_t h2_conn_pull(struct h2_conn *conn, const uint8_t **ret) {
    conn->corked++;
    ssize_t n = nghttp2_session_mem_send(conn->session, ret);
    conn->corked--;
    conn->wake_wanted = false;
    if (n == 0)
        return conn->failed;
    return n < 0 ? errno_of((int) n) : n;
}

bool h2_conn_is_done(const struct h2_conn *conn) {
    return !nghttp2_session_want_read(conn->session) && !nghttp2_session_want_write(conn->session);
}

bool h2_conn_has_streams(const struct h2_conn *conn) {
    return conn->streams != NULL;
}

void h2_conn_cork(struct h2_conn *conn) {
    conn->corked++;
}

void h2_conn_uncork(struct h2_conn *conn) {
    assert(conn->corked > 0);
    conn->corked--;
    if (conn->corked > 0 || !conn->wake_wanted)
        return;
    conn->wake_wanted = false;
    request_write(conn);
}

int h2_conn_ping(struct h2_conn *conn) {
    int r = nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, NULL);
    request_write(conn);
    return errno_of(r);
}

int h2_conn_goaway(struct h2_conn *conn, uint32_t code) {
    int32_t last = nghttp2_session_get_last_proc_stream_id(conn->session);
    int r = nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE, last, code, NULL, 0);
    request_write(conn);
    return errno_of(r);
}

/* ---- requests and responses ---- */

static int fill_fields(const struct h2_field *fields, size_t n, nghttp2_nv *ret) {
    if (n > FIELDS_MAX)
        return -E2BIG;
    for (size_t i = 0; i < n; i++)
        ret[i] = (nghttp2_nv){.name = (uint8_t *) (uintptr_t) fields[i].name,
                              .namelen = strlen(fields[i].name),
                              .value = (uint8_t *) (uintptr_t) fields[i].value,
                              .valuelen = strlen(fields[i].value)};
    return 0;
}

int h2_request(struct h2_conn *conn, const struct h2_field *fields, size_t n, const void *body,
               size_t size, void *user, struct h2_stream **ret) {
    nghttp2_nv nv[FIELDS_MAX];
    int r = fill_fields(fields, n, nv);
    if (r < 0)
        return r;
    if (conn->dead)
        return -ECONNRESET;
    struct h2_stream *stream = stream_new(conn, user);
    if (!stream)
        return -ENOMEM;
    buf_append(&stream->out, body, size);
    stream->finished = true;
    if (stream->out.error) {
        r = buf_error(&stream->out);
        stream_free(stream);
        return r;
    }

    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_queue};
    int32_t id =
        nghttp2_submit_request(conn->session, NULL, nv, n, size > 0 ? &provider : NULL, stream);
    if (id < 0) {
        stream_free(stream);
        return errno_of(id);
    }
    stream->id = id;
    *ret = stream;
    request_write(conn);
    return 0;
}

int h2_respond(struct h2_stream *stream, const struct h2_field *fields, size_t n, bool more) {
    nghttp2_nv nv[FIELDS_MAX];
    int r = fill_fields(fields, n, nv);
    if (r < 0)
        return r;
    struct h2_conn *conn = stream->conn;
    if (conn->dead || stream->closing || stream->responded)
        return -ECONNRESET;
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_queue};
    r = errno_of(
        nghttp2_submit_response(conn->session, stream->id, nv, n, more ? &provider : NULL));
    if (r < 0)
        return r;
    stream->responded = true;
    stream->finished = !more;
    request_write(conn);
    return 0;
}

static int resume(struct h2_stream *stream) {
    struct h2_conn *conn = stream->conn;
    if (stream->deferred) {
        int r = nghttp2_session_resume_data(conn->session, stream->id);
        if (r != 0)
            return errno_of(r);
        stream->deferred = false;
    }
    request_write(conn);
    return 0;
}

int h2_write(struct h2_stream *stream, const void *data, size_t size) {
    if (stream->conn->dead || stream->closing || stream->finished)
        return -ECONNRESET;
    if (stream->out_sent > 0 && stream->out_sent >= stream->out.len / 2) {
        buf_consume(&stream->out, stream->out_sent);
        stream->out_sent = 0;
    }
    buf_append(&stream->out, data, size);
    if (stream->out.error) {
        int r = buf_error(&stream->out);
        h2_reset(stream, H2_INTERNAL_ERROR); /* a message without its end would be a lie */
        return r;
    }
    return resume(stream);
}

int h2_finish(struct h2_stream *stream, const struct h2_field *trailers, size_t n) {
    if (n > TRAILERS_MAX)
        return -E2BIG;
    if (stream->conn->dead || stream->closing || stream->finished)
        return -ECONNRESET;
    for (size_t i = 0; i < n; i++) {
        stream->trailers[i].name = strdup(trailers[i].name);
        stream->trailers[i].value = strdup(trailers[i].value);
        stream->n_trailers = i + 1;
        if (!stream->trailers[i].name || !stream->trailers[i].value) {
            h2_reset(stream, H2_INTERNAL_ERROR);
            return -ENOMEM;
        }
    }
    stream->finished = true;
    return resume(stream);
}

size_t h2_queued(const struct h2_stream *stream) {
    return stream->out.len - stream->out_sent;
}

void h2_set_user(struct h2_stream *stream, void *user) {
    stream->user = user;
}

void *h2_user(const struct h2_stream *stream) {
    return stream->user;
}

struct h2_conn *h2_conn_of(const struct h2_stream *stream) {
    return stream->conn;
}
