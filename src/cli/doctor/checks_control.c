/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the control plane: API server, admission, scheduler. */

#include <stdio.h>
#include <string.h>

#include "cli/doctor/doctor.h"

#define OLDEST_MINOR 30
#define POLICIES_MINOR 36 /* MutatingAdmissionPolicy is GA */
#define WAITING_MS 60000  /* for which a pod can be pending without a reason to worry */

void doctor_check_api_server(struct doctor *d) {
    struct json server = json_get(d->evidence.version.root, "serverVersion");
    const char *text = json_string_or(json_get(server, "gitVersion"), "");
    unsigned major = 0, minor = 0;

    if (!json_valid(d->evidence.version.root))
        doctor_find(d, DOCTOR_WRONG, "choose the cluster by --context or --kubeconfig",
                    "the cluster does not answer: %s", d->evidence.version.err.text);
    else if (sscanf(text, "v%5u.%5u", &major, &minor) != 2)
        doctor_find(d, DOCTOR_UNSURE, NULL, "kubectl names no version of the server");
    else if (major == 1 && minor < OLDEST_MINOR)
        doctor_find(d, DOCTOR_WRONG, "upgrade the cluster", "Kubernetes %s is older than 1.%d",
                    text, OLDEST_MINOR);
    else
        doctor_find(d, DOCTOR_OK, NULL, "Kubernetes %s%s", text,
                    minor < POLICIES_MINOR ? ", which needs the webhook" : "");
}

/* ---- admission ---- */

static const char apply[] = "apply deploy/base (Kubernetes 1.36 and later) or deploy/webhook, or "
                            "upgrade the chart; docs/install.md";

static bool has_slot(struct json pod) {
    struct json_iter it = json_iter(JSON_PATH(pod, "spec", "containers"));
    struct json container;

    return json_next(&it, NULL, &container) &&
           json_valid(JSON_PATH(container, "resources", "limits", "elasticgpu.io/slot"));
}

static bool has_kube_scheduler(struct json pods) {
    struct json_iter it = json_iter(json_get(pods, "items"));
    struct json pod;

    while (json_next(&it, NULL, &pod))
        if (json_valid(json_find(JSON_PATH(pod, "spec", "containers"), "name", "kube-scheduler")))
            return true;
    return false;
}

/* After a change to the cluster's kube-scheduler by kubectl, which removes nothing. */
static bool is_sent_to_none(const struct doctor *d) {
    return json_is_string(JSON_PATH(d->evidence.share.root, "spec", "schedulerName"),
                          "aliquot-scheduler") &&
           json_valid(d->evidence.pods.root) && !has_kube_scheduler(d->evidence.pods.root);
}

void doctor_check_admission(struct doctor *d) {
    const struct doctor_doc *share = &d->evidence.share, *refused = &d->evidence.refused;
    bool taken = json_valid(share->root);

    if (strstr(share->err.text, "failed calling webhook"))
        doctor_find(d, DOCTOR_WRONG,
                    "let the API server reach port 9402 of aliquot-scheduler; docs/admission.md",
                    "the webhook cannot be reached: %s", share->err.text);
    else if (taken && !has_slot(share->root))
        doctor_find(d, DOCTOR_WRONG, apply,
                    "a pod with a share is not changed: it would get no device");
    else if (taken && is_sent_to_none(d))
        doctor_find(d, DOCTOR_WRONG,
                    "delete what is left of deploy/own-scheduler, or apply it again; "
                    "docs/operations.md",
                    "pods with a share are sent to the scheduler aliquot-scheduler, and no pod in "
                    "namespace %s has a kube-scheduler",
                    d->evidence.system);
    else if (json_valid(refused->root))
        doctor_find(d, DOCTOR_WRONG, apply, "a pod that requests 150 %% of a card is not refused");
    else if (!taken)
        doctor_find_unread(d, share);
    else
        doctor_find(d, DOCTOR_OK, NULL, "requests are checked: %s", refused->err.text);
}

/* ---- the scheduler ---- */

static const char look[] = "kubectl -n <namespace of Aliquot> describe pods -l "
                           "app.kubernetes.io/name=aliquot-scheduler";

/* Events of its pods, where it has a kube-scheduler of its own. */
static const struct {
    const char *reason, *remedy;
} troubles[] = {
    {"KubeSchedulerVersionSkew", "set the image's tag to the server's version; docs/install.md"},
    {"ClusterKubeSchedulerAsks", "choose one of both modes; docs/operations.md"},
};

static void find_trouble(struct doctor *d, const char *reason, const char *remedy) {
    struct json_iter it = json_iter(json_get(d->evidence.events.root, "items"));
    struct json event;

    while (json_next(&it, NULL, &event))
        if (json_is_string(json_get(event, "reason"), reason)) {
            doctor_find(d, DOCTOR_WRONG, remedy, "%s",
                        json_string_or(json_get(event, "message"), ""));
            return; /* the others are of other replicas, or older */
        }
}

void doctor_check_scheduler(struct doctor *d) {
    const struct doctor_doc *status = &d->evidence.status;
    const char *version = json_string_or(json_get(status->root, "version"), "");
    bool ready = false;

    (void) json_bool(json_get(status->root, "ready"), &ready);
    if (!json_valid(status->root))
        doctor_find(d, strstr(status->err.text, "is ready") ? DOCTOR_WRONG : DOCTOR_UNSURE, look,
                    "%s", status->err.text);
    else if (!ready)
        doctor_find(d, DOCTOR_WRONG, look, "aliquot-scheduler has not read the cluster yet");
    else if (strcmp(version, ALIQUOT_VERSION) != 0)
        doctor_find(d, DOCTOR_UNSURE, NULL,
                    "aliquot-scheduler is %s and this program is " ALIQUOT_VERSION
                    ": the checks can be those of another version",
                    version);
    else
        doctor_find(d, DOCTOR_OK, NULL, "aliquot-scheduler %s is ready", version);
    for (size_t i = 0; i < sizeof(troubles) / sizeof(troubles[0]); i++)
        find_trouble(d, troubles[i].reason, troubles[i].remedy);
}

/* Whether kube-scheduler asks for pods with shares, by what has become of them. */
void doctor_check_placing(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.status.root, "pods"));
    struct json pod, waiting = {0};
    unsigned placed = 0;
    uint64_t age;

    if (!json_valid(d->evidence.status.root)) {
        doctor_find_unread(d, &d->evidence.status);
        return;
    }
    while (json_next(&it, NULL, &pod)) {
        placed += json_is_string(json_get(pod, "stage"), "bound");
        if (json_is_string(json_get(pod, "stage"), "pending") &&
            json_u64(json_get(pod, "ageMilliseconds"), &age) && age > WAITING_MS)
            waiting = pod;
    }
    if (placed > 0)
        doctor_find(d, DOCTOR_OK, NULL, "pods with shares that are on nodes: %u", placed);
    else if (json_valid(waiting))
        doctor_find(d, DOCTOR_WRONG,
                    "`aliquot explain` with that pod says why. Where kube-scheduler does not ask: "
                    "docs/install.md, step 3",
                    "no pod with a share is on a node, and %s/%s waits",
                    json_string_or(json_get(waiting, "namespace"), ""),
                    json_string_or(json_get(waiting, "pod"), ""));
    else
        doctor_find(d, DOCTOR_UNSURE, NULL,
                    "no pod with a share yet: whether kube-scheduler asks is not known");
}
