/* SPDX-License-Identifier: Apache-2.0 */

/* What an installation consists of, and what its parts have written beside that. Names are fixed
 * but for those of the DaemonSet and the Deployment, which have labels. */

#include <string.h>

#include "base/cleanup.h"
#include "cli/uninstall/uninstall.h"

#define NAMES_MAX 12
#define PART_OF "app.kubernetes.io/part-of=aliquot"

enum group { ADMISSION, WORKLOADS, RIGHTS, STATE };

static const char system_namespace[] = "";

static const struct row {
    enum group group;
    const char *namespace; /* NULL: none; system_namespace: Aliquot's */
    const char *kind;
    const char *names[NAMES_MAX];
} rows[] = {
    /* Webhooks refuse pods once the scheduler, which answers them, is gone. */
    {ADMISSION, NULL, "mutatingwebhookconfigurations", {"aliquot"}},
    {ADMISSION, NULL, "validatingwebhookconfigurations", {"aliquot"}},
    {ADMISSION,
     NULL,
     "mutatingadmissionpolicybindings",
     {"aliquot-copies", "aliquot-scheduler-name", "aliquot-slot"}},
    {ADMISSION,
     NULL,
     "mutatingadmissionpolicies",
     {"aliquot-copies", "aliquot-scheduler-name", "aliquot-slot"}},
    {ADMISSION,
     NULL,
     "validatingadmissionpolicybindings",
     {"aliquot-agent-events", "aliquot-agent-gpus", "aliquot-agent-nodes", "aliquot-assignment",
      "aliquot-assignment-bindings", "aliquot-node-name", "aliquot-operator-gpus",
      "aliquot-requests", "aliquot-scheduler-gpus", "aliquot-terms"}},
    {ADMISSION,
     NULL,
     "validatingadmissionpolicies",
     {"aliquot-agent-events", "aliquot-agent-gpus", "aliquot-agent-nodes", "aliquot-assignment",
      "aliquot-assignment-bindings", "aliquot-node-name", "aliquot-operator-gpus",
      "aliquot-requests", "aliquot-scheduler-gpus", "aliquot-terms"}},
    {WORKLOADS, system_namespace, "poddisruptionbudgets", {"aliquot-scheduler"}},
    {WORKLOADS, system_namespace, "services", {"aliquot-webhook"}},
    {RIGHTS,
     NULL,
     "clusterrolebindings",
     {"aliquot-agent", "aliquot-kube-scheduler", "aliquot-kube-scheduler-volumes",
      "aliquot-scheduler", "aliquot-webhook"}},
    {RIGHTS,
     NULL,
     "clusterroles",
     {"aliquot-agent", "aliquot-claims", "aliquot-gpu-operator", "aliquot-gpu-viewer",
      "aliquot-online", "aliquot-scheduler", "aliquot-view", "aliquot-webhook",
      "aliquot-weighted"}},
    {RIGHTS,
     system_namespace,
     "rolebindings",
     {"aliquot-agent", "aliquot-kube-scheduler", "aliquot-scheduler", "aliquot-webhook"}},
    {RIGHTS,
     system_namespace,
     "roles",
     {"aliquot-agent", "aliquot-kube-scheduler", "aliquot-scheduler", "aliquot-webhook"}},
    {RIGHTS, "kube-system", "rolebindings", {"aliquot-agent", "aliquot-kube-scheduler"}},
    {RIGHTS, "kube-system", "roles", {"aliquot-agent"}},
    {RIGHTS,
     system_namespace,
     "serviceaccounts",
     {"aliquot-agent", "aliquot-kube-scheduler", "aliquot-scheduler"}},
    {STATE,
     system_namespace,
     "secrets",
     {"aliquot-signing", "aliquot-webhook", "aliquot-scheduler-token"}},
    {STATE,
     system_namespace,
     "configmaps",
     {"aliquot-signing", "aliquot-workload", "aliquot-kube-scheduler",
      "aliquot-kube-scheduler-configuration"}},
    {STATE, system_namespace, "leases", {"aliquot-scheduler", "aliquot-kube-scheduler"}},
    {STATE, system_namespace, "csistoragecapacities", {"aliquot-wake"}},
};

static int delete_row(const struct removal *r, const struct row *row, unsigned *count,
                      struct err *err) {
    const char *words[NAMES_MAX + 10] = {"delete", "--ignore-not-found", "--wait=false", "-o",
                                         "name"};
    size_t n = 5;

    if (row->namespace) {
        words[n++] = "-n";
        words[n++] = row->namespace == system_namespace ? r->system : row->namespace;
    }
    words[n++] = row->kind;
    for (size_t i = 0; i < NAMES_MAX && row->names[i]; i++)
        words[n++] = row->names[i];
    return removal_delete(count, err, words);
}

static int delete_group(const struct removal *r, enum group group, unsigned *count,
                        struct err *err) {
    int e = 0;

    for (const struct row *row = rows; e == 0 && row < rows + sizeof(rows) / sizeof(rows[0]); row++)
        if (row->group == group)
            e = delete_row(r, row, count, err);
    return e;
}

static int remove_group(const struct removal *r, const char *step, enum group group,
                        struct err *err) {
    unsigned count = 0;
    int e = delete_group(r, group, &count, err);

    if (e == 0)
        removal_say(step, "%u objects removed", count);
    return e;
}

/* ---- steps ---- */

/* What helm knows of it. First, while an object still has the release's name. */
int removal_of_release(const struct removal *r, struct err *err) {
    _cleanup_buf_ struct buf selector = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    unsigned count = 0;
    struct json role;
    const char *release;
    int e = REMOVAL_GET(&parser, &role, err, "clusterroles", "aliquot-agent", "-o", "json");

    release = json_string(JSON_PATH(role, "metadata", "annotations", "meta.helm.sh/release-name"));
    if (e < 0 || !release)
        return e;
    buf_printf(&selector, "owner=helm,name=%s", release);
    e = REMOVAL_DELETE(&count, err, "-n", r->system, "secrets", "-l", buf_str(&selector));
    if (e == 0)
        removal_say("helm", "%u revisions of release %s removed", count, release);
    return e;
}

int removal_of_admission(const struct removal *r, struct err *err) {
    return remove_group(r, "admission", ADMISSION, err);
}

int removal_of_workloads(const struct removal *r, struct err *err) {
    unsigned count = 0;
    int e =
        REMOVAL_DELETE(&count, err, "-n", r->system, "deployments,daemonsets,jobs", "-l", PART_OF);

    if (e == 0)
        e = delete_group(r, WORKLOADS, &count, err);
    if (e == 0)
        e = removal_await_pods(r, "workloads", "aliquot-scheduler", err);
    if (e == 0)
        e = removal_await_pods(r, "workloads", "aliquot-agent", err);
    if (e == 0)
        removal_say("workloads", "%u objects removed", count);
    return e;
}

/* Before what they allow to write: a pod on a node that is not reached writes nothing any more. */
int removal_of_rights(const struct removal *r, struct err *err) {
    return remove_group(r, "rights", RIGHTS, err);
}

int removal_of_state(const struct removal *r, struct err *err) {
    return remove_group(r, "state", STATE, err);
}

/* ---- the namespace ---- */

/* That of deploy/ is Aliquot's own by its name. One that has other things in it, or that a user has
 * chosen, stays. */
int removal_of_namespace(const struct removal *r, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    unsigned count = 0;
    struct json all;
    int e;

    if (strcmp(r->system, "aliquot-system") != 0) {
        removal_say("namespace", "%s stays; if it has nothing else: kubectl delete namespace %s",
                    r->system, r->system);
        return 0;
    }
    e = REMOVAL_GET(&parser, &all, err, "all", "-n", r->system, "--ignore-not-found", "-o", "json");
    if (e < 0)
        return e;
    if (json_size(json_get(all, "items")) > 0) {
        removal_say("namespace", "%s stays: it has other objects (kubectl get all -n %s)",
                    r->system, r->system);
        return 0;
    }
    e = REMOVAL_DELETE(&count, err, "namespaces", r->system);
    if (e == 0)
        removal_say("namespace", count ? "%s removed" : "%s is not there", r->system);
    return e;
}
