/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kubelet/cross_check.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/cluster/keys.h"
#include "agent/cluster/pods.h"
#include "agent/kubelet/kubelet.h"
#include "agent/shares/grant.h"
#include "agent/shares/shares.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "podresources.pb-c.h"
#include "wire/grpc_client.h"

#define LIST "/v1.PodResourcesLister/List"
#define ALLOCATABLE "/v1.PodResourcesLister/GetAllocatableResources"
#define INTERVAL_MS 60000
#define SOON_MS 2000 /* after a change; kubelet answers a limited number of calls */
/* A container starts or ends between the list and its evaluation: two lists in a row have to
 * contradict a share. */
#define DOUBTS 2

typedef Podresources__ListResponse pod_list;
typedef Podresources__PodResources pod_resources;
typedef Podresources__ContainerResources container_resources;
typedef Podresources__ContainerDevices container_devices;

/* ---- what kubelet lists ---- */

static bool is_ours(const struct cross_check *c, const char *resource) {
    return kubelet_plugin(c->kubelet, kubelet_find(c->kubelet, resource));
}

static bool is_of(const pod_resources *pod, const struct slot_grant *g) {
    return strcmp(pod->name, g->pod) == 0 && strcmp(pod->namespace_, g->namespace) == 0;
}

static bool has_devices(const struct cross_check *c, const container_resources *r) {
    for (size_t i = 0; i < r->n_devices; i++)
        if (r->devices[i]->n_device_ids > 0 && is_ours(c, r->devices[i]->resource_name))
            return true;
    return false;
}

/* Init containers are not listed: kubelet gives their devices to a container of the same pod. */
static bool pod_has_devices(const struct cross_check *c, const pod_list *list,
                            const struct slot_grant *g) {
    for (size_t i = 0; i < list->n_pod_resources; i++) {
        const pod_resources *pod = list->pod_resources[i];

        for (size_t k = 0; is_of(pod, g) && k < pod->n_containers; k++)
            if (has_devices(c, pod->containers[k]))
                return true;
    }
    return false;
}

static const container_resources *find_container(const pod_list *list, const struct slot_grant *g) {
    for (size_t i = 0; i < list->n_pod_resources; i++) {
        const pod_resources *pod = list->pod_resources[i];

        for (size_t k = 0; is_of(pod, g) && k < pod->n_containers; k++)
            if (strcmp(pod->containers[k]->name, g->container) == 0)
                return pod->containers[k];
    }
    return NULL;
}

/* A replica's ID is that of its device and "::N". */
static bool is_id_of(const char *id, const char *uuid) {
    size_t len = strlen(uuid);

    return strncmp(id, uuid, len) == 0 && (!id[len] || strncmp(id + len, "::", 2) == 0);
}

static bool lists_device(const container_resources *r, const char *uuid) {
    for (size_t i = 0; i < r->n_devices; i++) {
        const container_devices *d = r->devices[i];

        for (size_t k = 0; k < d->n_device_ids; k++)
            if (is_id_of(d->device_ids[k], uuid))
                return true;
    }
    return false;
}

/* ---- differences ---- */

/* Whether the list contradicts the share, with the reason. */
static bool contradicts(const struct cross_check *c, const pod_list *list, const struct slot *slot,
                        char *ret, size_t size) {
    const struct slot_grant *g = &slot->grant;
    const container_resources *container = find_container(list, g);

    if (!pod_has_devices(c, list, g)) {
        text_copy(ret, size,
                  "kubelet lists no device of the pod, and can give its devices to another one");
        return true;
    }
    for (uint32_t i = 0; container && i < g->nwhole; i++) {
        if (lists_device(container, g->whole[i].uuid))
            continue;
        (void) snprintf(ret, size, "kubelet does not list %s for the container, which has it",
                        g->whole[i].uuid);
        return true;
    }
    return false;
}

/* Its containers may still run, and its pod is known to have ended. */
static bool is_left(const struct slot *slot) {
    return slot->releasing || slot->revoked || !slot->grant.pod[0];
}

static void check_slot(struct cross_check *c, const pod_list *list, struct slot *slot) {
    const struct slot_grant *g = &slot->grant;
    char why[160];

    /* kubelet lists claims apart from devices. */
    if (slot->grant.claim || is_left(slot) || !contradicts(c, list, slot, why, sizeof(why))) {
        slot->doubts = 0;
        return;
    }
    if (slot->doubts < DOUBTS && ++slot->doubts == DOUBTS)
        pod_events_container(&c->shares->events, g->namespace, g->pod, g->pod_uid, g->container,
                             "GPUDevicesDiffer", why);
    c->differences += slot->doubts == DOUBTS;
}

/* ---- devices of other plugins ---- */

/* Whether aliquot-scheduler has assigned it to the pod, which may not have started. */
static bool is_assigned(const struct cross_check *c, const pod_resources *pod, const char *uuid) {
    const struct pod_entry *e =
        c->shares->pods ? pods_find_named(c->shares->pods, pod->namespace_, pod->name) : NULL;

    return e && grant_assigns(keys_verifier(c->shares->keys), c->shares->options.node_name, &e->pod,
                              uuid);
}

/* Whether the pod has it from the agent, too: beside the other plugin, or by a resource that the
 * agent no longer serves. */
static bool is_given(const struct cross_check *c, const pod_resources *pod, const char *uuid) {
    for (const struct slot *slot = c->shares->slots.slots; slot; slot = slot->hh.next)
        if (is_of(pod, &slot->grant) && slot_has_device(slot, uuid))
            return true;
    return is_assigned(c, pod, uuid);
}

/* Whole instances can be left to another plugin. */
static bool is_agents(const struct gpu_device *d) {
    return d->kind == GPU_CARD ? !d->divided : d->offer == GPU_OFFER_SHARES;
}

/* NVIDIA's plugin, too, makes its IDs of the UUIDs of cards and instances. */
static void note_other(struct cross_check *c, const pod_resources *pod, const char *resource,
                       const char *id) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(c->shares->monitor);

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const char *uuid = s->devices[i].uuid;
        struct cross_check_other o = {0};

        if (!is_id_of(id, uuid) || !is_agents(&s->devices[i]) || is_given(c, pod, uuid))
            continue;
        text_copy(o.uuid, sizeof(o.uuid), uuid);
        text_copy(o.namespace, sizeof(o.namespace), pod->namespace_);
        text_copy(o.pod, sizeof(o.pod), pod->name);
        text_copy(o.resource, sizeof(o.resource), resource);
        buf_append(&c->others, &o, sizeof(o));
    }
}

static void note_others_of(struct cross_check *c, const pod_resources *pod,
                           const container_resources *r) {
    for (size_t i = 0; i < r->n_devices; i++) {
        const container_devices *d = r->devices[i];

        for (size_t k = 0; k < d->n_device_ids && !is_ours(c, d->resource_name); k++)
            note_other(c, pod, d->resource_name, d->device_ids[k]);
    }
}

static bool lists_pod(const pod_list *list, const struct cross_check_other *o) {
    for (size_t i = 0; i < list->n_pod_resources; i++)
        if (strcmp(list->pod_resources[i]->name, o->pod) == 0 &&
            strcmp(list->pod_resources[i]->namespace_, o->namespace) == 0)
            return true;
    return false;
}

static bool has_ended(const struct cross_check *c, const struct cross_check_other *o) {
    const struct pod_entry *e = pods_find_named(c->shares->pods, o->namespace, o->pod);

    return !e || e->pod.finished;
}

static const struct cross_check_other *find_other(const struct buf *others, const char *uuid) {
    const struct cross_check_other *list = (const void *) others->data;

    for (size_t i = 0; i < others->len / sizeof(*list); i++)
        if (strcmp(list[i].uuid, uuid) == 0)
            return &list[i];
    return NULL;
}

/* A kubelet that has just started lists no pods at first. */
static void keep_unlisted(struct cross_check *c, const pod_list *list, const struct buf *before) {
    const struct cross_check_other *others = (const void *) before->data;

    for (size_t i = 0; c->shares->pods && i < before->len / sizeof(*others); i++) {
        const struct cross_check_other *o = &others[i];

        if (!has_ended(c, o) && !lists_pod(list, o))
            buf_append(&c->others, o, sizeof(*o));
    }
}

/* Only the log names the pod: its card's reason is an Event of all pods on the card. */
static void log_new_others(const struct cross_check *c, const struct buf *before) {
    const struct cross_check_other *list = (const void *) c->others.data;

    for (size_t i = 0; i < c->others.len / sizeof(*list); i++) {
        const struct cross_check_other *o = &list[i], *old = find_other(before, o->uuid);

        if (!old || strcmp(old->pod, o->pod) != 0 || strcmp(old->namespace, o->namespace) != 0)
            log_info("another device plugin has given GPU %s to pod %s/%s as %s", o->uuid,
                     o->namespace, o->pod, o->resource);
    }
}

static void collect_others(struct cross_check *c, const pod_list *list) {
    _cleanup_buf_ struct buf before = c->others;

    c->others = BUF_INIT(0);
    for (size_t i = 0; i < list->n_pod_resources; i++) {
        const pod_resources *pod = list->pod_resources[i];

        for (size_t k = 0; k < pod->n_containers; k++)
            note_others_of(c, pod, pod->containers[k]);
    }
    keep_unlisted(c, list, &before);
    log_new_others(c, &before);
}

/* Without lists the API server says which pods have ended; while it is silent too, none has. */
static void drop_ended(struct cross_check *c) {
    struct cross_check_other *others = (void *) c->others.data;
    size_t count = c->others.len / sizeof(*others), kept = 0;

    if (!c->shares->pods || !pods_synced(c->shares->pods))
        return;
    for (size_t i = 0; i < count; i++) {
        if (!has_ended(c, &others[i]))
            others[kept++] = others[i];
        else
            log_info("GPU %s is free again: pod %s/%s, which had it as %s, has ended by the API "
                     "server; kubelet's podresources API does not answer",
                     others[i].uuid, others[i].namespace, others[i].pod, others[i].resource);
    }
    c->others.len = kept * sizeof(*others);
}

const struct cross_check_other *cross_check_other(const struct cross_check *c, const char *uuid) {
    return find_other(&c->others, uuid);
}

/* ---- CPUs ---- */

static uint32_t count_elsewhere(const struct cross_check *c, const container_resources *r,
                                int32_t numa) {
    uint32_t n = 0;

    for (size_t i = 0; i < r->n_cpu_ids; i++) {
        int node = numa_of_cpu(&c->numa, r->cpu_ids[i]);

        n += node >= 0 && node != numa;
    }
    return n;
}

static void report_cpus(struct cross_check *c, struct slot *slot,
                        const struct cross_check_cpus *cpus, int32_t numa) {
    char message[256];

    if (slot->far_cpus_reported || cpus->elsewhere == 0)
        return;
    slot->far_cpus_reported = true;
    (void) snprintf(message, sizeof(message),
                    "%u of %u exclusive CPUs are not on NUMA node %d, where GPU %u (%s) is: copies "
                    "to it are slower",
                    cpus->elsewhere, cpus->exclusive, (int) numa, cpus->index, cpus->uuid);
    pod_events_container(&c->shares->events, cpus->namespace, cpus->pod, cpus->pod_uid,
                         cpus->container, "CPUsOnOtherNUMANode", message);
}

static void check_cpus(struct cross_check *c, const container_resources *r, struct slot *slot,
                       const char *uuid) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(c->shares->monitor);
    const struct gpu_device *d = gpu_find(s, uuid);
    const struct gpu_device *card = d && gpu_is_part(d) ? gpu_find(s, d->parent) : d;
    struct cross_check_cpus cpus = {0};

    if (!card || card->links.known == 0 || card->links.numa < 0)
        return;
    text_copy(cpus.namespace, sizeof(cpus.namespace), slot->grant.namespace);
    text_copy(cpus.pod, sizeof(cpus.pod), slot->grant.pod);
    text_copy(cpus.pod_uid, sizeof(cpus.pod_uid), slot->grant.pod_uid);
    text_copy(cpus.container, sizeof(cpus.container), slot->grant.container);
    text_copy(cpus.uuid, sizeof(cpus.uuid), uuid);
    cpus.index = card->index;
    cpus.exclusive = (uint32_t) r->n_cpu_ids;
    cpus.elsewhere = count_elsewhere(c, r, card->links.numa);
    report_cpus(c, slot, &cpus, card->links.numa);
    buf_append(&c->cpus, &cpus, sizeof(cpus));
}

static void check_slot_cpus(struct cross_check *c, const pod_list *list, struct slot *slot) {
    const struct slot_grant *g = &slot->grant;
    const container_resources *r = is_left(slot) ? NULL : find_container(list, g);

    if (!r || r->n_cpu_ids == 0)
        return;
    for (uint32_t i = 0; i < g->ndevices; i++)
        check_cpus(c, r, slot, g->devices[i].uuid);
    for (uint32_t i = 0; i < g->nwhole; i++)
        check_cpus(c, r, slot, g->whole[i].uuid);
}

/* ---- free CPUs ---- */

_Static_assert(NUMA_NODES_MAX == NODE_CPUS_NUMA_NODES && NUMA_CPUS_MAX == NODE_CPUS_MAX, "as many");

int cross_check_take_allocatable(struct cross_check *c, const uint8_t *answer, size_t size) {
    Podresources__AllocatableResourcesResponse *m =
        answer ? podresources__allocatable_resources_response__unpack(NULL, size, answer) : NULL;

    memset(&c->allocatable, 0, sizeof(c->allocatable));
    for (size_t i = 0; m && i < m->n_cpu_ids; i++) {
        int node = numa_of_cpu(&c->numa, m->cpu_ids[i]);

        if (node >= 0 && c->allocatable.all[node] < NODE_CPUS_MAX)
            c->allocatable.free[node] = ++c->allocatable.all[node];
    }
    if (m)
        podresources__allocatable_resources_response__free_unpacked(m, NULL);
    return answer && !m ? -EBADMSG : 0;
}

static void take_cpus(struct cross_check *c, const container_resources *r) {
    for (size_t i = 0; i < r->n_cpu_ids; i++) {
        int node = numa_of_cpu(&c->numa, r->cpu_ids[i]);

        if (node >= 0 && c->node_cpus.free[node] > 0)
            c->node_cpus.free[node]--;
    }
}

static void count_free(struct cross_check *c, const pod_list *list) {
    c->node_cpus = c->allocatable;
    for (size_t i = 0; i < list->n_pod_resources; i++)
        for (size_t k = 0; k < list->pod_resources[i]->n_containers; k++)
            take_cpus(c, list->pod_resources[i]->containers[k]);
    c->listed = true;
}

const struct node_cpus *cross_check_node_cpus(const struct cross_check *c) {
    return c->listed ? &c->node_cpus : NULL;
}

/* ---- lists ---- */

int cross_check_take(struct cross_check *c, const uint8_t *list, size_t size) {
    pod_list *m = podresources__list_response__unpack(NULL, size, list);

    if (!m)
        return -EBADMSG;
    c->differences = 0;
    buf_reset(&c->cpus);
    for (struct slot *slot = c->shares->slots.slots; slot; slot = slot->hh.next) {
        check_slot(c, m, slot);
        check_slot_cpus(c, m, slot);
    }
    count_free(c, m);
    collect_others(c, m);
    podresources__list_response__free_unpacked(m, NULL);
    return 0;
}

/* Of devices of other plugins kubelet tells nothing by itself when their pods end. */
static bool is_unsettled(const struct cross_check *c) {
    if (c->changed || c->others.len > 0)
        return true;
    for (const struct slot *slot = c->shares->slots.slots; slot; slot = slot->hh.next)
        if (slot->doubts > 0 && slot->doubts < DOUBTS)
            return true;
    return false;
}

static void on_timer(uv_timer_t *timer);

static void ask_again(struct cross_check *c) {
    (void) uv_timer_start(&c->timer, on_timer, is_unsettled(c) ? SOON_MS : INTERVAL_MS, 0);
}

static void fail(struct cross_check *c, const char *why) {
    c->failed++;
    if (!c->failing)
        log_warn("kubelet's podresources API does not answer (%s): %s", c->socket, why);
    c->failing = true;
    drop_ended(c);
    ask_again(c);
}

static void fail_call(struct cross_check *c, const struct grpc_result *result) {
    fail(c, result->text[0] ? result->text : grpc_status_name((int) result->status));
}

static void ask(struct cross_check *c, const char *method, grpc_result_cb on_answer) {
    const struct grpc_request_options options = {
        .socket_path = c->socket, .method = method, .message = (const uint8_t *) "", .size = 0};
    struct err err;

    if (grpc_request_start(c->shares->loop, &options, on_answer, c, &c->request, &err) < 0)
        fail(c, err.text);
}

static void on_list(const struct grpc_result *result, void *userdata) {
    struct cross_check *c = userdata;

    c->request = NULL;
    if (result->status != GRPC_OK)
        fail_call(c, result);
    else if (cross_check_take(c, result->message, result->size) < 0)
        fail(c, "the answer is no ListResponse");
    else {
        c->failing = false;
        ask_again(c);
    }
}

/* Older kubelets do not know the call, or refuse it: their answer is an error. */
static void on_allocatable(const struct grpc_result *result, void *userdata) {
    struct cross_check *c = userdata;

    c->request = NULL;
    if (result->status == GRPC_UNAVAILABLE || result->status == GRPC_DEADLINE_EXCEEDED ||
        result->status == GRPC_RESOURCE_EXHAUSTED)
        fail_call(c, result);
    else if (cross_check_take_allocatable(c, result->message, result->size) < 0)
        fail(c, "the answer is no AllocatableResourcesResponse");
    else
        ask(c, LIST, on_list);
}

static void on_timer(uv_timer_t *timer) {
    struct cross_check *c = timer->data;

    c->changed = false;
    if (numa_count(&c->numa) > 1)
        ask(c, ALLOCATABLE, on_allocatable);
    else
        ask(c, LIST, on_list);
}

void cross_check_start(struct cross_check *c, uv_loop_t *loop, const char *kubelet_dir) {
    c->cpus = c->others = BUF_INIT(0);
    (void) snprintf(c->socket, sizeof(c->socket), "%s/pod-resources/kubelet.sock", kubelet_dir);
    numa_read(c->sys_dir, &c->numa);
    (void) uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    c->started = true;
    (void) uv_timer_start(&c->timer, on_timer, 0, 0);
}

/* A list under way can be older than the change. */
void cross_check_changed(struct cross_check *c) {
    c->changed = true;
    if (c->started && !c->request && uv_timer_get_due_in(&c->timer) > SOON_MS)
        (void) uv_timer_start(&c->timer, on_timer, SOON_MS, 0);
}

void cross_check_stop(struct cross_check *c) {
    if (!c->started)
        return;
    c->started = false;
    if (c->request)
        grpc_request_cancel(c->request);
    c->request = NULL;
    (void) uv_timer_stop(&c->timer);
    buf_done(&c->cpus);
    buf_done(&c->others);
}
