/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/objects/budget.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "kube/api/field.h"

int budget_parse(struct json object, struct budget *ret, struct err *err) {
    struct json meta = json_get(object, "metadata");
    struct json selector = JSON_PATH(object, "spec", "selector");
    struct budget b = {.has_selector = json_type(selector) == JSON_OBJECT};
    int64_t allowed = 0;
    if (field_copy(json_get(meta, "name"), b.name, sizeof(b.name)) < 0 ||
        field_copy(json_get(meta, "namespace"), b.namespace, sizeof(b.namespace)) < 0)
        return err_set(err, EINVAL, "not a disruption budget: no name or namespace");
    if (json_i64(JSON_PATH(object, "status", "disruptionsAllowed"), &allowed) && allowed > 0)
        b.allowed = allowed < INT32_MAX ? (int32_t) allowed : INT32_MAX;
    int r = label_selector_read(selector, &b.selector);
    if (r < 0)
        return err_set(err, -r, "disruption budget %s/%s: its selector cannot be read", b.namespace,
                       b.name);
    *ret = b;
    return 0;
}

void budget_done(struct budget *b) {
    label_terms_done(&b->selector);
}

bool budget_counts(const struct budget *b, const char *namespace, const char *labels) {
    return b->has_selector && strcmp(b->namespace, namespace) == 0 &&
           label_terms_hold(&b->selector, labels, NULL);
}
