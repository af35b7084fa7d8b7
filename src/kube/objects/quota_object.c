/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/quota_object.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "kube/api/field.h"
#include "model/quantity.h"
#include "wire/json_write.h"

static const char *const names[QUOTA_RESOURCES] = {
    [QUOTA_CORE] = RESOURCE_CORE,
    [QUOTA_MEMORY] = RESOURCE_MEMORY,
    [QUOTA_CARDS] = "elasticgpu.io/gpu",
};

/* Kubernetes counts `requests.NAME` of extended resources by itself, in pods only, and keeps
 * `limits.NAME` without counting it. */
static const struct {
    const char *key;
    enum quota_resource resource;
    uint64_t unit;
    bool of_requests;
} entries[] = {
    {"limits." RESOURCE_CORE, QUOTA_CORE, 1, false},
    {"limits." RESOURCE_MEMORY, QUOTA_MEMORY, 1, false},
    {"limits.elasticgpu.io/gpu", QUOTA_CARDS, 1, false},
    {"limits.nvidia.com/gpucores", QUOTA_CORE, 1, false},
    {"limits.nvidia.com/gpumem", QUOTA_MEMORY, UINT64_C(1) << 20, false},
    {"requests." RESOURCE_CORE, QUOTA_CORE, 1, true},
    {"requests." RESOURCE_MEMORY, QUOTA_MEMORY, 1, true},
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

const char *quota_resource_name(enum quota_resource resource) {
    return names[resource];
}

/* A quantity as a string or a plain number; false: absent, or none. */
static bool read_quantity(struct json value, uint64_t *ret) {
    const char *text = json_string(value);
    return text ? quantity_parse(text, strlen(text), ret) == 0 : json_u64(value, ret);
}

static int read_names(struct json object, struct quota_object *q) {
    struct json meta = json_get(object, "metadata");
    if (field_copy(json_get(meta, "name"), q->name, sizeof(q->name)) < 0 ||
        field_copy(json_get(meta, "namespace"), q->namespace, sizeof(q->namespace)) < 0)
        return -EINVAL;
    for (int r = 0; r < QUOTA_RESOURCES; r++)
        q->max[r] = q->requests[r] = UINT64_MAX;
    return 0;
}

int quota_object_parse(struct json object, struct quota_object *ret, struct err *err) {
    struct json spec = json_get(object, "spec"), status = json_get(object, "status");
    struct json used = json_get(status, "used"), claims = json_get(status, "usedByClaims");
    struct quota_object q = {0};
    if (read_names(object, &q) < 0 ||
        field_copy_optional(json_get(spec, "cohort"), q.cohort, sizeof(q.cohort)) < 0)
        return err_set(err, EINVAL, "not an ElasticGPUQuota: name, namespace or cohort is wrong");
    q.has_used = json_type(used) == JSON_OBJECT;
    q.has_claims = json_type(claims) == JSON_OBJECT;
    for (int r = 0; r < QUOTA_RESOURCES; r++) {
        bool has_part = read_quantity(JSON_PATH(spec, "guaranteed", names[r]), &q.guaranteed[r]);
        bool has_max = read_quantity(JSON_PATH(spec, "max", names[r]), &q.max[r]);
        q.counted[r] = has_part || has_max;
        if (!has_max && has_part && q.cohort[0] == '\0')
            q.max[r] = q.guaranteed[r]; /* there is no quota to borrow from */
        (void) read_quantity(json_get(used, names[r]), &q.used.all.of[r]);
        (void) read_quantity(json_get(claims, names[r]), &q.used.claims.of[r]);
    }
    *ret = q;
    return 0;
}

int resource_quota_parse(struct json object, struct quota_object *ret, struct err *err) {
    struct json spec = json_get(object, "spec");
    struct quota_object q = {0};
    if (read_names(object, &q) < 0)
        return err_set(err, EINVAL, "not a ResourceQuota: name or namespace is wrong");
    bool scoped = json_size(json_get(spec, "scopes")) > 0 ||
                  json_type(json_get(spec, "scopeSelector")) == JSON_OBJECT;
    for (size_t i = 0; i < ENTRIES && !scoped; i++) {
        enum quota_resource r = entries[i].resource;
        uint64_t *limit = entries[i].of_requests ? &q.requests[r] : &q.max[r];
        uint64_t value;
        if (!read_quantity(JSON_PATH(spec, "hard", entries[i].key), &value))
            continue;
        if (__builtin_mul_overflow(value, entries[i].unit, &value))
            value = UINT64_MAX;
        *limit = value < *limit ? value : *limit;
        *(entries[i].of_requests ? &q.has_requests[r] : &q.counted[r]) = true;
    }
    *ret = q;
    return 0;
}

static void put_use(struct json_writer *w, const char *key, const struct quota_use *use) {
    char text[24];
    json_object_begin(w, key);
    json_put_stringf(w, names[QUOTA_CORE], "%" PRIu64, use->of[QUOTA_CORE]);
    json_put_string(w, names[QUOTA_MEMORY], quantity_format_bytes(use->of[QUOTA_MEMORY], text));
    json_put_stringf(w, names[QUOTA_CARDS], "%" PRIu64, use->of[QUOTA_CARDS]);
    json_object_end(w);
}

void quota_object_encode_status(const struct quota_usage *used, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "status");
    put_use(&w, "used", &used->all);
    put_use(&w, "usedByClaims", &used->claims);
    json_object_end(&w);
    json_object_end(&w);
}
