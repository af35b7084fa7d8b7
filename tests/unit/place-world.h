/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Nodes, pods and arrivals for tests of the policies, which include it after cmocka.h. */

#include "place/policies/policies.h"
#include "place/workload/workload_model.h"

#define CARD ((uint64_t) 100 << 20) /* bytes: a percent is a MiB */
#define CORES(n) ((uint64_t) (n) *1000)

static inline struct place_card card_with(uint32_t core) {
    return (struct place_card){.memory = CARD,
                               .free = {core * (CARD / 100), core, SLOTS_PER_CARD},
                               .healthy = true,
                               .physical = CARD};
}

/* A node of 8 cards at most, with so much of each free. */
struct world {
    struct place_card cards[8];
    struct place_node node;
};

static inline void make_node(struct world *w, uint32_t rank, uint64_t cpu_free, uint32_t ncards,
                             const uint32_t free[]) {
    for (uint32_t c = 0; c < ncards; c++)
        w->cards[c] = card_with(free[c]);
    w->node = (struct place_node){.cards = w->cards, .ncards = ncards, .rank = rank};
    w->node.cpu = CORES(96);
    w->node.cpu_free = cpu_free;
    w->node.memory = w->node.memory_free = (uint64_t) 1 << 40;
}

struct pod {
    struct gpu_request request;
    struct place_plan plan;
};

static inline struct place_plan *make_pod(struct pod *p, struct place_model *m, uint32_t cards,
                                          uint32_t core, uint64_t cpu) {
    p->request = (struct gpu_request){.n = cards > 0};
    p->request.containers[0] = (struct container_request){.phase = CONTAINER_APP, .cards = cards};
    p->request.containers[0].whole = core == 100;
    p->request.containers[0].core = core == 100 ? 0 : core;
    place_prepare(&p->request, &p->plan);
    p->plan.cpu = cpu;
    p->plan.model = m;
    return &p->plan;
}

static inline void arrive(struct place_model *m, uint32_t times, uint32_t cards, uint32_t core,
                          uint64_t cpu) {
    struct pod pod;
    make_pod(&pod, m, cards, core, cpu);
    for (uint32_t i = 0; i < times; i++)
        place_model_arrive(m, &pod.plan);
}

static inline int64_t score_of(const char *policy, struct place_plan *plan, const struct world *w) {
    struct place_result result;
    assert_int_equal(place_on_node(place_policy_find(policy), plan, &w->node, &result), PLACE_OK);
    assert_in_range(result.score + PLACE_SCORE_MAX, 0, 2 * PLACE_SCORE_MAX);
    return result.score;
}
