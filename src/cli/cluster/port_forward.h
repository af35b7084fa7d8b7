/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A page of aliquot-scheduler. It listens where only its own host can ask, so it is reached by
 * `kubectl port-forward`: who may do that in its namespace may see what it knows of all tenants. */

#include "base/buf.h"
#include "base/err.h"

struct port_forward {
    const char *name_space; /* where Aliquot is installed */
    const char *url;        /* "http://127.0.0.1:9401" to ask there; NULL: by port-forward */
};

/* Appends the page at `path` to `ret`. Asks each of the scheduler's pods until one answers. */
int port_forward_get(const struct port_forward *source, const char *path, struct buf *ret,
                     struct err *err);
