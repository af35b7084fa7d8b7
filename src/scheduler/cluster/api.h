/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Access to the API server: one function, so that tests can replace the server. */

#include <stddef.h>

#include "kube/api/client.h"

struct err;

struct api {
    /* As kube_request(): answers exactly once and later, unless it returns an error. */
    int (*request)(void *context, const char *method, const char *path, const char *content_type,
                   const char *body, size_t size, unsigned timeout_ms, kube_response_cb on_response,
                   void *userdata, struct err *err);
    void *context;
};
