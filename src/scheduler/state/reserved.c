/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "model/scaling.h"
#include "scheduler/state/namespace_usage.h"
#include "scheduler/state/state_internal.h"

/* ---- what a pod draws on ---- */

static void drop_draw(struct state_pod *pod, struct state_draw *draw) {
    LL_DELETE(pod->draws, draw);
    free(draw);
}

void state_draws_drop(struct state_pod *pod) {
    while (pod->draws)
        drop_draw(pod, pod->draws);
}

static int add_draw(struct state_pod *pod, const char *container, const char *id) {
    struct state_draw *draw;
    size_t len = strlen(id) + 1, name = container ? strlen(container) + 1 : 1;
    if (name > sizeof(draw->container) || !(draw = calloc(1, sizeof(*draw) + len)))
        return -ENOMEM;
    memcpy(draw->container, container ? container : "", name);
    memcpy(draw->id, id, len);
    LL_PREPEND(pod->draws, draw);
    return 0;
}

int state_draw(struct state_pod *pod, const char *container, const char *id) {
    struct state_draw *draw = state_draw_find(pod, container);
    if (draw ? id && strcmp(draw->id, id) == 0 : !id)
        return 0;
    if (draw)
        drop_draw(pod, draw);
    int r = id ? add_draw(pod, container, id) : 0;
    if (pod->node)
        state_node_changed(pod->node);
    space_recount(pod);
    return r;
}

/* Whether the container's allocation is part of that reserved capacity. */
static bool draws_on(const struct state_pod *pod, const char *container, const char *id) {
    return strcmp(state_draw_id(pod, container), id) == 0;
}

/* ---- reserved capacity ---- */

struct state_reserved *state_reserved_find(const struct state *s, const char *id) {
    struct state_reserved *reserved;
    HASH_FIND_STR(s->reserved, id, reserved);
    return reserved;
}

static void reserved_free(struct state *s, struct state_reserved *reserved) {
    struct state_node *node = reserved->node;
    HASH_DEL(s->reserved, reserved);
    DL_DELETE(node->reserved, reserved);
    state_node_changed(node);
    free(reserved->devices);
    free(reserved->keeper);
    free(reserved->claim);
    free(reserved->within);
    free(reserved->users);
    free(reserved);
    s->left_nodes = true; /* the node may be a candidate of the current pod */
}

void state_unreserve(struct state *s, const char *id) {
    struct state_reserved *reserved = state_reserved_find(s, id);
    if (reserved)
        reserved_free(s, reserved);
}

static bool is_same(const struct state_reserved *reserved, const char *node,
                    const struct assigned_device *devices, uint32_t n) {
    if (strcmp(reserved->node->name, node) != 0 || reserved->ndevices != n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct assigned_device *a = &reserved->devices[i], *b = &devices[i];
        if (strcmp(a->uuid, b->uuid) != 0 || a->core != b->core || a->memory != b->memory ||
            a->physical != b->physical)
            return false;
    }
    return true;
}

static struct state_reserved *reserved_new(struct state *s, const char *id,
                                           const struct assigned_device *devices, uint32_t n) {
    size_t len = strlen(id) + 1;
    struct state_reserved *reserved = calloc(1, sizeof(*reserved) + len);
    if (!reserved)
        return NULL;
    memcpy(reserved->id, id, len);
    reserved->devices = calloc(n ? n : 1, sizeof(*devices));
    if (reserved->devices) {
        memcpy(reserved->devices, devices, n * sizeof(*devices));
        reserved->ndevices = n;
        HASH_ADD_STR(s->reserved, id, reserved);
    }
    if (hash_added(reserved))
        return reserved;
    free(reserved->devices);
    free(reserved);
    return NULL;
}

int state_reserve(struct state *s, const char *id, const char *node,
                  const struct assigned_device *devices, uint32_t n) {
    struct state_reserved *old = state_reserved_find(s, id);
    if (old && is_same(old, node, devices, n))
        return 0;
    struct state_node *at = state_node_get(s, node);
    if (!at)
        return -ENOMEM;
    _cleanup_free_ char *within = old ? take_ptr(old->within) : NULL;
    if (old)
        reserved_free(s, old);
    struct state_reserved *reserved = reserved_new(s, id, devices, n);
    if (!reserved)
        return -ENOMEM;
    reserved->within = take_ptr(within);
    reserved->node = at;
    DL_APPEND(at->reserved, reserved);
    state_node_changed(at);
    return 0;
}

int state_reserved_users(struct state *s, const char *id, char (*uids)[KUBE_UID_MAX], uint32_t n) {
    struct state_reserved *reserved = state_reserved_find(s, id);
    if (!reserved || (reserved->nusers == n &&
                      (n == 0 || memcmp(reserved->users, uids, n * sizeof(*uids)) == 0)))
        return 0;
    char(*copy)[KUBE_UID_MAX] = n > 0 ? calloc(n, sizeof(*copy)) : NULL;
    if (copy)
        memcpy(copy, uids, n * sizeof(*copy));
    free(reserved->users);
    reserved->users = copy;
    reserved->nusers = copy ? n : 0;
    return copy || n == 0 ? 0 : -ENOMEM;
}

int state_reserved_within(struct state *s, const char *id, const char *within) {
    struct state_reserved *reserved = state_reserved_find(s, id);
    if (!reserved || (reserved->within ? within && strcmp(reserved->within, within) == 0 : !within))
        return 0;
    char *copy = within ? strdup(within) : NULL;
    if (within && !copy)
        return -ENOMEM;
    free(reserved->within);
    reserved->within = copy;
    state_node_changed(reserved->node);
    return 0;
}

/* Without memory for the name it goes by its id. */
void state_reserved_name(struct state *s, const char *id, const char *keeper) {
    struct state_reserved *reserved = state_reserved_find(s, id);
    if (!reserved || (reserved->keeper && strcmp(reserved->keeper, keeper) == 0))
        return;
    free(reserved->keeper);
    reserved->keeper = strdup(keeper);
    state_unproject(reserved->node);
}

static bool same_claim(const struct state_claim *a, const struct state_claim *b) {
    if (!a || !b)
        return a == b;
    if (strcmp(a->uid, b->uid) != 0 || strcmp(a->namespace, b->namespace) != 0 ||
        strcmp(a->name, b->name) != 0 || a->nusers != b->nusers)
        return false;
    for (uint32_t i = 0; i < a->nusers; i++)
        if (strcmp(a->users[i].pod, b->users[i].pod) != 0 ||
            strcmp(a->users[i].container, b->users[i].container) != 0)
            return false;
    return true;
}

void state_reserved_claim(struct state *s, const char *id, struct state_claim *claim) {
    struct state_reserved *reserved = state_reserved_find(s, id);
    if (!reserved || same_claim(reserved->claim, claim)) {
        free(claim);
        return;
    }
    free(reserved->claim);
    reserved->claim = claim;
    state_unproject(reserved->node);
}

void state_reserved_keeper(const struct state_reserved *reserved,
                           char out[static STATE_KEEPER_MAX]) {
    const struct state_pod *pod = state_pod_find(reserved->node->state, reserved->id);
    char *slash;
    if (pod)
        (void) snprintf(out, STATE_KEEPER_MAX, "pod %s/%s", pod->namespace, pod->name);
    else
        (void) snprintf(out, STATE_KEEPER_MAX, "%s",
                        reserved->keeper ? reserved->keeper : reserved->id);
    if (!pod && !reserved->keeper && (slash = strchr(out, '/')))
        *slash = ' ';
}

/* ---- counting ---- */

static struct place_amount charge(const struct assigned_device *device,
                                  const struct state_card *card) {
    return (struct place_amount){
        .memory = scaling_charge(device->memory, device->physical, card->physical, card->memory),
        .core = device->core,
        .slots = device->core == 0,
    };
}

static void add(struct place_amount *sum, const struct place_amount *more) {
    sum->memory += more->memory;
    sum->core += more->core;
    sum->slots += more->slots;
}

/* What is left, never less than nothing. */
static void subtract(struct place_amount *from, const struct place_amount *less) {
    from->memory -= less->memory < from->memory ? less->memory : from->memory;
    from->core -= less->core < from->core ? less->core : from->core;
    from->slots -= less->slots < from->slots ? less->slots : from->slots;
}

/* The allocations on the card of the pod's containers that draw on `id`. */
static struct place_amount drawn_by(const struct state_pod *pod, const char *id,
                                    const struct state_card *card) {
    struct place_sum sum = {0};
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        const struct state_allocation *h = &pod->allocations[i];
        if (strcmp(h->device.uuid, card->uuid) != 0 || !draws_on(pod, h->container, id))
            continue;
        struct place_amount amount = charge(&h->device, card);
        place_sum_add(&sum, h->phase, &amount);
    }
    return place_sum_total(&sum);
}

/* What is reserved of the card. */
static struct place_amount reserved_on(const struct state_reserved *reserved,
                                       const struct state_card *card) {
    struct place_amount sum = {0};
    for (uint32_t i = 0; i < reserved->ndevices; i++)
        if (strcmp(reserved->devices[i].uuid, card->uuid) == 0) {
            struct place_amount amount = charge(&reserved->devices[i], card);
            add(&sum, &amount);
        }
    return sum;
}

/* The unused part of the reserved capacity on card c. */
static struct place_amount remainder_of(const struct state_node *node,
                                        const struct state_reserved *reserved, uint32_t c,
                                        const struct state_pod *without, bool settled_only) {
    const struct state_card *card = node->cards[c];
    struct place_amount rest = reserved_on(reserved, card);
    for (const struct state_reserved *part = node->reserved; part; part = part->next)
        if (part->within && strcmp(part->within, reserved->id) == 0) {
            struct place_amount amount = reserved_on(part, card);
            subtract(&rest, &amount);
        }
    for (const struct state_pod *pod = node->pods; pod; pod = pod->next)
        if (pod != without && (!settled_only || state_pod_is_settled(pod))) {
            struct place_amount drawn = drawn_by(pod, reserved->id, card);
            subtract(&rest, &drawn);
        }
    return rest;
}

struct place_amount state_reserved_rest(const struct state_reserved *reserved, uint32_t card,
                                        bool settled_only) {
    return remainder_of(reserved->node, reserved, card, NULL, settled_only);
}

struct place_amount state_reserved_total(const struct state_reserved *reserved, uint32_t card) {
    return reserved_on(reserved, reserved->node->cards[card]);
}

/* Whether the whole pod may draw on that reserved capacity: no container draws on another. */
static bool is_all_for(const struct state_pod *pod, const char *id) {
    for (const struct state_draw *d = pod->draws; d; d = d->next)
        if (d->container[0])
            return false;
    return strcmp(state_draw_id(pod, NULL), id) == 0;
}

void state_count_reserved(const struct state_node *node, const struct state_pod *without,
                          bool settled_only, bool shared,
                          struct place_card cards[static PLACE_CARDS_MAX]) {
    for (const struct state_reserved *kept = node->reserved; kept; kept = kept->next) {
        if ((without && is_all_for(without, kept->id)) || (!shared && kept->sharer))
            continue;
        for (uint32_t c = 0; c < node->ncards; c++) {
            struct place_amount rest = remainder_of(node, kept, c, without, settled_only);
            if (!node->cards[c]->duplicate)
                subtract(&cards[c].free, &rest);
        }
    }
}

bool state_draws_here(const struct state *s, const struct state_pod *pod,
                      const struct state_node *node) {
    const struct state_reserved *reserved = s->reserved ? state_reserved_find(s, pod->uid) : NULL;
    bool here = reserved && reserved->node == node;
    for (const struct state_draw *d = pod->draws; !here && s->reserved && d; d = d->next) {
        reserved = state_reserved_find(s, d->id);
        here = reserved && reserved->node == node;
    }
    return here;
}

static uint32_t containers_that_draw(const struct state_pod *pod, const char *id) {
    uint32_t containers = 0;
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        containers |= (uint32_t) draws_on(pod, pod->containers[i].container, id) << i;
    return containers;
}

uint32_t state_list_draws(const struct state_pod *pod, const struct state_node *node,
                          bool settled_only, struct place_draw draws[static STATE_DRAWS_MAX]) {
    uint32_t n = 0;
    for (const struct state_reserved *kept = node->reserved; kept; kept = kept->next) {
        uint32_t containers = is_all_for(pod, kept->id) ? 0 : containers_that_draw(pod, kept->id);
        for (uint32_t c = 0; containers && c < node->ncards && n < STATE_DRAWS_MAX; c++) {
            struct place_amount rest = remainder_of(node, kept, c, pod, settled_only);
            if (!node->cards[c]->duplicate && (rest.memory > 0 || rest.core > 0 || rest.slots > 0))
                draws[n++] =
                    (struct place_draw){.containers = containers, .card = c, .amount = rest};
        }
    }
    return n;
}
