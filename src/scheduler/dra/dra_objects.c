/* SPDX-License-Identifier: Apache-2.0 */

/* Claims and the pods that use them, as the watches show them. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/num.h"
#include "scheduler/dra/dra_internal.h"

#define SHUN_MS 10000 /* doubled each time */
#define SHUN_TIMES_MAX 5

/* ---- claims ---- */

struct dra_claim *dra_claim_find(const struct dra *d, const char *namespace, const char *name) {
    struct dra_claim *claim;
    char key[DRA_KEY_MAX];
    dra_key(namespace, name, key);
    HASH_FIND_STR(d->claims, key, claim);
    return claim;
}

struct dra_claim *dra_claim_of(const struct dra *d, const struct pod_devices *pod, uint32_t i) {
    return dra_claim_find(d, pod->namespace, pod->claims[i].claim);
}

/* A claim of the pod has lost its place, and with it the pod. */
static void unsettle(struct dra *d, const char *uid) {
    struct state_pod *self = state_pod_find(d->state, uid);
    if (self && self->resource_claims && self->stage == POD_ASSUMED)
        state_release(d->state, self);
}

void dra_plan_drop(struct dra *d, struct dra_claim *claim) {
    if (claim->plan && !claim->object.allocated)
        unsettle(d, claim->plan->pod_uid);
    free(claim->plan);
    claim->plan = NULL;
    claim->stage = DRA_IDLE;
    d->news++;
    dra_hold(d, claim);
}

const char *dra_claim_node(const struct dra_claim *claim) {
    return claim->object.allocated ? claim->object.node : claim->plan ? claim->plan->node : "";
}

static void free_claim(struct dra *d, struct dra_claim *claim) {
    dra_unhold(d, claim);
    HASH_DEL(d->claims, claim);
    resource_claim_done(&claim->object);
    free(claim->plan);
    free(claim);
    d->news++;
}

static struct dra_claim *get_claim(struct dra *d, const struct resource_claim *object) {
    struct dra_claim *claim = dra_claim_find(d, object->namespace, object->name);
    if (claim || !(claim = calloc(1, sizeof(*claim))))
        return claim;
    dra_key(object->namespace, object->name, claim->key);
    HASH_ADD_STR(d->claims, key, claim);
    return hash_added_or_freed(claim);
}

/* Versions of one object are numbers that grow; what is none is as new as anything. */
static bool is_older(const struct resource_claim *object, const struct resource_claim *than) {
    uint64_t a, b;
    return strcmp(object->uid, than->uid) == 0 &&
           num_parse_u64(object->version, UINT64_MAX, &a) == 0 &&
           num_parse_u64(than->version, UINT64_MAX, &b) == 0 && a < b;
}

bool dra_is_shunned(const struct dra_pod *pod, const char *node, uint64_t now_ms) {
    for (uint32_t i = 0; i < pod->nshunned; i++)
        if (strcmp(pod->shunned[i].node, node) == 0 && now_ms < pod->shunned[i].until_ms)
            return true;
    return false;
}

/* Where there are too many, the one that ends first is forgotten. */
static struct dra_shunned *get_shunned(struct dra_pod *pod, const char *node) {
    struct dra_shunned *oldest = &pod->shunned[0];
    for (uint32_t i = 0; i < pod->nshunned; i++) {
        if (strcmp(pod->shunned[i].node, node) == 0)
            return &pod->shunned[i];
        if (pod->shunned[i].until_ms < oldest->until_ms)
            oldest = &pod->shunned[i];
    }
    if (pod->nshunned < DRA_SHUNNED_MAX)
        oldest = &pod->shunned[pod->nshunned++];
    *oldest = (struct dra_shunned){.times = 0};
    (void) snprintf(oldest->node, sizeof(oldest->node), "%s", node);
    return oldest;
}

/* kube-scheduler takes an allocation back where the node cannot take the pod. */
static void shun(struct dra *d, const struct resource_claim *before) {
    for (struct dra_pod *pod = d->pods; pod; pod = pod->hh.next) {
        if (pod->object.node[0] || !resource_claim_is_for(before, pod->object.uid))
            continue;
        unsettle(d, pod->object.uid);
        struct dra_shunned *shunned = get_shunned(pod, before->node);
        unsigned times = shunned->times < SHUN_TIMES_MAX ? shunned->times : SHUN_TIMES_MAX;
        shunned->until_ms = d->now(d->userdata) + ((uint64_t) SHUN_MS << times);
        shunned->times++;
        d->taken_back++;
    }
}

/* Whether what was planned is still what the claim waits for. */
static bool is_plan_over(const struct dra_claim *claim, const struct resource_claim *before) {
    const struct resource_claim *now = &claim->object;
    return claim->plan && (now->allocated || now->deleting || strcmp(now->uid, before->uid) != 0);
}

int dra_claim_take(struct dra *d, struct resource_claim *object) {
    _cleanup_(resource_claim_done) struct resource_claim before = {0};
    struct dra_claim *claim = get_claim(d, object);
    if (claim)
        claim->listed = true;
    if (!claim || is_older(object, &claim->object)) {
        resource_claim_done(object);
        return claim ? 0 : -ENOMEM;
    }
    before = claim->object;
    claim->object = take_struct(*object);
    claim->taken = ++d->taken;
    d->news++;
    bool same = strcmp(before.uid, claim->object.uid) == 0;
    if (before.uid[0] && !same) {
        const struct dra_claim former = {.object = before};
        dra_unhold(d, &former);
    }
    if (same && before.allocated && before.node[0] && !claim->object.allocated &&
        !claim->object.deleting)
        shun(d, &before);
    /* The finalizer is there, so that the write without an answer was done. */
    if (claim->stage == DRA_IN_DOUBT && claim->object.protected && !before.protected)
        claim->stage = DRA_PLANNED;
    if (is_plan_over(claim, &before))
        dra_plan_drop(d, claim);
    else
        dra_hold(d, claim);
    return 0;
}

static int see_claim(struct dra *d, struct json object, bool gone, struct err *err) {
    struct resource_claim read;
    int r = resource_claim_parse(object, &read, err);
    if (r < 0)
        return r;
    if (!gone) {
        r = dra_claim_take(d, &read);
        return r < 0 ? err_errno(err, -r, "cannot keep a ResourceClaim") : 0;
    }
    struct dra_claim *claim = dra_claim_find(d, read.namespace, read.name);
    if (claim && strcmp(claim->object.uid, read.uid) == 0)
        free_claim(d, claim);
    resource_claim_done(&read);
    return 0;
}

/* ---- what pages and metrics show of claims that wait ---- */

static void set_reason(struct dra *d, const struct dra_pod *pod, const char *reason) {
    for (uint32_t i = 0; i < pod->object.nclaims; i++) {
        struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
        if (claim)
            claim->waits_for = reason;
    }
}

void dra_note(struct dra *d, struct dra_pod *pod, enum dra_found found, const char *why) {
    static const char *const reasons[] = {
        [DRA_LATER] = "missing",
        [DRA_HELD] = "held",
        [DRA_NO_ROOM] = "no-room",
        [DRA_REFUSED] = "refused",
    };
    const char *reason =
        (size_t) found < sizeof(reasons) / sizeof(reasons[0]) ? reasons[found] : NULL;
    free(pod->why);
    pod->why = reason && why[0] ? strdup(why) : NULL;
    set_reason(d, pod, reason);
}

const char *dra_why(const struct dra *d, const char *namespace, const char *pod) {
    for (const struct dra_pod *one = d->pods; one; one = one->hh.next)
        if (strcmp(one->object.name, pod) == 0 && strcmp(one->object.namespace, namespace) == 0)
            return one->why ? one->why : "";
    return NULL;
}

/* ---- slices ---- */

/* A card that is handed over takes nothing new before what it has counts. */
static int see_slice(struct dra *d, struct json object, bool gone, struct err *err) {
    bool held = d->held_ms != 0;
    int r = dra_see_slice(d, object, gone, err);
    if (held && d->held_ms == 0)
        dra_hold_all(d, d->now(d->userdata));
    return r;
}

/* ---- pods ---- */

static void free_pod(struct dra *d, struct dra_pod *pod) {
    HASH_DEL(d->pods, pod);
    dra_note(d, pod, DRA_NOT_OURS, "");
    pod_devices_done(&pod->object);
    free(pod);
    d->news++;
}

struct dra_pod *dra_pod_find(const struct dra *d, const char *uid) {
    struct dra_pod *pod;
    HASH_FIND_STR(d->pods, uid, pod);
    return pod;
}

static struct dra_pod *get_pod(struct dra *d, const char *uid) {
    struct dra_pod *pod = dra_pod_find(d, uid);
    if (pod || !(pod = calloc(1, sizeof(*pod))))
        return pod;
    (void) snprintf(pod->object.uid, sizeof(pod->object.uid), "%s", uid);
    HASH_ADD_STR(d->pods, object.uid, pod);
    return hash_added_or_freed(pod);
}

/* Which containers use what is allocated to the claims of the pod. */
static void hold_claims_of(struct dra *d, const struct pod_devices *pod) {
    for (uint32_t i = 0; i < pod->nclaims; i++) {
        struct dra_claim *claim = dra_claim_of(d, pod, i);
        if (claim && claim->object.allocated)
            dra_hold(d, claim);
    }
}

static int see_pod(struct dra *d, struct json object, bool gone, struct err *err) {
    struct pod_devices read;
    int r = pod_devices_parse(object, &read, err);
    if (r < 0)
        return r;
    struct dra_pod *pod;
    if (gone || r == 0) { /* which a pod that had nothing but the gate is, too */
        const char *uid = json_string(JSON_PATH(object, "metadata", "uid"));
        pod = uid ? dra_pod_find(d, uid) : NULL;
        if (r > 0)
            pod_devices_done(&read);
        if (pod)
            free_pod(d, pod);
        return 0;
    }
    pod = get_pod(d, read.uid);
    if (!pod) {
        pod_devices_done(&read);
        return err_errno(err, ENOMEM, "cannot keep a pod with claims");
    }
    pod_devices_done(&pod->object);
    pod->object = read; /* its key has the same text at the same place */
    pod->listed = true;
    pod->refused = pod->known = 0;
    d->news++;
    hold_claims_of(d, &pod->object);
    return 0;
}

/* ---- all ---- */

#define KIND(table, drop)                                                                          \
    static void table##_begin(struct dra *d) {                                                     \
        hash_unlist(d->table);                                                                     \
    }                                                                                              \
    static void table##_end(struct dra *d) {                                                       \
        hash_drop_unlisted(d, d->table, drop);                                                     \
    }
KIND(claims, free_claim)
KIND(classes, dra_class_free)
KIND(slices, dra_slice_free)
KIND(pods, free_pod)
KIND(nodes, dra_node_free)
KIND(templates, dra_template_forget)

static const struct {
    int (*see)(struct dra *, struct json, bool, struct err *);
    void (*begin)(struct dra *), (*end)(struct dra *);
} kinds[DRA_KINDS] = {
    [DRA_CLAIMS] = {see_claim, claims_begin, claims_end},
    [DRA_CLASSES] = {dra_see_class, classes_begin, classes_end},
    [DRA_SLICES] = {see_slice, slices_begin, slices_end},
    [DRA_PODS] = {see_pod, pods_begin, pods_end},
    [DRA_NODES] = {dra_see_node, nodes_begin, nodes_end},
    [DRA_TEMPLATES] = {dra_see_template, templates_begin, templates_end},
};

int dra_see(struct dra *d, enum dra_kind kind, struct json object, bool gone, struct err *err) {
    return kinds[kind].see(d, object, gone, err);
}

void dra_sync_begin(struct dra *d, enum dra_kind kind) {
    kinds[kind].begin(d);
}

void dra_sync_end(struct dra *d, enum dra_kind kind) {
    kinds[kind].end(d);
    if (kind == DRA_SLICES)
        d->devices_version++;
}

void dra_done(struct dra *d) {
    hash_drop_all(d, d->pods, free_pod);
    hash_drop_all(d, d->claims, free_claim);
    hash_drop_all(d, d->classes, dra_class_free);
    hash_drop_all(d, d->slices, dra_slice_free);
    hash_drop_all(d, d->nodes, dra_node_free);
    hash_drop_all(d, d->templates, dra_template_drop);
}
