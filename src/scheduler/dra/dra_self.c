/* SPDX-License-Identifier: Apache-2.0 */

/* A pod with claims as the state knows it. So gangs, reservations and preemption take it as any
 * other. From the time when all its claims have a place it is at POD_ASSUMED there. */

#include <string.h>

#include "scheduler/dra/dra_internal.h"

struct state_pod *dra_self(const struct dra *d, const struct dra_pod *pod) {
    struct state_pod *self = state_pod_find(d->state, pod->object.uid);
    return self && self->resource_claims ? self : NULL;
}

/* Whether none of its claims waits for us, and where those are that have a place; "": nowhere. */
static bool is_complete(const struct dra *d, const struct dra_pod *pod, const char **ret_node) {
    *ret_node = "";
    for (uint32_t i = 0; i < pod->object.nclaims; i++) {
        const struct dra_claim *claim = dra_claim_of(d, &pod->object, i);
        if (!claim || (!claim->plan && dra_waits_for_us(d, claim)))
            return false;
        const char *node = dra_claim_node(claim);
        if (node[0])
            *ret_node = node;
    }
    return true;
}

void dra_settle(struct dra *d, const struct dra_pod *pod) {
    struct state_pod *self = dra_self(d, pod);
    const char *name;
    if (!self || self->stage > POD_ASSUMED)
        return;
    bool complete = is_complete(d, pod, &name);
    struct state_node *node = complete && name[0] ? state_node_find(d->state, name) : NULL;
    if (!node && self->stage == POD_ASSUMED)
        state_release(d->state, self);
    if (!node)
        return;
    if (self->stage != POD_ASSUMED || self->node != node)
        state_pod_settle(self, node, d->now(d->userdata));
    self->keep_until_ms = UINT64_MAX;
}

void dra_settle_all(struct dra *d) {
    for (const struct dra_pod *pod = d->pods; pod; pod = pod->hh.next)
        dra_settle(d, pod);
}
