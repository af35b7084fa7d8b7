/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/shares/resize.h"

#include <string.h>

#include "agent/cluster/keys.h"
#include "agent/shares/grant.h"
#include "agent/shares/shares.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "share/arbiter.h"

static void log_growth(const struct slot *slot) {
    for (uint32_t i = 0; i < slot->grant.ndevices; i++) {
        const struct slot_device *d = &slot->grant.devices[i];
        char size[24];

        log_info("%s/%s container %s has more: GPU %u, core %u, memory %s", slot->grant.namespace,
                 slot->grant.pod, slot->grant.container, d->index, d->core,
                 num_format_bytes(d->memory, size));
    }
}

static void resize_slot(struct shares *s, struct slot *slot, const struct slot_grant *more) {
    struct share_limits limits;
    struct err err;

    if (slot_grow(&s->slots, slot, more, &err) < 0) {
        log_warn("%s", err.text);
        return;
    }
    log_growth(slot);
    slot_limits(&slot->grant, &limits);
    if (slot->compute)
        arbiter_change(slot->compute, &limits);
}

void resize_pod(struct shares *s, const struct pod_entry *e) {
    const struct grant_world world = {
        .node = s->options.node_name,
        .pod = e,
        .keys = keys_verifier(s->keys),
        .snapshot = gpu_monitor_snapshot(s->monitor),
        .slots = &s->slots,
    };

    for (struct slot *slot = s->slots.slots; slot; slot = slot->hh.next) {
        struct slot_grant more;
        struct err why;

        if (slot->grant.ndevices == 0 || slot->grant.newer || slot->grant.claim ||
            slot->releasing || strcmp(slot->grant.pod_uid, e->pod.uid) != 0)
            continue;
        if (grant_judge(&world, e->pod.uid, slot->grant.container, &more, &why) != VERDICT_GRANT)
            continue;
        if (slot_is_more(&slot->grant, &more))
            resize_slot(s, slot, &more);
        slot_grant_done(&more);
    }
}
