/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/daemon/watch_kinds.h"

#include <time.h>

#include "base/err.h"
#include "base/server_time.h"
#include "kube/api/field.h"
#include "kube/objects/agent_pod.h"
#include "kube/objects/pod_selection.h"
#include "kube/objects/resource_slice.h"
#include "model/dra.h"
#include "scheduler/daemon/claims_watch.h"
#include "scheduler/daemon/dra_watch.h"
#include "scheduler/daemon/foreign_pods.h"
#include "scheduler/daemon/mig_watch.h"
#include "scheduler/daemon/scheduler.h"

#define STATUS_MAX ((size_t) 1 << 20)

static void out_of_memory(struct scheduler *s) {
    watch_refuse(s, "out of memory, an object is not accounted for");
}

static void on_agent_pod(struct scheduler *s, enum kube_event event, struct json object,
                         const struct pod *pod) {
    bool gone = event == KUBE_DELETED, runs;
    if (!pod->node[0] || !agent_pod_read(object, s->options.name_space, &runs) ||
        (gone && !state_node_find(s->state, pod->node))) /* the Node went first */
        return;
    if (state_agent_pod_seen(s->state, pod->node, pod->uid, runs && !gone) < 0)
        out_of_memory(s);
}

static void on_pod(struct scheduler *s, enum kube_event event, struct json object) {
    struct pod pod;
    struct err err;
    if (pod_parse(object, &pod, &err) < 0) {
        watch_refuse(s, err.text);
        return;
    }
    if (event == KUBE_DELETED)
        state_pod_ended(s->state, pod.uid);
    else if (state_pod_seen(s->state, &pod, scheduler_now(s)) < 0)
        out_of_memory(s);
    else
        foreign_pods_see(s, &pod);
    on_agent_pod(s, event, object, &pod);
    elastic_pod(&s->elastic, pod.uid, event == KUBE_DELETED ? NULL : &pod);
    mig_watch_object(s, MIG_ORDERS_PODS, event, object, pod.uid);
    dra_pods.object(s, event, object);
    pod_done(&pod);
    watch_changed(s);
}

static enum place_reason absence_of(const struct node_object *node) {
    if (node->unready)
        return PLACE_NODE_UNREADY;
    if (!node->offered)
        return PLACE_NO_AGENT;
    return node_agent_at(node, server_time()) == NODE_AGENT_STOPPING ? PLACE_AGENT_STOPS : PLACE_OK;
}

static enum place_reason absence_of_whole(const struct node_object *node) {
    int64_t now = server_time();
    if (node->unready)
        return PLACE_NODE_UNREADY;
    if (node_agent_at(node, now) == NODE_AGENT_STOPPING)
        return PLACE_AGENT_STOPS;
    return node_serves_whole(node, now) ? PLACE_OK : PLACE_NO_AGENT;
}

static void on_node(struct scheduler *s, enum kube_event event, struct json object) {
    struct node_object node;
    struct err err;
    int absence;
    if (node_object_parse(object, &node, &err) < 0) {
        watch_refuse(s, err.text);
        return;
    }
    mig_watch_object(s, MIG_ORDERS_NODES, event, object, node.name);
    dra_nodes.object(s, event, object);
    if (event == KUBE_DELETED) {
        state_node_gone(s->state, node.name);
        (void) elastic_node(&s->elastic, node.name, (struct json){0});
        return;
    }
    absence = state_node_absence(s->state, node.name, absence_of(&node));
    if (absence < 0 || state_node_apart_absence(s->state, node.name, absence_of_whole(&node)) < 0 ||
        state_node_seen(s->state, node.name) < 0 ||
        state_node_room(s->state, node.name, node.allocatable) < 0 ||
        state_node_cpus(s->state, node.name, &node.cpus) < 0 ||
        elastic_node(&s->elastic, node.name, JSON_PATH(object, "metadata", "labels")) < 0)
        out_of_memory(s);
    if (absence > 0)
        watch_changed(s);
}

static void on_gpu(struct scheduler *s, enum kube_event event, struct json object) {
    struct gpu_object gpu;
    struct err err;
    _cleanup_buf_ struct buf observed = BUF_INIT(STATUS_MAX);
    struct json status = json_get(object, "status");
    if (gpu_object_parse(object, &gpu, &err) < 0) {
        char name[KUBE_NAME_MAX];
        watch_refuse(s, err.text);
        /* What cannot be understood must not be given out any more either. */
        if (field_copy(JSON_PATH(object, "metadata", "name"), name, sizeof(name)) == 0) {
            state_gpu_gone(s->state, name);
            drainer_gone(&s->drainer, name);
        }
    } else if (event == KUBE_DELETED) {
        state_gpu_gone(s->state, gpu.name);
        drainer_gone(&s->drainer, gpu.name);
    } else {
        gpu_status_observed(status, &observed);
        if (drainer_see(&s->drainer, &gpu) < 0)
            out_of_memory(s);
        if (state_gpu_seen(s->state, &gpu, json_valid(status) ? buf_str(&observed) : NULL) < 0)
            out_of_memory(s);
        elastic_gpu(&s->elastic, object);
    }
    mig_watch_object(s, MIG_ORDERS_CARDS, event, object,
                     json_string(JSON_PATH(object, "metadata", "name")));
    watch_changed(s);
}

#define SYNC_HANDLERS(kind)                                                                        \
    static void kind##_begin(struct scheduler *s) {                                                \
        state_sync_begin(s->state, STATE_##kind);                                                  \
    }                                                                                              \
    static void kind##_end(struct scheduler *s) {                                                  \
        state_sync_end(s->state, STATE_##kind);                                                    \
    }
SYNC_HANDLERS(PODS)
SYNC_HANDLERS(NODES)
SYNC_HANDLERS(GPUS)
SYNC_HANDLERS(NAMESPACES)

static void on_budget(struct scheduler *s, enum kube_event event, struct json object) {
    struct budget budget;
    struct err err;
    if (budget_parse(object, &budget, &err) < 0)
        watch_refuse(s, err.text);
    else if (event == KUBE_DELETED) {
        preempt_budget_gone(&s->preempt, budget.namespace, budget.name);
        budget_done(&budget);
    } else if (preempt_budget_seen(&s->preempt, &budget) < 0)
        out_of_memory(s);
}

static void budgets_begin(struct scheduler *s) {
    preempt_budgets_begin(&s->preempt);
}

static void budgets_end(struct scheduler *s) {
    preempt_budgets_end(&s->preempt);
}

static void nodes_begin(struct scheduler *s) {
    NODES_begin(s);
    dra_nodes.begin(s);
    mig_watch_begin(s, MIG_ORDERS_NODES);
}

static void nodes_end(struct scheduler *s) {
    NODES_end(s);
    dra_nodes.end(s);
    mig_watch_end(s, MIG_ORDERS_NODES);
    elastic_nodes_end(&s->elastic);
}

static void gpus_begin(struct scheduler *s) {
    GPUS_begin(s);
    drainer_sync_begin(&s->drainer);
    mig_watch_begin(s, MIG_ORDERS_CARDS);
}

static void gpus_end(struct scheduler *s) {
    GPUS_end(s);
    drainer_sync_end(&s->drainer);
    mig_watch_end(s, MIG_ORDERS_CARDS);
}

static void pods_begin(struct scheduler *s) {
    PODS_begin(s);
    dra_pods.begin(s);
    mig_watch_begin(s, MIG_ORDERS_PODS);
    claims_sync_begin(s->elastic.claims, CLAIMS_PODS);
}

static void pods_end(struct scheduler *s) {
    PODS_end(s);
    dra_pods.end(s);
    mig_watch_end(s, MIG_ORDERS_PODS);
    claims_sync_end(s->elastic.claims, CLAIMS_PODS);
}

/* Only the policies that it names for its pods; what makes no sense counts as none. */
static void on_namespace(struct scheduler *s, enum kube_event event, struct json object) {
    const char *name = json_string(JSON_PATH(object, "metadata", "name"));
    struct gpu_selection *own = NULL;
    if (!name)
        return;
    if (event != KUBE_DELETED &&
        selection_read(JSON_PATH(object, "metadata", "annotations"), &own) == -ENOMEM)
        out_of_memory(s);
    if (state_namespace_policy(s->state, name, own ? own->node_policy : NULL,
                               own ? own->card_policy : NULL) < 0)
        out_of_memory(s);
    selection_free(own);
}

/* A pod that has ended leaves the selection, which comes as its deletion. */
#define RUNNING "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"

#define OF_OUR_MAKING "labelSelector=gpu.elasticgpu.io%2Fmade-by%3Daliquot-scheduler"
#define OF_OUR_DRIVER "fieldSelector=spec.driver%3D" DRA_DRIVER

static const struct watch_handlers pods = {pods_begin, on_pod, pods_end};
static const struct watch_handlers nodes = {nodes_begin, on_node, nodes_end};
static const struct watch_handlers gpus = {gpus_begin, on_gpu, gpus_end};
static const struct watch_handlers namespaces = {NAMESPACES_begin, on_namespace, NAMESPACES_end};
static const struct watch_handlers budgets = {budgets_begin, on_budget, budgets_end};

const struct watch_kind watch_kinds[] = {
    {"/api/v1/pods", RUNNING, false, true, &pods, NULL},
    {"/api/v1/nodes", NULL, false, false, &nodes, NULL},
    {GPU_OBJECTS_PATH, NULL, false, false, &gpus, NULL},
    {"/api/v1/namespaces", NULL, false, false, &namespaces, NULL},
    {EGPUS_PATH, NULL, true, true, &elastic_egpus, NULL},
    {EGPU_CLAIMS_PATH, NULL, true, false, &elastic_claims, NULL},
    {EGPU_CLASSES_PATH, NULL, true, false, &elastic_classes, NULL},
    {BUDGETS_PATH, NULL, false, false, &budgets, NULL},
    {QUOTAS_PATH, NULL, true, false, &govern_quotas, NULL},
    {RESOURCE_QUOTAS_PATH, NULL, false, false, &govern_resource_quotas, NULL},
    {RESERVATIONS_PATH, NULL, true, true, &govern_reservations, NULL},
    {RESOURCE_CLAIMS_PATH, NULL, true, true, &dra_claims, dra_watch_wanted},
    {DEVICE_CLASSES_PATH, NULL, true, false, &dra_classes, dra_watch_wanted},
    {RESOURCE_SLICES_PATH, OF_OUR_DRIVER, true, false, &dra_slices, dra_watch_wanted},
    {RESOURCE_TEMPLATES_PATH, OF_OUR_MAKING, true, false, &dra_templates, dra_watch_wanted},
    {.path = NULL},
};
_Static_assert(sizeof(watch_kinds) / sizeof(watch_kinds[0]) <= WATCHES_MAX + 1,
               "watch.h: too little room for all kinds");
