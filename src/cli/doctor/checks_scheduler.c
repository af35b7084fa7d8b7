/* SPDX-License-Identifier: Apache-2.0 */

/* Checks of aliquot-scheduler: whether it acts and is asked, its key, and who has which version. */

#include <stdio.h>
#include <string.h>

#include "cli/cluster/pod_ready.h"
#include "cli/doctor/doctor.h"
#include "kube/objects/scheduler_image.h"
#include "model/dialect.h"

#define WAITING_S 60 /* for which a pod can be pending without a reason to worry */
#define LEASE_S 60   /* without a renewal */

static const char look[] = "kubectl -n <namespace of Aliquot> describe pods -l "
                           "app.kubernetes.io/name=aliquot-scheduler";

/* ---- whether it acts ---- */

struct json doctor_own_lease(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.own_leases.root, "items"));
    struct json lease;

    while (json_next(&it, NULL, &lease))
        if (strcmp(doctor_name(lease), "aliquot-scheduler") == 0)
            return lease;
    return (struct json){0};
}

/* Where the Leases cannot be read, none is missed. */
static bool acts(const struct doctor *d) {
    struct json lease = doctor_own_lease(d);
    time_t server, renewed;

    if (!json_valid(d->evidence.own_leases.root))
        return true;
    if (!json_string_or(JSON_PATH(lease, "spec", "holderIdentity"), "")[0] ||
        !doctor_written_at(lease, &renewed))
        return false;
    return !doctor_server_time(d, &server) || renewed >= server - LEASE_S;
}

static void find_acting(struct doctor *d) {
    const struct doctor_doc *status = &d->evidence.status;
    const char *version = json_string_or(json_get(status->root, "version"), "");
    bool ready = false;

    (void) json_bool(json_get(status->root, "ready"), &ready);
    if (!json_valid(status->root) && strstr(status->err.text, "is ready"))
        doctor_find(d, DOCTOR_WRONG, look, "%s", status->err.text);
    else if (json_valid(status->root) && !ready)
        doctor_find(d, DOCTOR_WRONG, look, "aliquot-scheduler has not read the cluster yet");
    else if (!acts(d))
        doctor_find(d, DOCTOR_WRONG, look, "no replica of aliquot-scheduler holds its Lease");
    else if (json_valid(status->root))
        doctor_find(d, DOCTOR_OK, NULL, "aliquot-scheduler %s is ready", version);
    else if (json_valid(d->evidence.own_leases.root))
        doctor_find(d, DOCTOR_OK, NULL, "aliquot-scheduler is ready and holds its Lease");
    else
        doctor_find(d, DOCTOR_UNSURE, look, "%s", status->err.text);
}

/* ---- a kube-scheduler of its own ---- */

bool doctor_has_pair(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;

    while (json_next(&it, NULL, &pod))
        if (doctor_is_of(pod, "aliquot-scheduler") &&
            doctor_image(pod, SCHEDULER_IMAGE_CONTAINER)[0])
            return true;
    return false;
}

static void find_both_modes(struct doctor *d) {
    struct json notes = JSON_PATH(doctor_own_lease(d), "metadata", "annotations");
    const char *asked = json_string(json_get(notes, "elasticgpu.io/asked-by-cluster"));

    if (asked && doctor_has_pair(d))
        doctor_find(d, DOCTOR_WRONG, "choose one of both modes; docs/operations.md",
                    "the cluster's kube-scheduler asks %s, so that the replicas with a "
                    "kube-scheduler of their own stand back",
                    asked);
}

static void find_skew(struct doctor *d) {
    const char *server = json_string_or(json_get(d->evidence.version.root, "gitVersion"), "");
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;

    while (json_next(&it, NULL, &pod)) {
        const char *image = doctor_image(pod, SCHEDULER_IMAGE_CONTAINER);
        char wrong[512];
        int ahead;

        if (!doctor_is_of(pod, "aliquot-scheduler") ||
            !scheduler_image_ahead(image, server, &ahead) ||
            scheduler_image_suits(image, server, ahead, wrong, sizeof(wrong)))
            continue;
        doctor_find(d, DOCTOR_WRONG, "set the image's tag to the server's version; docs/install.md",
                    "pod %s: %s", doctor_name(pod), wrong);
    }
}

void doctor_check_scheduler(struct doctor *d) {
    find_acting(d);
    find_both_modes(d);
    find_skew(d);
}

/* ---- whether kube-scheduler asks ---- */

/* By the resources of which each request has one when it is admitted. None of them can be left to
 * another plugin (dialect_leave()). */
static bool has_carrier(struct json container) {
    static const char *const carriers[] = {RESOURCE_SLOT, RESOURCE_CORE, RESOURCE_QGPU_CORE};
    struct json limits = JSON_PATH(container, "resources", "limits");

    for (size_t i = 0; i < sizeof(carriers) / sizeof(carriers[0]); i++)
        if (json_valid(json_get(limits, carriers[i])))
            return true;
    return false;
}

static bool wants_share(struct json pod) {
    static const char *const kinds[] = {"containers", "initContainers"};
    struct json container;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct json_iter it = json_iter(json_get(json_get(pod, "spec"), kinds[i]));

        while (json_next(&it, NULL, &container))
            if (has_carrier(container))
                return true;
    }
    return false;
}

static bool is_assigned(struct json pod) {
    return json_valid(
        json_get(JSON_PATH(pod, "metadata", "annotations"), "elasticgpu.io/assignment"));
}

bool doctor_is_old(const struct doctor *d, struct json pod) {
    time_t server, made;

    return doctor_server_time(d, &server) &&
           doctor_read_time(JSON_PATH(pod, "metadata", "creationTimestamp"), &made) &&
           server - made > WAITING_S;
}

static bool is_placed_unasked(struct json pod) {
    return json_string_or(JSON_PATH(pod, "spec", "nodeName"), "")[0];
}

/* Pods that hold a share of a card; one with several cards counts more than once. */
static unsigned count_shares(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.gpus.root, "items"));
    unsigned n = 0;
    struct json gpu, share;

    while (json_next(&it, NULL, &gpu)) {
        struct json_iter shares = json_iter(JSON_PATH(gpu, "status", "allocated"));

        while (json_next(&shares, NULL, &share))
            n++;
    }
    return n;
}

static const char unasked[] = "`aliquot explain` with that pod says why. Where kube-scheduler does "
                              "not ask: docs/install.md, step 3";

static const char *space_of(struct json pod) {
    return json_string_or(JSON_PATH(pod, "metadata", "namespace"), "");
}

/* Whether kube-scheduler asks for pods with shares, by what has become of them. */
void doctor_check_placing(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pending.root, "items"));
    struct json pod, waiting = {0}, placed = {0};
    unsigned shares = count_shares(d);

    if (!json_valid(d->evidence.pending.root) || !json_valid(d->evidence.gpus.root)) {
        doctor_find_unread(d, json_valid(d->evidence.gpus.root) ? &d->evidence.pending
                                                                : &d->evidence.gpus);
        return;
    }
    while (json_next(&it, NULL, &pod)) {
        if (!wants_share(pod) || is_assigned(pod))
            continue;
        if (is_placed_unasked(pod))
            placed = pod;
        else if (doctor_is_old(d, pod))
            waiting = pod;
    }
    if (json_valid(placed))
        doctor_find(d, DOCTOR_WRONG, unasked,
                    "%s/%s is on a node without an assignment: its scheduler has not asked Aliquot",
                    space_of(placed), doctor_name(placed));
    else if (shares > 0)
        doctor_find(d, DOCTOR_OK, NULL, "shares that pods on nodes hold: %u", shares);
    else if (json_valid(waiting))
        doctor_find(d, DOCTOR_WRONG, unasked, "no pod with a share is on a node, and %s/%s waits",
                    space_of(waiting), doctor_name(waiting));
    else
        doctor_find(d, DOCTOR_UNSURE, NULL,
                    "no pod with a share yet: whether kube-scheduler asks is not known");
}

/* ---- the signing key ---- */

void doctor_check_key(struct doctor *d) {
    static const char restart[] = "kubectl -n <namespace of Aliquot> rollout restart deployment -l "
                                  "app.kubernetes.io/name=aliquot-scheduler";
    const struct doctor_doc *public_key = &d->evidence.public_key;
    const char *known = json_string_or(JSON_PATH(public_key->root, "data", "public.pem"), "");
    const char *key = json_string(json_get(d->evidence.status.root, "publicKey"));

    if (doctor_is_missing(&public_key->err))
        doctor_find(d, DOCTOR_WRONG, restart,
                    "ConfigMap aliquot-signing is missing: no container with a share starts");
    else if (!json_valid(public_key->root))
        doctor_find_unread(d, public_key);
    else if (!strstr(known, "BEGIN PUBLIC KEY") || (key && !strstr(known, key)))
        doctor_find(d, DOCTOR_WRONG, restart,
                    "ConfigMap aliquot-signing has no public key of aliquot-scheduler: agents "
                    "refuse what it signs");
    else if (doctor_is_missing(&d->evidence.secret.err))
        doctor_find(d, DOCTOR_WRONG, restart,
                    "Secret aliquot-signing is missing: the next scheduler signs by a new key");
    else
        doctor_find(d, DOCTOR_OK, NULL, "agents have the public key%s",
                    key ? " of aliquot-scheduler" : "");
}

/* ---- versions ---- */

/* Of the running scheduler; its page may be out of reach, as in a pod, where this program comes
 * from its image. */
static const char *scheduler_version(const struct doctor *d) {
    return json_string_or(json_get(d->evidence.status.root, "version"), ALIQUOT_VERSION);
}

static void first_tag(const struct doctor *d, const char *name, const char *container,
                      char ret[static IMAGE_TAG_MAX]) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    struct json pod;

    ret[0] = '\0';
    while (!ret[0] && json_next(&it, NULL, &pod))
        if (doctor_is_of(pod, name))
            image_tag(doctor_image(pod, container), ret);
}

/* Agents whose image has another tag than the scheduler's. */
static unsigned find_agents(struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.pods.root, "items"));
    char scheduler[IMAGE_TAG_MAX], tag[IMAGE_TAG_MAX];
    unsigned n = 0;
    struct json pod;

    first_tag(d, "aliquot-scheduler", "scheduler", scheduler);
    while (json_next(&it, NULL, &pod)) {
        if (!doctor_is_of(pod, "aliquot-agent"))
            continue;
        image_tag(doctor_image(pod, "agent"), tag);
        if (!tag[0] || !scheduler[0] || strcmp(tag, scheduler) == 0)
            continue;
        n++;
        doctor_find(d, DOCTOR_UNSURE,
                    "complete the upgrade: kubectl -n <namespace of Aliquot> rollout status "
                    "daemonset -l app.kubernetes.io/name=aliquot-agent; docs/upgrade.md",
                    "the agent on node %s is of image %s, aliquot-scheduler of %s",
                    json_string_or(JSON_PATH(pod, "spec", "nodeName"), ""), tag, scheduler);
    }
    return n;
}

/* What the manifests or the chart say of themselves; NULL: nothing, as those before 0.2. */
static const char *manifests_version(const struct doctor *d) {
    struct json_iter it = json_iter(json_get(d->evidence.daemonsets.root, "items"));
    struct json daemonset;

    while (json_next(&it, NULL, &daemonset))
        if (doctor_is_of(daemonset, "aliquot-agent"))
            return json_string(
                json_get(JSON_PATH(daemonset, "metadata", "annotations"), "elasticgpu.io/version"));
    return NULL;
}

void doctor_check_versions(struct doctor *d) {
    const char *scheduler = scheduler_version(d), *manifests = manifests_version(d);
    unsigned n = find_agents(d);

    if (manifests && strcmp(manifests, scheduler) != 0) {
        n++;
        doctor_find(d, DOCTOR_UNSURE,
                    "apply the manifests of the release that runs, or leave image.tag of the chart "
                    "empty; docs/upgrade.md",
                    "the manifests are of version %s, aliquot-scheduler is %s", manifests,
                    scheduler);
    }
    if (strcmp(scheduler, ALIQUOT_VERSION) != 0) {
        n++;
        doctor_find(d, DOCTOR_UNSURE, "use the program of the release that runs",
                    "aliquot-scheduler is %s and this program is " ALIQUOT_VERSION
                    ": the checks can be those of another version",
                    scheduler);
    }
    if (!json_valid(d->evidence.pods.root))
        doctor_find_unread(d, &d->evidence.pods);
    else if (n == 0)
        doctor_find(d, DOCTOR_OK, NULL, "agents and manifests are of the scheduler's version");
}
