/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Cards and requests for tests of the search, which include it after cmocka.h. */

#include "place/place.h"
#include "place/policies/policies.h"

#define GIB ((uint64_t) 1 << 30)

static inline struct place_card idle_card(uint64_t gib) {
    return (struct place_card){.memory = gib * GIB,
                               .free = {gib * GIB, 100, SLOTS_PER_CARD},
                               .healthy = true,
                               .physical = gib * GIB};
}

static inline struct container_request share(uint32_t core, uint64_t memory) {
    return (struct container_request){
        .phase = CONTAINER_APP, .cards = 1, .core = core, .memory = memory, .slot = core == 0};
}

static inline struct container_request whole(uint32_t cards) {
    return (struct container_request){.phase = CONTAINER_APP, .cards = cards, .whole = true};
}

static inline enum place_reason run(const struct place_card *cards, uint32_t ncards,
                                    const struct gpu_request *request, struct place_result *ret) {
    static struct place_plan plan;
    struct place_node node = {.cards = cards, .ncards = ncards};
    place_prepare(request, &plan);
    return place_on_node(&place_binpack, &plan, &node, ret);
}

static inline enum place_reason run_one(const struct place_card *cards, uint32_t ncards,
                                        struct container_request req, struct place_result *ret) {
    struct gpu_request request = {.n = 1, .containers = {req}};
    return run(cards, ncards, &request, ret);
}
