/* SPDX-License-Identifier: Apache-2.0 */

/* Objects of Aliquot's own kinds. */

#include <string.h>

#include "base/cleanup.h"
#include "cli/uninstall/uninstall.h"
#include "kube/api/client.h"

#define GROUP ".elasticgpu.io"

static const char *const kinds[] = {
    "elasticgpuclaims" GROUP, "elasticgpus" GROUP, "elasticgpuclasses" GROUP,
    "elasticgpuquotas" GROUP, "gpus" GROUP,        "elasticgpureservations" GROUP,
};
#define PROTECTED 2 /* the first of these, by the controller's finalizers */

/* Removes the finalizers of this domain; all of them where the CRD goes, which waits for every one.
 */
static int release(const char *kind, struct json object, bool all, struct err *err) {
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    struct json meta = json_get(object, "metadata");
    struct json_iter it = json_iter(json_get(meta, "finalizers"));
    const char *namespace = json_string(json_get(meta, "namespace"));
    const char *name = json_string_or(json_get(meta, "name"), "");
    struct json finalizer;
    unsigned kept = 0, removed = 0;

    buf_puts(&patch, "{\"metadata\":{\"finalizers\":[");
    while (json_next(&it, NULL, &finalizer)) {
        if (all || strncmp(json_string_or(finalizer, ""), "elasticgpu.io/", 14) == 0) {
            removed++;
            continue;
        }
        if (kept++)
            buf_putc(&patch, ',');
        json_print(&patch, finalizer);
    }
    /* With the version that was read, another finalizer that was added since is not lost. */
    buf_puts(&patch, "],\"resourceVersion\":");
    json_print(&patch, json_get(meta, "resourceVersion"));
    buf_puts(&patch, "}}");
    if (removed == 0)
        return 0;
    int e = buf_error(&patch) < 0 ? err_errno(err, ENOMEM, "cannot release %s", name)
                                  : removal_if_there(removal_patch(
                                        OBJECTS(.kind = kind, .namespace = namespace, .name = name),
                                        KUBE_MERGE_PATCH, buf_str(&patch), err));
    return e < 0 ? e : 1;
}

static int release_kind(const char *kind, bool all, unsigned *count, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, object;
    int e = removal_get(OBJECTS(.kind = kind), &parser, &list, err);
    struct json_iter it = json_iter(json_get(list, "items"));

    while (e >= 0 && json_next(&it, NULL, &object)) {
        e = release(kind, object, all, err);
        *count += e > 0;
    }
    return e < 0 ? e : 0;
}

int removal_of_finalizers(const struct removal *r, struct err *err) {
    unsigned count = 0;
    int e = 0;

    for (size_t i = 0;
         e == 0 && i < (r->delete_crds ? sizeof(kinds) / sizeof(kinds[0]) : PROTECTED); i++)
        e = release_kind(kinds[i], r->delete_crds, &count, err);
    if (e == 0)
        removal_say("finalizers", "%u objects released", count);
    return e;
}

int removal_of_gpus(const struct removal *r, struct err *err) {
    unsigned count = 0;
    int e = removal_delete(OBJECTS(.kind = "gpus" GROUP), &count, err);

    (void) r;
    if (e == 0)
        removal_say("gpus", "%u objects removed", count);
    return e;
}

int removal_of_crds(const struct removal *r, struct err *err) {
    unsigned count = 0;
    int e = 0;

    if (!r->delete_crds) {
        removal_say("crds", "kept, with claims, ElasticGPUs, classes, quotas and reservations; "
                            "--crds=delete removes all of them");
        return 0;
    }
    for (size_t i = 0; e == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        e = removal_delete(OBJECTS(.kind = "customresourcedefinitions", .name = kinds[i]), &count,
                           err);
    if (e == 0)
        removal_say("crds", "%u removed, with all their objects", count);
    return e;
}
