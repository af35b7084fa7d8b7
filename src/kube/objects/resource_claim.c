/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/resource_claim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/text.h"
#include "kube/api/field.h"
#include "model/dra.h"
#include "model/quantity.h"

/* Reads one element of a list into one of an array that is all zero. */
typedef int (*read_element)(struct json element, void *ret);

/* Reads a list of at most `max` elements. What was read before an error is in *ret, too. */
static int read_list(struct json list, size_t max, size_t size, read_element read, void *ret_array,
                     uint32_t *ret_n) {
    size_t n = json_size(list);
    struct json_iter it = json_iter(list);
    struct json element;
    char *array;
    int r = 0;

    if (n == 0)
        return 0;
    if (json_type(list) != JSON_ARRAY || n > max)
        return -EINVAL;
    array = calloc(n, size);
    if (!array)
        return -ENOMEM;
    memcpy(ret_array, &array, sizeof(array));
    while (r == 0 && *ret_n < n && json_next(&it, NULL, &element)) {
        r = read(element, array + *ret_n * size);
        ++*ret_n;
    }
    return r;
}
#define READ_LIST(list, max, read, array, n) read_list(list, max, sizeof(**(array)), read, array, n)

/* Copies a text of limited length, which may be absent. 0, -EINVAL or -ENOMEM. */
static int copy_text(struct json value, size_t max, char **ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(max + 1);

    if (!json_valid(value))
        return 0;
    json_print(&text, value);
    if (buf_error(&text) < 0)
        return buf_error(&text) == -ENOMEM ? -ENOMEM : -EINVAL;
    *ret = strdup(buf_str(&text));
    return *ret ? 0 : -ENOMEM;
}

/* ---- amounts ---- */

static bool read_quantity(struct json value, uint64_t *ret) {
    const char *text = json_string(value);

    return json_u64(value, ret) || (text && quantity_parse(text, strlen(text), ret) == 0);
}

static void read_amounts(struct json list, struct device_amounts *ret) {
    struct json_iter it = json_iter(list);
    struct json value;
    const char *key;

    while (json_next(&it, &key, &value)) {
        bool core = key && strcmp(key, DRA_CORE) == 0, memory = key && strcmp(key, DRA_MEMORY) == 0;
        bool known = core     ? (ret->has_core = read_quantity(value, &ret->core))
                     : memory ? (ret->has_memory = read_quantity(value, &ret->memory))
                              : false;

        if (!known && !ret->odd[0])
            text_copy(ret->odd, sizeof(ret->odd), key && *key ? key : "?");
    }
}

/* ---- spec ---- */

static bool selector_fits(const struct strings *selectors) {
    for (uint32_t i = 0; i < selectors->n; i++)
        if (strlen(selectors->v[i]) > DEVICE_SELECTOR_MAX)
            return false;
    return true;
}

static int read_selectors(struct json list, struct strings *ret) {
    struct json_iter it = json_iter(list);
    struct json selector;
    int r = 0;

    while (r == 0 && json_next(&it, NULL, &selector)) {
        struct json text = JSON_PATH(selector, "cel", "expression");

        if (!json_string(text))
            return -EINVAL; /* of a kind that is not known, as is what it excludes */
        r = strings_add(ret, json_string(text));
    }
    return r < 0 ? r : selector_fits(ret) ? 0 : -EINVAL;
}

static int read_choice(struct json object, void *ret) {
    struct device_choice *choice = ret;
    struct json mode = json_get(object, "allocationMode");
    uint64_t count = 1;

    (void) json_bool(json_get(object, "adminAccess"), &choice->admin);
    choice->all = json_is_string(mode, "All");
    if (json_valid(json_get(object, "count")) && !json_u64(json_get(object, "count"), &count))
        return -EINVAL;
    if (field_copy_optional(json_get(object, "name"), choice->name, sizeof(choice->name)) < 0 ||
        field_copy(json_get(object, "deviceClassName"), choice->class, sizeof(choice->class)) < 0 ||
        (!choice->all && (count == 0 || count > UINT32_MAX)))
        return -EINVAL;
    choice->count = choice->all ? 0 : (uint32_t) count;
    read_amounts(JSON_PATH(object, "capacity", "requests"), &choice->amounts);
    return read_selectors(json_get(object, "selectors"), &choice->selectors);
}

static int read_request(struct json object, void *ret) {
    struct device_request *request = ret;
    struct json exactly = json_get(object, "exactly");

    if (field_copy(json_get(object, "name"), request->name, sizeof(request->name)) < 0)
        return -EINVAL;
    if (!json_valid(exactly))
        return READ_LIST(json_get(object, "firstAvailable"), DEVICE_CHOICES_MAX, read_choice,
                         &request->choices, &request->nchoices);
    request->choices = calloc(1, sizeof(*request->choices));
    if (!request->choices)
        return -ENOMEM;
    request->nchoices = 1;
    return read_choice(exactly, request->choices);
}

static int read_constraint(struct json object, void *ret) {
    struct device_constraint *constraint = ret;

    if (field_copy_optional(json_get(object, "matchAttribute"), constraint->match,
                            sizeof(constraint->match)) < 0 ||
        field_copy_optional(json_get(object, "distinctAttribute"), constraint->distinct,
                            sizeof(constraint->distinct)) < 0)
        return -EINVAL;
    return strings_read(json_get(object, "requests"), &constraint->requests);
}

static int read_config(struct json object, void *ret) {
    struct device_config *config = ret;
    struct json opaque = json_get(object, "opaque");
    int r;

    config->from_class = json_is_string(json_get(object, "source"), "FromClass");
    if (field_copy_optional(json_get(opaque, "driver"), config->driver, sizeof(config->driver)) < 0)
        return -EINVAL;
    r = copy_text(json_get(opaque, "parameters"), DEVICE_PARAMETERS_MAX, &config->parameters);
    return r < 0 ? r : strings_read(json_get(object, "requests"), &config->requests);
}

static int read_spec(struct json devices, struct resource_claim *c) {
    int r = READ_LIST(json_get(devices, "requests"), DEVICE_REQUESTS_MAX, read_request,
                      &c->requests, &c->nrequests);

    if (r == 0)
        r = READ_LIST(json_get(devices, "constraints"), DEVICE_REQUESTS_MAX, read_constraint,
                      &c->constraints, &c->nconstraints);
    if (r == 0)
        r = READ_LIST(json_get(devices, "config"), DEVICE_REQUESTS_MAX, read_config, &c->configs,
                      &c->nconfigs);
    return r;
}

/* ---- status ---- */

static int read_result(struct json object, void *ret) {
    struct device_result *result = ret;

    (void) json_bool(json_get(object, "adminAccess"), &result->admin);
    read_amounts(json_get(object, "consumedCapacity"), &result->consumed);
    return field_copy(json_get(object, "request"), result->request, sizeof(result->request)) < 0 ||
                   field_copy(json_get(object, "driver"), result->driver, sizeof(result->driver)) <
                       0 ||
                   field_copy(json_get(object, "pool"), result->pool, sizeof(result->pool)) < 0 ||
                   field_copy(json_get(object, "device"), result->device, sizeof(result->device)) <
                       0 ||
                   field_copy_optional(json_get(object, "shareID"), result->share,
                                       sizeof(result->share)) < 0
               ? -EINVAL
               : 0;
}

static int read_user(struct json object, void *ret) {
    struct device_user *user = ret;

    user->pod = json_is_string(json_get(object, "resource"), "pods") &&
                json_string_or(json_get(object, "apiGroup"), "")[0] == '\0';
    return field_copy(json_get(object, "name"), user->name, sizeof(user->name)) < 0 ||
                   field_copy(json_get(object, "uid"), user->uid, sizeof(user->uid)) < 0
               ? -EINVAL
               : 0;
}

/* Exactly one term with exactly one field, as allocators write it for devices of one node. */
static void read_node(struct json selector, char ret[static KUBE_NAME_MAX]) {
    struct json terms = json_get(selector, "nodeSelectorTerms"), term, field, value;
    struct json_iter it = json_iter(terms);

    if (json_size(terms) != 1 || !json_next(&it, NULL, &term) ||
        json_size(json_get(term, "matchExpressions")) != 0 ||
        json_size(json_get(term, "matchFields")) != 1)
        return;
    it = json_iter(json_get(term, "matchFields"));
    if (!json_next(&it, NULL, &field) || !json_is_string(json_get(field, "operator"), "In") ||
        !json_is_string(json_get(field, "key"), "metadata.name") ||
        json_size(json_get(field, "values")) != 1)
        return;
    it = json_iter(json_get(field, "values"));
    if (json_next(&it, NULL, &value) && field_copy(value, ret, KUBE_NAME_MAX) < 0)
        ret[0] = '\0';
}

static int read_status(struct json status, struct resource_claim *c) {
    struct json allocation = json_get(status, "allocation");
    struct json devices = json_get(allocation, "devices");
    int r = READ_LIST(json_get(status, "reservedFor"), DEVICE_USERS_MAX, read_user, &c->users,
                      &c->nusers);

    c->allocated = json_type(allocation) == JSON_OBJECT;
    read_node(json_get(allocation, "nodeSelector"), c->node);
    if (r == 0)
        r = READ_LIST(json_get(devices, "results"), DEVICE_RESULTS_MAX, read_result, &c->results,
                      &c->nresults);
    /* Those of the class and those of the claim. */
    if (r == 0)
        r = READ_LIST(json_get(devices, "config"), (size_t) 2 * DEVICE_REQUESTS_MAX, read_config,
                      &c->allocated_configs, &c->nallocated_configs);
    return r;
}

/* ---- the object ---- */

/* The controller among its owners, which is the pod of a claim that was made of a template. */
static int read_owner(struct json owners, char *ret, size_t size) {
    struct json_iter it = json_iter(owners);
    struct json owner;

    while (json_next(&it, NULL, &owner)) {
        bool controller = false;

        (void) json_bool(json_get(owner, "controller"), &controller);
        if (controller && json_is_string(json_get(owner, "kind"), "Pod"))
            return field_copy_optional(json_get(owner, "uid"), ret, size);
    }
    return 0;
}

static int read_meta(struct json meta, struct resource_claim *c) {
    const char *code = json_string(json_get(json_get(meta, "annotations"), DRA_REQUEST_ANNOTATION));

    if (code && request_code_is(code))
        memcpy(c->code, code, strlen(code) + 1);
    c->created = field_time(json_get(meta, "creationTimestamp"));
    c->deleting = json_string(json_get(meta, "deletionTimestamp")) != NULL;
    c->protected = json_has_string(json_get(meta, "finalizers"), DRA_FINALIZER);
    return field_copy(json_get(meta, "uid"), c->uid, sizeof(c->uid)) < 0 ||
                   field_copy(json_get(meta, "namespace"), c->namespace, sizeof(c->namespace)) <
                       0 ||
                   field_copy(json_get(meta, "name"), c->name, sizeof(c->name)) < 0 ||
                   field_copy_optional(json_get(meta, "resourceVersion"), c->version,
                                       sizeof(c->version)) < 0 ||
                   read_owner(json_get(meta, "ownerReferences"), c->owner_pod,
                              sizeof(c->owner_pod)) < 0
               ? -EINVAL
               : 0;
}

int resource_claim_parse(struct json object, struct resource_claim *ret, struct err *err) {
    _cleanup_(resource_claim_done) struct resource_claim c = {0};
    int r = read_meta(json_get(object, "metadata"), &c);

    if (r < 0)
        return err_set(err, EINVAL, "not a ResourceClaim: uid, namespace or name is missing");
    r = read_spec(JSON_PATH(object, "spec", "devices"), &c);
    if (r == -EINVAL)
        return err_set(err, EINVAL, "ResourceClaim %s/%s has a bad spec", c.namespace, c.name);
    if (r == 0)
        r = read_status(json_get(object, "status"), &c);
    if (r == -EINVAL)
        return err_set(err, EINVAL, "ResourceClaim %s/%s has a bad status", c.namespace, c.name);
    if (r < 0)
        return err_errno(err, -r, "cannot keep a ResourceClaim");
    *ret = take_struct(c);
    return 0;
}

static void configs_done(struct device_config *configs, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        strings_done(&configs[i].requests);
        free(configs[i].parameters);
    }
    free(configs);
}

void resource_claim_done(struct resource_claim *claim) {
    for (uint32_t i = 0; i < claim->nrequests; i++) {
        for (uint32_t j = 0; j < claim->requests[i].nchoices; j++)
            strings_done(&claim->requests[i].choices[j].selectors);
        free(claim->requests[i].choices);
    }
    for (uint32_t i = 0; i < claim->nconstraints; i++)
        strings_done(&claim->constraints[i].requests);
    configs_done(claim->configs, claim->nconfigs);
    configs_done(claim->allocated_configs, claim->nallocated_configs);
    free(claim->requests);
    free(claim->constraints);
    free(claim->results);
    free(claim->users);
    *claim = (struct resource_claim){0};
}

/* ---- classes ---- */

static int read_class_config(struct json object, void *ret) {
    struct device_config *config = ret;
    int r = read_config(object, config);

    config->from_class = true;
    return r;
}

/* Whether kube-scheduler finds no device for it. */
static bool is_kept_off(const struct strings *selectors) {
    return selectors->n == 1 && strcmp(selectors->v[0], "false") == 0;
}

int device_class_parse(struct json object, struct device_class *ret, struct err *err) {
    _cleanup_(device_class_done) struct device_class c = {0};
    struct json meta = json_get(object, "metadata"), spec = json_get(object, "spec");
    int r;

    if (field_copy(json_get(meta, "name"), c.name, sizeof(c.name)) < 0)
        return err_set(err, EINVAL, "not a DeviceClass: it has no name");
    r = read_selectors(json_get(spec, "selectors"), &c.selectors);
    c.by_aliquot = json_is_string(JSON_PATH(meta, "labels", DRA_CLASS_LABEL), DRA_BY_ALIQUOT) &&
                   is_kept_off(&c.selectors);
    if (r == 0)
        r = READ_LIST(json_get(spec, "config"), DEVICE_REQUESTS_MAX, read_class_config, &c.configs,
                      &c.nconfigs);
    if (r == -EINVAL)
        return err_set(err, EINVAL, "DeviceClass %s has a bad spec", c.name);
    if (r < 0)
        return err_errno(err, -r, "cannot keep a DeviceClass");
    *ret = take_struct(c);
    return 0;
}

void device_class_done(struct device_class *class) {
    strings_done(&class->selectors);
    configs_done(class->configs, class->nconfigs);
    *class = (struct device_class){0};
}

/* ---- questions ---- */

bool device_requests_have(const struct strings *requests, const char *request) {
    for (uint32_t i = 0; i < requests->n; i++) {
        size_t len = strlen(requests->v[i]);

        if (strncmp(requests->v[i], request, len) == 0 &&
            (request[len] == '\0' || request[len] == '/'))
            return true;
    }
    return requests->n == 0;
}

bool resource_claim_is_for(const struct resource_claim *claim, const char *pod_uid) {
    for (uint32_t i = 0; i < claim->nusers; i++)
        if (claim->users[i].pod && strcmp(claim->users[i].uid, pod_uid) == 0)
            return true;
    return false;
}

bool resource_claim_is_ours(const struct resource_claim *claim) {
    for (uint32_t i = 0; i < claim->nresults; i++)
        if (strcmp(claim->results[i].driver, DRA_DRIVER) == 0)
            return true;
    return false;
}
