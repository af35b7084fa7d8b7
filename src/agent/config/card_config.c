/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/config/card_config.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/text.h"
#include "gpu/device.h"
#include "model/dialect.h"
#include "wire/yaml.h"

/* ---- lists of devices ---- */

static const struct gpu_device *card_of(const struct gpu_snapshot *s, const struct gpu_device *d) {
    return gpu_is_part(d) ? gpu_find(s, d->parent) : d;
}

/* "0", or "0:1" for an instance. */
static void name_index(const struct gpu_snapshot *s, const struct gpu_device *d,
                       char ret[static 24]) {
    const struct gpu_device *card = card_of(s, d);

    if (!gpu_is_part(d))
        (void) snprintf(ret, 24, "%u", d->index);
    else
        (void) snprintf(ret, 24, "%u:%u", card ? card->index : GPU_CARDS_MAX, d->index);
}

static bool is_in(const struct yaml *list, const struct gpu_snapshot *s,
                  const struct gpu_device *d) {
    char index[24];

    name_index(s, d, index);
    for (const struct yaml *v = list->first; v; v = v->next)
        if (strcmp(v->text, d->uuid) == 0 || strcmp(v->text, index) == 0)
            return true;
    return false;
}

/* Devices of the same kind and profile that precede it. */
static uint32_t number_of(const struct gpu_snapshot *s, const struct gpu_device *d) {
    uint32_t n = 0;

    if (!gpu_is_part(d))
        return d->index;
    for (uint32_t i = 0; i < s->ndevices && strcmp(s->devices[i].uuid, d->uuid) != 0; i++)
        n +=
            s->devices[i].kind == d->kind && strcmp(s->devices[i].mig.profile, d->mig.profile) == 0;
    return n;
}

/* All devices, so many of them, or those in a list. */
static bool is_of(const struct yaml *devices, const struct gpu_snapshot *s,
                  const struct gpu_device *d) {
    uint64_t count;

    if (!devices)
        return true;
    if (devices->type == YAML_LIST)
        return is_in(devices, s, d);
    return num_parse_u64(devices->text, UINT32_MAX, &count) == 0 && number_of(s, d) < count;
}

/* Of --mps-cards: "all", or indexes and UUIDs with commas between. */
static bool is_listed(const char *list, const struct gpu_device *d) {
    const char *item;
    size_t len;

    while (text_item(&list, &item, &len)) {
        char name[GPU_UUID_MAX];
        uint64_t index;

        text_copy(name, len + 1 < sizeof(name) ? len + 1 : sizeof(name), item);
        if (strcmp(name, "all") == 0 || strcmp(name, d->uuid) == 0 ||
            (num_parse_u64(name, GPU_CARDS_MAX - 1, &index) == 0 && index == d->index))
            return true;
    }
    return false;
}

/* ---- what a device is given out as ---- */

/* By the first entry that names it; -1: none does. */
static int entry_mode(const struct node_config *c, const struct gpu_snapshot *s,
                      const struct gpu_device *d) {
    for (size_t i = 0; i < c->ncards; i++)
        if (c->cards[i].mode >= 0 && is_of(c->cards[i].devices, s, d))
            return c->cards[i].mode;
    return -1;
}

/* -1: nothing but the sections of NVIDIA's file can say. */
static int given_mode(const struct node_config *c, const struct gpu_snapshot *s,
                      const struct gpu_device *d) {
    const struct gpu_device *card = card_of(s, d);
    bool listed = c->mps_cards && c->mps_cards[0];
    int mode;

    if (listed && !gpu_is_part(d) && is_listed(c->mps_cards, d))
        return CONFIG_MODE_MPS;
    mode = entry_mode(c, s, d);
    if (mode < 0 && card && card != d)
        mode = entry_mode(c, s, card);
    if (mode < 0 && d->kind == GPU_CARD && !d->divided)
        mode = c->mode;
    /* The option takes precedence. */
    return listed && mode == CONFIG_MODE_MPS ? CONFIG_MODE_SHARE : mode;
}

/* The resource of a card by the patterns; without patterns all cards are NVIDIA's nvidia.com/gpu,
 * as a card that none of them fits and that is to be whole. */
static const char *card_name(const struct node_config *c, const struct gpu_device *d) {
    const char *name = node_config_name(c->gpus, c->ngpus, d->model);

    return name ? name : CONFIG_GPU;
}

static const struct config_replicas *find_replicas(const struct node_config *c,
                                                   const struct gpu_snapshot *s,
                                                   const struct gpu_device *d, const char *name) {
    for (size_t i = 0; i < c->nreplicas; i++)
        if (strcmp(c->replicas[i].name, name) == 0 && is_of(c->replicas[i].devices, s, d))
            return &c->replicas[i];
    return NULL;
}

enum config_mode config_card_mode(const struct node_config *c, const struct gpu_snapshot *s,
                                  const struct gpu_device *d) {
    const struct config_replicas *r;
    int mode = given_mode(c, s, d);

    if (mode >= 0)
        return (enum config_mode) mode;
    if (d->kind == GPU_MIG_INSTANCE || d->divided)
        return CONFIG_MODE_MIG;
    if (d->kind != GPU_CARD)
        return CONFIG_MODE_SHARE;
    if ((r = find_replicas(c, s, d, card_name(c, d))) != NULL)
        return c->sharing == CONFIG_MPS            ? CONFIG_MODE_MPS
               : dialect_gives_replicas(r->rename) ? CONFIG_MODE_SHARE
                                                   : CONFIG_MODE_WHOLE;
    return node_config_name(c->gpus, c->ngpus, d->model) ? CONFIG_MODE_WHOLE : CONFIG_MODE_SHARE;
}

uint32_t config_card_scaling(const struct node_config *c, const struct gpu_snapshot *s,
                             const struct gpu_device *d) {
    for (size_t i = 0; i < c->ncards; i++)
        if (c->cards[i].devices && c->cards[i].memory_scaling > 0 &&
            is_of(c->cards[i].devices, s, d))
            return c->cards[i].memory_scaling;
    return 0;
}

/* -1: no entry that names it has one. */
static int entry_allocator(const struct node_config *c, const struct gpu_snapshot *s,
                           const struct gpu_device *d) {
    for (size_t i = 0; i < c->ncards; i++)
        if (c->cards[i].allocator >= 0 && is_of(c->cards[i].devices, s, d))
            return c->cards[i].allocator;
    return -1;
}

enum dra_allocator config_card_allocator(const struct node_config *c, const struct gpu_snapshot *s,
                                         const struct gpu_device *d, enum dra_allocator otherwise) {
    const struct gpu_device *card = card_of(s, d);
    int allocator = entry_allocator(c, s, d);

    if (allocator < 0 && card && card != d)
        allocator = entry_allocator(c, s, card);
    return allocator < 0 ? otherwise : (enum dra_allocator) allocator;
}

/* ---- as a resource of kubelet ---- */

void config_replicas_of(const struct node_config *c, const struct gpu_snapshot *s,
                        const struct gpu_device *d, const char *name, struct config_offer *ret) {
    const struct config_replicas *r = find_replicas(c, s, d, name);

    *ret = (struct config_offer){.replicas = r ? r->replicas : 1,
                                 .one_at_most = r && c->fail_requests_greater_than_one,
                                 .renamed = r && strcmp(r->name, r->rename) != 0};
    text_copy(ret->resource, sizeof(ret->resource), r ? r->rename : name);
}

bool config_card_replicas(const struct node_config *c, const struct gpu_snapshot *s,
                          const struct gpu_device *d, struct card_replicas *ret) {
    const struct config_replicas *r = NULL;
    int mode = given_mode(c, s, d);

    *ret = (struct card_replicas){0};
    if (d->kind == GPU_CARD && !d->divided &&
        (mode < 0 || (mode == CONFIG_MODE_MPS && c->sharing == CONFIG_MPS)))
        r = find_replicas(c, s, d, card_name(c, d));
    if (!r || !dialect_gives_replicas(r->rename))
        return false;
    *ret = (struct card_replicas){.count = r->replicas,
                                  .as_cards = strcmp(r->rename, CONFIG_GPU) == 0,
                                  .one_at_most = c->fail_requests_greater_than_one,
                                  .with_core = c->sharing == CONFIG_MPS};
    return true;
}

bool config_card_dynamic(const struct node_config *c, const struct gpu_snapshot *s,
                         const struct gpu_device *d) {
    struct card_replicas replicas;

    if (d->kind != GPU_CARD || d->divided || config_card_mode(c, s, d) != CONFIG_MODE_SHARE ||
        config_card_replicas(c, s, d, &replicas))
        return false;
    for (size_t i = 0; i < c->ncards; i++)
        if (c->cards[i].dynamic && is_of(c->cards[i].devices, s, d))
            return true;
    return false;
}

bool config_card_offer(const struct node_config *c, const struct gpu_snapshot *s,
                       const struct gpu_device *d, struct config_offer *ret) {
    enum config_mode mode = config_card_mode(c, s, d);
    bool given = given_mode(c, s, d) >= 0;
    struct card_replicas replicas;

    if (d->kind != GPU_CARD || d->divided)
        return false;
    config_replicas_of(c, s, d, card_name(c, d), ret);
    if (config_card_replicas(c, s, d, &replicas))
        return false;
    if (mode == CONFIG_MODE_MPS)
        return ret->replicas > 1 && c->sharing == CONFIG_MPS;
    if (given) {
        *ret = (struct config_offer){.replicas = 1};
        text_copy(ret->resource, sizeof(ret->resource), card_name(c, d));
    }
    return mode == CONFIG_MODE_WHOLE &&
           (ret->replicas > 1 || strcmp(ret->resource, CONFIG_GPU) != 0 ||
            dialect_is_left_name(CONFIG_GPU));
}
