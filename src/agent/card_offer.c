/* SPDX-License-Identifier: Apache-2.0 */

/* How each card is given out: by the configuration, and by what containers have of it already. */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/config/card_config.h"
#include "base/text.h"

/* In words. */
enum way { IN_SHARES, WHOLE, IN_REPLICAS };
static const char *const ways[] = {"in shares", "whole", "in replicas"};

static enum way way_of(const struct slot *slot) {
    if (slot->grant.replica)
        return IN_REPLICAS;
    return slot->grant.nwhole > 0 ? WHOLE : IN_SHARES;
}

/* How many containers have the card in another way, and one of them. */
static uint32_t other_holders(const struct agent *a, const char *uuid, enum way way,
                              const struct slot **ret) {
    uint32_t n = 0;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        if (slot_has_device(slot, uuid) && way_of(slot) != way) {
            *ret = slot;
            n++;
        }
    return n;
}

static enum gpu_offer offer_of(const struct agent *a, bool by_kubelet, enum way way) {
    if (!by_kubelet)
        return GPU_OFFER_SHARES;
    return way == IN_REPLICAS && a->node_config->sharing == CONFIG_MPS ? GPU_OFFER_PARTS
                                                                       : GPU_OFFER_WHOLE;
}

static enum gpu_offer offer_to(const struct slot *slot) {
    if (slot->grant.nwhole > 0)
        return GPU_OFFER_WHOLE;
    return slot->grant.replica ? GPU_OFFER_PARTS : GPU_OFFER_SHARES;
}

/* It stays as it is while containers have it, and takes no others. Reasons are Events of all pods
 * on the card: they name no pod. */
static bool wait_for(uint32_t n, enum way present, enum way way,
                     char ret_why[static GPU_REASON_MAX]) {
    (void) snprintf(ret_why, GPU_REASON_MAX,
                    "it is given out %s when containers that have it %s have ended: %u left",
                    ways[way], ways[present], n);
    return true;
}

/* A pod has all of it, without a limit. */
static bool is_given_elsewhere(const struct agent *a, const char *uuid,
                               char ret_why[static GPU_REASON_MAX]) {
    const struct cross_check_other *o = cross_check_other(&a->cross_check, uuid);

    if (o)
        (void) snprintf(ret_why, GPU_REASON_MAX,
                        "another device plugin has given it to a pod as %.100s", o->resource);
    return o != NULL;
}

/* In shares where the configuration says so, else by kubelet, or to claims with all of it as their
 * share. */
static bool judge_instance(const struct agent *a, struct gpu_device *d,
                           char ret_why[static GPU_REASON_MAX]) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    bool shared = config_card_mode(a->node_config, s, d) == CONFIG_MODE_SHARE ||
                  card_allocator_gives_instance(a, s, d);
    struct config_offer offer = {.replicas = 1};
    enum way way = IN_SHARES;
    const struct slot *holder = NULL;
    uint32_t n;

    d->offer = shared ? GPU_OFFER_SHARES : GPU_OFFER_DEFAULT;
    if (!shared)
        way = whole_offer_of(&a->whole_rows, s, d, &offer) && offer.replicas > 1 ? IN_REPLICAS
                                                                                 : WHOLE;
    n = other_holders(a, d->uuid, way, &holder);
    if (!holder)
        return is_given_elsewhere(a, d->uuid, ret_why);
    d->offer = way_of(holder) == IN_SHARES ? GPU_OFFER_SHARES : GPU_OFFER_DEFAULT;
    return wait_for(n, way_of(holder), way, ret_why);
}

bool card_offer_judge(struct agent *a, struct gpu_device *d, char ret_why[static GPU_REASON_MAX]) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    struct config_offer offer = {.replicas = 1};
    const struct slot *holder = NULL;
    bool by_kubelet;
    uint32_t n;
    enum way way;

    if (d->kind == GPU_MIG_INSTANCE)
        return judge_instance(a, d, ret_why);
    if (d->kind != GPU_CARD || d->divided)
        return false;
    d->scaling =
        a->config.shares.memory_scaling > 0 ? 0 : config_card_scaling(a->node_config, s, d);
    by_kubelet = config_card_offer(a->node_config, s, d, &offer);
    way = !by_kubelet ? IN_SHARES : offer.replicas > 1 ? IN_REPLICAS : WHOLE;
    d->offer = offer_of(a, by_kubelet, way);
    (void) config_card_replicas(a->node_config, s, d, &d->replicas);
    d->under_mps = card_mps_has(a, s, d);
    d->mps_on_demand = config_card_dynamic(a->node_config, s, d);
    d->whole_only = !by_kubelet && config_card_mode(a->node_config, s, d) == CONFIG_MODE_WHOLE;
    if (config_card_mode(a->node_config, s, d) == CONFIG_MODE_MIG) {
        text_copy(ret_why, GPU_REASON_MAX,
                  "it is given out in MIG instances (mode mig), and is not in MIG mode");
        return true;
    }
    n = other_holders(a, d->uuid, way, &holder);
    if (!holder)
        return is_given_elsewhere(a, d->uuid, ret_why);
    d->offer = offer_to(holder);
    return wait_for(n, way_of(holder), way, ret_why);
}
