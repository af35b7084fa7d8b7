/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A page of aliquot-scheduler. It listens on the loopback address of its host, so it is reached by
 * `kubectl port-forward`. A user with that right in its namespace can see the pods of all tenants.
 */

#include "base/buf.h"
#include "base/err.h"

struct port_forward {
    const char *name_space; /* of Aliquot */
    const char *url;        /* such as "http://127.0.0.1:9401"; NULL: by port-forward */
};

/* Appends the page at `path` to `ret`. Tries each ready pod of the scheduler until
 * one answers. */
int port_forward_get(const struct port_forward *source, const char *path, struct buf *ret,
                     struct err *err);
