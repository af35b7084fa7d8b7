/* SPDX-License-Identifier: Apache-2.0 */

/* The allocator of each card: by the configuration, and by what is held of the card. Neither
 * allocator is to find shares that it has not allocated itself: kube-scheduler counts no shares by
 * resource names at all. So a card changes hands only while nothing of it is held. */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/cluster/keys.h"
#include "agent/cluster/pods.h"
#include "agent/config/card_config.h"
#include "agent/shares/grant.h"

/* The allocator that the share keeps the card with, where it is not the wanted one; DRA_NONE: the
 * share is known to that one. Shares by resource names are in no claims, which keep no card from
 * being in none. */
static enum dra_allocator kept_by(const struct slot *slot, enum dra_allocator wanted) {
    enum dra_allocator of = slot->grant.claim ? (enum dra_allocator) slot->grant.claim->allocator
                            : wanted == DRA_KUBE_SCHEDULER ? DRA_ALIQUOT
                                                           : DRA_NONE;

    return of == wanted ? DRA_NONE : of;
}

static uint32_t count_kept(const struct agent *a, const char *uuid, enum dra_allocator wanted,
                           enum dra_allocator *ret) {
    uint32_t n = 0;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next) {
        enum dra_allocator of = kept_by(slot, wanted);

        if (of == DRA_NONE || !slot_has_device(slot, uuid))
            continue;
        *ret = of;
        n++;
    }
    return n;
}

struct place {
    const struct agent *a;
    const char *uuid;
};

static bool is_assigned(const struct pod_entry *e, const void *userdata) {
    const struct place *p = userdata;
    const struct shares *s = &p->a->shares;

    return !e->pod.finished && e->pod.assignment && strstr(e->pod.assignment, p->uuid) &&
           grant_assigns(keys_verifier(s->keys), s->options.node_name, &e->pod, p->uuid);
}

/* A pod that aliquot-scheduler has bound to the card, and that has not started yet. */
static bool is_awaited(const struct agent *a, const char *uuid) {
    const struct place place = {a, uuid};

    return a->shares.pods && a->shares.keys && pods_find_by(a->shares.pods, is_assigned, &place);
}

static void tell(enum dra_allocator wanted, enum dra_allocator present, uint32_t n,
                 char ret_why[static GPU_REASON_MAX]) {
    static const char *const schedulers[DRA_ALLOCATORS] = {
        [DRA_NONE] = "nothing",
        [DRA_ALIQUOT] = "aliquot-scheduler",
        [DRA_KUBE_SCHEDULER] = "kube-scheduler",
    };

    (void) snprintf(ret_why, GPU_REASON_MAX,
                    "%s allocates it to ResourceClaims when shares that %s has allocated have "
                    "ended: %u left",
                    schedulers[wanted], schedulers[present], n);
}

bool card_allocator_judge(const struct agent *a, struct gpu_device *d,
                          char ret_why[static GPU_REASON_MAX]) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    enum dra_allocator wanted, present = DRA_ALIQUOT;
    uint32_t n;

    d->allocator = DRA_NONE;
    if (a->config.allocator == DRA_NONE)
        return false;
    wanted = config_card_allocator(a->node_config, s, d, a->config.allocator);
    n = count_kept(a, d->uuid, wanted, &present);
    if (n == 0 && wanted == DRA_KUBE_SCHEDULER)
        n = is_awaited(a, d->uuid);
    d->allocator = n > 0 ? present : wanted;
    if (n > 0)
        tell(wanted, present, n, ret_why);
    return n > 0;
}
