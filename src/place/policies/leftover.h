/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What is left of a node and its cards, for the policies that go by nothing else. */

#include "place/place.h"

#define LEFTOVER_CARD 1000 /* an idle card */

/* Mean of the free compute and memory of a card after `given` has been taken, 0 to LEFTOVER_CARD.
 */
static inline uint64_t leftover_card(const struct place_card *card,
                                     const struct place_amount *given) {
    uint64_t unit = card->memory / LEFTOVER_CARD + 1;
    uint64_t memory = (card->free.memory - given->memory) / unit;
    uint64_t core = (uint64_t) (card->free.core - given->core) * (LEFTOVER_CARD / CORE_PER_CARD);
    return (memory + core) / 2;
}

/* The sum over the healthy cards of the node. */
static inline uint64_t leftover_cards(const struct place_node *node,
                                      const struct place_amount *taken) {
    uint64_t sum = 0;
    for (uint32_t c = 0; c < node->ncards; c++)
        if (node->cards[c].healthy)
            sum += leftover_card(&node->cards[c], &taken[c]);
    return sum;
}
