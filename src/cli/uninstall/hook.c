/* SPDX-License-Identifier: Apache-2.0 */

/* What only the chart's Jobs do, beside the steps of `aliquot uninstall`. */

#include <string.h>

#include "base/cleanup.h"
#include "cli/uninstall/uninstall.h"

#define AFTERWARDS "aliquot-uninstall-nodes" /* the Job and all that it has */

int removal_is_installed(struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json binding;
    int e =
        REMOVAL_GET(&parser, &binding, err, "clusterrolebindings", LOCATION_BINDING, "-o", "json");

    return e < 0 ? e : json_valid(binding);
}

int removal_is_of_helm(bool *ret, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json role;
    int e = REMOVAL_GET(&parser, &role, err, "clusterroles", "aliquot-agent", "-o", "json");

    if (e < 0)
        return e;
    /* Without the role, an earlier call was interrupted. */
    *ret = !json_valid(role) ||
           json_valid(JSON_PATH(role, "metadata", "annotations", "meta.helm.sh/release-name"));
    if (!*ret)
        removal_say("helm", "no release has these objects, helm does not remove them: nothing is "
                            "removed");
    return 0;
}

/* ---- the Job that stays ---- */

/* Its role is the owner of all the rest: the Job ends by removing that, and the garbage collector
 * takes the rest. */
static int own(const struct removal *r, const char *uid, const char *kind, struct err *err) {
    _cleanup_buf_ struct buf patch = BUF_INIT(0);

    buf_printf(&patch,
               "{\"metadata\":{\"ownerReferences\":[{\"apiVersion\":\"rbac.authorization.k8s.io/"
               "v1\",\"kind\":\"ClusterRole\",\"name\":\"" AFTERWARDS "\",\"uid\":\"%s\"}]}}",
               uid);
    if (buf_error(&patch) < 0)
        return err_errno(err, ENOMEM, "cannot change %s %s", kind, AFTERWARDS);
    return REMOVAL_PATCH(err, "-n", r->system, kind, AFTERWARDS, "--type=merge", "-p",
                         buf_str(&patch));
}

int removal_leave_job(const struct removal *r, struct err *err) {
    static const char *const owned[] = {"clusterrolebindings", "serviceaccounts", "jobs"};
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json role;
    const char *uid;
    int e = REMOVAL_GET(&parser, &role, err, "clusterroles", AFTERWARDS, "-o", "json");

    if (e < 0)
        return e;
    uid = json_string(JSON_PATH(role, "metadata", "uid"));
    if (!uid || !r->job)
        return err_set(err, EINVAL, "no %s for the Job that removes kubelet's zeros",
                       uid ? "--job" : "ClusterRole " AFTERWARDS);
    e = removal_create(r->system, r->job, err);
    if (e < 0 && strstr(err->text, "(AlreadyExists)")) /* of a call that was interrupted */
        e = 0;
    for (size_t i = 0; e == 0 && i < sizeof(owned) / sizeof(owned[0]); i++)
        e = own(r, uid, owned[i], err);
    if (e == 0)
        removal_say("nodes",
                    "Job " AFTERWARDS " in %s removes what kubelet writes again, and then itself",
                    r->system);
    return e;
}

int removal_of_last_rights(const struct removal *r, struct err *err) {
    unsigned count = 0;

    (void) r;
    return REMOVAL_DELETE(&count, err, "clusterroles", AFTERWARDS);
}
