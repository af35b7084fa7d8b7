/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One request and its answer, as the server (http.c) and what reads it for a handler
 * (http_exchange.c) know it. Others use http.h. */

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "wire/http.h"

struct gzip_job;
struct json_prune;

/* What libmicrohttpd knows of a connection. */
#define INFO(connection, what) MHD_get_connection_info((connection), MHD_CONNECTION_INFO_##what)

struct http_exchange {
    struct http_server *server;
    struct http_exchange *next, **prev; /* list of the server's exchanges */
    struct MHD_Connection *connection;
    char *method;
    char *path;
    const struct http_route *route; /* NULL: none for this path and method */
    struct buf body;
    size_t counted;           /* bytes of it in the server's sum */
    struct json_prune *prune; /* not NULL: `body` is what is left of what came */
    const char *problem;      /* not NULL: there is no body, for that reason */
    unsigned refused;         /* the status for that without a handler; 0: none */
    bool handed_over;         /* the handler has run: the answer comes now or later */
    bool asked_again;         /* libmicrohttpd is suspended: no response yet */
    bool suspended;           /* waits for the answer; libmicrohttpd does not poll the connection */
    unsigned status;          /* 0: the handler has not replied yet */
    struct gzip_job *gzip;    /* compresses the answer; NULL: nothing does */
    const char *type;
    bool compress, compressed; /* `answer` may be; it is */
    struct buf answer;
    const char *header; /* one of its own; NULL: none */
    char *header_value;
    bool streams, rests; /* an answer without an end; it waits for http_stream_wake() */
    struct http_stream stream;
};
