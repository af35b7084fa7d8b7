/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/claim_rule.h"

#include <errno.h>
#include <string.h>

#include "agent/shares/shares.h"
#include "base/err.h"

static bool has_share(const struct shares *s, const struct pod_entry *e, const char *claim) {
    for (const struct slot *slot = s->slots.slots; slot; slot = slot->hh.next)
        if (slot->grant.claim && !slot->releasing && strcmp(slot->grant.claim->name, claim) == 0 &&
            strcmp(slot->grant.namespace, e->pod.namespace) == 0)
            return true;
    return false;
}

static bool requests_devices(const struct pod *pod, const char *container) {
    for (uint32_t i = 0; i < pod->request.n; i++)
        if (strcmp(pod->request.containers[i].container, container) == 0)
            return true;
    return false;
}

static int refuse_names(const char *container, const char *claim, struct err *err) {
    return err_set(err, EINVAL,
                   "container %s uses ResourceClaim %s and requests a share by resource names: one "
                   "container can have one of them",
                   container, claim);
}

int claim_rule_check(const struct shares *s, const struct pod_entry *e, const char *claim,
                     claim_rule_cb is_next, const void *userdata, struct err *err) {
    for (size_t i = 0; i < e->nuses; i++) {
        const struct pod_claim_use *use = &e->uses[i];

        if (!pod_claim_use_find(e, use->container, claim))
            continue;
        if (requests_devices(&e->pod, use->container))
            return refuse_names(use->container, claim, err);
        if (strcmp(use->claim, claim) != 0 &&
            ((is_next && is_next(use->claim, userdata)) || has_share(s, e, use->claim)))
            return err_set(err, EINVAL,
                           "container %s uses ResourceClaims %s and %s: one container can use one "
                           "claim for GPUs, with as many requests as it needs",
                           use->container, claim, use->claim);
    }
    return 0;
}

int claim_rule_container(const struct shares *s, const struct pod_entry *e, const char *container,
                         struct err *err) {
    for (size_t i = 0; i < e->nuses; i++)
        if (strcmp(e->uses[i].container, container) == 0 && has_share(s, e, e->uses[i].claim))
            return refuse_names(container, e->uses[i].claim, err);
    return 0;
}
