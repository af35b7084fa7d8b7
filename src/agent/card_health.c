/* SPDX-License-Identifier: Apache-2.0 */

/* The health of the cards, connected with the rest of the agent: shares, Events, the kernel's log.
 */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/config/node_config.h"
#include "agent/kubelet/checkpoint.h"
#include "agent/os/kmsg.h"
#include "agent/report/publish.h"
#include "agent/shares/slot_users.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/nvml/monitor.h"

static uint32_t holders(const char *uuid, void *userdata) {
    const struct agent *a = userdata;
    struct health_places places;
    uint32_t n = 0;

    health_cards_places(&a->health, uuid, &places);
    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        n += health_places_hold(&places, slot);
    return n;
}

/* The scheduler has chosen the cards, and kubelet the IDs: they are of the cards in proportion. */
uint32_t card_health_unhealthy_percent(const struct checkpoint_entry *entry, void *userdata) {
    const struct agent *a = userdata;
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    uint32_t core = 0, sick_core = 0, devices = 0, sick = 0;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next) {
        const struct slot_grant *g = &slot->grant;

        if (strcmp(g->pod_uid, entry->pod_uid) != 0 || strcmp(g->container, entry->container) != 0)
            continue;
        for (uint32_t i = 0; i < g->ndevices; i++) {
            const struct gpu_device *d = gpu_find(s, g->devices[i].uuid);
            bool is_sick = d && !gpu_takes_pods(d);

            devices++;
            sick += is_sick;
            core += g->devices[i].core;
            sick_core += is_sick ? g->devices[i].core : 0;
        }
    }
    if (core > 0)
        return 100 * sick_core / core;
    return devices > 0 ? 100 * sick / devices : 0; /* a share of memory only */
}

bool card_health_has_ended(const struct checkpoint_entry *entry, void *userdata) {
    const struct agent *a = userdata;
    const struct pod_entry *e;

    if (!pods_synced(a->shares.pods))
        return false;
    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        if (strcmp(slot->grant.pod_uid, entry->pod_uid) == 0)
            return false;
    e = pods_find(a->shares.pods, entry->pod_uid);
    return !e || e->pod.finished;
}

/* ---- Events ---- */

static void tell_pods(struct agent *a, const struct health_card *card, const char *reason,
                      const char *message) {
    struct health_places places;

    health_cards_places(&a->health, card->uuid, &places);
    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        if (health_places_hold(&places, slot))
            slot_users_event(&a->shares, slot, reason, message);
}

/* A suspicion is for the log and GPU.status only: most pass within the settle time. */
static bool is_event(enum health_state before, enum health_state now) {
    if (now == HEALTH_HEALTHY)
        return before != HEALTH_SUSPECT && before != HEALTH_UNKNOWN;
    return now != HEALTH_SUSPECT;
}

static void on_change(const struct health_card *card, enum health_state before, void *userdata) {
    struct agent *a = userdata;
    const struct health *h = &card->health;
    bool healthy = h->state == HEALTH_HEALTHY;
    const char *reason = healthy ? "GPUHealthy" : "GPUNotHealthy";
    char message[HEALTH_TEXT_MAX + 128], name[KUBE_NAME_MAX], uid[KUBE_UID_MAX];

    (void) snprintf(message, sizeof(message), "%s %u (%s) is %s%s%s", gpu_kind_name(card->kind),
                    card->index, card->uuid, health_state_name(h->state), h->reason[0] ? ": " : "",
                    h->reason);
    if (healthy)
        log_info("%s", message);
    else
        log_warn("%s", message);
    if (!is_event(before, h->state))
        return;
    if (publisher_object(a->report.publisher, card->uuid, name, uid))
        pod_events_card(&a->shares.events, name, uid, reason, message);
    tell_pods(a, card, reason, message);
}

/* Pods see what becomes of their card: a licence that is lost slows them down. */
static void on_notice(const struct health_card *card, const char *reason, const char *text,
                      void *userdata) {
    struct agent *a = userdata;
    char message[HEALTH_TEXT_MAX + 128], name[KUBE_NAME_MAX], uid[KUBE_UID_MAX];

    (void) snprintf(message, sizeof(message), "%s %u (%s): %s", gpu_kind_name(card->kind),
                    card->index, card->uuid, text);
    log_warn("%s", message);
    if (publisher_object(a->report.publisher, card->uuid, name, uid))
        pod_events_card(&a->shares.events, name, uid, reason, message);
    tell_pods(a, card, reason, message);
}

/* ---- input ---- */

/* A card without its MPS daemon answers: its figures stay, and it takes no containers. So does one
 * that is to be given out otherwise than its containers have it, or is about to be divided. */
static void judge_offer(struct agent *a, struct gpu_device *d) {
    char offer[GPU_REASON_MAX], text[GPU_REASON_MAX];
    bool held = card_allocator_judge(a, d, offer);
    bool waits = card_offer_judge(a, d, offer) || card_mig_waits(a, d, offer) || held;
    const char *mps = waits || d->saved ? NULL : card_mps_judge(a, d);

    if (d->saved)
        return;
    if (mps)
        (void) snprintf(text, sizeof(text), "MPS: %.150s", mps);
    health_cards_set_problem(&a->health, d->uuid, HEALTH_OFFER, waits ? offer : NULL);
    health_cards_set_problem(&a->health, d->uuid, HEALTH_MPS, mps ? text : NULL);
}

void card_health_judge(struct gpu_device *d, void *userdata) {
    struct agent *a = userdata;

    judge_offer(a, d);
    health_cards_judge(&a->health, d);
    if (card_orders_of(a, d))
        health_cards_judge(&a->health, d);
}

/* The poll that the XID causes follows by itself; what is decided now need not wait for it. */
void card_health_xid(const struct gpu_xid *x, void *userdata) {
    struct agent *a = userdata;

    if (health_cards_xid(&a->health, x))
        gpu_monitor_judge(a->shares.monitor);
}

static void on_log(const struct kmsg_xid *x, void *userdata) {
    struct agent *a = userdata;

    if (a->closing || !a->shares.monitor)
        return;
    if (health_cards_log(&a->health, x)) {
        gpu_monitor_judge(a->shares.monitor);
        (void) gpu_monitor_poll(a->shares.monitor);
    }
}

/* ---- probes ---- */

/* No context can be made on a card in MIG mode: each of its instances is probed. Returns the one
 * after the one with that UUID ("": the first), "": there is none. */
static const char *next_instance(const struct agent *a, const char *card, const char *after) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    bool found = !after[0];

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];

        if (d->kind != GPU_MIG_INSTANCE || strcmp(d->parent, card) != 0)
            continue;
        if (found)
            return d->uuid;
        found = strcmp(d->uuid, after) == 0;
    }
    return "";
}

static void end_probe(struct agent *a, const char *uuid, const char *error) {
    health_cards_set_probed(&a->health, uuid, "");
    health_cards_end(&a->health, uuid, HEALTH_PROBE, error);
    (void) gpu_monitor_poll(a->shares.monitor); /* its reading decides */
}

/* Without an instance, as after a reset, the card's answers to NVML decide. */
static void probe_instance(struct agent *a, const char *card, const char *instance) {
    if (!instance[0]) {
        end_probe(a, card, NULL);
        return;
    }
    health_cards_set_probed(&a->health, card, instance);
    if (gpu_monitor_probe(a->shares.monitor, instance) < 0)
        end_probe(a, card, "no process could be started for it");
}

/* False: it cannot begin now, and is tried again after the next snapshot. */
static bool begin_probe(struct agent *a, const struct health_card *card) {
    const struct gpu_device *d = gpu_find(gpu_monitor_snapshot(a->shares.monitor), card->uuid);

    if (!d || d->saved || d->released)
        return false;
    if (!d->divided && gpu_monitor_probe(a->shares.monitor, card->uuid) < 0)
        return false;
    health_cards_begin(&a->health, card->uuid);
    if (d->divided)
        probe_instance(a, d->uuid, next_instance(a, d->uuid, ""));
    return true;
}

/* A card that is probed by its instance, which may be under a probe of its own, too. */
static void go_on(struct agent *a, const struct health_card *part, const char *error) {
    const struct health_card *card = health_cards_find(&a->health, part->parent);

    if (!card || strcmp(card->probed, part->uuid) != 0)
        return;
    if (error)
        end_probe(a, card->uuid, error);
    else
        probe_instance(a, card->uuid, next_instance(a, card->uuid, part->uuid));
}

void card_health_probed(const char *uuid, const char *error, void *userdata) {
    struct agent *a = userdata;
    const struct health_card *card = health_cards_find(&a->health, uuid);

    if (a->closing || !card)
        return;
    if (card->working)
        end_probe(a, uuid, error);
    if (card->parent[0])
        go_on(a, card, error);
}

/* ---- work ---- */

void card_health_work(struct agent *a) {
    const struct health_card *card;

    if (a->closing)
        return;
    if (card_orders_follow(a)) {
        gpu_monitor_judge(a->shares.monitor); /* the verdict reaches the snapshot, and calls this */
        return;
    }
    health_cards_save(&a->health);
    card_reset_work(a);
    while ((card = health_cards_waiting(&a->health, HEALTH_PROBE)) && begin_probe(a, card))
        ;
}

/* ---- life ---- */

void card_health_start(struct agent *a) {
    const struct health_cards_options options = {.rules = &a->node_config->health,
                                                 .state_dir = a->shares.options.state_dir,
                                                 .holders = holders,
                                                 .on_change = on_change,
                                                 .on_notice = on_notice,
                                                 .userdata = a};
    struct err err;

    health_cards_start(&a->health, &options);
    a->health.awaits_orders = true;
    if (!a->config.kmsg[0] || strcmp(a->config.kmsg, "off") == 0)
        return;
    if (a->health.log_sequence == 0) {
        a->health.log_sequence = kmsg_last(a->config.kmsg);
        a->health.unsaved = true;
        health_cards_save(&a->health);
    }
    if (kmsg_start(a->loop, a->config.kmsg, a->health.log_sequence, on_log, a, &a->kmsg, &err) < 0)
        log_warn("%s: XIDs that NVML does not report go unnoticed", err.text);
}

void card_health_stop(struct agent *a, void (*on_closed)(void *userdata)) {
    health_cards_save(&a->health);
    if (a->kmsg)
        kmsg_close(a->kmsg, on_closed, a);
    else
        on_closed(a);
}
