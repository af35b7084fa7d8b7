/* SPDX-License-Identifier: Apache-2.0 */

/* The DRA driver: shares for ResourceClaims, connected with the rest of the agent. */

#include <errno.h>
#include <string.h>
#include <time.h>

#include "agent/agent.h"
#include "agent/audit/usage.h"
#include "agent/config/card_config.h"
#include "agent/dra/claim_devices.h"
#include "agent/dra/messages.h"
#include "agent/dra/placements.h"
#include "agent/dra/plugin.h"
#include "agent/dra/slices.h"
#include "agent/mig/executor.h"
#include "agent/shares/claim_rule.h"
#include "agent/shares/slot_users.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "model/dra.h"

#define REGISTERED_MS 10000 /* from the start of the agent or of kubelet, at most */

static void on_prepare(struct grpc_call *call, const struct dra_claim_ids *claims, void *userdata) {
    struct agent *a = userdata;

    dra_prepare_begin(&a->claims, call, claims);
}

static void on_unprepare(struct grpc_call *call, const struct dra_claim_ids *claims,
                         void *userdata) {
    struct agent *a = userdata;

    dra_unprepare(&a->claims, call, claims);
}

static void on_prepared(void *userdata) {
    struct agent *a = userdata;

    usage_sweep(&a->audit);
}

static void put_device(const struct agent *a, const char *name, const struct gpu_device *d,
                       struct buf *out) {
    dra_message_health(&(struct dra_health){.pool = a->shares.options.node_name,
                                            .device = name,
                                            .healthy = gpu_takes_pods(d),
                                            .message = gpu_takes_pods(d) ? "" : d->reason,
                                            .updated = time(NULL),
                                            .timeout_s = 3 * DRA_HEALTH_REPEAT_MS / 1000},
                       out);
}

/* What is not made yet is as healthy as the card. */
static void put_placements(const struct agent *a, const struct gpu_snapshot *s,
                           const struct gpu_device *d, const struct mig_card *card,
                           struct buf *out) {
    struct mig_place places[DRA_PLACEMENTS_MAX];
    uint32_t n = dra_placements(card, places);
    char name[DEVICE_NAME_MAX];

    for (uint32_t i = 0; i < n; i++) {
        const struct gpu_device *part = dra_placement_instance(s, d->uuid, card, &places[i]);

        dra_placement_name(d->uuid, &places[i], name);
        put_device(a, name, part ? part : d, out);
    }
}

/* Of what can be in claims. */
static void put_health(struct buf *out, void *userdata) {
    const struct agent *a = userdata;
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        const struct mig_card *card = d->divided ? card_dynamic_for_claims(a, d->uuid) : NULL;
        char name[DEVICE_NAME_MAX];

        if (card)
            put_placements(a, s, d, card, out);
        if (d->kind != GPU_CARD && d->kind != GPU_MIG_INSTANCE)
            continue;
        dra_device_name(d->uuid, name);
        put_device(a, name, d, out);
    }
}

static void on_state(bool registered, const char *why, void *userdata) {
    struct agent *a = userdata;

    text_copy(a->claims_trouble.kubelet, sizeof(a->claims_trouble.kubelet), why);
    if (registered)
        log_info("kubelet has taken the DRA driver " DRA_DRIVER);
    else
        log_warn("the DRA driver " DRA_DRIVER " is not registered: %s", why);
}

static void on_detached(void *userdata) {
    struct agent *a = userdata;

    a->on_detached(a, "plugins_registry or plugins/" DRA_DRIVER);
}

static void on_trouble(const char *why, void *userdata) {
    struct agent *a = userdata;
    char text[DRA_SLICES_TROUBLE_MAX + 96];

    text_copy(a->claims_trouble.slices, sizeof(a->claims_trouble.slices), why);
    if (!why[0])
        return;
    (void) snprintf(text, sizeof(text), "no ResourceSlices of this node are published: %s", why);
    pod_events_node(&a->shares.events, a->shares.options.node_name, "ResourceSlicesNotPublished",
                    text);
}

/* A restarted kubelet registers the driver within a second. */
static void follow_registration(struct agent *a) {
    struct claims_trouble *t = &a->claims_trouble;

    if (dra_plugin_is_registered(a->dra))
        t->since = 0;
    else if (t->since == 0)
        t->since = uv_now(a->loop);
}

/* For /healthz and the GPU objects. */
static void put_trouble(struct agent *a) {
    const struct claims_trouble *t = &a->claims_trouble;
    char *ret = a->report.claims_trouble;
    size_t size = sizeof(a->report.claims_trouble);

    follow_registration(a);
    if (t->slices[0])
        (void) snprintf(ret, size, "no ResourceSlices are published: %.400s", t->slices);
    else if (t->since > 0 && uv_now(a->loop) - t->since > REGISTERED_MS)
        (void) snprintf(ret, size, "kubelet has not registered the driver " DRA_DRIVER "%s%s",
                        t->kubelet[0] ? ": " : "", t->kubelet);
    else
        ret[0] = 0;
}

static const struct gpu_snapshot *devices(void *userdata) {
    const struct agent *a = userdata;

    return gpu_monitor_snapshot(a->shares.monitor);
}

static uint64_t capacity(const struct gpu_device *d, void *userdata) {
    const struct agent *a = userdata;

    return shares_capacity(&a->shares, d);
}

/* aliquot-scheduler evicts the pods of its cards within their disruption budgets. Of other cards it
 * may know nothing, and need not be there. */
static bool evicts(const struct gpu_device *d, void *userdata) {
    const struct agent *a = userdata;
    const struct health_card *card = health_cards_find(&a->health, d->uuid);

    return d->allocator == DRA_KUBE_SCHEDULER && card && health_work(&card->health) == HEALTH_EVICT;
}

static bool ends(const struct gpu_device *d, void *userdata) {
    const struct agent *a = userdata;

    return a->mig && mig_executor_withdraws(a->mig, d->uuid);
}

static bool is_whole(const struct gpu_device *d, void *userdata) {
    const struct agent *a = userdata;

    return card_allocator_gives_instance(a, gpu_monitor_snapshot(a->shares.monitor), d);
}

static const struct mig_card *dynamic(const struct gpu_device *card, void *userdata) {
    return card_dynamic_for_claims(userdata, card->uuid);
}

/* An instance that is made for the claim. */
static int make(const char *device, const struct gpu_device **ret, void *userdata,
                struct err *err) {
    struct agent *a = userdata;
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const char *uuid = s->devices[i].uuid;
        const struct mig_card *card =
            s->devices[i].divided ? card_dynamic_for_claims(a, uuid) : NULL;
        struct mig_place place;

        if (!card || !dra_placement_find(uuid, card, device, &place))
            continue;
        *ret = dra_placement_instance(s, uuid, card, &place);
        return *ret ? 0 : card_dynamic_want(a, uuid, &place, err);
    }
    return -ENOENT;
}

static bool has_claims(const struct agent *a) {
    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        if (slot->grant.claim)
            return true;
    return false;
}

bool resource_claims_are_read(const struct agent *a) {
    return a->config.allocator != DRA_NONE || has_claims(a);
}

/* kubelet keeps a pod whose claim the driver has prepared until the driver unprepares it: so the
 * driver stays for claims from before it was switched off. kubelet deletes the slices later. */
int resource_claims_start(struct agent *a, struct err *err) {
    const struct dra_plugin_options plugin = {.kubelet_dir = a->config.kubelet_dir,
                                              .on_prepare = on_prepare,
                                              .on_unprepare = on_unprepare,
                                              .health = put_health,
                                              .on_state = on_state,
                                              .on_detached = on_detached,
                                              .userdata = a};
    const struct dra_slices_options slices = {.client = a->client,
                                              .node = a->shares.options.node_name,
                                              .devices = devices,
                                              .is_whole = is_whole,
                                              .dynamic = dynamic,
                                              .capacity = capacity,
                                              .ends = ends,
                                              .evicts = evicts,
                                              .on_trouble = on_trouble,
                                              .userdata = a};
    int r = 0;

    a->claims.shares = &a->shares;
    a->claims.client = a->client;
    a->claims.source = (struct dra_source){make, is_whole, a};
    a->claims.on_prepared = on_prepared;
    a->claims.userdata = a;
    dra_prepare_init(&a->claims);
    if (!resource_claims_are_read(a))
        return 0;
    if (a->config.allocator == DRA_NONE)
        a->claims.refusal = "the agent of this node gives no shares to claims any more "
                            "(--resource-claims=off)";
    else
        r = dra_slices_start(&slices, &a->slices, err);
    return r < 0 ? r : dra_plugin_start(a->loop, &plugin, &a->dra, err);
}

static uint64_t hash_health(const struct gpu_snapshot *s) {
    uint64_t hash = HASH_START;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        bool takes = gpu_takes_pods(d);

        hash = hash_bytes(hash, d->uuid, strlen(d->uuid) + 1);
        hash = hash_bytes(hash, d->reason, strlen(d->reason) + 1);
        hash = hash_bytes(hash, &takes, sizeof(takes));
    }
    return hash;
}

static void on_plugin_closed(void *userdata) {
    (void) userdata;
    log_info("no claim has a share any more: the DRA driver " DRA_DRIVER " has ended");
}

static void stop_plugin(struct agent *a) {
    dra_prepare_stop(&a->claims);
    dra_plugin_close(a->dra, on_plugin_closed, a);
    a->dra = NULL;
    a->report.claims_trouble[0] = 0;
}

void resource_claims_update(struct agent *a) {
    uint64_t health = hash_health(gpu_monitor_snapshot(a->shares.monitor));

    slot_gc_claims(&a->shares);
    if (a->dra && !resource_claims_are_read(a))
        stop_plugin(a);
    if (!a->dra)
        return;
    if (health != a->claims_health)
        dra_plugin_health_changed(a->dra);
    a->claims_health = health;
    put_trouble(a);
    /* What pods are about to have of a card decides which allocator it has. */
    if (a->slices && card_dynamic_is_settled(a) && pods_ever_synced(a->shares.pods))
        dra_slices_update(a->slices);
    dra_prepare_wake(&a->claims);
}

/* kubelet does not tell which pods use a claim, and prepares it once for all. */
void resource_claims_pod(struct agent *a, const struct pod_entry *e) {
    for (struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next) {
        const struct slot_grant *g = &slot->grant;
        struct err err;

        if (!g->claim || g->newer || slot->releasing || e->pod.finished ||
            strcmp(g->namespace, e->pod.namespace) != 0 ||
            !pod_claim_use_find(e, NULL, g->claim->name))
            continue;
        if (slot_users_add(&a->shares, slot, e->pod.uid, &err) < 0)
            log_warn("ResourceClaim %s/%s: %s", g->namespace, g->claim->name, err.text);
        if (claim_rule_check(&a->shares, e, g->claim->name, NULL, NULL, &err) < 0)
            pod_events_pod(&a->shares.events, e->pod.namespace, e->pod.name, e->pod.uid,
                           "GPUClaimBesideShare", err.text);
    }
}

void resource_claims_see_node(struct agent *a, struct json node) {
    const char *uid = json_string(JSON_PATH(node, "metadata", "uid"));

    if (a->slices && uid)
        dra_slices_set_node(a->slices, uid);
}

unsigned resource_claims_stop(struct agent *a, void (*on_closed)(void *userdata)) {
    unsigned closing = 0;

    dra_prepare_stop(&a->claims);
    if (a->dra) {
        dra_plugin_close(a->dra, on_closed, a);
        closing++;
    }
    if (a->slices) {
        dra_slices_stop(a->slices, on_closed, a);
        closing++;
    }
    a->dra = NULL;
    a->slices = NULL;
    return closing;
}
