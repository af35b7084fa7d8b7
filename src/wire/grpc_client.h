/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Unary gRPC calls to a unix socket on a libuv loop, one connection per call: for calls that are
 * rare (Register, podresources). Never blocks: kubelet calls us back inside Register, so nothing
 * here may wait.
 */

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "wire/grpc.h"

struct err;
struct grpc_request;

struct grpc_result {
    enum grpc_status
        status; /* GRPC_UNAVAILABLE: no connection, GRPC_DEADLINE_EXCEEDED: no answer in time */
    const char *text;       /* error message; "" when OK */
    const uint8_t *message; /* the reply; NULL unless OK */
    size_t size;
};

/* Runs exactly once, never inside grpc_request_start. What `result` points to is valid during the
 * callback. */
typedef void (*grpc_result_cb)(const struct grpc_result *result, void *userdata);

struct grpc_request_options {
    const char *socket_path; /* "/var/lib/kubelet/device-plugins/kubelet.sock" */
    const char *method;      /* "/v1beta1.Registration/Register" */
    const uint8_t *message;  /* copied */
    size_t size;
    unsigned timeout_ms; /* for everything from connect to reply; 0: 10 s */
    size_t max_reply;    /* 0: 16 MiB */
};

/* ret_request may be NULL if the caller never cancels. On an error the callback does not run. */
int grpc_request_start(uv_loop_t *loop, const struct grpc_request_options *options,
                       grpc_result_cb on_result, void *userdata, struct grpc_request **ret_request,
                       struct err *err);

/* Ends it without a callback. Only before the callback has run; `request` is invalid after either.
 */
void grpc_request_cancel(struct grpc_request *request);
