/* SPDX-License-Identifier: Apache-2.0 */

/* Streams that end before their exchange does. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fail-malloc.h"
#include "h2-server.h"

/* Requests the server has not seen at its GOAWAY end as refused: they may be tried elsewhere. */
static void refuses_after_goaway(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen first = H2_SEEN_INIT, second = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &first, &stream);
    assert_int_equal(h2_conn_goaway(server.conn, H2_NO_ERROR), 0);
    assert_int_equal(h2_request(client, request, 4, "x", 1, &second, &stream), 0);
    const uint8_t *data;
    ssize_t n = h2_conn_pull(server.conn, &data);
    assert_true(n > 0);
    assert_int_equal(h2_conn_feed(client, data, (size_t) n), 0);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(second.closed);
    assert_int_equal(second.code, H2_REFUSED_STREAM);
    assert_false(second.lost);
    assert_false(first.closed);
    assert_false(h2_conn_is_done(client));

    static const struct h2_field head[] = {{":status", "204"}};
    assert_int_equal(h2_respond(server.last, head, 1, false), 0);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(first.closed);
    assert_int_equal(first.code, H2_NO_ERROR);
    assert_true(h2_conn_is_done(client));
    assert_true(h2_conn_is_done(server.conn));
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

static void resets_before_and_after_sending(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen early = H2_SEEN_INIT, late = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    assert_int_equal(h2_request(client, request, 4, "x", 1, &early, &stream), 0);
    h2_reset(stream, H2_CANCEL);
    h2_reset(stream, H2_CANCEL);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(early.closed);
    assert_int_equal(early.code, H2_CANCEL);
    assert_int_equal(server.opened, 0);
    ask(&server, client, &late, &stream);
    h2_reset(stream, H2_CANCEL);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(late.closed);
    assert_int_equal(server.closed, 1);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

/* Frames that a reset leaves unsent are no requests: the code of the reset stays. */
static void a_reset_keeps_its_code(void **state) {
    enum { SIZE = 1 << 20 };
    static const struct h2_field head[] = {{":status", "200"}};
    static const uint8_t body[SIZE];
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    const uint8_t *data;
    ssize_t n;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    /* The head of a response. */
    ask(&server, client, &seen, &stream);
    assert_int_equal(h2_respond(server.last, head, 1, true), 0);
    h2_reset(server.last, H2_CANCEL);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(seen.status, 0);
    assert_int_equal(server.closed, 1);
    assert_int_equal(server.code, H2_CANCEL);
    assert_int_equal(seen.code, H2_CANCEL);
    /* What the receiver of a body announces. */
    seen = (struct h2_seen) H2_SEEN_INIT;
    ask(&server, client, &seen, &stream);
    assert_int_equal(h2_respond(server.last, head, 1, true), 0);
    assert_int_equal(h2_write(server.last, body, SIZE), 0);
    while ((n = h2_conn_pull(server.conn, &data)) > 0)
        assert_int_equal(h2_conn_feed(client, data, (size_t) n), 0);
    assert_int_equal(seen.body.len, SIZE);
    h2_reset(stream, H2_CANCEL);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(seen.closed);
    assert_int_equal(seen.code, H2_CANCEL);
    assert_int_equal(server.code, H2_CANCEL);
    buf_done(&seen.body);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

static void a_handlers_failure_costs_one_stream(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen bad = H2_SEEN_INIT, good = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 0);
    server.answer = -ENOMEM;
    ask(&server, client, &bad, &stream);
    assert_true(bad.closed);
    assert_int_equal(bad.code, H2_INTERNAL_ERROR);
    server.answer = 0;
    ask(&server, client, &good, &stream);
    assert_true(good.closed);
    assert_int_equal(good.code, H2_NO_ERROR);
    buf_done(&good.body);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

/* The stream of a reset that cannot be queued ends with its connection, which says so at once. */
static void a_reset_without_memory_ends_the_connection(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &seen, &stream);
    fail_malloc_at(1);
    h2_reset(server.last, H2_CANCEL);
    assert_true(fail_malloc_end());
    assert_int_equal(h2_pair_pump(client, server.conn), -ENOMEM);
    assert_int_equal(h2_conn_feed(server.conn, (const uint8_t *) "", 0), -ENOMEM);
    h2_conn_free(server.conn);
    assert_int_equal(server.closed, 1);
    h2_conn_free(client);
    assert_true(seen.closed);
}

/* A reset that can be queued does not undo that. */
static void a_later_reset_does_not_save_the_connection(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen[2] = {H2_SEEN_INIT, H2_SEEN_INIT};
    struct h2_stream *stream, *first;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &seen[0], &stream);
    first = server.last;
    ask(&server, client, &seen[1], &stream);
    fail_malloc_at(1);
    h2_reset(first, H2_CANCEL);
    assert_true(fail_malloc_end());
    h2_reset(server.last, H2_CANCEL);
    assert_int_equal(h2_pair_pump(client, server.conn), -ENOMEM);
    h2_conn_free(server.conn);
    h2_conn_free(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_after_goaway),
        cmocka_unit_test(resets_before_and_after_sending),
        cmocka_unit_test(a_reset_keeps_its_code),
        cmocka_unit_test(a_handlers_failure_costs_one_stream),
        cmocka_unit_test(a_reset_without_memory_ends_the_connection),
        cmocka_unit_test(a_later_reset_does_not_save_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
