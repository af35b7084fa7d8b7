/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/grpc_service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "wire/h2.h"

#define TEXT_MAX 1024
#define STREAM_WINDOW (1u << 20)
#define CONN_WINDOW (4u << 20)
#define STREAMS_MAX 256u
#define ANSWER_MS 2000 /* on the way */

static const char shutting_down[] = "the server is shutting down";

struct grpc_call {
    struct grpc_service *service; /* NULL after its shutdown */
    struct grpc_call *prev, *next;
    struct h2_stream *stream;         /* NULL: peer gone, or our side has ended */
    const struct grpc_method *method; /* NULL: unknown, or no path yet */
    struct grpc_deframer deframer;
    uint64_t deadline; /* of service->now_ms; UINT64_MAX: none */
    void (*on_cancel)(struct grpc_call *call, void *userdata);
    void *cancel_userdata;
    bool grpc_content; /* the content type is gRPC's */
    bool have_message; /* deframer.message is the request */
    bool handed_over;  /* the handler has it, and must end it */
    bool head_sent;
};

static void call_free(struct grpc_call *call) {
    if (call->service)
        DL_DELETE(call->service->calls, call);
    grpc_deframer_done(&call->deframer);
    free(call);
}

/* The call and its stream go separate ways. */
static struct h2_stream *detach(struct grpc_call *call) {
    struct h2_stream *stream = take_ptr(call->stream);
    if (stream)
        h2_set_user(stream, NULL);
    return stream;
}

/* ---- answers ---- */

static const struct h2_field head[] = {
    {":status", "200"},
    {"content-type", "application/grpc"},
};

static int send_head(struct grpc_call *call) {
    if (call->head_sent)
        return 0;
    int r = h2_respond(call->stream, head, 2, true);
    call->head_sent = r == 0;
    return r;
}

static int send_message(struct grpc_call *call, const uint8_t *message, size_t size) {
    uint8_t prefix[GRPC_PREFIX_SIZE];
    int r = send_head(call);
    if (r < 0)
        return r;
    grpc_put_prefix(prefix, size);
    r = h2_write(call->stream, prefix, sizeof(prefix));
    return r < 0 ? r : h2_write(call->stream, message, size);
}

/* The status goes into trailers, or, when nothing was sent before, into the only head there is. */
static int send_status(struct grpc_call *call, enum grpc_status status, const char *text) {
    char number[12], escaped[TEXT_MAX];
    (void) snprintf(number, sizeof(number), "%d", (int) status);
    (void) grpc_message_escape(text ? text : "", escaped, sizeof(escaped));
    struct h2_field fields[4] = {head[0], head[1]};
    size_t n = 2;
    fields[n++] = (struct h2_field){"grpc-status", number};
    if (escaped[0])
        fields[n++] = (struct h2_field){"grpc-message", escaped};

    if (call->head_sent)
        return h2_finish(call->stream, fields + 2, n - 2);
    return h2_respond(call->stream, fields, n, false);
}

static void end_stream(struct grpc_call *call, enum grpc_status status, const char *text) {
    if (!call->stream)
        return;
    struct h2_conn *conn = h2_conn_of(call->stream);
    h2_conn_cork(conn);
    int r = send_status(call, status, text);
    struct h2_stream *stream = detach(call);
    if (r < 0)
        h2_reset(stream, H2_INTERNAL_ERROR);
    h2_conn_uncork(conn);
}

void grpc_call_finish(struct grpc_call *call, enum grpc_status status, const char *text) {
    end_stream(call, status, text);
    call_free(call);
}

void grpc_call_reply(struct grpc_call *call, const uint8_t *message, size_t size) {
    if (!call->stream) {
        call_free(call);
        return;
    }
    struct h2_conn *conn = h2_conn_of(call->stream);
    h2_conn_cork(conn);
    int r = send_message(call, message, size);
    if (r < 0)
        h2_reset(detach(call), H2_INTERNAL_ERROR);
    grpc_call_finish(call, GRPC_OK, NULL);
    h2_conn_uncork(conn);
}

void grpc_call_reply_buf(struct grpc_call *call, const struct buf *message) {
    if (buf_error(message) < 0)
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    else
        grpc_call_reply(call, (const uint8_t *) buf_str(message), message->len);
}

int grpc_call_send(struct grpc_call *call, const uint8_t *message, size_t size) {
    if (!call->stream)
        return -ECONNRESET;
    size_t queued = h2_queued(call->stream), max = call->service->max_queued;
    if (size > UINT32_MAX || queued > max || size > max - queued)
        return -ENOBUFS;
    struct h2_conn *conn = h2_conn_of(call->stream);
    h2_conn_cork(conn);
    int r = send_message(call, message, size);
    h2_conn_uncork(conn);
    return r;
}

void grpc_call_on_cancel(struct grpc_call *call,
                         void (*on_cancel)(struct grpc_call *call, void *userdata),
                         void *userdata) {
    call->on_cancel = on_cancel;
    call->cancel_userdata = userdata;
}

bool grpc_call_is_live(const struct grpc_call *call) {
    return call->stream != NULL;
}

uint64_t grpc_call_time_left(const struct grpc_call *call) {
    if (call->deadline == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now = call->service ? call->service->now_ms(call->service->clock) : UINT64_MAX;
    return call->deadline > now ? call->deadline - now : 0;
}

uint64_t grpc_call_until(const struct grpc_call *call, uint64_t now, uint64_t max_ms) {
    uint64_t left = grpc_call_time_left(call);
    left = left > ANSWER_MS ? left - ANSWER_MS : 0;
    return now + (left < max_ms ? left : max_ms);
}

/* ---- requests ---- */

static int on_open(struct h2_stream *stream, void *conn_user) {
    struct grpc_peer *peer = conn_user;
    struct grpc_call *call = calloc(1, sizeof(*call));
    if (!call)
        return -ENOMEM;
    call->service = peer->service;
    call->stream = stream;
    call->deadline = UINT64_MAX;
    grpc_deframer_init(&call->deframer, peer->service->max_request);
    DL_APPEND(peer->service->calls, call);
    h2_set_user(stream, call);
    return 0;
}

static const struct grpc_method *find_method(const struct grpc_service *service, const char *path) {
    for (size_t i = 0; i < service->n_methods; i++)
        if (strcmp(service->methods[i].path, path) == 0)
            return &service->methods[i];
    return NULL;
}

static bool is_grpc_content(const char *value) {
    static const char type[] = "application/grpc";
    size_t n = sizeof(type) - 1;
    return strncasecmp(value, type, n) == 0 &&
           (value[n] == '\0' || value[n] == '+' || value[n] == ';');
}

static int on_field(struct h2_stream *stream, const char *name, const char *value) {
    struct grpc_call *call = h2_user(stream);
    uint64_t ms;
    if (!call)
        return 0;
    if (strcmp(name, ":path") == 0) {
        call->method = find_method(call->service, value);
    } else if (strcmp(name, "content-type") == 0) {
        call->grpc_content = is_grpc_content(value);
    } else if (strcmp(name, "grpc-timeout") == 0 &&
               grpc_timeout_parse(value, strlen(value), &ms) == 0) {
        uint64_t now = call->service->now_ms(call->service->clock);
        call->deadline = ms < UINT64_MAX - now ? now + ms : UINT64_MAX;
    }
    return 0;
}

static void refuse(struct grpc_call *call, enum grpc_status status, const char *text) {
    grpc_call_finish(call, status, text);
}

static int on_fields_end(struct h2_stream *stream) {
    static const struct h2_field not_grpc[] = {{":status", "415"}};
    struct grpc_call *call = h2_user(stream);
    if (!call)
        return 0;
    if (!call->grpc_content) {
        int r = h2_respond(stream, not_grpc, 1, false);
        (void) detach(call);
        call_free(call);
        return r;
    }
    if (call->service->closed)
        refuse(call, GRPC_UNAVAILABLE, shutting_down);
    else if (!call->method)
        refuse(call, GRPC_UNIMPLEMENTED, "unknown method");
    return 0;
}

static int on_data(struct h2_stream *stream, const uint8_t *data, size_t size) {
    struct grpc_call *call = h2_user(stream);
    if (!call)
        return 0;
    while (size > 0) {
        size_t used = 0;
        if (call->have_message) {
            refuse(call, GRPC_INVALID_ARGUMENT, "more than one request message");
            return 0;
        }
        switch (grpc_deframer_feed(&call->deframer, data, size, &used)) {
        case 0:
            break;
        case 1:
            call->have_message = true;
            break;
        case -EMSGSIZE:
            refuse(call, GRPC_RESOURCE_EXHAUSTED, "request message is too long");
            return 0;
        case -EOPNOTSUPP:
            refuse(call, GRPC_UNIMPLEMENTED, "compressed messages are not supported");
            return 0;
        case -ENOMEM:
            refuse(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
            return 0;
        default:
            refuse(call, GRPC_INTERNAL, "malformed message frame");
            return 0;
        }
        data += used;
        size -= used;
    }
    return 0;
}

static int on_end(struct h2_stream *stream) {
    struct grpc_call *call = h2_user(stream);
    if (!call)
        return 0;
    if (!call->have_message) {
        refuse(call, GRPC_INVALID_ARGUMENT, "no complete request message");
        return 0;
    }
    /* The handler may end the call, so the message leaves it first. */
    _cleanup_free_ uint8_t *message = take_ptr(call->deframer.message);
    size_t size = call->deframer.want;
    call->handed_over = true;
    call->method->handle(call, message ? message : (const uint8_t *) "", size,
                         call->service->userdata);
    return 0;
}

/* The peer is gone. A call without a handler is freed here, others when their handler ends them. */
static void cancel(struct grpc_call *call) {
    if (!call->handed_over)
        call_free(call);
    else if (call->on_cancel)
        call->on_cancel(call, call->cancel_userdata);
}

static void on_close(struct h2_stream *stream, uint32_t code, bool conn_lost) {
    (void) code, (void) conn_lost;
    struct grpc_call *call = h2_user(stream);
    if (!call)
        return;
    (void) detach(call);
    cancel(call);
}

static void on_wake(void *conn_user) {
    struct grpc_peer *peer = conn_user;
    if (peer->on_wake)
        peer->on_wake(peer);
}

static const struct h2_handlers handlers = {
    .on_open = on_open,
    .on_field = on_field,
    .on_fields_end = on_fields_end,
    .on_data = on_data,
    .on_end = on_end,
    .on_close = on_close,
    .on_wake = on_wake,
};

int grpc_service_accept(struct grpc_peer *peer, struct h2_conn **ret) {
    const struct h2_options options = {
        .server = true,
        .lenient = true, /* kubelets before 1.26 send a file path as :authority */
        .stream_window = STREAM_WINDOW,
        .conn_window = CONN_WINDOW,
        .max_streams = STREAMS_MAX,
        .handlers = &handlers,
        .user = peer,
    };
    return h2_conn_new(&options, ret);
}

void grpc_service_shutdown(struct grpc_service *service) {
    service->closed = true;
    while (service->calls) {
        struct grpc_call *call = service->calls;
        DL_DELETE(service->calls, call);
        call->service = NULL;
        end_stream(call, GRPC_UNAVAILABLE, shutting_down);
        cancel(call);
    }
}
