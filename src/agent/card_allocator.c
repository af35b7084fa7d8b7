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
 * being in none. A claim whose allocator is not known may be the other one's. */
static enum dra_allocator kept_by(const struct slot *slot, enum dra_allocator wanted) {
    enum dra_allocator of;

    if (!slot->grant.claim)
        return wanted == DRA_KUBE_SCHEDULER ? DRA_ALIQUOT : DRA_NONE;
    of = (enum dra_allocator) slot->grant.claim->allocator;
    if (of == DRA_NONE)
        of = wanted == DRA_ALIQUOT ? DRA_KUBE_SCHEDULER : DRA_ALIQUOT;
    return of == wanted ? DRA_NONE : of;
}

/* Whether a share of `uuid` is one of the card: also what is of an instance of it. */
static bool is_of(const struct gpu_snapshot *s, const struct gpu_device *card,
                  bool (*has)(const void *share, const char *uuid), const void *share) {
    if (has(share, card->uuid))
        return true;
    for (uint32_t i = 0; card->divided && i < s->ndevices; i++)
        if (strcmp(s->devices[i].parent, card->uuid) == 0 && has(share, s->devices[i].uuid))
            return true;
    return false;
}

static bool slot_has(const void *share, const char *uuid) {
    return slot_has_device(share, uuid);
}

static uint32_t count_kept(const struct agent *a, const struct gpu_snapshot *s,
                           const struct gpu_device *d, enum dra_allocator wanted,
                           enum dra_allocator *ret) {
    uint32_t n = 0;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next) {
        enum dra_allocator of = kept_by(slot, wanted);

        if (of == DRA_NONE || !is_of(s, d, slot_has, slot))
            continue;
        *ret = of;
        n++;
    }
    return n;
}

struct assigned {
    const struct agent *a;
    const struct gpu_snapshot *s;
    const struct gpu_device *d;
    const struct pod *pod;
};

static bool pod_has(const void *share, const char *uuid) {
    const struct assigned *p = share;
    const struct shares *s = &p->a->shares;

    return strstr(p->pod->assignment, uuid) &&
           grant_assigns(keys_verifier(s->keys), s->options.node_name, p->pod, uuid);
}

static bool is_assigned(const struct pod_entry *e, const void *userdata) {
    struct assigned p = *(const struct assigned *) userdata;

    p.pod = &e->pod;
    return !e->pod.finished && e->pod.assignment && is_of(p.s, p.d, pod_has, &p);
}

/* A pod that aliquot-scheduler has bound to the card, and that has not started yet. */
static bool is_awaited(const struct agent *a, const struct gpu_snapshot *s,
                       const struct gpu_device *d) {
    const struct assigned place = {a, s, d, NULL};

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
    n = count_kept(a, s, d, wanted, &present);
    if (n == 0 && wanted == DRA_KUBE_SCHEDULER)
        n = is_awaited(a, s, d);
    d->allocator = n > 0 ? present : wanted;
    if (n > 0)
        tell(wanted, present, n, ret_why);
    return n > 0;
}

bool card_allocator_gives_instance(const struct agent *a, const struct gpu_snapshot *s,
                                   const struct gpu_device *d) {
    return (d->divided || d->kind == GPU_MIG_INSTANCE) && d->allocator == DRA_KUBE_SCHEDULER &&
           a->whole_rows.strategy == MIG_STRATEGY_NONE &&
           config_card_mode(a->node_config, s, d) != CONFIG_MODE_SHARE;
}
