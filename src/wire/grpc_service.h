/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The server side of gRPC without I/O: turns what happens on HTTP/2 connections into calls of
 * methods. grpc_server.h puts it on a socket; its handlers and the grpc_call functions belong to
 * both. One thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/grpc_server.h"

struct h2_conn;

struct grpc_service {
    const struct grpc_method *methods;
    size_t n_methods;
    void *userdata;
    size_t max_request;
    size_t max_queued;
    uint64_t (*now_ms)(void *clock); /* monotonic */
    void *clock;
    struct grpc_call *calls; /* not ended yet */
    bool closed;             /* shut down: new calls are refused */
};

/* One connection's place in the service; part of the owner's struct, outlives the connection. */
struct grpc_peer {
    struct grpc_service *service;
    void (*on_wake)(struct grpc_peer *peer); /* there is something to send */
};

/* A server's HTTP/2 connection. Feed and pull it; see h2.h. */
int grpc_service_accept(struct grpc_peer *peer, struct h2_conn **ret);

/* Every open call is cancelled (callback) and its stream ended with Unavailable. The calls that
 * their handlers have not ended by then are on their own and no longer refer to the service. */
void grpc_service_shutdown(struct grpc_service *service);
