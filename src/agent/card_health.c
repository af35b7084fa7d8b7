/* SPDX-License-Identifier: Apache-2.0 */

/* The health of the cards, connected with the rest of the agent: shares, Events, the kernel's log.
 */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/config/node_config.h"
#include "agent/os/kmsg.h"
#include "agent/report/publish.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/nvml/monitor.h"

/* What is on an instance is on its card. */
static bool is_on(const struct agent *a, const struct slot *slot, const char *uuid) {
    for (uint32_t i = 0; i < slot->grant.nwhole; i++) {
        const struct health_card *part = health_cards_find(&a->health, slot->grant.whole[i].uuid);

        if (part && strcmp(part->parent, uuid) == 0)
            return true;
    }
    return slot_has_device(slot, uuid);
}

static uint32_t holders(const char *uuid, void *userdata) {
    const struct agent *a = userdata;
    uint32_t n = 0;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        n += is_on(a, slot, uuid);
    return n;
}

/* ---- Events ---- */

static void tell_pods(struct agent *a, const struct health_card *card, const char *reason,
                      const char *message) {
    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        if (is_on(a, slot, card->uuid))
            pod_events_container(&a->shares.events, slot->grant.namespace, slot->grant.pod,
                                 slot->grant.pod_uid, slot->grant.container, reason, message);
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

/* ---- input ---- */

/* A card without its MPS daemon answers: its figures stay, and it takes no containers. */
static void judge_mps(struct agent *a, const struct gpu_device *d) {
    const char *why = card_mps_judge(a, d);
    char text[GPU_REASON_MAX];

    (void) snprintf(text, sizeof(text), "MPS: %s", why ? why : "");
    health_cards_set_problem(&a->health, d->uuid, HEALTH_MPS, why ? text : NULL);
}

void card_health_judge(struct gpu_device *d, void *userdata) {
    struct agent *a = userdata;

    if (!d->saved)
        judge_mps(a, d);
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

/* ---- orders ---- */

static void follow_orders(struct agent *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    bool changed = false;

    for (uint32_t i = 0; i < s->ndevices; i++) {
        const struct gpu_device *d = &s->devices[i];
        const struct gpu_orders *orders =
            d->kind == GPU_CARD ? publisher_orders(a->report.publisher, d) : NULL;

        changed |= orders && health_cards_order(&a->health, d->uuid, HEALTH_ORDER_SET_HEALTHY,
                                                orders->set_healthy);
    }
    if (changed)
        (void) gpu_monitor_poll(a->shares.monitor); /* the verdict reaches the snapshot with it */
}

/* ---- probes ---- */

void card_health_probed(const char *uuid, const char *error, void *userdata) {
    struct agent *a = userdata;

    if (a->closing)
        return;
    health_cards_end(&a->health, uuid, HEALTH_PROBE, error);
    (void) gpu_monitor_poll(a->shares.monitor); /* its reading decides */
}

/* A probe that cannot begin now is tried again after the next snapshot. */
void card_health_work(struct agent *a) {
    const struct health_card *card;

    follow_orders(a);
    health_cards_save(&a->health);
    while ((card = health_cards_waiting(&a->health, HEALTH_PROBE)) &&
           gpu_monitor_probe(a->shares.monitor, card->uuid) == 0)
        health_cards_begin(&a->health, card->uuid);
}

/* ---- life ---- */

void card_health_start(struct agent *a) {
    const struct health_cards_options options = {.rules = &a->node_config->health,
                                                 .state_dir = a->shares.options.state_dir,
                                                 .holders = holders,
                                                 .on_change = on_change,
                                                 .userdata = a};
    struct err err;

    health_cards_start(&a->health, &options);
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
