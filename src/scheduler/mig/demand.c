/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/mig/demand.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "kube/api/field.h"
#include "kube/objects/toleration.h"
#include "model/mig_strategy.h"
#include "model/quantity.h"

#define TEXT_MAX ((size_t) 256 << 10)
#define COUNT_MAX 1024

/* ---- numbers of instances ---- */

uint32_t mig_needs_get(const struct mig_needs *needs, const struct mig_name *profile) {
    for (uint32_t i = 0; i < needs->n; i++)
        if (mig_name_equal(&needs->v[i].profile, profile))
            return needs->v[i].count;
    return 0;
}

void mig_needs_add(struct mig_needs *needs, const struct mig_name *profile, uint32_t count) {
    for (uint32_t i = 0; i < needs->n; i++)
        if (mig_name_equal(&needs->v[i].profile, profile)) {
            needs->v[i].count += count;
            return;
        }
    if (count > 0 && needs->n < MIG_NEEDS_MAX)
        needs->v[needs->n++] = (struct mig_need){*profile, count};
}

static void read_list(struct json list, struct mig_needs *ret) {
    struct json_iter it = json_iter(list);
    struct json value;
    const char *key;

    while (json_next(&it, &key, &value)) {
        const char *text = json_string(value);
        struct mig_name profile;
        uint64_t count;

        if (key && text && mig_name_of_resource(key, &profile) &&
            quantity_parse(text, strlen(text), &count) == 0 && count <= COUNT_MAX)
            mig_needs_add(ret, &profile, (uint32_t) count);
    }
}

static void add_all(struct mig_needs *to, const struct mig_needs *from) {
    for (uint32_t i = 0; i < from->n; i++)
        mig_needs_add(to, &from->v[i].profile, from->v[i].count);
}

static void raise_to(struct mig_needs *to, const struct mig_needs *least) {
    for (uint32_t i = 0; i < least->n; i++) {
        uint32_t have = mig_needs_get(to, &least->v[i].profile);

        if (have < least->v[i].count)
            mig_needs_add(to, &least->v[i].profile, least->v[i].count - have);
    }
}

/* App containers and sidecars together, or the init container that takes more. */
static void read_needs(struct json spec, struct mig_needs *ret) {
    struct json_iter it = json_iter(json_get(spec, "containers"));
    struct mig_needs sum = {0}, peak = {0};
    struct json container;

    while (json_next(&it, NULL, &container))
        read_list(JSON_PATH(container, "resources", "limits"), &sum);
    it = json_iter(json_get(spec, "initContainers"));
    while (json_next(&it, NULL, &container)) {
        struct mig_needs own = {0};

        read_list(JSON_PATH(container, "resources", "limits"), &own);
        if (json_is_string(json_get(container, "restartPolicy"), "Always"))
            add_all(&sum, &own);
        else
            raise_to(&peak, &own);
    }
    raise_to(&sum, &peak);
    *ret = sum;
}

/* ---- pods ---- */

/* NULL: absent or empty. */
static int keep_text(struct json value, char **ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);

    *ret = NULL;
    if (json_size(value) == 0)
        return 0;
    json_print(&text, value);
    if (buf_error(&text) < 0 || !(*ret = strdup(buf_str(&text))))
        return -ENOMEM;
    return 0;
}

static int read_labels(struct json selector, struct label_terms *ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(TEXT_MAX);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json root;

    if (json_size(selector) == 0)
        return 0;
    buf_puts(&text, "{\"matchLabels\":");
    json_print(&text, selector);
    buf_puts(&text, "}");
    if (buf_error(&text) < 0)
        return -ENOMEM;
    return json_open(buf_str(&text), text.len, &parser, &root, NULL) < 0
               ? -EINVAL
               : label_selector_read(root, ret);
}

static int keep_constraints(struct json selector, struct json required, struct json tolerations,
                            char **ret) {
    const struct json parts[] = {selector, required, tolerations};
    _cleanup_buf_ struct buf text = BUF_INIT(3 * TEXT_MAX);

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (json_valid(parts[i]))
            json_print(&text, parts[i]);
        buf_puts(&text, "\n");
    }
    return buf_error(&text) < 0 || !(*ret = strdup(buf_str(&text))) ? -ENOMEM : 0;
}

static int read_constraints(struct json spec, struct mig_pod *pod) {
    struct json required = JSON_PATH(spec, "affinity", "nodeAffinity",
                                     "requiredDuringSchedulingIgnoredDuringExecution");
    struct json selector = json_get(spec, "nodeSelector");
    struct json tolerations = json_get(spec, "tolerations");
    int r = read_labels(selector, &pod->labels);

    if (r >= 0 && json_valid(required))
        r = node_selector_read(json_get(required, "nodeSelectorTerms"), &pod->affinity);
    if (r >= 0)
        r = keep_text(tolerations, &pod->tolerations);
    return r < 0 ? r : keep_constraints(selector, required, tolerations, &pod->constraints);
}

int mig_pod_read(struct json object, struct mig_pod *ret) {
    struct json meta = json_get(object, "metadata"), spec = json_get(object, "spec");
    struct json scheduled =
        json_find(JSON_PATH(object, "status", "conditions"), "type", "PodScheduled");
    struct mig_pod pod = {.room = resources_of_pod(spec),
                          .deleting = json_valid(json_get(meta, "deletionTimestamp")),
                          .created = field_time(json_get(meta, "creationTimestamp")),
                          .unschedulable =
                              json_is_string(json_get(scheduled, "reason"), "Unschedulable"),
                          .gated = json_size(json_get(spec, "schedulingGates")) > 0};
    int r;

    read_needs(spec, &pod.needs);
    if (pod.needs.n == 0)
        return -ENOENT;
    if (field_copy(json_get(meta, "uid"), pod.uid, sizeof(pod.uid)) < 0 ||
        field_copy(json_get(meta, "name"), pod.name, sizeof(pod.name)) < 0 ||
        field_copy(json_get(meta, "namespace"), pod.namespace, sizeof(pod.namespace)) < 0 ||
        field_copy_optional(json_get(spec, "nodeName"), pod.node, sizeof(pod.node)) < 0)
        return -EINVAL;
    r = read_constraints(spec, &pod);
    if (r < 0) {
        mig_pod_done(&pod);
        return r;
    }
    *ret = pod;
    return 0;
}

void mig_pod_done(struct mig_pod *pod) {
    label_terms_done(&pod->labels);
    node_selector_done(&pod->affinity);
    free(pod->tolerations);
    free(pod->constraints);
    pod->tolerations = pod->constraints = NULL;
}

bool mig_pod_is_alike(const struct mig_pod *a, const struct mig_pod *b) {
    for (uint32_t i = 0; i < a->needs.n; i++)
        if (mig_needs_get(&b->needs, &a->needs.v[i].profile) != a->needs.v[i].count)
            return false;
    return a->needs.n == b->needs.n && a->room.cpu == b->room.cpu &&
           a->room.memory == b->room.memory && strcmp(a->constraints, b->constraints) == 0;
}

/* ---- nodes ---- */

static bool has_devices(struct json allocatable) {
    struct json_iter it = json_iter(allocatable);
    struct json value;
    const char *key;

    while (json_next(&it, &key, &value))
        if (key &&
            (strncmp(key, "nvidia.com/", 11) == 0 || strncmp(key, "elasticgpu.io/", 14) == 0))
            return true;
    return false;
}

/* A node that is cordoned has a taint, too. */
int mig_node_read(struct json object, struct mig_node *ret) {
    struct json allocatable = JSON_PATH(object, "status", "allocatable");
    struct mig_node node = {0};

    if (field_copy(JSON_PATH(object, "metadata", "name"), node.name, sizeof(node.name)) < 0)
        return -EINVAL;
    if (!has_devices(allocatable))
        return -ENOENT;
    read_list(allocatable, &node.allocatable);
    if (labels_read(JSON_PATH(object, "metadata", "labels"), &node.labels) < 0 ||
        keep_text(JSON_PATH(object, "spec", "taints"), &node.taints) < 0) {
        mig_node_done(&node);
        return -ENOMEM;
    }
    *ret = node;
    return 0;
}

void mig_node_done(struct mig_node *node) {
    free(node->labels);
    free(node->taints);
    node->labels = node->taints = NULL;
}

/* ---- the two together ---- */

bool mig_pod_may_be_on(const struct mig_pod *pod, const struct mig_node *node) {
    return label_terms_hold(&pod->labels, node->labels, node->name) &&
           node_selector_holds(&pod->affinity, node->labels, node->name) &&
           taints_are_tolerated(node->taints, pod->tolerations);
}
