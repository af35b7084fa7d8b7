/* SPDX-License-Identifier: Apache-2.0 */

/* What Dynamic Resource Allocation has of Aliquot: ResourceSlices, DeviceClasses, the templates of
 * pods that request by resource names, allocations of claims that no pod uses, and the gate of
 * pods. Those of other drivers and of users stay. */

#include <string.h>

#include "base/cleanup.h"
#include "cli/uninstall/uninstall.h"
#include "kube/api/client.h"
#include "kube/objects/claim_template.h"
#include "kube/objects/share_holder.h"
#include "model/dra.h"
#include "wire/json_write.h"

/* ---- claims ---- */

static bool is_of_aliquot(struct json classes, struct json request) {
    const char *name = json_string_or(json_get(request, "deviceClassName"), "");
    struct json_iter it = json_iter(json_get(classes, "items"));
    struct json class;

    if (strcmp(name, DRA_DRIVER) == 0 || strcmp(name, DRA_FIRST_FIT_CLASS) == 0)
        return true;
    while (json_next(&it, NULL, &class))
        if (json_is_string(JSON_PATH(class, "metadata", "name"), name))
            return true;
    return false;
}

/* Whether each request can get devices of this driver only. */
static bool asks_aliquot(struct json classes, struct json claim) {
    struct json_iter it = json_iter(JSON_PATH(claim, "spec", "devices", "requests"));
    struct json request, choice;
    unsigned n = 0;

    while (json_next(&it, NULL, &request)) {
        struct json_iter choices = json_iter(json_get(request, "firstAvailable"));

        n++;
        if (json_valid(json_get(request, "exactly")) &&
            !is_of_aliquot(classes, json_get(request, "exactly")))
            return false;
        while (json_next(&choices, NULL, &choice))
            if (!is_of_aliquot(classes, choice))
                return false;
    }
    return n > 0;
}

/* Whether all that it has is of this driver. */
static bool has_devices(struct json claim) {
    struct json_iter it = json_iter(JSON_PATH(claim, "status", "allocation", "devices", "results"));
    struct json result;
    unsigned n = 0;

    for (; json_next(&it, NULL, &result); n++)
        if (!json_is_string(json_get(result, "driver"), DRA_DRIVER))
            return false;
    return n > 0;
}

static bool is_used(struct json claim) {
    return json_size(JSON_PATH(claim, "status", "reservedFor")) > 0;
}

/* `change` begins after the version that was read, so that nothing that came since is lost. */
static int change_claim(struct json claim, const char *subresource, const struct buf *change,
                        struct err *err) {
    _cleanup_buf_ struct buf patch = BUF_INIT(0);
    struct json meta = json_get(claim, "metadata");
    const char *name = json_string_or(json_get(meta, "name"), "");

    buf_puts(&patch, "{\"metadata\":{\"resourceVersion\":");
    json_print(&patch, json_get(meta, "resourceVersion"));
    buf_append(&patch, change->data, change->len);
    if (buf_error(change) < 0 || buf_error(&patch) < 0)
        return err_errno(err, ENOMEM, "cannot release ResourceClaim %s", name);
    return removal_if_there(removal_patch(
        OBJECTS(.kind = "resourceclaims", .namespace = json_string(json_get(meta, "namespace")),
                .name = name, .subresource = subresource),
        KUBE_MERGE_PATCH, buf_str(&patch), err));
}

/* Without the driver it would keep pods on a node where they never start. */
static int take_back(struct json claim, struct err *err) {
    _cleanup_buf_ struct buf change = BUF_INIT(0);

    buf_puts(&change, "},\"status\":{\"allocation\":null,\"devices\":null}}");
    return change_claim(claim, "status", &change, err);
}

static int unprotect(struct json claim, struct err *err) {
    _cleanup_buf_ struct buf change = BUF_INIT(0);
    struct json_iter it = json_iter(JSON_PATH(claim, "metadata", "finalizers"));
    struct json finalizer;
    unsigned kept = 0;

    buf_puts(&change, ",\"finalizers\":[");
    while (json_next(&it, NULL, &finalizer)) {
        if (json_is_string(finalizer, DRA_FINALIZER))
            continue;
        if (kept++)
            buf_putc(&change, ',');
        json_print(&change, finalizer);
    }
    buf_puts(&change, "]}}");
    return change_claim(claim, NULL, &change, err);
}

struct claims {
    struct json classes; /* with the label, also those of administrators */
    unsigned released, used;
};

static int take_back_claim(struct claims *c, struct json claim, struct err *err) {
    c->used += claim_holds_share(claim);
    return has_devices(claim) && !is_used(claim) ? take_back(claim, err) : 0;
}

static int unprotect_claim(struct claims *c, struct json claim, struct err *err) {
    bool free = !json_valid(JSON_PATH(claim, "status", "allocation")) && !is_used(claim) &&
                json_has_string(JSON_PATH(claim, "metadata", "finalizers"), DRA_FINALIZER) &&
                asks_aliquot(c->classes, claim);
    int e = free ? unprotect(claim, err) : 0;

    c->released += free && e == 0;
    return e;
}

static int each_claim(struct claims *c,
                      int (*see)(struct claims *c, struct json claim, struct err *err),
                      struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, claim;
    int e = removal_get(OBJECTS(.kind = "resourceclaims"), &parser, &list, err);
    struct json_iter it = json_iter(json_get(list, "items"));

    while (e == 0 && json_next(&it, NULL, &claim))
        e = see(c, claim, err);
    return e;
}

/* Two lists: the first write changes the version that the second one names. */
static int release_claims(struct claims *c, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    int e = removal_get(OBJECTS(.kind = "deviceclasses", .labels = DRA_CLASS_LABEL), &parser,
                        &c->classes, err);

    if (e == 0)
        e = each_claim(c, take_back_claim, err);
    return e < 0 ? e : each_claim(c, unprotect_claim, err);
}

/* ---- pods ---- */

/* With the gate kube-scheduler would not even say that the pod's class is gone. */
static int open_gate(struct json pod, struct err *err) {
    static const char patch[] =
        "{\"spec\":{\"schedulingGates\":[{\"$patch\":\"delete\",\"name\":\"" DRA_GATE "\"}]}}";
    struct json meta = json_get(pod, "metadata");

    return removal_if_there(
        removal_patch(OBJECTS(.kind = "pods", .namespace = json_string(json_get(meta, "namespace")),
                              .name = json_string_or(json_get(meta, "name"), "")),
                      KUBE_STRATEGIC_PATCH, patch, err));
}

static void say_gates(const struct removal *r, unsigned n) {
    if (n > 0 && r->caller == REMOVAL_BY_USER)
        removal_say("devices", "%u pods released from the gate " DRA_GATE ": they stay Pending", n);
    else if (n > 0)
        removal_say("devices",
                    "%u pods have the gate " DRA_GATE " and stay Pending; `aliquot uninstall` "
                    "takes it off",
                    n);
}

/* helm's hook has no right to change pods of tenants. */
static int open_gates(const struct removal *r, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, pod;
    unsigned n = 0;
    int e =
        removal_get(OBJECTS(.kind = "pods", .fields = "status.phase=Pending"), &parser, &list, err);
    struct json_iter it = json_iter(json_get(list, "items"));

    while (e == 0 && json_next(&it, NULL, &pod)) {
        if (!json_valid(json_find(JSON_PATH(pod, "spec", "schedulingGates"), "name", DRA_GATE)))
            continue;
        n++;
        e = r->caller == REMOVAL_BY_USER ? open_gate(pod, err) : 0;
    }
    if (e == 0)
        say_gates(r, n);
    return e;
}

/* ---- templates ---- */

static int delete_templates(unsigned *count, struct err *err) {
    static const char kind[] = "resourceclaimtemplates";
    _cleanup_json_ struct json_parser *parser = NULL;
    struct json list, template;
    int e = removal_get(OBJECTS(.kind = kind, .labels = DRA_TEMPLATE_LABEL "=" DRA_TEMPLATE_MAKER),
                        &parser, &list, err);
    struct json_iter it = json_iter(json_get(list, "items"));

    while (e == 0 && json_next(&it, NULL, &template)) {
        struct json meta = json_get(template, "metadata");

        if (claim_template_is_made(template))
            e = removal_delete(OBJECTS(.kind = kind,
                                       .namespace = json_string(json_get(meta, "namespace")),
                                       .name = json_string(json_get(meta, "name"))),
                               count, err);
    }
    return e;
}

/* ---- the step ---- */

/* After the agents, which would publish their cards again, and the scheduler, which would allocate
 * again. */
int removal_of_devices(const struct removal *r, struct err *err) {
    static const char *const classes[] = {DRA_DRIVER, DRA_FIRST_FIT_CLASS};
    struct claims claims = {0};
    unsigned count = 0, templates = 0;
    int e = removal_delete(OBJECTS(.kind = "resourceslices", .fields = "spec.driver=" DRA_DRIVER),
                           &count, err);

    if (e == 0)
        e = release_claims(&claims, err);
    for (size_t i = 0; e == 0 && i < sizeof(classes) / sizeof(classes[0]); i++)
        e = removal_delete(OBJECTS(.kind = "deviceclasses", .name = classes[i]), &count, err);
    if (e == 0)
        e = delete_templates(&templates, err);
    if (e == 0)
        e = open_gates(r, err);
    if (e < 0)
        return e;
    removal_say("devices", "%u slices and classes removed, %u claims released", count,
                claims.released);
    if (templates > 0)
        removal_say("devices", "%u templates of pods removed", templates);
    if (claims.used > 0)
        removal_say("devices", "%u claims stay allocated to the pods that use them", claims.used);
    return 0;
}
