/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/dra/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/dra/messages.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/on_closed.h"
#include "model/dra.h"
#include "wire/grpc_server.h"
#include "wire/grpc_streams.h"

#define CHECK_MS 1000 /* for changes that inotify does not report */
#define REQUEST_MAX ((size_t) 1 << 20)
#define HEALTH_MAX ((size_t) 1 << 20)
#define DIR_MAX 60 /* leaves room for the sockets' names in the 107 bytes of a socket's path */
#define PATH_SIZE 128

#define REGISTRY "plugins_registry"
#define REGISTRATION_SOCKET DRA_DRIVER "-reg.sock"
#define PLUGIN_DIR "plugins/" DRA_DRIVER
#define PLUGIN_SOCKET "dra.sock"

/* A socket and its server. */
struct endpoint {
    struct grpc_server *server; /* NULL: none */
    char path[PATH_SIZE];
};

struct dra_plugin {
    uv_loop_t *loop;
    struct dra_plugin_options options;
    char registry[PATH_SIZE], dir[PATH_SIZE];
    struct endpoint registration, plugin;
    uv_fs_event_t watch;
    bool watching;
    ino_t watched; /* inode of the registration directory that is watched */
    uv_timer_t timer, repeat;
    struct grpc_streams streams; /* open NodeWatchResources calls */
    bool registered, closed, failing;
    unsigned closing; /* handles and servers */
    struct on_closed on_closed;
};

static void set_registered(struct dra_plugin *p, bool registered, const char *why) {
    bool news = p->registered != registered || why[0];

    p->registered = registered;
    if (news && !p->closed)
        p->options.on_state(registered, why, p->options.userdata);
}

/* ---- registration ---- */

static void on_get_info(struct grpc_call *call, const uint8_t *request, size_t size,
                        void *userdata) {
    _cleanup_buf_ struct buf out = BUF_INIT(4096);
    const struct dra_plugin *p = userdata;

    (void) request;
    (void) size;
    dra_message_info(p->plugin.path, &out);
    grpc_call_reply_buf(call, &out);
}

static void on_status(struct grpc_call *call, const uint8_t *request, size_t size, void *userdata) {
    char why[DRA_REGISTER_TEXT_MAX];
    struct dra_plugin *p = userdata;
    bool registered;

    if (dra_message_status(request, size, &registered, why) < 0) {
        grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "not a RegistrationStatus");
        return;
    }
    if (!registered && !why[0])
        (void) snprintf(why, sizeof(why), "kubelet gives no reason");
    grpc_call_reply(call, (const uint8_t *) "", 0);
    set_registered(p, registered, registered ? "" : why);
}

/* ---- claims ---- */

static void take_claims(struct grpc_call *call, const uint8_t *request, size_t size,
                        void (*then)(struct grpc_call *call, const struct dra_claim_ids *claims,
                                     void *userdata),
                        void *userdata) {
    struct dra_claim_ids ids;
    int r = dra_message_claims(request, size, &ids);

    if (r == -EBADMSG) {
        grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "not a list of claims");
    } else if (r == -E2BIG) {
        grpc_call_finish(call, GRPC_INVALID_ARGUMENT, "too many claims in one request");
    } else if (r < 0) {
        grpc_call_finish(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    } else {
        then(call, &ids, userdata);
        dra_message_claims_done(&ids);
    }
}

static void on_prepare(struct grpc_call *call, const uint8_t *request, size_t size,
                       void *userdata) {
    const struct dra_plugin *p = userdata;

    take_claims(call, request, size, p->options.on_prepare, p->options.userdata);
}

static void on_unprepare(struct grpc_call *call, const uint8_t *request, size_t size,
                         void *userdata) {
    const struct dra_plugin *p = userdata;

    take_claims(call, request, size, p->options.on_unprepare, p->options.userdata);
}

/* ---- health ---- */

static void on_stream_gone(struct grpc_call *call, void *userdata) {
    struct dra_plugin *p = userdata;

    (void) grpc_streams_end(&p->streams, call);
}

/* What a stream has no room for it gets at the next repetition. */
static void send_health(struct dra_plugin *p, struct grpc_call *const *streams, size_t n) {
    _cleanup_buf_ struct buf list = BUF_INIT(HEALTH_MAX);

    p->options.health(&list, p->options.userdata);
    for (size_t i = 0; i < n && buf_error(&list) == 0; i++)
        (void) grpc_call_send(streams[i], (const uint8_t *) buf_str(&list), list.len);
}

static void on_watch_health(struct grpc_call *call, const uint8_t *request, size_t size,
                            void *userdata) {
    struct dra_plugin *p = userdata;

    (void) request;
    (void) size;
    if (grpc_streams_add(&p->streams, call, on_stream_gone, p))
        send_health(p, &call, 1);
}

static void on_repeat(uv_timer_t *timer) {
    struct dra_plugin *p = timer->data;

    send_health(p, p->streams.list, p->streams.n);
}

void dra_plugin_health_changed(struct dra_plugin *p) {
    if (p->streams.n > 0)
        on_repeat(&p->repeat);
}

/* ---- the sockets ---- */

static const struct grpc_method registration_methods[] = {
    {"/pluginregistration.Registration/GetInfo", on_get_info},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", on_status},
};

static const struct grpc_method plugin_methods[] = {
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", on_prepare},
    {"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources", on_unprepare},
    {"/v1alpha1.DRAResourceHealth/NodeWatchResources", on_watch_health},
};

static void on_part_closed(void *userdata) {
    struct dra_plugin *p = userdata;

    if (--p->closing == 0 && p->closed)
        on_closed_free(&p->on_closed, p);
}

static void stop_endpoint(struct dra_plugin *p, struct endpoint *e) {
    struct grpc_server *server = e->server;

    e->server = NULL;
    if (!server)
        return;
    p->closing++;
    grpc_server_close(server, on_part_closed, p);
}

static bool endpoint_is_there(const struct endpoint *e) {
    return e->server && grpc_server_socket_exists(e->server);
}

static int start_endpoint(struct dra_plugin *p, struct endpoint *e,
                          const struct grpc_method *methods, size_t n, struct err *err) {
    const struct grpc_server_options options = {.socket_path = e->path,
                                                .methods = methods,
                                                .n_methods = n,
                                                .userdata = p,
                                                .max_request = REQUEST_MAX};

    return grpc_server_start(p->loop, &options, &e->server, err);
}

/* kubelet calls the plugin only after it has found the registration: the plugin's socket is first.
 */
static int start_sockets(struct dra_plugin *p, struct err *err) {
    int r = p->plugin.server ? 0 : dir_make(p->dir, 0750, err);

    if (r == 0 && !p->plugin.server)
        r = start_endpoint(p, &p->plugin, plugin_methods,
                           sizeof(plugin_methods) / sizeof(plugin_methods[0]), err);
    if (r == 0 && !p->registration.server)
        r = start_endpoint(p, &p->registration, registration_methods,
                           sizeof(registration_methods) / sizeof(registration_methods[0]), err);
    return r;
}

/* ---- their directories ---- */

static void unwatch(struct dra_plugin *p) {
    if (p->watching)
        (void) uv_fs_event_stop(&p->watch);
    p->watching = false;
}

static void check(struct dra_plugin *p);

static void on_event(uv_fs_event_t *watch, const char *name, int events, int status) {
    (void) name;
    (void) events;
    (void) status;
    check(watch->data);
}

/* A directory that is deleted behind a mount has no links. */
static bool is_detached(const char *dir) {
    struct stat st;

    return stat(dir, &st) == 0 && st.st_nlink == 0;
}

/* True when kubelet's registration directory is there and watched. */
static bool ensure_watch(struct dra_plugin *p) {
    struct stat st;

    if (stat(p->registry, &st) < 0 || !S_ISDIR(st.st_mode)) {
        unwatch(p);
        return false;
    }
    if (p->watching && st.st_ino == p->watched)
        return true;
    unwatch(p);
    p->watching = uv_fs_event_start(&p->watch, on_event, p->registry, 0) == 0;
    p->watched = st.st_ino;
    return p->watching;
}

static void on_timer(uv_timer_t *timer) {
    check(timer->data);
}

/* kubelet keeps its connection to a socket that was removed, and learns of another one by a new
 * registration. */
static void check(struct dra_plugin *p) {
    struct err err;
    bool lost = p->registration.server &&
                (!endpoint_is_there(&p->registration) || !endpoint_is_there(&p->plugin));

    if (is_detached(p->registry) || is_detached(p->dir)) {
        p->options.on_detached(p->options.userdata);
        return;
    }
    if (lost) {
        stop_endpoint(p, &p->registration);
        if (!endpoint_is_there(&p->plugin))
            stop_endpoint(p, &p->plugin);
        set_registered(p, false, "a socket was removed");
    }
    if (ensure_watch(p)) {
        bool fails = start_sockets(p, &err) < 0;

        if (fails && !p->failing)
            log_error("%s", err.text);
        p->failing = fails;
    }
    (void) uv_timer_start(&p->timer, on_timer, CHECK_MS, 0);
}

/* ---- life ---- */

bool dra_plugin_is_registered(const struct dra_plugin *p) {
    return p->registered && endpoint_is_there(&p->registration) && endpoint_is_there(&p->plugin);
}

int dra_plugin_start(uv_loop_t *loop, const struct dra_plugin_options *options,
                     struct dra_plugin **ret, struct err *err) {
    struct dra_plugin *p;

    if (strlen(options->kubelet_dir) > DIR_MAX)
        return err_set(err, ENAMETOOLONG,
                       "kubelet's directory %s: sockets below it would exceed 107 bytes",
                       options->kubelet_dir);
    p = calloc(1, sizeof(*p));
    if (!p)
        return err_set(err, ENOMEM, "out of memory");
    p->loop = loop;
    p->options = *options;
    (void) snprintf(p->registry, PATH_SIZE, "%s/" REGISTRY, options->kubelet_dir);
    (void) snprintf(p->dir, PATH_SIZE, "%s/" PLUGIN_DIR, options->kubelet_dir);
    (void) snprintf(p->registration.path, PATH_SIZE, "%s/" REGISTRY "/" REGISTRATION_SOCKET,
                    options->kubelet_dir);
    (void) snprintf(p->plugin.path, PATH_SIZE, "%s/" PLUGIN_DIR "/" PLUGIN_SOCKET,
                    options->kubelet_dir);
    (void) uv_fs_event_init(loop, &p->watch);
    (void) uv_timer_init(loop, &p->timer);
    (void) uv_timer_init(loop, &p->repeat);
    p->watch.data = p->timer.data = p->repeat.data = p;
    (void) uv_timer_start(&p->repeat, on_repeat, DRA_HEALTH_REPEAT_MS, DRA_HEALTH_REPEAT_MS);
    check(p);
    *ret = p;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle) {
    on_part_closed(handle->data);
}

void dra_plugin_close(struct dra_plugin *p, void (*on_closed)(void *userdata), void *userdata) {
    p->closed = true;
    p->on_closed = (struct on_closed){on_closed, userdata};
    p->closing += 3;
    stop_endpoint(p, &p->registration);
    stop_endpoint(p, &p->plugin);
    uv_close((uv_handle_t *) &p->watch, on_handle_closed);
    uv_close((uv_handle_t *) &p->timer, on_handle_closed);
    uv_close((uv_handle_t *) &p->repeat, on_handle_closed);
}
