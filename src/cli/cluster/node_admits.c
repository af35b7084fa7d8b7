/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/node_admits.h"

#include <string.h>

#include "base/num.h"
#include "kube/objects/toleration.h"

#define STATE_TAINTS "node.kubernetes.io/" /* not-ready, unschedulable, memory-pressure ... */
#define HOST_LABEL "kubernetes.io/hostname"

/* ---- taints ---- */

static bool taints_admit(struct json node, struct json pod, bool as_new) {
    struct json_iter it = json_iter(JSON_PATH(node, "spec", "taints"));
    struct json tolerations = JSON_PATH(pod, "spec", "tolerations"), taint;

    while (json_next(&it, NULL, &taint)) {
        const char *key = json_string_or(json_get(taint, "key"), "");
        bool passes = as_new && strncmp(key, STATE_TAINTS, strlen(STATE_TAINTS)) == 0;
        if (!passes && !taint_is_tolerated(taint, tolerations))
            return false;
    }
    return true;
}

/* ---- labels ---- */

static bool is_beyond(struct json values, const char *value, bool above) {
    struct json_iter it = json_iter(values);
    struct json one;
    uint64_t is, bound;

    if (!value || !json_next(&it, NULL, &one) || !json_string(one) ||
        num_parse_u64(value, UINT64_MAX, &is) < 0 ||
        num_parse_u64(json_string(one), UINT64_MAX, &bound) < 0)
        return false;
    return above ? is > bound : is < bound;
}

static bool matches(struct json expression, const char *value) {
    struct json values = json_get(expression, "values");
    const char *op = json_string_or(json_get(expression, "operator"), "");

    if (strcmp(op, "In") == 0)
        return json_has_string(values, value);
    if (strcmp(op, "NotIn") == 0)
        return !json_has_string(values, value);
    if (strcmp(op, "Exists") == 0)
        return value != NULL;
    if (strcmp(op, "DoesNotExist") == 0)
        return value == NULL;
    return (strcmp(op, "Gt") == 0 || strcmp(op, "Lt") == 0) &&
           is_beyond(values, value, op[0] == 'G');
}

/* A new node has a name of its own, which no pod can name. */
static const char *label_of(struct json node, const char *key, bool as_new) {
    if (as_new && strcmp(key, HOST_LABEL) == 0)
        return "";
    return json_string(JSON_PATH(node, "metadata", "labels", key));
}

static bool term_matches(struct json node, struct json term, bool as_new) {
    struct json_iter labels = json_iter(json_get(term, "matchExpressions"));
    struct json_iter fields = json_iter(json_get(term, "matchFields"));
    struct json one;
    bool any = false;

    for (; json_next(&labels, NULL, &one); any = true)
        if (!matches(one, label_of(node, json_string_or(json_get(one, "key"), ""), as_new)))
            return false;
    for (; json_next(&fields, NULL, &one); any = true) /* metadata.name is the only one */
        if (!matches(one, as_new ? "" : json_string(JSON_PATH(node, "metadata", "name"))))
            return false;
    return any;
}

static bool labels_admit(struct json node, struct json pod, bool as_new) {
    struct json_iter it = json_iter(JSON_PATH(pod, "spec", "nodeSelector"));
    struct json terms =
        JSON_PATH(pod, "spec", "affinity", "nodeAffinity",
                  "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms");
    struct json value, term;
    const char *key;

    while (json_next(&it, &key, &value)) {
        const char *label = label_of(node, key, as_new);
        if (!label || !json_is_string(value, label))
            return false;
    }
    if (json_size(terms) == 0)
        return true;
    it = json_iter(terms);
    while (json_next(&it, NULL, &term))
        if (term_matches(node, term, as_new))
            return true;
    return false;
}

bool node_admits(struct json node, struct json pod, bool as_new) {
    bool cordoned = false;

    (void) json_bool(JSON_PATH(node, "spec", "unschedulable"), &cordoned);
    return (as_new || !cordoned) && taints_admit(node, pod, as_new) &&
           labels_admit(node, pod, as_new);
}
