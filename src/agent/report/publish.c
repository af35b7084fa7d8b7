/* SPDX-License-Identifier: Apache-2.0 */

/* Publishes the node's cards: one GPU object for each card and MIG instance, what the node's
 * capacity shows of them, and the condition AliquotAgentReady. All are watched and repaired:
 * kubelet zeroes unknown capacity when it registers, a new Node object has none, and users edit
 * objects. No writes while everything is up to date. One request at a time. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/audit/card_audit.h"
#include "agent/health/cards.h"
#include "agent/report/device_object.h"
#include "agent/report/labeler.h"
#include "agent/report/mig_status.h"
#include "agent/report/node_capacity.h"
#include "agent/report/publish.h"
#include "agent/report/report.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/on_closed.h"
#include "base/server_time.h"
#include "base/step.h"
#include "base/text.h"
#include "kube/api/client.h"
#include "kube/api/object_write.h"
#include "kube/api/reflector.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/node.h"
#include "model/dialect.h"
#include "wire/json_write.h"

#define PATH_SIZE (KUBE_NAME_MAX + 64)
#define OBJECTS_MAX ((size_t) 2 * GPU_MAX)
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
    uint64_t mig;     /* mig_status_seen() of its status.mig */
    uint64_t version; /* version_of() it */
    bool seen;
};

struct publisher {
    struct report *report;
    struct kube_reflector *node_watch, *gpu_watch;
    bool node_known, gpus_known;
    bool was_served; /* kubelet has registered all plugins at least once */
    struct node_object node;
    uint64_t node_version; /* version_of() it */
    struct labeler labeler;
    struct node_capacity capacity; /* in the Node's status */
    char health[MESSAGE_MAX];      /* message of the condition GPUHealthy; "": there is none */
    char health_since[2][OBJECT_TIME_SIZE]; /* its lastTransitionTime, if its status is [status] */
    char cpus[NODE_CPUS_TEXT_MAX];          /* of its annotation NODE_CPUS_ANNOTATION */
    struct node_orders orders;
    struct published objects[OBJECTS_MAX];
    size_t nobjects;
    struct kube_call *call;
    char doing[KUBE_NAME_MAX + 96]; /* for messages */
    uv_timer_t timer;
    unsigned retry_ms;
    unsigned writes;         /* since there was nothing to write */
    char trouble[768];       /* of the last write */
    char watch_trouble[768]; /* counts while a watch is not up */
    struct on_closed on_closed;
};

static void reconcile(struct publisher *p);

/* ---- what there is ---- */

/* Later states have greater ones. 0: it cannot be compared. */
static uint64_t version_of(struct json object) {
    const char *text = json_string(JSON_PATH(object, "metadata", "resourceVersion"));
    uint64_t version = 0;

    return text && num_parse_u64(text, UINT64_MAX, &version) == 0 ? version : 0;
}

static struct published *find_published(struct publisher *p, const char *name) {
    for (size_t i = 0; i < p->nobjects; i++)
        if (strcmp(p->objects[i].gpu.name, name) == 0)
            return &p->objects[i];
    return NULL;
}

/* The event may come after another object of that name has been made. */
static void forget_published(struct publisher *p, const char *name, const char *uid) {
    struct published *o = find_published(p, name);

    if (o && strcmp(o->gpu.uid, uid) == 0)
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
    o->mig = mig_status_seen(JSON_PATH(object, "status", "mig"));
    o->version = version_of(object);
    o->seen = true;
    if (p->report->on_gpu)
        p->report->on_gpu(object, p->report->userdata);
}

static void remember_node(struct publisher *p, struct json object) {
    struct json health =
        json_find(JSON_PATH(object, "status", "conditions"), "type", HEALTH_CONDITION);
    const char *message = json_string(json_get(health, "message"));
    const char *cpus =
        json_string(JSON_PATH(object, "metadata", "annotations", NODE_CPUS_ANNOTATION));

    if (node_object_parse(object, &p->node, NULL) < 0)
        return;
    p->node_known = true;
    p->node_version = version_of(object);
    text_copy(p->cpus, sizeof(p->cpus), cpus ? cpus : "");
    labeler_see_node(&p->labeler, object);
    if (p->report->on_node)
        p->report->on_node(object, p->report->userdata);
    gpu_object_read_orders(json_get(object, "metadata"), &p->orders.orders);
    p->orders.upgrade = driver_upgrade_read(json_get(object, "metadata"), p->orders.upgrade_label);
    for (int status = 0; status < 2; status++)
        object_condition_since(health, status, p->health_since[status]);
    text_copy(p->health, sizeof(p->health), message ? message : "");
    node_capacity_read(object, &p->capacity);
}

/* ---- what there should be ---- */

/* NULL: it is an instance, and the snapshot has no card for it. */
static const struct gpu_device *card_of(const struct publisher *p, const struct gpu_device *d) {
    return gpu_is_part(d) ? gpu_find(gpu_monitor_snapshot(p->report->shares->monitor), d->parent)
                          : d;
}

/* What is held back is not known before the first poll: what is published stays. */
static void desired(struct publisher *p, const struct gpu_device *card, const struct gpu_device *d,
                    struct gpu_object *ret) {
    const struct published *have;

    device_object(p->report, &p->node, card, d, ret);
    if (ret->no_shares || card_audit_held_back(p->report->audit, d, &ret->unattributed))
        return;
    have = find_published(p, ret->name);
    ret->unattributed = have ? have->gpu.unattributed : 0;
}

/* Whether a pod can be bound to the node for its cards, by what the Node says of it. */
static bool serves_pods(const struct publisher *p) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(p->report->shares->monitor);
    bool shares = false;

    for (uint32_t i = 0; i < s->ndevices; i++)
        shares |= gpu_gives_shares(&s->devices[i]);
    return shares ? node_serves(&p->node, server_time())
                  : node_serves_whole(&p->node, server_time());
}

/* Where the node can serve no pod, the scheduler has made a healthy card Unknown. */
static bool same_health(const struct publisher *p, const struct gpu_object *have,
                        const struct gpu_object *want) {
    bool left = have->unknown && strcmp(want->state, "Healthy") == 0 && !serves_pods(p);

    return (left || strcmp(have->state, want->state) == 0) &&
           strcmp(have->reason, want->reason) == 0 && have->last_xid == want->last_xid &&
           (!want->licence[0] || strcmp(have->licence, want->licence) == 0);
}

/* ---- requests ---- */

static void on_timer(uv_timer_t *timer) {
    reconcile(timer->data);
}

/* What was written is true at once, not when the watch shows it; but the watch may have shown
 * already what others have written since. */
static void remember_written(struct publisher *p, struct json body) {
    const char *name = json_string(JSON_PATH(body, "metadata", "name"));
    bool gpu = json_valid(JSON_PATH(body, "spec", "uuid"));
    const struct published *o = gpu && name ? find_published(p, name) : NULL;
    uint64_t version = version_of(body), shown = gpu ? (o ? o->version : 0) : p->node_version;

    if (version != 0 && version < shown)
        return;
    if (gpu)
        remember(p, body);
    else if (json_valid(JSON_PATH(body, "status", "nodeInfo")))
        remember_node(p, body);
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
    remember_written(p, response->body);
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

static void node_status_path(const struct publisher *p, char ret[static PATH_SIZE]) {
    (void) snprintf(ret, PATH_SIZE, "/api/v1/nodes/%s/status",
                    p->report->shares->options.node_name);
}

static void create_object(struct publisher *p, const struct gpu_object *gpu) {
    _cleanup_buf_ struct buf body = BUF_INIT(16384);

    (void) snprintf(p->doing, sizeof(p->doing), "create GPU object %s", gpu->name);
    gpu_object_encode(gpu, &body);
    request(p, "POST", GPU_OBJECTS_PATH, NULL, &body);
}

static void patch_object(struct publisher *p, const struct gpu_object *gpu) {
    _cleanup_buf_ struct buf body = BUF_INIT(16384);
    char path[PATH_SIZE];

    (void) snprintf(p->doing, sizeof(p->doing), "update GPU object %s", gpu->name);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s", gpu->name);
    gpu_object_encode(gpu, &body);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
}

static void patch_status(struct publisher *p, const struct gpu_object *gpu) {
    _cleanup_buf_ struct buf body = BUF_INIT(16384);
    char path[PATH_SIZE];

    (void) snprintf(p->doing, sizeof(p->doing), "report GPU object %s %s", gpu->name, gpu->state);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s/status", gpu->name);
    gpu_object_encode_status(gpu, &body);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
}

/* Only this one: the name may be another object's by now. */
static void delete_object(struct publisher *p, const struct gpu_object *gpu, const char *why) {
    _cleanup_buf_ struct buf body = BUF_INIT(256);
    struct json_writer w = {.out = &body};
    char path[PATH_SIZE];

    (void) snprintf(p->doing, sizeof(p->doing), "delete GPU object %s (%s)", gpu->name, why);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s", gpu->name);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "preconditions");
    json_put_string(&w, "uid", gpu->uid);
    json_object_end(&w);
    json_object_end(&w);
    forget_published(p, gpu->name, gpu->uid);
    request(p, "DELETE", path, NULL, &body);
}

/* `since`: "": from now on. */
static void patch_condition(struct publisher *p, const char *type, bool status, const char *reason,
                            const char *message, const char *since) {
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct json_writer w = {.out = &body};
    char path[PATH_SIZE], now[OBJECT_TIME_SIZE];

    (void) snprintf(p->doing, sizeof(p->doing), "set the node's condition %s", type);
    node_status_path(p, path);
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
    _cleanup_buf_ struct buf body = BUF_INIT(4096);
    struct node_capacity want;
    char path[PATH_SIZE];

    node_capacity_want(p->report->shares, s, &want);
    if (!node_capacity_differs(&p->capacity, &want))
        return false;
    (void) snprintf(p->doing, sizeof(p->doing), "set the node's GPU capacity");
    node_status_path(p, path);
    node_capacity_patch(&p->capacity, &want, &body);
    request(p, "PATCH", path, KUBE_STRATEGIC_PATCH, &body);
    return true;
}

/* An instance that is made again has the name of the former one, and is another device. */
static bool mend_object(struct publisher *p, const struct gpu_device *d) {
    const struct gpu_device *card = card_of(p, d);
    const struct published *have;
    struct gpu_object want;

    if (!card)
        return false;
    desired(p, card, d, &want);
    have = find_published(p, want.name);
    if (!have)
        create_object(p, &want);
    else if (have->gpu.parent[0] && strcmp(have->gpu.uuid, want.uuid) != 0)
        delete_object(p, &have->gpu, "another MIG instance has its name now");
    else if (!device_object_same_spec(&have->gpu, &want))
        patch_object(p, &want);
    else if (!same_health(p, &have->gpu, &want) ||
             !device_object_same_capacity(&have->gpu, &want) ||
             have->gpu.unattributed != want.unattributed ||
             strcmp(have->gpu.overuse, want.overuse) != 0 ||
             strcmp(have->gpu.evict, want.evict) != 0 ||
             strcmp(have->gpu.maintenance, want.maintenance) != 0 ||
             !device_object_same_reset(&have->gpu, &want) ||
             !device_object_same_claims(&have->gpu, &want))
        patch_status(p, &want);
    else
        return false;
    return true;
}

/* What can be made of a card by order; a write of its own, as it changes without the rest. What the
 * former agent reported stays until the card is read: the scheduler would place the card's orders
 * elsewhere. */
static bool mend_mig(struct publisher *p, const struct published *o) {
    const struct report *report = p->report;
    const struct mig_report *want = NULL;
    _cleanup_buf_ struct buf body = BUF_INIT(65536);
    char path[PATH_SIZE];

    if (report->mig_report && !report->mig_report(o->gpu.uuid, report->userdata, &want))
        return false;
    if (o->mig == mig_status_wanted(want))
        return false;
    (void) snprintf(p->doing, sizeof(p->doing), "report MIG of GPU object %s", o->gpu.name);
    (void) snprintf(path, sizeof(path), GPU_OBJECTS_PATH "/%s/status", o->gpu.name);
    mig_status_patch(want, &body);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
    return true;
}

/* While the plugins are registered again, kubelet shows 0 allocatable. After the start that is not
 * sure: a Node whose machine was installed anew has condition and allocatable of before. */
static enum node_agent wanted_condition(struct publisher *p) {
    bool served = kubelet_is_served(p->report->kubelet);

    p->was_served |= served;
    if (p->report->leaving)
        return NODE_AGENT_STOPPING;
    if (served)
        return NODE_AGENT_READY;
    return p->was_served || p->node.agent != NODE_AGENT_READY ? p->node.agent : NODE_AGENT_STOPPING;
}

static bool mend_condition(struct publisher *p) {
    enum node_agent want = wanted_condition(p);

    if (want == p->node.agent || publisher_has_left(p))
        return false;
    if (want == NODE_AGENT_READY)
        patch_condition(p, NODE_AGENT_CONDITION, true, "Registered",
                        "kubelet has registered the device plugins of aliquot-agent", "");
    else if (p->report->leaving)
        patch_condition(p, NODE_AGENT_CONDITION, false, "Stopping",
                        "aliquot-agent is stopping: the node takes no pod with a GPU share", "");
    else
        patch_condition(p, NODE_AGENT_CONDITION, false, "Starting",
                        "kubelet has not registered the device plugins of aliquot-agent yet", "");
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

/* Whether the driver tells nothing of its cards, and why. A node without a driver is one without
 * GPUs until a card was found on it, which the condition of an earlier boot shows. */
static bool driver_fails(const struct publisher *p, const struct gpu_snapshot *s,
                         char ret[static MESSAGE_MAX]) {
    struct gpu_monitor_status status;

    gpu_monitor_status(p->report->shares->monitor, &status);
    if (status.answering || !status.text[0] ||
        (!p->report->shares->driver && s->ndevices == 0 && !p->health[0]))
        return false;
    (void) snprintf(ret, MESSAGE_MAX, "the GPU driver does not answer: %s", status.text);
    return true;
}

/* Where the driver answers that there are no cards the condition stays as it is, or there is none.
 */
static bool mend_health_condition(struct publisher *p, const struct gpu_snapshot *s) {
    char message[MESSAGE_MAX];
    bool fails = driver_fails(p, s, message), well;

    if (!fails && s->ndevices == 0)
        return false;
    well = !fails && tell_health(p, s, message) == 0;
    if (strcmp(message, p->health) == 0)
        return false;
    patch_condition(p, HEALTH_CONDITION, well,
                    fails  ? "DriverNotAnswering"
                    : well ? "Healthy"
                           : "NotHealthy",
                    message, p->health_since[well]);
    return true;
}

static bool mend_labels(struct publisher *p, const struct gpu_snapshot *s) {
    _cleanup_buf_ struct buf body = BUF_INIT(256 << 10);
    struct gpu_monitor_status status;
    char path[PATH_SIZE];

    /* What is saved of the cards may be of another driver. */
    gpu_monitor_status(p->report->shares->monitor, &status);
    if (!status.complete || !labeler_update(&p->labeler, s, &body))
        return false;
    (void) snprintf(p->doing, sizeof(p->doing), "set the node's labels");
    node_status_path(p, path);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
    return true;
}

static bool mend_cpus(struct publisher *p) {
    const struct node_cpus *want = cross_check_node_cpus(p->report->cross_check);
    _cleanup_buf_ struct buf body = BUF_INIT(4 * NODE_CPUS_TEXT_MAX);
    struct json_writer w = {.out = &body};
    char path[PATH_SIZE], text[NODE_CPUS_TEXT_MAX];

    if (!want)
        return false;
    node_cpus_write(want, text);
    if (strcmp(text, p->cpus) == 0)
        return false;
    (void) snprintf(p->doing, sizeof(p->doing), "set the node's free exclusive CPUs");
    node_status_path(p, path);
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_object_begin(&w, "annotations");
    json_put_string(&w, NODE_CPUS_ANNOTATION, text[0] ? text : NULL);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
    request(p, "PATCH", path, KUBE_MERGE_PATCH, &body);
    return true;
}

/* Whether the driver has listed the instances of the card, and this one is not among them. */
static bool is_destroyed(const struct gpu_snapshot *s, const struct gpu_object *gpu) {
    const struct gpu_device *card = gpu->parent[0] ? gpu_find(s, gpu->parent) : NULL;

    return card && card->healthy && !card->saved;
}

static bool has_name(const struct publisher *p, const struct gpu_device *d, const char *name) {
    const struct gpu_device *card = card_of(p, d);
    char own[KUBE_NAME_MAX] = "";

    if (card)
        device_object_name(p->report, &p->node, card, d, own);
    return strcmp(own, name) == 0;
}

/* A GPU object without a device: deleted if the device has another name now, or is an instance that
 * was destroyed; reported if a card is missing, because it may come back and pods may have
 * allocations on it. */
static bool mend_leftover(struct publisher *p, const struct gpu_snapshot *s, struct published *o) {
    const struct gpu_device *own = gpu_find(s, o->gpu.uuid);

    /* Nearly always: making the names of all devices for each object takes a millisecond. */
    if (own && has_name(p, own, o->gpu.name))
        return false;
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (has_name(p, &s->devices[i], o->gpu.name))
            return false;
    if (own || is_destroyed(s, &o->gpu)) {
        delete_object(p, &o->gpu,
                      o->gpu.parent[0] ? "its MIG instance is gone"
                                       : "its card has another name now");
        return true;
    }
    if (o->gpu.healthy) {
        struct gpu_object lost = o->gpu;

        text_copy(lost.state, sizeof(lost.state), health_state_name(HEALTH_UNHEALTHY));
        text_copy(lost.reason, sizeof(lost.reason), GPU_LOST_REASON);
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
    for (uint32_t i = 0; i < s->ndevices; i++) {
        step_end();
        if (mend_object(p, &s->devices[i]))
            return;
    }
    for (size_t i = 0; i < p->nobjects; i++) {
        step_end();
        if (mend_leftover(p, s, &p->objects[i]))
            return;
    }
    for (size_t i = 0; i < p->nobjects; i++)
        if (mend_mig(p, &p->objects[i]))
            return;
    if (mend_labels(p, s) || mend_cpus(p))
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

/* What is ordered of the cards is followed before anything is written of them. */
static void tell_orders(const struct publisher *p) {
    if (publisher_has_orders(p) && p->report->on_orders)
        p->report->on_orders(p->report->userdata);
}

static void node_object(enum kube_event event, struct json object, void *userdata) {
    struct publisher *p = userdata;

    if (event == KUBE_DELETED)
        p->node_known = false;
    else
        remember_node(p, object);
    tell_orders(p);
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
    const char *uid = json_string(JSON_PATH(object, "metadata", "uid"));

    if (event == KUBE_DELETED && name)
        forget_published(p, name, uid ? uid : "");
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
    tell_orders(p);
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

    labeler_done(&p->labeler);
    on_closed_free(&p->on_closed, p);
}

void publisher_stop(struct publisher *p, void (*on_closed)(void *userdata), void *userdata) {
    kube_call_cancel(p->call);
    kube_reflector_stop(p->node_watch);
    kube_reflector_stop(p->gpu_watch);
    p->on_closed = (struct on_closed){on_closed, userdata};
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

bool publisher_has_orders(const struct publisher *p) {
    return p->node_known && p->gpus_known;
}

const struct node_orders *publisher_node_orders(const struct publisher *p) {
    return p->node_known ? &p->orders : NULL;
}

const struct gpu_orders *publisher_orders(const struct publisher *p, const struct gpu_device *d) {
    for (size_t i = 0; i < p->nobjects; i++)
        if (strcmp(p->objects[i].gpu.uuid, d->uuid) == 0)
            return &p->objects[i].gpu.orders;
    return NULL;
}

const char *publisher_trouble(const struct publisher *p) {
    if (p->watch_trouble[0] && p->node_watch && p->gpu_watch &&
        (!kube_reflector_is_synced(p->node_watch) || !kube_reflector_is_synced(p->gpu_watch)))
        return p->watch_trouble;
    return p->trouble;
}
