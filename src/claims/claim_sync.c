/* SPDX-License-Identifier: Apache-2.0 */

/* One claim: which ElasticGPU it gets, by the rules that volumes and their claims have. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "claims/model.h"

#define MAKE_RETRY_MS 2000
#define MAKE_RETRIES_MAX 4 /* doublings of it: 32 s */

/* ---- matching ---- */

static bool is_kept_for(const struct egpu *e, const struct egpu_claim *claim) {
    return e->reserved && strcmp(e->claim_name, claim->meta.name) == 0 &&
           strcmp(e->claim_namespace, claim->meta.namespace) == 0 &&
           (e->claim_uid[0] == '\0' || strcmp(e->claim_uid, claim->meta.uid) == 0);
}

static bool is_free(const struct claims *c, const struct egpu *e, const struct egpu_claim *claim) {
    return !e->reserved && !e->meta.deleting && e->phase == EGPU_AVAILABLE && e->has_phase &&
           strcmp(e->class, claim->class) == 0 &&
           label_terms_hold(&claim->selector, e->meta.labels, e->meta.name) &&
           (claim->selected_node[0] == '\0' ||
            strcmp(c->world.node(c->world.self, e), claim->selected_node) == 0);
}

/* Made for the claim, and it may have asked for more since: that is settled when it is bound. */
static bool is_made_for(const struct egpu *e, const struct egpu_claim *claim) {
    return e->provisioned_by[0] && egpu_is_of(e, claim);
}

/* An ElasticGPU reserved for the claim takes precedence, then the smallest that is large enough. */
static struct egpu_item *best_match(const struct claims *c, const struct egpu_claim *claim,
                                    bool kept_only) {
    struct egpu_item *best = NULL;
    for (struct egpu_item *item = c->egpus; item; item = item->hh.next) {
        const struct egpu *e = &item->o;
        if (!is_made_for(e, claim) && !claim_amount_covers(&e->capacity, &claim->request))
            continue;
        if (is_kept_for(e, claim) && !e->meta.deleting)
            return item;
        if (kept_only || !is_free(c, e, claim))
            continue;
        int order = best ? claim_amount_compare(&e->capacity, &best->o.capacity) : -1;
        if (order < 0 || (order == 0 && best && strcmp(item->key, best->key) < 0))
            best = item;
    }
    return best;
}

/* ---- the two halves ---- */

static void describe(const struct egpu *e, char text[static CLAIM_MESSAGE_MAX]) {
    snprintf(text, CLAIM_MESSAGE_MAX, "ElasticGPU %.80s: GPU %.80s%s%s%.80s", e->meta.name,
             e->ncards > 0 ? e->cards[0] : "?", e->ncards > 1 ? " and others" : "",
             e->node[0] ? " of node " : "", e->node);
}

/* A claim only grows: an increase of compute keeps the memory, and vice versa. */
static struct claim_amount grown_to(const struct claim_amount *have,
                                    const struct claim_amount *want) {
    struct claim_amount all = *want;
    if (!have->whole && !want->whole && have->core > want->core)
        all.core = have->core;
    if (!have->whole && !want->whole && have->memory > want->memory)
        all.memory = have->memory;
    return all;
}

static void grow(struct claims *c, struct claim_item *item, struct egpu_item *e,
                 const struct claim_amount *want) {
    struct err why;
    int r = c->world.grow(c->world.self, &e->o, want, &why);
    if (r == -EDQUOT && claims_may_tell(c, &item->hand, item->o.resize.reason))
        write_claim_resize(c, item, OVER_QUOTA, why.text);
    else if (r < 0 && r != -EDQUOT)
        write_claim_resize(c, item, "NoRoom", why.text);
    else if (r == 0 && claims_is_still(c, &e->hand, &e->o.meta))
        write_egpu_capacity(c, e, want);
}

/* Conditions and status of a claim that has both halves; also where it wants to grow. */
static void sync_pair(struct claims *c, struct claim_item *item, struct egpu_item *e) {
    const struct egpu_claim *claim = &item->o;
    const struct egpu_class *class = claims_class_of(c, claim);
    const struct claim_amount want = grown_to(&e->o.capacity, &claim->request);
    char text[CLAIM_MESSAGE_MAX];
    bool bound = claim->phase == CLAIM_BOUND; /* with its capacity before the expansion */
    if (bound && !claim->problem[0] && !claim_amount_covers(&e->o.capacity, &claim->request)) {
        if (!class || !class->expansion)
            write_claim_resize(c, item, "NotAllowed",
                               "its class does not say allowExpansion: true; make a larger claim");
        else if (!e->o.native)
            write_claim_resize(c, item, "NotAllowed",
                               "the capacity of its ElasticGPU has other names than "
                               "elasticgpu.io/gpu-core and elasticgpu.io/gpu-memory");
        else
            grow(c, item, e, &want);
        return;
    }
    bool grown =
        claim->granted.cards > 0 && claim_amount_compare(&claim->granted, &e->o.capacity) != 0;
    if (grown && !c->world.settle(c->world.self, &e->o)) {
        write_claim_resize(c, item, "InProgress", "its pods are being given the new amount");
        return;
    }
    describe(&e->o, text);
    write_claim_status(c, item, CLAIM_BOUND, &e->o.capacity, "Bound", text);
}

static void pending(struct claims *c, struct claim_item *item, const char *reason,
                    const char *message) {
    write_claim_status(c, item, CLAIM_PENDING, NULL, reason, message);
}

/* It is tried again in every pass, as usage is read from memory. */
static void wait_for_quota(struct claims *c, struct claim_item *item, const char *why) {
    if (claims_may_tell(c, &item->hand, item->o.word.reason))
        pending(c, item, OVER_QUOTA, why);
}

static void bind(struct claims *c, struct claim_item *item, struct egpu_item *e) {
    char text[CLAIM_MESSAGE_MAX];
    struct err why;
    if (!egpu_holds(&e->o)) {
        snprintf(text, sizeof(text), "ElasticGPU %.120s is not available: %.200s", e->o.meta.name,
                 e->o.word.message);
        pending(c, item, "NoMatch", text);
    } else if (!egpu_is_of(&e->o, &item->o)) {
        if (!claims_is_still(c, &e->hand, &e->o.meta))
            return;
        int r = c->world.take(c->world.self, &e->o, &item->o, &why);
        if (r == -EDQUOT)
            wait_for_quota(c, item, why.text);
        else if (r == 0)
            write_egpu_ref(c, e, &item->o);
    } else if (!item->o.bind_completed || strcmp(item->o.egpu, e->o.meta.name) != 0)
        write_claim_egpu(c, item, e->o.meta.name);
    else
        sync_pair(c, item, e);
}

/* ---- a claim that has none yet ---- */

/* The selected node is unsuitable: the pod must be scheduled again. */
static void give_up(struct claims *c, struct claim_item *item, const char *reason,
                    const char *why) {
    item->make_ms = c->now_ms + MAKE_RETRY_MS;
    if (item->o.selected_node[0]) {
        note_claim(c, &item->o, true, reason, why);
        write_claim_unselect(c, item);
        return;
    }
    item->make_ms = c->now_ms + ((uint64_t) MAKE_RETRY_MS << item->tries);
    item->tries += item->tries < MAKE_RETRIES_MAX;
    pending(c, item, reason, why);
}

/* A pod whose node was selected is scheduled again. */
static bool is_admitted(struct claims *c, struct claim_item *item) {
    struct err why;
    if (c->world.admit(c->world.self, &item->o, &item->o.request, &why) == 0)
        return true;
    if (item->o.selected_node[0])
        give_up(c, item, OVER_QUOTA, why.text);
    else
        wait_for_quota(c, item, why.text);
    return false;
}

static void make(struct claims *c, struct claim_item *item, const struct egpu_class *class,
                 const struct provisioner *p) {
    const struct egpu_claim *claim = &item->o;
    struct err why;
    if (c->searches == 0)
        return;
    c->searches--;
    int r =
        c->world.find(c->world.self, claim, &claim->request, claim->selected_node, &c->room, &why);
    if (r == -EALREADY)
        return;
    if (r < 0) {
        give_up(c, item, r == -EDQUOT ? OVER_QUOTA : "ProvisioningFailed", why.text);
        return;
    }
    write_egpu_new(c, item, class, p);
    item->make_ms = c->now_ms + MAKE_RETRY_MS;
}

/* An annotation selects an external provisioner, as for volumes. */
static void name_external_provisioner(struct claims *c, struct claim_item *item,
                                      const struct egpu_class *class) {
    char text[CLAIM_MESSAGE_MAX];
    snprintf(text, sizeof(text), "waiting for the provisioner %s, which is none of Aliquot's",
             class->provisioner);
    if (strcmp(item->o.provisioner, class->provisioner) != 0)
        write_claim_provisioner(c, item, class->provisioner);
    else
        pending(c, item, "ExternalProvisioning", text);
}

static void provision(struct claims *c, struct claim_item *item) {
    const struct egpu_claim *claim = &item->o;
    const struct egpu_class *class = claims_class_of(c, claim);
    char text[CLAIM_MESSAGE_MAX];
    struct err why;
    if (claim->class[0] == '\0')
        pending(c, item, "NoMatch",
                "no ElasticGPU fits, and no class makes one (no class is named, and none is the "
                "default)");
    else if (!class) {
        snprintf(text, sizeof(text), "ElasticGPUClass %s does not exist", claim->class);
        pending(c, item, "NoClass", text);
    } else if (claim->selector.n > 0)
        pending(c, item, "NoMatch", "no ElasticGPU has the labels of the selector and fits");
    else if (c->now_ms < item->make_ms)
        return; /* NOLINT: the checks have an order */
    else if (claims_may_make(class, claim, &why) < 0)
        give_up(c, item, "ProvisioningFailed", why.text);
    else if (class->wait_consumer && claim->selected_node[0] == '\0')
        pending(c, item, "WaitForFirstConsumer", "waiting for the first pod that uses the claim");
    else if (!is_admitted(c, item))
        return;
    else if (!provisioner_find(class->provisioner))
        name_external_provisioner(c, item, class);
    else
        make(c, item, class, provisioner_find(class->provisioner));
}

/* It names an ElasticGPU itself. */
static void sync_named(struct claims *c, struct claim_item *item) {
    const struct egpu_claim *claim = &item->o;
    struct egpu_item *e = claims_egpu_find(c, claim->egpu);
    char text[CLAIM_MESSAGE_MAX];
    if (!e) {
        snprintf(text, sizeof(text), "ElasticGPU %s does not exist", claim->egpu);
        pending(c, item, "NoMatch", text);
    } else if (e->o.reserved && !is_kept_for(&e->o, claim)) {
        snprintf(text, sizeof(text), "ElasticGPU %.120s belongs to claim %s/%.120s", claim->egpu,
                 e->o.claim_namespace, e->o.claim_name);
        pending(c, item, "NoMatch", text);
    } else if (!egpu_is_of(&e->o, claim) &&
               (!claim_amount_covers(&e->o.capacity, &claim->request) ||
                strcmp(e->o.class, claim->class) != 0)) {
        snprintf(text, sizeof(text), "ElasticGPU %.200s is too small or of another class",
                 claim->egpu);
        pending(c, item, "NoMatch", text);
    } else if (!egpu_is_of(&e->o, claim) && e->o.phase != EGPU_AVAILABLE) {
        snprintf(text, sizeof(text), "ElasticGPU %.200s is not available: %.100s", claim->egpu,
                 e->o.word.message);
        pending(c, item, "NoMatch", text);
    } else
        bind(c, item, e);
}

static void sync_unbound(struct claims *c, struct claim_item *item) {
    const struct egpu_claim *claim = &item->o;
    const struct egpu_class *class = claims_class_of(c, claim);
    const struct egpu_class *by_default = claims_default_class(c);
    if (claim->problem[0]) {
        pending(c, item, "Malformed", claim->problem);
        return;
    }
    if (claim->egpu[0]) {
        sync_named(c, item);
        return;
    }
    if (!claim->has_class && by_default) {
        write_claim_class(c, item, by_default->meta.name);
        return;
    }
    bool later = class && class->wait_consumer && claim->selected_node[0] == '\0';
    struct egpu_item *e = best_match(c, claim, later);
    if (e)
        bind(c, item, e);
    else
        provision(c, item);
}

/* ---- a claim that has been bound ---- */

static void sync_bound(struct claims *c, struct claim_item *item) {
    const struct egpu_claim *claim = &item->o;
    struct egpu_item *e = claim->egpu[0] ? claims_egpu_find(c, claim->egpu) : NULL;
    char text[CLAIM_MESSAGE_MAX];
    bool holds = e && egpu_holds(&e->o);
    bool is_half = holds && !e->o.reserved && !e->o.meta.deleting; /* the other half was lost */
    if (is_half || (holds && is_kept_for(&e->o, claim)))
        bind(c, item, e);
    else {
        snprintf(text, sizeof(text), "ElasticGPU %.200s %s; the claim stays lost: delete it",
                 claim->egpu[0] ? claim->egpu : "(none)",
                 !e      ? "is gone"
                 : holds ? "belongs to another claim"
                         : "is not available");
        write_claim_status(c, item, CLAIM_LOST, NULL, e ? "ClaimMisbound" : "ClaimLost", text);
    }
}

void claims_sync_claim(struct claims *c, struct claim_item *item) {
    const struct claim_meta *m = &item->o.meta;
    bool protected = strings_have(&m->finalizers, CLAIM_FINALIZER);
    if (strcmp(item->hand.version, m->version) == 0 && c->now_ms < item->hand.until_ms)
        return;
    if (m->deleting) {
        if (protected && !claims_in_use(c, &item->o))
            write_finalizer(c, m, &item->hand, CLAIM_FINALIZER, false);
    } else if (!protected)
        write_finalizer(c, m, &item->hand, CLAIM_FINALIZER, true);
    else if (item->o.bind_completed)
        sync_bound(c, item);
    else
        sync_unbound(c, item);
}
