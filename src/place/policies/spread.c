/* SPDX-License-Identifier: Apache-2.0 */
#include "place/policies/leftover.h"
#include "place/policies/policies.h"

/* Spreading: the emptiest card, and the node whose cards are emptiest on average. For latency; it
 * fragments the cards. */

static uint64_t spread_card_cost(const struct place_plan *plan, const struct place_node *node,
                                 uint32_t card, const struct place_card *left,
                                 const struct place_amount *amount) {
    (void) plan, (void) node, (void) card;
    return LEFTOVER_CARD - leftover_card(left, amount);
}

static int64_t spread_node_value(const struct place_plan *plan, const struct place_node *node,
                                 const struct place_amount *taken) {
    (void) plan;
    uint32_t healthy = 0;
    for (uint32_t c = 0; c < node->ncards; c++)
        healthy += node->cards[c].healthy;
    return healthy ? (int64_t) (leftover_cards(node, taken) * LEFTOVER_CARD / healthy) : 0;
}

const struct place_policy place_spread = {
    .name = "spread",
    .card_cost = spread_card_cost,
    .node_value = spread_node_value,
};
