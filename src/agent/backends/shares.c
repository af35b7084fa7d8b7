/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/backends/backend.h"

#include <string.h>

#include "agent/backends/resource.h"
#include "gpu/device.h"
#include "model/dialect.h"

/* IDs for the shares of the device. A resource that counts percent has those of its compute. */
static uint32_t count_of(const struct resource *r, const struct gpu_device *d) {
    if (!gpu_gives_shares(d))
        return 0;
    return r->per_card == CORE_PER_CARD ? gpu_core(d) : r->per_card;
}

static uint32_t list(const struct resource *r, const struct gpu_snapshot *s) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        if (resource_message_size(r, n + count_of(r, &s->devices[i])) <= RESOURCE_MESSAGE_MAX)
            n += count_of(r, &s->devices[i]);
    return n;
}

/* IDs belong to no card: for what is free of an unhealthy card the last ones that no container has.
 * More would be missing for pods that the scheduler has placed on the other cards. */
static void health(const struct resource *r, const struct gpu_snapshot *s,
                   const struct backend_held *held, bool *ret_sick) {
    uint32_t want = 0;

    for (uint32_t i = 0; i < s->ndevices; i++)
        want += gpu_takes_pods(&s->devices[i]) ? 0 : count_of(r, &s->devices[i]);
    want -= held->of_unhealthy < want ? held->of_unhealthy : want;
    for (uint32_t i = held->count; i > 0 && want > 0; i--) {
        if (held->ids[i - 1])
            continue;
        ret_sick[i - 1] = true;
        want--;
    }
}

static bool listed(char *const *ids, size_t n, const char *id) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(ids[i], id) == 0)
            return true;
    return false;
}

/* What must be in, then the first that are free. */
static size_t prefer(const struct backend_choice *c, char **ret) {
    size_t n = 0;

    for (size_t i = 0; i < c->nmust; i++)
        ret[n++] = c->must[i];
    for (size_t i = 0; i < c->navailable && n < c->want; i++)
        if (!listed(c->must, c->nmust, c->available[i]))
            ret[n++] = c->available[i];
    return n;
}

static void id(const struct resource *r, const struct gpu_snapshot *s, uint32_t n,
               char ret[static BACKEND_ID_SIZE]) {
    (void) s;
    resource_id(r, n, ret);
}

static uint32_t number(const struct resource *r, const struct gpu_snapshot *s, const char *text) {
    (void) s;
    return resource_id_number(r, text);
}

/* That of all cards that give shares. */
static int64_t numa(const struct resource *r, const struct gpu_snapshot *s, const char *text) {
    int64_t ret = -1;
    bool any = false;

    (void) r, (void) text;
    for (uint32_t i = 0; i < s->ndevices; i++) {
        int64_t one = gpu_numa(s, &s->devices[i]);

        if (!gpu_gives_shares(&s->devices[i]))
            continue;
        if (one < 0 || (any && one != ret))
            return -1;
        ret = one;
        any = true;
    }
    return ret;
}

/* The scheduler has chosen the cards, not kubelet by its IDs. */
static int allocate(const struct backend_ids *ids, char ret_name[static BACKEND_CDI_NAME_MAX]) {
    (void) ids;
    return backend_slot_name(ret_name);
}

static enum verdict prepare(struct shares *s, const struct backend_ids *ids,
                            const struct provision *p, struct err *why) {
    (void) ids;
    return provision(s, p, why);
}

const struct backend backend_shares = BACKEND_OF_THIS_FILE;
