/* SPDX-License-Identifier: Apache-2.0 */

/* Whole devices and replicas of them. */

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "agent/backends/backend.h"
#include "agent/backends/choice.h"
#include "agent/backends/device_id.h"
#include "agent/backends/whole_names.h"
#include "agent/config/card_config.h"
#include "base/text.h"
#include "model/dialect.h"

/* Bytes of one ID in the list: text, health, NUMA node, and the tags and lengths of these. */
#define LISTED_SIZE (BACKEND_ID_SIZE + 32)

/* ---- IDs ---- */

/* An ID of the row. */
struct unit {
    const struct gpu_device *device;
    uint32_t replica;
    struct config_offer offer;
};

static const struct whole_row *row_of(const struct resource *r) {
    return r->data;
}

static bool is_in(const struct resource *r, const struct gpu_snapshot *s,
                  const struct gpu_device *d, struct config_offer *ret) {
    return whole_offer_of(row_of(r)->rows, s, d, ret) && strcmp(ret->resource, r->name) == 0;
}

static uint32_t list(const struct resource *r, const struct gpu_snapshot *s) {
    struct config_offer offer;
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (is_in(r, s, &s->devices[i], &offer) &&
            (size_t) (n + offer.replicas) * LISTED_SIZE <= RESOURCE_MESSAGE_MAX)
            n += offer.replicas;
    return n;
}

/* ret->device is NULL where the list ends. */
static void nth(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
                struct unit *ret) {
    *ret = (struct unit){0};
    for (uint32_t i = 0; i < s->ndevices; i++) {
        if (!is_in(r, s, &s->devices[i], &ret->offer))
            continue;
        ret->device = &s->devices[i];
        ret->replica = n;
        if (n < ret->offer.replicas)
            return;
        n -= ret->offer.replicas;
    }
    ret->device = NULL;
}

static void id(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
               char ret[static BACKEND_ID_SIZE]) {
    struct unit u;

    nth(r, s, n, &u);
    device_id_put(u.device->uuid, u.offer.replicas > 1, u.replica, ret);
}

static bool find(const struct resource *r, const struct gpu_snapshot *s, const char *text,
                 struct unit *ret) {
    struct device_id id;

    device_id_parse(text, &id);
    *ret = (struct unit){.device = gpu_find(s, id.uuid)};
    if (!ret->device || !is_in(r, s, ret->device, &ret->offer) ||
        id.replica >= ret->offer.replicas || (ret->offer.replicas > 1) != id.is_replica)
        return false;
    ret->replica = (uint32_t) id.replica;
    return true;
}

static uint32_t number(const struct resource *r, const struct gpu_snapshot *s, const char *text) {
    struct config_offer offer;
    struct unit u;
    uint32_t n = 0;

    if (!find(r, s, text, &u))
        return UINT32_MAX;
    for (const struct gpu_device *d = s->devices; d < u.device; d++)
        n += is_in(r, s, d, &offer) ? offer.replicas : 0;
    return n + u.replica;
}

/* What takes out a card takes out its instances, and what takes out a device all its replicas. */
static void health(const struct resource *r, const struct gpu_snapshot *s,
                   const struct backend_held *held, bool *ret_sick) {
    for (uint32_t n = 0; n < held->count; n++) {
        struct unit u;

        nth(r, s, n, &u);
        assert(u.device); /* the count is of these devices */
        const struct gpu_device *card =
            gpu_is_part(u.device) ? gpu_find(s, u.device->parent) : u.device;
        ret_sick[n] = !gpu_takes_pods(u.device) || !card || !gpu_takes_pods(card);
    }
}

static int64_t numa(const struct resource *r, const struct gpu_snapshot *s, const char *text) {
    (void) r;
    return gpu_numa(s, device_id_find(s, text));
}

/* ---- the choice of kubelet ---- */

static size_t prefer(const struct backend_choice *c, char **ret) {
    const struct node_config *config = row_of(c->resource)->rows->config;
    struct unit u;
    bool replicas = false;

    for (size_t i = 0; i < c->navailable && !replicas; i++)
        replicas = find(c->resource, c->devices, c->available[i], &u) && u.offer.replicas > 1;
    return choose(c,
                  config ? (enum config_allocation) config->allocation_policy : CONFIG_DISTRIBUTED,
                  replicas, ret);
}

/* ---- containers ---- */

static int allocate(const struct backend_ids *ids, char ret_name[static BACKEND_CDI_NAME_MAX]) {
    struct unit u;

    for (size_t i = 0; i < ids->n; i++) {
        if (!find(ids->resource, ids->devices, ids->ids[i], &u))
            return -ENODEV;
        if (ids->n > 1 && u.offer.one_at_most)
            return -E2BIG;
    }
    return backend_slot_name(ret_name);
}

/* The distinct devices of a container. */
struct taken {
    const struct gpu_device *devices[GPU_MAX];
    uint32_t replicas[GPU_MAX]; /* that the container has of each */
    uint32_t of[GPU_MAX];       /* that there are of each */
    size_t n;
};

static int collect(const struct backend_ids *ids, struct taken *ret, struct err *why) {
    struct unit u;

    ret->n = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t at = 0;

        if (!find(ids->resource, ids->devices, ids->ids[i], &u))
            return err_set(why, ENODEV, "device %s is not on this node as %s", ids->ids[i],
                           ids->resource->name);
        while (at < ret->n && ret->devices[at] != u.device)
            at++;
        if (at == ret->n) {
            ret->devices[ret->n] = u.device;
            ret->of[ret->n] = u.offer.replicas;
            ret->replicas[ret->n++] = 0;
        }
        ret->replicas[at]++;
    }
    return 0;
}

/* MPS divides the memory and the processors of a card; time-slicing divides neither. */
static enum verdict prepare_parts(struct shares *s, const struct provision *p,
                                  const struct taken *t, struct err *why) {
    struct assigned_device parts[GPU_CARDS_MAX] = {0};

    for (size_t i = 0; i < t->n && i < GPU_CARDS_MAX; i++) {
        const struct gpu_device *d = t->devices[i];
        uint32_t core = CORE_PER_CARD * t->replicas[i] / t->of[i];

        parts[i] = (struct assigned_device){.index = d->index,
                                            .core = core > 0 ? core : 1,
                                            .memory = d->memory / t->of[i] * t->replicas[i]};
        parts[i].physical = parts[i].memory;
        text_copy(parts[i].uuid, sizeof(parts[i].uuid), d->uuid);
    }
    return provision_parts(s, p, parts, t->n < GPU_CARDS_MAX ? t->n : GPU_CARDS_MAX, why);
}

static enum verdict prepare(struct shares *s, const struct backend_ids *ids,
                            const struct provision *p, struct err *why) {
    const struct node_config *config = row_of(ids->resource)->rows->config;
    const char *uuids[GPU_MAX];
    struct taken t;

    if (collect(ids, &t, why) < 0)
        return VERDICT_WAIT;
    if (t.n > 0 && t.of[0] > 1 && config && config->sharing == CONFIG_MPS)
        return prepare_parts(s, p, &t, why);
    for (size_t i = 0; i < t.n; i++)
        uuids[i] = t.devices[i]->uuid;
    return provision_whole(s, p, uuids, t.n, t.n > 0 && t.of[0] > 1, why);
}

const struct backend backend_whole = BACKEND_OF_THIS_FILE;
