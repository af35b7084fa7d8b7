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
#include "wire/json_write.h"

#define INDEX_MAX 4095
#define LABEL_VALUE_MAX 63 /* the API server refuses a longer one; node names can be longer */

/* A quantity of a ResourceList: a string, or a plain number. */
static bool read_quantity(struct json value, uint64_t *ret) {
    const char *text = json_string(value);
    return text ? quantity_parse(text, strlen(text), ret) == 0 : json_u64(value, ret);
}

static void add_overuse(struct gpu_object *gpu, const char *name) {
    size_t used = strlen(gpu->overuse), len = strlen(name);
    if (len == 0 || strchr(name, ' ') || used + len + 2 > sizeof(gpu->overuse))
        return;
    memcpy(gpu->overuse + used, name, len);
    memcpy(gpu->overuse + used + len, " ", 2);
}

void gpu_object_add_overuse(struct gpu_object *gpu, const char *namespace, const char *pod,
                            const char *container) {
    char name[KUBE_NAME_MAX + 2 * KUBE_LABEL_MAX + 2];
    (void) snprintf(name, sizeof(name), "%s/%s/%s", namespace, pod, container);
    add_overuse(gpu, name);
}

static void read_overuse(struct json list, struct gpu_object *gpu) {
    struct json_iter it = json_iter(list);
    struct json item;
    while (json_next(&it, NULL, &item)) {
        const char *name = json_string(item);
        if (name)
            add_overuse(gpu, name);
    }
}

static void put_overuse(struct json_writer *w, const struct gpu_object *gpu) {
    json_array_begin(w, "overuse");
    for (const char *at = gpu->overuse; *at;) {
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
}

void gpu_object_read_order(struct json metadata, char ret[static GPU_ORDER_MAX]) {
    const char *text = json_string(JSON_PATH(metadata, "annotations", GPU_SET_HEALTHY));

    text_copy(ret, GPU_ORDER_MAX, text ? text : "");
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
    gpu_object_read_order(json_get(object, "metadata"), gpu.set_healthy);
    read_health(status, &gpu);
    struct json capacity = json_get(status, "capacity");
    uint64_t core;
    gpu.has_capacity = read_quantity(json_get(capacity, RESOURCE_CORE), &core) &&
                       core == CORE_PER_CARD &&
                       read_quantity(json_get(capacity, RESOURCE_MEMORY), &gpu.capacity) &&
                       gpu.capacity > 0 && gpu.capacity <= INT64_MAX;
    if (!gpu.has_capacity)
        gpu.capacity = gpu.memory;
    read_overuse(json_get(status, "overuse"), &gpu);
    if (!read_quantity(json_get(status, "unattributed"), &gpu.unattributed) ||
        gpu.unattributed > gpu.memory)
        gpu.unattributed = 0;
    read_owner(JSON_PATH(object, "metadata", "ownerReferences"), &gpu);
    read_links(spec, &gpu);
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
    json_put_string(&w, "model", gpu->model);
    json_put_string(&w, "nodeName", gpu->node);
    json_put_string(&w, "path", gpu->path);
    json_put_string(&w, "uuid", gpu->uuid);
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
    json_put_string(&w, RESOURCE_CORE, "100");
    json_put_string(&w, RESOURCE_MEMORY, quantity_format_bytes(capacity, memory));
    json_object_end(&w);
    put_overuse(&w, gpu);
    json_put_string(&w, "unattributed", quantity_format_bytes(gpu->unattributed, memory));
    json_object_end(&w);
    json_object_end(&w);
}
