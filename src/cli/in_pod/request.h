/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One request to the API server, by the ServiceAccount of the pod. */

#include "base/buf.h"
#include "base/err.h"

struct request {
    const char *method; /* as of kube_request(), also the following ones */
    const char *path;
    const char *content_type;
    const char *body; /* NULL: none */
};

/* Waits for the answer and appends it. The text of an error has the API server's reason in
 * parentheses, as kubectl's. */
int request_send(const struct request *request, struct buf *ret, struct err *err);
