/* SPDX-License-Identifier: Apache-2.0 */
#include "place/amounts.h"

#include "model/scaling.h"

#define CORE_NEVER 101 /* more than any card has */

/* memory * core / all without overflow */
static uint64_t part_of(uint64_t memory, uint32_t core, uint32_t all) {
    return memory / all * core + memory % all * core / all;
}

/* Compute in percent of this card. */
static uint32_t core_of(const struct container_request *req, const struct place_card *card) {
    if (req->tflops == 0)
        return req->core;
    if (card->tflops == 0 || req->tflops > card->tflops)
        return CORE_NEVER;
    return (uint32_t) (((uint64_t) req->tflops * CORE_PER_CARD + card->tflops - 1) / card->tflops);
}

uint32_t place_replicas(const struct container_request *req, const struct place_card *card) {
    if (req->whole)
        return req->as_replica && card->replicas.as_cards ? 1 : 0;
    return req->replicas;
}

static uint32_t replicas_of(const struct place_card *card) {
    return card->replicas.count > 0 ? card->replicas.count : REPLICAS_PER_CARD;
}

/* More replicas than the card has are more memory than it has. */
static uint64_t replicas_memory(uint32_t n, const struct place_card *card) {
    if (n > replicas_of(card))
        return card->memory + 1;
    return part_of(card->memory, n * CORE_PER_CARD, replicas_of(card) * place_card_core(card));
}

static uint32_t replicas_core(uint32_t n, const struct place_card *card) {
    uint32_t core = n * CORE_PER_CARD / replicas_of(card);
    return card->replicas.with_core ? (core > 0 ? core : 1) : 0;
}

/* Memory for a request without an amount: its percentage. An instance counts as its percentage of a
 * card, so that it may have less than the request takes. */
static uint64_t default_memory(const struct container_request *req, const struct place_card *card) {
    const uint32_t n = place_replicas(req, card);
    if (n > 0)
        return replicas_memory(n, card);
    uint32_t percent = req->memory_percent ? req->memory_percent : core_of(req, card);
    return part_of(card->memory, percent < CORE_PER_CARD ? percent : CORE_PER_CARD,
                   place_card_core(card));
}

bool place_card_serves(const struct container_request *req, const struct place_card *card) {
    const uint32_t n = place_replicas(req, card);
    /* Kubelet counts the replicas that the node shows under that name, and shares with them. */
    return (card->core == 0 || (!req->whole && req->cards <= 1)) &&
           !(card->replicas.as_cards && req->as_cards) &&
           !(card->replicas.one_at_most && n > 0 && n * req->cards > 1);
}

void place_given(const struct container_request *req, const struct place_card *card,
                 uint64_t *ret_memory, uint64_t *ret_physical) {
    uint64_t memory = req->memory, physical;
    if (place_is_whole(req, card)) {
        /* A part of the card that is kept back is given to no share. */
        *ret_memory = *ret_physical = card->physical < card->memory ? card->physical : card->memory;
        return;
    }
    if (memory == 0) {
        /* The requested percentage, of the physical memory and of the capacity. */
        memory = default_memory(req, card);
        physical = scaling_physical(memory, card->physical, card->memory, 0);
        if (req->scaling >= SCALING_ONE && scaling_capacity(physical, req->scaling) < memory)
            memory = scaling_capacity(physical, req->scaling);
    } else {
        physical = scaling_physical(memory, card->physical, card->memory, req->scaling);
    }
    *ret_memory = memory;
    *ret_physical = physical;
}

bool place_amount_take(struct place_amount *free, const struct place_amount *amount) {
    bool enough = amount_fits(amount, free);
    *free = amount_sub(*free, amount_min(*free, *amount));
    return enough;
}

struct place_amount place_share(const struct container_request *req,
                                const struct place_card *card) {
    uint64_t memory = req->memory, physical;
    const uint32_t n = place_replicas(req, card);
    if (n > 0) {
        const uint32_t part = replicas_core(n, card);
        return (struct place_amount){replicas_memory(n, card), part, part == 0};
    }
    if (req->whole)
        return (struct place_amount){.memory = card->memory, .core = CORE_PER_CARD};
    if (memory == 0) {
        memory = default_memory(req, card);
    } else if (card->physical < card->memory) {
        place_given(req, card, &memory, &physical);
        memory = scaling_charge(memory, physical, card->physical, card->memory);
    }
    return (struct place_amount){.memory = memory, .core = core_of(req, card), .slots = req->slot};
}

struct place_grant place_grant(const struct container_request *req, const struct place_card *card) {
    struct place_grant grant = {.taken = place_share(req, card)};
    place_given(req, card, &grant.memory, &grant.physical);
    return grant;
}

bool place_total(const struct gpu_request *request, const struct place_result *result,
                 const struct place_card *card, uint32_t c, struct place_grant *ret) {
    struct place_sum sum = {0};
    for (uint32_t i = 0; i < result->ngrants; i++) {
        const struct place_grant *grant = &result->grants[i];
        if (grant->card == c)
            place_sum_add(&sum, request->containers[grant->container].phase, &grant->taken);
    }
    struct place_amount taken = place_sum_total(&sum);
    *ret = (struct place_grant){
        .card = (uint8_t) c,
        .taken = taken,
        .memory = taken.memory,
        .physical = scaling_physical(taken.memory, card->physical, card->memory, 0),
    };
    return taken.memory > 0 || taken.core > 0;
}

void place_sum_add(struct place_sum *sum, enum container_phase phase,
                   const struct place_amount *amount) {
    if (phase == CONTAINER_APP)
        sum->apps = amount_add(sum->apps, *amount);
    else if (phase == CONTAINER_SIDECAR)
        sum->sidecars = amount_add(sum->sidecars, *amount);
    else
        sum->init_peak = amount_max(sum->init_peak, amount_add(sum->sidecars, *amount));
}

struct place_amount place_sum_total(const struct place_sum *sum) {
    return amount_max(sum->init_peak, amount_add(sum->sidecars, sum->apps));
}

struct place_amount place_held_by(const struct gpu_request *request, const struct place_node *node,
                                  uint32_t containers, uint32_t c) {
    struct place_sum sum = {0};
    for (uint32_t rest = containers; rest; rest &= rest - 1) {
        const struct container_request *req = &request->containers[__builtin_ctz(rest)];
        struct place_amount amount = place_share(req, &node->cards[c]);
        place_sum_add(&sum, req->phase, &amount);
    }
    return place_sum_total(&sum);
}

struct place_amount place_taken_by(const struct gpu_request *request, const struct place_node *node,
                                   uint32_t containers, uint32_t c) {
    struct place_amount taken = place_held_by(request, node, containers, c);
    for (uint32_t d = 0; d < node->ndraws; d++) {
        const struct place_draw *draw = &node->draws[d];
        if (draw->card != c || !(draw->containers & containers))
            continue;
        struct place_amount drawn = place_held_by(request, node, draw->containers & containers, c);
        drawn = amount_min(drawn, draw->amount);
        taken = amount_sub(taken, amount_min(drawn, taken));
    }
    return taken;
}
