/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/transport.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/server_time.h"
#include "kube/api/config.h"
#include "kube/api/token_file.h"
#include "wire/h2.h"
#include "wire/h2_link.h"
#include "wire/http_answer.h"
#include "wire/tls.h"

/* Large lists must not wait for window updates; little is held, as answers are consumed at once. */
#define STREAM_WINDOW (1u << 20)
#define CONN_WINDOW (4u << 20)
/* A refused stream was not processed, so it can be retried a limited number of times. */
#define ATTEMPTS_MAX 3u
#define CLOCK_OFF_S 30

struct connection {
    struct kube_transport *transport;
    struct h2_link *link;
    struct connection *prev, *next;
    bool up;
    bool draining; /* takes nothing new */
};

struct kube_transport {
    uv_loop_t *loop;
    struct kube_config config;
    struct kube_address address;
    struct connection *connections; /* at most one of them is not draining */
    struct kube_exchange *exchanges;
    uv_timer_t kick; /* connects from the loop, so that no callback runs inside a start */
    uv_getaddrinfo_t resolver;
    struct addrinfo *found; /* what the resolver found, and the next to try */
    struct addrinfo *next_found;
    bool resolving;
    struct token_file token;
    uint64_t epoch; /* grows with each failure to connect */
    char lost[128]; /* why the last connection went */
    unsigned holds; /* things of libuv that still point here */
    bool clock_off; /* and it was logged */
    bool closing;
    void (*on_closed)(void *user);
    void *closed_user;
};

struct kube_exchange {
    struct kube_transport *transport;
    struct kube_exchange *prev, *next;
    const struct kube_exchange_handlers *handlers;
    void *user;
    uv_timer_t timer;
    struct h2_stream *stream; /* NULL: waits for a connection */
    char *method, *path, *accept, *content_type;
    struct buf body;
    uint64_t epoch; /* of the transport when it was started */
    unsigned attempts;
    bool status_seen;
    uint32_t retry_s; /* see struct kube_outcome */
    bool ended;
    int error; /* that on_data answered */
};

static void connect_next(struct kube_transport *transport);

/* ---- end of things ---- */

static void release(struct kube_transport *transport) {
    if (--transport->holds > 0)
        return;
    void (*on_closed)(void *user) = transport->on_closed;
    void *user = transport->closed_user;
    uv_freeaddrinfo(transport->found);
    token_file_done(&transport->token);
    kube_config_done(&transport->config);
    free(transport);
    if (on_closed)
        on_closed(user);
}

static void exchange_free(struct kube_exchange *exchange) {
    free(exchange->method);
    free(exchange->path);
    free(exchange->accept);
    free(exchange->content_type);
    buf_wipe(&exchange->body); /* it can have a token */
    free(exchange);
}

static void on_exchange_closed(uv_handle_t *handle) {
    struct kube_exchange *exchange = handle->data;
    struct kube_transport *transport = exchange->transport;
    exchange_free(exchange);
    release(transport);
}

/* Detaches it from stream and transport; freed when libuv has closed it. */
static void retire(struct kube_exchange *exchange) {
    exchange->ended = true;
    if (exchange->stream) {
        h2_set_user(exchange->stream, NULL);
        h2_reset(take_ptr(exchange->stream), H2_CANCEL);
    }
    DL_DELETE(exchange->transport->exchanges, exchange);
    uv_close((uv_handle_t *) &exchange->timer, on_exchange_closed);
}

void kube_exchange_cancel(struct kube_exchange *exchange) {
    if (!exchange->ended)
        retire(exchange);
}

static void finish(struct kube_exchange *exchange, int error, bool maybe_applied,
                   const char *text) {
    if (exchange->ended)
        return;
    const struct kube_outcome outcome = {error, maybe_applied, text, exchange->retry_s};
    const struct kube_exchange_handlers *handlers = exchange->handlers;
    void *user = exchange->user;
    retire(exchange);
    handlers->on_done(&outcome, user);
}

static struct kube_exchange *waiting_since(struct kube_transport *transport, uint64_t epoch) {
    struct kube_exchange *exchange;
    DL_FOREACH(transport->exchanges, exchange) {
        if (!exchange->stream && exchange->epoch <= epoch)
            return exchange;
    }
    return NULL;
}

/* Ends every exchange that waits for a connection now; callbacks may start others meanwhile. */
static void fail_waiting(struct kube_transport *transport, int error, const char *reason) {
    char text[ERR_TEXT_MAX];
    (void) snprintf(text, sizeof(text), "cannot reach the API server %s: %s",
                    transport->config.server, reason);
    uint64_t epoch = transport->epoch++;
    struct kube_exchange *exchange;
    while ((exchange = waiting_since(transport, epoch)))
        finish(exchange, error, false, text);
}

/* ---- sending ---- */

static int submit(struct kube_exchange *exchange, struct h2_conn *conn, struct err *err) {
    struct kube_transport *transport = exchange->transport;
    int r = token_file_refresh(&transport->token, err);
    const char *token = token_file_header(&transport->token);
    if (r < 0)
        return r;
    struct h2_field fields[9] = {
        {":method", exchange->method},
        {":scheme", "https"},
        {":authority", transport->address.authority},
        {":path", exchange->path},
        {"accept", exchange->accept},
        {"user-agent", "aliquot/" ALIQUOT_VERSION},
    };
    size_t n = 6;
    if (exchange->content_type)
        fields[n++] = (struct h2_field){"content-type", exchange->content_type};
    if (token)
        fields[n++] = (struct h2_field){"authorization", token};
    exchange->attempts++;
    r = h2_request(conn, fields, n, exchange->body.data, exchange->body.len, exchange,
                   &exchange->stream);
    return r < 0 ? err_errno(err, -r, "cannot send a request to the API server") : 0;
}

static void submit_or_fail(struct kube_exchange *exchange, struct h2_conn *conn) {
    struct err err = {0};
    if (submit(exchange, conn, &err) < 0)
        finish(exchange, err.code, false, err.text);
}

static struct connection *current(struct kube_transport *transport) {
    struct connection *connection;
    DL_FOREACH(transport->connections, connection)
        if (!connection->draining)
            return connection;
    return NULL;
}

static struct kube_exchange *first_waiting(struct kube_transport *transport) {
    struct kube_exchange *exchange;
    DL_SEARCH_SCALAR(transport->exchanges, exchange, stream, NULL);
    return exchange;
}

static void on_timeout(uv_timer_t *timer) {
    struct kube_exchange *exchange = timer->data;
    bool sent = exchange->stream != NULL;
    finish(exchange, ETIMEDOUT, sent,
           sent ? "the API server did not answer in time"
                : "no connection to the API server in time");
}

static void on_kick(uv_timer_t *timer) {
    struct kube_transport *transport = timer->data;
    struct kube_exchange *exchange;
    /* Callbacks may change the list, so each step starts from the head and removes one exchange. */
    while (!transport->closing && (exchange = first_waiting(transport))) {
        if (uv_timer_get_due_in(&exchange->timer) == 0) {
            /* Its time passed while this process was stopped: it may be outdated. */
            on_timeout(&exchange->timer);
            continue;
        }
        struct connection *connection = current(transport);
        if (!connection && !transport->resolving)
            connect_next(transport);
        if (!connection || !connection->up || h2_link_is_lost(connection->link))
            return; /* whatever is under way ends in another kick */
        submit_or_fail(exchange, h2_link_conn(connection->link));
    }
}

static void wake_waiting(struct kube_transport *transport) {
    if (!transport->closing)
        (void) uv_timer_start(&transport->kick, on_kick, 0, 0);
}

/* ---- receiving ---- */

static void on_date(struct kube_transport *transport, const char *date) {
    int64_t ahead = server_time_heard(date);
    bool off = ahead > CLOCK_OFF_S || ahead < -CLOCK_OFF_S;
    if (off && !transport->clock_off)
        log_warn("the clock of this node is %lld s %s that of the API server, whose time is used: "
                 "synchronize it",
                 (long long) (ahead > 0 ? ahead : -ahead), ahead > 0 ? "ahead of" : "behind");
    else if (!off && transport->clock_off)
        log_info("the clock of this node agrees with that of the API server");
    transport->clock_off = off;
}

static int on_field(struct h2_stream *stream, const char *name, const char *value) {
    struct kube_exchange *exchange = h2_user(stream);
    uint64_t status, seconds;
    if (exchange && strcmp(name, "date") == 0)
        on_date(exchange->transport, value);
    if (exchange && strcmp(name, "retry-after") == 0 &&
        num_parse_u64(value, HTTP_ANSWER_RETRY_MAX, &seconds) == 0)
        exchange->retry_s = (uint32_t) seconds;
    if (!exchange || exchange->status_seen || strcmp(name, ":status") != 0)
        return 0;
    if (num_parse_u64(value, 999, &status) < 0 || status < 200)
        return 0;
    exchange->status_seen = true;
    exchange->handlers->on_status((int) status, exchange->user);
    return 0;
}

static int on_data(struct h2_stream *stream, const uint8_t *data, size_t size) {
    struct kube_exchange *exchange = h2_user(stream);
    if (!exchange)
        return 0;
    int r = exchange->handlers->on_data(data, size, exchange->user);
    exchange = h2_user(stream); /* the handler may have cancelled it */
    if (r < 0 && exchange)
        exchange->error = -r;
    return r;
}

static void on_close(struct h2_stream *stream, uint32_t code, bool conn_lost) {
    struct kube_exchange *exchange = h2_user(stream);
    if (!exchange)
        return;
    exchange->stream = NULL;
    if (exchange->error) {
        finish(exchange, exchange->error, true, strerror(exchange->error));
    } else if (conn_lost) {
        char text[192];
        (void) snprintf(text, sizeof(text), "the connection to the API server was lost: %s",
                        exchange->transport->lost);
        finish(exchange, ECONNRESET, true, text);
    } else if (code == H2_REFUSED_STREAM && !exchange->status_seen &&
               exchange->attempts < ATTEMPTS_MAX) {
        wake_waiting(exchange->transport);
    } else if (code != H2_NO_ERROR || !exchange->status_seen) {
        char text[128];
        (void) snprintf(text, sizeof(text), "the API server broke off the answer (HTTP/2 error %u)",
                        code);
        finish(exchange, EPROTO, code != H2_REFUSED_STREAM, text);
    } else {
        finish(exchange, 0, false, "");
    }
}

static void on_wake(void *conn_user) {
    struct connection *connection = conn_user;
    if (connection->link)
        h2_link_flush(connection->link);
}

static void on_goaway(void *conn_user) {
    struct connection *connection = conn_user;
    connection->draining = true;
    wake_waiting(connection->transport);
}

static const struct h2_handlers handlers = {
    .on_field = on_field,
    .on_data = on_data,
    .on_close = on_close,
    .on_wake = on_wake,
    .on_goaway = on_goaway,
};

/* ---- connecting ---- */

static void on_link_closed(void *user) {
    struct connection *connection = user;
    struct kube_transport *transport = connection->transport;
    free(connection);
    release(transport);
}

static void drop_connection(struct connection *connection) {
    DL_DELETE(connection->transport->connections, connection);
    h2_link_close(connection->link, on_link_closed, connection);
}

static void on_link_up(struct h2_link *link, void *user) {
    (void) link;
    struct connection *connection = user;
    connection->up = true;
    wake_waiting(connection->transport);
}

static void on_link_lost(struct h2_link *link, const char *reason, void *user) {
    (void) link;
    struct connection *connection = user;
    struct kube_transport *transport = connection->transport;
    bool was_up = connection->up;
    char text[ERR_TEXT_MAX];
    (void) snprintf(text, sizeof(text), "%s", reason); /* the link goes, and the reason with it */
    (void) snprintf(transport->lost, sizeof(transport->lost), "%s", reason);
    drop_connection(connection);
    if (was_up)
        wake_waiting(transport); /* waiting exchanges get a new connection */
    else if (transport->next_found)
        connect_next(transport);
    else
        fail_waiting(transport, ECONNREFUSED, text);
}

static int open_connection(struct kube_transport *transport, const struct sockaddr *address,
                           struct err *err) {
    struct connection *connection = calloc(1, sizeof(*connection));
    struct security *security = NULL;
    struct h2_conn *conn = NULL;
    if (!connection)
        return err_errno(err, ENOMEM, "cannot connect");
    connection->transport = transport;
    const struct h2_options h2 = {.stream_window = STREAM_WINDOW,
                                  .conn_window = CONN_WINDOW,
                                  .handlers = &handlers,
                                  .user = connection};
    const struct h2_link_options options = {.tcp = true,
                                            .unacked_ms = KUBE_UNACKED_MS,
                                            .on_up = on_link_up,
                                            .on_lost = on_link_lost,
                                            .user = connection};
    const struct tls_client_options tls = {
        .ca_file = transport->config.ca_file, .host = transport->address.host, .alpn = "h2"};
    int r = tls_client_new(&tls, &security, err);
    if (r == 0 && (r = h2_conn_new(&h2, &conn)) < 0) {
        (void) err_errno(err, -r, "cannot connect");
        security->free(security);
    } else if (r == 0 && (r = h2_link_new(transport->loop, &options, conn, security,
                                          &connection->link)) < 0) {
        (void) err_errno(err, -r, "cannot connect");
    }
    if (r < 0) {
        free(connection);
        return r;
    }
    transport->holds++;
    DL_APPEND(transport->connections, connection);
    r = h2_link_connect_tcp(connection->link, address);
    if (r < 0) {
        drop_connection(connection);
        return err_set(err, -r, "%s", uv_strerror(r));
    }
    return 0;
}

static void on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *found) {
    struct kube_transport *transport = req->data;
    transport->resolving = false;
    if (transport->closing) {
        uv_freeaddrinfo(found);
    } else if (status < 0) {
        fail_waiting(transport, EHOSTUNREACH, uv_strerror(status));
    } else {
        transport->found = found;
        transport->next_found = found;
        connect_next(transport);
    }
    release(transport);
}

static void look_up(struct kube_transport *transport) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    transport->resolver.data = transport;
    int r = uv_getaddrinfo(transport->loop, &transport->resolver, on_resolved,
                           transport->address.host, transport->address.port, &hints);
    if (r < 0) {
        fail_waiting(transport, -r, uv_strerror(r));
        return;
    }
    transport->resolving = true;
    transport->holds++;
}

/* An address needs no look-up, which would start libuv's threads. */
static bool is_address(const struct kube_address *address, struct sockaddr_storage *ret) {
    uint64_t port = 0;
    (void) num_parse_u64(address->port, 65535, &port);
    return uv_ip4_addr(address->host, (int) port, (struct sockaddr_in *) ret) == 0 ||
           uv_ip6_addr(address->host, (int) port, (struct sockaddr_in6 *) ret) == 0;
}

/* Tries the next address of the last look-up, or looks up again when none is left. */
static void connect_next(struct kube_transport *transport) {
    struct err err = {0};
    struct sockaddr_storage literal;
    if (is_address(&transport->address, &literal)) {
        if (open_connection(transport, (const struct sockaddr *) &literal, &err) < 0)
            fail_waiting(transport, err.code, err.text);
        return;
    }
    if (!transport->next_found) {
        uv_freeaddrinfo(take_ptr(transport->found));
        look_up(transport);
        return;
    }
    while (transport->next_found) {
        struct addrinfo *address = transport->next_found;
        transport->next_found = address->ai_next;
        if (open_connection(transport, address->ai_addr, &err) == 0)
            return;
    }
    fail_waiting(transport, err.code, err.text);
}

/* ---- exchanges ---- */

static bool is_valid_path(const char *path) {
    if (path[0] != '/')
        return false;
    for (const char *p = path; *p; p++)
        if (*p <= 0x20 || *p >= 0x7f || *p == '#')
            return false;
    return true;
}

static struct kube_exchange *exchange_new(const struct kube_exchange_options *options) {
    struct kube_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return NULL;
    exchange->method = strdup(options->method);
    exchange->path = strdup(options->path);
    exchange->accept = strdup(options->accept ? options->accept : "application/json");
    if (options->size > 0 && options->content_type)
        exchange->content_type = strdup(options->content_type);
    buf_append(&exchange->body, options->body, options->size);
    if (exchange->method && exchange->path && exchange->accept && !exchange->body.error &&
        (exchange->content_type || options->size == 0 || !options->content_type))
        return exchange;
    exchange_free(exchange);
    return NULL;
}

int kube_exchange_start(struct kube_transport *transport,
                        const struct kube_exchange_options *options,
                        const struct kube_exchange_handlers *exchange_handlers, void *user,
                        struct kube_exchange **ret, struct err *err) {
    if (transport->closing)
        return err_set(err, ECANCELED, "the API server's client is closed");
    if (!is_valid_path(options->path))
        return err_set(err, EINVAL, "'%s' is not an escaped path", options->path);
    struct kube_exchange *exchange = exchange_new(options);
    if (!exchange)
        return err_errno(err, ENOMEM, "cannot send a request to the API server");
    exchange->transport = transport;
    exchange->epoch = transport->epoch;
    exchange->handlers = exchange_handlers;
    exchange->user = user;
    (void) uv_timer_init(transport->loop, &exchange->timer);
    exchange->timer.data = exchange;
    (void) uv_timer_start(&exchange->timer, on_timeout, options->timeout_ms, 0);
    transport->holds++;
    DL_APPEND(transport->exchanges, exchange);
    wake_waiting(transport);
    if (ret)
        *ret = exchange;
    return 0;
}

/* ---- the transport ---- */

int kube_transport_new(uv_loop_t *loop, const struct kube_config *config,
                       struct kube_transport **ret, struct err *err) {
    struct security *security = NULL;
    struct kube_address address;
    int r = kube_address_parse(config->server, &address, err);
    if (r < 0)
        return r;
    /* A CA that cannot be used should be an error now, not at the first request. */
    const struct tls_client_options tls = {
        .ca_file = config->ca_file, .host = address.host, .alpn = "h2"};
    r = tls_client_new(&tls, &security, err);
    if (r < 0)
        return r;
    security->free(security);
    /* Certificates are judged by it as well. */
    gnutls_global_set_time_function(server_time_as_time);

    struct kube_transport *transport = calloc(1, sizeof(*transport));
    if (!transport)
        return err_errno(err, ENOMEM, "cannot set up a client of the API server");
    transport->loop = loop;
    transport->address = address;
    transport->config.server = strdup(config->server);
    transport->config.ca_file = strdup(config->ca_file);
    transport->config.token_file = config->token_file ? strdup(config->token_file) : NULL;
    if (!transport->config.server || !transport->config.ca_file ||
        (config->token_file && !transport->config.token_file)) {
        kube_config_done(&transport->config);
        free(transport);
        return err_errno(err, ENOMEM, "cannot set up a client of the API server");
    }
    transport->token.path = transport->config.token_file;
    (void) uv_timer_init(loop, &transport->kick);
    transport->kick.data = transport;
    transport->holds = 1;
    *ret = transport;
    return 0;
}

static void on_kick_closed(uv_handle_t *handle) {
    release(handle->data);
}

void kube_transport_close(struct kube_transport *transport, void (*on_closed)(void *user),
                          void *user) {
    if (transport->closing)
        return;
    transport->closing = true;
    transport->on_closed = on_closed;
    transport->closed_user = user;
    struct kube_exchange *exchange, *next_exchange;
    DL_FOREACH_SAFE(transport->exchanges, exchange, next_exchange) {
        retire(exchange);
    }
    struct connection *connection, *next_connection;
    DL_FOREACH_SAFE(transport->connections, connection, next_connection) {
        drop_connection(connection);
    }
    if (transport->resolving)
        (void) uv_cancel((uv_req_t *) &transport->resolver);
    uv_close((uv_handle_t *) &transport->kick, on_kick_closed);
}

uv_loop_t *kube_transport_loop(struct kube_transport *transport) {
    return transport->loop;
}
