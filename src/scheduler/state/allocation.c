/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "base/cleanup.h"
#include "model/scaling.h"
#include "scheduler/state/namespace_usage.h"
#include "scheduler/state/state_internal.h"

/* ---- allocations of a pod ---- */

void state_pod_detach(struct state_pod *pod) {
    if (pod->node) {
        state_learn_end(pod->node->state, pod);
        pod->node->used = state_room_sub(pod->node->used, pod->room);
        DL_DELETE(pod->node->pods, pod);
        pod->node->state->left_nodes |= !pod->node->exists;
        state_node_changed(pod->node);
    }
    space_give(pod);
    free(pod->allocations);
    pod->node = NULL;
    pod->prev = pod->next = NULL;
    pod->allocations = NULL;
    pod->nallocations = 0;
    pod->assignment_hash = 0;
    pod->signer = 0;
    pod->newer = false;
}

void state_pod_attach(struct state_pod *pod, struct state_node *node,
                      struct state_allocation *allocations, uint32_t nallocations) {
    state_pod_detach(pod);
    pod->node = node;
    pod->allocations = allocations;
    pod->nallocations = nallocations;
    DL_APPEND(node->pods, pod);
    pod->came = ++node->arrivals;
    node->used = state_room_add(node->used, pod->room);
    state_learn_start(node->state, pod);
    space_take(pod);
    state_node_changed(node);
}

/* ---- assignments of bound pods ---- */

static uint64_t assignment_hash(const struct pod *seen) {
    uint64_t hash = state_hash(0, seen->node);
    hash = state_hash(hash, seen->assignment ? seen->assignment : "");
    return state_hash(hash, seen->signature ? seen->signature : "");
}

static enum container_phase phase_of(const struct state_pod *pod, const char *container) {
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (strcmp(pod->containers[i].container, container) == 0)
            return pod->containers[i].phase;
    return CONTAINER_APP;
}

static uint32_t add_container(const struct state_pod *pod, const struct assigned_container *c,
                              struct state_allocation *allocations) {
    for (uint32_t i = 0; i < c->ndevices; i++) {
        memcpy(allocations[i].container, c->name, sizeof(c->name));
        allocations[i].phase = phase_of(pod, c->name);
        allocations[i].device = c->devices[i];
    }
    return c->ndevices;
}

static bool is_asked(const struct state_pod *pod, const char *container) {
    for (uint32_t i = 0; i < pod->ncontainers; i++)
        if (strcmp(pod->containers[i].container, container) == 0)
            return true;
    return false;
}

/* Allocations in the order of the containers, because a sidecar counts only for what starts after
 * it. */
static int allocations_of(const struct state_pod *pod, const struct assignment *a,
                          struct state_allocation **ret, uint32_t *ret_n) {
    uint32_t total = 0, n = 0;
    for (uint32_t i = 0; i < a->ncontainers; i++)
        total += a->containers[i].ndevices;
    struct state_allocation *allocations = calloc(total ? total : 1, sizeof(*allocations));
    if (!allocations)
        return -ENOMEM;
    for (uint32_t i = 0; i < pod->ncontainers; i++) {
        const struct assigned_container *c = assignment_find(a, pod->containers[i].container);
        if (c)
            n += add_container(pod, c, &allocations[n]);
    }
    for (uint32_t i = 0; i < a->ncontainers; i++)
        if (!is_asked(pod, a->containers[i].name))
            n += add_container(pod, &a->containers[i], &allocations[n]);
    *ret = allocations;
    *ret_n = n;
    return 0;
}

/* 1: the pod has an assignment by us for this node, 0: it has not, -ENOMEM. */
static int read_assignment(struct state *s, const struct pod *seen, struct assignment *ret,
                           uint64_t *ret_signer) {
    *ret_signer = 0;
    if (!seen->assignment || !seen->signature ||
        s->verify(seen->uid, seen->node, seen->assignment, seen->signature, ret_signer,
                  s->userdata) < 0)
        return 0;
    int r = assignment_parse(seen->assignment, ret, NULL);
    if (r < 0)
        return r == -ENOMEM ? r : 0;
    if (strcmp(ret->node, seen->node) == 0)
        return 1;
    assignment_done(ret);
    return 0;
}

int state_pod_bound(struct state *s, struct state_pod *pod, struct state_node *node,
                    const struct pod *seen, uint64_t now_ms) {
    uint64_t hash = assignment_hash(seen);
    bool same = pod->stage == POD_BOUND && pod->assignment_hash == hash;
    if (same && !pod->recheck)
        return 0;
    struct assignment a = {0};
    struct state_allocation *allocations = NULL;
    uint32_t n = 0;
    uint64_t signer;
    int r = read_assignment(s, seen, &a, &signer);
    if (r < 0)
        return r;
    pod->recheck = false;
    if (r == 0) {
        /* What was verified once stays: rewriting the annotations of a running pod does not take
         * its share away from it, only the agent and the pod's end do. */
        if (pod->stage == POD_BOUND && pod->node == node && pod->nallocations > 0) {
            pod->assignment_hash = hash;
            return 0;
        }
        signer = 0;
        s->forged += seen->assignment != NULL && !same;
    } else {
        r = allocations_of(pod, &a, &allocations, &n);
        assignment_done(&a);
        if (r < 0)
            return r;
    }
    state_pod_attach(pod, node, allocations, n);
    pod->assignment_hash = hash;
    pod->signer = signer;
    pod->newer = a.newer;
    state_pod_stage(pod, POD_BOUND, now_ms);
    return 0;
}

unsigned state_recheck(struct state *s) {
    unsigned n = 0;
    for (struct state_pod *pod = s->pods; pod; pod = pod->hh.next) {
        pod->recheck = pod->stage == POD_BOUND && pod->signer == 0;
        n += pod->recheck;
    }
    return n;
}

/* ---- counting ---- */

static int find_card(const struct state_node *node, const char *uuid) {
    for (uint32_t i = 0; i < node->ncards; i++)
        if (strcmp(node->cards[i]->uuid, uuid) == 0)
            return (int) i;
    return -1;
}

bool state_pod_amount(const struct state_pod *pod, const struct state_card *card,
                      struct place_amount *ret) {
    struct place_sum sum = {0};
    bool any = false;
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        const struct assigned_device *device = &pod->allocations[i].device;
        struct place_amount amount = {
            .memory =
                scaling_charge(device->memory, device->physical, card->physical, card->memory),
            .core = device->core,
            .slots = device->core == 0,
        };
        if (strcmp(device->uuid, card->uuid) != 0)
            continue;
        place_sum_add(&sum, pod->allocations[i].phase, &amount);
        any = true;
    }
    *ret = place_sum_total(&sum);
    return any;
}

/* Returns the set of cards on which there was not enough. What is held of a card that is not there
 * is counted again as soon as the card shows up. */
static uint64_t take_pod(const struct state_node *node, const struct state_pod *pod,
                         struct place_card *cards) {
    uint64_t short_of = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        struct place_amount total;
        if (!node->cards[c]->duplicate && state_pod_amount(pod, node->cards[c], &total) &&
            !place_amount_take(&cards[c].free, &total))
            short_of |= UINT64_C(1) << c;
    }
    return short_of;
}

uint64_t state_card_unattributed(const struct state_card *card) {
    return scaling_charge(card->unattributed, card->unattributed, card->physical, card->memory);
}

void state_take_unattributed(const struct state_card *card, struct place_amount *free) {
    struct place_amount amount = {.memory = state_card_unattributed(card)};

    (void) place_amount_take(free, &amount);
}

void state_count(struct state_node *node, const struct state_pod *without, bool settled_only,
                 struct place_card cards[static PLACE_CARDS_MAX]) {
    uint64_t short_of = 0;
    uint32_t unsettled = 0;
    for (uint32_t i = 0; i < node->ncards; i++) {
        struct state_card *card = node->cards[i];
        card->duplicate = find_card(node, card->uuid) != (int) i;
        cards[i] = state_place_card(card);
        cards[i].free = place_amount_of(&cards[i]);
    }
    for (const struct state_pod *pod = node->pods; pod; pod = pod->next) {
        unsettled += !state_pod_is_settled(pod);
        if (pod != without && (!settled_only || state_pod_is_settled(pod)))
            short_of |= take_pod(node, pod, cards);
    }
    state_count_reserved(node, without, settled_only, true, cards);
    state_count_cpus(node, without, cards);
    for (uint32_t i = 0; i < node->ncards; i++) {
        state_take_unattributed(node->cards[i], &cards[i].free);
        assert(cards[i].free.memory <= cards[i].memory && cards[i].free.core <= CORE_PER_CARD &&
               cards[i].free.slots <= SLOTS_PER_CARD);
    }
    if (without || settled_only)
        return;
    node->unsettled = unsettled;
    for (uint32_t i = 0; i < node->ncards; i++)
        node->cards[i]->overcommitted = short_of >> i & 1;
}

/* ---- assumed allocations ---- */

void state_pod_stage(struct state_pod *pod, enum pod_stage stage, uint64_t now_ms) {
    struct state *s = pod->space->state;
    if (pod->stage != POD_BOUND && stage == POD_BOUND)
        DL_DELETE2(s->open, pod, open_prev, open_next);
    if (pod->stage == POD_BOUND && stage != POD_BOUND)
        DL_APPEND2(s->open, pod, open_prev, open_next);
    pod->stage = stage;
    pod->turn = ++s->turns;
    pod->since_ms = pod->audited_ms = now_ms;
    if (pod->node)
        state_node_changed(pod->node);
}

void state_release(struct state *s, struct state_pod *pod) {
    if (pod->stage == POD_BOUND)
        return;
    state_pod_detach(pod);
    pod->stage = POD_PENDING;
    pod->turn = ++s->turns;
}

struct place_card state_place_card(const struct state_card *card) {
    return (struct place_card){.memory = card->memory,
                               .healthy = card->healthy && !card->duplicate && !card->leaving,
                               .whole_only = card->whole_only,
                               .mps_only = state_card_is_for_mps(card),
                               .physical = card->physical,
                               .tflops = card->tflops,
                               .core = card->core,
                               .replicas = card->replicas};
}

struct assigned_device state_device(const struct state_card *card,
                                    const struct place_grant *grant) {
    struct assigned_device device = {.index = card->index,
                                     .core = grant->taken.core,
                                     .memory = grant->memory,
                                     .physical = grant->physical};
    memcpy(device.uuid, card->uuid, sizeof(device.uuid));
    return device;
}

int state_allocate(struct state *s, struct state_pod *pod, struct state_node *node,
                   const struct place_result *result, enum pod_stage stage, uint64_t now_ms) {
    state_release(s, pod);
    struct state_allocation *allocations =
        calloc(result->ngrants ? result->ngrants : 1, sizeof(*allocations));
    if (!allocations)
        return -ENOMEM;
    for (uint32_t i = 0; i < result->ngrants; i++) {
        const struct place_grant *grant = &result->grants[i];
        assert(grant->container < pod->ncontainers && grant->card < node->ncards);
        const struct container_request *req = &pod->containers[grant->container];
        memcpy(allocations[i].container, req->container, sizeof(req->container));
        allocations[i].phase = req->phase;
        allocations[i].device = state_device(node->cards[grant->card], grant);
    }
    state_pod_attach(pod, node, allocations, result->ngrants);
    state_pod_stage(pod, stage, now_ms);
    return 0;
}

/* ---- assignments ---- */

static struct assigned_container *
container_of_allocation(struct assignment *a, const struct state_allocation *allocation) {
    for (uint32_t i = 0; i < a->ncontainers; i++)
        if (strcmp(a->containers[i].name, allocation->container) == 0)
            return &a->containers[i];
    struct assigned_container *c = &a->containers[a->ncontainers++];
    memcpy(c->name, allocation->container, sizeof(c->name));
    return c;
}

static void assignment_cleanup(struct assignment *a) {
    assignment_done(a);
}

int state_assignment(const struct state_pod *pod, struct assignment *ret) {
    _cleanup_(assignment_cleanup) struct assignment a = {0};
    if (!pod->node || pod->nallocations == 0)
        return -ENODATA;
    memcpy(a.node, pod->node->name, sizeof(a.node));
    a.containers = calloc(pod->nallocations, sizeof(*a.containers));
    if (!a.containers)
        return -ENOMEM;
    for (uint32_t i = 0; i < pod->nallocations; i++) {
        struct assigned_container *c = container_of_allocation(&a, &pod->allocations[i]);
        struct assigned_device *devices =
            reallocarray(c->devices, c->ndevices + 1, sizeof(*devices));
        if (!devices)
            return -ENOMEM;
        c->devices = devices;
        c->devices[c->ndevices++] = pod->allocations[i].device;
    }
    *ret = take_struct(a);
    return 0;
}
