/* SPDX-License-Identifier: Apache-2.0 */
#include "claims/object.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kube/api/field.h"

/* ---- what all have ---- */

void claim_meta_done(struct claim_meta *m) {
    strings_done(&m->finalizers);
    free(m->labels);
    m->labels = NULL;
}

static int read_meta(struct json object, struct claim_meta *ret, struct err *err) {
    struct json meta = json_get(object, "metadata");
    if (field_copy(json_get(meta, "uid"), ret->uid, sizeof(ret->uid)) < 0 ||
        field_copy(json_get(meta, "name"), ret->name, sizeof(ret->name)) < 0 ||
        field_copy(json_get(meta, "resourceVersion"), ret->version, sizeof(ret->version)) < 0 ||
        field_copy_optional(json_get(meta, "namespace"), ret->namespace, sizeof(ret->namespace)) <
            0 ||
        field_copy_optional(json_get(meta, "creationTimestamp"), ret->created,
                            sizeof(ret->created)) < 0)
        return err_set(err, EINVAL, "uid, name or resourceVersion is missing or too long");
    ret->deleting = json_string(json_get(meta, "deletionTimestamp")) != NULL;
    int r = strings_read(json_get(meta, "finalizers"), &ret->finalizers);
    if (r == 0)
        r = labels_read(json_get(meta, "labels"), &ret->labels);
    return r < 0 ? err_errno(err, -r, "cannot keep an object") : 0;
}

static struct json annotation(struct json object, const char *key) {
    return JSON_PATH(object, "metadata", "annotations", key);
}

/* The first of these members that is there. */
static struct json first_of(struct json object, const char *const *keys) {
    for (; *keys; keys++) {
        struct json value = json_get(object, *keys);
        if (json_valid(value) && json_type(value) != JSON_NULL)
            return value;
    }
    return (struct json){0};
}
#define FIRST_OF(object, ...) first_of(object, (const char *const[]){__VA_ARGS__, NULL})
#define CLASS_KEYS "elasticGPUClassName", "egpuClassName", "storageClassName"
#define RECLAIM_KEYS "reclaimPolicy", "elasticGPUReclaimPolicy", "persistentVolumeReclaimPolicy"
#define BINDING_KEYS "bindingMode", "egpuBindingMode", "eGPUBindingMode", "volumeBindingMode"
#define EXPANSION_KEYS "allowExpansion", "allowVolumeExpansion"

static void copy_text(struct json value, char *ret, size_t size) {
    const char *text = json_string(value);
    snprintf(ret, size, "%s", text ? text : "");
}

/* ---- ElasticGPU ---- */

static const char *const egpu_phases[] = {"Pending", "Available", "Bound", "Released", "Failed"};
static const char *const claim_phases[] = {"", "Pending", "Bound", "Lost"};

const char *egpu_phase_name(enum egpu_phase phase) {
    return egpu_phases[phase];
}

const char *claim_phase_name(enum claim_phase phase) {
    return claim_phases[phase];
}

static int find_name(struct json value, const char *const *names, size_t n) {
    const char *text = json_string(value);
    for (size_t i = 0; text && i < n; i++)
        if (strcmp(text, names[i]) == 0)
            return (int) i;
    return -1;
}

static int read_cards(struct json names, struct egpu *e) {
    struct json_iter it = json_iter(names);
    struct json value = names;
    bool list = json_type(names) == JSON_ARRAY;
    e->cards = calloc(CLAIM_CARDS_MAX, sizeof(*e->cards));
    if (!e->cards)
        return -ENOMEM;
    while (e->ncards < CLAIM_CARDS_MAX && (!list || json_next(&it, NULL, &value))) {
        if (field_copy(value, e->cards[e->ncards], sizeof(e->cards[0])) == 0)
            e->ncards++;
        if (!list)
            break;
    }
    return 0;
}

/* Exactly one of the sources is what the CRD lets pass. */
static int read_source(struct json spec, struct egpu *e) {
    static const struct {
        const char *key, *names;
    } sources[] = {{"qGPU", "gpuName"},
                   {"physicalGPU", "gpuNames"},
                   {"gpuShare", "gpuName"},
                   {"mig", "gpuName"}};
    struct json found = {0};
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        struct json source = json_get(spec, sources[i].key);
        if (json_type(source) != JSON_OBJECT)
            continue;
        e->source = sources[i].key;
        found = json_get(source, sources[i].names);
        n++;
    }
    if (n == 1)
        return read_cards(found, e);
    e->source = NULL;
    return 0;
}

static int read_affinity(struct json spec, struct egpu *e) {
    struct json terms = JSON_PATH(spec, "nodeAffinity", "required", "nodeSelectorTerms");
    return node_selector_read(terms, &e->affinity);
}

/* kubernetes.io/hostname In [one node], by expression or by field: what ties it to a node. */
static void read_node(struct json spec, struct egpu *e) {
    struct json terms = JSON_PATH(spec, "nodeAffinity", "required", "nodeSelectorTerms");
    struct json_iter it = json_iter(terms);
    struct json term, expression, value;
    while (json_next(&it, NULL, &term)) {
        struct json_iter in = json_iter(FIRST_OF(term, "matchExpressions", "matchFields"));
        while (json_next(&in, NULL, &expression)) {
            struct json_iter values = json_iter(json_get(expression, "values"));
            bool host = json_is_string(json_get(expression, "key"), "kubernetes.io/hostname") ||
                        json_is_string(json_get(expression, "key"), "metadata.name");
            if (host && json_is_string(json_get(expression, "operator"), "In") &&
                json_next(&values, NULL, &value))
                copy_text(value, e->node, sizeof(e->node));
        }
    }
}

static void read_claim_ref(struct json spec, struct egpu *e) {
    struct json ref = json_get(spec, "claimRef");
    e->reserved =
        field_copy(json_get(ref, "name"), e->claim_name, sizeof(e->claim_name)) == 0 &&
        field_copy(json_get(ref, "namespace"), e->claim_namespace, sizeof(e->claim_namespace)) == 0;
    if (e->reserved)
        copy_text(json_get(ref, "uid"), e->claim_uid, sizeof(e->claim_uid));
    else
        e->claim_name[0] = e->claim_namespace[0] = '\0';
}

static bool is_native(struct json capacity) {
    struct json_iter it = json_iter(capacity);
    struct json value;
    const char *key;
    while (json_next(&it, &key, &value))
        if (!key || (strcmp(key, RESOURCE_CORE) != 0 && strcmp(key, RESOURCE_MEMORY) != 0))
            return false;
    return true;
}

static void read_egpu_status(struct json status, struct egpu *e) {
    int phase = find_name(json_get(status, "phase"), egpu_phases, 5);
    e->has_phase = phase >= 0;
    e->phase = phase >= 0 ? (enum egpu_phase) phase : EGPU_PENDING;
    copy_text(json_get(status, "reason"), e->word.reason, sizeof(e->word.reason));
    copy_text(json_get(status, "message"), e->word.message, sizeof(e->word.message));
}

int egpu_parse(struct json object, struct egpu *ret, struct err *err) {
    struct egpu e = {0};
    struct json spec = json_get(object, "spec");
    int r = read_meta(object, &e.meta, err);
    if (r == 0 && ((r = read_source(spec, &e)) < 0 || (r = read_affinity(spec, &e)) < 0))
        err_errno(err, -r, "cannot keep an object");
    if (r < 0) {
        egpu_done(&e);
        return r;
    }
    (void) claim_amount_read(json_get(spec, "capacity"), &e.capacity, NULL);
    copy_text(JSON_PATH(spec, "mig", "profile"), e.capacity.profile, sizeof(e.capacity.profile));
    e.native = is_native(json_get(spec, "capacity"));
    copy_text(FIRST_OF(spec, CLASS_KEYS), e.class, sizeof(e.class));
    e.delete_after = json_is_string(FIRST_OF(spec, RECLAIM_KEYS), "Delete");
    read_node(spec, &e);
    read_claim_ref(spec, &e);
    copy_text(annotation(object, NOTE_PROVISIONED_BY), e.provisioned_by, sizeof(e.provisioned_by));
    e.bound_by_us = json_valid(annotation(object, NOTE_BOUND_BY_US));
    read_egpu_status(json_get(object, "status"), &e);
    *ret = e;
    return 0;
}

bool egpu_holds(const struct egpu *e) {
    return e->provisioned_by[0] ||
           (e->has_phase &&
            (e->phase == EGPU_AVAILABLE || e->phase == EGPU_BOUND || e->phase == EGPU_RELEASED));
}

void egpu_done(struct egpu *e) {
    claim_meta_done(&e->meta);
    node_selector_done(&e->affinity);
    free(e->cards);
    e->cards = NULL;
}

/* ---- ElasticGPUClaim ---- */

static void read_condition(struct json status, const char *type, struct claim_word *ret) {
    struct json_iter it = json_iter(json_get(status, "conditions"));
    struct json condition;
    while (json_next(&it, NULL, &condition)) {
        if (!json_is_string(json_get(condition, "type"), type))
            continue;
        copy_text(json_get(condition, "reason"), ret->reason, sizeof(ret->reason));
        copy_text(json_get(condition, "message"), ret->message, sizeof(ret->message));
    }
}

static void read_owner(struct json object, struct egpu_claim *c) {
    struct json_iter it = json_iter(JSON_PATH(object, "metadata", "ownerReferences"));
    struct json owner;
    while (json_next(&it, NULL, &owner)) {
        bool controller = false;
        (void) json_bool(json_get(owner, "controller"), &controller);
        if (controller && json_is_string(json_get(owner, "kind"), "Pod") &&
            json_is_string(json_get(owner, "apiVersion"), "v1"))
            copy_text(json_get(owner, "uid"), c->owner_pod, sizeof(c->owner_pod));
    }
}

/* Requests and limits mean the same here, as for every resource that is not shared out twice. */
static void read_request(struct json spec, struct egpu_claim *c) {
    struct json resources = json_get(spec, "resources");
    struct json list = json_get(resources, "requests");
    struct err why;
    if (json_size(list) == 0)
        list = json_get(resources, "limits");
    if (claim_amount_read(list, &c->request, &why) < 0)
        snprintf(c->problem, sizeof(c->problem), "%.*s", CLAIM_MESSAGE_MAX - 1, why.text);
}

static void read_claim_status(struct json status, struct egpu_claim *c) {
    int phase = find_name(json_get(status, "phase"), claim_phases, 4);
    c->phase = phase > 0 ? (enum claim_phase) phase : CLAIM_NONE;
    if (claim_amount_read(json_get(status, "capacity"), &c->granted, NULL) < 0)
        c->granted = (struct claim_amount){0};
    read_condition(status, "Bound", &c->word);
    read_condition(status, "Resizing", &c->resize);
}

int egpu_claim_parse(struct json object, struct egpu_claim *ret, struct err *err) {
    struct egpu_claim c = {0};
    struct json spec = json_get(object, "spec"), class = FIRST_OF(spec, CLASS_KEYS);
    int r = read_meta(object, &c.meta, err);
    if (r == 0 && c.meta.namespace[0] == '\0')
        r = err_set(err, EINVAL, "a claim has no namespace");
    int selector = r < 0 ? 0 : label_selector_read(json_get(spec, "selector"), &c.selector);
    if (selector == -ENOMEM)
        r = err_errno(err, ENOMEM, "cannot keep a claim");
    if (r < 0) {
        egpu_claim_done(&c);
        return r;
    }
    read_request(spec, &c);
    if (selector < 0)
        snprintf(c.problem, sizeof(c.problem), "spec.selector cannot be understood");
    copy_text(json_get(spec, "elasticGPUName"), c.egpu, sizeof(c.egpu));
    c.has_class = json_type(class) == JSON_STRING;
    copy_text(class, c.class, sizeof(c.class));
    copy_text(annotation(object, NOTE_SELECTED_NODE), c.selected_node, sizeof(c.selected_node));
    copy_text(annotation(object, NOTE_PROVISIONER), c.provisioner, sizeof(c.provisioner));
    c.bind_completed = json_valid(annotation(object, NOTE_BIND_COMPLETED));
    c.bound_by_us = json_valid(annotation(object, NOTE_BOUND_BY_US));
    read_owner(object, &c);
    read_claim_status(json_get(object, "status"), &c);
    *ret = c;
    return 0;
}

void egpu_claim_done(struct egpu_claim *c) {
    claim_meta_done(&c->meta);
    label_terms_done(&c->selector);
}

/* ---- ElasticGPUClass ---- */

int egpu_class_parse(struct json object, struct egpu_class *ret, struct err *err) {
    struct egpu_class c = {0};
    uint64_t pods = 1;
    int r = read_meta(object, &c.meta, err);
    if (r == 0 &&
        ((r = strings_read(json_get(object, "parameters"), &c.parameters)) < 0 ||
         (r = node_selector_read(json_get(object, "allowedTopologies"), &c.topologies)) < 0))
        err_errno(err, -r, "cannot keep a class");
    if (r < 0) {
        egpu_class_done(&c);
        return r;
    }
    copy_text(json_get(object, "provisioner"), c.provisioner, sizeof(c.provisioner));
    c.retain = json_is_string(FIRST_OF(object, RECLAIM_KEYS), "Retain");
    c.wait_consumer = json_is_string(FIRST_OF(object, BINDING_KEYS), "WaitForFirstConsumer");
    (void) json_bool(FIRST_OF(object, EXPANSION_KEYS), &c.expansion);
    (void) json_u64(json_get(object, "podsPerClaim"), &pods);
    c.pods = pods >= 1 && pods <= 100 ? (uint32_t) pods : 1;
    c.is_default = json_is_string(annotation(object, NOTE_DEFAULT_CLASS), "true");
    *ret = c;
    return 0;
}

void egpu_class_done(struct egpu_class *c) {
    claim_meta_done(&c->meta);
    strings_done(&c->parameters);
    node_selector_done(&c->topologies);
}

const char *egpu_class_parameter(const struct egpu_class *class, const char *key) {
    size_t len = strlen(key);
    for (uint32_t i = 0; i < class->parameters.n; i++)
        if (strncmp(class->parameters.v[i], key, len) == 0 && class->parameters.v[i][len] == '=')
            return class->parameters.v[i] + len + 1;
    return NULL;
}
