/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/policy_watch.h"

#include <stdio.h>
#include <time.h>

#include "base/err.h"
#include "base/server_time.h"
#include "scheduler/daemon/scheduler.h"

#define PATCHES_PER_TICK 16
#define TIMEOUT_MS 10000
#define BODY_MAX ((size_t) 512 << 10)

/* ---- quotas ---- */

static void see_quota(struct scheduler *s, enum quota_kind kind, enum kube_event event,
                      struct json object) {
    static int (*const parse[])(struct json object, struct quota_object * ret, struct err * err) = {
        [QUOTA_OF_OURS] = quota_object_parse, [QUOTA_OF_KUBERNETES] = resource_quota_parse};
    struct quota_object quota;
    struct err err;
    if (parse[kind](object, &quota, &err) < 0) {
        watch_refuse(s, err.text);
        return;
    }
    if (event == KUBE_DELETED)
        quotas_gone(&s->govern.quotas, kind, quota.namespace, quota.name);
    else if (quotas_seen(&s->govern.quotas, kind, &quota) < 0)
        watch_refuse(s, "out of memory, a quota does not count");
    watch_changed(s);
}

#define HANDLERS(kind, KIND)                                                                       \
    WATCH_HANDLERS(govern_##kind, quotas_sync_begin(&s->govern.quotas, KIND),                      \
                   see_quota(s, KIND, event, object), quotas_sync_end(&s->govern.quotas, KIND))
HANDLERS(quotas, QUOTA_OF_OURS)
HANDLERS(resource_quotas, QUOTA_OF_KUBERNETES)

/* ---- reservations ---- */

static void reservations_begin(struct scheduler *s) {
    reservations_sync_begin(&s->govern.reservations);
}

static void on_reservation(struct scheduler *s, enum kube_event event, struct json object) {
    struct reservation_object reservation;
    struct err err;
    if (reservation_object_parse(object, &reservation, &err) < 0) {
        watch_refuse(s, err.text);
        return;
    }
    if (event == KUBE_DELETED) {
        reservations_gone(&s->govern.reservations, reservation.name);
        reservation_object_done(&reservation);
    } else if (reservations_seen(&s->govern.reservations, &reservation) < 0)
        watch_refuse(s, "out of memory, a reservation does not count");
    watch_changed(s);
}

static void reservations_end(struct scheduler *s) {
    reservations_sync_end(&s->govern.reservations);
}

const struct watch_handlers govern_reservations = {reservations_begin, on_reservation,
                                                   reservations_end};

/* ---- status ---- */

/* What was not written is written in the next round: the watch shows what there is. */
static void on_patched(const struct kube_response *response, void *userdata) {
    struct scheduler *s = userdata;
    (void) response;
    s->govern.in_flight--;
}

/* A usage is sent once where the CRD may not keep all of it: again if it did not arrive. */
static void on_quota_patched(const struct kube_response *response, void *userdata) {
    struct scheduler *s = userdata;
    if (response->status < 200 || response->status >= 300)
        quotas_refused(&s->govern.quotas);
    on_patched(response, s);
}

/* Whether it is sent. */
static bool patch_status(struct scheduler *s, const char *path, const struct buf *body,
                         kube_response_cb on_response) {
    const struct api *api = &s->binder.api; /* a reservation's status is an allocation */
    struct err err;
    if (buf_error(body) < 0 ||
        api->request(api->context, "PATCH", path, KUBE_MERGE_PATCH, body->data, body->len,
                     TIMEOUT_MS, on_response, s, &err) < 0)
        return false;
    s->govern.in_flight++;
    return true;
}

static void patch_quota(const struct quota_object *object, const struct quota_usage *used,
                        void *userdata) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    struct scheduler *s = userdata;
    char path[512];
    (void) snprintf(path, sizeof(path),
                    "/apis/elasticgpu.io/v1alpha1/namespaces/%s/elasticgpuquotas/%s/status",
                    object->namespace, object->name);
    quota_object_encode_status(used, &body);
    if (!patch_status(s, path, &body, on_quota_patched))
        quotas_refused(&s->govern.quotas);
}

static void patch_reservation(const char *name, const struct reservation_status *status,
                              void *userdata) {
    _cleanup_buf_ struct buf body = BUF_INIT(BODY_MAX);
    char path[512];
    (void) snprintf(path, sizeof(path), RESERVATIONS_PATH "/%s/status", name);
    buf_puts(&body, "{\"status\":");
    reservation_encode_status(status, &body);
    buf_puts(&body, "}");
    (void) patch_status(userdata, path, &body, on_patched);
}

/* ---- life ---- */

int govern_start(struct scheduler *s) {
    int r;
    s->govern.quotas = (struct quotas){.state = s->state};
    s->govern.gangs = (struct gangs){
        .state = s->state, .gates = &s->gates, .refuse = s->extender.on_refusal, .userdata = s};
    s->govern.reservations = (struct reservations){.state = s->state};
    const struct state_selector selector = reservations_selector(&s->govern.reservations);
    r = state_add_selector(s->state, &selector);
    if (r == 0)
        r = gates_add(&s->gates, &(struct gate){"quota", &s->govern.quotas, quotas_open}, false);
    if (r == 0)
        r = gates_add(&s->gates,
                      &(struct gate){"reservation", &s->govern.reservations, reservations_open},
                      false);
    if (r == 0)
        r = gates_add(&s->gates, &(struct gate){"gang", &s->govern.gangs, gangs_open}, false);
    return r;
}

void govern_done(struct scheduler *s) {
    quotas_done(&s->govern.quotas);
    gangs_done(&s->govern.gangs);
    reservations_done(&s->govern.reservations);
}

void govern_lost(struct scheduler *s) {
    gangs_forget(&s->govern.gangs);
}

void govern_tick(struct scheduler *s) {
    gangs_tick(&s->govern.gangs, scheduler_now(s));
    unsigned patches = s->govern.in_flight == 0 ? PATCHES_PER_TICK : 0;
    reservations_tick(&s->govern.reservations, server_time(), patches, patch_reservation, s);
    quotas_project(&s->govern.quotas, patches, patch_quota, s);
}
