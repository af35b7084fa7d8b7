/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Requests to the Kubernetes API server over one TLS connection (HTTP/2), on a libuv loop, in one
 * thread. The connection is made when it is first needed and again when it was lost; a dead peer is
 * noticed by PING. Lists and watches: kube/api/reflector.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "kube/api/config.h"
#include "wire/json.h"

struct err;
struct kube_client;
struct kube_call;
struct kube_transport;

struct kube_response {
    int status;         /* HTTP status; 0: no answer, see text */
    bool maybe_applied; /* no answer, yet the server may have executed the request */
    const char *text;   /* error message of the API server or ours; "" when 2xx */
    const char *reason; /* Status.reason of the API server ("Conflict", "NotFound"), else "" */
    struct json body;   /* the parsed answer; invalid when there is none or it is not JSON */
    const char *raw;    /* the answer as it came, `size` bytes, not terminated */
    size_t size;
};

/* Runs exactly once, never inside kube_request. What `response` points to is valid during the
 * callback. */
typedef void (*kube_response_cb)(const struct kube_response *response, void *userdata);

/* content_type for PATCH: */
#define KUBE_MERGE_PATCH "application/merge-patch+json"
#define KUBE_STRATEGIC_PATCH "application/strategic-merge-patch+json"
#define KUBE_APPLY_PATCH "application/apply-patch+yaml"
#define KUBE_JSON_PATCH "application/json-patch+json"

/* Copies `config`; reads the CA now and again at each connection. */
int kube_client_new(uv_loop_t *loop, const struct kube_config *config,
                    struct kube_client **ret_client, struct err *err);

/* Ends everything without callbacks, frees the client, then calls on_closed (may be NULL). The loop
 * must run. */
void kube_client_close(struct kube_client *client, void (*on_closed)(void *userdata),
                       void *userdata);

/*
 * method: GET, POST, PUT, PATCH, DELETE. path: from the root, with query, already escaped
 * ("/api/v1/pods?limit=500"). content_type NULL: application/json. body is copied; NULL with size
 * 0: none. timeout_ms: for everything from connect to the last byte; 0: 30 s. ret_call may be NULL.
 * Retried by itself only where the server is known not to have seen it. On an error the callback
 * does not run.
 */
int kube_request(struct kube_client *client, const char *method, const char *path,
                 const char *content_type, const char *body, size_t size, unsigned timeout_ms,
                 kube_response_cb on_response, void *userdata, struct kube_call **ret_call,
                 struct err *err);

/* Ends it without a callback; takes NULL. Only before the callback has run; `call` is invalid after
 * either. */
void kube_call_cancel(struct kube_call *call);

/* The loop the client lives on. */
uv_loop_t *kube_client_loop(struct kube_client *client);

/* What its requests go through; for exchanges of other shapes, such as watches. */
struct kube_transport *kube_client_transport(struct kube_client *client);
