/* SPDX-License-Identifier: Apache-2.0 */

/* Compression in a thread, while the loop does other things. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <uv.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "wire/gzip.h"
#include "wire/http.h"

#define LENGTH (1u << 20)

struct outcome {
    unsigned calls;
    int result;
    size_t len;
};

static void on_done(struct buf *b, int result, void *userdata) {
    struct outcome *o = userdata;

    o->calls++;
    o->result = result;
    o->len = b->len;
    buf_done(b);
}

static void fill(struct buf *b) {
    for (unsigned i = 0; b->len < LENGTH; i++)
        buf_printf(b, "aliquot_x_total{number=\"%u\"} %u\n", i, i);
}

static void the_loop_does_not_wait(void **state) {
    struct buf content = BUF_INIT(0);
    struct outcome o = {0};
    struct gzip_job *job;
    uv_loop_t loop;

    (void) state;
    fill(&content);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(gzip_start(&loop, &content, on_done, &o, &job), 0);
    assert_int_equal(content.len, 0);
    assert_int_equal(o.calls, 0); /* only from the loop */
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(o.calls, 1);
    assert_int_equal(o.result, 0);
    assert_in_range(o.len, 1, LENGTH / 5);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_job_is_forgotten(void **state) {
    struct buf content = BUF_INIT(0);
    struct outcome o = {0};
    struct gzip_job *job;
    uv_loop_t loop;

    (void) state;
    fill(&content);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(gzip_start(&loop, &content, on_done, &o, &job), 0);
    gzip_forget(job);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(o.calls, 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- a server that closes meanwhile ---- */

static unsigned replies;

static void on_page(struct http_exchange *x, void *userdata) {
    struct buf out = BUF_INIT(0);

    (void) userdata;
    fill(&out);
    http_compress(x);
    http_reply(x, 200, "text/plain", &out);
    replies++;
}

static const struct http_route routes[] = {{"GET", "/page", on_page}, HTTP_ROUTE_END};

static int dial(const struct http_server *server) {
    static const char request[] = "GET /page HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t) http_server_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(send(fd, request, strlen(request), 0), strlen(request));
    return fd;
}

static void a_server_closes_meanwhile(void **state) {
    const struct http_options options = {.listen = "127.0.0.1:0", .routes = routes};
    struct http_server *server;
    char answer[4096];
    uv_loop_t loop;

    (void) state;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(http_server_start(&loop, &options, &server, NULL), 0);
    _cleanup_close_ int fd = dial(server);
    while (replies == 0)
        (void) uv_run(&loop, UV_RUN_ONCE);
    http_server_close(server);
    assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
    /* 503, or the page if it was compressed as soon; in no case nothing. */
    assert_true(recv(fd, answer, sizeof(answer), 0) > 0);
    assert_int_equal(memcmp(answer, "HTTP/1.1 ", 9), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_does_not_wait),
        cmocka_unit_test(a_job_is_forgotten),
        cmocka_unit_test(a_server_closes_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
