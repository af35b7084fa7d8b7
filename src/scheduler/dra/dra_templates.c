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

#define AS_TEXT(number) #number
#define TEXT_OF(macro) AS_TEXT(macro)
#define FULL                                                                                       \
    "its template cannot be made: the namespace has " TEXT_OF(                                     \
        DRA_NAMESPACE_TEMPLATES) " of them,"                                                       \
                                 " and one goes when no pod requests its amounts any more"

void dra_key(const char *namespace, const char *name, char ret[static DRA_KEY_MAX]) {
    (void) snprintf(ret, DRA_KEY_MAX, "%s/%s", namespace, name);
}

static struct dra_template *find(const struct dra *d, const char *namespace, const char *name) {
    struct dra_template *t;
    char key[DRA_KEY_MAX];
    dra_key(namespace, name, key);
    HASH_FIND_STR(d->templates, key, t);
    return t;
}

static struct dra_namespace *find_namespace(const struct dra *d, const char *name) {
    struct dra_namespace *namespace;
    HASH_FIND_STR(d->namespaces, name, namespace);
    return namespace;
}

static struct dra_namespace *get_namespace(struct dra *d, const char *name) {
    struct dra_namespace *namespace = find_namespace(d, name);
    if (namespace || !(namespace = calloc(1, sizeof(*namespace))))
        return namespace;
    (void) snprintf(namespace->name, sizeof(namespace->name), "%s", name);
    HASH_ADD_STR(d->namespaces, name, namespace);
    return hash_added_or_freed(namespace);
}

static void leave(struct dra *d, struct dra_namespace *namespace) {
    if (--namespace->ntemplates > 0)
        return;
    HASH_DEL(d->namespaces, namespace);
    free(namespace);
}

static struct dra_template *get(struct dra *d, const char *namespace, const char *name) {
    struct dra_template *t = find(d, namespace, name);
    if (t || !(t = calloc(1, sizeof(*t))))
        return t;
    if (!(t->namespace = get_namespace(d, namespace))) {
        free(t);
        return NULL;
    }
    t->namespace->ntemplates++;
    dra_key(namespace, name, t->key);
    (void) snprintf(t->name, sizeof(t->name), "%s", name);
    HASH_ADD_STR(d->templates, key, t);
    if (hash_added(t))
        return t;
    leave(d, t->namespace);
    free(t);
    return NULL;
}

void dra_template_drop(struct dra *d, struct dra_template *t) {
    HASH_DEL(d->templates, t);
    leave(d, t->namespace);
    free(t);
}

void dra_template_release(struct dra *d, struct dra_template *t) {
    if (!t->there && !t->writing && t->users == 0)
        dra_template_drop(d, t);
}

void dra_templates_lost(struct dra *d) {
    struct dra_template *t, *next;
    HASH_ITER(hh, d->templates, t, next) {
        t->users = 0;
        dra_template_release(d, t);
    }
}

static bool is_full(const struct dra *d, const char *namespace) {
    const struct dra_namespace *of = find_namespace(d, namespace);
    return of && of->ntemplates >= DRA_NAMESPACE_TEMPLATES;
}

static enum request_problem problem_of(const char *code) {
    struct container_request request = {0};
    return code[0] ? request_code_read(code, &request) : REQUEST_OK;
}

struct dra_template *dra_template_of(struct dra *d, const struct dra_pod *pod,
                                     const struct pod_device_claim *of) {
    if (!of->code[0])
        return NULL;
    struct dra_template *t = find(d, pod->object.namespace, of->code);
    const bool waits = !of->claim[0] && !pod->object.deleting;
    if (t || !waits || is_full(d, pod->object.namespace) || problem_of(of->code) != REQUEST_OK)
        return t;
    return get(d, pod->object.namespace, of->code);
}

/* ---- what the watch shows ---- */

void dra_template_forget(struct dra *d, struct dra_template *t) {
    t->there = false;
    d->news++;
    dra_template_release(d, t);
}

int dra_see_template(struct dra *d, struct json object, bool gone, struct err *err) {
    struct json meta = json_get(object, "metadata");
    char namespace[KUBE_LABEL_MAX], uid[KUBE_UID_MAX];
    if (!claim_template_is_made(object))
        return 0;
    if (field_copy(json_get(meta, "namespace"), namespace, sizeof(namespace)) < 0 ||
        field_copy(json_get(meta, "uid"), uid, sizeof(uid)) < 0)
        return err_set(err, EINVAL, "not a ResourceClaimTemplate: uid or namespace is missing");
    const char *name = json_string(json_get(meta, "name"));
    struct dra_template *t = gone ? find(d, namespace, name) : get(d, namespace, name);
    if (gone) {
        if (t)
            dra_template_forget(d, t);
        return 0;
    }
    if (!t)
        return err_errno(err, ENOMEM, "cannot keep a ResourceClaimTemplate");
    t->listed = t->there = true;
    memcpy(t->uid, uid, sizeof(uid));
    t->why[0] = '\0';
    d->news++;
    return 0;
}

const char *dra_template_why(const struct dra *d, const struct dra_pod *pod,
                             const struct pod_device_claim *of, bool *ret_refused) {
    const struct dra_template *t = find(d, pod->object.namespace, of->code);
    enum request_problem problem = problem_of(of->code);
    *ret_refused = problem != REQUEST_OK;
    if (*ret_refused)
        return request_problem_text(problem, (struct dialect_pair){0});
    if (!t && of->code[0] && is_full(d, pod->object.namespace))
        return FULL;
    return t && t->why[0] ? t->why : NULL;
}
