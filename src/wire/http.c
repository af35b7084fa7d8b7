/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/file.h"
#include "base/num.h"
#include "wire/gzip.h"
#include "wire/http_accept.h"
#include "wire/http_exchange.h"
#include "wire/http_peers.h"
#include "wire/json_prune.h"
#include "wire/server_cert.h"
#include "wire/tls.h"

#define BODY_DEFAULT ((size_t) 1 << 20)
#define CONNECTIONS_DEFAULT 512u
#define CLIENTS_PART 4 /* one address gets that part of all connections */
#define IDLE_DEFAULT 120
#define REQUEST_SECONDS_DEFAULT 10
#define CONNECTIONS_OWN 32u /* of this host, beyond those of all others */
#define CHECK_MS 1000
#define RUNS_AT_ONCE 8u
#define RUN_AGAIN_MS 1
#define RUN_IDLE_MS 10                        /* without a request to go on with */
#define KEEP_FROM ((size_t) 1 << 20)          /* shorter bodies are kept whole */
#define BODY_UNASKED ((size_t) 4 << 10)       /* where no route takes a body */
#define BODY_SURE ((size_t) 64 << 10)         /* is taken whatever others send */
#define BODIES_PART 4                         /* all bodies together, in maximum bodies */
#define CONNECTION_MEMORY ((size_t) 32 << 10) /* request line and headers must fit in it */
#define STREAM_BLOCK ((size_t) 16 << 10)      /* at most at a time */
#define COMPRESS_FROM ((size_t) 1 << 10)
#define COMPRESS_TO ((size_t) 2 << 20) /* 9 ms of a CPU, for any client that asks */

struct http_server {
    uv_loop_t *loop;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_timer_t check;
    struct http_peers peers;
    int closing_handles;
    bool running; /* inside MHD_run: no second one */
    bool again;
    const struct http_route *routes;
    void *userdata;
    size_t max_body, max_bodies;
    size_t bodies; /* bytes of all that are held now */
    const char *const *keep;
    const struct http_header *headers;
    bool ends; /* and all streams with it */
    struct http_exchange *exchanges;
    struct server_cert *server_cert;     /* NULL: plain HTTP */
    struct server_cert *own_server_cert; /* the same one, when the server made it */
    bool client_certs;
};

/* ---- driving libmicrohttpd from the loop ---- */

static void on_timer(uv_timer_t *timer);

/* libmicrohttpd wants to run at the latest after its own timeout, besides when its epoll fd is
 * ready. It says 0 where it has more to do, and also all the time that a client is silent within a
 * TLS handshake: the loop is to go on meanwhile, and libuv runs a timer of 0 without an end. */
static void server_run(struct http_server *s) {
    MHD_UNSIGNED_LONG_LONG timeout = 0;
    enum MHD_Result has_timeout = MHD_NO;
    if (s->running) {
        s->again = true;
        return;
    }
    s->running = true;
    for (unsigned n = 0; n < RUNS_AT_ONCE && (n == 0 || (has_timeout == MHD_YES && timeout == 0));
         n++) {
        do {
            s->again = false;
            (void) MHD_run(s->daemon);
        } while (s->again);
        has_timeout = MHD_get_timeout(s->daemon, &timeout);
    }
    s->running = false;
    if (has_timeout == MHD_YES && timeout == 0)
        timeout = s->exchanges ? RUN_AGAIN_MS : RUN_IDLE_MS;
    if (has_timeout == MHD_YES)
        uv_timer_start(&s->timer, on_timer, timeout, 0);
    else
        uv_timer_stop(&s->timer);
}

static void on_timer(uv_timer_t *timer) {
    server_run(timer->data);
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    (void) status, (void) events;
    server_run(poll->data);
}

/* ---- connections ---- */

/* A connection's context in libmicrohttpd. */
struct connection {
    struct http_server *server;
    struct http_peer *peer;
};

static struct http_peer *peer_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *of = INFO(connection, SOCKET_CONTEXT);
    const struct connection *c = of ? of->socket_context : NULL;
    return c ? c->peer : NULL;
}

static void on_check(uv_timer_t *timer) {
    struct http_server *s = timer->data;
    http_peers_check(&s->peers, uv_now(s->loop));
    if (!s->peers.others)
        uv_timer_stop(timer);
}

static enum MHD_Result on_accept(void *cls, const struct sockaddr *from, socklen_t len) {
    const struct http_server *s = cls;
    return http_peers_admit(&s->peers, from, len) ? MHD_YES : MHD_NO;
}

/* Without memory for its context a connection has no deadline, and TLS is refused. */
static struct connection *connection_new(struct http_server *s, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *fd = INFO(connection, CONNECTION_FD);
    const union MHD_ConnectionInfo *from = INFO(connection, CLIENT_ADDRESS);
    struct connection *c = fd && from ? calloc(1, sizeof(*c)) : NULL;
    if (!c)
        return NULL;
    c->server = s;
    (void) http_peer_new(&s->peers, fd->connect_fd, from->client_addr, uv_now(s->loop), &c->peer);
    if (c->peer && !uv_is_active((uv_handle_t *) &s->check))
        uv_timer_start(&s->check, on_check, CHECK_MS, CHECK_MS);
    return c;
}

/* libmicrohttpd asks only where it is given authorities when it starts, and ours change. */
static void ask_for_certificate(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *of = INFO(connection, GNUTLS_SESSION);
    if (of && of->tls_session)
        gnutls_certificate_server_set_request(of->tls_session, GNUTLS_CERT_REQUEST);
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct http_server *s = cls;
    struct connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = connection_new(s, connection);
        if (s->client_certs)
            ask_for_certificate(connection);
    } else if (c) {
        http_peer_free(&s->peers, c->peer);
        free(c);
        *context = NULL;
    }
}

/* ---- one exchange ---- */

/* To be called when the body has become longer or shorter. */
static void count_body(struct http_exchange *x) {
    x->server->bodies += x->body.len - x->counted;
    x->counted = x->body.len;
}

static struct http_exchange *exchange_free(struct http_exchange *x) {
    if (!x)
        return NULL;
    *x->prev = x->next;
    if (x->next)
        x->next->prev = x->prev;
    if (x->gzip)
        gzip_forget(x->gzip);
    buf_done(&x->body);
    count_body(x);
    buf_done(&x->answer);
    x->prune = json_prune_free(x->prune);
    if (x->streams)
        x->stream.done(x->stream.userdata);
    free(x->header_value);
    free(x->method);
    free(x->path);
    free(x);
    return NULL;
}

static bool method_matches(const char *route, const char *asked) {
    return strcmp(route, asked) == 0 || (strcmp(route, "GET") == 0 && strcmp(asked, "HEAD") == 0);
}

static bool path_matches(const char *route, const char *asked) {
    size_t below = strlen(route) - 1;
    return route[below] == '*' ? strncmp(route, asked, below) == 0 : strcmp(route, asked) == 0;
}

static const struct http_route *find_route(const struct http_server *s, const char *method,
                                           const char *path) {
    for (const struct http_route *r = s->routes; r->method; r++)
        if (path_matches(r->path, path) && method_matches(r->method, method))
            return r;
    return NULL;
}

/* Limit of a body. The body of a request to a path that is only read is not kept. */
static size_t body_max(const struct http_server *s, const struct http_route *route) {
    if (route && strcmp(route->method, "GET") != 0)
        return s->max_body;
    return s->max_body < BODY_UNASKED ? s->max_body : BODY_UNASKED;
}

static struct http_exchange *exchange_new(struct http_server *s, struct MHD_Connection *connection,
                                          const char *method, const char *path) {
    const struct http_route *route = find_route(s, method, path);
    struct http_exchange *x = calloc(1, sizeof(*x));
    if (!x)
        return NULL;
    *x = (struct http_exchange){
        .server = s,
        .next = s->exchanges,
        .prev = &s->exchanges,
        .connection = connection,
        .method = strdup(method),
        .path = strdup(path),
        .route = route,
        .body = BUF_INIT(body_max(s, route)),
    };
    if (s->exchanges)
        s->exchanges->prev = &x->next;
    s->exchanges = x;
    return x->method && x->path ? x : exchange_free(x);
}

/* libmicrohttpd calls it when the client has taken what came before. */
static ssize_t on_stream(void *cls, uint64_t at, char *to, size_t max) {
    struct http_exchange *x = cls;
    (void) at;
    if (x->server->ends)
        return MHD_CONTENT_READER_END_OF_STREAM;
    size_t n = x->stream.fill(x->stream.userdata, to, max);
    if (n == HTTP_STREAM_END)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        x->rests = true;
        MHD_suspend_connection(x->connection);
    }
    return (ssize_t) n;
}

static struct MHD_Response *make_response(struct http_exchange *x) {
    if (x->streams)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, on_stream, x,
                                                 NULL);
    return MHD_create_response_from_buffer(x->answer.len, x->answer.data, MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result queue_answer(struct http_exchange *x) {
    struct MHD_Response *response = make_response(x);
    if (!response)
        return MHD_NO;
    for (const struct http_header *h = x->server->headers; h && h->name; h++)
        (void) MHD_add_response_header(response, h->name, h->value);
    if (x->header && x->header_value)
        (void) MHD_add_response_header(response, x->header, x->header_value);
    (void) MHD_add_response_header(response, "Content-Type", x->type);
    if (x->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void) MHD_add_response_header(response, "Allow", "GET, HEAD, POST");
    if (x->compress)
        (void) MHD_add_response_header(response, "Vary", "Accept, Accept-Encoding");
    if (x->compressed)
        (void) MHD_add_response_header(response, "Content-Encoding", "gzip");
    enum MHD_Result r = MHD_queue_response(x->connection, x->status, response);
    MHD_destroy_response(response);
    return r;
}

static void dispatch(struct http_exchange *x) {
    bool path_known = false;
    if (x->route) {
        x->route->handle(x, x->server->userdata);
        return;
    }
    for (const struct http_route *r = x->server->routes; r->method; r++)
        path_known = path_known || path_matches(r->path, x->path);
    if (path_known)
        http_reply_text(x, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed here\n");
    else
        http_reply_text(x, MHD_HTTP_NOT_FOUND, "no such path\n");
}

static bool keeps_parts(const struct http_exchange *x) {
    return x->route && x->server->keep;
}

static void reply_too_large(struct http_exchange *x) {
    struct buf body = BUF_INIT(0);
    buf_printf(&body, "request body is too large: at most %zu bytes are taken here\n",
               body_max(x->server, x->route));
    http_reply(x, MHD_HTTP_CONTENT_TOO_LARGE, "text/plain; charset=utf-8", &body);
}

/* Nothing more is kept, but all is read, so that the client gets to see the answer. */
static void drop_body(struct http_exchange *x, unsigned status, const char *problem) {
    size_t max = x->body.max;
    buf_done(&x->body);
    x->body = BUF_INIT(max);
    x->problem = problem;
    x->refused = keeps_parts(x) ? 0 : status;
}

/* From here on only parts of the body are kept. */
static int begin_prune(struct http_exchange *x) {
    struct buf all = x->body;
    x->body = BUF_INIT(all.max);
    x->prune = json_prune_new(x->server->keep, &x->body);
    int r = x->prune ? json_prune_feed(x->prune, buf_str(&all), all.len) : -ENOMEM;
    buf_done(&all);
    return r;
}

static void take_parts(struct http_exchange *x, const char *data, size_t len) {
    size_t whole = x->body.max < KEEP_FROM ? x->body.max : KEEP_FROM;
    int r = 0;
    if (!x->prune && x->body.len + len <= whole) {
        buf_append(&x->body, data, len);
        return;
    }
    if (!x->prune)
        r = begin_prune(x);
    if (r == 0)
        r = json_prune_feed(x->prune, data, len);
    if (r == -EBADMSG)
        drop_body(x, MHD_HTTP_BAD_REQUEST, "the request is not JSON");
    else if (r == -ENOMEM)
        drop_body(x, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
    else if (r < 0)
        drop_body(x, MHD_HTTP_CONTENT_TOO_LARGE, "the request is too large");
}

/* Many clients that each send less than is allowed must not fill the memory together; a usual
 * request is taken even then. */
static bool is_crowded(const struct http_exchange *x, size_t len) {
    const struct http_server *s = x->server;
    return x->body.len + len > BODY_SURE && s->bodies + len > s->max_bodies;
}

static void take_body(struct http_exchange *x, const char *data, size_t len) {
    if (x->problem)
        return;
    if (is_crowded(x, len))
        drop_body(x, MHD_HTTP_SERVICE_UNAVAILABLE, "too many large requests at the same time");
    else if (keeps_parts(x))
        take_parts(x, data, len);
    else if (len > x->body.max - x->body.len)
        drop_body(x, MHD_HTTP_CONTENT_TOO_LARGE, "the request is too large");
    else
        buf_append(&x->body, data, len);
    count_body(x);
}

/* No handler may keep an exchange that is freed in a moment. */
static void reply_stopping(struct http_exchange *x) {
    http_reply_text(x, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is stopping\n");
}

static bool has_answer(const struct http_exchange *x) {
    return x->status != 0 && !x->gzip;
}

/* The whole request is there. Called again at once where there is no answer yet, and only then the
 * connection is suspended: one that is suspended in its first turn is read from when it is resumed,
 * and closed without the answer if its client has ended its side. The last call comes after that.
 */
static enum MHD_Result finish_request(struct http_exchange *x) {
    if (!x->handed_over) {
        x->handed_over = true;
        http_peer_complete(peer_of(x->connection));
        if (x->prune && !x->problem && json_prune_end(x->prune) < 0)
            drop_body(x, MHD_HTTP_BAD_REQUEST, "the request ends before its JSON does");
        if (x->refused == MHD_HTTP_CONTENT_TOO_LARGE)
            reply_too_large(x);
        else if (x->refused)
            http_reply_text(x, x->refused, x->problem);
        else if (buf_error(&x->body) < 0)
            http_reply_text(x, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
        else if (x->server->ends)
            reply_stopping(x);
        else
            dispatch(x);
    }
    if (has_answer(x))
        return queue_answer(x);
    if (!x->asked_again) {
        x->asked_again = true;
        return MHD_YES;
    }
    MHD_suspend_connection(x->connection);
    x->suspended = true;
    return MHD_YES;
}

/* Announced bodies that are too large are refused before they are sent. */
static bool announces_too_much(const struct http_exchange *x) {
    const char *text =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Length");
    uint64_t len;
    return text && !keeps_parts(x) && num_parse_u64(text, x->body.max, &len) == -ERANGE;
}

static enum MHD_Result refuse_early(struct http_exchange *x) {
    reply_too_large(x);
    return queue_answer(x);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_len, void **state) {
    struct http_server *s = cls;
    (void) version;
    if (!*state) {
        struct http_exchange *x = exchange_new(s, connection, method, url);
        *state = x;
        if (x && announces_too_much(x))
            return refuse_early(x);
        return x ? MHD_YES : MHD_NO;
    }
    struct http_exchange *x = *state;
    if (*data_len > 0) {
        take_body(x, data, *data_len);
        *data_len = 0;
        return MHD_YES;
    }
    return finish_request(x);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code) {
    (void) cls, (void) code;
    http_peer_rest(peer_of(connection));
    *state = exchange_free(*state);
}

struct gnutls_session_int *http_tls_session(const struct http_exchange *exchange) {
    const union MHD_ConnectionInfo *of = INFO(exchange->connection, GNUTLS_SESSION);
    return exchange->server->server_cert && of ? of->tls_session : NULL;
}

static bool is_to_be_compressed(const struct http_exchange *x) {
    return x->compress && !x->compressed && x->answer.len > COMPRESS_FROM &&
           x->answer.len <= COMPRESS_TO &&
           http_accept_quality(http_header(x, "Accept-Encoding"), "gzip") > 0;
}

static void resume(struct http_exchange *x) {
    MHD_resume_connection(x->connection);
    /* The resumed connection runs from the loop, not below the caller's feet. */
    uv_timer_start(&x->server->timer, on_timer, 0, 0);
}

static void resume_answer(struct http_exchange *x) {
    if (!x->suspended)
        return;
    x->suspended = false;
    resume(x);
}

/* Without memory it goes as it is. */
static void on_compressed(struct buf *answer, int result, void *userdata) {
    struct http_exchange *x = userdata;
    x->gzip = NULL;
    x->answer = *answer;
    x->compressed = result == 0;
    *answer = BUF_INIT(0);
    resume_answer(x);
}

void http_reply(struct http_exchange *x, unsigned status, const char *content_type,
                struct buf *body) {
    if (buf_error(body) < 0) {
        buf_done(body);
        status = MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
    x->status = status;
    x->type = content_type;
    x->answer = *body;
    *body = BUF_INIT(body->max);
    buf_done(&x->body);
    count_body(x);
    if (!is_to_be_compressed(x) ||
        gzip_start(x->server->loop, &x->answer, on_compressed, x, &x->gzip) < 0)
        resume_answer(x);
}

void http_reply_text(struct http_exchange *exchange, unsigned status, const char *text) {
    struct buf body = BUF_INIT(0);
    buf_puts(&body, text);
    http_reply(exchange, status, "text/plain; charset=utf-8", &body);
}

void http_reply_stream(struct http_exchange *x, const char *content_type,
                       const struct http_stream *stream) {
    struct buf nothing = BUF_INIT(0);
    x->streams = true;
    x->stream = *stream;
    http_reply(x, MHD_HTTP_OK, content_type, &nothing);
}

void http_stream_wake(struct http_exchange *x) {
    if (!x->rests)
        return;
    x->rests = false;
    resume(x);
}

/* ---- start and stop ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct http_server *s = handle->data;
    if (--s->closing_handles > 0)
        return;
    server_cert_free(s->own_server_cert);
    free(s);
}

static void addrinfo_cleanup(struct addrinfo **info) {
    if (*info)
        freeaddrinfo(*info);
}

/* "host:port", "[v6]:port", ":port" */
static int split_address(const char *listen, char host[static 256], char port[static 16],
                         struct err *err) {
    const char *colon = strrchr(listen, ':');
    size_t host_len = colon ? (size_t) (colon - listen) : 0;
    bool bracketed = host_len >= 2 && listen[0] == '[' && colon[-1] == ']';
    const char *start = bracketed ? listen + 1 : listen;
    if (bracketed)
        host_len -= 2;
    if (!colon || host_len >= 256 || strlen(colon + 1) >= 16 || colon[1] == '\0')
        return err_set(err, EINVAL, "cannot listen on '%s': want ADDRESS:PORT", listen);
    memcpy(host, start, host_len);
    host[host_len] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return 0;
}

static int open_listener(const char *listen_on, bool share, struct err *err) {
    char host[256] = "", port[16] = "";
    int r = split_address(listen_on, host, port, err);
    if (r < 0)
        return r;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    _cleanup_(addrinfo_cleanup) struct addrinfo *info = NULL;
    if (*host == '\0')
        hints.ai_family = AF_INET;
    r = getaddrinfo(*host ? host : NULL, port, &hints, &info);
    if (r != 0)
        return err_set(err, EINVAL, "cannot listen on '%s': %s", listen_on, gai_strerror(r));
    _cleanup_close_ int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        (share && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0) ||
        bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
        return err_errno(err, errno, "cannot listen on '%s'", listen_on);
    return take_fd(&fd);
}

static void ignore_log(void *cls, const char *format, va_list ap) {
    (void) cls, (void) format, (void) ap;
}

static int load_tls(struct http_server *s, const struct http_options *o, struct err *err) {
    s->server_cert = o->server_cert;
    if (o->server_cert || (!o->tls_cert && !o->tls_key))
        return 0;
    if (!o->tls_cert || !o->tls_key)
        return err_set(err, EINVAL, "TLS needs both a certificate and a key file");
    int r = server_cert_from_files(o->tls_cert, o->tls_key, &s->own_server_cert, err);
    s->server_cert = s->own_server_cert;
    return r;
}

static int on_handshake(gnutls_session_t session, const struct gnutls_cert_retr_st *info,
                        gnutls_pcert_st **ret_chain, unsigned *ret_len, gnutls_ocsp_data_st **ocsp,
                        unsigned *ocsp_len, gnutls_privkey_t *ret_key, unsigned *ret_flags) {
    (void) info;
    struct MHD_Connection *connection = gnutls_session_get_ptr(session);
    const union MHD_ConnectionInfo *of = connection ? INFO(connection, SOCKET_CONTEXT) : NULL;
    const struct connection *c = of ? of->socket_context : NULL;
    *ocsp = NULL;
    *ocsp_len = 0;
    return c ? server_cert_retrieve(c->server->server_cert, ret_chain, ret_len, ret_key, ret_flags)
             : -1;
}

static struct http_peers bounds(const struct http_options *o) {
    unsigned connections = o->max_connections ? o->max_connections : CONNECTIONS_DEFAULT;
    unsigned part = connections > CLIENTS_PART ? connections / CLIENTS_PART : 1;
    unsigned seconds = o->request_seconds ? o->request_seconds : REQUEST_SECONDS_DEFAULT;
    return (struct http_peers){.max_others = connections,
                               .max_per_client = o->max_per_client ? o->max_per_client : part,
                               .request_ms = (uint64_t) seconds * 1000};
}

static int start_daemon(struct http_server *s, const struct http_options *o, int fd,
                        struct err *err) {
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME;
    if (s->server_cert)
        flags |= MHD_USE_TLS;
    s->daemon = MHD_start_daemon(
        flags, 0, on_accept, s, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, ignore_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_CONNECTION_LIMIT,
        s->peers.max_others + CONNECTIONS_OWN, MHD_OPTION_CONNECTION_TIMEOUT,
        o->idle_seconds ? o->idle_seconds : IDLE_DEFAULT, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        CONNECTION_MEMORY, s->server_cert ? MHD_OPTION_HTTPS_PRIORITIES : MHD_OPTION_END,
        TLS_PRIORITY, MHD_OPTION_HTTPS_CERT_CALLBACK2, on_handshake, MHD_OPTION_END);
    if (!s->daemon)
        return err_set(err, EIO, "cannot start the HTTP server on '%s'", o->listen);
    return 0;
}

static void server_free(struct http_server **s) {
    if (!*s)
        return;
    server_cert_free((*s)->own_server_cert);
    free(*s);
}

int http_server_start(uv_loop_t *loop, const struct http_options *options,
                      struct http_server **ret_server, struct err *err) {
    _cleanup_(server_free) struct http_server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_errno(err, ENOMEM, "cannot start the HTTP server");
    s->loop = loop;
    s->routes = options->routes;
    s->userdata = options->userdata;
    s->max_body = options->max_body ? options->max_body : BODY_DEFAULT;
    s->max_bodies = options->max_bodies ? options->max_bodies : BODIES_PART * s->max_body;
    s->keep = options->keep;
    s->client_certs = options->client_certs;
    s->headers = options->headers;
    s->peers = bounds(options);
    int r = load_tls(s, options, err);
    if (r < 0)
        return r;
    _cleanup_close_ int fd = open_listener(options->listen, options->share_port, err);
    if (fd < 0)
        return fd;
    r = start_daemon(s, options, fd, err);
    if (r < 0)
        return r;
    (void) take_fd(&fd); /* libmicrohttpd closes it */
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    r = info ? uv_poll_init(loop, &s->poll, info->epoll_fd) : UV_EINVAL;
    if (r < 0) {
        MHD_stop_daemon(s->daemon);
        return err_set(err, -r, "cannot watch the HTTP server: %s", uv_strerror(r));
    }
    (void) uv_timer_init(loop, &s->timer);
    (void) uv_timer_init(loop, &s->check);
    s->poll.data = s->timer.data = s->check.data = s;
    uv_poll_start(&s->poll, UV_READABLE, on_readable);
    server_run(s);
    *ret_server = take_ptr(s);
    return 0;
}

unsigned http_server_port(const struct http_server *server) {
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_LISTEN_FD);
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    if (!info || getsockname(info->listen_fd, (struct sockaddr *) &address, &len) < 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *) &address)->sin6_port
                                               : ((const struct sockaddr_in *) &address)->sin_port);
}

static void end_exchange(struct http_exchange *x) {
    if (x->gzip)
        gzip_forget(x->gzip);
    x->gzip = NULL;
    reply_stopping(x);
}

void http_server_close(struct http_server *server) {
    if (!server)
        return;
    /* libmicrohttpd must not be stopped while a connection is suspended. */
    server->ends = true;
    for (struct http_exchange *x = server->exchanges; x; x = x->next)
        if (x->handed_over && !has_answer(x))
            end_exchange(x);
        else
            http_stream_wake(x);
    (void) MHD_run(server->daemon);
    uv_poll_stop(&server->poll);
    uv_timer_stop(&server->timer);
    uv_timer_stop(&server->check);
    MHD_stop_daemon(server->daemon);
    server->daemon = NULL;
    server->closing_handles = 3;
    uv_close((uv_handle_t *) &server->poll, on_handle_closed);
    uv_close((uv_handle_t *) &server->timer, on_handle_closed);
    uv_close((uv_handle_t *) &server->check, on_handle_closed);
}
