/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The device plugins of the agent, and a kubelet that does what a test wants. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/backends/resource.h"
#include "agent/kubelet/kubelet.h"
#include "base/buf.h"
#include "base/file.h"
#include "deviceplugin.pb-c.h"
#include "gpu/device.h"
#include "wire/grpc_client.h"
#include "wire/grpc_server.h"

#define TIMEOUT_MS 60000

struct fixture {
    uv_loop_t loop;
    uv_timer_t timeout;
    bool timed_out;
    char dir[64];
    char plugins[80];
    struct gpu_snapshot devices;
    struct kubelet *kubelet;
    struct grpc_server *server; /* kubelet's side */
    bool server_closed;
    unsigned registers;    /* seen by kubelet */
    const char *resource;  /* NULL: gpu-core */
    char endpoint[64];     /* of the last registration of `resource` */
    char endpoints[8][64]; /* of all, as kubelet_plugin() counts */
    char first[64];        /* the one before */
    /* PreStartContainer; NULL: it is counted and refused. */
    void (*begin)(struct fixture *f, struct grpc_call *call, const struct resource *resource,
                  const char *const *ids, size_t nids);
    unsigned prestarts;
    size_t prestart_ids;
    char prestart_first[32];
    unsigned checkpoints;
    uint32_t unhealthy_percent; /* of each container's IDs */
    bool ended;                 /* each container */
    struct grpc_result result;
    uint8_t reply[4096];
    char text[96]; /* of `result` */
    bool answered, closed;
};

/* ---- kubelet's side ---- */

static void on_register(struct grpc_call *call, const uint8_t *request, size_t size,
                        void *userdata) {
    struct fixture *f = userdata;
    Deviceplugin__RegisterRequest *m = deviceplugin__register_request__unpack(NULL, size, request);

    assert_non_null(m);
    assert_string_equal(m->version, "v1beta1");
    assert_true(m->options->pre_start_required);
    (void) snprintf(f->endpoints[kubelet_find(f->kubelet, m->resource_name)],
                    sizeof(f->endpoints[0]), "%s", m->endpoint);
    if (strcmp(m->resource_name, f->resource ? f->resource : resources[0].name) == 0)
        (void) snprintf(f->endpoint, sizeof(f->endpoint), "%s", m->endpoint);
    f->registers++;
    deviceplugin__register_request__free_unpacked(m, NULL);
    grpc_call_reply(call, (const uint8_t *) "", 0);
}

static const struct grpc_method registration[] = {{"/v1beta1.Registration/Register", on_register}};

static void kubelet_up(struct fixture *f) {
    char path[128];
    struct grpc_server_options options = {
        .socket_path = path, .methods = registration, .n_methods = 1, .userdata = f};

    (void) snprintf(path, sizeof(path), "%s/kubelet.sock", f->plugins);
    assert_int_equal(grpc_server_start(&f->loop, &options, &f->server, NULL), 0);
}

static void on_server_closed(void *userdata) {
    struct fixture *f = userdata;

    f->server_closed = true;
}

static const struct gpu_snapshot *devices(void *userdata) {
    return &((struct fixture *) userdata)->devices;
}

/* ---- running ---- */

static void on_timeout(uv_timer_t *timer) {
    struct fixture *f = timer->data;

    f->timed_out = true;
}

#define RUN_UNTIL(f, condition)                                                                    \
    do {                                                                                           \
        (f)->timed_out = false;                                                                    \
        (void) uv_timer_start(&(f)->timeout, on_timeout, TIMEOUT_MS, 0);                           \
        while (!(condition) && !(f)->timed_out)                                                    \
            (void) uv_run(&(f)->loop, UV_RUN_ONCE);                                                \
        (void) uv_timer_stop(&(f)->timeout);                                                       \
        if (!(condition))                                                                          \
            fail_msg("never happened: %s", #condition);                                            \
    } while (0)

static void kubelet_down(struct fixture *f) {
    f->server_closed = false;
    grpc_server_close(f->server, on_server_closed, f);
    f->server = NULL;
    RUN_UNTIL(f, f->server_closed);
}

static void on_prestart(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata) {
    struct fixture *f = userdata;

    if (f->begin) {
        f->begin(f, call, resource, ids, nids);
        return;
    }
    assert_string_equal(resource->name, "elasticgpu.io/gpu-core");
    f->prestarts++;
    f->prestart_ids = nids;
    (void) snprintf(f->prestart_first, sizeof(f->prestart_first), "%s", ids[0]);
    grpc_call_finish(call, GRPC_FAILED_PRECONDITION, "no share for you");
}

static uint32_t unhealthy_percent(const struct checkpoint_entry *entry, void *userdata) {
    (void) entry;
    return ((struct fixture *) userdata)->unhealthy_percent;
}

static bool has_ended(const struct checkpoint_entry *entry, void *userdata) {
    (void) entry;
    return ((struct fixture *) userdata)->ended;
}

static void on_checkpoint(void *userdata) {
    ((struct fixture *) userdata)->checkpoints++;
}

static void on_state(const struct resource *r, bool registered, const char *why, void *userdata) {
    (void) r;
    (void) registered;
    (void) why;
    (void) userdata;
}

static void on_detached(void *userdata) {
    (void) userdata;
}

#define GUARD "/run/aliquot/guard/CDI-is-off-in-the-container-runtime"

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    static const struct kubelet_handlers handlers = {devices,   on_prestart, unhealthy_percent,
                                                     has_ended, NULL,        on_checkpoint,
                                                     on_state,  on_detached};
    struct kubelet_options options = {.handlers = &handlers, .userdata = f};

    assert_non_null(f);
    (void) snprintf(f->dir, sizeof(f->dir), "/tmp/aliquot-kubelet-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void) snprintf(f->plugins, sizeof(f->plugins), "%s/device-plugins", f->dir);
    assert_int_equal(mkdir(f->plugins, 0755), 0);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    (void) uv_timer_init(&f->loop, &f->timeout);
    f->timeout.data = f;
    options.dir = f->dir;
    options.guard = GUARD;
    assert_int_equal(kubelet_start(&f->loop, &options, &f->kubelet, NULL), 0);
    *state = f;
    return 0;
}

static void on_kubelet_closed(void *userdata) {
    ((struct fixture *) userdata)->closed = true;
}

static int teardown(void **state) {
    struct fixture *f = *state;

    kubelet_close(f->kubelet, on_kubelet_closed, f);
    RUN_UNTIL(f, f->closed);
    if (f->server)
        kubelet_down(f);
    uv_close((uv_handle_t *) &f->timeout, NULL);
    (void) uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    (void) dir_remove(f->dir, NULL);
    free(f);
    return 0;
}

/* ---- calling a plugin as kubelet does ---- */

static void on_result(const struct grpc_result *result, void *userdata) {
    struct fixture *f = userdata;

    f->result = *result;
    (void) snprintf(f->text, sizeof(f->text), "%s", result->text);
    f->result.text = f->text;
    if (result->message && result->size <= sizeof(f->reply))
        memcpy(f->reply, result->message, result->size);
    f->answered = true;
}

static void call(struct fixture *f, const char *method, const struct buf *message,
                 unsigned timeout_ms) {
    char path[160];
    struct grpc_request_options options = {
        .socket_path = path, .method = method, .timeout_ms = timeout_ms};

    (void) snprintf(path, sizeof(path), "%s/%s", f->plugins, f->endpoint);
    options.message = (const uint8_t *) buf_str(message);
    options.size = message->len;
    f->answered = false;
    assert_int_equal(grpc_request_start(&f->loop, &options, on_result, f, NULL, NULL), 0);
    RUN_UNTIL(f, f->answered);
}

/* As kubelet's requests: one repeated string, field 1, in a message that is field 1 where `nested`.
 */
static void put_ids(struct buf *out, bool nested, const char *const *ids, size_t n) {
    _cleanup_buf_ struct buf inner = BUF_INIT(4096);

    for (size_t i = 0; i < n; i++) {
        buf_putc(&inner, 0x0a);
        buf_putc(&inner, (char) strlen(ids[i]));
        buf_puts(&inner, ids[i]);
    }
    if (nested) {
        assert_in_range(inner.len, 0, 127);
        buf_putc(out, 0x0a);
        buf_putc(out, (char) inner.len);
    }
    buf_append(out, buf_str(&inner), inner.len);
}
