/* SPDX-License-Identifier: Apache-2.0 */

/* Members of gangs. Their claims are planned when the whole gang has room, in one step with the
 * others, and what is planned is written from then on. */

#include "base/buf.h"
#include "scheduler/dra/dra_internal.h"

static bool place(struct state_pod *self, uint64_t now_ms, struct buf *why, void *userdata) {
    _cleanup_buf_ struct buf text = BUF_INIT(DRA_WHY_MAX);
    struct dra *d = userdata;
    struct dra_pod *pod = dra_pod_find(d, self->uid);
    if (!pod || pod->object.deleting || pod->object.gated_by_others || now_ms < pod->retry_ms)
        return false;
    enum dra_found found = dra_choose(d, pod, now_ms, NULL, &text);
    if (found != DRA_NO_ROOM && why->len == 0)
        buf_puts(why, buf_str(&text));
    dra_settle(d, pod);
    return self->stage == POD_ASSUMED;
}

static void release(struct state_pod *self, void *userdata) {
    struct dra *d = userdata;
    const struct dra_pod *pod = dra_pod_find(d, self->uid);
    for (uint32_t i = 0; pod && i < pod->object.nclaims; i++) {
        struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
        if (claim && claim->stage == DRA_PLANNED)
            dra_plan_drop(d, claim);
    }
    if (pod)
        dra_settle(d, pod);
    else
        state_release(d->state, self);
}

static uint64_t spent(void *userdata) {
    return ((struct dra *) userdata)->spent;
}

struct gang_claims dra_gang_claims(struct dra *d) {
    return (struct gang_claims){place, release, spent, d};
}
