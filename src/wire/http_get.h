/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One GET over HTTP/1.1, with TLS or without, on a libuv loop: a connection of its own, a whole
 * answer, a deadline. Everything here runs on the loop's thread. */

#include <stddef.h>
#include <uv.h>

#include "base/buf.h"

struct err;
struct http_get;

struct tls_client_options;

struct http_get_options {
    const char *address; /* of IPv4 or IPv6, no name */
    unsigned port;
    const char *path;                     /* with query, escaped */
    const char *bearer;                   /* the token of an Authorization header; NULL: none */
    const struct tls_client_options *tls; /* NULL: plain HTTP */
    size_t max;                           /* bytes of the body */
    unsigned timeout_ms;
};

/* Exactly once, never inside http_get_start, unless cancelled. `status`: of HTTP, or a negative
 * errno with its cause in `why`: -ETIMEDOUT, -ECONNREFUSED, -EHOSTUNREACH, -EBADMSG ... `body` may
 * be taken over by the callee, which leaves it empty. */
typedef void (*http_get_cb)(int status, struct buf *body, const char *why, void *userdata);

/* All of `options` is copied. On an error the callback does not run: -EINVAL for an address X */
int http_get_start(uv_loop_t *loop, const struct http_get_options *options, http_get_cb done,
                   void *userdata, struct http_get **ret, struct err *err);

/* Ends it without a callback; invalid afterwards, as after the callback. The loop must run once
 * more. NULL is fine. */
void http_get_cancel(struct http_get *get);
