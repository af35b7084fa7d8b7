/* SPDX-License-Identifier: Apache-2.0 */

/* MPS of the cards, connected with the rest of the agent: options, driver, shares, health. */

#include <stdio.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/config/node_config.h"
#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/text.h"
#include "gpu/driver/driver.h"
#include "wire/yaml.h"

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

static bool is_held(const char *uuid, char ret_by[static GPU_REASON_MAX], void *userdata) {
    const struct agent *a = userdata;

    for (const struct slot *slot = a->shares.slots.slots; slot; slot = slot->hh.next) {
        char by[GPU_REASON_MAX];

        if (!slot_has_device(slot, uuid))
            continue;
        (void) snprintf(by, sizeof(by), "%.60s/%.90s", slot->grant.namespace, slot->grant.pod);
        text_copy(ret_by, GPU_REASON_MAX, by);
        return true;
    }
    return false;
}

/* With the next snapshot the card is judged again. */
static void on_change(void *userdata) {
    struct agent *a = userdata;

    if (!a->closing && a->shares.monitor)
        (void) gpu_monitor_poll(a->shares.monitor);
}

/* ---- which cards ---- */

static bool is_listed(const char *list, const struct gpu_device *d) {
    size_t len;

    for (const char *at = list; *at; at += len + (at[len] == ',')) {
        char item[GPU_UUID_MAX];
        uint64_t index;

        len = strcspn(at, ",");
        text_copy(item, len + 1 < sizeof(item) ? len + 1 : sizeof(item), at);
        if (strcmp(item, "all") == 0 || strcmp(item, d->uuid) == 0 ||
            (num_parse_u64(item, GPU_CARDS_MAX - 1, &index) == 0 && index == d->index))
            return true;
    }
    return false;
}

static bool is_in(const struct yaml *list, const struct gpu_device *d) {
    char index[16];

    (void) snprintf(index, sizeof(index), "%u", d->index);
    for (const struct yaml *v = list->first; v; v = v->next)
        if (strcmp(v->text, d->uuid) == 0 || strcmp(v->text, index) == 0)
            return true;
    return false;
}

/* Of all cards, of so many, or of those in a list. */
static bool is_of(const struct yaml *devices, const struct gpu_device *d) {
    uint64_t count;

    if (!devices)
        return true;
    if (devices->type == YAML_LIST)
        return is_in(devices, d);
    return num_parse_u64(devices->text, UINT32_MAX, &count) == 0 && d->index < count;
}

bool card_mps_is_wanted(const char *list, const struct node_config *c, const struct gpu_device *d) {
    if (d->kind != GPU_CARD)
        return false;
    if (list[0])
        return is_listed(list, d);
    for (size_t i = 0; i < c->ncards; i++)
        if (c->cards[i].mode >= 0 && is_of(c->cards[i].devices, d))
            return c->cards[i].mode == CONFIG_MODE_MPS;
    return c->mode == CONFIG_MODE_MPS;
}

static size_t find_card(const struct agent *a, const char *uuid) {
    size_t i = 0;

    while (i < a->nmps_cards && strcmp(a->mps_cards[i].uuid, uuid) != 0)
        i++;
    return i;
}

/* A share's own limits are in its container's environment, which may only lower those of the
 * daemon: these are the whole card. */
static void add_card(struct agent *a, const struct gpu_device *d) {
    struct mps_card *c = &a->mps_cards[a->nmps_cards++];

    *c = (struct mps_card){.limits = {.percent = 100, .memory = d->memory}};
    text_copy(c->uuid, sizeof(c->uuid), d->uuid);
}

/* A card that is not in the snapshot stays what it was. */
static void update_card(struct agent *a, const struct gpu_device *d) {
    bool wanted = card_mps_is_wanted(a->config.mps_cards, a->node_config, d);
    size_t at = find_card(a, d->uuid);

    if (wanted && at == a->nmps_cards && at < GPU_CARDS_MAX && d->memory > 0)
        add_card(a, d);
    else if (!wanted && at < a->nmps_cards)
        a->mps_cards[at] = a->mps_cards[--a->nmps_cards];
}

void card_mps_update(struct agent *a) {
    const struct gpu_snapshot *s = gpu_monitor_snapshot(a->shares.monitor);

    if (!a->shares.mps)
        return;
    for (uint32_t i = 0; i < s->ndevices; i++)
        update_card(a, &s->devices[i]);
    mps_set_cards(a->shares.mps, a->mps_cards, a->nmps_cards);
    mps_update(a->shares.mps, s);
}

const char *card_mps_judge(struct agent *a, const struct gpu_device *d) {
    return a->shares.mps && d->kind == GPU_CARD ? mps_judge(a->shares.mps, d) : NULL;
}

/* ---- life ---- */

int card_mps_start(struct agent *a, struct err *err) {
    static char dir[512];
    const struct mps_options options = {.daemon = {.program = "/proc/self/exe",
                                                   .selinux = "/sys/fs/selinux",
                                                   .bounded = a->shares.slots.bounded,
                                                   .driver = find_driver,
                                                   .on_change = on_change,
                                                   .userdata = a},
                                        .dir = dir,
                                        .is_held = is_held};

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
