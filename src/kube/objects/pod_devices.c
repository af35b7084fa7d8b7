/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/pod_devices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "kube/api/field.h"
#include "model/dra.h"

/* The claim of that entry, as the status names it where it was made of a template. */
static int read_claim(struct json entry, struct json statuses, struct pod_device_claim *ret) {
    const char *name = json_string(json_get(entry, "name"));
    struct json named = json_get(entry, "resourceClaimName");
    struct json made = json_get(json_find(statuses, "name", name ? name : ""), "resourceClaimName");

    const char *template = json_string(json_get(entry, "resourceClaimTemplateName"));

    if (field_copy(json_get(entry, "name"), ret->name, sizeof(ret->name)) < 0)
        return -EINVAL;
    if (template && request_code_is(template))
        memcpy(ret->code, template, strlen(template) + 1);
    return field_copy_optional(json_string(named) ? named : made, ret->claim, sizeof(ret->claim));
}

static int read_claims(struct json list, struct json statuses, struct pod_devices *p) {
    size_t n = json_size(list);
    struct json_iter it = json_iter(list);
    struct json entry;

    if (n == 0)
        return 0;
    p->too_many = n > POD_DEVICE_CLAIMS_MAX;
    p->claims = calloc(p->too_many ? POD_DEVICE_CLAIMS_MAX : n, sizeof(*p->claims));
    if (!p->claims)
        return -ENOMEM;
    while (p->nclaims < POD_DEVICE_CLAIMS_MAX && json_next(&it, NULL, &entry))
        if (read_claim(entry, statuses, &p->claims[p->nclaims++]) < 0)
            return -EINVAL;
    return 0;
}

static void read_gates(struct json gates, struct pod_devices *p) {
    struct json_iter it = json_iter(gates);
    struct json gate;

    while (json_next(&it, NULL, &gate)) {
        bool ours = json_is_string(json_get(gate, "name"), DRA_GATE);

        p->gated |= ours;
        p->gated_by_others |= !ours;
    }
}

static int read_tolerations(struct json list, char **ret) {
    _cleanup_buf_ struct buf text = BUF_INIT(POD_TOLERATIONS_MAX);

    if (json_size(list) == 0)
        return 0;
    json_print(&text, list);
    if (buf_error(&text) < 0)
        return buf_error(&text) == -ENOMEM ? -ENOMEM : -EINVAL;
    *ret = strdup(buf_str(&text));
    return *ret ? 0 : -ENOMEM;
}

/* What cannot be understood is left to kube-scheduler, which refuses the node then. */
static int read_where(struct json spec, struct pod_devices *p) {
    struct json required =
        JSON_PATH(spec, "affinity", "nodeAffinity",
                  "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms");
    int r = node_selector_read(required, &p->affinity);

    if (r == 0 || r == -EINVAL)
        r = label_match_read(json_get(spec, "nodeSelector"), &p->selector);
    if (r == 0 || r == -EINVAL)
        r = read_tolerations(json_get(spec, "tolerations"), &p->tolerations);
    return r == -ENOMEM ? r : 0;
}

/* Terms of claims that a user wrote are in the claims. */
static int read_terms(struct json annotations, struct pod_devices *p) {
    for (uint32_t i = 0; i < p->nclaims; i++)
        if (p->claims[i].code[0])
            return pod_terms_read(annotations, &p->terms);
    return 0;
}

static int read_pod(struct json object, struct pod_devices *p) {
    struct json meta = json_get(object, "metadata"), spec = json_get(object, "spec");
    int64_t priority;
    int r;

    if (field_copy(json_get(meta, "uid"), p->uid, sizeof(p->uid)) < 0 ||
        field_copy(json_get(meta, "namespace"), p->namespace, sizeof(p->namespace)) < 0 ||
        field_copy(json_get(meta, "name"), p->name, sizeof(p->name)) < 0 ||
        field_copy_optional(json_get(spec, "nodeName"), p->node, sizeof(p->node)) < 0)
        return -EINVAL;
    p->created = field_time(json_get(meta, "creationTimestamp"));
    p->deleting = json_string(json_get(meta, "deletionTimestamp")) != NULL;
    if (json_i64(json_get(spec, "priority"), &priority) && priority >= INT32_MIN &&
        priority <= INT32_MAX)
        p->priority = (int32_t) priority;
    p->room = resources_of_pod(spec);
    r = read_claims(json_get(spec, "resourceClaims"),
                    JSON_PATH(object, "status", "resourceClaimStatuses"), p);
    if (r == 0)
        r = pod_claim_uses_read(object, &p->uses, &p->nuses);
    if (r == 0)
        r = read_where(spec, p);
    return r < 0 ? r : read_terms(json_get(meta, "annotations"), p);
}

int pod_devices_parse(struct json object, struct pod_devices *ret, struct err *err) {
    _cleanup_(pod_devices_done) struct pod_devices p = {0};
    int r;

    read_gates(JSON_PATH(object, "spec", "schedulingGates"), &p);
    if (json_size(JSON_PATH(object, "spec", "resourceClaims")) == 0 && !p.gated)
        return 0;
    r = read_pod(object, &p);
    if (r == -EINVAL)
        return err_set(err, EINVAL, "a pod with claims has a missing or too long name");
    if (r < 0)
        return err_errno(err, -r, "cannot keep a pod with claims");
    *ret = take_struct(p);
    return 1;
}

void pod_devices_done(struct pod_devices *pod) {
    free(pod->claims);
    free(pod->uses);
    free(pod->tolerations);
    pod_terms_done(&pod->terms);
    label_terms_done(&pod->selector);
    node_selector_done(&pod->affinity);
    *pod = (struct pod_devices){0};
}

bool pod_devices_may_be_on(const struct pod_devices *pod, const char *labels, const char *node) {
    return label_terms_hold(&pod->selector, labels, node) &&
           node_selector_holds(&pod->affinity, labels, node);
}
