/* SPDX-License-Identifier: Apache-2.0 */

/* What uses Aliquot: pods that hold shares, ResourceClaims that pods use, workloads whose pods
 * would start without a GPU, and what waits for its kube-scheduler. Objects are read by pages, as a
 * large cluster has many. */

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "cli/cluster/api.h"
#include "cli/uninstall/uninstall.h"
#include "kube/objects/pod_claims.h"
#include "kube/objects/resource_claim.h"
#include "kube/objects/share_holder.h"
#include "model/dialect.h"
#include "model/dra.h"

#define TOLD 20 /* objects that are named */
#define PAGE 500
#define OWN_SCHEDULER "aliquot-scheduler"
#define KEPT_RUNNING                                                                               \
    "they go on with their limits until their containers end, and no container of them starts "    \
    "again"
#define KEPT_TERMINATING                                                                           \
    "pods with a ResourceClaim stay Terminating once they are deleted, since kubelet waits for "   \
    "the driver: kubectl delete pod --force"

static const char *text_of(struct json object, const char *key) {
    return json_string_or(JSON_PATH(object, "metadata", key), "");
}

static bool has_ended(struct json pod) {
    struct json phase = JSON_PATH(pod, "status", "phase");

    return json_is_string(phase, "Succeeded") || json_is_string(phase, "Failed");
}

struct users {
    struct buf schedulers; /* names with commas between that only Aliquot's kube-scheduler has */
    struct buf holders;    /* pods, a line each */
    struct buf used;       /* ResourceClaims, a line each */
    unsigned nholders, nused, nclaims, nwaiting;
};

static void users_done(struct users *u) {
    buf_done(&u->schedulers);
    buf_done(&u->holders);
    buf_done(&u->used);
}

static void see_holder(struct users *u, struct json pod) {
    if (pod_holds_share(pod) && u->nholders++ < TOLD)
        buf_printf(&u->holders, "\n  %s/%s on node %s", text_of(pod, "namespace"),
                   text_of(pod, "name"), json_string_or(JSON_PATH(pod, "spec", "nodeName"), ""));
}

/* The pool of a device is its node. */
static void see_claim(struct users *u, struct json claim) {
    struct json status = json_get(claim, "status"), user;
    struct json_iter users = json_iter(json_get(status, "reservedFor"));
    struct json result =
        json_find(JSON_PATH(status, "allocation", "devices", "results"), "driver", DRA_DRIVER);

    if (!claim_holds_share(claim) || u->nused++ >= TOLD)
        return;
    buf_printf(&u->used, "\n  %s/%s on node %s, by", text_of(claim, "namespace"),
               text_of(claim, "name"), json_string_or(json_get(result, "pool"), ""));
    while (json_next(&users, NULL, &user))
        buf_printf(&u->used, " %s", json_string_or(json_get(user, "name"), ""));
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

/* ---- its kube-scheduler ---- */

/* The names that kube-scheduler's configuration gives it, each a line of the text. */
static void add_names(struct buf *names, const char *text) {
    char name[254]; /* as long as names of objects may be */

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += strspn(line, "\n ");
        if (sscanf(line, "- schedulerName: \"%253[^\"\n]", name) == 1 ||
            sscanf(line, "- schedulerName: %253s", name) == 1)
            buf_printf(names, ",%s", name);
    }
}

static int read_names(const struct removal *r, struct buf *names, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json map, text;
    int e = removal_get(
        OBJECTS(.kind = "configmaps", .namespace = r->system, .name = "aliquot-kube-scheduler"),
        &parser, &map, err);
    struct json_iter it = json_iter(json_get(map, "data"));

    buf_puts(names, OWN_SCHEDULER);
    while (e == 0 && json_next(&it, NULL, &text))
        add_names(names, json_string_or(text, ""));
    if (e == 0 && buf_error(names) < 0)
        e = err_errno(err, ENOMEM, "cannot read the names of schedulers");
    return e;
}

/* ---- all of it ---- */

static void see_template(struct users *u, const char *kind, struct json object) {
    struct json pod = pod_of(object);
    const char *scheduler = json_string(JSON_PATH(pod, "spec", "schedulerName"));
    bool bound = json_valid(JSON_PATH(pod, "spec", "nodeName"));
    bool owned = json_size(JSON_PATH(object, "metadata", "ownerReferences")) > 0;

    if (has_ended(object))
        return;
    if (!owned && names_claim_only(pod) && u->nclaims++ < TOLD)
        removal_say("claims",
                    "%s %s/%s names a claim by annotation only: a new pod of it starts, "
                    "without a GPU",
                    kind, text_of(object, "namespace"), text_of(object, "name"));
    /* A pod that was made has its scheduler, whatever its owner's template says. */
    if (scheduler && !bound && (!owned || strcmp(kind, "Pod") == 0) &&
        text_has_item(buf_str(&u->schedulers), scheduler) && u->nwaiting++ < TOLD)
        removal_say("schedulers", "%s %s/%s names scheduler %s: Pending without it", kind,
                    text_of(object, "namespace"), text_of(object, "name"), scheduler);
}

static const struct text_pair lists[] = {
    /* path and kind */
    {"/api/v1/pods", "Pod"},
    {"/apis/apps/v1/deployments", "Deployment"},
    {"/apis/apps/v1/statefulsets", "StatefulSet"},
    {"/apis/apps/v1/daemonsets", "DaemonSet"},
    {"/apis/apps/v1/replicasets", "ReplicaSet"},
    {"/apis/batch/v1/jobs", "Job"},
    {"/apis/batch/v1/cronjobs", "CronJob"},
    {RESOURCE_CLAIMS_PATH, "ResourceClaim"},
};
#define PODS 0
#define CLAIMS (sizeof(lists) / sizeof(lists[0]) - 1)

/* `next`: where the list goes on, "" at its beginning and after its end. */
static int see_page(struct users *u, size_t list, struct buf *next, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf path = BUF_INIT(0);
    struct json page = {0}, items, object;
    struct json_iter it;
    int e;

    buf_printf(&path, "%s?limit=%d%s%s", lists[list].key, PAGE, next->len > 0 ? "&continue=" : "",
               buf_str(next));
    buf_reset(next);
    if (buf_error(&path) < 0)
        return err_errno(err, ENOMEM, "cannot list %s", lists[list].key);
    e = api_read(buf_str(&path), &parser, &page, err);
    if (e == -ENOENT && list == CLAIMS) /* an API server that is too old has none */
        return 0;
    items = json_get(page, "items");
    if (e == 0 && json_type(items) != JSON_ARRAY)
        e = err_set(err, EBADMSG, "the API server does not list %s", lists[list].key);
    it = json_iter(items);
    while (e == 0 && json_next(&it, NULL, &object)) {
        if (list == PODS)
            see_holder(u, object);
        if (list == CLAIMS)
            see_claim(u, object);
        else
            see_template(u, lists[list].value, object);
    }
    buf_puts(next, json_string_or(JSON_PATH(page, "metadata", "continue"), ""));
    if (e == 0 && (buf_error(next) < 0 || buf_error(&u->holders) < 0 || buf_error(&u->used) < 0))
        e = err_errno(err, ENOMEM, "cannot list the pods with shares");
    return e;
}

static int see_all(struct users *u, struct err *err) {
    _cleanup_buf_ struct buf next = BUF_INIT(0);
    int e = 0;

    for (size_t i = 0; e == 0 && i < sizeof(lists) / sizeof(lists[0]); i++)
        do
            e = see_page(u, i, &next, err);
        while (e == 0 && next.len > 0);
    if (u->nclaims > TOLD)
        removal_say("claims", "and %u more", u->nclaims - TOLD);
    if (u->nwaiting > TOLD)
        removal_say("schedulers", "and %u more", u->nwaiting - TOLD);
    if (u->nholders > TOLD)
        buf_printf(&u->holders, "\n  and %u more", u->nholders - TOLD);
    if (u->nused > TOLD)
        buf_printf(&u->used, "\n  and %u more", u->nused - TOLD);
    return e;
}

/* ---- the step ---- */

static void say_users(const struct users *u) {
    if (u->nholders == 0 && u->nused == 0)
        removal_say("shares", "no pod holds one");
    if (u->nholders > 0)
        removal_say("shares", "%u pods hold shares:%s", u->nholders, buf_str(&u->holders));
    if (u->nused > 0)
        removal_say("shares", "%u ResourceClaims are used:%s", u->nused, buf_str(&u->used));
}

static int refuse(const struct users *u, struct err *err) {
    if (u->nused == 0)
        return err_set(err, EBUSY,
                       "%u pods hold shares; delete them, or give --force: " KEPT_RUNNING,
                       u->nholders);
    return err_set(err, EBUSY,
                   "%u pods hold shares, and pods use %u ResourceClaims; delete these pods, or "
                   "give --force: " KEPT_RUNNING "; " KEPT_TERMINATING,
                   u->nholders, u->nused);
}

int removal_check_users(const struct removal *r, struct err *err) {
    _cleanup_(users_done) struct users u = {
        .schedulers = BUF_INIT(0), .holders = BUF_INIT(0), .used = BUF_INIT(0)};
    int e = read_names(r, &u.schedulers, err);

    if (e == 0)
        e = see_all(&u, err);
    if (e < 0)
        return e;
    say_users(&u);
    if ((u.nholders > 0 || u.nused > 0) && !r->force)
        return refuse(&u, err);
    if (u.nholders > 0 || u.nused > 0)
        removal_say("shares", KEPT_RUNNING);
    if (u.nused > 0)
        removal_say("shares", KEPT_TERMINATING);
    return 0;
}
