/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A kubelet that calls a DRA plugin as a test wants. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <uv.h>

#include "base/buf.h"
#include "draplugin.pb-c.h"
#include "wire/grpc_client.h"

#define TIMEOUT_MS 60000
#define SERVICE "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
#define REGISTRATION "/pluginregistration.Registration/"
#define HEALTH "/v1alpha1.DRAResourceHealth/"

struct dra_world {
    uv_loop_t loop;
    uv_timer_t timeout;
    bool timed_out;
    char dir[64];                        /* kubelet's */
    char registration[128], plugin[128]; /* sockets */
    enum grpc_status status;             /* of the last call */
    char text[512];
    uint8_t reply[65536];
    size_t size;
    bool answered;
};

static void on_timeout(uv_timer_t *timer) {
    ((struct dra_world *) timer->data)->timed_out = true;
}

#define RUN_UNTIL(w, condition)                                                                    \
    do {                                                                                           \
        (w)->timed_out = false;                                                                    \
        (void) uv_timer_start(&(w)->timeout, on_timeout, TIMEOUT_MS, 0);                           \
        while (!(condition) && !(w)->timed_out)                                                    \
            (void) uv_run(&(w)->loop, UV_RUN_ONCE);                                                \
        (void) uv_timer_stop(&(w)->timeout);                                                       \
        if (!(condition))                                                                          \
            fail_msg("never happened: %s", #condition);                                            \
    } while (0)

static void on_result(const struct grpc_result *result, void *userdata) {
    struct dra_world *w = userdata;

    w->status = result->status;
    (void) snprintf(w->text, sizeof(w->text), "%s", result->text);
    assert_in_range(result->size, 0, sizeof(w->reply));
    w->size = result->size;
    if (result->size > 0)
        memcpy(w->reply, result->message, result->size);
    w->answered = true;
}

/* The answer comes later. */
static void begin_call(struct dra_world *w, const char *socket, const char *method,
                       const struct buf *message, unsigned timeout_ms) {
    const struct grpc_request_options options = {.socket_path = socket,
                                                 .method = method,
                                                 .message = (const uint8_t *) buf_str(message),
                                                 .size = message->len,
                                                 .timeout_ms = timeout_ms};

    w->answered = false;
    assert_int_equal(grpc_request_start(&w->loop, &options, on_result, w, NULL, NULL), 0);
}

static void call(struct dra_world *w, const char *socket, const char *method,
                 const struct buf *message) {
    begin_call(w, socket, method, message, TIMEOUT_MS);
    RUN_UNTIL(w, w->answered);
}

static void put_claim(struct buf *out, const char *namespace, const char *uid, const char *name) {
    Draplugin__NodePrepareResourcesRequest m = DRAPLUGIN__NODE_PREPARE_RESOURCES_REQUEST__INIT;
    Draplugin__Claim claim = DRAPLUGIN__CLAIM__INIT, *claims = &claim;
    uint8_t bytes[1024];

    claim.namespace_ = (char *) (uintptr_t) namespace;
    claim.uid = (char *) (uintptr_t) uid;
    claim.name = (char *) (uintptr_t) name;
    m.n_claims = 1;
    m.claims = &claims;
    assert_in_range(draplugin__node_prepare_resources_request__get_packed_size(&m), 0,
                    sizeof(bytes));
    buf_append(out, (const char *) bytes,
               draplugin__node_prepare_resources_request__pack(&m, bytes));
}

static void world_init(struct dra_world *w) {
    (void) snprintf(w->dir, sizeof(w->dir), "/tmp/aliquot-dra-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    (void) snprintf(w->registration, sizeof(w->registration),
                    "%s/plugins_registry/gpu.elasticgpu.io-reg.sock", w->dir);
    (void) snprintf(w->plugin, sizeof(w->plugin), "%s/plugins/gpu.elasticgpu.io/dra.sock", w->dir);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    (void) uv_timer_init(&w->loop, &w->timeout);
    w->timeout.data = w;
}

static void world_done(struct dra_world *w) {
    uv_close((uv_handle_t *) &w->timeout, NULL);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
}
