/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/h2_link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/on_closed.h"
#include "wire/h2.h"
#include "wire/security.h"

#define READ_SIZE 16384
/* As much is collected for one write; HTTP/2 frames are at most 16 KiB. */
#define WRITE_BATCH 65536u
/* An output buffer that is empty again gives back what is more than this. */
#define OUT_KEEP 8192u

struct h2_link {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    };
    uv_timer_t timer;
    union {
        uv_connect_t connect;
        uv_write_t write; /* never before the connect is through */
    };
    uv_loop_t *loop;
    struct h2_conn *conn;
    struct security *security;
    struct h2_link_options options;
    struct buf out;     /* plain connections only; TLS has its own */
    struct buf sending; /* what `write` is at */
    unsigned busy;      /* inside h2_conn_feed or h2_conn_pull */
    bool up;            /* connected, and TLS is through */
    bool heard;         /* the peer has sent an HTTP/2 frame */
    bool writing;
    bool pinged;
    bool draining;
    bool lost;
    bool closing;
    unsigned handles; /* that libuv still holds */
    uint64_t last_read;
    char reason[ERR_TEXT_MAX];
    struct on_closed on_closed;
    char in[READ_SIZE];
};

static void on_alive_timer(uv_timer_t *timer);
static void begin_close(struct h2_link *link);

/* ---- losing the connection ---- */

static void on_lost_timer(uv_timer_t *timer) {
    struct h2_link *link = timer->data;
    link->options.on_lost(link, link->reason, link->options.user);
}

/* Reported from the loop, never inside a call of the owner, which may close the link in response.
 */
static void end_link(struct h2_link *link, const char *reason) {
    if (link->lost || link->closing)
        return;
    link->lost = true;
    if (link->up || link->security)
        (void) uv_read_stop(&link->stream);
    (void) snprintf(link->reason, sizeof(link->reason), "%s", link->draining ? "" : reason);
    uv_ref((uv_handle_t *) &link->timer); /* or a loop with nothing else to do would end first */
    (void) uv_timer_start(&link->timer, on_lost_timer, 0, 0);
}

/* ---- writing ---- */

static struct buf *output_of(struct h2_link *link) {
    return link->security ? link->security->output(link->security) : &link->out;
}

static int write_out(struct h2_link *link);

static void on_written(uv_write_t *req, int status) {
    struct h2_link *link = req->data;
    link->writing = false;
    buf_reset(&link->sending);
    if (link->sending.cap > OUT_KEEP)
        buf_done(&link->sending);
    if (status == 0 && !link->up)
        status = write_out(link); /* the handshake may have gone on meanwhile */
    if (status < 0)
        end_link(link, uv_strerror(status));
    else
        h2_link_flush(link);
}

/* Hands the output to the kernel as far as it takes it at once, the rest to libuv. */
static int write_out(struct h2_link *link) {
    struct buf *out = output_of(link);
    if (out->len == 0 || link->writing)
        return 0;
    uv_buf_t piece = uv_buf_init(out->data, (unsigned) out->len);
    int n = uv_try_write(&link->stream, &piece, 1);
    if (n < 0 && n != UV_EAGAIN)
        return n;
    if (n > 0)
        buf_consume(out, (size_t) n);
    if (out->len == 0) {
        if (out->cap > OUT_KEEP)
            buf_done(out);
        return 0;
    }

    struct buf swap = link->sending;
    link->sending = *out;
    *out = swap;
    out->max = link->sending.max; /* the bound is the output's, not the memory's */
    link->write.data = link;
    piece = uv_buf_init(link->sending.data, (unsigned) link->sending.len);
    int r = uv_write(&link->write, &link->stream, &piece, 1, on_written);
    link->writing = r == 0;
    return r;
}

/* Fills the output from the connection up to a batch. 1: there may be more, 0: that was all. */
static int fill_output(struct h2_link *link) {
    struct buf *out = output_of(link);
    while (out->len < WRITE_BATCH) {
        const uint8_t *data;
        link->busy++;
        ssize_t n = h2_conn_pull(link->conn, &data);
        link->busy--;
        if (n <= 0)
            return (int) n;
        int r = 0;
        if (link->security)
            r = link->security->write(link->security, data, (size_t) n);
        else
            buf_append(out, data, (size_t) n);
        if (r < 0 || out->error)
            return r < 0 ? r : buf_error(out);
    }
    return 1;
}

void h2_link_flush(struct h2_link *link) {
    if (link->busy || !link->up || link->closing || link->lost)
        return;
    int more = 1;
    while (more > 0 && !link->writing) {
        more = fill_output(link);
        if (link->closing) {
            begin_close(link);
            return;
        }
        int r = more < 0 ? more : write_out(link);
        if (r < 0) {
            end_link(link, uv_strerror(r));
            return;
        }
    }
    if (!link->writing && h2_conn_is_done(link->conn))
        end_link(link, "connection ended after a protocol error or a goodbye");
}

/* ---- reading ---- */

static void alloc_cb(uv_handle_t *handle, size_t suggested, uv_buf_t *ret) {
    (void) suggested;
    struct h2_link *link = handle->data;
    *ret = uv_buf_init(link->in, sizeof(link->in));
}

static void come_up(struct h2_link *link) {
    link->up = true;
    if (link->options.on_up)
        link->options.on_up(link, link->options.user);
}

static int feed_connection(struct h2_link *link, const void *data, size_t size) {
    link->heard = true;
    link->busy++;
    int r = h2_conn_feed(link->conn, data, size);
    link->busy--;
    return r;
}

/* What TLS has decrypted goes to the connection. A peer's end is an error here. */
static int feed_decrypted(struct h2_link *link, struct err *err) {
    char plain[READ_SIZE];
    for (;;) {
        ssize_t n = link->security->read(link->security, plain, sizeof(plain), err);
        if (n <= 0)
            return (int) n;
        int r = feed_connection(link, plain, (size_t) n);
        if (r < 0)
            return err_errno(err, -r, "HTTP/2 connection broken");
        if (link->closing)
            return 0;
    }
}

static int feed_tls(struct h2_link *link, const void *data, size_t size, struct err *err) {
    int r = link->security->feed(link->security, data, size);
    if (r < 0)
        return err_errno(err, -r, "cannot read from the connection");
    if (!link->up) {
        r = link->security->handshake(link->security, err);
        int w = write_out(link); /* alerts too: they give the server the reason */
        if (r < 0)
            return r;
        if (w < 0)
            return err_errno(err, -w, "cannot write to the connection");
        if (r == 0)
            return 0;
        come_up(link);
    }
    return feed_decrypted(link, err);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data) {
    struct h2_link *link = stream->data;
    struct err err = {0};
    if (n == 0)
        return;
    if (n < 0) {
        end_link(link, n == UV_EOF ? "connection closed by the peer" : uv_strerror((int) n));
        return;
    }
    link->last_read = uv_now(link->loop);
    link->pinged = false;

    int r = 0;
    if (link->security)
        r = feed_tls(link, data->base, (size_t) n, &err);
    else if ((r = feed_connection(link, data->base, (size_t) n)) < 0)
        (void) err_set(&err, -r, "not HTTP/2, or out of memory");
    if (link->closing) {
        begin_close(link);
        return;
    }
    h2_link_flush(link); /* a GOAWAY with the reason is sent before the end */
    if (r < 0)
        end_link(link, err.text);
}

void h2_link_read(struct h2_link *link) {
    uv_buf_t data = uv_buf_init(link->in, sizeof(link->in));
    uv_os_fd_t fd;
    if (link->busy || !link->up || link->security || link->closing || link->lost ||
        uv_fileno(&link->handle, &fd) < 0)
        return;
    ssize_t n = read(fd, link->in, sizeof(link->in));
    if (n > 0) /* an end and errors are left to libuv */
        on_read(&link->stream, n, &data);
}

/* ---- liveness ---- */

static void start_alive_timer(struct h2_link *link, uint64_t ms) {
    if (!link->lost && !link->closing)
        (void) uv_timer_start(&link->timer, on_alive_timer, ms, 0);
}

static void on_alive_timer(uv_timer_t *timer) {
    struct h2_link *link = timer->data;
    uint64_t silent = uv_now(link->loop) - link->last_read;
    if (link->draining) {
        end_link(link, "");
    } else if (!link->heard) {
        end_link(link, link->up ? "the peer does not answer in HTTP/2" : "no connection in time");
    } else if (link->pinged) {
        end_link(link, "the peer no longer answers");
    } else if (silent < link->options.ping_idle_ms) {
        start_alive_timer(link, link->options.ping_idle_ms - silent);
    } else {
        link->pinged = true;
        (void) h2_conn_ping(link->conn);
        start_alive_timer(link, link->options.ping_timeout_ms);
    }
}

/* ---- beginning ---- */

static void reading_starts(struct h2_link *link) {
    int r = uv_read_start(&link->stream, alloc_cb, on_read);
    if (r < 0) {
        end_link(link, uv_strerror(r));
        return;
    }
    link->last_read = uv_now(link->loop);
    if (!link->security) {
        come_up(link);
        h2_link_flush(link);
        return;
    }
    struct err err = {0};
    r = link->security->handshake(link->security, &err);
    if (r >= 0 && (r = write_out(link)) < 0)
        (void) err_errno(&err, -r, "cannot write to the connection");
    if (r < 0)
        end_link(link, err.text);
}

/* libuv writes without MSG_NOSIGNAL, so a peer that closes would kill the process. A handler that
 * the program has set stays. */
static void ignore_sigpipe(void) {
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL) {
        now.sa_handler = SIG_IGN;
        (void) sigaction(SIGPIPE, &now, NULL);
    }
}

int h2_link_new(uv_loop_t *loop, const struct h2_link_options *options, struct h2_conn *conn,
                struct security *security, struct h2_link **ret) {
    struct h2_link *link = calloc(1, sizeof(*link));
    int r =
        link ? (options->tcp ? uv_tcp_init(loop, &link->tcp) : uv_pipe_init(loop, &link->pipe, 0))
             : -ENOMEM;
    if (r < 0) {
        h2_conn_free(conn);
        if (security)
            security->free(security);
        free(link);
        return r;
    }
    ignore_sigpipe();
    (void) uv_timer_init(loop, &link->timer);
    uv_unref((uv_handle_t *) &link->timer);
    link->handle.data = link;
    link->timer.data = link;
    link->handles = 2;
    link->loop = loop;
    link->conn = conn;
    link->security = security;
    link->options = *options;
    if (!link->options.ping_idle_ms)
        link->options.ping_idle_ms = 30000;
    if (!link->options.ping_timeout_ms)
        link->options.ping_timeout_ms = 15000;
    *ret = link;
    return 0;
}

int h2_link_accept(struct h2_link *link, uv_stream_t *listener) {
    int r = uv_accept(listener, &link->stream);
    if (r < 0)
        return r;
    start_alive_timer(link, link->options.ping_timeout_ms);
    reading_starts(link);
    return 0;
}

static void on_connected(uv_connect_t *req, int status) {
    struct h2_link *link = req->data;
    if (link->closing)
        return;
    if (status < 0)
        end_link(link, uv_strerror(status));
    else if (!link->lost)
        reading_starts(link);
}

int h2_link_connect_unix(struct h2_link *link, const char *path) {
    if (strlen(path) >= sizeof(((struct sockaddr_un *) 0)->sun_path))
        return -ENAMETOOLONG; /* libuv would cut it */
    link->connect.data = link;
    start_alive_timer(link, link->options.ping_timeout_ms);
    uv_pipe_connect(&link->connect, &link->pipe, path, on_connected);
    return 0;
}

static void bound_unacked(struct h2_link *link) {
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    unsigned ms = link->options.unacked_ms;
    int fd = -1;
    if (ms == 0 || uv_fileno(&link->handle, &fd) < 0)
        return;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    (void) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

int h2_link_connect_tcp(struct h2_link *link, const struct sockaddr *address) {
    link->connect.data = link;
    start_alive_timer(link, link->options.ping_timeout_ms);
    int r = uv_tcp_connect(&link->connect, &link->tcp, address, on_connected);
    if (r < 0)
        return r;
    (void) uv_tcp_nodelay(&link->tcp, 1);
    bound_unacked(link);
    return 0;
}

/* ---- end ---- */

void h2_link_shutdown(struct h2_link *link, unsigned timeout_ms) {
    if (link->lost || link->closing || link->draining)
        return;
    if (!link->up) {
        link->draining = true;
        end_link(link, "");
        return;
    }
    link->draining = true;
    start_alive_timer(link, timeout_ms);
    (void) h2_conn_goaway(link->conn, H2_NO_ERROR);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct h2_link *link = handle->data;
    if (--link->handles > 0)
        return;
    if (link->security)
        link->security->free(link->security);
    buf_done(&link->out);
    buf_done(&link->sending);
    on_closed_free(&link->on_closed, link);
}

static void begin_close(struct h2_link *link) {
    if (!link->conn || link->busy)
        return;
    h2_conn_free(take_ptr(link->conn));
    uv_close(&link->handle, on_handle_closed);
    uv_close((uv_handle_t *) &link->timer, on_handle_closed);
}

void h2_link_close(struct h2_link *link, void (*on_closed)(void *user), void *user) {
    if (link->closing)
        return;
    link->closing = true;
    link->on_closed = (struct on_closed){on_closed, user};
    begin_close(link);
}

struct h2_conn *h2_link_conn(struct h2_link *link) {
    return link->conn;
}

bool h2_link_is_lost(const struct h2_link *link) {
    return link->lost;
}
