/* SPDX-License-Identifier: Apache-2.0 */

/* The namespace. That of deploy/ is Aliquot's own by its name. One that has other things in it, or
 * that a user has chosen, stays. */

#include <string.h>

#include "base/cleanup.h"
#include "cli/cluster/kubectl.h"
#include "cli/uninstall/uninstall.h"

#define TOLD 10 /* objects that are named */

/* Of each object: kind/name, the name of its owner, and when its removal began. */
#define COLUMNS                                                                                    \
    "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.ownerReferences[0].name} "      \
    "{.metadata.deletionTimestamp}{\"\\n\"}{end}"

static bool has_prefix(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Kubernetes makes those in every namespace. */
static bool is_of_kubernetes(const char *object) {
    static const char *const each[] = {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default",
                                       "Endpoints/aliquot-webhook" /* goes with the Service */};

    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++)
        if (strcmp(object, each[i]) == 0)
            return true;
    return has_prefix(object, "Event/") || has_prefix(object, "PodMetrics/");
}

/* Appends what is neither on its way out nor of an object of Aliquot that has gone. */
static unsigned name_others(char *lines, struct buf *names) {
    unsigned n = 0;
    char *next;

    for (char *line = lines; line && line[0]; line = next) {
        char *owner, *since;

        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        owner = strchr(line, ' ');
        since = owner ? strchr(owner + 1, ' ') : NULL;
        if (!since)
            continue;
        *owner++ = '\0';
        *since++ = '\0';
        if (since[0] || has_prefix(owner, "aliquot-") || is_of_kubernetes(line))
            continue;
        if (n++ < TOLD)
            buf_printf(names, " %s", line);
    }
    if (n > TOLD)
        buf_printf(names, " and %u more", n - TOLD);
    return n;
}

/* The kinds whose objects can be listed, with commas between. Those of CRDs that have just been
 * deleted may be gone when they are asked for, and their objects go. */
static int list_kinds(const struct removal *r, struct buf *ret, struct err *err) {
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    int e = KUBECTL(&text, err, "api-resources", "--namespaced", "--verbs=list", "-o", "name");
    char *next;

    if (e < 0)
        return e;
    for (char *line = text.data; line && line[0]; line = next) {
        const char *group;

        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        group = strchr(line, '.');
        if (!(r->delete_crds && group && strcmp(group, ".elasticgpu.io") == 0))
            buf_printf(ret, "%s%s", ret->len > 0 ? "," : "", line);
    }
    return buf_error(ret) < 0 ? err_errno(err, ENOMEM, "cannot list kinds") : 0;
}

static int find_others(const struct removal *r, unsigned *ret, struct buf *names, struct err *err) {
    _cleanup_buf_ struct buf kinds = BUF_INIT(0);
    _cleanup_buf_ struct buf lines = BUF_INIT(0);
    int e = list_kinds(r, &kinds, err);

    if (e == 0)
        e = KUBECTL(&lines, err, "get", buf_str(&kinds), "-n", r->system, "--ignore-not-found",
                    "-o", COLUMNS);
    if (e < 0)
        return e;
    *ret = name_others(lines.data, names);
    return buf_error(names) < 0 ? err_errno(err, ENOMEM, "cannot name objects") : 0;
}

int removal_of_namespace(const struct removal *r, struct err *err) {
    _cleanup_buf_ struct buf there = BUF_INIT(0);
    _cleanup_buf_ struct buf names = BUF_INIT(0);
    unsigned count = 0, others = 0;
    int e =
        KUBECTL(&there, err, "get", "namespaces", r->system, "--ignore-not-found", "-o", "name");

    if (e < 0)
        return e;
    if (there.len == 0) {
        removal_say("namespace", "%s is not there", r->system);
        return 0;
    }
    if (strcmp(r->system, "aliquot-system") != 0) {
        removal_say("namespace", "%s stays; if it has nothing else: kubectl delete namespace %s",
                    r->system, r->system);
        return 0;
    }
    e = find_others(r, &others, &names, err);
    if (e < 0) {
        removal_say("namespace", "%s stays: what else is in it is not known (%s)", r->system,
                    err->text);
        return 1;
    }
    if (others > 0) {
        removal_say("namespace", "%s stays, with:%s", r->system, buf_str(&names));
        return 0;
    }
    e = REMOVAL_DELETE(&count, err, "namespaces", r->system);
    if (e == 0)
        removal_say("namespace", "%s is being removed, which takes some seconds", r->system);
    return e;
}
