/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http_get.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "wire/http_answer.h"
#include "wire/tls.h"

#define READ_SIZE 16384
#define REQUEST_MAX ((size_t) 64 << 10)

struct http_get {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    unsigned open;        /* handles that are not closed yet */
    bool ended;           /* closing: nothing is reported any more */
    struct security *tls; /* NULL: plain HTTP */
    bool secure;          /* its handshake is done */
    struct buf request;
    struct http_answer answer;
    http_get_cb done;
    void *userdata;
    char chunk[READ_SIZE];
};

static struct http_get *get_free(struct http_get *g) {
    if (g->tls)
        g->tls->free(g->tls);
    buf_done(&g->request);
    http_answer_done(&g->answer);
    free(g);
    return NULL;
}

static void on_closed(uv_handle_t *handle) {
    struct http_get *g = handle->data;
    if (--g->open == 0)
        (void) get_free(g);
}

static void close_all(struct http_get *g) {
    g->ended = true;
    uv_close((uv_handle_t *) &g->tcp, on_closed);
    uv_close((uv_handle_t *) &g->timer, on_closed);
}

/* The callback may take the body, so it comes before the end. */
static void end(struct http_get *g, int status, const char *why) {
    if (g->ended)
        return;
    g->ended = true;
    g->done(status, &g->answer.body, why, g->userdata);
    close_all(g);
}

void http_get_cancel(struct http_get *get) {
    if (get && !get->ended)
        close_all(get);
}

static void on_late(uv_timer_t *timer) {
    end(timer->data, -ETIMEDOUT, "no answer in time");
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *ret) {
    struct http_get *g = handle->data;
    (void) size;
    *ret = uv_buf_init(g->chunk, sizeof(g->chunk));
}

/* ---- what is sent ---- */

struct outgoing {
    uv_write_t write;
    struct buf data;
};

static void on_written(uv_write_t *write, int status) {
    struct outgoing *out = (struct outgoing *) write;
    struct http_get *g = write->handle->data;
    buf_done(&out->data);
    free(out);
    if (status < 0)
        end(g, status, uv_strerror(status));
}

/* Takes the data over. */
static int send_all(struct http_get *g, struct buf *data) {
    struct outgoing *out = data->len > 0 ? calloc(1, sizeof(*out)) : NULL;
    if (!out)
        return data->len > 0 ? -ENOMEM : 0;
    out->data = *data;
    *data = BUF_INIT(data->max);
    const uv_buf_t all = uv_buf_init(out->data.data, (unsigned) out->data.len);
    int r = uv_write(&out->write, (uv_stream_t *) &g->tcp, &all, 1, on_written);
    if (r < 0) {
        buf_done(&out->data);
        free(out);
    }
    return r;
}

/* ---- what comes ---- */

static int take_answer(struct http_get *g, const char *data, size_t n, struct err *err) {
    return n > 0 ? http_answer_feed(&g->answer, data, n, err) : http_answer_end(&g->answer, err);
}

/* Goes on with the handshake, and then with the question. */
static int greet(struct http_get *g, struct err *err) {
    int r = g->tls->handshake(g->tls, err);
    if (r > 0) {
        g->secure = true;
        r = g->tls->write(g->tls, g->request.data, g->request.len);
    }
    int sent = send_all(g, g->tls->output(g->tls));
    if (r == 0 && sent < 0)
        r = err_set(err, -sent, "cannot send");
    return r < 0 ? r : 0;
}

/* `n`: 0 at the end of the connection. */
static int take_secure(struct http_get *g, const char *data, size_t n, struct err *err) {
    char plain[READ_SIZE];
    int r = n > 0 ? g->tls->feed(g->tls, data, n) : 0;
    if (r < 0)
        return err_errno(err, -r, "cannot read");
    if (!g->secure) {
        if (n == 0)
            return err_set(err, ECONNRESET, "the connection has ended in the TLS handshake");
        r = greet(g, err);
        if (r < 0 || !g->secure)
            return r;
    }
    while (g->answer.part != HTTP_ANSWER_COMPLETE) {
        ssize_t got = g->tls->read(g->tls, plain, sizeof(plain), err);
        if (got == -ESHUTDOWN)
            return take_answer(g, NULL, 0, err);
        if (got < 0)
            return (int) got;
        if (got == 0)
            return n > 0 ? 0 : take_answer(g, NULL, 0, err);
        r = take_answer(g, plain, (size_t) got, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data) {
    struct http_get *g = stream->data;
    struct err err = {0};
    int r = 0;
    if (g->ended || n == 0)
        return;
    size_t size = n == UV_EOF ? 0 : (size_t) n;
    if (n < 0 && n != UV_EOF)
        r = err_set(&err, (int) -n, "%s", uv_strerror((int) n));
    else
        r = g->tls ? take_secure(g, data->base, size, &err)
                   : take_answer(g, data->base, size, &err);
    if (r < 0)
        end(g, r, err.text);
    else if (g->answer.part == HTTP_ANSWER_COMPLETE)
        end(g, g->answer.status, "");
}

static void on_connected(uv_connect_t *connect, int status) {
    struct http_get *g = connect->data;
    struct err err = {0};
    if (g->ended)
        return;
    if (status == 0)
        status = uv_read_start((uv_stream_t *) &g->tcp, on_alloc, on_read);
    if (status < 0)
        end(g, status, uv_strerror(status));
    else if (!g->tls && (status = send_all(g, &g->request)) < 0)
        end(g, status, "cannot send");
    else if (g->tls && (status = greet(g, &err)) < 0)
        end(g, status, err.text);
}

static int read_address(const char *address, unsigned port, struct sockaddr_storage *ret) {
    if (port == 0 || port > 65535)
        return -EINVAL;
    if (uv_ip4_addr(address, (int) port, (struct sockaddr_in *) ret) == 0 ||
        uv_ip6_addr(address, (int) port, (struct sockaddr_in6 *) ret) == 0)
        return 0;
    return -EINVAL;
}

static void write_request(const struct http_get_options *o, struct buf *out) {
    bool six = strchr(o->address, ':') != NULL;
    buf_printf(out, "GET %s HTTP/1.1\r\nHost: %s%s%s:%u\r\nConnection: close\r\n", o->path,
               six ? "[" : "", o->address, six ? "]" : "", o->port);
    if (o->bearer)
        buf_printf(out, "Authorization: Bearer %s\r\n", o->bearer);
    buf_puts(out, "\r\n");
}

int http_get_start(uv_loop_t *loop, const struct http_get_options *options, http_get_cb done,
                   void *userdata, struct http_get **ret, struct err *err) {
    struct sockaddr_storage address = {0};
    if (read_address(options->address, options->port, &address) < 0)
        return err_set(err, EINVAL, "'%s', port %u is no address", options->address, options->port);
    if (options->bearer && options->bearer[strcspn(options->bearer, "\r\n")])
        return err_set(err, EINVAL, "the token has more than one line");
    struct http_get *g = calloc(1, sizeof(*g));
    if (!g)
        return err_errno(err, ENOMEM, "cannot ask");
    g->request = BUF_INIT(REQUEST_MAX);
    http_answer_init(&g->answer, options->max);
    g->done = done;
    g->userdata = userdata;
    write_request(options, &g->request);
    int r = buf_error(&g->request);
    if (r < 0)
        (void) err_errno(err, -r, "cannot ask");
    else if (options->tls)
        r = tls_client_new(options->tls, &g->tls, err);
    if (r < 0) {
        g = get_free(g);
        return r;
    }
    (void) uv_tcp_init(loop, &g->tcp);
    (void) uv_timer_init(loop, &g->timer);
    g->open = 2;
    g->tcp.data = g->timer.data = g->connect.data = g;
    (void) uv_timer_start(&g->timer, on_late, options->timeout_ms, 0);
    r = uv_tcp_connect(&g->connect, &g->tcp, (const struct sockaddr *) &address, on_connected);
    if (r < 0) {
        close_all(g);
        return err_set(err, -r, "%s", uv_strerror(r));
    }
    *ret = g;
    return 0;
}
