/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first */
#include <arpa/inet.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "wire/http.h"

/* A server on its own thread; the test is the client. */
struct fixture {
    uv_loop_t loop;
    uv_async_t stop, wake;
    struct http_server *server;
    struct http_exchange *exchange; /* of the stream */
    atomic_uint room;               /* bytes that the stream may still say */
    atomic_uint said, asked, done;
    pthread_t thread;
    unsigned port;
};

static size_t fill(void *userdata, char *to, size_t max) {
    struct fixture *f = userdata;
    unsigned room = f->room;
    size_t n = room < max ? room : max;
    memset(to, 'x', n);
    f->room -= (unsigned) n;
    f->said += (unsigned) n;
    f->asked++;
    return n;
}

static void on_done(void *userdata) {
    struct fixture *f = userdata;
    f->exchange = NULL;
    f->done++;
}

static void on_stream(struct http_exchange *x, void *userdata) {
    struct fixture *f = userdata;
    f->exchange = x;
    http_reply_stream(x, "text/event-stream", &(struct http_stream){fill, on_done, f});
}

static void on_headers(struct http_exchange *x, void *userdata) {
    const char *header = http_header(x, "X-One"), *other = http_header(x, "X-Two");
    struct buf out = BUF_INIT(0);
    (void) userdata;
    buf_printf(&out, "header %s other %s", header ? header : "-", other ? other : "-");
    http_set_header(x, "X-Own", "dropped");
    http_set_header(x, "X-Own", "kept");
    http_reply(x, 200, "text/plain", &out);
}

static const struct http_route routes[] = {
    {"GET", "/stream", on_stream},
    {"GET", "/headers", on_headers},
    HTTP_ROUTE_END,
};

static const struct http_header headers[] = {{"X-All", "yes"}, {0}};

static void on_stop(uv_async_t *async) {
    struct fixture *f = async->data;
    http_server_close(f->server);
    uv_close((uv_handle_t *) &f->stop, NULL);
    uv_close((uv_handle_t *) &f->wake, NULL);
}

static void on_wake(uv_async_t *async) {
    struct fixture *f = async->data;
    if (f->exchange)
        http_stream_wake(f->exchange);
}

static void *serve(void *userdata) {
    struct fixture *f = userdata;
    (void) uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    const struct http_options o = {
        .listen = "127.0.0.1:0", .routes = routes, .userdata = f, .headers = headers};
    struct err err;
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_async_init(&f->loop, &f->stop, on_stop), 0);
    assert_int_equal(uv_async_init(&f->loop, &f->wake, on_wake), 0);
    f->stop.data = f->wake.data = f;
    if (http_server_start(&f->loop, &o, &f->server, &err) < 0)
        fail_msg("%s", err.text);
    f->port = http_server_port(f->server);
    assert_int_equal(pthread_create(&f->thread, NULL, serve, f), 0);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    (void) uv_async_send(&f->stop);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

/* A connection that has sent the request. */
static int ask(const struct fixture *f, const char *request) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) f->port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct timeval patience = {20, 0}; /* a bound, so that a failure is no hang */
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    return fd;
}

/* Reads until it has the text, or `xs` letters x; false where the connection ends before. */
static bool hear(int fd, const char *text, size_t xs) {
    _cleanup_buf_ struct buf in = BUF_INIT(0);
    for (size_t seen = 0; !(text ? strstr(buf_str(&in), text) != NULL : seen >= xs);) {
        char part[512];
        ssize_t n = recv(fd, part, sizeof(part), 0);
        if (n <= 0)
            return false;
        buf_append(&in, part, (size_t) n);
        for (ssize_t i = 0; i < n; i++)
            seen += part[i] == 'x';
    }
    return true;
}

static void say_more(struct fixture *f, unsigned bytes) {
    f->room += bytes;
    (void) uv_async_send(&f->wake);
}

static void test_headers(void **state) {
    _cleanup_close_ int fd = ask(*state, "GET /headers HTTP/1.1\r\nHost: x\r\nx-one: 1\r\n\r\n");
    char in[1024] = "";
    size_t len = 0;
    while (!strstr(in, "other")) {
        ssize_t n = recv(fd, in + len, sizeof(in) - 1 - len, 0);
        assert_true(n > 0);
        len += (size_t) n;
    }
    assert_non_null(strstr(in, "header 1 other -"));
    assert_non_null(strstr(in, "X-All: yes\r\n"));
    assert_non_null(strstr(in, "X-Own: kept\r\n"));
    assert_null(strstr(in, "dropped"));
    _cleanup_close_ int other = ask(*state, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(hear(other, "X-All: yes\r\n", 0)); /* also of what has no handler */
}

static void test_waits_for_more(void **state) {
    struct fixture *f = *state;
    _cleanup_close_ int fd = ask(f, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(hear(fd, "text/event-stream\r\n", 0));
    say_more(f, 3);
    assert_true(hear(fd, NULL, 3));
    unsigned asked = f->asked;
    say_more(f, 100000);
    assert_true(hear(fd, NULL, 100000));
    assert_true(f->asked > asked);
    assert_int_equal(f->room, 0);
}

/* What it does not take is not asked for: sockets hold some megabytes, and nothing else anything.
 */
static void test_slow_client(void **state) {
    struct fixture *f = *state;
    const unsigned much = 1u << 30;
    f->room = much;
    int fd = ask(f, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(hear(fd, "text/event-stream\r\n", 0));
    unsigned before;
    do { /* until the sockets are full */
        before = f->said;
        _cleanup_close_ int other = ask(f, "GET /headers HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(hear(other, "other", 0)); /* and others are served */
    } while (f->said != before);
    assert_true(f->said < much / 4);
    assert_int_equal(f->done, 0);
    (void) close(fd);
    while (f->done == 0) { /* the end is noticed without a wake */
        _cleanup_close_ int other = ask(f, "GET /headers HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(hear(other, "other", 0));
    }
}

/* One that rests is noticed to be gone when there is more to say. */
static void test_gone_client(void **state) {
    struct fixture *f = *state;
    int fd = ask(f, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(hear(fd, "text/event-stream\r\n", 0));
    (void) close(fd);
    while (f->done == 0) {
        say_more(f, 1);
        _cleanup_close_ int other = ask(f, "GET /headers HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(hear(other, "other", 0));
    }
    assert_int_equal(f->done, 1);
}

/* The end of the server (teardown) ends a stream that rests, too. */
static void test_end_of_server(void **state) {
    struct fixture *f = *state;
    int fd = ask(f, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(hear(fd, "text/event-stream\r\n", 0));
    while (f->asked == 0)
        (void) sched_yield();
    (void) uv_async_send(&f->stop);
    assert_int_equal(pthread_join(f->thread, NULL), 0);
    assert_int_equal(f->done, 1);
    assert_false(hear(fd, NULL, 1));
    (void) close(fd);
}

static int teardown_ended(void **state) {
    struct fixture *f = *state;
    assert_int_equal(uv_loop_close(&f->loop), 0);
    free(f);
    return 0;
}

/* The server reads a request in its last turn: its handler must not be called, the exchange is
 * freed in a moment. */
static void test_request_at_the_end(void **state) {
    static const char late[] = "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n";
    struct fixture f = {0};
    const struct http_options o = {.listen = "127.0.0.1:0", .routes = routes, .userdata = &f};
    char byte;
    (void) state;
    assert_int_equal(uv_loop_init(&f.loop), 0);
    assert_int_equal(http_server_start(&f.loop, &o, &f.server, NULL), 0);
    f.port = http_server_port(f.server);
    _cleanup_close_ int fd = ask(&f, "GET /headers HTTP/1.1\r\nHost: x\r\n\r\n");
    while (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 1)
        (void) uv_run(&f.loop, UV_RUN_ONCE);
    assert_true(hear(fd, "other -", 0));
    assert_int_equal(send(fd, late, sizeof(late) - 1, MSG_NOSIGNAL), sizeof(late) - 1);
    http_server_close(f.server);
    assert_int_equal(f.done, 0);
    assert_true(hear(fd, "the server is stopping", 0));
    (void) uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f.loop), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_headers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits_for_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_slow_client, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gone_client, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end_of_server, setup, teardown_ended),
        cmocka_unit_test(test_request_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
