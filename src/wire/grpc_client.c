/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc_client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/num.h"
#include "wire/h2.h"
#include "wire/h2_link.h"

#define REPLY_MAX ((size_t) 16 << 20)
#define TIMEOUT_MS 10000u
#define WINDOW (1u << 20)
#define TEXT_MAX 1024

struct grpc_request {
    uv_timer_t timer; /* the deadline */
    struct h2_link *link;
    struct h2_stream *stream;
    struct grpc_deframer deframer;
    grpc_result_cb on_result;
    void *userdata;
    char *socket_path;
    int http_status;
    int grpc_status; /* -1: none came */
    bool have_message;
    bool ended;     /* the callback has run, or must not */
    unsigned parts; /* link and timer, as far as they are not closed */
    int fault;      /* an enum grpc_status found on our side; 0: none */
    char text[TEXT_MAX];
};

static void on_part_closed(void *user) {
    struct grpc_request *request = user;
    if (--request->parts > 0)
        return;
    grpc_deframer_done(&request->deframer);
    free(request->socket_path);
    free(request);
}

static void on_timer_closed(uv_handle_t *handle) {
    on_part_closed(handle->data);
}

static void tear_down(struct grpc_request *request) {
    if (request->stream)
        h2_set_user(take_ptr(request->stream), NULL);
    uv_close((uv_handle_t *) &request->timer, on_timer_closed);
    h2_link_close(request->link, on_part_closed, request);
}

/* Tells the result, then everything goes. */
static void finish(struct grpc_request *request, enum grpc_status status, const char *text) {
    if (request->ended)
        return;
    request->ended = true;
    struct grpc_result result = {.status = status, .text = text};
    if (status == GRPC_OK) {
        result.message =
            request->deframer.message ? request->deframer.message : (const uint8_t *) "";
        result.size = request->deframer.want;
    }
    request->on_result(&result, request->userdata);
    tear_down(request);
}

__attribute__((format(printf, 3, 4))) static void
fault(struct grpc_request *request, enum grpc_status status, const char *format, ...) {
    va_list ap;
    if (request->fault)
        return;
    request->fault = (int) status;
    va_start(ap, format);
    (void) vsnprintf(request->text, sizeof(request->text), format, ap);
    va_end(ap);
}

/* ---- the reply ---- */

static int on_field(struct h2_stream *stream, const char *name, const char *value) {
    struct grpc_request *request = h2_user(stream);
    if (!request)
        return 0;
    uint64_t number;
    if (strcmp(name, ":status") == 0) {
        request->http_status = num_parse_u64(value, 999, &number) == 0 ? (int) number : 0;
    } else if (strcmp(name, "grpc-status") == 0) {
        request->grpc_status =
            num_parse_u64(value, GRPC_UNAUTHENTICATED, &number) == 0 ? (int) number : GRPC_UNKNOWN;
    } else if (strcmp(name, "grpc-message") == 0 && !request->fault) {
        (void) grpc_message_unescape(value, strlen(value), request->text, sizeof(request->text));
    }
    return 0;
}

static int on_data(struct h2_stream *stream, const uint8_t *data, size_t size) {
    struct grpc_request *request = h2_user(stream);
    if (!request || request->fault || request->http_status != 200)
        return 0;
    while (size > 0) {
        size_t used = 0;
        int r = request->have_message ? -EPROTO
                                      : grpc_deframer_feed(&request->deframer, data, size, &used);
        if (r == -EMSGSIZE || r == -ENOMEM) {
            fault(request, GRPC_RESOURCE_EXHAUSTED, "the reply is too long");
            return 0;
        }
        if (r < 0) {
            fault(request, GRPC_INTERNAL, "malformed reply");
            return 0;
        }
        request->have_message = r == 1;
        data += used;
        size -= used;
    }
    return 0;
}

static void on_close(struct h2_stream *stream, uint32_t code, bool conn_lost) {
    struct grpc_request *request = h2_user(stream);
    if (!request || conn_lost)
        return; /* on_link_lost has the reason */
    request->stream = NULL;
    if (!request->fault && request->http_status != 200 && request->grpc_status < 0)
        fault(request, (enum grpc_status) grpc_status_of_http(request->http_status),
              "%s answered HTTP status %d, not gRPC", request->socket_path, request->http_status);
    else if (!request->fault && request->grpc_status < 0)
        fault(request, GRPC_INTERNAL, "the reply of %s ended without a status (stream error %u)",
              request->socket_path, code);
    else if (!request->fault && request->grpc_status == GRPC_OK && !request->have_message)
        fault(request, GRPC_INTERNAL, "the reply of %s has no message", request->socket_path);

    if (request->fault)
        finish(request, (enum grpc_status) request->fault, request->text);
    else
        finish(request, (enum grpc_status) request->grpc_status, request->text);
}

/* ---- the connection ---- */

static void on_wake(void *conn_user) {
    struct grpc_request *request = conn_user;
    if (request->link)
        h2_link_flush(request->link);
}

static const struct h2_handlers handlers = {
    .on_field = on_field,
    .on_data = on_data,
    .on_close = on_close,
    .on_wake = on_wake,
};

static void on_link_lost(struct h2_link *link, const char *reason, void *user) {
    (void) link;
    struct grpc_request *request = user;
    char text[TEXT_MAX];
    (void) snprintf(text, sizeof(text), "%s: %s", request->socket_path, reason);
    finish(request, GRPC_UNAVAILABLE, text);
}

static void on_timeout(uv_timer_t *timer) {
    struct grpc_request *request = timer->data;
    char text[TEXT_MAX];
    (void) snprintf(text, sizeof(text), "%s did not answer in time", request->socket_path);
    finish(request, GRPC_DEADLINE_EXCEEDED, text);
}

static int submit(struct grpc_request *request, const struct grpc_request_options *options,
                  unsigned timeout_ms) {
    char timeout[16];
    grpc_timeout_format(timeout_ms, timeout, sizeof(timeout));
    const struct h2_field fields[] = {
        {":method", "POST"},
        {":scheme", "http"},
        {":path", options->method},
        {":authority", "localhost"},
        {"content-type", "application/grpc"},
        {"user-agent", "aliquot/" ALIQUOT_VERSION},
        {"te", "trailers"},
        {"grpc-timeout", timeout},
    };
    if (options->size > UINT32_MAX - GRPC_PREFIX_SIZE)
        return -EMSGSIZE;
    size_t size = GRPC_PREFIX_SIZE + options->size;
    _cleanup_free_ uint8_t *body = malloc(size);
    if (!body)
        return -ENOMEM;
    grpc_put_prefix(body, options->size);
    if (options->size > 0)
        memcpy(body + GRPC_PREFIX_SIZE, options->message, options->size);
    return h2_request(h2_link_conn(request->link), fields, sizeof(fields) / sizeof(fields[0]), body,
                      size, request, &request->stream);
}

static int request_new(uv_loop_t *loop, const struct grpc_request_options *options,
                       struct grpc_request **ret) {
    struct grpc_request *request = calloc(1, sizeof(*request));
    char *path = strdup(options->socket_path);
    struct h2_conn *conn = NULL;
    const struct h2_options h2 = {
        .stream_window = WINDOW, .conn_window = WINDOW, .handlers = &handlers, .user = request};
    const struct h2_link_options link = {.on_lost = on_link_lost, .user = request};
    int r = request && path ? h2_conn_new(&h2, &conn) : -ENOMEM;
    if (r == 0)
        r = h2_link_new(loop, &link, conn, NULL, &request->link);
    if (r < 0) {
        free(path);
        free(request);
        return r;
    }
    request->socket_path = path;
    request->grpc_status = -1;
    request->parts = 2;
    grpc_deframer_init(&request->deframer, options->max_reply ? options->max_reply : REPLY_MAX);
    (void) uv_timer_init(loop, &request->timer);
    request->timer.data = request;
    *ret = request;
    return 0;
}

int grpc_request_start(uv_loop_t *loop, const struct grpc_request_options *options,
                       grpc_result_cb on_result, void *userdata, struct grpc_request **ret_request,
                       struct err *err) {
    struct grpc_request *request = NULL;
    unsigned timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS;
    int r = request_new(loop, options, &request);
    if (r < 0)
        return err_errno(err, -r, "cannot call %s", options->socket_path);
    request->on_result = on_result;
    request->userdata = userdata;
    r = submit(request, options, timeout_ms);
    if (r == 0)
        r = h2_link_connect_unix(request->link, options->socket_path);
    if (r < 0) {
        request->ended = true;
        tear_down(request);
        return err_errno(err, -r, "cannot call %s", options->socket_path);
    }
    (void) uv_timer_start(&request->timer, on_timeout, timeout_ms, 0);
    if (ret_request)
        *ret_request = request;
    return 0;
}

void grpc_request_cancel(struct grpc_request *request) {
    if (request->ended)
        return;
    request->ended = true;
    tear_down(request);
}
