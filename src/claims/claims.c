/* SPDX-License-Identifier: Apache-2.0 */
#include "claims/claims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "claims/model.h"
#include "kube/api/field.h"

#define FAILED_MS 1000 /* a write that was refused is not repeated earlier */
#define SEARCHES_MAX 8 /* searches for room in one pass */
#define ALL_MS 600000  /* between two evaluations of all objects, in case one was missed */
#define TEMPLATE_RETRY_MS 2000
#define TEMPLATE_RETRIES_MAX 5 /* doublings of it: 64 s */

struct claims *claims_new(const struct claims_world *world) {
    struct claims *c = calloc(1, sizeof(*c));
    if (c)
        c->world = *world;
    return c;
}

/* ---- objects come and go ---- */

/* The object's references are about to change: the referenced objects are synced again. */
static void stir_by_egpu(const struct claims *c, const struct egpu *e) {
    struct claim_item *claim =
        e->reserved ? claims_claim_item(c, e->claim_namespace, e->claim_name) : NULL;
    if (claim)
        claim->calm = false;
}

static void stir_by_claim(const struct claims *c, const struct egpu_claim *claim) {
    struct egpu_item *e = claim->egpu[0] ? claims_egpu_find(c, claim->egpu) : NULL;
    struct pod_item *pod = claim->owner_pod[0] ? claims_pod_find(c, claim->owner_pod) : NULL;
    if (e)
        e->calm = false;
    if (pod)
        pod->calm = false;
}

static void stir_all(const struct claims *c) {
    for (struct claim_item *item = c->claims; item; item = item->hh.next)
        item->calm = false;
    for (struct egpu_item *item = c->egpus; item; item = item->hh.next)
        item->calm = false;
    for (struct pod_item *pod = c->pods; pod; pod = pod->hh.next)
        pod->calm = false;
}

static void drop_egpu(struct claims *c, struct egpu_item *item) {
    stir_by_egpu(c, &item->o);
    HASH_DEL(c->egpus, item); /* NOLINT: the analyzer loses its way in uthash's lists */
    c->world.drop(c->world.self, item->o.meta.name);
    egpu_done(&item->o);
    free(item);
}

static void drop_claim(struct claims *c, struct claim_item *item) {
    stir_by_claim(c, &item->o);
    HASH_DEL(c->claims, item);
    egpu_claim_done(&item->o);
    free(item);
}

static void drop_class(struct claims *c, struct class_item *item) {
    stir_all(c);
    HASH_DEL(c->classes, item);
    egpu_class_done(&item->o);
    free(item);
}

static void drop_pod(struct claims *c, struct pod_item *item) {
    HASH_DEL(c->pods, item);
    pod_claims_done(&item->claims);
    free(item);
}

/* The same functions for every kind. */
#define KIND(lower, table, type)                                                                   \
    static struct type *lower##_get(struct claims *c, const char *key) {                           \
        struct type *item = claims_##lower##_find(c, key);                                         \
        if (item || strlen(key) >= sizeof(item->key) || !(item = calloc(1, sizeof(*item))))        \
            return item;                                                                           \
        memcpy(item->key, key, strlen(key) + 1);                                                   \
        HASH_ADD_STR(c->table, key, item);                                                         \
        return hash_added_or_freed(item);                                                          \
    }                                                                                              \
    static void lower##_unlist(struct claims *c) {                                                 \
        hash_unlist(c->table);                                                                     \
    }                                                                                              \
    static void lower##_sweep(struct claims *c) {                                                  \
        hash_drop_unlisted(c, c->table, drop_##lower);                                             \
    }                                                                                              \
    static void lower##_gone(struct claims *c, const char *key) {                                  \
        struct type *item = claims_##lower##_find(c, key);                                         \
        c->news |= item != NULL;                                                                   \
        if (item)                                                                                  \
            drop_##lower(c, item);                                                                 \
    }

KIND(egpu, egpus, egpu_item)
KIND(claim, claims, claim_item)
KIND(class, classes, class_item)
KIND(pod, pods, pod_item)

static const struct {
    void (*unlist)(struct claims *c);
    void (*sweep)(struct claims *c);
    void (*gone)(struct claims *c, const char *key);
} kinds[CLAIMS_KINDS] = {
    [CLAIMS_EGPUS] = {egpu_unlist, egpu_sweep, egpu_gone},
    [CLAIMS_CLAIMS] = {claim_unlist, claim_sweep, claim_gone},
    [CLAIMS_CLASSES] = {class_unlist, class_sweep, class_gone},
    [CLAIMS_PODS] = {pod_unlist, pod_sweep, pod_gone},
};

void claims_sync_begin(struct claims *c, enum claims_kind kind) {
    kinds[kind].unlist(c);
}

void claims_sync_end(struct claims *c, enum claims_kind kind) {
    kinds[kind].sweep(c);
    c->news = true;
}

void claims_gone(struct claims *c, enum claims_kind kind, const char *name) {
    kinds[kind].gone(c, name);
}

bool claims_has_news(const struct claims *c) {
    return c->news;
}

struct claims *claims_free(struct claims *c) {
    if (!c)
        return NULL;
    for (size_t i = 0; i < CLAIMS_KINDS; i++) {
        kinds[i].unlist(c);
        kinds[i].sweep(c);
    }
    free(c);
    return NULL;
}

static int egpu_seen(struct claims *c, struct json object, struct err *err) {
    struct egpu o;
    int r = egpu_parse(object, &o, err);
    if (r < 0)
        return r;
    struct egpu_item *item = egpu_get(c, o.meta.name);
    if (!item) {
        egpu_done(&o);
        return err_errno(err, ENOMEM, "cannot keep an ElasticGPU");
    }
    stir_by_egpu(c, &item->o);
    stir_by_egpu(c, &o);
    egpu_done(&item->o);
    item->o = o;
    item->listed = true;
    item->calm = false;
    c->world.hold(c->world.self, &item->o);
    return 0;
}

static int claim_seen(struct claims *c, struct json object, struct err *err) {
    char key[CLAIMS_KEY_MAX];
    struct egpu_claim o;
    int r = egpu_claim_parse(object, &o, err);
    if (r < 0)
        return r;
    snprintf(key, sizeof(key), "%s/%s", o.meta.namespace, o.meta.name);
    struct claim_item *item = claim_get(c, key);
    if (!item) {
        egpu_claim_done(&o);
        return err_errno(err, ENOMEM, "cannot keep a claim");
    }
    if (strcmp(item->o.meta.uid, o.meta.uid) != 0)
        item->make_ms = item->hand.told_ms = item->tries = 0;
    stir_by_claim(c, &item->o);
    stir_by_claim(c, &o);
    egpu_claim_done(&item->o);
    item->o = o;
    item->listed = true;
    item->calm = false;
    return 0;
}

static int class_seen(struct claims *c, struct json object, struct err *err) {
    struct egpu_class o;
    int r = egpu_class_parse(object, &o, err);
    if (r < 0)
        return r;
    struct class_item *item = class_get(c, o.meta.name);
    if (!item) {
        egpu_class_done(&o);
        return err_errno(err, ENOMEM, "cannot keep a class");
    }
    stir_all(c);
    egpu_class_done(&item->o);
    item->o = o;
    item->listed = true;
    return 0;
}

int claims_seen(struct claims *c, enum claims_kind kind, struct json object, struct err *err) {
    c->news = true;
    switch (kind) {
    case CLAIMS_EGPUS:
        return egpu_seen(c, object, err);
    case CLAIMS_CLAIMS:
        return claim_seen(c, object, err);
    case CLAIMS_CLASSES:
        return class_seen(c, object, err);
    default:
        return err_set(err, EINVAL, "no kind of the claims controller");
    }
}

int claims_pod_seen(struct claims *c, const struct pod *pod) {
    struct pod_claims copy;
    if (pod->claims.n == 0 || pod->finished) {
        pod_gone(c, pod->uid);
        return 0;
    }
    struct pod_item *item = pod_get(c, pod->uid);
    if (!item || pod_claims_copy(&pod->claims, &copy) < 0)
        return -ENOMEM;
    pod_claims_done(&item->claims);
    item->claims = copy;
    memcpy(item->namespace, pod->namespace, sizeof(item->namespace));
    memcpy(item->name, pod->name, sizeof(item->name));
    item->scheduled = pod->node[0] != '\0';
    item->deleting = pod->deleting;
    item->listed = true;
    item->calm = false;
    c->news = true;
    return 0;
}

/* ---- one pass ---- */

/* A template becomes a claim, once. One of that name that is not the pod's own may go without
 * stirring the pod. */
static void sync_pod(struct claims *c, struct pod_item *pod) {
    pod->calm = true;
    for (uint32_t i = 0; i < pod->claims.n && !pod->deleting; i++) {
        const struct pod_claim *use = &pod->claims.list[i];
        if (!use->template || !use->claim[0])
            continue;
        const struct egpu_claim *claim = claims_find(c, pod->namespace, use->claim);
        pod->calm &= claim && strcmp(claim->owner_pod, pod->key) == 0;
        if (!claim && c->now_ms >= pod->make_ms)
            write_claim_of_pod(c, pod, use);
    }
}

/* Bound in both halves, and neither is being written: only an event of one of the two changes that,
 * and each finds the other by the half that it has. */
static bool claim_is_calm(const struct claims *c, const struct claim_item *item) {
    const struct egpu_claim *o = &item->o;
    const struct egpu_item *e = o->egpu[0] ? claims_egpu_find(c, o->egpu) : NULL;
    return e && egpu_is_of(&e->o, o) && claims_is_still(c, &e->hand, &e->o.meta) &&
           claims_is_still(c, &item->hand, &o->meta) && !o->meta.deleting && o->bind_completed &&
           o->phase == CLAIM_BOUND && !o->resize.reason[0];
}

static bool egpu_is_calm(const struct claims *c, const struct egpu_item *item) {
    const struct egpu *o = &item->o;
    bool bound = o->phase == EGPU_BOUND && claims_has(c, o);
    bool unclaimed = !o->reserved || !o->claim_uid[0];
    return claims_is_still(c, &item->hand, &o->meta) && !o->meta.deleting && o->has_phase &&
           (bound || (o->phase == EGPU_AVAILABLE && unclaimed));
}

/* Most claims are bound and unchanged: a pass skips them. */
static void sync_claim(struct claims *c, struct claim_item *item) {
    c->wrote = false;
    claims_sync_claim(c, item);
    item->calm = !c->wrote && claim_is_calm(c, item);
}

static void sync_egpu(struct claims *c, struct egpu_item *item) {
    c->wrote = false;
    claims_sync_egpu(c, item);
    item->calm = !c->wrote && egpu_is_calm(c, item);
}

void claims_plan(struct claims *c, uint64_t now_ms, const char *stamp) {
    c->now_ms = now_ms;
    c->news = false;
    c->stamp = stamp;
    c->searches = SEARCHES_MAX;
    if (now_ms >= c->all_ms) {
        c->all_ms = now_ms + ALL_MS;
        stir_all(c);
    }
    for (struct pod_item *pod = c->pods; pod; pod = pod->hh.next)
        if (!pod->calm)
            sync_pod(c, pod);
    for (struct claim_item *item = c->claims; item; item = item->hh.next)
        if (!item->calm)
            sync_claim(c, item);
    for (struct egpu_item *item = c->egpus; item; item = item->hh.next)
        if (!item->calm)
            sync_egpu(c, item);
}

/* The prefix of a write's key identifies its object. */
static struct claims_hand *hand_of(const struct claims *c, const char *key) {
    const char *name = strchr(key, ':');
    if (!name)
        return NULL;
    if (key[0] == 'g') {
        struct egpu_item *item = claims_egpu_find(c, name + 1);
        return item ? &item->hand : NULL;
    }
    struct claim_item *item = claims_claim_find(c, name + 1);
    return item ? &item->hand : NULL;
}

/* A claim of a template that the API server rejects, e.g. by a quota, is retried with a growing
 * interval. */
static void pod_written(struct claims *c, struct pod_item *pod, int status, const char *why,
                        uint64_t now_ms) {
    const struct claims_note note = {"v1",     "Pod", pod->namespace, pod->name,
                                     pod->key, true,  "ClaimNotMade", why ? why : ""};
    if (status < 400 || status == 409)
        return;
    pod->make_ms = now_ms + ((uint64_t) TEMPLATE_RETRY_MS << pod->tries);
    pod->tries += pod->tries < TEMPLATE_RETRIES_MAX;
    if (status < 500)
        c->world.note(c->world.self, &note);
}

/* The API server was asked for the claim that an ElasticGPU names; the answer is about the uid that
 * the key has behind the name. The watch will not show anything. */
static void asked(struct claims *c, const char *key, int status, const char *uid, uint64_t now_ms) {
    const char *slash = strchr(key, '/');
    char name[CLAIMS_KEY_MAX];
    if (!slash ||
        snprintf(name, sizeof(name), "%.*s", (int) (slash - key), key) >= (int) sizeof(name))
        return;
    struct egpu_item *item = claims_egpu_find(c, name);
    if (!item)
        return;
    bool gone = status == 404 || (status / 100 == 2 && uid && strcmp(uid, slash + 1) != 0);
    if (gone)
        snprintf(item->absent, sizeof(item->absent), "%s", slash + 1);
    item->hand.until_ms = gone ? 0 : now_ms + FAILED_MS;
}

void claims_written(struct claims *c, const char *key, int status, const char *uid, const char *why,
                    uint64_t now_ms) {
    struct claims_hand *hand = hand_of(c, key);
    struct pod_item *pod = strncmp(key, "pod:", 4) == 0 ? claims_pod_find(c, key + 4) : NULL;
    c->news = true;
    if (strncmp(key, "ask:", 4) == 0)
        asked(c, key + 4, status, uid, now_ms);
    else if (pod)
        pod_written(c, pod, status, why, now_ms);
    else if (hand && status / 100 != 2)
        hand->until_ms = now_ms + FAILED_MS;
}
