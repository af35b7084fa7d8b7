/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A node with a card in MIG mode, two instances of it and a whole card, and an agent that reports
 * on it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

#include "agent/audit/audit.h"
#include "agent/audit/usage.h"
#include "agent/backends/backend.h"
#include "agent/backends/resource.h"
#include "agent/cluster/keys.h"
#include "agent/cluster/pods.h"
#include "agent/health/cards.h"
#include "agent/report/http.h"
#include "agent/report/publish.h"
#include "agent/report/report.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/text.h"
#include "base/units.h"
#include "fake-api-server.h"
#include "fake-monitor.h"
#include "kube/api/client.h"
#include "kube/api/reflector.h"
#include "kube/objects/gpu_object.h"
#include "mig/order.h"
#include "model/dialect.h"
#include "wire/http.h"
#include "wire/json.h"

#define CARD (80 * GIB)
#define ROUNDS_MAX 100000

/* ---- the node ---- */

static struct health_cards health_cards;

static uint32_t no_holders(const char *uuid, void *userdata) {
    (void) uuid, (void) userdata;
    return 0;
}

/* As the monitor does with a new snapshot. */
static void judge_devices(void) {
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        health_cards_judge(&health_cards, &snapshot.devices[i]);
}

static void set_devices(void) {
    static const struct gpu_device devices[] = {
        {.index = 0, .divided = true, .uuid = "GPU-divided", .memory = CARD},
        {.kind = GPU_MIG_INSTANCE,
         .uuid = "MIG-0",
         .parent = "GPU-divided",
         .memory = 40 * GIB,
         .mig = {.gi = 2, .ci = 0, .profile = "3g.40gb", .start = 4, .size = 4, .ci_slices = 3},
         .sample = {.attributable = 1, .memory_used = 3 * GIB}},
        {.kind = GPU_MIG_INSTANCE,
         .index = 1,
         .uuid = "MIG-1",
         .parent = "GPU-divided",
         .memory = 10 * GIB},
        {.index = 1, .uuid = "GPU-whole", .memory = CARD},
    };

    snapshot.ndevices = sizeof(devices) / sizeof(devices[0]);
    memcpy(snapshot.devices, devices, sizeof(devices));
    for (uint32_t i = 0; i < snapshot.ndevices; i++)
        snapshot.devices[i].healthy = true;
    memset(&health_cards, 0, sizeof(health_cards));
    health_cards.options = (struct health_cards_options){
        .rules = &health_defaults, .state_dir = "/nowhere", .holders = no_holders};
    judge_devices();
}

/* ---- the reports ---- */

static const struct whole_rows whole_rows;

struct world {
    uv_loop_t loop;
    char dir[64];
    struct shares shares;
    struct audit audit;
    struct prestarts prestarts;
    struct cross_check cross_check;
    struct report report;
    unsigned closing;
};

static void on_prestart(struct grpc_call *call, const struct resource *resource,
                        const char *const *ids, size_t nids, void *userdata) {
    (void) call, (void) resource, (void) ids, (void) nids, (void) userdata;
}

static const struct gpu_snapshot *devices(void *userdata) {
    (void) userdata;
    return &snapshot;
}

static void on_something(void *userdata) {
    (void) userdata;
}

static void on_state(const struct resource *r, bool registered, const char *why, void *userdata) {
    (void) r, (void) registered, (void) why, (void) userdata;
}

static void on_pod(const struct pod_entry *e, void *userdata) {
    (void) e, (void) userdata;
}

static void on_trouble(const char *text, void *userdata) {
    (void) text, (void) userdata;
}

static int setup(void **state) {
    static const struct pods_handlers pods = {on_pod, on_pod, on_something, on_trouble, NULL};
    static const struct kubelet_handlers handlers = {devices, on_prestart,  NULL,     NULL,
                                                     NULL,    on_something, on_state, on_something};
    struct kubelet_options kubelet = {.handlers = &handlers};
    struct world *w = calloc(1, sizeof(*w));
    struct kubelet *k;

    assert_non_null(w);
    set_devices();
    assert_int_equal(uv_loop_init(&w->loop), 0);
    (void) snprintf(w->dir, sizeof(w->dir), "/tmp/aliquot-parts-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    kubelet.dir = w->dir;
    assert_int_equal(kubelet_start(&w->loop, &kubelet, &k, NULL), 0);
    w->shares.loop = &w->loop;
    w->shares.options.node_name = "node-a";
    w->shares.options.state_dir = w->dir;
    assert_int_equal(pods_start(NULL, "node-a", false, &pods, &w->shares.pods, NULL), 0);
    assert_int_equal(keys_start(NULL, "ns", on_something, NULL, &w->shares.keys, NULL), 0);
    w->audit.shares = &w->shares;
    audit_start(&w->audit);
    w->prestarts.shares = &w->shares;
    w->report = (struct report){.listen = "127.0.0.1:0",
                                .metric_names = UINT32_MAX,
                                .kubelet_dir = w->dir,
                                .labels = {.place = "off", .sys_dir = w->dir},
                                .shares = &w->shares,
                                .audit = &w->audit,
                                .health = &health_cards,
                                .prestarts = &w->prestarts,
                                .cross_check = &w->cross_check,
                                .kubelet = k,
                                .capacity_known = true,
                                .started = uv_now(&w->loop) - MONITOR_STALE_MS - 1};
    assert_int_equal(report_http_start(&w->report, NULL), 0);
    w->report.whole_rows = &whole_rows;
    assert_int_equal(publisher_start(&w->report, &w->report.publisher, NULL), 0);
    *state = w;
    return 0;
}

static void on_closed(void *userdata) {
    ((struct world *) userdata)->closing--;
}

static void close_handle(uv_handle_t *handle, void *userdata) {
    (void) userdata;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static int teardown(void **state) {
    struct world *w = *state;

    w->closing = 2;
    api.callback = NULL;
    report_http_stop(&w->report);
    publisher_stop(w->report.publisher, on_closed, w);
    kubelet_close((struct kubelet *) (uintptr_t) w->report.kubelet, on_closed, w);
    while (w->closing > 0)
        (void) uv_run(&w->loop, UV_RUN_ONCE);
    keys_stop(w->shares.keys);
    pods_stop(w->shares.pods);
    audit_stop(&w->audit);
    uv_walk(&w->loop, close_handle, NULL);
    (void) uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    (void) dir_remove(w->dir, NULL);
    free(w);
    return 0;
}
