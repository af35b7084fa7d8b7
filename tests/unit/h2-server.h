/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A server for tests of HTTP/2, which include it after cmocka.h. */

#include "h2-pair.h"
#include "wire/h2.h"

/* A server that answers each request with its body, and counts. */
struct server {
    struct h2_conn *conn;
    unsigned opened, closed, wakes, most_open;
    size_t received;
    uint32_t code; /* of the last stream that closed */
    int answer;    /* of on_open */
    struct h2_stream *last;
    bool silent; /* do not answer */
};

static inline int on_open(struct h2_stream *stream, void *conn_user) {
    struct server *server = conn_user;
    server->opened++;
    server->last = stream;
    if (server->opened - server->closed > server->most_open)
        server->most_open = server->opened - server->closed;
    h2_set_user(stream, server);
    return server->answer;
}

static inline int on_data(struct h2_stream *stream, const uint8_t *data, size_t size) {
    static const struct h2_field head[] = {{":status", "200"}};
    struct server *server = h2_user(stream);
    server->received += size;
    if (server->silent)
        return 0;
    (void) h2_respond(stream, head, 1, true); /* refused after the first time */
    return h2_write(stream, data, size);
}

static inline int on_end(struct h2_stream *stream) {
    static const struct h2_field trailers[] = {{"grpc-status", "7"}};
    struct server *server = h2_user(stream);
    return server->silent ? 0 : h2_finish(stream, trailers, 1);
}

static inline void on_close(struct h2_stream *stream, uint32_t code, bool conn_lost) {
    (void) conn_lost;
    struct server *server = h2_user(stream);
    server->closed++;
    server->code = code;
    if (server->last == stream)
        server->last = NULL;
}

static inline void on_wake(void *conn_user) {
    struct server *server = conn_user;
    server->wakes++;
}

static const struct h2_handlers server_handlers = {.on_open = on_open,
                                                   .on_data = on_data,
                                                   .on_end = on_end,
                                                   .on_close = on_close,
                                                   .on_wake = on_wake};

static inline void set_up(struct server *server, struct h2_conn **ret_client,
                          uint32_t max_streams) {
    *server = (struct server){0};
    const struct h2_options client = {.handlers = &h2_seen_handlers, .stream_window = 1 << 20};
    const struct h2_options options = {
        .server = true, .handlers = &server_handlers, .user = server, .max_streams = max_streams};
    assert_int_equal(h2_conn_new(&client, ret_client), 0);
    assert_int_equal(h2_conn_new(&options, &server->conn), 0);
}

static const struct h2_field request[] = {
    {":method", "POST"}, {":scheme", "https"}, {":path", "/"}, {":authority", "x"}};

/* A request with a body of one byte, which the server has seen. */
static inline void ask(struct server *server, struct h2_conn *client, struct h2_seen *seen,
                       struct h2_stream **ret) {
    assert_int_equal(h2_request(client, request, 4, "x", 1, seen, ret), 0);
    assert_int_equal(h2_pair_pump(client, server->conn), 0);
}
