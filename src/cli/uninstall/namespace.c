/* SPDX-License-Identifier: Apache-2.0 */

/* The namespace. That of deploy/ is Aliquot's own by its name. One that has other things in it, or
 * that a user has chosen, stays. */

#include <string.h>

#include "base/cleanup.h"
#include "cli/uninstall/contents.h"
#include "cli/uninstall/uninstall.h"

#define TOLD 10 /* objects that are named */

struct others {
    unsigned n;
    struct buf names;
};

static void others_done(struct others *others) {
    buf_done(&others->names);
}

/* Kubernetes makes those in every namespace. */
static bool is_of_kubernetes(const char *kind, const char *name) {
    static const char *const each[][2] = {
        {"ConfigMap", "kube-root-ca.crt"},
        {"ServiceAccount", "default"},
        {"Endpoints", "aliquot-webhook"}, /* goes with the Service */
    };

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        if (strcmp(each[i][0], kind) == 0 && strcmp(each[i][1], name) == 0)
            return true;
    return false;
}

static const char *owner_of(struct json meta) {
    struct json_iter it = json_iter(json_get(meta, "ownerReferences"));
    struct json owner;

    return json_next(&it, NULL, &owner) ? json_string_or(json_get(owner, "name"), "") : "";
}

/* What is neither on its way out nor of an object of Aliquot that has gone. */
static void see(const char *kind, struct json object, void *userdata) {
    struct others *others = userdata;
    struct json meta = json_get(object, "metadata");
    const char *name = json_string_or(json_get(meta, "name"), "");

    if (json_valid(json_get(meta, "deletionTimestamp")) ||
        strncmp(owner_of(meta), "aliquot-", 8) == 0 || is_of_kubernetes(kind, name))
        return;
    if (others->n++ < TOLD)
        buf_printf(&others->names, " %s/%s", kind, name);
}

static int find_others(const struct removal *r, struct others *others, struct err *err) {
    const struct contents_options options = {
        .namespace = r->system,
        .without_group = r->delete_crds ? "elasticgpu.io" : NULL,
        .see = see,
        .userdata = others,
    };
    int e = contents_read(&options, err);

    if (others->n > TOLD)
        buf_printf(&others->names, " and %u more", others->n - TOLD);
    if (e == 0 && buf_error(&others->names) < 0)
        e = err_errno(err, ENOMEM, "cannot name objects");
    return e;
}

int removal_of_namespace(const struct removal *r, struct err *err) {
    _cleanup_(others_done) struct others others = {.names = BUF_INIT(0)};
    _cleanup_json_ struct json_parser *parser = NULL;
    unsigned count = 0;
    struct json there;
    int e = removal_get(OBJECTS(.kind = "namespaces", .name = r->system), &parser, &there, err);

    if (e < 0)
        return e;
    if (!json_valid(there)) {
        removal_say("namespace", "%s is not there", r->system);
        return 0;
    }
    if (strcmp(r->system, "aliquot-system") != 0) {
        removal_say("namespace", "%s stays; if it has nothing else: kubectl delete namespace %s",
                    r->system, r->system);
        return 0;
    }
    e = find_others(r, &others, err);
    if (e < 0) {
        removal_say("namespace", "%s stays: what else is in it is not known (%s)", r->system,
                    err->text);
        return 1;
    }
    if (others.n > 0) {
        removal_say("namespace", "%s stays, with:%s", r->system, buf_str(&others.names));
        return 0;
    }
    e = removal_delete(OBJECTS(.kind = "namespaces", .name = r->system), &count, err);
    if (e == 0)
        removal_say("namespace", "%s is being removed, which takes some seconds", r->system);
    return e;
}
