/* SPDX-License-Identifier: Apache-2.0 */
#include "place/capacity.h"

#include <errno.h>
#include <stdlib.h>

/* One node as it is for a pod. */
static enum place_reason ask(struct place_plan *plan, const struct place_node *node, uint64_t cards,
                             struct place_result *ret) {
    struct place_node view = *node;
    uint64_t allowed[GPU_CONTAINERS_MAX];

    if (cards == 0)
        return PLACE_WRONG_GPU;
    for (uint32_t i = 0; i < GPU_CONTAINERS_MAX; i++)
        allowed[i] = cards;
    view.allowed = allowed;
    return place_on_node(&plan->policy, plan, &view, ret);
}

static void take(const struct capacity_pod *pod, const struct place_result *result,
                 struct place_card *cards, uint32_t ncards) {
    for (uint32_t i = 0; i < ncards; i++) {
        struct place_grant total;
        if (place_total(pod->request, result, &cards[i], i, &total))
            (void) place_amount_take(&cards[i].free, &total.taken);
    }
}

static struct place_card *cards_of(const struct capacity_nodes *nodes, uint32_t node) {
    return nodes->cards + (nodes->list[node].cards - nodes->cards);
}

/* The best node that has room; UINT32_MAX: none. */
static uint32_t choose(struct place_plan *plan, uint32_t pod, const struct capacity_nodes *nodes,
                       struct place_result *ret, enum place_reason *ret_reason) {
    uint32_t best = UINT32_MAX;
    int64_t most = 0;

    for (uint32_t i = 0; i < nodes->n; i++) {
        struct place_result result;
        *ret_reason = ask(plan, &nodes->list[i], nodes->allow(nodes->self, pod, i), &result);
        if (*ret_reason != PLACE_OK)
            continue;
        int64_t score = place_score(&plan->policy, plan, &result.worth, nodes->list[i].rank);
        if (best != UINT32_MAX && score <= most)
            continue;
        best = i;
        most = score;
        place_result_copy(ret, &result);
    }
    return best;
}

static int add_node(struct capacity_nodes *nodes, const struct place_node *kind) {
    struct place_node *list = realloc(nodes->list, (nodes->n + (size_t) 1) * sizeof(*list));
    if (!list)
        return -ENOMEM;
    nodes->list = list;
    struct place_card *cards =
        realloc(nodes->cards, ((size_t) nodes->ncards + kind->ncards) * sizeof(*cards));
    if (!cards)
        return -ENOMEM;
    nodes->cards = cards;
    memcpy(cards + nodes->ncards, kind->cards, kind->ncards * sizeof(*cards));
    list[nodes->n] = *kind;
    list[nodes->n].rank = nodes->n;
    nodes->n++;
    nodes->ncards += kind->ncards;
    for (uint32_t i = 0, at = 0; i < nodes->n; at += list[i].ncards, i++)
        list[i].cards = cards + at;
    return 0;
}

static void prepare(const struct capacity_pod *pod, struct place_plan *ret) {
    place_prepare(pod->request, ret);
    ret->policy = pod->policy;
    ret->topology = pod->topology;
    ret->numa_bind = pod->numa_bind;
}

static int put(const struct capacity_pod *pod, uint32_t index, struct capacity_nodes *nodes,
               const struct place_node *kind, enum place_reason *ret_reason, bool *cut_short) {
    struct place_plan plan;
    struct place_result result;

    *ret_reason = PLACE_NO_GPU;
    prepare(pod, &plan);
    uint32_t node = choose(&plan, index, nodes, &result, ret_reason);
    *cut_short |= plan.effort == 0;
    if (node == UINT32_MAX && kind) {
        prepare(pod, &plan); /* with an effort of its own */
        uint64_t allowed = nodes->allow(nodes->self, index, UINT32_MAX);
        *ret_reason = ask(&plan, kind, allowed, &result);
        if (*ret_reason != PLACE_OK)
            return 0;
        int r = add_node(nodes, kind);
        if (r < 0)
            return r;
        node = nodes->n - 1;
    }
    if (node == UINT32_MAX)
        return 0;
    *ret_reason = PLACE_OK;
    take(pod, &result, cards_of(nodes, node), nodes->list[node].ncards);
    return 0;
}

int capacity_pack(const struct capacity_pod *pods, uint32_t npods, struct capacity_nodes *nodes,
                  const struct place_node *kind, enum place_reason *ret_reasons, bool *cut_short) {
    bool ignored = false;

    for (uint32_t i = 0; i < npods; i++) {
        int r = put(&pods[i], i, nodes, kind, &ret_reasons[i], cut_short ? cut_short : &ignored);
        if (r < 0)
            return r;
    }
    return 0;
}

struct capacity_left capacity_left(const struct capacity_nodes *nodes) {
    struct capacity_left left = {0};

    for (uint32_t i = 0; i < nodes->ncards; i++) {
        const struct place_card *card = &nodes->cards[i];
        if (!card->healthy)
            continue;
        left.idle += place_card_is_idle(card);
        left.core += card->free.core;
        left.memory += card->free.memory;
    }
    return left;
}
