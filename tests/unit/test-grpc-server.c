/* SPDX-License-Identifier: Apache-2.0 */

/* Our gRPC server and client on real sockets and one loop, and peers that misbehave. */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "fail-malloc.h"
#include "wire/grpc_client.h"
#include "wire/grpc_server.h"

#define BOUND_MS 20000u

struct fixture {
    uv_loop_t loop;
    uv_timer_t bound; /* a test that hangs fails */
    char dir[64];
    char path[96];
    struct grpc_server *server;
    struct grpc_call *held;
    unsigned cancels, closed, results;
    int status;
    char text[256];
    size_t size;
    unsigned ping_ms; /* 0: as by default */
};

/* ---- methods ---- */

static void echo(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) userdata;
    grpc_call_reply(call, request, size);
}

static void refuse(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) request, (void) size, (void) userdata;
    grpc_call_finish(call, GRPC_FAILED_PRECONDITION, "not now: 100% of \xc3\xa4");
}

static void on_cancel(struct grpc_call *call, void *userdata) {
    struct fixture *f = userdata;
    f->cancels++;
    f->held = NULL;
    grpc_call_finish(call, GRPC_CANCELLED, NULL);
    uv_stop(&f->loop);
}

static void hold(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) request, (void) size;
    struct fixture *f = userdata;
    f->held = call;
    grpc_call_on_cancel(call, on_cancel, f);
    uv_stop(&f->loop);
}

static const struct grpc_method methods[] = {
    {"/t/Echo", echo}, {"/t/Refuse", refuse}, {"/t/Hold", hold}};

/* ---- set-up ---- */

static void on_bound(uv_timer_t *timer) {
    (void) timer;
    fprintf(stderr, "the test hangs\n");
    abort();
}

static void set_up_loop(struct fixture *f) {
    *f = (struct fixture){.dir = "/tmp/aliquot-test-XXXXXX", .status = -1};
    assert_non_null(mkdtemp(f->dir));
    (void) snprintf(f->path, sizeof(f->path), "%s/s.sock", f->dir);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_timer_init(&f->loop, &f->bound), 0);
    assert_int_equal(uv_timer_start(&f->bound, on_bound, BOUND_MS, 0), 0);
    uv_unref((uv_handle_t *) &f->bound);
}

static int start_server(struct fixture *f, struct err *err) {
    const struct grpc_server_options options = {
        .socket_path = f->path,
        .methods = methods,
        .n_methods = sizeof(methods) / sizeof(methods[0]),
        .userdata = f,
        .max_connections = 4,
        .ping_idle_ms = f->ping_ms,
        .ping_timeout_ms = f->ping_ms,
    };
    return grpc_server_start(&f->loop, &options, &f->server, err);
}

static void set_up(struct fixture *f) {
    struct err err = {0};
    set_up_loop(f);
    assert_int_equal(start_server(f, &err), 0);
}

static void on_closed(void *userdata) {
    struct fixture *f = userdata;
    f->closed++;
}

static void tear_down(struct fixture *f) {
    if (f->server)
        grpc_server_close(f->server, on_closed, f);
    uv_close((uv_handle_t *) &f->bound, NULL);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(f->closed, f->server ? 1 : 0);
    (void) unlink(f->path);
    assert_int_equal(rmdir(f->dir), 0);
}

static void on_result(const struct grpc_result *result, void *userdata) {
    struct fixture *f = userdata;
    f->results++;
    f->status = (int) result->status;
    f->size = result->size;
    (void) snprintf(f->text, sizeof(f->text), "%s", result->text);
    uv_stop(&f->loop);
}

static struct grpc_request *start_call(struct fixture *f, const char *method, const void *message,
                                       size_t size, unsigned timeout_ms) {
    const struct grpc_request_options options = {
        .socket_path = f->path,
        .method = method,
        .message = message,
        .size = size,
        .timeout_ms = timeout_ms,
    };
    struct grpc_request *request = NULL;
    struct err err = {0};
    assert_int_equal(grpc_request_start(&f->loop, &options, on_result, f, &request, &err), 0);
    return request;
}

static void run(struct fixture *f) {
    (void) uv_run(&f->loop, UV_RUN_DEFAULT);
}

/* ---- calls ---- */

static void client_and_server_agree(void **state) {
    struct fixture f;
    (void) state;
    _cleanup_free_ uint8_t *large = calloc(1, 5000000);
    assert_non_null(large);
    set_up(&f);
    (void) start_call(&f, "/t/Echo", "abc", 3, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.size, 3);
    (void) start_call(&f, "/t/Echo", NULL, 0, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.size, 0);
    (void) start_call(&f, "/t/Echo", large, 5000000, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.size, 5000000);
    (void) start_call(&f, "/t/Refuse", NULL, 0, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_FAILED_PRECONDITION);
    assert_string_equal(f.text, "not now: 100% of \xc3\xa4");
    (void) start_call(&f, "/t/None", NULL, 0, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_UNIMPLEMENTED);
    assert_int_equal(f.results, 5);
    tear_down(&f);
}

static void ends_calls_in_time(void **state) {
    struct fixture f;
    (void) state;
    set_up(&f);
    (void) start_call(&f, "/t/Hold", NULL, 0, 50);
    run(&f); /* until the handler has it */
    assert_non_null(f.held);
    assert_in_range(grpc_call_time_left(f.held), 0, 50);
    run(&f);
    if (!f.cancels)
        run(&f); /* the client's end and the server's come in either order */
    assert_int_equal(f.status, GRPC_DEADLINE_EXCEEDED);
    assert_int_equal(f.cancels, 1);
    tear_down(&f);
}

static void cancels_without_a_result(void **state) {
    struct fixture f;
    (void) state;
    set_up(&f);
    struct grpc_request *request = start_call(&f, "/t/Hold", NULL, 0, 0);
    run(&f);
    grpc_request_cancel(request);
    run(&f);
    assert_int_equal(f.cancels, 1);
    assert_int_equal(f.results, 0);
    tear_down(&f);
}

static void closes_with_a_status(void **state) {
    struct fixture f;
    (void) state;
    set_up(&f);
    (void) start_call(&f, "/t/Hold", NULL, 0, 0);
    run(&f);
    grpc_server_close(f.server, on_closed, &f);
    while (f.results == 0)
        run(&f);
    assert_int_equal(f.status, GRPC_UNAVAILABLE);
    assert_string_equal(f.text, "the server is shutting down");
    assert_int_equal(f.cancels, 1);
    run(&f);
    assert_int_equal(f.closed, 1);
    assert_int_not_equal(access(f.path, F_OK), 0);
    f.server = NULL;
    f.closed = 0;
    tear_down(&f);
}

static void says_why_there_is_no_answer(void **state) {
    struct fixture f;
    struct err err = {0};
    (void) state;
    set_up_loop(&f);
    (void) start_call(&f, "/t/Echo", NULL, 0, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_UNAVAILABLE);
    assert_non_null(strstr(f.text, "s.sock: no such file or directory"));

    char path[200];
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    const struct grpc_request_options options = {.socket_path = path, .method = "/t/Echo"};
    assert_int_equal(grpc_request_start(&f.loop, &options, on_result, &f, NULL, &err),
                     -ENAMETOOLONG);
    tear_down(&f);
}

/* ---- the socket file ---- */

static void makes_a_private_socket(void **state) {
    struct fixture f;
    struct stat st;
    struct err err = {0};
    (void) state;
    set_up(&f);
    assert_int_equal(lstat(f.path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_true(grpc_server_socket_exists(f.server));

    struct grpc_server *first = f.server;
    assert_int_equal(start_server(&f, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, "another process listens on"));
    assert_ptr_equal(f.server, first);
    assert_true(grpc_server_socket_exists(f.server));
    tear_down(&f);
}

static void leaves_the_files_of_others(void **state) {
    struct fixture f;
    struct err err = {0};
    (void) state;
    set_up_loop(&f);
    int fd = open(f.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(start_server(&f, &err), -EEXIST);
    assert_int_equal(unlink(f.path), 0);

    /* kubelet removes our socket and another process makes one of that name: not ours any more. */
    assert_int_equal(start_server(&f, &err), 0);
    assert_int_equal(unlink(f.path), 0);
    assert_false(grpc_server_socket_exists(f.server));
    fd = open(f.path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_false(grpc_server_socket_exists(f.server));
    grpc_server_close(f.server, on_closed, &f);
    run(&f);
    assert_int_equal(access(f.path, F_OK), 0);
    f.server = NULL;
    f.closed = 0;
    tear_down(&f);
}

/* ---- peers that misbehave ---- */

struct peer {
    struct fixture *fixture;
    uv_poll_t poll;
    int fd;
    bool ended;
    size_t got;
};

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct peer *peer = poll->data;
    char bytes[4096];
    (void) status, (void) events;
    ssize_t n = recv(peer->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n > 0) {
        peer->got += (size_t) n;
        return;
    }
    peer->ended = true;
    (void) uv_poll_stop(poll);
    uv_stop(&peer->fixture->loop);
}

static void connect_peer(struct fixture *f, struct peer *peer, const void *bytes, size_t size) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
    *peer = (struct peer){.fixture = f};
    peer->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(peer->fd >= 0);
    assert_int_equal(connect(peer->fd, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(send(peer->fd, bytes, size, MSG_NOSIGNAL), size);
    assert_int_equal(uv_poll_init(&f->loop, &peer->poll, peer->fd), 0);
    peer->poll.data = peer;
    assert_int_equal(uv_poll_start(&peer->poll, UV_READABLE, on_readable), 0);
}

static void drop_peer(struct peer *peer) {
    uv_close((uv_handle_t *) &peer->poll, NULL);
    (void) uv_run(&peer->fixture->loop, UV_RUN_NOWAIT);
    (void) close(peer->fd);
}

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                              "\0\0\0\4\0\0\0\0\0"; /* and empty SETTINGS */

/* Says hello and no more, like a kubelet that hangs: neither it nor a silent one is kept. */
static void drops_peers_that_do_not_answer(void **state) {
    struct fixture f;
    struct peer hangs, silent;
    struct err err = {0};
    (void) state;
    set_up_loop(&f);
    f.ping_ms = 100;
    assert_int_equal(start_server(&f, &err), 0);
    connect_peer(&f, &hangs, preface, sizeof(preface) - 1);
    connect_peer(&f, &silent, "", 0);
    while (!hangs.ended || !silent.ended)
        run(&f);
    assert_true(hangs.got > 0);
    drop_peer(&hangs);
    drop_peer(&silent);
    (void) start_call(&f, "/t/Echo", "abc", 3, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_OK);
    tear_down(&f);
}

static void bounds_the_connections(void **state) {
    struct fixture f;
    struct peer peers[6];
    unsigned ended = 0;
    (void) state;
    set_up(&f);
    for (size_t i = 0; i < 6; i++)
        connect_peer(&f, &peers[i], preface, sizeof(preface) - 1);
    while (!peers[4].ended || !peers[5].ended)
        run(&f);
    for (size_t i = 0; i < 4; i++)
        ended += peers[i].ended;
    assert_int_equal(ended, 0);
    for (size_t i = 0; i < 6; i++)
        drop_peer(&peers[i]);
    tear_down(&f);
}

static void survives_garbage(void **state) {
    static const char *const garbage[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "PRI * X"};
    struct fixture f;
    (void) state;
    set_up(&f);
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        struct peer peer;
        connect_peer(&f, &peer, garbage[i], strlen(garbage[i]));
        while (!peer.ended)
            run(&f);
        drop_peer(&peer);
    }
    (void) start_call(&f, "/t/Echo", "abc", 3, 0);
    run(&f);
    assert_int_equal(f.status, GRPC_OK);
    tear_down(&f);
}

/* ---- no memory ---- */

/* 0: the call succeeded. Whatever fails, there is a result or an error, and everything closes. */
static int scenario(struct fixture *f, size_t nth) {
    static const uint8_t message[50000];
    const struct grpc_request_options options = {
        .socket_path = f->path,
        .method = "/t/Echo",
        .message = message,
        .size = sizeof(message),
        .timeout_ms = 2000,
    };
    struct err err = {0};
    fail_malloc_at(nth);
    int r = start_server(f, &err);
    if (r == 0)
        r = grpc_request_start(&f->loop, &options, on_result, f, NULL, &err);
    if (r < 0) {
        assert_int_equal(err.code, ENOMEM);
        return r;
    }
    run(f);
    assert_int_equal(f->results, 1);
    if (f->status == GRPC_OK)
        assert_int_equal(f->size, sizeof(message));
    return f->status == GRPC_OK ? 0 : -EIO;
}

static void survives_every_failed_allocation(void **state) {
    bool failed = true;
    (void) state;
    for (size_t nth = 1; failed; nth++) {
        struct fixture f;
        set_up_loop(&f);
        int r = scenario(&f, nth);
        failed = fail_malloc_end();
        assert_true(failed || r == 0);
        tear_down(&f);
        assert_in_range(nth, 1, 1000);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_and_server_agree),
        cmocka_unit_test(ends_calls_in_time),
        cmocka_unit_test(cancels_without_a_result),
        cmocka_unit_test(closes_with_a_status),
        cmocka_unit_test(says_why_there_is_no_answer),
        cmocka_unit_test(makes_a_private_socket),
        cmocka_unit_test(leaves_the_files_of_others),
        cmocka_unit_test(drops_peers_that_do_not_answer),
        cmocka_unit_test(bounds_the_connections),
        cmocka_unit_test(survives_garbage),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
