/* SPDX-License-Identifier: Apache-2.0 */
#include "place/policies/leftover.h"
#include "place/policies/policies.h"

/* Best-fit: the fullest card, and the node with the least left over, free CPU and free cards
 * counted the same: 128 CPUs weigh as much as eight cards. */

#define MILLI_CPU_PER_CARD 16000

static uint64_t best_fit_card_cost(const struct place_plan *plan, const struct place_node *node,
                                   uint32_t card, const struct place_card *left,
                                   const struct place_amount *amount) {
    (void) plan, (void) node, (void) card;
    return leftover_card(left, amount);
}

static int64_t best_fit_node_value(const struct place_plan *plan, const struct place_node *node,
                                   const struct place_amount *taken) {
    uint64_t cpu = node->cpu_free > plan->cpu ? node->cpu_free - plan->cpu : 0;
    uint64_t most = (uint64_t) PLACE_CARDS_MAX * MILLI_CPU_PER_CARD;
    uint64_t left = leftover_cards(node, taken);
    left += (cpu < most ? cpu : most) * LEFTOVER_CARD / MILLI_CPU_PER_CARD;
    return -(int64_t) left;
}

const struct place_policy place_best_fit = {
    .name = "best-fit",
    .card_cost = best_fit_card_cost,
    .node_value = best_fit_node_value,
};
