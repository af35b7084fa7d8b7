/* SPDX-License-Identifier: Apache-2.0 */

/* One ElasticGPU: which phase it is in, and what becomes of it when its claim is gone. */

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "claims/model.h"

/* Verifies an ElasticGPU without a claim or not verified yet. The result is final. */
static void sync_free(struct claims *c, struct egpu_item *item) {
    const struct egpu *e = &item->o;
    struct err why;
    uint32_t want = e->capacity.cards;
    if (!e->source || want == 0 || e->ncards != want) {
        write_egpu_status(c, item, EGPU_FAILED, "Malformed",
                          "spec needs capacity (gpu-core, gpu-memory) and one source with as many "
                          "GPUs as the capacity has cards");
        return;
    }
    int r = egpu_holds(e) ? 0 : c->world.check(c->world.self, e, &why);
    if (r == -EDQUOT && claims_may_tell(c, &item->hand, e->word.reason))
        write_egpu_status(c, item, EGPU_PENDING, OVER_QUOTA, why.text);
    else if (r < 0 && r != -EDQUOT)
        write_egpu_status(c, item, EGPU_PENDING, "NoRoom", why.text);
    else if (r == 0)
        write_egpu_status(c, item, EGPU_AVAILABLE, "",
                          e->reserved ? "kept for the claim that claimRef names" : "");
}

static void reclaim(struct claims *c, struct egpu_item *item) {
    const char *maker = item->o.provisioned_by;

    if (!item->o.delete_after || item->o.meta.deleting)
        return;
    if (maker[0] && !provisioner_find(maker))
        return; /* another provisioner's to delete */
    write_egpu_delete(c, item);
}

/* Its claim is certainly gone. */
static void sync_released(struct claims *c, struct egpu_item *item) {
    bool told =
        item->o.has_phase && (item->o.phase == EGPU_RELEASED || item->o.phase == EGPU_FAILED);
    if (!told)
        write_egpu_status(c, item, EGPU_RELEASED, "ClaimGone",
                          item->o.delete_after
                              ? "its claim is gone; it will be deleted"
                              : "its claim is gone; remove spec.claimRef to give it to another");
    else
        reclaim(c, item);
}

/* The claim belongs to another ElasticGPU. */
static void sync_misbound(struct claims *c, struct egpu_item *item) {
    if (item->o.provisioned_by[0] && item->o.delete_after)
        sync_released(c, item);
    else
        write_egpu_unref(c, item, !item->o.bound_by_us);
}

static void sync_claimed(struct claims *c, struct egpu_item *item) {
    const struct egpu *e = &item->o;
    const struct claim_item *claim = claims_claim_item(c, e->claim_namespace, e->claim_name);
    bool its = claim && egpu_is_of(e, &claim->o);
    if (!its && strcmp(item->absent, e->claim_uid) != 0)
        write_egpu_get(c, item); /* our watch of claims may be behind that of ElasticGPUs */
    else if (!its)
        sync_released(c, item);
    else if (strcmp(claim->o.egpu, e->meta.name) == 0 && claim->o.bind_completed)
        write_egpu_status(c, item, EGPU_BOUND, "", "");
    else if (claim->o.egpu[0] && strcmp(claim->o.egpu, e->meta.name) != 0)
        sync_misbound(c, item);
}

bool claims_has(const struct claims *c, const struct egpu *e) {
    const struct claim_item *claim =
        e->reserved ? claims_claim_item(c, e->claim_namespace, e->claim_name) : NULL;
    return claim && egpu_is_of(e, &claim->o) && strcmp(claim->o.egpu, e->meta.name) == 0;
}

void claims_sync_egpu(struct claims *c, struct egpu_item *item) {
    const struct egpu *e = &item->o;
    bool protected = strings_have(&e->meta.finalizers, EGPU_FINALIZER);
    if (strcmp(item->hand.version, e->meta.version) == 0 && c->now_ms < item->hand.until_ms)
        return;
    if (e->meta.deleting) {
        if (protected && !claims_has(c, e))
            write_finalizer(c, &e->meta, &item->hand, EGPU_FINALIZER, false);
    } else if (!protected)
        write_finalizer(c, &e->meta, &item->hand, EGPU_FINALIZER, true);
    else if (e->reserved && e->claim_uid[0] && egpu_holds(e))
        sync_claimed(c, item);
    else
        sync_free(c, item);
}
