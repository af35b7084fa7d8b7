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

#include "fail-malloc.h"
#include "h2-server.h"

static void carries_bodies_and_trailers(void **state) {
    enum { SIZE = 200000 };
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    static uint8_t body[SIZE];
    (void) state;
    for (size_t i = 0; i < SIZE; i++)
        body[i] = (uint8_t) (i * 7);
    set_up(&server, &client, 0);
    assert_int_equal(h2_request(client, request, 4, body, SIZE, &seen, &stream), 0);
    assert_true(h2_conn_has_streams(client));
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(seen.status, 200);
    assert_int_equal(seen.grpc_status, 7);
    assert_int_equal(seen.body.len, SIZE);
    assert_memory_equal(seen.body.data, body, SIZE);
    assert_true(seen.closed);
    assert_false(h2_conn_has_streams(client));
    assert_false(h2_conn_has_streams(server.conn));
    assert_int_equal(server.wakes, 0); /* everything happened inside feed */
    buf_done(&seen.body);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

static void queues_over_the_peers_limit(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen[10];
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 3);
    assert_int_equal(h2_pair_pump(client, server.conn), 0); /* settings */
    for (size_t i = 0; i < 10; i++) {
        seen[i] = (struct h2_seen) H2_SEEN_INIT;
        assert_int_equal(h2_request(client, request, 4, "x", 1, &seen[i], &stream), 0);
    }
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(server.opened, 10);
    assert_in_range(server.most_open, 1, 3);
    for (size_t i = 0; i < 10; i++) {
        assert_true(seen[i].closed);
        assert_int_equal(seen[i].body.len, 1);
        buf_done(&seen[i].body);
    }
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

/* The stream, its body, and the copies of the trailers. */
static void messages_without_memory_are_refused(void **state) {
    static const struct h2_field trailers[] = {{"grpc-status", "0"}};
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream = NULL;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    for (size_t nth = 1; nth <= 2; nth++) {
        fail_malloc_at(nth);
        assert_int_equal(h2_request(client, request, 4, "x", 1, &seen, &stream), -ENOMEM);
        assert_true(fail_malloc_end());
        assert_null(stream);
        assert_false(h2_conn_has_streams(client));
    }
    ask(&server, client, &seen, &stream);
    fail_malloc_at(1);
    assert_int_equal(h2_finish(server.last, trailers, 1), -ENOMEM);
    assert_true(fail_malloc_end());
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(seen.closed);
    assert_int_equal(seen.code, H2_INTERNAL_ERROR);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

/* A body that is written while a part of it has left arrives whole and in order, and so do
 * trailers.
 */
static void a_body_written_in_parts_arrives_in_order(void **state) {
    enum { PARTS = 6, PART = 30000 };
    static const struct h2_field head[] = {{":status", "200"}};
    static const struct h2_field trailers[] = {{"grpc-message", "m"}, {"grpc-status", "3"}};
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    static uint8_t body[PARTS * PART];
    const uint8_t *bytes;
    (void) state;
    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (uint8_t) (i * 7 + i / 256);
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &seen, &stream);
    assert_int_equal(h2_respond(server.last, head, 1, true), 0);
    for (size_t i = 0; i < PARTS; i++) {
        assert_int_equal(h2_write(server.last, body + i * PART, PART), 0);
        ssize_t n = h2_conn_pull(server.conn, &bytes);
        assert_true(n > 0);
        assert_int_equal(h2_conn_feed(client, bytes, (size_t) n), 0);
    }
    assert_int_equal(h2_finish(server.last, trailers, 2), 0);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(seen.body.len, sizeof(body));
    assert_memory_equal(seen.body.data, body, sizeof(body));
    assert_int_equal(seen.grpc_status, 3);
    assert_string_equal(seen.message, "m");
    assert_true(seen.closed);
    buf_done(&seen.body);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

static int write_again;

static void write_on_close(struct h2_stream *stream, uint32_t code, bool lost) {
    struct h2_stream *next;
    (void) code;
    assert_true(lost);
    write_again += h2_write(stream, "x", 1) == -ECONNRESET;
    write_again += h2_finish(stream, NULL, 0) == -ECONNRESET;
    write_again += h2_request(h2_conn_of(stream), request, 4, "x", 1, NULL, &next) == -ECONNRESET;
    h2_reset(stream, H2_CANCEL);
}

/* What streams that are told of the end of their connection do then is refused, and wakes nothing.
 */
static void nothing_is_sent_on_a_connection_that_ends(void **state) {
    const struct h2_handlers handlers = {.on_close = write_on_close, .on_wake = on_wake};
    struct server server = {0};
    const struct h2_options options = {.handlers = &handlers, .user = &server};
    struct h2_stream *stream;
    struct h2_conn *client;
    (void) state;
    write_again = 0;
    assert_int_equal(h2_conn_new(&options, &client), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(h2_request(client, request, 4, "x", 1, NULL, &stream), 0);
    server.wakes = 0;
    h2_conn_free(client);
    assert_int_equal(write_again, 6);
    assert_int_equal(server.wakes, 0);
}

/* Carries what there is in one direction. */
static int carry(struct h2_conn *from, struct h2_conn *to) {
    const uint8_t *bytes;
    ssize_t n;
    while ((n = h2_conn_pull(from, &bytes)) > 0) {
        int r = h2_conn_feed(to, bytes, (size_t) n);
        if (r < 0)
            return r;
    }
    return (int) n;
}

/* Everything that is to be sent wakes the caller's loop, once. */
static void everything_to_send_wakes(void **state) {
    static const struct h2_field head[] = {{":status", "200"}};
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen[2] = {H2_SEEN_INIT, H2_SEEN_INIT};
    struct h2_stream *stream, *first;
    unsigned wakes = 0;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &seen[0], &stream);
    first = server.last;
    ask(&server, client, &seen[1], &stream);
    assert_int_equal(server.wakes, 0);
    assert_int_equal(h2_respond(first, head, 1, true), 0);
    assert_int_equal(server.wakes, ++wakes);
    assert_int_equal(h2_respond(first, head, 1, true), -ECONNRESET); /* once */
    assert_int_equal(server.wakes, wakes);
    assert_int_equal(h2_write(first, "abc", 3), 0);
    assert_int_equal(server.wakes, ++wakes);
    assert_int_equal(h2_finish(first, NULL, 0), 0);
    assert_int_equal(server.wakes, ++wakes);
    assert_int_equal(h2_finish(first, NULL, 0), -ECONNRESET);
    h2_reset(server.last, H2_CANCEL);
    assert_int_equal(server.wakes, ++wakes);
    h2_reset(server.last, H2_CANCEL);
    assert_int_equal(server.wakes, wakes);
    assert_int_equal(h2_respond(server.last, head, 1, true), -ECONNRESET);
    assert_int_equal(h2_conn_ping(server.conn), 0);
    assert_int_equal(server.wakes, ++wakes);
    assert_int_equal(h2_conn_goaway(server.conn, H2_NO_ERROR), 0);
    assert_int_equal(server.wakes, ++wakes);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(seen[0].closed && seen[1].closed);
    assert_int_equal(seen[0].code, H2_NO_ERROR);
    assert_int_equal(seen[1].code, H2_CANCEL);
    assert_int_equal(seen[0].body.len, 3);
    buf_done(&seen[0].body);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

/* A response that ends before its request ends the request as well, without an error; in a message
 * without a body, and with trailers. */
static void an_early_response_ends_the_request(void **state) {
    static const struct h2_field head[] = {{":status", "413"}}, trailers[] = {{"grpc-status", "8"}};
    static uint8_t body[300000];
    (void) state;
    for (int kind = 0; kind < 3; kind++) {
        struct server server;
        struct h2_conn *client;
        struct h2_seen seen = H2_SEEN_INIT;
        struct h2_stream *stream;
        set_up(&server, &client, 0);
        server.silent = true;
        assert_int_equal(h2_request(client, request, 4, body, sizeof(body), &seen, &stream), 0);
        assert_int_equal(carry(client, server.conn), 0);
        assert_int_equal(server.opened, 1);
        assert_true(h2_queued(stream) > 0); /* more than the windows admit */
        assert_int_equal(h2_respond(server.last, head, 1, kind > 0), 0);
        if (kind == 1)
            assert_int_equal(h2_write(server.last, "no", 2), 0);
        if (kind > 0)
            assert_int_equal(h2_finish(server.last, trailers, kind == 2), 0);
        assert_int_equal(h2_pair_pump(client, server.conn), 0);
        assert_int_equal(seen.status, 413);
        assert_int_equal(seen.grpc_status, kind == 2 ? 8 : -1);
        assert_true(seen.ended && seen.closed && !seen.lost);
        assert_int_equal(seen.code, H2_NO_ERROR);
        assert_int_equal(server.closed, 1);
        assert_in_range(server.received, 1, sizeof(body) / 2); /* and no more is sent */
        assert_false(h2_conn_has_streams(client) || h2_conn_has_streams(server.conn));
        buf_done(&seen.body);
        h2_conn_free(client);
        h2_conn_free(server.conn);
    }
}

/* Without a limit of its own a server has 100 requests at a time. */
static void a_server_has_100_requests_at_a_time(void **state) {
    enum { REQUESTS = 103 };
    static const struct h2_field head[] = {{":status", "204"}};
    struct server server;
    struct h2_conn *client;
    static struct h2_seen seen[REQUESTS];
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    for (size_t i = 0; i < REQUESTS; i++) {
        seen[i] = (struct h2_seen) H2_SEEN_INIT;
        assert_int_equal(h2_request(client, request, 4, NULL, 0, &seen[i], &stream), 0);
    }
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(server.opened, 100);
    assert_int_equal(h2_respond(server.last, head, 1, false), 0);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(server.opened, 101);
    assert_true(seen[99].closed);
    assert_int_equal(seen[99].status, 204);
    h2_conn_free(client);
    assert_true(seen[0].closed && seen[0].lost);
    h2_conn_free(server.conn);
}

static void the_number_of_fields_is_limited(void **state) {
    static const struct {
        size_t fields, trailers;
        int request, finish;
    } rows[] = {{12, 4, 0, 0}, {13, 5, -E2BIG, -E2BIG}};
    struct h2_field many[16], trailers[8];
    (void) state;
    for (size_t i = 0; i < 16; i++)
        many[i] = i < 4 ? request[i] : (struct h2_field){"x", "y"};
    for (size_t i = 0; i < 8; i++)
        trailers[i] = (struct h2_field){"x", "y"};
    for (size_t i = 0; i < 2; i++) {
        static const struct h2_field head[] = {{":status", "200"}};
        struct server server;
        struct h2_conn *client;
        struct h2_seen seen = H2_SEEN_INIT;
        struct h2_stream *stream;
        set_up(&server, &client, 0);
        server.silent = true;
        assert_int_equal(h2_request(client, many, rows[i].fields, NULL, 0, &seen, &stream),
                         rows[i].request);
        if (rows[i].request < 0)
            assert_int_equal(h2_request(client, request, 4, NULL, 0, &seen, &stream), 0);
        assert_int_equal(h2_pair_pump(client, server.conn), 0);
        assert_int_equal(server.opened, 1);
        assert_int_equal(h2_respond(server.last, head, 1, true), 0);
        assert_int_equal(h2_finish(server.last, trailers, rows[i].trailers), rows[i].finish);
        if (rows[i].finish < 0)
            assert_int_equal(h2_finish(server.last, NULL, 0), 0);
        assert_int_equal(h2_pair_pump(client, server.conn), 0);
        assert_true(seen.closed);
        assert_int_equal(seen.code, H2_NO_ERROR);
        h2_conn_free(client);
        h2_conn_free(server.conn);
    }
}

/* A peer that sends pings and reads no answers is cut off. */
static void a_flood_ends_the_connection(void **state) {
    static const uint8_t ping[17] = {0, 0, 8, 6};
    struct server server;
    struct h2_conn *client;
    int r = 0;
    (void) state;
    set_up(&server, &client, 0);
    assert_int_equal(carry(client, server.conn), 0);
    for (int i = 0; i < 100000 && r == 0; i++)
        r = h2_conn_feed(server.conn, ping, sizeof(ping));
    assert_int_equal(r, -ECONNABORTED);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

static void count_goaway(void *conn_user) {
    (*(int *) conn_user)++;
}

/* A client is told that its server ends, so that it makes another connection. */
static void a_goaway_is_told(void **state) {
    const struct h2_handlers handlers = {.on_goaway = count_goaway};
    int told = 0;
    const struct h2_options options = {.handlers = &handlers, .user = &told};
    struct server server = {0};
    const struct h2_options far = {.server = true, .handlers = &server_handlers, .user = &server};
    struct h2_conn *client;
    (void) state;
    assert_int_equal(h2_conn_new(&options, &client), 0);
    assert_int_equal(h2_conn_new(&far, &server.conn), 0);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(told, 0);
    assert_int_equal(h2_conn_ping(server.conn), 0);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(told, 0);
    assert_int_equal(h2_conn_goaway(server.conn, H2_NO_ERROR), 0);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(told, 1);
    assert_true(h2_conn_is_done(client));
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

/* A part of a body without memory ends its stream with an error: the rest would be a lie. */
static void a_body_without_memory_ends_its_stream(void **state) {
    static const struct h2_field head[] = {{":status", "200"}};
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &seen, &stream);
    assert_int_equal(h2_respond(server.last, head, 1, true), 0);
    fail_malloc_at(1);
    assert_int_equal(h2_write(server.last, "abc", 3), -ENOMEM);
    assert_true(fail_malloc_end());
    assert_int_equal(h2_write(server.last, "def", 3), -ECONNRESET);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_true(seen.closed && !seen.ended);
    assert_int_equal(seen.code, H2_INTERNAL_ERROR);
    assert_int_equal(seen.body.len, 0);
    buf_done(&seen.body);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

static void wakes_once_per_cork(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    static const struct h2_field head[] = {{":status", "200"}};
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &seen, &stream);
    h2_conn_cork(server.conn);
    assert_int_equal(h2_respond(server.last, head, 1, true), 0);
    assert_int_equal(h2_write(server.last, "abc", 3), 0);
    assert_int_equal(h2_queued(server.last), 3);
    assert_int_equal(server.wakes, 0);
    h2_conn_cork(server.conn);
    h2_conn_uncork(server.conn);
    assert_int_equal(server.wakes, 0);
    h2_conn_uncork(server.conn);
    assert_int_equal(server.wakes, 1);
    h2_conn_cork(server.conn);
    h2_conn_uncork(server.conn);
    assert_int_equal(server.wakes, 1);
    assert_int_equal(h2_write(server.last, "def", 3), 0);
    assert_int_equal(server.wakes, 2);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(h2_finish(server.last, NULL, 0), 0);
    assert_int_equal(h2_write(server.last, "ghi", 3), -ECONNRESET);
    assert_int_equal(h2_pair_pump(client, server.conn), 0);
    assert_int_equal(seen.body.len, 6);
    assert_true(seen.closed);
    assert_int_equal(h2_conn_ping(server.conn), 0);
    assert_int_equal(server.wakes, 4);
    buf_done(&seen.body);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

static void refuses_too_many_fields(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream = NULL;
    struct h2_field many[100];
    (void) state;
    for (size_t i = 0; i < 100; i++)
        many[i] = (struct h2_field){"x", "y"};
    set_up(&server, &client, 0);
    server.silent = true;
    assert_int_equal(h2_request(client, many, 100, "x", 1, &seen, &stream), -E2BIG);
    assert_null(stream);
    assert_false(h2_conn_has_streams(client));
    ask(&server, client, &seen, &stream);
    assert_int_equal(h2_respond(server.last, many, 100, true), -E2BIG);
    assert_int_equal(h2_finish(server.last, many, 100), -E2BIG);
    h2_conn_free(client);
    h2_conn_free(server.conn);
}

/* A peer sends as much as the windows allow before it has heard anything. */
static void announces_its_windows(void **state) {
    enum { WINDOW = 1 << 20, SIZE = 2 * WINDOW };
    struct server server;
    struct h2_conn *client;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_stream *stream;
    static uint8_t body[SIZE];
    static const struct h2_field head[] = {{":status", "200"}};
    const uint8_t *bytes;
    size_t sent = 0;
    ssize_t n;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &seen, &stream);
    assert_int_equal(h2_respond(server.last, head, 1, true), 0);
    assert_int_equal(h2_write(server.last, body, SIZE), 0);
    while ((n = h2_conn_pull(server.conn, &bytes)) > 0)
        sent += (size_t) n;
    assert_int_equal(n, 0);
    assert_in_range(sent, WINDOW, WINDOW + WINDOW / 100);
    assert_int_equal(h2_queued(server.last), SIZE - WINDOW);
    h2_conn_free(client);
    h2_conn_free(server.conn);
    buf_done(&seen.body);
}

/* The streams of a connection have the 64 KiB of HTTP/2 between them at least, again and again. */
static void small_windows_of_streams_do_not_narrow_the_connection(void **state) {
    enum { WINDOW = 16384, STREAMS = 5 };
    static const struct h2_field head[] = {{":status", "200"}};
    static uint8_t body[WINDOW];
    struct server server = {.silent = true};
    const struct h2_options near = {.handlers = &h2_seen_handlers, .stream_window = WINDOW};
    const struct h2_options far = {.server = true, .handlers = &server_handlers, .user = &server};
    struct h2_stream *streams[STREAMS], *stream;
    struct h2_seen seen = H2_SEEN_INIT;
    struct h2_conn *client;
    const uint8_t *bytes;
    size_t sent = 0;
    ssize_t n;
    (void) state;
    assert_int_equal(h2_conn_new(&near, &client), 0);
    assert_int_equal(h2_conn_new(&far, &server.conn), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < STREAMS; i++) {
            assert_int_equal(h2_request(client, request, 4, "x", 1, &seen, &stream), 0);
            assert_int_equal(h2_pair_pump(client, server.conn), 0);
            streams[i] = server.last;
            assert_int_equal(h2_respond(streams[i], head, 1, true), 0);
        }
        assert_int_equal(h2_pair_pump(client, server.conn), 0);
        for (int i = 0; i < STREAMS; i++)
            assert_int_equal(h2_write(streams[i], body, WINDOW), 0);
        if (round == 0)
            assert_int_equal(h2_pair_pump(client, server.conn), 0);
    }
    assert_int_equal(seen.body.len, STREAMS * WINDOW);
    while ((n = h2_conn_pull(server.conn, &bytes)) > 0)
        sent += (size_t) n;
    assert_in_range(sent, 2 * WINDOW, 5 * WINDOW);
    h2_conn_free(client);
    h2_conn_free(server.conn);
    buf_done(&seen.body);
}

static void tells_streams_of_a_lost_connection(void **state) {
    struct server server;
    struct h2_conn *client;
    struct h2_seen sent = H2_SEEN_INIT, queued = H2_SEEN_INIT;
    struct h2_stream *stream;
    (void) state;
    set_up(&server, &client, 0);
    server.silent = true;
    ask(&server, client, &sent, &stream);
    assert_int_equal(h2_request(client, request, 4, "x", 1, &queued, &stream), 0);
    h2_conn_free(client);
    assert_true(sent.closed && sent.lost);
    assert_true(queued.closed && queued.lost);
    h2_conn_free(server.conn);
    assert_int_equal(server.closed, 1);
}

static void refuses_what_is_not_http2(void **state) {
    static const char *const garbage[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSX",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on: TLS",
    };
    (void) state;
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        struct server server;
        struct h2_conn *client;
        set_up(&server, &client, 0);
        assert_true(h2_conn_feed(server.conn, (const uint8_t *) garbage[i], strlen(garbage[i])) <
                    0);
        h2_conn_free(client);
        h2_conn_free(server.conn);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(carries_bodies_and_trailers),
        cmocka_unit_test(queues_over_the_peers_limit),
        cmocka_unit_test(messages_without_memory_are_refused),
        cmocka_unit_test(a_body_written_in_parts_arrives_in_order),
        cmocka_unit_test(nothing_is_sent_on_a_connection_that_ends),
        cmocka_unit_test(wakes_once_per_cork),
        cmocka_unit_test(everything_to_send_wakes),
        cmocka_unit_test(an_early_response_ends_the_request),
        cmocka_unit_test(a_server_has_100_requests_at_a_time),
        cmocka_unit_test(the_number_of_fields_is_limited),
        cmocka_unit_test(a_flood_ends_the_connection),
        cmocka_unit_test(a_goaway_is_told),
        cmocka_unit_test(a_body_without_memory_ends_its_stream),
        cmocka_unit_test(refuses_too_many_fields),
        cmocka_unit_test(announces_its_windows),
        cmocka_unit_test(small_windows_of_streams_do_not_narrow_the_connection),
        cmocka_unit_test(tells_streams_of_a_lost_connection),
        cmocka_unit_test(refuses_what_is_not_http2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
