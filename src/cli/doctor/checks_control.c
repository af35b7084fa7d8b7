/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of the control plane: API server, admission. */

#include <stdio.h>
#include <string.h>

#include "cli/doctor/doctor.h"

#define OLDEST_MINOR 30
#define POLICIES_MINOR 36 /* MutatingAdmissionPolicy is GA */

static const char *version_text(const struct doctor *d) {
    return json_string_or(json_get(d->evidence.version.root, "gitVersion"), "");
}

bool doctor_server_version(const struct doctor *d, unsigned *ret_major, unsigned *ret_minor) {
    return sscanf(version_text(d), "v%5u.%5u", ret_major, ret_minor) == 2;
}

void doctor_check_api_server(struct doctor *d) {
    const char *text = version_text(d);
    unsigned major = 0, minor = 0;

    if (!json_valid(d->evidence.version.root))
        doctor_find(d, DOCTOR_WRONG, "choose the cluster by --context or --kubeconfig",
                    "the cluster does not answer: %s", d->evidence.version.err.text);
    else if (!doctor_server_version(d, &major, &minor))
        doctor_find(d, DOCTOR_UNSURE, NULL, "the API server names no version");
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

/* By either door: a slot of the extender, or a ResourceClaim. */
static bool gets_device(struct json pod) {
    struct json_iter it = json_iter(JSON_PATH(pod, "spec", "containers"));
    struct json container;

    return json_next(&it, NULL, &container) &&
           (json_valid(JSON_PATH(container, "resources", "limits", "elasticgpu.io/slot")) ||
            json_valid(JSON_PATH(container, "resources", "claims")));
}

/* After a change to the cluster's kube-scheduler by kubectl, which removes nothing. */
static bool is_sent_to_none(const struct doctor *d) {
    return json_is_string(JSON_PATH(d->evidence.share.root, "spec", "schedulerName"),
                          "aliquot-scheduler") &&
           json_valid(d->evidence.pods.root) && !doctor_has_pair(d);
}

static void find_webhook(struct doctor *d) {
    struct json_iter it = json_iter(JSON_PATH(d->evidence.webhook.root, "spec", "ports"));
    char number[16];
    uint64_t port = 0;
    struct json first;

    if (json_next(&it, NULL, &first))
        (void) json_u64(json_get(first, "targetPort"), &port);
    (void) snprintf(number, sizeof(number), "%u", (unsigned) port);
    doctor_find(d, DOCTOR_WRONG,
                "let the API server reach the webhook's port of the pods of aliquot-scheduler; "
                "docs/admission.md",
                "the webhook, port %s of aliquot-scheduler, cannot be reached: %s",
                port > 0 ? number : "unknown", d->evidence.share.err.text);
}

void doctor_check_admission(struct doctor *d) {
    const struct doctor_doc *share = &d->evidence.share, *refused = &d->evidence.refused;
    bool taken = json_valid(share->root);

    if (doctor_webhook_fails(&d->evidence))
        find_webhook(d);
    else if (taken && !gets_device(share->root))
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
