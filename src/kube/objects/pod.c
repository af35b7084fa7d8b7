/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/pod.h"
#include "kube/objects/driver_upgrade.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/text.h"
#include "kube/api/field.h"
#include "kube/api/labels.h"
#include "kube/objects/assignment.h"
#include "kube/objects/gang.h"
#include "kube/objects/pod_selection.h"
#include "model/dra.h"
#include "model/driver_capability.h"
#include "model/scaling.h"
#include "wire/json.h"

/* Resource lines of one container that can be ours; more than that never are. */
#define LINES_MAX 16

/* The value of an environment variable, or NULL. The last entry of a name counts, as in kubelet; a
 * value from another object is not known here, and counts as none. */
static const char *variable_of(struct json container, const char *variable) {
    struct json_iter it = json_iter(json_get(container, "env"));
    const char *value = NULL;
    struct json entry;
    while (json_next(&it, NULL, &entry)) {
        if (json_is_string(json_get(entry, "name"), variable))
            value = json_string(json_get(entry, "value"));
    }
    return value;
}

/* Extended resources have limits equal to requests, and requests default to limits; so limits are
 * sufficient, and requests count where an object lacks them. */
static size_t collect_lines(struct json container, struct json labels,
                            struct resource_line lines[static LINES_MAX]) {
    struct json resources = json_get(container, "resources");
    struct json list = json_get(resources, "limits");
    if (json_size(list) == 0)
        list = json_get(resources, "requests");
    struct json_iter it = json_iter(list);
    struct json value;
    const char *key;
    size_t n = 0;
    while (n < LINES_MAX && json_next(&it, &key, &value)) {
        const char *quantity = json_string(value);
        if (key && dialect_knows(key))
            lines[n++] = (struct resource_line){key, quantity ? quantity : "",
                                                quantity ? strlen(quantity) : 0};
    }
    const char *label = n > 0 && n < LINES_MAX ? dialect_label(lines, n) : NULL;
    const char *text = label ? json_string(json_get(labels, label)) : NULL;
    if (text)
        lines[n++] = (struct resource_line){label, text, strlen(text)};
    const char *variable = n > 0 && n < LINES_MAX ? dialect_variable(lines, n) : NULL;
    text = variable ? variable_of(container, variable) : NULL;
    if (text && *text)
        lines[n++] = (struct resource_line){variable, text, strlen(text)};
    return n;
}

/* A request by annotations is for one of the pod's containers. */
struct annotated {
    struct annotated_request request;
    bool asked, found;
};

/* Its container has the carrier, and no other name of ours. */
static enum request_problem read_annotated(const struct resource_line *lines, size_t n,
                                           const struct annotated *a, struct container_request *req,
                                           struct dialect_pair *ret_mixed) {
    struct container_request other = {0};
    bool requested = false;
    enum request_problem p = dialect_read(lines, n, &other, &requested, ret_mixed);
    if (requested) {
        *ret_mixed = (struct dialect_pair){other.dialect, a->request.dialect};
        return REQUEST_MIXED_DIALECTS;
    }
    if (p == REQUEST_SLOT_ALONE)
        return dialect_read_annotated(&a->request, req);
    return p == REQUEST_OK ? REQUEST_SLOT_MISSING : p;
}

static bool is_annotated(const struct annotated *a, const struct container_request *req) {
    const char *container = a->request.text[ANNOTATION_CONTAINER];
    return a->asked && (container ? strcmp(container, req->container) == 0
                                  : req->phase == CONTAINER_APP && req->ordinal == 0);
}

/* A container with a claim has the carrier and no other GPU resource: the claim has the amounts. */
static enum request_problem read_claimed(enum request_problem read, struct container_request *req,
                                         bool *ret_requested) {
    if (read == REQUEST_OK && *ret_requested)
        return REQUEST_CLAIM_AND_MORE;
    if (read != REQUEST_SLOT_ALONE)
        return read;
    req->cards = 1;
    req->claimed = true;
    *ret_requested = true;
    return REQUEST_OK;
}

static uint8_t driver_capabilities_of(struct json container) {
    const char *value = variable_of(container, "NVIDIA_DRIVER_CAPABILITIES");
    return value ? driver_capabilities_parse(value) : DRIVER_CAPABILITIES_UNSAID;
}

static enum request_problem add_container(struct pod *pod, struct json container,
                                          struct json labels, struct annotated *a,
                                          struct container_request req) {
    struct resource_line lines[LINES_MAX];
    bool requested = false;
    size_t n = collect_lines(container, labels, lines);
    if (n == 0 && !a->asked)
        return REQUEST_OK;
    enum request_problem p = REQUEST_NOT_A_NUMBER;
    if (field_copy(json_get(container, "name"), req.container, sizeof(req.container)) < 0)
        memcpy(req.container, "?", 2); /* the API server lets no such container pass */
    else if (is_annotated(a, &req)) {
        a->found = requested = true;
        p = read_annotated(lines, n, a, &req, &pod->mixed);
    } else
        p = dialect_read(lines, n, &req, &requested, &pod->mixed);
    if (pod_claims_find(&pod->claims, req.container))
        p = read_claimed(p, &req, &requested);
    if (p == REQUEST_OK && requested && pod->request.n == GPU_CONTAINERS_MAX)
        p = REQUEST_TOO_MANY;
    if (p != REQUEST_OK)
        memcpy(pod->problem_container, req.container, sizeof(req.container));
    else if (requested) {
        req.driver = driver_capabilities_of(container);
        req.cpus = pod->guaranteed ? resources_exclusive(container) : 0;
        pod->request.containers[pod->request.n++] = req;
    }
    return p;
}

static bool is_sidecar(struct json container) {
    return json_is_string(json_get(container, "restartPolicy"), "Always");
}

static void read_list(struct pod *pod, struct json containers, struct json labels,
                      struct annotated *a, bool init) {
    struct json_iter it = json_iter(containers);
    struct json container;
    for (uint16_t i = 0; pod->problem == REQUEST_OK && json_next(&it, NULL, &container); i++) {
        enum container_phase phase = !init                   ? CONTAINER_APP
                                     : is_sidecar(container) ? CONTAINER_SIDECAR
                                                             : CONTAINER_INIT;
        pod->problem = add_container(pod, container, labels, a,
                                     (struct container_request){.phase = phase, .ordinal = i});
    }
}

static void read_containers(struct pod *pod, struct json meta, struct json spec) {
    struct json labels = json_get(meta, "labels"), annotations = json_get(meta, "annotations");
    struct annotated a = {0};
    a.asked = dialect_find_annotated(annotation_text, &annotations, &a.request);
    pod->skips_upgrades = json_is_string(json_get(labels, DRIVER_UPGRADE_SKIP_LABEL), "true");
    read_list(pod, json_get(spec, "initContainers"), labels, &a, true);
    read_list(pod, json_get(spec, "containers"), labels, &a, false);
    if (pod->problem == REQUEST_OK && a.asked && !a.found) {
        pod->problem = REQUEST_FRACTION_CONTAINER;
        memcpy(pod->problem_container, "?", 2);
    }
}

/* The first one requests the claim while it is not provisioned: the allocation of an init container
 * becomes free for later containers, the claim's does not. A missing container, or one without the
 * carrier, does not use the claim. */
static void order_claims(struct pod *pod) {
    static const enum container_phase phases[] = {CONTAINER_SIDECAR, CONTAINER_APP, CONTAINER_INIT};
    const struct gpu_request *request = &pod->request;
    uint32_t n = 0;
    if (pod->problem != REQUEST_OK)
        return;
    for (size_t p = 0; p < sizeof(phases) / sizeof(phases[0]); p++)
        for (uint32_t i = 0; i < request->n; i++)
            if (request->containers[i].claimed && request->containers[i].phase == phases[p])
                n += pod_claims_move(&pod->claims, request->containers[i].container, n);
    pod_claims_cut(&pod->claims, n);
}

/* Annotations that are kept, ours before those of other systems: the first that is there counts.
 * Those of other systems have our values and say nothing about the amount of a request, which is
 * all that a row of dialects.def is about: they apply with resources of any dialect. */
static const struct {
    const char *key;
    size_t at; /* of the char * in struct pod */
} kept[] = {
    {ANNOTATION_ASSIGNMENT, offsetof(struct pod, assignment)},
    {ANNOTATION_SIGNATURE, offsetof(struct pod, signature)},
    {"elasticgpu.io/compute-policy", offsetof(struct pod, settings[SETTING_POLICY])},
    {"elasticgpu.io/compute-weight", offsetof(struct pod, settings[SETTING_WEIGHT])},
    {"elasticgpu.io/compute-ceiling", offsetof(struct pod, settings[SETTING_CEILING])},
    {"elasticgpu.io/memory-limit", offsetof(struct pod, settings[SETTING_MEMORY])},
    {"elasticgpu.io/on-overuse", offsetof(struct pod, settings[SETTING_OVERUSE])},
    {"elasticgpu.io/memory-scaling", offsetof(struct pod, settings[SETTING_SCALING])},
    {"tke.cloud.tencent.com/app-class", offsetof(struct pod, settings[SETTING_POLICY])},
    {"tencent.com/vcuda-core-limit", offsetof(struct pod, settings[SETTING_CEILING])},
    {"nvidia.com/vcuda-core-limit", offsetof(struct pod, settings[SETTING_CEILING])},
};
#define KEPT (sizeof(kept) / sizeof(kept[0]))

static int read_annotations(struct pod *pod, struct json annotations) {
    struct json_iter it = json_iter(annotations);
    const char *found[KEPT] = {NULL};
    struct json value;
    const char *key;
    while (json_next(&it, &key, &value)) {
        const char *text = json_string(value);
        if (!key || !text)
            continue;
        pod->annotation_bytes += strlen(key) + strlen(text);
        pod->unserved |= dialect_unserved(key);
        if (pod_claims_add(&pod->claims, key, text) < 0)
            return -ENOMEM;
        for (size_t i = 0; i < KEPT; i++)
            if (strcmp(key, kept[i].key) == 0 && !found[i])
                found[i] = text;
    }
    for (size_t i = 0; i < KEPT; i++) {
        char **target = (char **) (void *) ((char *) pod + kept[i].at);
        if (found[i] && !*target && !(*target = strdup(found[i])))
            return -ENOMEM;
    }
    return 0;
}

const char *pod_setting_annotation(enum pod_setting setting) {
    for (size_t i = 0; i < KEPT; i++)
        if (kept[i].at == offsetof(struct pod, settings[0]) + setting * sizeof(char *))
            return kept[i].key;
    return "?";
}

/* Spaces and tabs only, as in admission (deploy/base/policy-terms.yaml). */
static bool copy_trimmed(const char *from, size_t len, char ret[static 64]) {
    while (len > 0 && *from == ' ')
        from++, len--;
    while (len > 0 && from[len - 1] == ' ')
        len--;
    if (len >= 64)
        return false;
    memcpy(ret, from, len);
    ret[len] = '\0';
    return true;
}

/* The value for the container in a list of `container=value`. */
static bool read_setting(const char *list, const char *container, char ret[static 64]) {
    const char *at, *all = NULL;
    size_t len, all_len = 0, name_len = strlen(container);
    char name[64];
    while (text_item(&list, &at, &len)) {
        const char *equals = memchr(at, '=', len);
        if (!equals) {
            all = at;
            all_len = len;
        } else if (copy_trimmed(at, (size_t) (equals - at), name) && strlen(name) == name_len &&
                   memcmp(name, container, name_len) == 0) {
            return copy_trimmed(equals + 1, len - (size_t) (equals + 1 - at), ret);
        }
    }
    return all && copy_trimmed(all, all_len, ret);
}

bool pod_setting(const struct pod *pod, enum pod_setting setting, const char *container,
                 char ret[static 64]) {
    return read_setting(pod->settings[setting], container, ret);
}

bool pod_terms_setting(const struct pod_terms *terms, enum pod_setting setting,
                       const char *container, char ret[static 64]) {
    return read_setting(terms->settings[setting], container, ret);
}

void pod_terms_done(struct pod_terms *terms) {
    for (size_t i = 0; i < POD_SETTINGS; i++)
        free(terms->settings[i]);
    selection_free(terms->selection);
    *terms = (struct pod_terms){.selection = NULL};
}

int pod_terms_read(struct json annotations, struct pod_terms *ret) {
    struct pod pod = {0};
    struct pod_terms terms = {.selection = NULL};
    int r = read_annotations(&pod, annotations);
    for (size_t i = 0; i < POD_SETTINGS; i++)
        terms.settings[i] = take_ptr(pod.settings[i]);
    pod_done(&pod);
    if (r == 0)
        r = selection_read(annotations, &terms.selection);
    terms.bad_selection = r == -EINVAL || r == -E2BIG;
    if (r == -ENOMEM)
        pod_terms_done(&terms);
    else
        *ret = terms;
    return r == -ENOMEM ? r : 0;
}

/* A pod sets the oversubscription of its containers' memory, within the factor of the node. */
static void read_scaling(struct pod *pod) {
    char text[64];
    for (uint32_t i = 0; i < pod->request.n && pod->problem == REQUEST_OK; i++) {
        struct container_request *req = &pod->request.containers[i];
        if (!pod_setting(pod, SETTING_SCALING, req->container, text) ||
            scaling_parse(text, &req->scaling) == 0)
            continue;
        pod->problem = REQUEST_SCALING;
        memcpy(pod->problem_container, req->container, sizeof(req->container));
    }
}

static bool may_get_cards(const struct pod *pod) {
    return pod->request.n > 0 || pod->resource_claims;
}

/* Priority and preemption policy, and the node nominated by preemption. */
static int read_rank(struct pod *pod, struct json meta, struct json spec, struct json status) {
    const char *policy = json_string(json_get(spec, "preemptionPolicy"));
    int64_t priority = 0;
    if (json_i64(json_get(spec, "priority"), &priority) && priority >= INT32_MIN &&
        priority <= INT32_MAX)
        pod->priority = (int32_t) priority;
    pod->never_preempts = policy && strcmp(policy, "Never") == 0;
    pod->created = field_time(json_get(meta, "creationTimestamp"));
    if (field_copy_optional(json_get(status, "nominatedNodeName"), pod->nominated,
                            sizeof(pod->nominated)) < 0)
        pod->nominated[0] = '\0';
    return may_get_cards(pod) ? labels_read(json_get(meta, "labels"), &pod->labels) : 0;
}

/* The gate that goes when there is a place for the pod is none that the pod waits for. */
static uint32_t count_gates(struct json gates) {
    struct json_iter it = json_iter(gates);
    struct json gate;
    uint32_t n = 0;
    while (json_next(&it, NULL, &gate))
        n += !json_is_string(json_get(gate, "name"), DRA_GATE);
    return n;
}

static int read_gang(struct pod *pod, struct json meta, struct json spec) {
    struct pod_gang gang;
    if (!may_get_cards(pod) || !gang_read(meta, &gang))
        return 0;
    gang.gated = count_gates(json_get(spec, "schedulingGates"));
    pod->gang = malloc(sizeof(gang));
    if (pod->gang)
        *pod->gang = gang;
    return pod->gang ? 0 : -ENOMEM;
}

/* A pod without GPU requests needs no selection of cards. */
static int read_selection(struct pod *pod, struct json annotations) {
    if (!may_get_cards(pod))
        return 0;
    int r = selection_read(annotations, &pod->selection);
    if (r != -EINVAL && r != -E2BIG)
        return r;
    if (pod->problem == REQUEST_OK) {
        pod->problem = REQUEST_SELECTION;
        text_copy(pod->problem_container, sizeof(pod->problem_container),
                  pod->request.n > 0 ? pod->request.containers[0].container : "?");
    }
    return 0;
}

static bool is_final_phase(const char *phase) {
    return phase && (strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0);
}

int pod_parse(struct json object, struct pod *ret_pod, struct err *err) {
    struct json meta = json_get(object, "metadata"), spec = json_get(object, "spec");
    struct pod pod = {0};
    if (field_copy(json_get(meta, "uid"), pod.uid, sizeof(pod.uid)) < 0 ||
        field_copy(json_get(meta, "name"), pod.name, sizeof(pod.name)) < 0 ||
        field_copy(json_get(meta, "namespace"), pod.namespace, sizeof(pod.namespace)) < 0)
        return err_set(err, EINVAL, "not a pod: uid, name or namespace is missing or too long");
    if (field_copy_optional(json_get(spec, "nodeName"), pod.node, sizeof(pod.node)) < 0)
        return err_set(err, EINVAL, "pod %s/%s has a bad nodeName", pod.namespace, pod.name);
    if (field_copy_optional(json_get(spec, "schedulerName"), pod.scheduler, sizeof(pod.scheduler)) <
        0)
        pod.scheduler[0] = '\0';
    pod.deleting = json_string(json_get(meta, "deletionTimestamp")) != NULL;
    pod.room = resources_of_pod(spec);
    pod.guaranteed = resources_guaranteed(object);
    pod.room.exclusive = pod.guaranteed ? resources_exclusive_of_pod(spec) : 0;
    pod.finished = is_final_phase(json_string(JSON_PATH(object, "status", "phase")));
    if (read_annotations(&pod, json_get(meta, "annotations")) < 0) {
        pod_done(&pod);
        return err_errno(err, ENOMEM, "cannot keep a pod");
    }
    pod_claims_name(&pod.claims, pod.name);
    read_containers(&pod, meta, spec);
    order_claims(&pod);
    read_scaling(&pod);
    pod.resource_claims = pod.problem == REQUEST_OK && pod.request.n == 0 &&
                          json_size(json_get(spec, "resourceClaims")) > 0;
    if (read_rank(&pod, meta, spec, json_get(object, "status")) < 0 ||
        read_selection(&pod, json_get(meta, "annotations")) < 0 ||
        read_gang(&pod, meta, spec) < 0) {
        pod_done(&pod);
        return err_errno(err, ENOMEM, "cannot keep a pod");
    }
    *ret_pod = pod;
    return 0;
}

void pod_done(struct pod *pod) {
    free(pod->assignment);
    free(pod->signature);
    free(pod->labels);
    pod_claims_done(&pod->claims);
    pod->assignment = pod->signature = pod->labels = NULL;
    pod->selection = selection_free(pod->selection);
    free(pod->gang);
    pod->gang = NULL;
    for (size_t i = 0; i < POD_SETTINGS; i++) {
        free(pod->settings[i]);
        pod->settings[i] = NULL;
    }
}
