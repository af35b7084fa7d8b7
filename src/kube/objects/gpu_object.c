/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/gpu_object.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "kube/api/field.h"
#include "kube/api/object_write.h"
#include "model/quantity.h"
#include "wire/json_fields.h"

#define INDEX_MAX 4095
#define LABEL_VALUE_MAX 63 /* the API server refuses a longer one; node names can be longer */

/* A quantity of a ResourceList: a string, or a plain number. */
static bool read_quantity(struct json value, uint64_t *ret) {
    const char *text = json_string(value);
    return text ? quantity_parse(text, strlen(text), ret) == 0 : json_u64(value, ret);
}

/* A list of names in `list`, of `size` bytes: each is followed by a blank. */
static bool add_name(char *list, size_t size, const char *name) {
    size_t used = strlen(list), len = strlen(name);
    if (len == 0 || strchr(name, ' '))
        return true; /* not a name */
    if (used + len + 2 > size)
        return false;
    memcpy(list + used, name, len);
    memcpy(list + used + len, " ", 2);
    return true;
}

void gpu_object_add_overuse(struct gpu_object *gpu, const char *namespace, const char *pod,
                            const char *container) {
    char name[KUBE_NAME_MAX + 2 * KUBE_LABEL_MAX + 2];
    (void) snprintf(name, sizeof(name), "%s/%s/%s", namespace, pod, container);
    (void) add_name(gpu->overuse, sizeof(gpu->overuse), name);
}

bool gpu_object_add_evict(struct gpu_object *gpu, const char *namespace, const char *pod,
                          const char *uid) {
    char name[KUBE_NAME_MAX + KUBE_LABEL_MAX + KUBE_UID_MAX + 2];
    (void) snprintf(name, sizeof(name), "%s/%s/%s", namespace, pod, uid);
    return strstr(gpu->evict, name) || add_name(gpu->evict, sizeof(gpu->evict), name);
}

static void read_names(struct json list, char *ret, size_t size) {
    struct json_iter it = json_iter(list);
    struct json item;
    while (json_next(&it, NULL, &item)) {
        const char *name = json_string(item);
        if (name)
            (void) add_name(ret, size, name);
    }
}

static void put_names(struct json_writer *w, const char *key, const char *list) {
    json_array_begin(w, key);
    for (const char *at = list; *at;) {
        int len = (int) strcspn(at, " ");
        json_put_stringf(w, NULL, "%.*s", len, at);
        at += len + (at[len] == ' ');
    }
    json_array_end(w);
}

static void read_owner(struct json references, struct gpu_object *gpu) {
    struct json_iter it = json_iter(references);
    struct json item;
    while (json_next(&it, NULL, &item)) {
        if (json_is_string(json_get(item, "kind"), "Node") &&
            field_copy(json_get(item, "uid"), gpu->owner, sizeof(gpu->owner)) == 0)
            return;
    }
}

/* What is malformed here only costs good links. */
static void read_links(struct json spec, struct gpu_object *gpu) {
    uint64_t numa;
    struct json_iter it = json_iter(json_get(spec, "links"));
    struct json item;
    gpu->numa = -1;
    if (json_u64(json_get(spec, "numaNode"), &numa) && numa <= INT8_MAX)
        gpu->numa = (int8_t) numa;
    while (gpu->nlinks < GPU_LINKS_MAX && json_next(&it, NULL, &item)) {
        const char *text = json_string(item);
        gpu->links[gpu->nlinks++] = text ? gpu_link_parse(text) : LINK_UNKNOWN;
    }
}

static void put_links(struct json_writer *w, const struct gpu_object *gpu) {
    char text[GPU_LINK_TEXT_MAX];
    if (gpu->numa >= 0)
        json_put_u64(w, "numaNode", (uint64_t) gpu->numa);
    if (gpu->nlinks == 0)
        return;
    json_array_begin(w, "links");
    for (uint32_t i = 0; i < gpu->nlinks; i++)
        json_put_string(w, NULL, i == gpu->index ? "X" : gpu_link_format(gpu->links[i], text));
    json_array_end(w);
}

/* spec.mig of an instance. */
static const struct json_field instance_numbers[] = {
    JSON_FIELD(struct gpu_object_mig, "gpuInstance", gi),
    JSON_FIELD(struct gpu_object_mig, "computeInstance", ci),
    JSON_FIELD(struct gpu_object_mig, "start", start),
    JSON_FIELD(struct gpu_object_mig, "size", size),
    JSON_FIELD(struct gpu_object_mig, "computeSlices", slices),
};

/* What is malformed there is repaired by the agent. */
static void read_mig(struct json spec, struct gpu_object *gpu) {
    struct json mig = json_get(spec, "mig");
    (void) field_copy_optional(json_get(spec, "parent"), gpu->parent, sizeof(gpu->parent));
    gpu->mig.enabled = json_is_string(json_get(mig, "mode"), "Enabled");
    gpu->mig.disabled = json_is_string(json_get(mig, "mode"), "Disabled");
    (void) field_copy_optional(json_get(mig, "profile"), gpu->mig.profile,
                               sizeof(gpu->mig.profile));
    (void) JSON_READ_FIELDS(mig, instance_numbers, &gpu->mig);
}

static void put_mig(struct json_writer *w, const struct gpu_object *gpu) {
    const struct gpu_object_mig *mig = &gpu->mig;
    if (gpu->parent[0])
        json_put_string(w, "parent", gpu->parent);
    else if (!mig->enabled && !mig->disabled)
        return;
    json_object_begin(w, "mig");
    if (gpu->parent[0]) {
        json_put_string(w, "profile", mig->profile);
        JSON_PUT_FIELDS(w, instance_numbers, mig);
    } else {
        json_put_string(w, "mode", mig->enabled ? "Enabled" : "Disabled");
    }
    json_object_end(w);
}

/* The names under which replicas are given out by aliquot-scheduler. */
#define REPLICAS_AS_CARDS "nvidia.com/gpu"
#define REPLICAS_SHARED "nvidia.com/gpu.shared"

/* In a merge patch null takes the former value away. */
static void put_replicas(struct json_writer *w, const struct card_replicas *r) {
    if (r->count == 0) {
        json_put_null(w, "replicas");
        return;
    }
    json_object_begin(w, "replicas");
    json_put_u64(w, "count", r->count);
    json_put_string(w, "resource", r->as_cards ? REPLICAS_AS_CARDS : REPLICAS_SHARED);
    json_put_bool(w, "onePerContainer", r->one_at_most);
    json_put_bool(w, "withCompute", r->with_core);
    json_object_end(w);
}

static void read_replicas(struct json spec, struct card_replicas *ret) {
    struct json replicas = json_get(spec, "replicas");
    const char *resource = json_string(json_get(replicas, "resource"));
    uint64_t count;
    if (!json_u64(json_get(replicas, "count"), &count) || count < 2 || count > REPLICAS_MAX)
        return;
    *ret = (struct card_replicas){.count = (uint32_t) count};
    ret->as_cards = resource && strcmp(resource, REPLICAS_AS_CARDS) == 0;
    (void) json_bool(json_get(replicas, "onePerContainer"), &ret->one_at_most);
    (void) json_bool(json_get(replicas, "withCompute"), &ret->with_core);
}

/* Not more than the agent writes: capacity for all of a card, for an instance's part, or none. */
static void read_capacity(struct json capacity, struct gpu_object *gpu) {
    uint64_t core, memory;
    bool whole = read_quantity(json_get(capacity, RESOURCE_CORE), &core) &&
                 read_quantity(json_get(capacity, RESOURCE_MEMORY), &memory) && memory <= INT64_MAX;
    gpu->no_shares = whole && core == 0 && memory == 0;
    gpu->has_capacity =
        gpu->no_shares || (whole && memory > 0 && core > 0 && core <= CORE_PER_CARD &&
                           (core == CORE_PER_CARD || gpu->parent[0]));
    gpu->core = gpu->has_capacity ? (uint32_t) core : 0;
    gpu->capacity = gpu->has_capacity && memory > 0 ? memory : gpu->memory;
}

/* What is malformed there is repaired by the agent. */
static void read_health(struct json status, struct gpu_object *gpu) {
    uint64_t xid;
    (void) field_copy_optional(json_get(status, "state"), gpu->state, sizeof(gpu->state));
    (void) field_copy_optional(json_get(status, "reason"), gpu->reason, sizeof(gpu->reason));
    (void) field_copy_optional(json_get(status, "since"), gpu->since, sizeof(gpu->since));
    gpu->healthy = strcmp(gpu->state, "Healthy") == 0;
    gpu->unknown = strcmp(gpu->state, "Unknown") == 0;
    if (json_u64(json_get(status, "lastXid"), &xid) && xid <= UINT32_MAX)
        gpu->last_xid = (uint32_t) xid;
    (void) field_copy_optional(json_get(status, "licence"), gpu->licence, sizeof(gpu->licence));
    (void) field_copy_optional(json_get(status, "maintenance"), gpu->maintenance,
                               sizeof(gpu->maintenance));
}

static void put_health(struct json_writer *w, const struct gpu_object *gpu) {
    json_put_string(w, "state", gpu->state);
    if (gpu->reason[0])
        json_put_string(w, "reason", gpu->reason);
    else
        json_put_null(w, "reason");
    if (gpu->since[0])
        json_put_string(w, "since", gpu->since);
    if (gpu->last_xid > 0)
        json_put_u64(w, "lastXid", gpu->last_xid);
    if (gpu->licence[0])
        json_put_string(w, "licence", gpu->licence);
}

static void read_reset(struct json reset, struct gpu_object_reset *ret) {
    (void) field_copy_optional(json_get(reset, "order"), ret->order, sizeof(ret->order));
    (void) field_copy_optional(json_get(reset, "message"), ret->message, sizeof(ret->message));
    ret->failed = !json_is_string(json_get(reset, "result"), "Succeeded");
}

/* What a former agent reported stays. */
static void put_reset(struct json_writer *w, const struct gpu_object_reset *reset) {
    if (!reset->order[0])
        return;
    json_object_begin(w, "reset");
    json_put_string(w, "order", reset->order);
    json_put_string(w, "result", reset->failed ? "Failed" : "Succeeded");
    json_put_string(w, "message", reset->failed ? reset->message : NULL);
    json_object_end(w);
}

static void read_claims(struct json claims, struct gpu_object_claims *ret) {
    const char *allocator = json_string(json_get(claims, "allocator"));
    if (!allocator || dra_allocator_parse(allocator, &ret->allocator) < 0)
        ret->allocator = DRA_NONE;
    (void) field_copy_optional(json_get(claims, "message"), ret->message, sizeof(ret->message));
}

static void put_claims(struct json_writer *w, const struct gpu_object_claims *claims) {
    if (claims->allocator == DRA_NONE) {
        json_put_null(w, "resourceClaims");
        return;
    }
    json_object_begin(w, "resourceClaims");
    json_put_string(w, "allocator", dra_allocator_name(claims->allocator));
    json_put_string(w, "message", claims->message[0] ? claims->message : NULL);
    json_object_end(w);
}

static void read_order(struct json annotations, const char *name, char *ret, size_t size) {
    const char *text = json_string(json_get(annotations, name));

    text_copy(ret, size, text ? text : "");
}

void gpu_object_read_orders(struct json metadata, struct gpu_orders *ret) {
    struct json annotations = json_get(metadata, "annotations");

    read_order(annotations, GPU_SET_HEALTHY, ret->set_healthy, sizeof(ret->set_healthy));
    read_order(annotations, GPU_RESET, ret->reset, sizeof(ret->reset));
    read_order(annotations, GPU_MAINTENANCE, ret->maintenance, sizeof(ret->maintenance));
}

int gpu_object_parse(struct json object, struct gpu_object *ret_gpu, struct err *err) {
    struct json spec = json_get(object, "spec"), status = json_get(object, "status");
    struct gpu_object gpu = {0};
    uint64_t index;
    if (field_copy(JSON_PATH(object, "metadata", "name"), gpu.name, sizeof(gpu.name)) < 0)
        return err_set(err, EINVAL, "not a GPU object: name is missing or too long");
    if (field_copy_optional(JSON_PATH(object, "metadata", "uid"), gpu.uid, sizeof(gpu.uid)) < 0)
        return err_set(err, EINVAL, "GPU object %s has a bad UID", gpu.name);
    if (!json_u64(json_get(spec, "index"), &index) || index > INDEX_MAX ||
        !json_u64(json_get(spec, "memory"), &gpu.memory) || gpu.memory > INT64_MAX ||
        field_copy(json_get(spec, "nodeName"), gpu.node, sizeof(gpu.node)) < 0 ||
        field_copy(json_get(spec, "uuid"), gpu.uuid, sizeof(gpu.uuid)) < 0 ||
        field_copy_optional(json_get(spec, "model"), gpu.model, sizeof(gpu.model)) < 0 ||
        field_copy_optional(json_get(spec, "path"), gpu.path, sizeof(gpu.path)) < 0)
        return err_set(err, EINVAL, "GPU object %s has a bad spec", gpu.name);
    gpu.index = (uint32_t) index;
    gpu_object_read_orders(json_get(object, "metadata"), &gpu.orders);
    read_health(status, &gpu);
    read_reset(json_get(status, "reset"), &gpu.reset);
    read_claims(json_get(status, "resourceClaims"), &gpu.claims);
    read_mig(spec, &gpu);
    read_capacity(json_get(status, "capacity"), &gpu);
    read_names(json_get(status, "overuse"), gpu.overuse, sizeof(gpu.overuse));
    read_names(json_get(status, "evict"), gpu.evict, sizeof(gpu.evict));
    if (!read_quantity(json_get(status, "unattributed"), &gpu.unattributed) ||
        gpu.unattributed > gpu.memory)
        gpu.unattributed = 0;
    read_owner(JSON_PATH(object, "metadata", "ownerReferences"), &gpu);
    read_links(spec, &gpu);
    if (!json_bool(json_get(spec, "wholeOnly"), &gpu.whole_only))
        gpu.whole_only = false;
    if (!json_bool(json_get(spec, "underMPS"), &gpu.under_mps))
        gpu.under_mps = false;
    if (!json_bool(json_get(spec, "mpsOnDemand"), &gpu.mps_on_demand))
        gpu.mps_on_demand = false;
    read_replicas(spec, &gpu.replicas);
    *ret_gpu = gpu;
    return 0;
}

int gpu_object_name(const char *node, const char *address, uint32_t index,
                    char ret_name[static KUBE_NAME_MAX]) {
    struct in_addr ipv4;
    const char *base = address && inet_pton(AF_INET, address, &ipv4) == 1 ? address : node;
    int len = snprintf(ret_name, KUBE_NAME_MAX, "%s-%02" PRIu32, base, index);
    return len < 0 || len >= KUBE_NAME_MAX ? -ENAMETOOLONG : 0;
}

int gpu_object_instance_name(const char *card, uint32_t gi, uint32_t ci,
                             char ret_name[static KUBE_NAME_MAX]) {
    int len = snprintf(ret_name, KUBE_NAME_MAX, "%s-gi%" PRIu32 "-ci%" PRIu32, card, gi, ci);
    return len < 0 || len >= KUBE_NAME_MAX ? -ENAMETOOLONG : 0;
}

void gpu_object_encode(const struct gpu_object *gpu, struct buf *out) {
    struct json_writer w = {.out = out};
    object_begin(&w, "elasticgpu.io/v1alpha1", "GPU", gpu->name, NULL);
    if (strlen(gpu->node) <= LABEL_VALUE_MAX) {
        json_object_begin(&w, "labels");
        json_put_string(&w, GPU_LABEL_NODE, gpu->node);
        json_object_end(&w);
    }
    if (gpu->owner[0])
        object_put_owner(&w, "Node", gpu->node, gpu->owner, false);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_put_u64(&w, "index", gpu->index);
    json_put_u64(&w, "memory", gpu->memory);
    put_mig(&w, gpu);
    json_put_string(&w, "model", gpu->model);
    json_put_bool(&w, "mpsOnDemand", gpu->mps_on_demand);
    json_put_string(&w, "nodeName", gpu->node);
    json_put_string(&w, "path", gpu->path);
    put_replicas(&w, &gpu->replicas);
    json_put_bool(&w, "underMPS", gpu->under_mps);
    json_put_string(&w, "uuid", gpu->uuid);
    json_put_bool(&w, "wholeOnly", gpu->whole_only);
    put_links(&w, gpu);
    json_object_end(&w);
    json_object_end(&w);
}

void gpu_object_encode_status(const struct gpu_object *gpu, struct buf *out) {
    struct json_writer w = {.out = out};
    char memory[24];
    uint64_t capacity = gpu->capacity > 0 ? gpu->capacity : gpu->memory;
    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    put_health(&w, gpu);
    json_object_begin(&w, "capacity");
    json_put_stringf(&w, RESOURCE_CORE, "%" PRIu32,
                     gpu->no_shares   ? 0
                     : gpu->core == 0 ? CORE_PER_CARD
                                      : gpu->core);
    json_put_string(&w, RESOURCE_MEMORY,
                    quantity_format_bytes(gpu->no_shares ? 0 : capacity, memory));
    json_object_end(&w);
    put_names(&w, "overuse", gpu->overuse);
    put_names(&w, "evict", gpu->evict);
    if (gpu->maintenance[0])
        json_put_string(&w, "maintenance", gpu->maintenance);
    else
        json_put_null(&w, "maintenance");
    put_reset(&w, &gpu->reset);
    put_claims(&w, &gpu->claims);
    json_put_string(&w, "unattributed", quantity_format_bytes(gpu->unattributed, memory));
    json_object_end(&w);
    json_object_end(&w);
}
