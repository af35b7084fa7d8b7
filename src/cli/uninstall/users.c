/* SPDX-License-Identifier: Apache-2.0 */

/* What uses Aliquot: pods that hold shares, and workloads whose pods would start without a GPU. */

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "cli/uninstall/uninstall.h"
#include "kube/objects/pod_claims.h"
#include "kube/objects/share_holder.h"
#include "model/dialect.h"

#define TOLD 20 /* pods that are named */
#define KEPT_RUNNING                                                                               \
    "they go on with their limits until their containers end, and no container of them starts "    \
    "again"

static const char *text_of(struct json object, const char *key) {
    return json_string_or(JSON_PATH(object, "metadata", key), "");
}

static bool has_ended(struct json pod) {
    struct json phase = JSON_PATH(pod, "status", "phase");

    return json_is_string(phase, "Succeeded") || json_is_string(phase, "Failed");
}

static unsigned name_holders(struct json items, struct buf *names) {
    struct json_iter it = json_iter(items);
    struct json pod;
    unsigned n = 0;

    while (json_next(&it, NULL, &pod)) {
        if (!json_is_string(json_get(pod, "kind"), "Pod") || !pod_holds_share(pod))
            continue;
        if (n++ < TOLD)
            buf_printf(names, "\n  %s/%s on node %s", text_of(pod, "namespace"),
                       text_of(pod, "name"),
                       json_string_or(JSON_PATH(pod, "spec", "nodeName"), ""));
    }
    if (n > TOLD)
        buf_printf(names, "\n  and %u more", n - TOLD);
    return n;
}

/* ---- claims by annotation ---- */

/* The pod that a workload makes: metadata and spec. */
static struct json pod_of(struct json workload) {
    struct json spec = json_get(workload, "spec");
    struct json template = JSON_PATH(spec, "jobTemplate", "spec", "template");

    if (!json_valid(template))
        template = json_get(spec, "template");
    return json_valid(template) ? template : workload;
}

/* The container that an annotation gives a claim; NULL: it is no such annotation. */
static const char *container_of(const char *key) {
    const char *prefix;

    for (size_t i = 0; key && (prefix = pod_claims_prefix(i)); i++)
        if (strncmp(key, prefix, strlen(prefix)) == 0)
            return key + strlen(prefix);
    return NULL;
}

/* Whether a resource keeps the container from running: admission adds the carrier to the pod only,
 * not to the template from which the next one is made. */
static bool requests_resource(struct json pod, const char *container) {
    struct json limits = JSON_PATH(
        json_find(JSON_PATH(pod, "spec", "containers"), "name", container), "resources", "limits");
    struct json_iter it = json_iter(limits);
    const char *name;
    struct json amount;

    while (json_next(&it, &name, &amount))
        if (name && dialect_knows(name) && strcmp(name, RESOURCE_SLOT) != 0)
            return true;
    return false;
}

static bool names_claim_only(struct json pod) {
    struct json_iter it = json_iter(JSON_PATH(pod, "metadata", "annotations"));
    const char *key;
    struct json value;

    while (json_next(&it, &key, &value)) {
        const char *container = container_of(key);

        if (container && !requests_resource(pod, container))
            return true;
    }
    return false;
}

static void list_claim_workloads(struct json items) {
    struct json_iter it = json_iter(items);
    struct json item;

    while (json_next(&it, NULL, &item)) {
        if (json_size(JSON_PATH(item, "metadata", "ownerReferences")) > 0 || has_ended(item) ||
            !names_claim_only(pod_of(item)))
            continue;
        removal_say("claims",
                    "%s %s/%s names a claim by annotation only: a new pod of it starts, "
                    "without a GPU",
                    json_string_or(json_get(item, "kind"), ""), text_of(item, "namespace"),
                    text_of(item, "name"));
    }
}

/* ---- the step ---- */

int removal_check_users(const struct removal *r, struct err *err) {
    _cleanup_buf_ struct buf names = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, items;
    unsigned holders;
    int e = REMOVAL_GET(&parser, &list, err,
                        "pods,deployments,statefulsets,daemonsets,replicasets,jobs,cronjobs", "-A",
                        "-o", "json");

    if (e < 0)
        return e;
    items = json_get(list, "items");
    list_claim_workloads(items);
    holders = name_holders(items, &names);
    if (buf_error(&names) < 0)
        return err_errno(err, ENOMEM, "cannot list the pods with shares");
    if (holders == 0)
        removal_say("shares", "no pod holds one");
    else
        removal_say("shares", "%u pods hold shares:%s", holders, buf_str(&names));
    if (holders > 0 && !r->force)
        return err_set(err, EBUSY,
                       "%u pods hold shares; delete them, or give --force: " KEPT_RUNNING, holders);
    if (holders > 0)
        removal_say("shares", KEPT_RUNNING);
    return 0;
}
