/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A gRPC server on a unix socket, on a libuv loop, in one thread: no function here may be called
 * from another one. Messages are bytes (pack and unpack them with protobuf-c). A handler answers
 * inside the call or later.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "wire/grpc.h"

struct buf;
struct err;
struct grpc_server;
struct grpc_call;

/*
 * Called once per call, when its one request message is complete. `request` is valid during the
 * handler only. The handler, or the code it passes `call` to, must end the call exactly once:
 * grpc_call_reply (unary) or grpc_call_finish (any). Until then `call` stays valid, even when the
 * peer is gone or the server was closed (then sending has no effect, and ending only
 * frees it).
 */
typedef void (*grpc_handler)(struct grpc_call *call, const uint8_t *request, size_t size,
                             void *userdata);

struct grpc_method {
    const char *path;    /* "/v1beta1.DevicePlugin/Allocate" */
    grpc_handler handle; /* the same shape for unary and for server streaming calls */
};

struct grpc_server_options {
    const char *socket_path;           /* at most 107 bytes */
    const struct grpc_method *methods; /* must outlive the server */
    size_t n_methods;
    void *userdata;           /* for the handlers */
    size_t max_request;       /* bytes of one request message; 0: 64 MiB */
    size_t max_queued;        /* bytes one call may hold that the peer did not take; 0: 64 MiB */
    unsigned max_connections; /* 0: 64 */
    unsigned ping_idle_ms;    /* peer silent that long: PING; 0: 30 s */
    unsigned ping_timeout_ms; /* no answer for that long after: connection lost; 0: 15 s */
};

/*
 * Listens at socket_path (mode 0600 from the first instant). A dead socket of that name is removed;
 * when a server answers there, -EADDRINUSE. The server serves as soon as the loop runs.
 */
int grpc_server_start(uv_loop_t *loop, const struct grpc_server_options *options,
                      struct grpc_server **ret_server, struct err *err);

/*
 * Stops listening, removes the socket file if it still is ours, finishes every open call with
 * `Unavailable` (their cancel callbacks run), sends GOAWAY, closes when the peers have taken it or
 * after half a second, frees the server, then calls on_closed (may be NULL). The loop must run for
 * that.
 */
void grpc_server_close(struct grpc_server *server, void (*on_closed)(void *userdata),
                       void *userdata);

/* Runs the handlers of the calls that have come on its connections, now and not from the loop. New
 * connections wait for the loop, and so do calls of a connection that is in a callback now. */
void grpc_server_serve(struct grpc_server *server);

/* Whether the socket file is still the one this server made (kubelet removes every socket when it
 * starts). */
bool grpc_server_socket_exists(const struct grpc_server *server);

/* Ends a unary call with a message and OK. The bytes are copied. */
void grpc_call_reply(struct grpc_call *call, const uint8_t *message, size_t size);

/* The same with what was written into a buffer. Where that has failed the call ends with
 * RESOURCE_EXHAUSTED. */
void grpc_call_reply_buf(struct grpc_call *call, const struct buf *message);

/* Ends a call with a status and, when it is not OK, a message (any UTF-8; NULL: none).
 * Frees the call. */
void grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *text);

/*
 * Sends one message of a streaming call; the bytes are copied. -ECONNRESET: the peer is gone (end
 * the call), -ENOBUFS: over max_queued (nothing was queued), -ENOMEM.
 */
int grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size);

/*
 * Registers on_cancel, which runs once, when the peer cancels, the connection is lost or the server
 * closes before the call was ended. It may end the call, or leave that to later. It never runs
 * after the call was ended.
 */
void grpc_call_on_cancel(struct grpc_call *call,
                         void (*on_cancel)(struct grpc_call *call, void *userdata), void *userdata);

/* False once the peer cancelled or is gone. */
bool grpc_call_is_live(const struct grpc_call *call);

/* Milliseconds until the client's deadline: 0 when it has passed, UINT64_MAX when there is none. */
uint64_t grpc_call_time_left(const struct grpc_call *call);

/* The time, in ms as `now`, until which the end of the call can wait: at most `max_ms`, and
 * early enough for the answer to arrive before the client's deadline. */
uint64_t grpc_call_until(const struct grpc_call *call, uint64_t now, uint64_t max_ms);
