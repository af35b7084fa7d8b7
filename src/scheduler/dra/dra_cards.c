/* SPDX-License-Identifier: Apache-2.0 */

/* Which cards a search may take. */

#include "scheduler/dra/dra_internal.h"

static bool is_by_claims(const struct dra *d, const struct state_pod *pod) {
    return pod == d->sought || pod->resource_claims;
}

/* Cards of kube-scheduler's are left to it. Without such cards other pods are not restricted, so
 * that equivalence classes of nodes stay valid for them. */
static uint64_t select_key(void *self, const struct state_pod *pod) {
    const struct dra *d = self;
    bool restricted = is_by_claims(d, pod) || d->others > 0 || d->unresolved > 0;
    return restricted ? (d->devices_version << 1 | is_by_claims(d, pod)) + 2 : 0;
}

static bool takes_new(const struct slice_device *device, const struct container_request *req) {
    return !device->by_scheduler && device->ntaints == 0 && (device->shared || req->whole);
}

static bool select_allow(void *self, const struct state_pod *pod, const struct state_node *node,
                         uint64_t allowed[static GPU_CONTAINERS_MAX]) {
    const struct dra *d = self;
    const struct dra_node *known = d->unresolved > 0 ? dra_node_find(d, node->name) : NULL;
    uint64_t left = 0;
    if (known && known->unresolved > 0)
        return false;
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct dra_device *device = dra_device_find(d, node->name, node->cards[c]->uuid);
        for (uint32_t i = 0; i < pod->ncontainers; i++) {
            bool may = is_by_claims(d, pod)
                           ? device && takes_new(device->at, &pod->containers[i]) &&
                                 (pod != d->sought || !d->allowed || d->allowed[i] >> c & 1)
                           : !device || !device->at->by_scheduler;
            if (!may)
                allowed[i] &= ~(UINT64_C(1) << c);
        }
    }
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        left |= allowed[i];
    return left != 0;
}

int dra_selector_add(struct dra *d) {
    const struct state_selector selector = {"devices", PLACE_OTHER_WAY, d, select_key,
                                            select_allow};
    return state_add_selector(d->state, &selector);
}
