/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/mig_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/objects/gpu_object.h"
#include "scheduler/daemon/scheduler.h"
#include "wire/http_status.h"

#define TIMEOUT_MS 10000

/* ---- the world of the orders ---- */

static bool has_room(void *self, const struct mig_pod *pod, const char *name) {
    struct scheduler *s = self;
    const struct state_node *node = state_node_find(s->state, name);

    return node && node->used.cpu + pod->room.cpu <= node->room.cpu &&
           node->used.memory + pod->room.memory <= node->room.memory;
}

struct writing {
    struct mig_orders *orders;
    char gpu[KUBE_NAME_MAX]; /* the card may be gone when the answer comes */
};

static void on_written(const struct kube_response *response, void *userdata) {
    _cleanup_free_ struct writing *writing = userdata;
    bool done = http_is_success(response->status);

    if (!done)
        log_info("GPU object %s: the order of MIG instances was not written: %.200s", writing->gpu,
                 response->text);
    mig_orders_written(writing->orders, writing->gpu, done);
}

void mig_watch_write(void *self, struct mig_orders *orders, const char *gpu, const char *version,
                     const char *order) {
    struct scheduler *s = self;
    _cleanup_free_ struct writing *writing = calloc(1, sizeof(*writing));
    _cleanup_buf_ struct buf body = BUF_INIT(4 * MIG_ORDER_TEXT_MAX);
    const struct api *api = &s->binder.api;
    char path[KUBE_NAME_MAX + 64];

    mig_order_patch(version, order, &body);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s", gpu);
    if (!writing || buf_error(&body) < 0)
        return;
    writing->orders = orders;
    text_copy(writing->gpu, sizeof(writing->gpu), gpu);
    log_info("GPU object %s: order of MIG instances: %s", gpu, order);
    if (api->request(api->context, "PATCH", path, KUBE_MERGE_PATCH, body.data, body.len, TIMEOUT_MS,
                     on_written, writing, NULL) == 0)
        (void) take_ptr(writing);
}

static void note(void *self, const struct mig_pod *pod, bool warning, const char *reason,
                 const char *message) {
    struct scheduler *s = self;
    struct event event = event_on_pod(pod->namespace, pod->name, pod->uid, reason, message);

    event.normal = !warning;
    log_info("pod %s/%s: %s: %s", pod->namespace, pod->name, reason, message);
    event_writer_note(s->events, &event, 0, false, scheduler_now(s));
}

int mig_watch_start(struct scheduler *s) {
    const struct mig_orders_world world = {
        .self = s, .has_room = has_room, .write = mig_watch_write, .note = note};

    s->mig = mig_orders_new(&world);
    return s->mig ? 0 : -ENOMEM;
}

/* ---- its inputs ---- */

static bool is_of_claims(enum mig_orders_kind kind) {
    return kind != MIG_ORDERS_PODS;
}

void mig_watch_begin(struct scheduler *s, enum mig_orders_kind kind) {
    mig_orders_begin(s->mig, kind);
    if (is_of_claims(kind))
        mig_orders_begin(s->mig_claims, kind);
}

void mig_watch_end(struct scheduler *s, enum mig_orders_kind kind) {
    mig_orders_end(s->mig, kind);
    if (is_of_claims(kind))
        mig_orders_end(s->mig_claims, kind);
}

static void see(struct scheduler *s, struct mig_orders *orders, enum mig_orders_kind kind,
                enum kube_event event, struct json object, const char *key) {
    struct err err;

    if (event == KUBE_DELETED && key)
        mig_orders_gone(orders, kind, key);
    else if (event != KUBE_DELETED && mig_orders_seen(orders, kind, object, &err) < 0)
        watch_refuse(s, err.text);
}

void mig_watch_object(struct scheduler *s, enum mig_orders_kind kind, enum kube_event event,
                      struct json object, const char *key) {
    see(s, s->mig, kind, event, object, key);
    if (is_of_claims(kind))
        see(s, s->mig_claims, kind, event, object, key);
}
