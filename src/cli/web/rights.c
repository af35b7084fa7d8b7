/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/web/rights.h"

#include "base/cleanup.h"
#include "cli/cluster/api.h"
#include "wire/json_write.h"

#define PATH "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
#define OWN_GROUP "elasticgpu.io"

enum place { CLUSTER, CHOSEN, SYSTEM };

/* With the cards first: without them a reading is small. */
static const struct row {
    unsigned right;
    enum place place;
    const char *verb, *group, *version, *resource, *subresource, *name;
} rows[] = {
    {RIGHT_CARDS, CLUSTER, "list", OWN_GROUP, "v1alpha1", "gpus", NULL, NULL},
    {RIGHT_WAITING, CHOSEN, "list", "", "v1", "pods", NULL, NULL},
    {RIGHT_QUOTAS, CHOSEN, "list", OWN_GROUP, "v1alpha1", "elasticgpuquotas", NULL, NULL},
    {RIGHT_CLAIMS, CHOSEN, "list", OWN_GROUP, "v1alpha1", "elasticgpuclaims", NULL, NULL},
    {RIGHT_AGENTS, SYSTEM, "list", "", "v1", "pods", NULL, NULL},
    {RIGHT_FIGURES, SYSTEM, "create", "", "v1", "serviceaccounts", "token", "aliquot-figures"},
    {RIGHT_PROXY, SYSTEM, "get", "", "v1", "pods", "proxy", NULL},
};

static void write_review(const struct row *row, const char *namespace, struct buf *ret) {
    struct json_writer w = {.out = ret};

    json_object_begin(&w, NULL);
    json_put(&w, "apiVersion", "authorization.k8s.io/v1", "kind", "SelfSubjectAccessReview");
    json_object_begin(&w, "spec");
    json_object_begin(&w, "resourceAttributes");
    json_put(&w, "verb", row->verb, "group", row->group, "version", row->version, "resource",
             row->resource);
    if (row->subresource)
        json_put_string(&w, "subresource", row->subresource);
    if (row->name)
        json_put_string(&w, "name", row->name);
    if (namespace)
        json_put_string(&w, "namespace", namespace);
    json_object_end(&w);
    json_object_end(&w);
    json_object_end(&w);
}

static int is_allowed(const struct row *row, const char *namespace, struct err *err) {
    _cleanup_json_ struct json_parser *parser = NULL;
    _cleanup_buf_ struct buf text = BUF_INIT(0);
    struct json answer;
    bool allowed = false;

    write_review(row, namespace, &text);
    int r = buf_error(&text);
    if (r < 0)
        return err_errno(err, -r, "cannot review the rights of a token");
    r = api_create(PATH, buf_str(&text), &parser, &answer, err);
    if (r < 0)
        return r;
    (void) json_bool(JSON_PATH(answer, "status", "allowed"), &allowed);
    return allowed;
}

int rights_review(const char *system, const char *namespace, unsigned *ret, struct err *err) {
    unsigned found = 0;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *const names[] = {[CLUSTER] = NULL, [CHOSEN] = namespace, [SYSTEM] = system};
        int r = is_allowed(&rows[i], names[rows[i].place], err);
        if (r < 0)
            return r;
        found |= r > 0 ? rows[i].right : 0;
        if (!(found & RIGHT_CARDS))
            break;
    }
    *ret = found;
    return 0;
}
