/* SPDX-License-Identifier: Apache-2.0 */

/* What an installation consists of, and what its parts have written beside that. Names are fixed
 * but for those of the DaemonSet and the Deployment, which have labels. */

#include <string.h>

#include "base/cleanup.h"
#include "cli/uninstall/uninstall.h"
#include "kube/objects/agent_certificate.h"

#define NAMES_MAX 20
#define DOCTOR "aliquot-doctor" /* helm test's, which an interrupted one leaves */
#define CHECK "aliquot-check-uninstall"
#define CLEAN "aliquot-uninstall"         /* the hook of `helm uninstall` */
#define NODES "aliquot-uninstall-nodes"   /* the Job that it leaves */
#define RELEASE "elasticgpu.io/release"   /* the chart is all of the release of this name */
#define OPERATOR ".monitoring.coreos.com" /* of prometheus-operator, which may not be there */
#define PART_OF "app.kubernetes.io/part-of=aliquot"

enum group { HOOKS, MONITORING, ADMISSION, WORKLOADS, RIGHTS, STATE, LOCATION };

static const char system_namespace[] = "";

static const struct row {
    enum group group;
    const char *namespace; /* NULL: none; system_namespace: Aliquot's */
    const char *kind;
    const char *names[NAMES_MAX];
} rows[] = {
    {HOOKS, system_namespace, "jobs", {CLEAN, NODES}},
    {HOOKS, NULL, "clusterrolebindings", {CLEAN, NODES}},
    {HOOKS, NULL, "clusterroles", {CLEAN, NODES}},
    {HOOKS, system_namespace, "rolebindings", {CLEAN}},
    {HOOKS, system_namespace, "roles", {CLEAN}},
    {HOOKS, system_namespace, "serviceaccounts", {CLEAN, NODES}},
    {HOOKS, NULL, "validatingadmissionpolicybindings", {CLEAN}},
    {HOOKS, NULL, "validatingadmissionpolicies", {CLEAN}},
    {MONITORING, system_namespace, "podmonitors" OPERATOR, {"aliquot-agent", "aliquot-scheduler"}},
    {MONITORING, system_namespace, "prometheusrules" OPERATOR, {"aliquot"}},
    {MONITORING,
     system_namespace,
     "configmaps",
     {"aliquot-dashboard-cluster", "aliquot-dashboard-namespace", "aliquot-dashboard-node",
      "aliquot-dashboard-pod", "aliquot-dashboard-scheduler"}},
    /* Webhooks refuse pods once the scheduler, which answers them, is gone. */
    {ADMISSION, NULL, "mutatingwebhookconfigurations", {"aliquot"}},
    {ADMISSION, NULL, "validatingwebhookconfigurations", {"aliquot"}},
    {ADMISSION,
     NULL,
     "mutatingadmissionpolicybindings",
     {"aliquot-copies", "aliquot-dra-pods", "aliquot-scheduler-name", "aliquot-slot"}},
    {ADMISSION,
     NULL,
     "mutatingadmissionpolicies",
     {"aliquot-copies", "aliquot-dra-pods", "aliquot-scheduler-name", "aliquot-slot"}},
    {ADMISSION,
     NULL,
     "validatingadmissionpolicybindings",
     {"aliquot-agent-events", "aliquot-agent-gpus", "aliquot-agent-nodes", "aliquot-agent-slices",
      "aliquot-assignment", "aliquot-assignment-bindings", "aliquot-dra-claims",
      "aliquot-node-name", "aliquot-operator-gpus", "aliquot-requests", "aliquot-scheduler-gpus",
      "aliquot-scheduler-pods", "aliquot-scheduler-templates", "aliquot-terms"}},
    {ADMISSION,
     NULL,
     "validatingadmissionpolicies",
     {"aliquot-agent-events", "aliquot-agent-gpus", "aliquot-agent-nodes", "aliquot-agent-slices",
      "aliquot-assignment", "aliquot-assignment-bindings", "aliquot-dra-claims",
      "aliquot-node-name", "aliquot-operator-gpus", "aliquot-requests", "aliquot-scheduler-gpus",
      "aliquot-scheduler-pods", "aliquot-scheduler-templates", "aliquot-terms"}},
    {WORKLOADS, system_namespace, "poddisruptionbudgets", {"aliquot-scheduler"}},
    {WORKLOADS,
     system_namespace,
     "services",
     {"aliquot-metrics-api", "aliquot-web", "aliquot-webhook"}},
    {WORKLOADS, system_namespace, "pods", {DOCTOR}},
    {RIGHTS,
     NULL,
     "clusterrolebindings",
     {"aliquot-agent-dra", "aliquot-agent-signer", "aliquot-agent-tls", "aliquot-figures",
      "aliquot-kube-scheduler", "aliquot-kube-scheduler-figures", "aliquot-kube-scheduler-volumes",
      "aliquot-metrics-api", "aliquot-nodes-dra", "aliquot-scheduler", "aliquot-scheduler-dra",
      "aliquot-webhook", DOCTOR, CHECK}},
    {RIGHTS,
     NULL,
     "clusterroles",
     {"aliquot-agent", "aliquot-agent-dra", "aliquot-agent-signer", "aliquot-agent-tls",
      "aliquot-claims", "aliquot-figures", "aliquot-gpu-operator", "aliquot-gpu-viewer",
      "aliquot-metrics-api", "aliquot-metrics-view", "aliquot-nodes-dra", "aliquot-online",
      "aliquot-scheduler", "aliquot-scheduler-dra", "aliquot-view", "aliquot-webhook",
      "aliquot-weighted", DOCTOR, CHECK}},
    {RIGHTS,
     system_namespace,
     "rolebindings",
     {"aliquot-agent", "aliquot-agent-signer", "aliquot-agent-tls", "aliquot-kube-scheduler",
      "aliquot-metrics-api", "aliquot-scheduler", "aliquot-scheduler-follow", "aliquot-webhook",
      DOCTOR "-configmaps", DOCTOR "-leases", DOCTOR "-services"}},
    {RIGHTS,
     system_namespace,
     "roles",
     {"aliquot-agent", "aliquot-agent-signer", "aliquot-agent-tls", "aliquot-kube-scheduler",
      "aliquot-metrics-api", "aliquot-scheduler", "aliquot-scheduler-follow", "aliquot-viewer",
      "aliquot-webhook", DOCTOR "-configmaps", DOCTOR "-leases", DOCTOR "-services"}},
    {RIGHTS,
     "kube-system",
     "rolebindings",
     {"aliquot-agent", "aliquot-kube-scheduler", "aliquot-metrics-api"}},
    {RIGHTS, "kube-system", "roles", {"aliquot-agent"}},
    {RIGHTS, "default", "rolebindings", {DOCTOR "-pods"}},
    {RIGHTS, "default", "roles", {DOCTOR "-pods"}},
    {RIGHTS, "kube-node-lease", "rolebindings", {"aliquot-metrics-api", DOCTOR "-leases"}},
    {RIGHTS, "kube-node-lease", "roles", {"aliquot-metrics-api", DOCTOR "-leases"}},
    {RIGHTS,
     system_namespace,
     "serviceaccounts",
     {"aliquot-agent", "aliquot-figures", "aliquot-kube-scheduler", "aliquot-scheduler",
      "aliquot-web", DOCTOR, CHECK}},
    {STATE,
     system_namespace,
     "secrets",
     {"aliquot-figures-token", "aliquot-signing", "aliquot-webhook", "aliquot-scheduler-token"}},
    {STATE,
     system_namespace,
     "configmaps",
     {"aliquot-authority", "aliquot-signing", "aliquot-workload", "aliquot-kube-scheduler",
      "aliquot-kube-scheduler-configuration"}},
    {STATE, system_namespace, "leases", {"aliquot-scheduler", "aliquot-kube-scheduler"}},
    {STATE, system_namespace, "csistoragecapacities", {"aliquot-wake"}},
    {LOCATION, NULL, "clusterrolebindings", {LOCATION_BINDING}},
};

static int delete_row(const struct removal *r, const struct row *row, unsigned *count,
                      struct err *err) {
    const char *namespace = row->namespace == system_namespace ? r->system : row->namespace;
    int e = 0;

    for (size_t i = 0; e == 0 && i < NAMES_MAX && row->names[i]; i++)
        e = removal_delete(
            OBJECTS(.kind = row->kind, .namespace = namespace, .name = row->names[i]), count, err);
    return e;
}

static int delete_group(const struct removal *r, enum group group, unsigned *count,
                        struct err *err) {
    int e = 0;

    for (const struct row *row = rows; e == 0 && row < rows + sizeof(rows) / sizeof(rows[0]); row++)
        if (row->group == group)
            e = delete_row(r, row, count, err);
    return e;
}

/* `e`: how the step has ended, which is returned. */
static int say_removed(const char *step, int e, unsigned count) {
    if (e == 0)
        removal_say(step, "objects removed: %u", count);
    return e;
}

static int remove_group(const struct removal *r, const char *step, enum group group,
                        struct err *err) {
    unsigned count = 0;
    int e = delete_group(r, group, &count, err);

    return say_removed(step, e, count);
}

/* ---- steps ---- */

/* What helm knows of it. First, while an object still has the release's name. A release of which
 * the chart is only a part is not Aliquot's. */
int removal_of_release(const struct removal *r, struct err *err) {
    static const char *const revisions[] = {"secrets", "configmaps"};
    _cleanup_buf_ struct buf selector = BUF_INIT(0);
    _cleanup_json_ struct json_parser *parser = NULL;
    unsigned count = 0;
    struct json role, notes;
    const char *release, *namespace;
    int e =
        removal_get(OBJECTS(.kind = "clusterroles", .name = "aliquot-agent"), &parser, &role, err);

    notes = JSON_PATH(role, "metadata", "annotations");
    release = json_string(json_get(notes, "meta.helm.sh/release-name"));
    namespace = json_string_or(json_get(notes, "meta.helm.sh/release-namespace"), r->system);
    if (e < 0 || !release)
        return e;
    if (!json_is_string(json_get(notes, RELEASE), release)) {
        removal_say("helm",
                    "release %s in %s has Aliquot as a part and stays: remove the dependency from "
                    "its chart, or its next upgrade brings Aliquot back",
                    release, namespace);
        return 0;
    }
    buf_printf(&selector, "owner=helm,name=%s", release);
    if (buf_error(&selector) < 0)
        return err_errno(err, ENOMEM, "cannot remove release %s", release);
    for (size_t i = 0; e == 0 && i < sizeof(revisions) / sizeof(revisions[0]); i++)
        e = removal_delete(
            OBJECTS(.kind = revisions[i], .namespace = namespace, .labels = buf_str(&selector)),
            &count, err);
    if (e == 0)
        removal_say("helm", "%u revisions of release %s removed", count, release);
    return e;
}

/* One that is another product's stays. */
static int remove_api(const struct removal *r, const char *name, unsigned *count, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json object, service;
    int e = removal_get(OBJECTS(.kind = "apiservices", .name = name), &parser, &object, err);

    service = JSON_PATH(object, "spec", "service");
    if (e < 0 || !json_is_string(json_get(service, "name"), "aliquot-metrics-api") ||
        !json_is_string(json_get(service, "namespace"), r->system))
        return e;
    return removal_delete(OBJECTS(.kind = "apiservices", .name = name), count, err);
}

/* Before the scheduler that serves them: while it is away no namespace can be deleted. */
int removal_of_apis(const struct removal *r, struct err *err) {
    static const char *const names[] = {"v1beta2.custom.metrics.k8s.io",
                                        "v1beta1.external.metrics.k8s.io"};
    unsigned count = 0;
    int e = 0;

    for (size_t i = 0; e == 0 && i < sizeof(names) / sizeof(names[0]); i++)
        e = remove_api(r, names[i], &count, err);
    return say_removed("apis", e, count);
}

/* First: it would alert on the end of the others. */
int removal_of_monitoring(const struct removal *r, struct err *err) {
    return remove_group(r, "monitoring", MONITORING, err);
}

int removal_of_admission(const struct removal *r, struct err *err) {
    return remove_group(r, "admission", ADMISSION, err);
}

int removal_of_workloads(const struct removal *r, struct err *err) {
    static const char *const kinds[] = {"deployments", "daemonsets", "jobs"};
    unsigned count = 0;
    int e = 0;

    for (size_t i = 0; e == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        e = removal_delete(OBJECTS(.kind = kinds[i], .namespace = r->system, .labels = PART_OF),
                           &count, err);
    if (e == 0)
        e = delete_group(r, WORKLOADS, &count, err);
    if (e == 0 && r->caller == REMOVAL_BY_USER)
        e = delete_group(r, HOOKS, &count, err);
    if (e == 0)
        e = removal_await_pods(r, "workloads", "aliquot-scheduler", err);
    if (e == 0)
        e = removal_await_pods(r, "workloads", "aliquot-agent", err);
    return say_removed("workloads", e, count);
}

/* Before what they allow to write: a pod on a node that is not reached writes nothing any more. */
int removal_of_rights(const struct removal *r, struct err *err) {
    return remove_group(r, "rights", RIGHTS, err);
}

int removal_of_state(const struct removal *r, struct err *err) {
    unsigned count = 0;
    int e = delete_group(r, STATE, &count, err);

    if (e == 0)
        e = removal_delete(OBJECTS(.kind = "certificatesigningrequests",
                                   .fields = "spec.signerName=" AGENT_SIGNER),
                           &count, err);
    return say_removed("state", e, count);
}

/* After all that is in the namespace. */
int removal_of_location(const struct removal *r, struct err *err) {
    unsigned count = 0;

    return delete_group(r, LOCATION, &count, err);
}
