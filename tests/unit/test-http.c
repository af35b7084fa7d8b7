/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <libdeflate.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "wire/http.h"
#include "wire/http_accept.h"
#include "wire/metrics.h"
#include "wire/prom.h"

#define BODY_MAX ((size_t) 64 << 10)

/* A server on its own thread; the test is the client. */
struct fixture {
    uv_loop_t loop;
    uv_async_t stop;
    uv_timer_t later;
    struct http_server *server;
    struct http_exchange *waiting;
    pthread_t thread;
    unsigned port;
};

static void on_echo(struct http_exchange *x, void *userdata) {
    (void) userdata;
    struct buf out = BUF_INIT(0);
    size_t len;
    const char *body = http_body(x, &len);
    const char *query = http_query(x, "q");
    if (http_body_problem(x)) {
        http_reply_text(x, 200, http_body_problem(x));
        return;
    }
    buf_printf(&out, "%s %s %s %zu ", http_method(x), http_path(x), query ? query : "-", len);
    buf_append(&out, body, len);
    http_reply(x, 200, "text/plain", &out);
}

static void on_later(uv_timer_t *timer) {
    struct fixture *f = timer->data;
    http_reply_text(f->waiting, 200, "later");
    f->waiting = NULL;
}

static void on_slow(struct http_exchange *x, void *userdata) {
    struct fixture *f = userdata;
    if (f->waiting) {
        http_reply_text(x, 503, "busy");
        return;
    }
    f->waiting = x;
    uv_timer_start(&f->later, on_later, 50, 0);
}

/* Never answered: the server must still be able to end. */
static void on_never(struct http_exchange *x, void *userdata) {
    (void) x, (void) userdata;
}

static void on_broken(struct http_exchange *x, void *userdata) {
    (void) userdata;
    struct buf out = BUF_INIT(10);
    buf_puts(&out, "more than ten bytes");
    http_reply(x, 200, "text/plain", &out);
}

/* As pages of metrics are. */
static void on_page(struct http_exchange *x, void *userdata) {
    (void) userdata;
    struct buf out = BUF_INIT(0);
    const char *lines = http_query(x, "lines");
    for (unsigned long i = lines ? strtoul(lines, NULL, 10) : 0; i > 0; i--)
        buf_printf(&out, "aliquot_x_total{number=\"%lu\"} %lu\n", i, i);
    http_compress(x);
    http_reply(x, 200, prom_content_type(metrics_format(x)), &out);
}

static const struct http_route routes[] = {
    {"GET", "/page", on_page},
    {"GET", "/echo", on_echo},
    {"POST", "/echo", on_echo},
    {"GET", "/slow", on_slow},
    {"GET", "/never", on_never},
    {"GET", "/broken", on_broken},
    HTTP_ROUTE_END,
};

static void on_stop(uv_async_t *async) {
    struct fixture *f = async->data;
    http_server_close(f->server);
    uv_close((uv_handle_t *) &f->stop, NULL);
    uv_close((uv_handle_t *) &f->later, NULL);
}

static void *serve(void *userdata) {
    struct fixture *f = userdata;
    (void) uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int begin(void **state, struct http_options o) {
    struct fixture *f = calloc(1, sizeof(*f));
    o.routes = routes;
    o.userdata = f;
    if (o.max_body == 0)
        o.max_body = BODY_MAX;
    struct err err;
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_async_init(&f->loop, &f->stop, on_stop), 0);
    assert_int_equal(uv_timer_init(&f->loop, &f->later), 0);
    f->stop.data = f->later.data = f;
    if (http_server_start(&f->loop, &o, &f->server, &err) < 0)
        fail_msg("%s", err.text);
    f->port = http_server_port(f->server);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    *state = f;
    return 0;
}

static int setup(void **state) {
    return begin(state, (struct http_options){.listen = "127.0.0.1:0"});
}

/* As an agent listens: any client can connect. */
static int setup_public(void **state) {
    return begin(state, (struct http_options){.listen = ":0", .max_connections = 40});
}

/* A request from elsewhere has a second to come. */
static int setup_strict(void **state) {
    return begin(state, (struct http_options){.listen = ":0", .request_seconds = 1});
}

/* Half a request from a peer that says nothing more is given up soon. */
static int setup_hasty(void **state) {
    return begin(state, (struct http_options){.listen = "127.0.0.1:0", .idle_seconds = 2});
}

/* As the scheduler listens: long bodies are reduced while they come in. */
static int setup_keep(void **state) {
    static const char *const keep[] = {"Pod", NULL};
    return begin(state, (struct http_options){.listen = "127.0.0.1:0", .keep = keep});
}

/* Two long bodies are one too many. */
static int setup_crowded(void **state) {
    return begin(state, (struct http_options){.listen = "127.0.0.1:0",
                                              .max_body = (size_t) 1 << 20,
                                              .max_bodies = (size_t) 256 << 10});
}

static int teardown(void **state) {
    struct fixture *f = *state;
    uv_async_send(&f->stop);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

static int dial_from(const struct fixture *f, in_addr_t from) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(from)}};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) f->port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval patience = {20, 0}; /* a bound, so that a failure is no hang */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *) &own, sizeof(own)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    return fd;
}

static int dial(const struct fixture *f) {
    return dial_from(f, INADDR_LOOPBACK);
}

static void say(int fd, const char *text, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
        assert_true(n > 0 || (errno != EAGAIN && errno != EWOULDBLOCK)); /* it reads no more */
        if (n <= 0)
            return; /* the server may have closed already, which the answer tells */
        text += n;
        len -= (size_t) n;
    }
}

/* Reads one answer with its body (HEAD: without), 0 when the connection was closed instead. */
static int hear(int fd, struct buf *in, bool head) {
    buf_reset(in);
    for (;;) {
        const char *end = in->data ? strstr(in->data, "\r\n\r\n") : NULL;
        if (end) {
            const char *length = strstr(in->data, "Content-Length: ");
            assert_non_null(length);
            size_t want = (size_t) (end + 4 - in->data);
            want += head ? 0 : strtoul(length + 16, NULL, 10);
            if (in->len >= want)
                return (int) strtoul(in->data + 9, NULL, 10);
        }
        char c; /* byte by byte: what follows belongs to the next answer */
        ssize_t n = recv(fd, &c, 1, 0);
        if (n <= 0)
            return 0;
        buf_append(in, &c, 1);
    }
}

static int ask(const struct fixture *f, const char *request, struct buf *in) {
    _cleanup_close_ int fd = dial(f);
    say(fd, request, strlen(request));
    return hear(fd, in, false);
}

static void test_routes(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    assert_int_equal(ask(f, "GET /echo?q=a%20b HTTP/1.1\r\nHost: x\r\n\r\n", &in), 200);
    assert_non_null(strstr(in.data, "GET /echo a b 0 "));
    assert_int_equal(ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", &in),
                     200);
    assert_non_null(strstr(in.data, "POST /echo - 3 abc"));
    assert_int_equal(ask(f, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", &in), 404);
    assert_int_equal(ask(f, "DELETE /echo HTTP/1.1\r\nHost: x\r\n\r\n", &in), 405);
    assert_int_equal(ask(f, "GET /broken HTTP/1.1\r\nHost: x\r\n\r\n", &in), 500);
    assert_int_equal(ask(f, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n", &in), 200);
    assert_non_null(strstr(in.data, "later"));
}

static void test_head(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    _cleanup_close_ int fd = dial(f);
    const char *head = "HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    say(fd, head, strlen(head));
    assert_int_equal(hear(fd, &in, true), 200);
}

static void test_keep_alive_and_pipelining(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    _cleanup_close_ int fd = dial(f);
    const char *two = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"
                      "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
                      "GET /echo?q=last HTTP/1.1\r\nHost: x\r\n\r\n";
    for (int i = 0; i < 3; i++) {
        say(fd, two, strlen(two));
        assert_int_equal(hear(fd, &in, false), 200);
        assert_non_null(strstr(in.data, "POST /echo"));
        assert_int_equal(hear(fd, &in, false), 200);
        assert_non_null(strstr(in.data, "later"));
        assert_int_equal(hear(fd, &in, false), 200);
        assert_non_null(strstr(in.data, "last"));
    }
}

/* A client that has said all that it wants to say still hears the answers. */
static void test_half_closed_peer(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    _cleanup_close_ int fd = dial(f);
    const char *two = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"
                      "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";
    say(fd, two, strlen(two));
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    assert_int_equal(hear(fd, &in, false), 200);
    assert_non_null(strstr(in.data, "POST /echo"));
    assert_int_equal(hear(fd, &in, false), 200);
    assert_non_null(strstr(in.data, "later"));
}

/* Sends {"Images":"xxx...","Pod":...} of about `size` bytes in all, and hears the answer. */
static int send_long(struct fixture *f, size_t size, const char *pod, bool chunked,
                     struct buf *in) {
    static char piece[1024];
    _cleanup_close_ int fd = dial(f);
    _cleanup_buf_ struct buf end = BUF_INIT(0), head = BUF_INIT(0);
    size_t pieces = size / sizeof(piece);
    memset(piece, 'x', sizeof(piece));
    buf_printf(&end, "\",\"Pod\":%s", pod);
    buf_puts(&head, "POST /echo HTTP/1.1\r\nHost: x\r\n");
    if (chunked)
        buf_puts(&head, "Transfer-Encoding: chunked\r\n\r\nb\r\n");
    else
        buf_printf(&head, "Content-Length: %zu\r\n\r\n", 11 + pieces * sizeof(piece) + end.len);
    buf_puts(&head, "{\"Images\":\"");
    say(fd, head.data, head.len);
    for (size_t i = 0; i < pieces; i++) {
        if (chunked)
            say(fd, "\r\n400\r\n", 7);
        say(fd, piece, sizeof(piece));
    }
    buf_reset(&head);
    if (chunked)
        buf_printf(&head, "\r\n%zx\r\n", end.len);
    buf_puts(&head, buf_str(&end));
    buf_puts(&head, chunked ? "\r\n0\r\n\r\n" : "");
    say(fd, head.data, head.len);
    return hear(fd, in, false);
}

/* Of a body of 75 MB the server keeps what is of use, and says so where even that is too much. */
static void test_long_bodies_are_reduced(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    assert_int_equal(send_long(f, 75000000, "{\"a\":1}}", false, &in), 200);
    assert_non_null(strstr(in.data, "POST /echo - 15 {\"Pod\":{\"a\":1}}"));
    assert_int_equal(send_long(f, 3 << 20, "{\"a\":1}}", true, &in), 200);
    assert_non_null(strstr(in.data, "POST /echo - 15 {\"Pod\":{\"a\":1}}"));
    assert_int_equal(send_long(f, 1 << 10, "{\"a\":1}}", false, &in), 200);
    assert_non_null(strstr(in.data, "xxx")); /* a short one is left as it is */

    assert_int_equal(send_long(f, 3 << 20, "{\"a\":1}", false, &in), 200);
    assert_non_null(strstr(in.data, "ends before"));
    assert_int_equal(send_long(f, 3 << 20, "}", false, &in), 200);
    assert_non_null(strstr(in.data, "not JSON"));
    _cleanup_buf_ struct buf pod = BUF_INIT(0);
    buf_puts(&pod, "\"");
    for (size_t i = 0; i < BODY_MAX; i++)
        buf_putc(&pod, 'p');
    buf_puts(&pod, "\"}");
    assert_int_equal(send_long(f, 3 << 20, pod.data, false, &in), 200);
    assert_non_null(strstr(in.data, "too large"));
}

static void test_body_in_pieces(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    _cleanup_close_ int fd = dial(f);
    const char *text = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    for (const char *c = text; *c; c++)
        say(fd, c, 1);
    assert_int_equal(hear(fd, &in, false), 200);
    assert_non_null(strstr(in.data, "POST /echo - 5 abcde"));
}

static void test_too_large(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0), big = BUF_INIT(0);
    assert_int_equal(
        ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", &in), 413);
    assert_int_equal(ask(f, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n", &in),
                     413);
    _cleanup_close_ int fd = dial(f); /* not announced: chunks until it is too much */
    buf_puts(&big, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 70; i++)
        buf_printf(&big, "400\r\n%01024d\r\n", i);
    buf_puts(&big, "0\r\n\r\n");
    say(fd, big.data, big.len);
    assert_int_equal(hear(fd, &in, false), 413);
}

/* A path that only is to be read keeps nothing of what is sent to it. */
static void test_unasked_body(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0), big = BUF_INIT(0);
    static const char *const heads[] = {"GET /slow", "POST /slow", "POST /nothing", "PUT /echo"};
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        buf_reset(&big);
        buf_printf(&big, "%s HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", heads[i]);
        assert_int_equal(ask(f, big.data, &in), 413);
        buf_reset(&big);
        buf_printf(&big, "%s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", heads[i]);
        for (int piece = 0; piece < 5; piece++)
            buf_printf(&big, "400\r\n%01024d\r\n", piece);
        buf_puts(&big, "0\r\n\r\n");
        assert_int_equal(ask(f, big.data, &in), 413);
    }
    assert_int_equal(
        ask(f, "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", &in), 404);
}

static int post(const struct fixture *f, size_t size, struct buf *in) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    buf_printf(&text, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n", size);
    for (size_t i = 0; i < size; i++)
        buf_putc(&text, 'x');
    return ask(f, buf_str(&text), in);
}

/* Asks until the server has come as far as to answer so. */
static void post_until(const struct fixture *f, size_t size, int status, struct buf *in) {
    for (int i = 0; i < 10000; i++)
        if (post(f, size, in) == status)
            return;
    fail_msg("never %d", status);
}

/* Two thirds of a body. */
static int send_part(const struct fixture *f) {
    _cleanup_buf_ struct buf part = BUF_INIT(0);
    int fd = dial(f);
    buf_puts(&part, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n");
    for (int i = 0; i < 200000; i++)
        buf_putc(&part, 'x');
    say(fd, part.data, part.len);
    return fd;
}

/* Sends a part of a body until the server refuses another body beside it. While the server receives
 * the part, it may serve the other body and drop this one, and says so only when it has all of it:
 * then both are sent again. */
static int occupy_bodies(const struct fixture *f, struct buf *in) {
    for (int i = 0; i < 10000; i++) {
        int fd = send_part(f);
        if (post(f, 100000, in) == 503)
            return fd;
        (void) close(fd);
    }
    fail_msg("another body is never refused");
    return -1;
}

/* What many send together is bounded, and keeps no usual request out. */
static void test_bodies_together(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    int fd = occupy_bodies(f, &in);
    assert_non_null(strstr(buf_str(&in), "too many large requests"));
    assert_int_equal(post(f, 60000, &in), 200);
    (void) close(fd);
    post_until(f, 250000, 200, &in); /* nothing is left over, once the server has seen the end */
}

static void test_garbage(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    static const char *const texts[] = {
        "\r\n\r\n\r\n",
        "hello\r\n\r\n",
        "GET\r\n\r\n",
        "GET /echo HTTP/9.9\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        _cleanup_close_ int fd = dial(f);
        say(fd, texts[i], strlen(texts[i]));
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        int status = hear(fd, &in, false);
        if (status >= 200 && status < 300)
            fail_msg("garbage %zu was served: %s", i, buf_str(&in));
    }
    assert_int_equal(ask(f, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", &in), 200);
}

static void test_huge_header(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0), big = BUF_INIT(0);
    buf_puts(&big, "GET /echo HTTP/1.1\r\nHost: x\r\nX: ");
    for (int i = 0; i < 100000; i++)
        buf_putc(&big, 'x');
    buf_puts(&big, "\r\n\r\n");
    int status = ask(f, big.data, &in);
    assert_true(status == 0 || status >= 400);
    assert_int_equal(ask(f, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", &in), 200);
}

static void test_client_leaves(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    for (int i = 0; i < 20; i++) {
        _cleanup_close_ int fd = dial(f);
        const char *text = i % 2
                               ? "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
                               : "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf";
        say(fd, text, strlen(text));
    }
    assert_int_equal(ask(f, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", &in), 200);
}

/* One address that holds as many idle connections as it can get keeps no other out. */
static void test_greedy_client(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    const char *get = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    int idle[60], other = -1;
    for (int i = 0; i < 60; i++)
        idle[i] = dial_from(f, INADDR_LOOPBACK + 2);
    other = dial_from(f, INADDR_LOOPBACK + 1);
    say(other, get, strlen(get));
    assert_int_equal(hear(other, &in, false), 200);
    (void) close(other);
    say(idle[0], get, strlen(get)); /* the first ten are served, the others were turned away */
    assert_int_equal(hear(idle[0], &in, false), 200);
    say(idle[59], get, strlen(get));
    assert_int_equal(hear(idle[59], &in, false), 0);
    for (int i = 0; i < 60; i++)
        (void) close(idle[i]);
}

/* Other addresses that hold every connection with half a request each do not keep this host out:
 * 127.0.0.1 stands for it, since that is what the kernel calls it in 127.0.0.0/8. */
static void test_own_host_is_let_in(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    const char *half = "GET /echo HTTP/1.1\r\nHost: ",
               *get = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    int held[40], late;
    for (int i = 0; i < 40; i++) {
        held[i] = dial_from(f, INADDR_LOOPBACK + 2 + (in_addr_t) (i / 10));
        say(held[i], half, strlen(half));
    }
    late = dial_from(f, INADDR_LOOPBACK + 20);
    say(late, get, strlen(get));
    assert_int_equal(hear(late, &in, false), 0);
    (void) close(late);
    assert_int_equal(ask(f, get, &in), 200);
    say(held[39], "x\r\n\r\n", 5);
    assert_int_equal(hear(held[39], &in, false), 200);
    for (int i = 0; i < 40; i++)
        (void) close(held[i]);
}

/* Sends `text` over and over, a byte at a time, faster than any silence would end the connection,
 * until the server ends it. */
static void trickle(int fd, const char *text) {
    struct timeval pause = {0, 50000};
    char c;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &pause, sizeof(pause)), 0);
    for (size_t i = 0; i < 400; i++) {
        say(fd, &text[i % strlen(text)], 1);
        if (recv(fd, &c, 1, 0) == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
            return;
    }
    fail_msg("the connection is still there after 20 s");
}

static void test_slow_request(void **state) {
    struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    const char *get = "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n";
    const char *post = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n";
    const char *never = "GET /never HTTP/1.1\r\nHost: x\r\n\r\n";
    int first = dial_from(f, INADDR_LOOPBACK + 2), second = dial_from(f, INADDR_LOOPBACK + 2);
    int body = dial_from(f, INADDR_LOOPBACK + 2), own = dial(f);
    int calm = dial_from(f, INADDR_LOOPBACK + 3), waits = dial_from(f, INADDR_LOOPBACK + 3);
    say(calm, get, strlen(get));
    assert_int_equal(hear(calm, &in, false), 200);
    say(second, get, strlen(get));
    assert_int_equal(hear(second, &in, false), 200);
    say(own, get, 12);
    say(waits, never, strlen(never));
    trickle(first, "GET /echo HTTP/1.1\r\nHost: x\r\n");
    trickle(second, "GET /echo HTTP/1.1\r\nHost: x\r\n");
    say(body, post, strlen(post));
    trickle(body, "x");
    say(calm, get, strlen(get)); /* has rested for longer than a request may take */
    assert_int_equal(hear(calm, &in, false), 200);
    say(own, get + 12, strlen(get + 12)); /* the host's own has all the time it wants */
    assert_int_equal(hear(own, &in, false), 200);
    struct timeval no_time = {0, 1000};
    char c;
    assert_int_equal(setsockopt(waits, SOL_SOCKET, SO_RCVTIMEO, &no_time, sizeof(no_time)), 0);
    assert_int_equal(recv(waits, &c, 1, 0), -1); /* not ended: the answer is what is missing */
    int all[] = {first, second, body, own, calm, waits};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        (void) close(all[i]);
}

static void test_close_with_open_exchange(void **state) {
    struct fixture *f = *state; /* teardown closes the server while this one waits */
    int fd = dial(f);
    const char *text = "GET /never HTTP/1.1\r\nHost: x\r\n\r\n";
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    say(fd, text, strlen(text));
    /* served in order on one loop: when this is answered, the other has been seen */
    assert_int_equal(ask(f, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n", &in), 200);
    (void) close(fd);
}

static void test_options(void **state) {
    (void) state;
    uv_loop_t loop;
    struct http_server *server;
    struct err err;
    static const char *const bad[] = {
        "", "nonsense", "127.0.0.1", "127.0.0.1:", "name:1", "1.2.3.4:99999", "127.0.0.1:http"};
    assert_int_equal(uv_loop_init(&loop), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct http_options o = {.listen = bad[i], .routes = routes};
        if (http_server_start(&loop, &o, &server, &err) >= 0)
            fail_msg("listens on '%s'", bad[i]);
    }
    const struct http_options half = {
        .listen = "127.0.0.1:0", .routes = routes, .tls_cert = "/dev/null"};
    assert_true(http_server_start(&loop, &half, &server, &err) < 0);
    const struct http_options empty = {
        .listen = "127.0.0.1:0", .routes = routes, .tls_cert = "/dev/null", .tls_key = "/dev/null"};
    assert_true(http_server_start(&loop, &empty, &server, &err) < 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* Asks for the page of so many lines and returns the answer in `in`, its body behind the headers.
 */
static const char *get_page(const struct fixture *f, unsigned lines, const char *headers,
                            struct buf *in) {
    _cleanup_close_ int fd = dial(f);
    char request[512];
    int n = snprintf(request, sizeof(request), "GET /page?lines=%u HTTP/1.1\r\nHost: x\r\n%s\r\n",
                     lines, headers);
    say(fd, request, (size_t) n);
    assert_int_equal(hear(fd, in, false), 200);
    return strstr(in->data, "\r\n\r\n") + 4;
}

static void test_compressed_page(void **state) {
    const struct fixture *f = *state;
    _cleanup_buf_ struct buf in = BUF_INIT(0), plain = BUF_INIT(0);
    const char *text = get_page(f, 1000, "", &plain);
    size_t len = plain.len - (size_t) (text - plain.data), got = 0;
    _cleanup_free_ char *back = malloc(len);
    struct libdeflate_decompressor *d = libdeflate_alloc_decompressor();

    assert_null(strstr(plain.data, "Content-Encoding"));
    assert_non_null(strstr(plain.data, "Vary: Accept, Accept-Encoding"));
    const char *body = get_page(f, 1000, "Accept-Encoding: br, gzip;q=0.5\r\n", &in);
    size_t small = in.len - (size_t) (body - in.data);
    assert_non_null(strstr(in.data, "Content-Encoding: gzip\r\n"));
    assert_true(small < len / 5);
    assert_int_equal(libdeflate_gzip_decompress(d, body, small, back, len, &got), 0);
    assert_true(got == len && memcmp(back, text, len) == 0);
    libdeflate_free_decompressor(d);

    (void) get_page(f, 1000, "Accept-Encoding: gzip;q=0\r\n", &in);
    assert_null(strstr(in.data, "Content-Encoding"));
    (void) get_page(f, 10, "Accept-Encoding: gzip\r\n", &in); /* it is short */
    assert_null(strstr(in.data, "Content-Encoding"));
}

/* Long pages take a CPU for long. */
static void test_length_of_compressed_pages(void **state) {
    static const struct {
        const char *request;
        bool compressed;
    } rows[] = {
        {"HEAD /page?lines=50000 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n", true},
        {"HEAD /page?lines=60000 HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        _cleanup_close_ int fd = dial(*state);
        _cleanup_buf_ struct buf in = BUF_INIT(0);

        say(fd, rows[i].request, strlen(rows[i].request));
        assert_int_equal(hear(fd, &in, true), 200);
        assert_int_equal(strstr(in.data, "Content-Encoding: gzip\r\n") != NULL, rows[i].compressed);
        if (!rows[i].compressed)
            assert_true(strtoul(strstr(in.data, "Content-Length: ") + 16, NULL, 10) > (2 << 20));
    }
}

static void test_format_of_metrics(void **state) {
    static const struct {
        const char *accept;
        bool open;
    } rows[] = {
        {"", false},
        {"Accept: */*\r\n", false},
        {"Accept: application/openmetrics-text;version=1.0.0\r\n", true},
        /* As Prometheus 2.42 and 3 ask. */
        {"Accept: application/openmetrics-text;version=1.0.0,application/"
         "openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n",
         true},
        {"Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
         "text/plain;version=0.0.4;q=0.5\r\n",
         true},
        {"Accept: text/plain;q=0.9,application/openmetrics-text;q=0.8\r\n", false},
        {"Accept: application/openmetrics-text;q=0\r\n", false},
    };
    _cleanup_buf_ struct buf in = BUF_INIT(0);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void) get_page(*state, 1, rows[i].accept, &in);
        assert_non_null(strstr(
            in.data, rows[i].open ? "Content-Type: application/openmetrics-text; version=1.0.0"
                                  : "Content-Type: text/plain; version=0.0.4"));
    }
}

static void test_accept_quality(void **state) {
    (void) state;
    static const struct {
        const char *header, *name;
        unsigned quality;
    } rows[] = {
        {NULL, "gzip", 0},
        {"", "gzip", 0},
        {"gzip", "gzip", 1000},
        {"GZIP", "gzip", 1000},
        {"gzip2, x-gzip", "gzip", 0},
        {"*", "gzip", 0},
        {"br;q=1.0 , gzip ; q=0.8", "gzip", 800},
        {"gzip;q=0.123", "gzip", 123},
        {"gzip;q=0.1239", "gzip", 123},
        {"gzip;q=1.7", "gzip", 1000},
        {"gzip;q=0", "gzip", 0},
        {"gzip;q=", "gzip", 0},
        {"gzip;q=x", "gzip", 0},
        {"gzip;level=9;Q=0.5", "gzip", 500},
        {"gzip;q=0.1, gzip;q=0.7, gzip;q=0.3", "gzip", 700},
        {",,;;, gzip", "gzip", 1000},
        {"text/plain;version=0.0.4;q=0.3", "text/plain", 300},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(http_accept_quality(rows[i].header, rows[i].name), rows[i].quality);
}

static void test_prom(void **state) {
    (void) state;
    _cleanup_buf_ struct buf out = BUF_INIT(0), labels = BUF_INIT(0);
    struct prom_histogram h = {0};
    prom_family(&out, PROM_TEXT, "x_total", PROM_COUNTER, "What\\is \"x\"\nhere.");
    prom_labels(&labels, (const struct prom_label[]){{"a", "q\"b\\c\nd"}, {"e", "\xc3\xa9"}}, 2);
    prom_u64(&out, "x_total", buf_str(&labels), 3);
    prom_u64(&out, "x_total", "", UINT64_MAX);
    assert_string_equal(buf_str(&out),
                        "# HELP x_total What\\\\is \"x\"\\nhere.\n# TYPE x_total counter\n"
                        "x_total{a=\"q\\\"b\\\\c\\nd\",e=\"\xc3\xa9\"} 3\n"
                        "x_total 18446744073709551615\n");
    buf_reset(&out);
    prom_double(&out, "g", "", 0.25);
    prom_double(&out, "g", "", __builtin_nan(""));
    prom_double(&out, "g", "", -__builtin_inf());
    assert_string_equal(buf_str(&out), "g 0.25\ng NaN\ng -Inf\n");
    buf_reset(&out);
    prom_observe(&h, 10000); /* on the bound: le */
    prom_observe(&h, 10001);
    prom_observe(&h, UINT64_C(99000000000));
    prom_histogram_write(&out, "h", "v=\"f\"", &h);
    assert_non_null(strstr(buf_str(&out), "h_bucket{v=\"f\",le=\"0.00001\"} 1\n"));
    assert_non_null(strstr(buf_str(&out), "h_bucket{v=\"f\",le=\"0.000025\"} 2\n"));
    assert_non_null(strstr(buf_str(&out), "h_bucket{v=\"f\",le=\"10\"} 2\n"));
    assert_non_null(strstr(buf_str(&out), "h_bucket{v=\"f\",le=\"+Inf\"} 3\n"));
    assert_non_null(strstr(buf_str(&out), "h_sum{v=\"f\"} 99.000020001\nh_count{v=\"f\"} 3\n"));
    buf_reset(&out);
    prom_family(&out, PROM_OPENMETRICS, "x_total", PROM_COUNTER, "A \"b\".");
    prom_family(&out, PROM_OPENMETRICS, "DCGM_X", PROM_COUNTER, "A.");
    prom_family(&out, PROM_OPENMETRICS, "g_total", PROM_GAUGE, "A.");
    prom_end(&out, PROM_OPENMETRICS);
    prom_end(&out, PROM_TEXT);
    assert_string_equal(buf_str(&out), "# HELP x A \\\"b\\\".\n# TYPE x counter\n"
                                       "# HELP DCGM_X A.\n# TYPE DCGM_X unknown\n"
                                       "# HELP g_total A.\n# TYPE g_total gauge\n# EOF\n");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(test_routes),
        T(test_head),
        T(test_compressed_page),
        T(test_length_of_compressed_pages),
        T(test_format_of_metrics),
        cmocka_unit_test(test_accept_quality),
        T(test_keep_alive_and_pipelining),
        T(test_half_closed_peer),
        T(test_body_in_pieces),
        cmocka_unit_test_setup_teardown(test_long_bodies_are_reduced, setup_keep, teardown),
        T(test_too_large),
        T(test_unasked_body),
        cmocka_unit_test_setup_teardown(test_bodies_together, setup_crowded, teardown),
        cmocka_unit_test_setup_teardown(test_garbage, setup_hasty, teardown),
        T(test_huge_header),
        T(test_client_leaves),
        cmocka_unit_test_setup_teardown(test_greedy_client, setup_public, teardown),
        cmocka_unit_test_setup_teardown(test_own_host_is_let_in, setup_public, teardown),
        cmocka_unit_test_setup_teardown(test_slow_request, setup_strict, teardown),
        T(test_close_with_open_exchange),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_prom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
