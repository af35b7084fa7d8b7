/* SPDX-License-Identifier: Apache-2.0 */

/* What only the chart's Jobs do, beside the steps of `aliquot uninstall`. */

#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "cli/uninstall/uninstall.h"
#include "kube/api/client.h"

#define HOOK "aliquot-uninstall"             /* the Job before the removal */
#define AFTERWARDS "aliquot-uninstall-nodes" /* the Job that stays, and all that it has */
#define PAUSE_S 1

int removal_is_installed(struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json binding;
    int e = removal_get(OBJECTS(.kind = "clusterrolebindings", .name = LOCATION_BINDING), &parser,
                        &binding, err);

    return e < 0 ? e : json_valid(binding);
}

/* What makes objects of templates, by the manager that it names to the API server. The controller
 * of Flux that has helm in it has another name. */
static bool is_no_helm(const char *manager) {
    return strncmp(manager, "kubectl", 7) == 0 || strcmp(manager, "argocd-controller") == 0 ||
           strcmp(manager, "kustomize-controller") == 0;
}

static bool was_applied(struct json meta) {
    struct json_iter it = json_iter(json_get(meta, "managedFields"));
    struct json entry;

    while (json_next(&it, NULL, &entry))
        if (is_no_helm(json_string_or(json_get(entry, "manager"), "")))
            return true;
    return json_valid(
        JSON_PATH(meta, "annotations", "kubectl.kubernetes.io/last-applied-configuration"));
}

static int job_was_applied(const struct removal *r, bool *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json job;
    int e = 0;

    if (!r->system)
        return err_set(err, EINVAL, "--hook=before needs --system");
    e = removal_get(OBJECTS(.kind = "jobs", .namespace = r->system, .name = HOOK), &parser, &job,
                    err);
    if (e < 0)
        return e;
    if (!json_valid(job))
        return err_set(err, ENOENT, "no Job " HOOK " in %s that says what has made it", r->system);
    *ret = was_applied(json_get(job, "metadata"));
    return 0;
}

int removal_is_of_helm(const struct removal *r, bool *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json role;
    bool applied = false;
    int e = job_was_applied(r, &applied, err);

    if (e == 0)
        e = removal_get(OBJECTS(.kind = "clusterroles", .name = "aliquot-agent"), &parser, &role,
                        err);
    if (e < 0)
        return e;
    /* Without the role, an earlier call was interrupted. */
    *ret = !applied && (!json_valid(role) || json_valid(JSON_PATH(role, "metadata", "annotations",
                                                                  "meta.helm.sh/release-name")));
    if (!*ret)
        removal_say("helm", "%s: nothing is removed",
                    applied ? "this Job was made by kubectl, Argo CD or Flux, not by helm"
                            : "no release has these objects, helm does not remove them");
    return 0;
}

/* ---- the Job that stays ---- */

/* Its role is the owner of all the rest: the Job ends by removing that, and the garbage collector
 * takes the rest. What is gone cannot be owned. */
static int own(const struct removal *r, const char *uid, const char *kind, struct err *err) {
    _cleanup_buf_ struct buf patch = BUF_INIT(0);

    buf_printf(&patch,
               "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"rbac.authorization.k8s.io/"
               "v1\",\"kind\":\"ClusterRole\",\"name\":\"" AFTERWARDS "\",\"uid\":\"%s\"}]}}",
               uid);
    if (buf_error(&patch) < 0)
        return err_errno(err, ENOMEM, "cannot change %s %s", kind, AFTERWARDS);
    return removal_patch(OBJECTS(.kind = kind, .namespace = r->system, .name = AFTERWARDS),
                         KUBE_MERGE_PATCH, buf_str(&patch), err);
}

static int own_all(const struct removal *r, const char *uid, struct err *err) {
    static const char *const owned[] = {"clusterrolebindings", "serviceaccounts", "jobs"};
    int e = 0;

    for (size_t i = 0; e == 0 && i < sizeof(owned) / sizeof(owned[0]); i++)
        e = own(r, uid, owned[i], err);
    return e;
}

static int await_no_job(const struct removal *r, struct err *err) {
    const struct timespec pause = {.tv_sec = PAUSE_S};
    time_t end = time(NULL) + r->limit_s;

    for (;;) {
        _cleanup_json_ struct json_parser *parser = NULL;
        struct json job;
        int e = removal_get(OBJECTS(.kind = "jobs", .namespace = r->system, .name = AFTERWARDS),
                            &parser, &job, err);

        if (e < 0 || !json_valid(job))
            return e;
        if (time(NULL) >= end)
            return err_set(err, ETIMEDOUT, "Job " AFTERWARDS " of an earlier call is still there");
        (void) nanosleep(&pause, NULL);
    }
}

/* That of an earlier call may have failed, or be on its way out with its role. Its pod would remove
 * the role of the next one at its end. */
static int remove_earlier_job(const struct removal *r, struct err *err) {
    unsigned count = 0;
    int e = removal_delete(OBJECTS(.kind = "jobs", .namespace = r->system, .name = AFTERWARDS),
                           &count, err);

    if (e == 0 && count > 0)
        e = await_no_job(r, err);
    return e < 0 ? e : removal_await_pods(r, "nodes", AFTERWARDS, err);
}

int removal_leave_job(const struct removal *r, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json role;
    const char *uid;
    int e = remove_earlier_job(r, err);

    if (e == 0)
        e = removal_get(OBJECTS(.kind = "clusterroles", .name = AFTERWARDS), &parser, &role, err);
    if (e != 0)
        return e;
    uid = json_string(JSON_PATH(role, "metadata", "uid"));
    if (!uid || !r->job)
        return err_set(err, EINVAL, "no %s for the Job that removes kubelet's zeros",
                       uid ? "--job" : "ClusterRole " AFTERWARDS);
    e = removal_create(OBJECTS(.kind = "jobs", .namespace = r->system), r->job, err);
    if (e == 0)
        e = own_all(r, uid, err);
    if (e == 0)
        removal_say("nodes",
                    "Job " AFTERWARDS " in %s removes what kubelet writes again, and then itself",
                    r->system);
    return e;
}

void removal_leave_nothing(const struct removal *r) {
    static const char *const kinds[] = {"jobs", "clusterrolebindings", "serviceaccounts",
                                        "clusterroles"};
    unsigned count = 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct err err;

        if (removal_delete(OBJECTS(.kind = kinds[i], .namespace = r->system, .name = AFTERWARDS),
                           &count, &err) < 0)
            removal_say("nodes", "%s " AFTERWARDS " stays: %s", kinds[i], err.text);
    }
}

int removal_of_last_rights(const struct removal *r, struct err *err) {
    unsigned count = 0;

    (void) r;
    return removal_delete(OBJECTS(.kind = "clusterroles", .name = AFTERWARDS), &count, err);
}
