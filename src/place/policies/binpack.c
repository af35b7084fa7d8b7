/* SPDX-License-Identifier: Apache-2.0 */
#include "place/place.h"
#include "place/policies/leftover.h"

/* Bin-packing: a share goes to the card that it fills best, never to an idle card while a used one
 * has room; a pod goes to the node where it breaks the fewest idle cards, then leaves the least
 * over on the cards it touches, then where the fewest cards are idle anyway. */

static uint64_t binpack_card_cost(const struct place_plan *plan, const struct place_node *node,
                                  uint32_t card, const struct place_card *left,
                                  const struct place_amount *amount) {
    (void) plan, (void) node, (void) card;
    return 1 + leftover_card(left, amount) + (place_card_is_idle(left) ? 2 * LEFTOVER_CARD : 0);
}

static int64_t binpack_node_value(const struct place_plan *plan, const struct place_node *node,
                                  const struct place_amount *taken) {
    (void) plan;
    int64_t opened = 0, idle = 0, left = 0, touched = 0;
    for (uint32_t c = 0; c < node->ncards; c++) {
        const struct place_card *card = &node->cards[c];
        if (taken[c].memory == 0) {
            idle += card->healthy && place_card_is_idle(card);
            continue;
        }
        touched++;
        left += (int64_t) leftover_card(card, &taken[c]);
        opened += place_card_is_idle(card);
    }
    int64_t mean = touched ? left / touched : 0;
    return -((opened * (LEFTOVER_CARD + 1) + mean) * (PLACE_CARDS_MAX + 1) + idle);
}

const struct place_policy place_binpack = {
    .name = "binpack",
    .card_cost = binpack_card_cost,
    .node_value = binpack_node_value,
};
