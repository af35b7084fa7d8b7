/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/api/transport.h"

#define TIMEOUT_MS 30000u
#define REPLY_MAX ((size_t) 256 << 20)

struct kube_client {
    struct kube_transport *transport;
    void (*on_closed)(void *userdata);
    void *closed_userdata;
    struct kube_call *calls; /* every open one */
};

struct kube_call {
    struct kube_client *client;
    struct kube_call *prev, *next;
    struct kube_exchange *exchange;
    kube_response_cb on_response;
    void *userdata;
    int status;
    struct buf reply;
};

static void call_free(struct kube_call *call) {
    buf_done(&call->reply);
    free(call);
}

static void on_status(int http_status, void *user) {
    struct kube_call *call = user;
    call->status = http_status;
}

static int on_data(const void *data, size_t size, void *user) {
    struct kube_call *call = user;
    buf_append(&call->reply, data, size);
    return buf_error(&call->reply);
}

/* The error message of an answer that is not 2xx: the API server's where it has one. */
static void explain(const struct kube_call *call, struct kube_response *response, char *text,
                    size_t size) {
    const char *message = json_string(json_get(response->body, "message"));
    const char *reason = json_string(json_get(response->body, "reason"));
    response->reason = reason ? reason : "";
    if (call->status == 401)
        (void) snprintf(text, size, "the API server does not know our token (HTTP status 401)%s%s",
                        message ? ": " : "", message ? message : "");
    else if (message)
        (void) snprintf(text, size, "%s", message);
    else
        (void) snprintf(text, size, "the API server answered HTTP status %d", call->status);
    response->text = text;
}

static void on_answer(struct kube_call *call) {
    char text[ERR_TEXT_MAX] = "";
    struct kube_response response = {
        .status = call->status,
        .text = text,
        .reason = "",
        .raw = buf_str(&call->reply),
        .size = call->reply.len,
    };
    struct json_parser *parser = json_parser_new();
    struct err err = {0};
    if (!parser) {
        response.status = 0;
        response.maybe_applied = true;
        response.text = "out of memory";
    } else if (call->reply.len > 0 &&
               json_parse(parser, call->reply.data, call->reply.len, &response.body, &err) < 0) {
        response.body = (struct json){0};
    }
    if (response.status && (call->status < 200 || call->status > 299))
        explain(call, &response, text, sizeof(text));
    call->on_response(&response, call->userdata);
    (void) json_parser_free(parser);
}

static void on_done(const struct kube_outcome *outcome, void *user) {
    struct kube_call *call = user;
    DL_DELETE(call->client->calls, call); /* the callback may close the client */
    if (outcome->error) {
        const struct kube_response response = {
            .maybe_applied = outcome->maybe_applied, .text = outcome->text, .reason = ""};
        call->on_response(&response, call->userdata);
    } else {
        on_answer(call);
    }
    call_free(call);
}

static const struct kube_exchange_handlers handlers = {on_status, on_data, on_done};

int kube_request(struct kube_client *client, const char *method, const char *path,
                 const char *content_type, const char *body, size_t size, unsigned timeout_ms,
                 kube_response_cb on_response, void *userdata, struct kube_call **ret_call,
                 struct err *err) {
    struct kube_call *call = calloc(1, sizeof(*call));
    if (!call)
        return err_errno(err, ENOMEM, "cannot send a request to the API server");
    call->client = client;
    call->on_response = on_response;
    call->userdata = userdata;
    call->reply.max = REPLY_MAX;
    const struct kube_exchange_options options = {
        .method = method,
        .path = path,
        .content_type = content_type ? content_type : "application/json",
        .body = body,
        .size = size,
        .timeout_ms = timeout_ms ? timeout_ms : TIMEOUT_MS,
    };
    int r = kube_exchange_start(client->transport, &options, &handlers, call, &call->exchange, err);
    if (r < 0) {
        free(call);
        return r;
    }
    DL_APPEND(client->calls, call);
    if (ret_call)
        *ret_call = call;
    return 0;
}

void kube_call_cancel(struct kube_call *call) {
    if (!call)
        return;
    DL_DELETE(call->client->calls, call);
    kube_exchange_cancel(call->exchange);
    call_free(call);
}

int kube_client_new(uv_loop_t *loop, const struct kube_config *config,
                    struct kube_client **ret_client, struct err *err) {
    struct kube_client *client = calloc(1, sizeof(*client));
    if (!client)
        return err_errno(err, ENOMEM, "cannot set up a client of the API server");
    int r = kube_transport_new(loop, config, &client->transport, err);
    if (r < 0) {
        free(client);
        return r;
    }
    *ret_client = client;
    return 0;
}

static void on_transport_closed(void *user) {
    struct kube_client *client = user;
    void (*on_closed)(void *userdata) = client->on_closed;
    void *userdata = client->closed_userdata;
    free(client);
    if (on_closed)
        on_closed(userdata);
}

void kube_client_close(struct kube_client *client, void (*on_closed)(void *userdata),
                       void *userdata) {
    client->on_closed = on_closed;
    client->closed_userdata = userdata;
    struct kube_call *call, *next;
    DL_FOREACH_SAFE(client->calls, call, next) {
        kube_call_cancel(call);
    }
    kube_transport_close(client->transport, on_transport_closed, client);
}

uv_loop_t *kube_client_loop(struct kube_client *client) {
    return kube_transport_loop(client->transport);
}

struct kube_transport *kube_client_transport(struct kube_client *client) {
    return client->transport;
}
