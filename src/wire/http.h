/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A small HTTP/1.1 server on a libuv loop (libmicrohttpd inside, no thread of its own): routes by
 * path, keep-alive, Content-Length on every answer, bounded bodies, optional TLS. Everything here
 * runs on the loop's thread but compression, which a thread of libuv's pool does. What is not HTTP
 * gets an error or a closed connection. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/buf.h"

struct err;
struct gnutls_session_int;
struct server_cert;
struct http_server;
struct http_exchange; /* one request and its answer */

/* Called when the whole request is there. The handler, or the code it passes it to, must
 * call http_reply() exactly once, now or later; until then the exchange stays valid, also when the
 * client is gone (the answer then goes nowhere). */
typedef void (*http_handler)(struct http_exchange *exchange, void *userdata);

struct http_route {
    const char *method; /* "GET" (answers HEAD too), "POST" */
    const char *path;   /* without query: "/metrics"; "/apis/x/" and "*": all that is below */
    http_handler handle;
};

#define HTTP_ROUTE_END                                                                             \
    { 0 }

struct http_header {
    const char *name, *value;
};

struct http_options {
    const char *listen;              /* "127.0.0.1:9401", "[::1]:80", ":9400" (all addresses) */
    const char *tls_cert;            /* PEM file, read again when it changes; NULL: plain HTTP */
    const char *tls_key;             /* PEM file */
    struct server_cert *server_cert; /* instead of files; must outlive the server */
    bool client_certs;               /* TLS clients are asked for a certificate, and may have none:
                                        see http_tls_session() */
    bool share_port;                 /* with other processes that do so: each gets some clients */
    const struct http_route *routes; /* ends with HTTP_ROUTE_END; must outlive the server */
    void *userdata;                  /* for the handlers */
    size_t max_body;                 /* longer bodies are refused with 413; 0: 1 MiB. Where no
                                        route takes a body: at most 4 KiB */
    size_t max_bodies;               /* of all requests that are under way, together: bodies longer
                                        than 64 KiB get 503 where they would be more; 0: four times
                                        max_body */
    /* NULL, or the members of JSON bodies that are of use (json_prune.h): a body of more than 1 MiB
     * is reduced to them while it comes in, and max_body bounds what is left of it. A handler then
     * is to ask http_body_problem(). */
    const char *const *keep;
    const struct http_header *headers; /* of every answer, up to one without a name; NULL: none;
                                          must outlive the server */
    unsigned max_connections; /* from other hosts and pods; 0: 512. This host's own (its address as
                                 both ends of a connection) have 32 beyond these */
    unsigned max_per_client;  /* from one other address; 0: a quarter of max_connections */
    unsigned request_seconds; /* a request from elsewhere that takes longer to come is cut off; also
                                 the time from a connection to its first request; 0: 10 */
    unsigned idle_seconds;    /* a silent connection is closed after that; 0: 120 */
};

/* Listens and serves as soon as the loop runs. */
int http_server_start(uv_loop_t *loop, const struct http_options *options,
                      struct http_server **ret_server, struct err *err);

/* The port it listens on, for `listen` with port 0. */
unsigned http_server_port(const struct http_server *server);

/* Ends every connection. Exchanges that are still open are answered 503 and must not be used
 * afterwards; no handler is called from here on. The loop must run once more to close the handles.
 * NULL is fine. */
void http_server_close(struct http_server *server);

const char *http_method(const struct http_exchange *exchange);
const char *http_path(const struct http_exchange *exchange);
/* Value of a query parameter, unescaped, "" if it has none; NULL when it is not there. */
const char *http_query(const struct http_exchange *exchange, const char *name);
/* The value of a header, the first of several; NULL: it is not there. */
const char *http_header(const struct http_exchange *exchange, const char *name);
/* Calls `each` for every header, as it came. */
void http_each_header(const struct http_exchange *exchange,
                      void (*each)(const char *name, const char *value, void *userdata),
                      void *userdata);
/* The TLS session (a gnutls_session_t), whose peer is to be checked by the handler; NULL: plain
 * HTTP. */
struct gnutls_session_int *http_tls_session(const struct http_exchange *exchange);
/* The address of the client; one of IPv4 is in the last four bytes. */
struct in6_addr http_client(const struct http_exchange *exchange);
/* How much the client wants an answer of that media type ("text/plain"): see http_accept.h. */
unsigned http_accepts(const struct http_exchange *exchange, const char *type);
/* The body, NUL-terminated behind its length; never NULL. Valid until the reply. */
const char *http_body(const struct http_exchange *exchange, size_t *ret_len);
/* NULL, or a message why there is no body: it was too large or no JSON even where `keep` says
 * what is of use, or too many came at once. Without `keep` the server answers such requests itself.
 */
const char *http_body_problem(const struct http_exchange *exchange);

/* The reply goes as gzip if the client takes it and it is longer than 1 KiB and no longer than
 * 2 MiB. For pages: it takes longer than to send an answer to the same host. */
void http_compress(struct http_exchange *exchange);
/* For a reply that the caller has as gzip, too: whether the client takes it so, and then `body` is
 * to be that. */
bool http_send_gzip(struct http_exchange *exchange);
/* Answers. `body` is taken over (and left empty) by http_reply, copied by http_reply_text. */
void http_reply(struct http_exchange *exchange, unsigned status, const char *content_type,
                struct buf *body);
void http_reply_text(struct http_exchange *exchange, unsigned status, const char *text);
/* A header that the answer has beside those of all answers: one, a later one replaces it. `name`
 * must outlive the exchange, the value is copied. To be called before the answer. */
void http_set_header(struct http_exchange *exchange, const char *name, const char *value);

/* An answer without an end, of what `fill` appends whenever the client takes more: up to `max`
 * bytes into `to`, and how many they were; 0: nothing now, and it is called again after
 * http_stream_wake(); HTTP_STREAM_END: nothing any more, and the answer ends. Between the calls
 * nothing is kept for a client that takes nothing. */
#define HTTP_STREAM_END ((size_t) -1)
struct http_stream {
    size_t (*fill)(void *userdata, char *to, size_t max);
    void (*done)(void *userdata); /* the client is gone, or the server ends */
    void *userdata;
};

/* Answers with status 200 in place of http_reply(). The exchange is valid until `done` has been
 * called. */
void http_reply_stream(struct http_exchange *exchange, const char *content_type,
                       const struct http_stream *stream);
void http_stream_wake(struct http_exchange *exchange);
