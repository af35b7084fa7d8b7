/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HTTP exchanges with the API server: finds it, connects, authenticates, sends, and hands the
 * answer over as it comes. client.h (whole answers) and reflector.h (watches) are made of it.
 * One libuv loop, one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* A request that the API server's host has not acknowledged for this time is abandoned. */
#define KUBE_UNACKED_MS 3000

struct err;
struct kube_config;
struct kube_exchange;
struct kube_transport;

struct kube_outcome {
    int error;          /* 0: the answer is complete, else a positive errno */
    bool maybe_applied; /* with an error: the server may have executed the request */
    const char *text;   /* with an error: its message */
    uint32_t retry_s;   /* as in struct http_answer */
};

struct kube_exchange_handlers {
    void (*on_status)(int http_status, void *user);
    /* A negative errno ends the exchange with that error. */
    int (*on_data)(const void *data, size_t size, void *user);
    /* Exactly once, last, unless cancelled; never inside kube_exchange_start. */
    void (*on_done)(const struct kube_outcome *outcome, void *user);
};

struct kube_exchange_options {
    const char *method;
    const char *path;         /* with query */
    const char *accept;       /* media types of the answer; NULL: JSON */
    const char *content_type; /* of the body */
    const void *body;         /* copied */
    size_t size;
    unsigned timeout_ms; /* for everything */
};

int kube_transport_new(uv_loop_t *loop, const struct kube_config *config,
                       struct kube_transport **ret, struct err *err);

/* Cancels everything, closes, frees, calls on_closed (may be NULL) from the loop. */
void kube_transport_close(struct kube_transport *transport, void (*on_closed)(void *user),
                          void *user);

int kube_exchange_start(struct kube_transport *transport,
                        const struct kube_exchange_options *options,
                        const struct kube_exchange_handlers *handlers, void *user,
                        struct kube_exchange **ret, struct err *err);

/* Ends it without a callback; also from inside one. Not after on_done has run. */
void kube_exchange_cancel(struct kube_exchange *exchange);

uv_loop_t *kube_transport_loop(struct kube_transport *transport);
