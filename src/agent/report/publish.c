/* SPDX-License-Identifier: Apache-2.0 */

/* Publishes the node's cards: one GPU object for each card, the memory in the node's capacity, and
 * the condition AliquotAgentReady. All are watched and repaired: kubelet zeroes unknown capacity
 * when it registers, a new Node object has none, and users edit objects. No writes while everything
 * is up to date. One request at a time. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/audit/card_audit.h"
#include "agent/health/cards.h"
#include "agent/report/labeler.h"
#include "agent/report/publish.h"
#include "agent/report/report.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "kube/api/client.h"
#include "kube/api/object_write.h"
#include "kube/api/reflector.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/node.h"
#include "model/dialect.h"
#include "model/quantity.h"
#include "model/scaling.h"
#include "wire/json_write.h"

#define OBJECTS_MAX ((size_t) 2 * GPU_CARDS_MAX)
#define RETRY_MIN_MS 500
#define RETRY_MAX_MS 30000
/* More writes than one of each kind for each object, and still something to write: what is written
 * does not stay (an older CRD, a webhook), and hurrying does not help. */
#define WRITES_MAX (2 * OBJECTS_MAX + 8)
#define LABEL_VALUE_MAX 63
#define HEALTH_CONDITION "GPUHealthy" /* of the node: of all its cards and instances */
#define MESSAGE_MAX 512

/* An object of this node as the API server has it. */
struct published {
    struct gpu_object gpu;
    bool seen;
};

/* What the node says of all its cards together, beside the resources that a plugin serves: kubelet
 * counts pods against it, and gpushare's tools read the last two there. dialects.def has what pods
 * request, of which this is a part: totals of what a plugin serves already are not published. */
static const struct {
    const char *name;
    uint64_t unit; /* bytes; 0: counts cards */
} sums[] = {
    {RESOURCE_MEMORY, 1},
    {"tke.cloud.tencent.com/qgpu-memory", (uint64_t) 1 << 30},
    {"aliyun.com/gpu-mem", (uint64_t) 1 << 30},
    {"aliyun.com/gpu-count", 0},
};
#define SUMS (sizeof(sums) / sizeof(sums[0]))

struct publisher {
    struct report *report;
    struct kube_reflector *node_watch, *gpu_watch;
    bool node_known, gpus_known;
    struct node_object node;
    struct labeler labeler;
    uint64_t capacity[SUMS];  /* in the Node's status; UINT64_MAX: not present */
    char health[MESSAGE_MAX]; /* message of the condition GPUHealthy; "": there is none */
    char health_since[2][OBJECT_TIME_SIZE]; /* its lastTransitionTime, if its status is [status] */
    struct gpu_orders orders;               /* annotations of the Node */
    struct published objects[OBJECTS_MAX];
    size_t nobjects;
    struct kube_call *call;
    char doing[KUBE_NAME_MAX + 96]; /* for messages */
    uv_timer_t timer;
    unsigned retry_ms;
    unsigned writes;         /* since there was nothing to write */
    char trouble[768];       /* of the last write */
    char watch_trouble[768]; /* counts while a watch is not up */
    void (*on_closed)(void *userdata);
    void *closed_userdata;
};

static void reconcile(struct publisher *p);

/* ---- what there is ---- */

static struct published *find_published(struct publisher *p, const char *name) {
    for (size_t i = 0; i < p->nobjects; i++)
        if (strcmp(p->objects[i].gpu.name, name) == 0)
            return &p->objects[i];
    return NULL;
}

static void forget_published(struct publisher *p, const char *name) {
    struct published *o = find_published(p, name);

    if (o)
        *o = p->objects[--p->nobjects];
}

static void remember(struct publisher *p, struct json object) {
    struct gpu_object gpu;
    struct published *o;

    if (gpu_object_parse(object, &gpu, NULL) < 0 ||
        strcmp(gpu.node, p->report->shares->options.node_name) != 0)
        return;
    o = find_published(p, gpu.name);
    if (!o && p->nobjects < OBJECTS_MAX)
        o = &p->objects[p->nobjects++];
    if (!o)
        return;
    o->gpu = gpu;
    o->seen = true;
}

static void remember_node(struct publisher *p, struct json object) {
    struct json capacity = JSON_PATH(object, "status", "capacity");
    struct json health =
        json_find(JSON_PATH(object, "status", "conditions"), "type", HEALTH_CONDITION);
    const char *message = json_string(json_get(health, "message"));

    if (node_object_parse(object, &p->node, NULL) < 0)
        return;
    p->node_known = true;
    labeler_see_node(&p->labeler, object);
    if (p->report->on_node)
        p->report->on_node(object, p->report->userdata);
    gpu_object_read_orders(json_get(object, "metadata"), &p->orders);
    for (int status = 0; status < 2; status++)
        object_condition_since(health, status, p->health_since[status]);
    text_copy(p->health, sizeof(p->health), message ? message : "");
    for (size_t i = 0; i < SUMS; i++) {
        const char *text = json_string(json_get(capacity, sums[i].name));

        if (!text || quantity_parse(text, strlen(text), &p->capacity[i]) < 0)
            p->capacity[i] = UINT64_MAX;
    }
}

/* ---- what there should be ---- */

static void put_overuse(const struct report *report, const char *uuid, struct gpu_object *ret) {
    for (const struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            if (slot->grant.devices[i].memory_audit.state >= AUDIT_MEMORY_ESCAPED &&
                strcmp(slot->grant.devices[i].uuid, uuid) == 0)
                gpu_object_add_overuse(ret, slot->grant.namespace, slot->grant.pod,
                                       slot->grant.container);
}

/* In the words of `nvidia-smi topo -m`. */
static uint8_t link_to(const struct gpu_connections *c, uint32_t other) {
    if (c->nvlinks[other] > 0)
        return (uint8_t) (LINK_NVLINK + (c->nvlinks[other] <= LINK_NVLINKS_MAX
                                             ? c->nvlinks[other] - 1
                                             : LINK_NVLINKS_MAX - 1));
    /* NVML counts from 0, the same board, in tens to 50, another socket. */
    return c->level[other] <= 50 ? (uint8_t) (LINK_BOARD - c->level[other] / 10) : LINK_UNKNOWN;
}

static void put_links(const struct gpu_connections *c, struct gpu_object *ret) {
    ret->numa = c->known > 0 ? (int8_t) c->numa : -1;
    ret->nlinks = c->known <= GPU_LINKS_MAX ? c->known : GPU_LINKS_MAX;
    for (uint32_t i = 0; i < ret->nlinks; i++)
        ret->links[i] = i == ret->index ? LINK_UNKNOWN : link_to(c, i);
}

static void put_health(const struct report *report, const char *uuid, struct gpu_object *ret) {
    struct health_view view = health_cards_view(report->health, uuid);

    text_copy(ret->state, sizeof(ret->state), health_state_name(view.state));
    text_copy(ret->reason, sizeof(ret->reason), view.reason);
    object_time((time_t) view.since, ret->since);
    ret->last_xid = view.last_xid;
}

static void desired(struct publisher *p, const struct gpu_device *d, struct gpu_object *ret) {
    struct report *report = p->report;

    memset(ret, 0, sizeof(*ret));
    (void) gpu_object_name(report->shares->options.node_name, p->node.internal_ip, d->index,
                           ret->name);
    text_copy(ret->node, sizeof(ret->node), report->shares->options.node_name);
    text_copy(ret->owner, sizeof(ret->owner), p->node.uid);
    text_copy(ret->uuid, sizeof(ret->uuid), d->uuid);
    text_copy(ret->model, sizeof(ret->model), d->model);
    if (report->shares->driver)
        gpu_driver_path(report->shares->driver, &report->shares->places, d, ret->path);
    ret->index = d->index;
    ret->memory = d->memory;
    ret->capacity = scaling_capacity(d->memory, report->shares->options.memory_scaling);
    put_health(report, d->uuid, ret);
    put_links(&d->links, ret);
    put_overuse(report, d->uuid, ret);
    if (!card_audit_held_back(report->audit, d, &ret->unattributed)) {
        const struct published *have = find_published(p, ret->name);

        ret->unattributed = have ? have->gpu.unattributed : 0;
    }
}

/* Published values are kept while the driver does not answer. */
static bool same_links(const struct gpu_object *have, const struct gpu_object *want) {
    return want->nlinks == 0 || (have->numa == want->numa && have->nlinks == want->nlinks &&
                                 memcmp(have->links, want->links, want->nlinks) == 0);
}

/* Where the node can serve no pod, the scheduler has made a healthy card Unknown. */
static bool same_health(const struct publisher *p, const struct gpu_object *have,
                        const struct gpu_object *want) {
    bool left =
        have->unknown && strcmp(want->state, "Healthy") == 0 && !node_serves(&p->node, time(NULL));

    return (left || strcmp(have->state, want->state) == 0) &&
           strcmp(have->reason, want->reason) == 0 && have->last_xid == want->last_xid;
}

static bool same_spec(const struct gpu_object *a, const struct gpu_object *b) {
    return same_links(a, b) && a->index == b->index && a->memory == b->memory &&
           strcmp(a->owner, b->owner) == 0 && strcmp(a->uuid, b->uuid) == 0 &&
           strcmp(a->model, b->model) == 0 && (strcmp(a->path, b->path) == 0 || !b->path[0]);
}

/* ---- requests ---- */

static void on_timer(uv_timer_t *timer) {
    reconcile(timer->data);
}

static void on_response(const struct kube_response *response, void *userdata) {
    struct publisher *p = userdata;

    p->call = NULL;
    if (response->status < 200 || response->status > 299) {
        (void) snprintf(p->trouble, sizeof(p->trouble), "cannot %s: %.300s", p->doing,
                        response->text);
        log_warn("%s; trying again in %u ms", p->trouble, p->retry_ms);
        (void) uv_timer_start(&p->timer, on_timer, p->retry_ms, 0);
        p->retry_ms = p->retry_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : p->retry_ms * 2;
        return;
    }
    p->retry_ms = RETRY_MIN_MS;
    p->trouble[0] = 0;
    log_info("%s: done", p->doing);
    /* What was written is true at once, not when the watch shows it. */
    if (json_valid(JSON_PATH(response->body, "spec", "uuid")))
        remember(p, response->body);
    else if (json_valid(JSON_PATH(response->body, "status", "nodeInfo")))
        remember_node(p, response->body);
    if (++p->writes >= WRITES_MAX) {
        (void) snprintf(p->trouble, sizeof(p->trouble), "%s: it does not stay as written",
                        p->doing);
        (void) uv_timer_start(&p->timer, on_timer, RETRY_MAX_MS, 0);
    }
    reconcile(p);
}

static void request(struct publisher *p, const char *method, const char *path, const char *type,
                    struct buf *body) {
    if (buf_error(body) < 0 || kube_request(p->report->client, method, path, type, body->data,
                                            body->len, 10000, on_response, p, &p->call, NULL) < 0)
        (void) uv_timer_start(&p->timer, on_timer, p->retry_ms, 0);
}

static void create_object(struct publisher *p, const struct gpu_object *gpu) {
    _cleanup_buf_ struct buf body = BUF_INIT(16384);

    (void) snprintf(p->doing, sizeof(p->doing), "create GPU object %s", gpu->name);
    gpu_object_encode(gpu, &body);
    request(p, "POST", GPU_OBJECTS_PATH, NULL, &body);
}

static void patch_object(struct publisher *p, const struct gpu_object *gpu) {
    _cleanup_buf_ struct buf body = BUF_INIT(16384);
    char path[KUBE_NAME_MAX + 64];

    (void) snprintf(p->doing, sizeof(p->doing), "update GPU object %s", gpu->name);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s", gpu->name);
    gpu_object_encode(gpu, &body);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
}

static void patch_status(struct publisher *p, const struct gpu_object *gpu) {
    _cleanup_buf_ struct buf body = BUF_INIT(16384);
    char path[KUBE_NAME_MAX + 64];

    (void) snprintf(p->doing, sizeof(p->doing), "report GPU object %s %s", gpu->name, gpu->state);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s/status", gpu->name);
    gpu_object_encode_status(gpu, &body);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
}

static void delete_object(struct publisher *p, const char *name) {
    _cleanup_buf_ struct buf body = BUF_INIT(16);
    char path[KUBE_NAME_MAX + 64];

    (void) snprintf(p->doing, sizeof(p->doing),
                    "delete GPU object %s (its card has another name now)", name);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s", name);
    forget_published(p, name);
    request(p, "DELETE", path, NULL, &body);
}

/* A missing entry equals 0 and is not written. */
static bool is_published(const struct publisher *p, size_t sum, uint64_t want) {
    return p->capacity[sum] == want || (want == 0 && p->capacity[sum] == UINT64_MAX);
}

static void patch_node(struct publisher *p, const uint64_t want[static SUMS]) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct json_writer w = {.out = &body};
    char path[KUBE_NAME_MAX + 64];

    (void) snprintf(p->doing, sizeof(p->doing), "set the node's GPU memory capacity");
    (void) snprintf(path, sizeof(path), "/api/v1/nodes/%s/status",
                    p->report->shares->options.node_name);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    json_object_begin(&w, "capacity");
    for (size_t i = 0; i < SUMS; i++)
        if (!is_published(p, i, want[i]))
            json_put_stringf(&w, sums[i].name, "%llu", (unsigned long long) want[i]);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    request(p, "PATCH", path, KUBE_STRATEGIC_PATCH, &body);
}

/* `since`: "": from now on. */
static void patch_condition(struct publisher *p, const char *type, bool status, const char *reason,
                            const char *message, const char *since) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct json_writer w = {.out = &body};
    char path[KUBE_NAME_MAX + 64], now[OBJECT_TIME_SIZE];

    (void) snprintf(p->doing, sizeof(p->doing), "set the node's condition %s", type);
    (void) snprintf(path, sizeof(path), "/api/v1/nodes/%s/status",
                    p->report->shares->options.node_name);
    object_now(now);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    json_array_begin(&w, "conditions");
    object_put_condition(&w, type, status, reason, message, since[0] ? since : now, now);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    request(p, "PATCH", path, KUBE_STRATEGIC_PATCH, &body);
}

/* ---- the difference ---- */

/* Each of these sends at most one request and returns whether it did. */

static bool mend_node(struct publisher *p, const struct gpu_snapshot *s) {
    uint64_t want[SUMS] = {0};

    for (uint32_t i = 0; i < s->ndevices; i++) {
        uint64_t memory =
            scaling_capacity(s->devices[i].memory, p->report->shares->options.memory_scaling);

        for (size_t j = 0; j < SUMS && gpu_gives_shares(&s->devices[i]); j++)
            if (dialect_knows(sums[j].name))
                want[j] += sums[j].unit > 0 ? memory / sums[j].unit : 1;
    }
    for (size_t i = 0; i < SUMS; i++)
        if (!is_published(p, i, want[i])) {
            patch_node(p, want);
            return true;
        }
    return false;
}

static bool mend_object(struct publisher *p, const struct gpu_device *d) {
    const struct published *have;
    struct gpu_object want;

    desired(p, d, &want);
    have = find_published(p, want.name);
    if (!have)
        create_object(p, &want);
    else if (!same_spec(&have->gpu, &want))
        patch_object(p, &want);
    else if (!same_health(p, &have->gpu, &want) || !have->gpu.has_capacity ||
             have->gpu.capacity != want.capacity || have->gpu.unattributed != want.unattributed ||
             strcmp(have->gpu.overuse, want.overuse) != 0)
        patch_status(p, &want);
    else
        return false;
    return true;
}

/* The condition is kept until all plugins are registered: before that the node's allocatable is 0.
 */
static bool mend_condition(struct publisher *p) {
    const struct report *report = p->report;
    enum node_agent want = report->leaving                      ? NODE_AGENT_STOPPING
                           : kubelet_is_served(report->kubelet) ? NODE_AGENT_READY
                                                                : p->node.agent;

    if (want == p->node.agent || publisher_has_left(p))
        return false;
    if (want == NODE_AGENT_READY)
        patch_condition(p, NODE_AGENT_CONDITION, true, "Registered",
                        "kubelet has registered the device plugins of aliquot-agent", "");
    else
        patch_condition(p, NODE_AGENT_CONDITION, false, "Stopping",
                        "aliquot-agent is stopping: the node takes no pod with a GPU share", "");
    return true;
}

/* Returns the number of devices with a problem. Suspicion is none yet. */
static uint32_t tell_health(const struct publisher *p, const struct gpu_snapshot *s,
                            char ret[static MESSAGE_MAX]) {
    char list[MESSAGE_MAX - 64] = "";
    uint32_t bad = 0;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        struct health_view view = health_cards_view(p->report->health, d->uuid);
        size_t len = strlen(list);

        if (view.state == HEALTH_HEALTHY || view.state == HEALTH_SUSPECT)
            continue;
        (void) snprintf(list + len, sizeof(list) - len, "%s %s %u is %s%s%s", bad++ ? ";" : ":",
                        gpu_kind_name(d->kind), d->index, health_state_name(view.state),
                        view.reason[0] ? ", " : "", view.reason);
    }
    (void) snprintf(ret, MESSAGE_MAX, "%u of %u GPUs and instances are healthy%s",
                    s->ndevices - bad, s->ndevices, list);
    return bad;
}

static bool mend_health_condition(struct publisher *p, const struct gpu_snapshot *s) {
    char message[MESSAGE_MAX];
    uint32_t bad;

    if (s->ndevices == 0)
        return false;
    bad = tell_health(p, s, message);
    if (strcmp(message, p->health) == 0)
        return false;
    patch_condition(p, HEALTH_CONDITION, bad == 0, bad == 0 ? "Healthy" : "NotHealthy", message,
                    p->health_since[bad == 0]);
    return true;
}

static bool mend_labels(struct publisher *p, const struct gpu_snapshot *s) {
    _cleanup_buf_ struct buf body = BUF_INIT(256 << 10);
    struct gpu_monitor_status status;
    char path[KUBE_NAME_MAX + 64];

    /* What is saved of the cards may be of another driver. */
    gpu_monitor_status(p->report->shares->monitor, &status);
    if (!status.complete || !labeler_update(&p->labeler, s, &body))
        return false;
    (void) snprintf(p->doing, sizeof(p->doing), "set the node's labels");
    (void) snprintf(path, sizeof(path), "/api/v1/nodes/%s/status",
                    p->report->shares->options.node_name);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
    return true;
}

/* Why a card of a GPU object is given out in no shares. */
static const char *missing_reason(const struct gpu_snapshot *s, const char *uuid) {
    const struct gpu_device *d = gpu_find(s, uuid);

    return d && d->divided ? "the card is in MIG mode: it gives MIG instances and no shares"
                           : "the driver does not list the card any more";
}

/* A GPU object without a card: deleted if the card has another name now; reported if the card is
 * missing, because it may come back and pods may have allocations on it. */
static bool mend_leftover(struct publisher *p, const struct gpu_snapshot *s, struct published *o) {
    for (uint32_t i = 0; i < s->ndevices; i++) {
        struct gpu_object want;

        if (!gpu_gives_shares(&s->devices[i]))
            continue;
        desired(p, &s->devices[i], &want);
        if (strcmp(want.name, o->gpu.name) == 0)
            return false;
    }
    if (gpu_find_card(s, o->gpu.uuid)) {
        delete_object(p, o->gpu.name);
        return true;
    }
    if (o->gpu.healthy) {
        struct gpu_object lost = o->gpu;

        text_copy(lost.state, sizeof(lost.state), health_state_name(HEALTH_UNHEALTHY));
        text_copy(lost.reason, sizeof(lost.reason), missing_reason(s, o->gpu.uuid));
        object_now(lost.since);
        patch_status(p, &lost);
        return true;
    }
    return false;
}

/* Right after the start the cards are known from the saved state, but not their health. */
static bool snapshot_is_news(const struct report *report) {
    struct gpu_monitor_status status;

    gpu_monitor_status(report->shares->monitor, &status);
    return status.complete || uv_now(report->shares->loop) - report->started > MONITOR_STALE_MS;
}

static void reconcile(struct publisher *p) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(p->report->shares->monitor);

    if (p->call || uv_is_active((uv_handle_t *) &p->timer) || !p->node_known)
        return;
    if (p->report->leaving) {
        (void) mend_condition(p);
        return;
    }
    if (!p->gpus_known || !p->report->capacity_known || !snapshot_is_news(p->report))
        return;
    /* Before the objects: one that cannot be written must not keep pods from the other cards. */
    if (mend_node(p, s) || mend_condition(p) || mend_health_condition(p, s))
        return;
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (gpu_gives_shares(&s->devices[i]) && mend_object(p, &s->devices[i]))
            return;
    for (size_t i = 0; i < p->nobjects; i++)
        if (mend_leftover(p, s, &p->objects[i]))
            return;
    if (mend_labels(p, s))
        return;
    p->trouble[0] = 0; /* nothing is left to write */
    p->writes = 0;
}

void publisher_update(struct publisher *p) {
    reconcile(p);
}

void publisher_leave(struct publisher *p) {
    (void) uv_timer_stop(&p->timer); /* a write that failed is of no use any more */
    reconcile(p);
}

bool publisher_has_left(const struct publisher *p) {
    bool empty = gpu_monitor_snapshot(p->report->shares->monitor)->ndevices == 0;

    return p->report->leaving && p->node_known &&
           (p->node.agent == NODE_AGENT_STOPPING || (empty && p->node.agent == NODE_AGENT_UNKNOWN));
}

/* ---- watches ---- */

static void node_sync_begin(void *userdata) {
    (void) userdata;
}

static void node_object(enum kube_event event, struct json object, void *userdata) {
    struct publisher *p = userdata;

    if (event == KUBE_DELETED)
        p->node_known = false;
    else
        remember_node(p, object);
    reconcile(p);
}

static void node_sync_end(void *userdata) {
    (void) userdata;
}

static void gpu_sync_begin(void *userdata) {
    struct publisher *p = userdata;

    for (size_t i = 0; i < p->nobjects; i++)
        p->objects[i].seen = false;
}

static void gpu_object(enum kube_event event, struct json object, void *userdata) {
    struct publisher *p = userdata;
    const char *name = json_string(JSON_PATH(object, "metadata", "name"));

    if (event == KUBE_DELETED && name)
        forget_published(p, name);
    else
        remember(p, object);
    reconcile(p);
}

static void gpu_sync_end(void *userdata) {
    struct publisher *p = userdata;

    for (size_t i = p->nobjects; i > 0; i--)
        if (!p->objects[i - 1].seen)
            p->objects[i - 1] = p->objects[--p->nobjects];
    p->gpus_known = true;
    reconcile(p);
}

static void on_trouble(const char *text, unsigned retry_ms, void *userdata) {
    struct publisher *p = userdata;

    (void) snprintf(p->watch_trouble, sizeof(p->watch_trouble), "%s", text);
    log_debug("%s; trying again in %u ms", text, retry_ms);
}

static int start_watches(struct publisher *p, struct err *err) {
    static const struct kube_reflector_handlers node_events = {node_sync_begin, node_object,
                                                               node_sync_end, on_trouble};
    static const struct kube_reflector_handlers gpu_events = {gpu_sync_begin, gpu_object,
                                                              gpu_sync_end, on_trouble};
    const char *node = p->report->shares->options.node_name;
    char query[KUBE_NAME_MAX + 64];
    struct kube_reflector_options options = {.path = "/api/v1/nodes", .query = query};
    int r;

    (void) snprintf(query, sizeof(query), "fieldSelector=metadata.name%%3D%s", node);
    r = kube_reflector_start(p->report->client, &options, &node_events, p, &p->node_watch, err);
    if (r < 0)
        return r;
    options.path = GPU_OBJECTS_PATH;
    (void) snprintf(query, sizeof(query), "labelSelector=elasticgpu.io%%2Fnode%%3D%s", node);
    if (strlen(node) > LABEL_VALUE_MAX)
        options.query = NULL;
    return kube_reflector_start(p->report->client, &options, &gpu_events, p, &p->gpu_watch, err);
}

int publisher_start(struct report *report, struct publisher **ret, struct err *err) {
    struct publisher *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return err_set(err, ENOMEM, "out of memory");
    p->report = report;
    p->labeler.options = &report->labels;
    p->retry_ms = RETRY_MIN_MS;
    (void) uv_timer_init(report->shares->loop, &p->timer);
    p->timer.data = p;
    *ret = p;
    r = start_watches(p, err);
    return r;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct publisher *p = handle->data;
    void (*on_closed)(void *) = p->on_closed;
    void *userdata = p->closed_userdata;

    labeler_done(&p->labeler);
    free(p);
    if (on_closed)
        on_closed(userdata);
}

void publisher_stop(struct publisher *p, void (*on_closed)(void *userdata), void *userdata) {
    if (p->call)
        kube_call_cancel(p->call);
    if (p->node_watch)
        kube_reflector_stop(p->node_watch);
    if (p->gpu_watch)
        kube_reflector_stop(p->gpu_watch);
    p->on_closed = on_closed;
    p->closed_userdata = userdata;
    uv_close((uv_handle_t *) &p->timer, on_handle_closed);
}

bool publisher_object(const struct publisher *p, const char *uuid,
                      char ret_name[static KUBE_NAME_MAX], char ret_uid[static KUBE_UID_MAX]) {
    for (size_t i = 0; i < p->nobjects; i++) {
        if (strcmp(p->objects[i].gpu.uuid, uuid) != 0)
            continue;
        text_copy(ret_name, KUBE_NAME_MAX, p->objects[i].gpu.name);
        text_copy(ret_uid, KUBE_UID_MAX, p->objects[i].gpu.uid);
        return true;
    }
    return false;
}

const char *publisher_order(const struct publisher *p, const struct gpu_device *card) {
    if (card->divided)
        return p->node_known ? p->orders.set_healthy : NULL;
    for (size_t i = 0; i < p->nobjects; i++)
        if (strcmp(p->objects[i].gpu.uuid, card->uuid) == 0)
            return p->objects[i].gpu.orders.set_healthy;
    return NULL;
}

const char *publisher_trouble(const struct publisher *p) {
    if (p->watch_trouble[0] && p->node_watch && p->gpu_watch &&
        (!kube_reflector_is_synced(p->node_watch) || !kube_reflector_is_synced(p->gpu_watch)))
        return p->watch_trouble;
    return p->trouble;
}
