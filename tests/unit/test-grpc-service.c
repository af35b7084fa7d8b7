/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "fail-malloc.h"
#include "h2-pair.h"
#include "wire/grpc_service.h"
#include "wire/h2.h"

#define LARGE 3000000u

struct fixture {
    struct grpc_service service;
    struct grpc_peer peer;
    struct h2_conn *client, *server;
    struct grpc_call *held; /* what a handler keeps for later */
    unsigned calls, cancels;
    uint64_t now;
};

/* ---- the methods ---- */

static void echo(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    struct fixture *f = userdata;
    f->calls++;
    grpc_call_reply(call, request, size);
}

static void refuse(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) request, (void) size, (void) userdata;
    grpc_call_finish(call, GRPC_NOT_FOUND, "no 100%\n");
}

static void on_cancel(struct grpc_call *call, void *userdata) {
    struct fixture *f = userdata;
    assert_false(grpc_call_is_live(call));
    f->cancels++;
}

static void hold(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) request, (void) size;
    struct fixture *f = userdata;
    f->calls++;
    f->held = call;
    grpc_call_on_cancel(call, on_cancel, f);
}

static void large(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    (void) request, (void) size, (void) userdata;
    _cleanup_free_ uint8_t *bytes = malloc(LARGE);
    if (!bytes) {
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = (uint8_t) (i * 31);
    grpc_call_reply(call, bytes, LARGE);
}

static const struct grpc_method methods[] = {
    {"/t/Echo", echo},
    {"/t/Fail", refuse},
    {"/t/Hold", hold},
    {"/t/Large", large},
};

static uint64_t now_ms(void *clock) {
    return ((struct fixture *) clock)->now;
}

/* ---- set-up; these return errors, as the torture test makes them fail ---- */

static int set_up(struct fixture *f) {
    *f = (struct fixture){.now = 1000};
    f->service = (struct grpc_service){
        .methods = methods,
        .n_methods = sizeof(methods) / sizeof(methods[0]),
        .userdata = f,
        .max_request = 4 * LARGE,
        .max_queued = 2 * LARGE,
        .now_ms = now_ms,
        .clock = f,
    };
    f->peer.service = &f->service;
    const struct h2_options client = {.handlers = &h2_seen_handlers};
    int r = h2_conn_new(&client, &f->client);
    return r < 0 ? r : grpc_service_accept(&f->peer, &f->server);
}

static void tear_down(struct fixture *f) {
    h2_conn_free(f->client);
    h2_conn_free(f->server);
    assert_null(f->service.calls);
}

static int start_call(struct fixture *f, const char *path, const void *body, size_t size,
                      const char *timeout, struct h2_seen *seen, struct h2_stream **ret) {
    const struct h2_field fields[] = {
        {":method", "POST"},
        {":scheme", "http"},
        {":path", path},
        {":authority", "/a/path"},
        {"content-type", "application/grpc+proto"},
        {"grpc-timeout", timeout},
    };
    return h2_request(f->client, fields, timeout ? 6 : 5, body, size, seen, ret);
}

static int start_message(struct fixture *f, const char *path, const void *message, size_t size,
                         struct h2_seen *seen, struct h2_stream **ret) {
    _cleanup_free_ uint8_t *body = malloc(GRPC_PREFIX_SIZE + size);
    if (!body)
        return -ENOMEM;
    grpc_put_prefix(body, size);
    memcpy(body + GRPC_PREFIX_SIZE, message, size);
    return start_call(f, path, body, GRPC_PREFIX_SIZE + size, NULL, seen, ret);
}

/* One call from beginning to end; its seen.body is the caller's to free. */
static struct h2_seen call(const char *path, const void *body, size_t size) {
    struct fixture f;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    assert_int_equal(set_up(&f), 0);
    assert_int_equal(start_call(&f, path, body, size, NULL, &seen, &stream), 0);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_true(seen.closed);
    assert_false(seen.lost);
    tear_down(&f);
    return seen;
}

#define BYTES(text) (text), sizeof(text) - 1

/* ---- unary ---- */

static void answers(void **state) {
    (void) state;
    struct h2_seen seen = call("/t/Echo", BYTES("\0\0\0\0\3abc"));
    assert_int_equal(seen.status, 200);
    assert_int_equal(seen.grpc_status, GRPC_OK);
    assert_string_equal(seen.message, "");
    assert_true(seen.ended);
    assert_int_equal(seen.body.len, 8);
    assert_memory_equal(seen.body.data, "\0\0\0\0\3abc", 8);
    buf_done(&seen.body);

    seen = call("/t/Echo", BYTES("\0\0\0\0\0")); /* an empty message is one */
    assert_int_equal(seen.grpc_status, GRPC_OK);
    assert_int_equal(seen.body.len, 5);
    buf_done(&seen.body);
}

static void answers_with_errors(void **state) {
    static const struct {
        const char *path, *body;
        size_t size;
        int status;
        const char *message;
    } rows[] = {
        {"/t/Fail", BYTES("\0\0\0\0\0"), GRPC_NOT_FOUND, "no 100%25%0A"},
        {"/t/None", BYTES("\0\0\0\0\0"), GRPC_UNIMPLEMENTED, "unknown method"},
        {"/t/Echo", NULL, 0, GRPC_INVALID_ARGUMENT, "no complete request message"},
        {"/t/Echo", BYTES("\0\0\0"), GRPC_INVALID_ARGUMENT, "no complete request message"},
        {"/t/Echo", BYTES("\0\0\0\0\4abc"), GRPC_INVALID_ARGUMENT, "no complete request message"},
        {"/t/Echo", BYTES("\0\0\0\0\1a\0\0\0\0\1b"), GRPC_INVALID_ARGUMENT,
         "more than one request message"},
        {"/t/Echo", BYTES("\1\0\0\0\1a"), GRPC_UNIMPLEMENTED,
         "compressed messages are not supported"},
        {"/t/Echo", BYTES("\2\0\0\0\1a"), GRPC_INTERNAL, "malformed message frame"},
        {"/t/Echo", BYTES("\0\xff\0\0\0a"), GRPC_RESOURCE_EXHAUSTED, "request message is too long"},
    };
    (void) state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct h2_seen seen = call(rows[i].path, rows[i].body, rows[i].size);
        assert_int_equal(seen.status, 200);
        assert_int_equal(seen.grpc_status, rows[i].status);
        assert_string_equal(seen.message, rows[i].message);
        assert_int_equal(seen.body.len, 0);
    }
}

static void turns_other_http_away(void **state) {
    const struct h2_field fields[] = {
        {":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "x"}};
    struct fixture f;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    assert_int_equal(set_up(&f), 0);
    assert_int_equal(h2_request(f.client, fields, 4, NULL, 0, &seen, &stream), 0);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(seen.status, 415);
    assert_int_equal(seen.grpc_status, -1);
    assert_true(seen.closed);
    tear_down(&f);
}

static void check_large(const struct h2_seen *seen) {
    assert_int_equal(seen->body.len, LARGE + GRPC_PREFIX_SIZE);
    for (size_t i = 0; i < LARGE; i += 997)
        assert_int_equal((uint8_t) seen->body.data[GRPC_PREFIX_SIZE + i], (uint8_t) (i * 31));
}

static void sends_more_than_the_windows(void **state) {
    (void) state;
    struct h2_seen seen = call("/t/Large", BYTES("\0\0\0\0\0"));
    assert_int_equal(seen.grpc_status, GRPC_OK);
    check_large(&seen);
    buf_done(&seen.body);
}

static void takes_more_than_the_windows(void **state) {
    struct fixture f;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    _cleanup_free_ uint8_t *message = calloc(1, 3 * LARGE);
    assert_non_null(message);
    assert_int_equal(set_up(&f), 0);
    assert_int_equal(start_message(&f, "/t/Echo", message, 3 * LARGE, &seen, &stream), 0);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(seen.grpc_status, GRPC_OK);
    assert_int_equal(seen.body.len, 3 * LARGE + GRPC_PREFIX_SIZE);
    buf_done(&seen.body);
    tear_down(&f);
}

/* ---- deferred and streaming ---- */

static void start_hold(struct fixture *f, const char *timeout, struct h2_seen *seen,
                       struct h2_stream **ret) {
    *seen = (struct h2_seen) H2_SEEN_INIT;
    f->held = NULL;
    assert_int_equal(start_call(f, "/t/Hold", BYTES("\0\0\0\0\0"), timeout, seen, ret), 0);
    assert_int_equal(h2_pair_pump(f->client, f->server), 0);
    assert_non_null(f->held);
    assert_true(grpc_call_is_live(f->held));
    assert_false(seen->closed);
}

static void answers_later(void **state) {
    struct fixture f;
    struct h2_seen seen;
    struct h2_stream *stream;
    (void) state;
    assert_int_equal(set_up(&f), 0);
    start_hold(&f, "250m", &seen, &stream);
    assert_int_equal(grpc_call_time_left(f.held), 250);
    f.now += 300;
    assert_int_equal(grpc_call_time_left(f.held), 0);
    grpc_call_reply(f.held, (const uint8_t *) "x", 1);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(seen.grpc_status, GRPC_OK);
    assert_int_equal(seen.body.len, 6);
    assert_int_equal(f.cancels, 0);
    buf_done(&seen.body);

    start_hold(&f, NULL, &seen, &stream);
    assert_int_equal(grpc_call_time_left(f.held), UINT64_MAX);
    grpc_call_finish(f.held, GRPC_OK, NULL);
    tear_down(&f);
    assert_true(seen.closed);
}

static void streams(void **state) {
    struct fixture f;
    struct h2_seen seen;
    struct h2_stream *stream;
    (void) state;
    assert_int_equal(set_up(&f), 0);
    start_hold(&f, NULL, &seen, &stream);
    for (size_t i = 1; i <= 3; i++) {
        assert_int_equal(grpc_call_send(f.held, (const uint8_t *) "abc", 3), 0);
        assert_int_equal(h2_pair_pump(f.client, f.server), 0);
        assert_int_equal(seen.body.len, i * 8);
        assert_false(seen.ended);
    }
    grpc_call_finish(f.held, GRPC_ABORTED, "enough");
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(seen.grpc_status, GRPC_ABORTED);
    assert_string_equal(seen.message, "enough");
    assert_true(seen.closed);
    assert_int_equal(f.cancels, 0);
    buf_done(&seen.body);
    tear_down(&f);
}

static void bounds_what_is_queued(void **state) {
    struct fixture f;
    struct h2_seen seen;
    struct h2_stream *stream;
    (void) state;
    _cleanup_free_ uint8_t *bytes = calloc(1, LARGE);
    assert_non_null(bytes);
    assert_int_equal(set_up(&f), 0);
    start_hold(&f, NULL, &seen, &stream);
    assert_int_equal(grpc_call_send(f.held, bytes, LARGE), 0);
    assert_int_equal(grpc_call_send(f.held, bytes, LARGE), -ENOBUFS);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(grpc_call_send(f.held, bytes, LARGE), 0);
    grpc_call_finish(f.held, GRPC_OK, NULL);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(seen.grpc_status, GRPC_OK);
    assert_int_equal(seen.body.len, 2 * (LARGE + GRPC_PREFIX_SIZE));
    buf_done(&seen.body);
    tear_down(&f);
}

/* ---- the end of one side ---- */

static void hears_of_a_cancel(void **state) {
    struct fixture f;
    struct h2_seen seen;
    struct h2_stream *stream;
    (void) state;
    assert_int_equal(set_up(&f), 0);
    start_hold(&f, NULL, &seen, &stream);
    h2_reset(stream, H2_CANCEL);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(f.cancels, 1);
    assert_int_equal(grpc_call_send(f.held, (const uint8_t *) "x", 1), -ECONNRESET);
    grpc_call_reply(f.held, (const uint8_t *) "x", 1); /* has no effect */
    tear_down(&f);
}

static void hears_of_a_lost_connection(void **state) {
    struct fixture f;
    struct h2_seen seen;
    struct h2_stream *stream;
    (void) state;
    assert_int_equal(set_up(&f), 0);
    start_hold(&f, NULL, &seen, &stream);
    struct grpc_call *held = f.held;
    h2_conn_free(f.server);
    assert_int_equal(f.cancels, 1);
    grpc_call_finish(held, GRPC_OK, NULL);
    f.server = NULL;
    tear_down(&f);
}

static void shuts_down(void **state) {
    struct fixture f;
    struct h2_seen seen, late = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    assert_int_equal(set_up(&f), 0);
    start_hold(&f, "1S", &seen, &stream);
    grpc_service_shutdown(&f.service);
    assert_int_equal(f.cancels, 1);
    assert_int_equal(grpc_call_time_left(f.held), 0);
    assert_int_equal(start_message(&f, "/t/Echo", "a", 1, &late, &stream), 0);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(seen.grpc_status, GRPC_UNAVAILABLE);
    assert_true(seen.closed);
    assert_int_equal(late.grpc_status, GRPC_UNAVAILABLE);
    tear_down(&f);
    grpc_call_finish(f.held, GRPC_OK, NULL); /* the handler may be later than everything */
}

static void hold_and_end(struct grpc_call *call_, void *userdata) {
    struct fixture *f = userdata;
    f->cancels++;
    grpc_call_finish(call_, GRPC_CANCELLED, "gone");
}

static void may_end_a_call_in_its_cancel(void **state) {
    struct fixture f;
    struct h2_seen seen;
    struct h2_stream *stream;
    (void) state;
    assert_int_equal(set_up(&f), 0);
    start_hold(&f, NULL, &seen, &stream);
    grpc_call_on_cancel(f.held, hold_and_end, &f);
    h2_reset(stream, H2_CANCEL);
    assert_int_equal(h2_pair_pump(f.client, f.server), 0);
    assert_int_equal(f.cancels, 1);
    start_hold(&f, NULL, &seen, &stream);
    grpc_call_on_cancel(f.held, hold_and_end, &f);
    grpc_service_shutdown(&f.service);
    assert_int_equal(f.cancels, 2);
    tear_down(&f);
}

/* ---- no memory ---- */

/* A unary call and a stream with a cancel; whatever fails, nothing crashes, nothing leaks (the
 * sanitizer's job), and an answer that says OK is the right one. */
static int scenario(struct fixture *f) {
    struct h2_seen seen = H2_SEEN_INIT, held = H2_SEEN_INIT;
    struct h2_stream *stream;
    static uint8_t message[50000];
    int r = set_up(f);
    if (r == 0)
        r = start_message(f, "/t/Echo", message, sizeof(message), &seen, &stream);
    if (r == 0)
        r = start_call(f, "/t/Hold", BYTES("\0\0\0\0\0"), "1S", &held, &stream);
    if (r == 0)
        r = h2_pair_pump(f->client, f->server);
    if (r == 0 && f->held)
        (void) grpc_call_send(f->held, message, sizeof(message));
    if (r == 0)
        r = h2_pair_pump(f->client, f->server);
    bool ok = r == 0 && seen.grpc_status == GRPC_OK && seen.ended &&
              seen.body.len == sizeof(message) + GRPC_PREFIX_SIZE &&
              held.body.len == sizeof(message) + GRPC_PREFIX_SIZE;
    if (seen.grpc_status == GRPC_OK && seen.closed && seen.code == 0)
        assert_int_equal(seen.body.len, sizeof(message) + GRPC_PREFIX_SIZE);
    h2_conn_free(f->client);
    h2_conn_free(f->server);
    if (f->held)
        grpc_call_finish(f->held, GRPC_CANCELLED, NULL);
    assert_null(f->service.calls);
    buf_done(&seen.body);
    buf_done(&held.body);
    return ok ? 0 : -1;
}

static void survives_every_failed_allocation(void **state) {
    (void) state;
    for (size_t nth = 1;; nth++) {
        struct fixture f = {0};
        fail_malloc_at(nth);
        int r = scenario(&f);
        if (!fail_malloc_end()) {
            assert_int_equal(r, 0);
            assert_in_range(nth, 30, 10000);
            return;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(answers_with_errors),
        cmocka_unit_test(turns_other_http_away),
        cmocka_unit_test(sends_more_than_the_windows),
        cmocka_unit_test(takes_more_than_the_windows),
        cmocka_unit_test(answers_later),
        cmocka_unit_test(streams),
        cmocka_unit_test(bounds_what_is_queued),
        cmocka_unit_test(hears_of_a_cancel),
        cmocka_unit_test(hears_of_a_lost_connection),
        cmocka_unit_test(shuts_down),
        cmocka_unit_test(may_end_a_call_in_its_cancel),
        cmocka_unit_test(survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
