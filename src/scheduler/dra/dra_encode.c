/* SPDX-License-Identifier: Apache-2.0 */

/* The writes of an allocation as JSON. Each names the object by its UID, and what it was seen with
 * by its version, so that a write that comes late changes nothing. */

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/units.h"
#include "kube/api/object_write.h"
#include "model/dra.h"
#include "model/quantity.h"
#include "scheduler/dra/dra_internal.h"
#include "wire/json_write.h"

static void put_meta(struct json_writer *w, const struct resource_claim *claim) {
    json_object_begin(w, "metadata");
    json_put_string(w, "uid", claim->uid);
    json_put_string(w, "resourceVersion", claim->version);
}

void dra_encode_finalizer(const struct dra_claim *claim, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    put_meta(&w, &claim->object);
    json_array_begin(&w, "finalizers");
    json_put_string(&w, NULL, DRA_FINALIZER);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}

void dra_encode_gate(const struct dra_pod *pod, struct buf *out) {
    struct json_writer w = {.out = out};
    json_object_begin(&w, NULL);
    json_object_begin(&w, "metadata");
    json_put_string(&w, "uid", pod->object.uid);
    json_object_end(&w);
    json_object_begin(&w, "spec");
    json_array_begin(&w, "schedulingGates");
    json_object_begin(&w, NULL);
    json_put_string(&w, "$patch", "delete");
    json_put_string(&w, "name", DRA_GATE);
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}

/* A UUID of version 8 (RFC 9562): another one for each share of each allocation. */
static void put_share(struct json_writer *w, const struct resource_claim *claim, uint32_t part) {
    uint64_t high = hash_bytes(HASH_START, claim->uid, strlen(claim->uid) + 1);
    high = hash_bytes(high, claim->version, strlen(claim->version) + 1);
    high = hash_bytes(high, &part, sizeof(part));
    uint64_t low = hash_bytes(high, claim->uid, strlen(claim->uid) + 1);
    json_put_stringf(w, "shareID", "%08x-%04x-8%03x-%04x-%012" PRIx64, (unsigned) (high >> 32),
                     (unsigned) (high >> 16 & 0xffff), (unsigned) (high & 0xfff),
                     (unsigned) (0x8000 | (low >> 48 & 0x3fff)), low & 0xffffffffffff);
}

/* Kubernetes counts memory in steps of a MiB, so that all of a device has no rest of one. */
static void put_consumed(struct json_writer *w, const struct assigned_device *share) {
    char text[24];
    json_object_begin(w, "consumedCapacity");
    json_put_stringf(w, DRA_CORE, "%" PRIu32, share->core);
    json_put_string(w, DRA_MEMORY, quantity_format_bytes(share->memory / MIB * MIB, text));
    json_object_end(w);
}

static void put_results(struct json_writer *w, const struct dra_claim *claim) {
    json_array_begin(w, "results");
    for (uint32_t i = 0; i < claim->plan->nparts; i++) {
        const struct dra_part *part = &claim->plan->parts[i];
        json_object_begin(w, NULL);
        json_put(w, "request", (const char *) part->request, "driver", DRA_DRIVER, "pool",
                 (const char *) part->pool, "device", (const char *) part->device);
        if (part->shared) {
            put_share(w, &claim->object, i);
            put_consumed(w, &part->share);
        }
        json_object_end(w);
    }
    json_array_end(w);
}

static void put_config(struct json_writer *w, const struct device_config *config,
                       const char *request) {
    if (!config->parameters)
        return;
    json_object_begin(w, NULL);
    json_put_string(w, "source", config->from_class ? "FromClass" : "FromClaim");
    json_array_begin(w, "requests");
    if (request)
        json_put_string(w, NULL, request);
    for (uint32_t i = 0; !request && i < config->requests.n; i++)
        json_put_string(w, NULL, config->requests.v[i]);
    json_array_end(w);
    json_object_begin(w, "opaque");
    json_put_string(w, "driver", config->driver);
    json_put_raw(w, "parameters", config->parameters);
    json_object_end(w);
    json_object_end(w);
}

/* The first part of each request stands for all. */
static bool is_first(const struct dra_plan *plan, uint32_t part) {
    return part == 0 || strcmp(plan->parts[part - 1].request, plan->parts[part].request) != 0;
}

/* The class whose configs are those of the part's request; NULL: none, or they are there already.
 */
static const struct dra_class *class_of(const struct dra *d, const struct dra_plan *plan,
                                        uint32_t part) {
    return is_first(plan, part) ? dra_class_find(d, plan->parts[part].class) : NULL;
}

static uint32_t written(const struct device_config *configs, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += configs[i].parameters != NULL;
    return sum;
}

uint32_t dra_configs_of(const struct dra *d, const struct dra_claim *claim,
                        const struct dra_plan *plan) {
    uint32_t sum = written(claim->object.configs, claim->object.nconfigs) + (plan->terms[0] != 0);
    for (uint32_t i = 0; i < plan->nparts; i++) {
        const struct dra_class *class = class_of(d, plan, i);
        sum += class ? written(class->object.configs, class->object.nconfigs) : 0;
    }
    return sum;
}

/* As kube-scheduler fills it: of the class of each request, then those of the claim. */
static void put_configs(struct json_writer *w, const struct dra *d, const struct dra_claim *claim) {
    const struct dra_plan *plan = claim->plan;
    json_array_begin(w, "config");
    for (uint32_t i = 0; i < plan->nparts; i++) {
        const struct dra_class *class = class_of(d, plan, i);
        for (uint32_t j = 0; class && j < class->object.nconfigs; j++)
            put_config(w, &class->object.configs[j], plan->parts[i].request);
    }
    for (uint32_t i = 0; i < claim->object.nconfigs; i++)
        put_config(w, &claim->object.configs[i], NULL);
    if (plan->terms[0]) {
        char terms[DRA_TERMS_MAX];
        memcpy(terms, plan->terms, sizeof(terms));
        const struct device_config of_pod = {.driver = DRA_DRIVER, .parameters = terms};
        put_config(w, &of_pod, NULL);
    }
    json_array_end(w);
}

void dra_encode_allocation(const struct dra *d, const struct dra_claim *claim, const char *now,
                           struct buf *out) {
    struct json_writer w = {.out = out};
    const struct dra_plan *plan = claim->plan;
    json_object_begin(&w, NULL);
    put_meta(&w, &claim->object);
    json_object_end(&w);
    json_object_begin(&w, "status");
    json_object_begin(&w, "allocation");
    json_put_string(&w, "allocationTimestamp", now);
    json_object_begin(&w, "devices");
    put_results(&w, claim);
    put_configs(&w, d, claim);
    json_object_end(&w);
    json_object_begin(&w, "nodeSelector");
    object_put_node_terms(&w, plan->node);
    json_object_end(&w);
    json_object_end(&w);
    json_array_begin(&w, "reservedFor");
    json_object_begin(&w, NULL);
    json_put(&w, "resource", "pods", "name", (const char *) plan->pod_name, "uid",
             (const char *) plan->pod_uid);
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}
