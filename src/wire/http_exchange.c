/* SPDX-License-Identifier: Apache-2.0 */

/* What a handler asks of a request, and sets of its answer. */

#include "wire/http_exchange.h"

#include <stdlib.h>
#include <string.h>

#include "wire/http_accept.h"
#include "wire/http_peers.h"

const char *http_method(const struct http_exchange *exchange) {
    return exchange->method;
}

const char *http_path(const struct http_exchange *exchange) {
    return exchange->path;
}

const char *http_query(const struct http_exchange *exchange, const char *name) {
    const char *value = NULL;
    size_t len = 0;
    if (MHD_lookup_connection_value_n(exchange->connection, MHD_GET_ARGUMENT_KIND, name,
                                      strlen(name), &value, &len) != MHD_YES)
        return NULL;
    return value ? value : "";
}

const char *http_body(const struct http_exchange *exchange, size_t *ret_len) {
    *ret_len = exchange->body.len;
    return buf_str(&exchange->body);
}

const char *http_body_problem(const struct http_exchange *exchange) {
    return exchange->problem;
}

const char *http_header(const struct http_exchange *exchange, const char *name) {
    return MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, name);
}

struct each_header {
    void (*each)(const char *name, const char *value, void *userdata);
    void *userdata;
};

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                 const char *value) {
    const struct each_header *call = cls;
    (void) kind;
    call->each(name, value ? value : "", call->userdata);
    return MHD_YES;
}

void http_each_header(const struct http_exchange *exchange,
                      void (*each)(const char *name, const char *value, void *userdata),
                      void *userdata) {
    struct each_header call = {each, userdata};
    (void) MHD_get_connection_values(exchange->connection, MHD_HEADER_KIND, on_header, &call);
}

void http_set_header(struct http_exchange *exchange, const char *name, const char *value) {
    free(exchange->header_value);
    exchange->header = name;
    exchange->header_value = strdup(value);
}

struct in6_addr http_client(const struct http_exchange *exchange) {
    return http_peer_address(INFO(exchange->connection, CLIENT_ADDRESS)->client_addr);
}

unsigned http_accepts(const struct http_exchange *exchange, const char *type) {
    return http_accept_quality(http_header(exchange, "Accept"), type);
}

void http_compress(struct http_exchange *exchange) {
    exchange->compress = true;
}

bool http_send_gzip(struct http_exchange *exchange) {
    exchange->compress = true;
    exchange->compressed =
        http_accept_quality(http_header(exchange, "Accept-Encoding"), "gzip") > 0;
    return exchange->compressed;
}
