/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report/device_object.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/cluster/pods.h"
#include "agent/health/cards.h"
#include "agent/report/report.h"
#include "agent/shares/slot_users.h"
#include "base/text.h"
#include "kube/api/object_write.h"
#include "kube/objects/gpu_object.h"
#include "kube/objects/node.h"

/* Longer than the scheduler waits after a refused eviction. */
#define EVICT_TURN_S 30

static void add_overuse(const struct shares *shares, const struct slot *slot, uint32_t pid,
                        struct gpu_object *ret) {
    struct slot_user user;

    slot_user_of_process(shares, slot, pid, &user);
    gpu_object_add_overuse(ret, user.namespace, user.pod, user.container);
}

static void put_overuse(const struct report *report, const char *uuid, struct gpu_object *ret) {
    for (const struct slot *slot = report->shares->slots.slots; slot; slot = slot->hh.next)
        for (uint32_t i = 0; i < slot->grant.ndevices; i++)
            if (slot->grant.devices[i].memory_audit.state >= AUDIT_MEMORY_ESCAPED &&
                strcmp(slot->grant.devices[i].uuid, uuid) == 0)
                add_overuse(report->shares, slot, slot->grant.devices[i].worst_pid, ret);
}

/* Its owner has marked the pod for the upgrade controller, which leaves it where it is. */
static bool is_to_stay(const struct health *h, const struct slot_user *user) {
    return user->entry && user->entry->pod.skips_upgrades && health_drains_by(h, "by nvidia.com/");
}

static bool add_evict(const struct slot_user *user, struct gpu_object *ret) {
    return gpu_object_add_evict(ret, user->namespace, user->pod, user->uid);
}

/* Fills ret->evict with that page of the pods, and returns how many pages there are. */
static uint64_t put_page(const struct shares *shares, const struct health_cards *health,
                         const struct health_card *card, uint64_t page, struct gpu_object *ret) {
    struct gpu_object filled = {.index = 0};
    struct health_places places;
    uint64_t pages = 0;

    health_cards_places(health, card->uuid, &places);
    for (const struct slot *slot = shares->slots.slots; slot; slot = slot->hh.next) {
        bool holds = health_places_hold(&places, slot);
        struct slot_user user;
        uint32_t at = 0;

        while (holds && slot_users_next(shares, slot, &at, &user)) {
            if (is_to_stay(&card->health, &user))
                continue;
            if (!add_evict(&user, &filled)) {
                pages++;
                filled.evict[0] = 0;
                (void) add_evict(&user, &filled);
            }
            if (pages == page)
                text_copy(ret->evict, sizeof(ret->evict), filled.evict);
        }
    }
    return pages + 1;
}

void device_object_evict(const struct shares *shares, const struct health_cards *health,
                         const char *uuid, uint64_t turn, struct gpu_object *ret) {
    const struct health_card *card = health_cards_find(health, uuid);
    uint64_t pages;

    if (!card || health_work(&card->health) != HEALTH_EVICT)
        return;
    pages = put_page(shares, health, card, 0, ret);
    if (turn % pages > 0)
        (void) put_page(shares, health, card, turn % pages, ret);
}

static void put_maintenance(const struct report *report, const char *uuid, struct gpu_object *ret) {
    static const char *const levels[] = {
        [HEALTH_ORDER_UNCORDON] = "",
        [HEALTH_ORDER_CORDON] = "cordon",
        [HEALTH_ORDER_DRAIN] = "drain",
        [HEALTH_ORDER_RELEASE] = "release",
    };
    const struct health_card *card = health_cards_find(report->health, uuid);

    if (card)
        text_copy(ret->maintenance, sizeof(ret->maintenance), levels[health_level(&card->health)]);
}

static void put_reset(const struct report *report, const char *uuid, struct gpu_object *ret) {
    const struct health_card *card = health_cards_find(report->health, uuid);

    if (!card || (card->health.ordered != HEALTH_ORDERED_DONE &&
                  card->health.ordered != HEALTH_ORDERED_FAILED))
        return;
    text_copy(ret->reset.order, sizeof(ret->reset.order), card->reset.text);
    ret->reset.failed = card->health.ordered == HEALTH_ORDERED_FAILED;
    if (ret->reset.failed)
        text_copy(ret->reset.message, sizeof(ret->reset.message), card->health.ordered_failure);
}

static void put_claims(const struct report *report, const struct gpu_device *d,
                       struct gpu_object *ret) {
    ret->claims.allocator = d->allocator;
    if (d->allocator != DRA_NONE)
        text_copy(ret->claims.message, sizeof(ret->claims.message), report->claims_trouble);
}

/* In the words of `nvidia-smi topo -m`. */
static uint8_t link_to(const struct gpu_connections *c, uint32_t other) {
    if (c->nvlinks[other] > 0)
        return (uint8_t) (LINK_NVLINK + (c->nvlinks[other] <= LINK_NVLINKS_MAX
                                             ? c->nvlinks[other] - 1
                                             : LINK_NVLINKS_MAX - 1));
    /* NVML counts from 0, the same board, in tens to 50, another socket. */
    return c->level[other] <= 50 ? (uint8_t) (LINK_BOARD - c->level[other] / 10) : LINK_UNKNOWN;
}

static void put_links(const struct gpu_connections *c, struct gpu_object *ret) {
    ret->nlinks = c->known <= GPU_LINKS_MAX ? c->known : GPU_LINKS_MAX;
    for (uint32_t i = 0; i < ret->nlinks; i++)
        ret->links[i] = i == ret->index ? LINK_UNKNOWN : link_to(c, i);
}

static void put_health(const struct report *report, const char *uuid, struct gpu_object *ret) {
    struct health_view view = health_cards_view(report->health, uuid);

    text_copy(ret->state, sizeof(ret->state), health_state_name(view.state));
    text_copy(ret->reason, sizeof(ret->reason), view.reason);
    object_time((time_t) view.since, ret->since);
    ret->last_xid = view.last_xid;
}

void device_object_name(const struct report *report, const struct node_object *node,
                        const struct gpu_device *card, const struct gpu_device *d,
                        char ret[static KUBE_NAME_MAX]) {
    char name[KUBE_NAME_MAX] = "";

    (void) gpu_object_name(report->shares->options.node_name, node->internal_ip, card->index, name);
    if (gpu_is_part(d))
        (void) gpu_object_instance_name(name, d->mig.gi, d->mig.ci, ret);
    else
        text_copy(ret, KUBE_NAME_MAX, name);
}

static void put_mig(const struct gpu_device *d, struct gpu_object *ret) {
    text_copy(ret->parent, sizeof(ret->parent), d->parent);
    ret->mig = (struct gpu_object_mig){.enabled = d->divided,
                                       .disabled = !d->divided && d->traits.mig_capable,
                                       .gi = d->mig.gi,
                                       .ci = d->mig.ci,
                                       .start = d->mig.start,
                                       .size = d->mig.size,
                                       .slices = d->mig.ci_slices};
    text_copy(ret->mig.profile, sizeof(ret->mig.profile), d->mig.profile);
    ret->no_shares = !gpu_gives_shares(d) || d->allocator == DRA_KUBE_SCHEDULER;
    ret->whole_only = d->whole_only;
    ret->under_mps = d->under_mps;
    ret->mps_on_demand = d->mps_on_demand;
    ret->replicas = d->replicas;
    ret->core = gpu_core(d);
}

void device_object(const struct report *report, const struct node_object *node,
                   const struct gpu_device *card, const struct gpu_device *d,
                   struct gpu_object *ret) {
    memset(ret, 0, sizeof(*ret));
    device_object_name(report, node, card, d, ret->name);
    text_copy(ret->node, sizeof(ret->node), report->shares->options.node_name);
    text_copy(ret->owner, sizeof(ret->owner), node->uid);
    text_copy(ret->uuid, sizeof(ret->uuid), d->uuid);
    text_copy(ret->model, sizeof(ret->model), card->model);
    if (report->shares->driver)
        gpu_driver_path(report->shares->driver, &report->shares->places, d, ret->path);
    ret->index = card->index;
    ret->memory = d->memory;
    put_mig(d, ret);
    ret->capacity = shares_capacity(report->shares, d);
    put_health(report, d->uuid, ret);
    if (d->traits.vgpu)
        text_copy(ret->licence, sizeof(ret->licence),
                  d->traits.unlicensed ? "Unlicensed" : "Licensed");
    ret->numa = (int8_t) (card->links.known > 0 ? card->links.numa : -1);
    put_links(&d->links, ret);
    put_overuse(report, d->uuid, ret);
    put_maintenance(report, d->uuid, ret);
    put_reset(report, d->uuid, ret);
    put_claims(report, d, ret);
    device_object_evict(report->shares, report->health, d->uuid,
                        (uint64_t) time(NULL) / EVICT_TURN_S, ret);
}

/* Published values are kept while the driver does not answer. */
static bool same_links(const struct gpu_object *have, const struct gpu_object *want) {
    if (want->nlinks == 0)
        return want->numa < 0 || have->numa == want->numa;
    return have->numa == want->numa && have->nlinks == want->nlinks &&
           memcmp(have->links, want->links, want->nlinks) == 0;
}

static bool same_mig(const struct gpu_object *a, const struct gpu_object *b) {
    return strcmp(a->parent, b->parent) == 0 && a->mig.enabled == b->mig.enabled &&
           a->mig.disabled == b->mig.disabled && strcmp(a->mig.profile, b->mig.profile) == 0 &&
           a->mig.gi == b->mig.gi && a->mig.ci == b->mig.ci && a->mig.start == b->mig.start &&
           a->mig.size == b->mig.size && a->mig.slices == b->mig.slices;
}

bool device_object_same_spec(const struct gpu_object *a, const struct gpu_object *b) {
    return same_links(a, b) && same_mig(a, b) && a->whole_only == b->whole_only &&
           a->under_mps == b->under_mps && a->mps_on_demand == b->mps_on_demand &&
           card_replicas_code(&a->replicas) == card_replicas_code(&b->replicas) &&
           a->index == b->index && a->memory == b->memory && strcmp(a->owner, b->owner) == 0 &&
           strcmp(a->uuid, b->uuid) == 0 && strcmp(a->model, b->model) == 0 &&
           (strcmp(a->path, b->path) == 0 || !b->path[0]);
}

bool device_object_same_capacity(const struct gpu_object *have, const struct gpu_object *want) {
    return have->has_capacity && have->no_shares == want->no_shares &&
           (want->no_shares || (have->capacity == want->capacity && have->core == want->core));
}

bool device_object_same_reset(const struct gpu_object *have, const struct gpu_object *want) {
    return !want->reset.order[0] || (strcmp(have->reset.order, want->reset.order) == 0 &&
                                     have->reset.failed == want->reset.failed);
}

bool device_object_same_claims(const struct gpu_object *have, const struct gpu_object *want) {
    return have->claims.allocator == want->claims.allocator &&
           strcmp(have->claims.message, want->claims.message) == 0;
}
