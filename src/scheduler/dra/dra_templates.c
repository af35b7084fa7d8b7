/* SPDX-License-Identifier: Apache-2.0 */

/* The ResourceClaimTemplates that pods with requests by resource names name, and those that were
 * made for such pods, as the watch shows them. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kube/api/field.h"
#include "kube/objects/claim_template.h"
#include "scheduler/dra/dra_internal.h"

static void make_key(const char *namespace, const char *name, char ret[static DRA_KEY_MAX]) {
    (void) snprintf(ret, DRA_KEY_MAX, "%s/%s", namespace, name);
}

static struct dra_template *find(const struct dra *d, const char *namespace, const char *name) {
    struct dra_template *t;
    char key[DRA_KEY_MAX];
    make_key(namespace, name, key);
    HASH_FIND_STR(d->templates, key, t);
    return t;
}

struct dra_template *dra_template_get(struct dra *d, const char *namespace, const char *name) {
    struct dra_template *t = find(d, namespace, name);
    struct container_request request = {0};
    if (t || !(t = calloc(1, sizeof(*t))))
        return t;
    make_key(namespace, name, t->key);
    (void) snprintf(t->namespace, sizeof(t->namespace), "%s", namespace);
    (void) snprintf(t->name, sizeof(t->name), "%s", name);
    enum request_problem problem = request_code_read(name, &request);
    t->refused = problem != REQUEST_OK;
    if (t->refused)
        (void) snprintf(t->why, sizeof(t->why), "%s",
                        request_problem_text(problem, (struct dialect_pair){0}));
    HASH_ADD_STR(d->templates, key, t);
    return hash_added_or_freed(t);
}

void dra_template_drop(struct dra *d, struct dra_template *t) {
    HASH_DEL(d->templates, t);
    free(t);
}

/* ---- what the watch shows ---- */

void dra_template_forget(struct dra *d, struct dra_template *t) {
    t->there = false;
    d->news++;
}

int dra_see_template(struct dra *d, struct json object, bool gone, struct err *err) {
    struct json meta = json_get(object, "metadata");
    char namespace[KUBE_LABEL_MAX], uid[KUBE_UID_MAX];
    if (!claim_template_is_made(object))
        return 0;
    if (field_copy(json_get(meta, "namespace"), namespace, sizeof(namespace)) < 0 ||
        field_copy(json_get(meta, "uid"), uid, sizeof(uid)) < 0)
        return err_set(err, EINVAL, "not a ResourceClaimTemplate: uid or namespace is missing");
    struct dra_template *t = dra_template_get(d, namespace, json_string(json_get(meta, "name")));
    if (!t)
        return err_errno(err, ENOMEM, "cannot keep a ResourceClaimTemplate");
    t->listed = t->there = !gone;
    memcpy(t->uid, uid, sizeof(uid));
    if (t->there && !t->refused)
        t->why[0] = '\0';
    d->news++;
    return 0;
}

const char *dra_template_why(const struct dra *d, const struct dra_pod *pod,
                             const struct pod_device_claim *of, bool *ret_refused) {
    const struct dra_template *t = of->code[0] ? find(d, pod->object.namespace, of->code) : NULL;
    *ret_refused = t && t->refused;
    return t && t->why[0] ? t->why : NULL;
}
