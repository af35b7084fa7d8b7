/* SPDX-License-Identifier: Apache-2.0 */

/* MPS of the cards, connected with the rest of the agent: options, driver, shares, health. */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/config/card_config.h"
#include "agent/os/selinux.h"
#include "base/err.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/driver/driver.h"

/* ---- what MPS asks of the agent ---- */

static bool find_driver(struct mps_driver *ret, char ret_why[static GPU_REASON_MAX],
                        void *userdata) {
    struct agent *a = userdata;
    const struct gpu_driver *driver = a->shares.driver;

    *ret = (struct mps_driver){0};
    if (!driver) {
        text_copy(ret_why, GPU_REASON_MAX, "no GPU driver was found on this node");
        return false;
    }
    text_copy(ret->nvml, sizeof(ret->nvml), a->nvml_library);
    if (gpu_driver_program(driver, &a->shares.places, "nvidia-cuda-mps-control", ret->control,
                           sizeof(ret->control)) < 0)
        ret->control[0] = 0;
    if (gpu_driver_program(driver, &a->shares.places, "nvidia-cuda-mps-server", ret->server,
                           sizeof(ret->server)) < 0)
        ret->server[0] = 0;
    return true;
}

static uint32_t count_holders(const char *uuid, void *userdata) {
    const struct agent *a = userdata;
    uint32_t n = 0;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next)
        n += slot_has_device(slot, uuid);
    return n;
}

/* With the next snapshot the card is judged again. */
static void on_change(void *userdata) {
    struct agent *a = userdata;

    if (!a->closing && a->shares.monitor)
        (void) gpu_monitor_poll(a->shares.monitor);
}

/* ---- which cards ---- */

static size_t find_card(const struct agent *a, const char *uuid) {
    size_t i = 0;

    while (i < a->nmps_cards && strcmp(a->mps_cards[i].uuid, uuid) != 0)
        i++;
    return i;
}

/* A share's own limits are in its container's environment, which may only lower those of the
 * daemon: these are the whole card, or one replica of it. */
static struct mps_limits limits_of(const struct agent *a, const struct gpu_snapshot *s,
                                   const struct gpu_device *d) {
    struct config_offer offer = {.replicas = 1};

    if (!config_card_offer(a->node_config, s, d, &offer))
        offer.replicas = 1;
    return (struct mps_limits){.percent = offer.replicas < 100 ? 100 / offer.replicas : 1,
                               .memory = d->memory / offer.replicas};
}

static void set_card(struct agent *a, size_t at, const struct gpu_device *d,
                     const struct mps_limits *limits) {
    struct mps_card *c = &a->mps_cards[at];

    if (at == a->nmps_cards)
        a->nmps_cards++;
    *c = (struct mps_card){.limits = *limits};
    text_copy(c->uuid, sizeof(c->uuid), d->uuid);
}

/* By the order of aliquot-scheduler. Until that was read it stays as a former agent has left it. */
static bool is_ordered(const struct agent *a, const struct gpu_snapshot *s,
                       const struct gpu_device *d) {
    int ordered;

    if (!config_card_dynamic(a->node_config, s, d))
        return false;
    ordered = card_dynamic_mps(a, d->uuid);
    return ordered < 0 ? mps_has_begun(a->shares.mps, d->uuid) : ordered > 0;
}

static bool is_wanted(const struct agent *a, const struct gpu_snapshot *s,
                      const struct gpu_device *d) {
    return d->kind == GPU_CARD &&
           (config_card_mode(a->node_config, s, d) == CONFIG_MODE_MPS || is_ordered(a, s, d));
}

bool card_mps_has(const struct agent *a, const struct gpu_snapshot *s, const struct gpu_device *d) {
    if (config_card_mode(a->node_config, s, d) == CONFIG_MODE_MPS)
        return true;
    return a->shares.mps && config_card_dynamic(a->node_config, s, d) &&
           mps_is_in_force(a->shares.mps, d->uuid);
}

/* A card that is not in the snapshot stays what it was. */
static void update_card(struct agent *a, const struct gpu_snapshot *s, const struct gpu_device *d) {
    const struct mps_limits limits = limits_of(a, s, d);
    bool wanted = is_wanted(a, s, d);
    size_t at = find_card(a, d->uuid);

    if (wanted && at < GPU_CARDS_MAX && d->memory > 0)
        set_card(a, at, d, &limits);
    else if (!wanted && at < a->nmps_cards)
        a->mps_cards[at] = a->mps_cards[--a->nmps_cards];
}

void card_mps_update(struct agent *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);

    if (!a->shares.mps)
        return;
    for (uint32_t i = 0; i < s->ndevices; i++)
        update_card(a, s, &s->devices[i]);
    mps_set_cards(a->shares.mps, a->mps_cards, a->nmps_cards);
    mps_update(a->shares.mps, s);
}

const char *card_mps_judge(struct agent *a, const struct gpu_device *d) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);
    struct mps_card_status status;
    const char *why;

    if (!a->shares.mps || d->kind != GPU_CARD)
        return NULL;
    why = mps_judge(a->shares.mps, d);
    /* An order is followed after the health of the card is evaluated. */
    if (!why && d->healthy && is_ordered(a, s, d) &&
        !mps_card_status(a->shares.mps, d->uuid, &status))
        why = "MPS is not started yet";
    return why;
}

/* ---- life ---- */

int card_mps_start(struct agent *a, struct err *err) {
    static char dir[512];
    const struct mps_options options = {.daemon = {.program = "/proc/self/exe",
                                                   .selinux = SELINUX_INTERFACE,
                                                   .bounded = a->shares.slots.bounded,
                                                   .driver = find_driver,
                                                   .on_change = on_change,
                                                   .userdata = a},
                                        .dir = dir,
                                        .holders = count_holders};

    (void) snprintf(dir, sizeof(dir), "%s/mps", a->shares.options.state_dir);
    return mps_start(a->loop, &options, &a->shares.mps, err);
}

void card_mps_stop(struct agent *a, void (*on_closed)(void *userdata)) {
    struct mps *m = a->shares.mps;

    a->shares.mps = NULL;
    if (m)
        mps_close(m, on_closed, a);
    else
        on_closed(a);
}
