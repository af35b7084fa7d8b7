/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/kubelet/checkpoint.h"
#include "agent/kubelet/plugin_messages.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/on_closed.h"
#include "base/text.h"
#include "gpu/device.h"
#include "wire/grpc_client.h"
#include "wire/grpc_server.h"
#include "wire/grpc_streams.h"

#define REGISTER_TIMEOUT_MS 10000
#define RETRY_MIN_MS 5
#define RETRY_MAX_MS 1000
#define STREAM_PATIENCE_MS 2000 /* from Register to ListAndWatch, at most */

struct plugin {
    uv_loop_t *loop;
    struct plugin_options options;
    char dir[80];
    char endpoint[48]; /* name of the socket, new for each incarnation */
    struct grpc_server *server;
    struct grpc_request *request; /* Register under way */
    struct grpc_streams streams;  /* open ListAndWatch calls */
    uint32_t incarnation;
    bool closing_old; /* the former server still holds a live stream: wait for its end */
    bool stream_was_lost;
    bool stream_ended;        /* the last one, which plugin_note_stream() has not seen yet */
    uint64_t kubelet;         /* as last seen by plugin_check */
    uint64_t registered_at;   /* loop time */
    uint64_t registered_with; /* the kubelet with which it is registered; 0: none */
    uint64_t retry_at;
    unsigned retry_ms;
    uint64_t seen_at_ns; /* when this kubelet was first seen */
    uint8_t *list;       /* what a stream is sent; NULL: plugin_set_list() has not been called */
    size_t list_size;
    bool unsent; /* a stream has not got the list */
    struct plugin_stats stats;
    bool closed;
    unsigned servers_closing;
    struct on_closed on_closed;
};

static void set_registered(struct plugin *p, bool registered, const char *why) {
    if (p->stats.registered == registered)
        return;
    p->stats.registered = registered;
    if (registered)
        p->stats.registrations++;
    p->options.on_state(p, registered, why, p->options.userdata);
}

/* ---- the calls of kubelet ---- */

static void on_options(struct grpc_call *call, const uint8_t *request, size_t size,
                       void *userdata) {
    _cleanup_buf_ struct buf out = BUF_INIT(64);

    (void) request;
    (void) size;
    (void) userdata;
    message_options(&out);
    grpc_call_reply_buf(call, &out);
}

static void reply_or_fail(struct grpc_call *call, int r, const struct buf *out, const char *text) {
    if (r == 0)
        grpc_call_reply_buf(call, out);
    else if (r == -EBADMSG)
        grpc_call_finish(call, GRPC_INVALID_ARGUMENT, text);
    else if (r == -ENODEV)
        grpc_call_finish(call, GRPC_FAILED_PRECONDITION,
                         "a device is not on this node any more, or takes no containers now");
    else if (r == -E2BIG)
        grpc_call_finish(call, GRPC_FAILED_PRECONDITION,
                         "a container gets one replica of a device at most "
                         "(failRequestsGreaterThanOne): request 1");
    else if (r == -EAGAIN)
        grpc_call_finish(call, GRPC_UNAVAILABLE, "no random numbers for the name of a slot");
    else
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
}

static const struct gpu_snapshot *devices(const struct plugin *p) {
    return p->options.devices(p->options.userdata);
}

static void on_preferred(struct grpc_call *call, const uint8_t *request, size_t size,
                         void *userdata) {
    _cleanup_buf_ struct buf out = BUF_INIT(BUF_MAX_DEFAULT);
    const struct plugin *p = userdata;

    reply_or_fail(call, message_preferred(p->options.resource, devices(p), request, size, &out),
                  &out, "not a PreferredAllocationRequest");
}

static void on_allocate(struct grpc_call *call, const uint8_t *request, size_t size,
                        void *userdata) {
    _cleanup_buf_ struct buf out = BUF_INIT(1 << 20);
    struct plugin *p = userdata;
    uint64_t start = uv_hrtime();

    reply_or_fail(
        call,
        message_allocate(p->options.resource, devices(p),
                         &(struct message_allocation){p->options.guard, p->options.on_allocated,
                                                      p->options.userdata},
                         request, size, &out),
        &out, "not an AllocateRequest");
    p->stats.allocations++;
    prom_observe(&p->stats.allocate, uv_hrtime() - start);
}

static void on_prestart(struct grpc_call *call, const uint8_t *request, size_t size,
                        void *userdata) {
    struct plugin *p = userdata;
    struct message_ids ids;

    if (message_prestart(request, size, &ids) < 0) {
        grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "not a PreStartContainerRequest");
        return;
    }
    p->stats.prestarts++;
    p->options.on_prestart(call, p->options.resource, ids.ids, ids.n, p->options.userdata);
    message_ids_done(&ids);
}

/* ---- the stream ---- */

static void on_stream_gone(struct grpc_call *call, void *userdata) {
    struct plugin *p = userdata;

    if (grpc_streams_end(&p->streams, call))
        p->stream_was_lost = true;
    if (p->streams.n == 0 && !p->closed) {
        p->stats.lost_streams++;
        p->stream_ended = true;
        p->options.on_due(p, p->options.userdata);
    }
}

static int send_list(struct plugin *p, struct grpc_call *call) {
    return grpc_call_send(call, p->list, p->list_size);
}

static void on_list_and_watch(struct grpc_call *call, const uint8_t *request, size_t size,
                              void *userdata) {
    struct plugin *p = userdata;

    (void) request;
    (void) size;
    if (grpc_streams_add(&p->streams, call, on_stream_gone, p) && send_list(p, call) == -ENOMEM)
        p->unsent = true;
}

int plugin_set_list(struct plugin *p, uint32_t count, const struct buf *list) {
    uint8_t *copy;

    if (!p->unsent && p->list && list->len == p->list_size &&
        memcmp(buf_str(list), p->list, list->len) == 0)
        return 0;
    copy = malloc(list->len + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, buf_str(list), list->len);
    free(p->list);
    p->list = copy;
    p->list_size = list->len;
    p->stats.ids = count;
    p->unsent = false;
    for (size_t i = 0; i < p->streams.n; i++)
        if (send_list(p, p->streams.list[i]) == -ENOMEM)
            p->unsent = true;
    return p->unsent ? -ENOMEM : 0;
}

/* ---- the server ---- */

static const struct grpc_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", on_options},
    {"/v1beta1.DevicePlugin/ListAndWatch", on_list_and_watch},
    {"/v1beta1.DevicePlugin/GetPreferredAllocation", on_preferred},
    {"/v1beta1.DevicePlugin/Allocate", on_allocate},
    {"/v1beta1.DevicePlugin/PreStartContainer", on_prestart},
};

static void free_if_done(struct plugin *p) {
    if (!p->closed || p->servers_closing > 0)
        return;
    free(p->list);
    on_closed_free(&p->on_closed, p);
}

static void on_server_closed(void *userdata) {
    struct plugin *p = userdata;

    p->servers_closing--;
    p->closing_old = false;
    free_if_done(p);
}

/* A stream that still lives must end before we register again, or the end of the old one takes the
 * new registration with it (kubelets before 1.36). A dead one need not be waited for. */
static void stop_server(struct plugin *p, const char *why) {
    struct grpc_server *server = p->server;

    if (p->request)
        grpc_request_cancel(p->request);
    p->request = NULL;
    p->server = NULL;
    p->registered_with = 0;
    p->stream_was_lost = false;
    p->retry_at = 0;
    p->retry_ms = RETRY_MIN_MS;
    if (!server)
        return;
    p->closing_old = p->streams.n > 0;
    p->servers_closing++;
    set_registered(p, false, why);
    grpc_server_close(server, on_server_closed, p);
}

static int start_server(struct plugin *p) {
    char path[128];
    struct grpc_server_options options = {
        .socket_path = path,
        .methods = methods,
        .n_methods = sizeof(methods) / sizeof(methods[0]),
        .userdata = p,
    };

    p->incarnation++;
    (void) snprintf(p->endpoint, sizeof(p->endpoint), "aliquot-%s-%x-%u.sock",
                    p->options.resource->socket, (unsigned) getpid(), p->incarnation);
    (void) snprintf(path, sizeof(path), "%s/%s", p->dir, p->endpoint);
    return grpc_server_start(p->loop, &options, &p->server, NULL);
}

/* ---- registration ---- */

static void on_registered(const struct grpc_result *result, void *userdata) {
    struct plugin *p = userdata;

    p->request = NULL;
    if (result->status != GRPC_OK) {
        p->retry_at = uv_now(p->loop) + p->retry_ms;
        /* Right after its socket appears kubelet may not listen on it yet: a few quick tries. */
        p->retry_ms = p->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : p->retry_ms * 2;
        if (result->status != GRPC_UNAVAILABLE)
            p->options.on_state(p, false, result->text, p->options.userdata);
        p->options.on_due(p, p->options.userdata);
        return;
    }
    p->retry_ms = RETRY_MIN_MS;
    p->registered_at = uv_now(p->loop);
    p->registered_with = p->kubelet;
    p->stats.register_ns = uv_hrtime() - p->seen_at_ns;
    set_registered(p, true, "");
}

static void start_register(struct plugin *p) {
    _cleanup_buf_ struct buf message = BUF_INIT(1024);
    char path[128];
    struct grpc_request_options options = {
        .socket_path = path,
        .method = "/v1beta1.Registration/Register",
        .timeout_ms = REGISTER_TIMEOUT_MS,
    };

    p->retry_at = uv_now(p->loop) + p->retry_ms;
    message_register(p->options.resource, p->endpoint, &message);
    if (buf_error(&message) < 0)
        return;
    options.message = (const uint8_t *) buf_str(&message);
    options.size = message.len;
    (void) snprintf(path, sizeof(path), "%s/kubelet.sock", p->dir);
    if (grpc_request_start(p->loop, &options, on_registered, p, &p->request, NULL) < 0)
        p->request = NULL;
}

/* Why the server must be restarted; NULL: it need not. */
static const char *server_fault(const struct plugin *p) {
    if (!grpc_server_socket_exists(p->server))
        return "the socket was removed";
    if (p->stats.ids == 0)
        return "there are no devices for it";
    if (p->registered_with == 0 || p->registered_with != p->kubelet)
        return NULL;
    if (p->streams.n == 0 &&
        (p->stream_was_lost || uv_now(p->loop) - p->registered_at >= STREAM_PATIENCE_MS))
        return "kubelet does not listen to the stream";
    return NULL;
}

void plugin_note_stream(struct plugin *p) {
    if (p->stream_ended && p->streams.n == 0)
        set_registered(p, false, "kubelet ended its stream");
    p->stream_ended = false;
}

unsigned plugin_check(struct plugin *p, uint64_t kubelet) {
    const char *fault = p->server ? server_fault(p) : NULL;

    if (p->kubelet != kubelet) {
        p->kubelet = kubelet;
        p->seen_at_ns = uv_hrtime();
        p->retry_at = 0;
        p->retry_ms = RETRY_MIN_MS;
    }
    if (fault)
        stop_server(p, fault);
    if (p->stats.ids == 0 || p->closed)
        return 0;
    if (p->closing_old)
        return RETRY_MIN_MS;
    if (!p->server && start_server(p) < 0)
        return RETRY_MAX_MS;
    if (kubelet == 0 || p->request || p->registered_with == kubelet)
        return 0;
    if (uv_now(p->loop) >= p->retry_at)
        start_register(p);
    return p->request ? 0 : (unsigned) (p->retry_at - uv_now(p->loop));
}

/* ---- life ---- */

int plugin_new(uv_loop_t *loop, const struct plugin_options *options, struct plugin **ret) {
    struct plugin *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    if (strlen(options->dir) >= sizeof(p->dir)) {
        free(p);
        return -ENAMETOOLONG;
    }
    p->loop = loop;
    p->options = *options;
    p->retry_ms = RETRY_MIN_MS;
    text_copy(p->dir, sizeof(p->dir), options->dir);
    *ret = p;
    return 0;
}

void plugin_close(struct plugin *p, void (*on_closed)(void *userdata), void *userdata) {
    p->closed = true;
    p->on_closed = (struct on_closed){on_closed, userdata};
    stop_server(p, "the agent stops");
    free_if_done(p);
}

void plugin_serve(struct plugin *p) {
    if (p->server)
        grpc_server_serve(p->server);
}

bool plugin_is_served(const struct plugin *p) {
    return p->stats.registered && p->streams.n > 0;
}

void plugin_stats(const struct plugin *p, struct plugin_stats *ret) {
    *ret = p->stats;
}

const struct resource *plugin_resource(const struct plugin *p) {
    return p->options.resource;
}
