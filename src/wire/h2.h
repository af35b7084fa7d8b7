/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One HTTP/2 connection, client or server, without any I/O: bytes in, bytes out, and callbacks for
 * what happens. A thin owner of nghttp2 that adds what our protocols share: a queue of bytes to
 * send per stream, trailers, and exactly one on_close for each stream. h2_link.h carries
 * it over libuv.
 *
 * Callbacks run inside h2_conn_feed, h2_conn_pull or h2_conn_free. They may use every function on
 * streams; they must not feed, pull or free their own connection.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct h2_conn;
struct h2_stream;

struct h2_field {
    const char *name; /* lower case; ":path" and the like first */
    const char *value;
};

/* Codes of RST_STREAM and GOAWAY that we use (RFC 9113, section 7). */
enum {
    H2_NO_ERROR = 0x0,
    H2_PROTOCOL_ERROR = 0x1,
    H2_INTERNAL_ERROR = 0x2,
    H2_REFUSED_STREAM = 0x7, /* the server did nothing with it: safe to try again */
    H2_CANCEL = 0x8,
    H2_ENHANCE_YOUR_CALM = 0xb,
};

/* Every member may be NULL. A handler that returns a negative number has its stream reset. */
struct h2_handlers {
    /* Server: a peer opened a stream. */
    int (*on_open)(struct h2_stream *stream, void *conn_user);
    /* One header or trailer field; both strings are terminated. */
    int (*on_field)(struct h2_stream *stream, const char *name, const char *value);
    /* A block of fields is complete. */
    int (*on_fields_end)(struct h2_stream *stream);
    int (*on_data)(struct h2_stream *stream, const uint8_t *data, size_t size);
    /* The peer has sent everything. */
    int (*on_end)(struct h2_stream *stream);
    /* The last callback of a stream: code is an H2_ code. `conn_lost`: the connection went away
     * under it. The stream is freed afterwards. */
    void (*on_close)(struct h2_stream *stream, uint32_t code, bool conn_lost);
    /* There is output, outside of a call of h2_conn_feed, whose caller would pull it afterwards. */
    void (*on_wake)(void *conn_user);
    /* The peer takes no new streams on this connection. */
    void (*on_goaway)(void *conn_user);
};

struct h2_options {
    bool server;
    bool lenient; /* accept what HTTP forbids in header fields (old kubelets' :authority) */
    uint32_t stream_window; /* bytes a peer may send ahead; 0: 64 KiB */
    uint32_t conn_window;   /* 0: as stream_window */
    uint32_t max_streams;   /* server: open at once; 0: 100 */
    const struct h2_handlers *handlers;
    void *user;
};

/* The first bytes to pull (preface, SETTINGS) are ready at once. */
int h2_conn_new(const struct h2_options *options, struct h2_conn **ret);

/* Closes every stream (on_close with conn_lost), frees. NULL is fine. */
void h2_conn_free(struct h2_conn *conn);

/* Takes all of data. Negative errno: the connection is beyond repair, close it. */
int h2_conn_feed(struct h2_conn *conn, const uint8_t *data, size_t size);

/* The next bytes for the peer, valid until the next call on this connection. 0: nothing now.
 * Negative: as feed. */
ssize_t h2_conn_pull(struct h2_conn *conn, const uint8_t **ret);

/* Neither side has anything to send: close the connection. */
bool h2_conn_is_done(const struct h2_conn *conn);

/* True while streams are open. */
bool h2_conn_has_streams(const struct h2_conn *conn);

/* No on_wake between cork and the matching uncork: several steps then leave in one write. */
void h2_conn_cork(struct h2_conn *conn);
void h2_conn_uncork(struct h2_conn *conn);

int h2_conn_ping(struct h2_conn *conn);

/* Sends GOAWAY: no new streams from the peer; open ones continue. */
int h2_conn_goaway(struct h2_conn *conn, uint32_t code);

/* Client: one request with its whole body. `user` is there before any callback. */
int h2_request(struct h2_conn *conn, const struct h2_field *fields, size_t n, const void *body,
               size_t size, void *user, struct h2_stream **ret);

/* Server: the response's head, once. Without `more` the stream ends with it. */
int h2_respond(struct h2_stream *stream, const struct h2_field *fields, size_t n, bool more);

/* Server, after h2_respond with `more`: queues bytes (copied). -ECONNRESET when the stream is past
 * use. */
int h2_write(struct h2_stream *stream, const void *data, size_t size);

/* Server: ends the response when everything queued has been sent. At most 4 trailers. */
int h2_finish(struct h2_stream *stream, const struct h2_field *trailers, size_t n);

/* Ends a stream from our side, in any state; on_close follows. Where the reset cannot be queued the
 * next feed or pull fails, and on_close follows when the connection is freed. */
void h2_reset(struct h2_stream *stream, uint32_t code);

/* Bytes that h2_write queued and the peer has not made room for. */
size_t h2_queued(const struct h2_stream *stream);

void h2_set_user(struct h2_stream *stream, void *user);
void *h2_user(const struct h2_stream *stream);
struct h2_conn *h2_conn_of(const struct h2_stream *stream);
