/* SPDX-License-Identifier: Apache-2.0 */

/* Lookups of objects: by name, by user, and what a pod gets of its claims. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "claims/model.h"

const struct egpu_claim *claims_find(const struct claims *c, const char *namespace,
                                     const char *name) {
    const struct claim_item *item = claims_claim_item(c, namespace, name);
    return item ? &item->o : NULL;
}

const struct egpu *claims_egpu(const struct claims *c, const char *name) {
    const struct egpu_item *item = claims_egpu_find(c, name);
    return item ? &item->o : NULL;
}

const struct egpu_class *claims_class(const struct claims *c, const char *name) {
    const struct class_item *item = claims_class_find(c, name);
    return item ? &item->o : NULL;
}

bool egpu_is_of(const struct egpu *e, const struct egpu_claim *claim) {
    return e->reserved && strcmp(e->claim_uid, claim->meta.uid) == 0 &&
           strcmp(e->claim_name, claim->meta.name) == 0 &&
           strcmp(e->claim_namespace, claim->meta.namespace) == 0;
}

/* The newest default class; by name among equals, so that the choice is deterministic. */
const struct egpu_class *claims_default_class(const struct claims *c) {
    const struct egpu_class *best = NULL;
    for (const struct class_item *item = c->classes; item; item = item->hh.next) {
        int newer = best ? strcmp(item->o.meta.created, best->meta.created) : 1;
        if (item->o.is_default &&
            (newer > 0 || (newer == 0 && best && strcmp(item->o.meta.name, best->meta.name) < 0)))
            best = &item->o;
    }
    return best;
}

const struct egpu_class *claims_class_of(const struct claims *c, const struct egpu_claim *claim) {
    return claim->has_class ? claims_class(c, claim->class) : NULL;
}

uint32_t claims_pods_of(const struct claims *c, const struct egpu_claim *claim) {
    const struct egpu_class *class = claims_class_of(c, claim);
    return class ? class->pods : 1;
}

static bool names(const struct pod_item *pod, const struct egpu_claim *claim) {
    if (strcmp(pod->namespace, claim->meta.namespace) != 0)
        return false;
    for (uint32_t i = 0; i < pod->claims.n; i++)
        if (strcmp(pod->claims.list[i].claim, claim->meta.name) == 0)
            return true;
    return false;
}

void claims_users(const struct claims *c, const struct egpu_claim *claim,
                  bool (*each)(const char *uid, const char *name, void *userdata), void *userdata) {
    for (const struct pod_item *pod = c->pods; pod; pod = pod->hh.next)
        if (names(pod, claim) && !each(pod->key, pod->name, userdata))
            return;
}

void claims_each_egpu(const struct claims *c, void (*each)(const struct egpu *e, void *userdata),
                      void *userdata) {
    for (const struct egpu_item *item = c->egpus; item; item = item->hh.next)
        each(&item->o, userdata);
}

static bool is_unmade(const struct claims *c, const struct egpu_claim *claim) {
    const struct egpu_class *class = claims_class_of(c, claim);

    return !claim->meta.deleting && !claim->problem[0] && !claim->egpu[0] &&
           !claim->bind_completed && claim->selector.n == 0 && class &&
           provisioner_find(class->provisioner);
}

void claims_each_unmade(struct claims *c,
                        bool (*each)(const struct egpu_claim *claim, void *userdata),
                        void *userdata) {
    for (struct claim_item *item = c->claims; item; item = item->hh.next)
        if (!item->calm && is_unmade(c, &item->o) && each(&item->o, userdata))
            item->make_ms = item->tries = 0;
}

void claims_each_pod(const struct claims *c, void (*each)(const char *uid, void *userdata),
                     void *userdata) {
    for (const struct pod_item *pod = c->pods; pod; pod = pod->hh.next)
        each(pod->key, userdata);
}

/* A pod that waits for its node does not continue with a claim that is being deleted. */
bool claims_in_use(const struct claims *c, const struct egpu_claim *claim) {
    for (const struct pod_item *pod = c->pods; pod; pod = pod->hh.next)
        if (names(pod, claim) && (pod->scheduled || c->world.begun(c->world.self, pod->key)))
            return true;
    return false;
}

/* ---- what a container gets ---- */

/* 1/n of it. Whole cards are shared as percents of them. */
static void divide(struct claim_amount *a, uint32_t n) {
    if (n <= 1)
        return;
    a->core /= n;
    a->memory /= n;
    a->whole = false;
}

int claims_may_make(const struct egpu_class *class, const struct egpu_claim *claim,
                    struct err *why) {
    const struct provisioner *p = provisioner_find(class->provisioner);
    return p ? p->admit(p, class, &claim->request, why) : 0;
}

static int use_waiting(const struct claims *c, const struct egpu_claim *claim,
                       struct claims_use *ret, struct err *why) {
    const struct egpu_class *class = claims_class_of(c, claim);
    if (!class || !class->wait_consumer || claim->egpu[0] || claim->problem[0])
        return err_set(why, EAGAIN, "claim %s is not bound: %s", claim->meta.name,
                       claim->word.message[0] ? claim->word.message : "it was only just made");
    ret->egpu = NULL;
    ret->amount = claim->request;
    return claims_may_make(class, claim, why) < 0 ? -EAGAIN : 0;
}

static int use_bound(const struct claims *c, const struct egpu_claim *claim, struct claims_use *ret,
                     struct err *why) {
    const struct egpu_item *e = claims_egpu_find(c, claim->egpu);
    if (claim->phase == CLAIM_LOST || !e || !egpu_is_of(&e->o, claim))
        return err_set(why, EAGAIN, "claim %s has lost its ElasticGPU %s: delete the claim",
                       claim->meta.name, claim->egpu);
    ret->egpu = &e->o;
    ret->amount = e->o.capacity;
    return 0;
}

/* How many of the pod's first `n` containers with a claim name that one. */
static uint32_t count_naming(const struct pod_item *pod, uint32_t n, const char *claim) {
    uint32_t naming = 0;
    for (uint32_t i = 0; i < n; i++)
        naming += strcmp(pod->claims.list[i].claim, claim) == 0;
    return naming;
}

static int use_claim(const struct claims *c, const struct pod_item *pod, uint32_t i,
                     struct claims_use *ret, struct err *why) {
    const struct pod_claim *use = &pod->claims.list[i];
    const struct egpu_claim *claim = claims_find(c, pod->namespace, use->claim);
    if (!claim)
        return err_set(why, EAGAIN, "claim %s of container %s does not exist in namespace %s",
                       use->claim, use->container, pod->namespace);
    /* Who runs keeps what it has of it: it stays until then. */
    if (claim->meta.deleting && !pod->scheduled)
        return err_set(why, EAGAIN, "claim %s is being deleted", use->claim);
    if (use->template && strcmp(claim->owner_pod, pod->key) != 0)
        return err_set(why, EAGAIN,
                       "claim %s is not this pod's: it was not made from the template of container "
                       "%s; delete it, or give the pod another name",
                       use->claim, use->container);
    ret->claim = claim;
    int r = claim->bind_completed ? use_bound(c, claim, ret, why) : use_waiting(c, claim, ret, why);
    if (r == 0 && ret->egpu) /* between all that may use it at a time */
        divide(&ret->amount,
               claims_pods_of(c, claim) * count_naming(pod, pod->claims.n, use->claim));
    else if (r == 0 && count_naming(pod, i, use->claim) > 0)
        ret->amount = (struct claim_amount){0};
    return r;
}

int claims_use(const struct claims *c, const char *pod_uid, uint32_t i, const char **ret_container,
               struct claims_use *ret, struct err *why) {
    const struct pod_item *pod = claims_pod_find(c, pod_uid);
    if (!pod || i >= pod->claims.n)
        return err_set(why, ENOENT, "the pod names no such claim");
    *ret_container = pod->claims.list[i].container;
    return use_claim(c, pod, i, ret, why);
}
