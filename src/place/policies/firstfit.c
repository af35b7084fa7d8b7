/* SPDX-License-Identifier: Apache-2.0 */
#include "place/policies/policies.h"

/* First-fit: all that fit are equal, so the order of nodes and of cards decides. */

static uint64_t first_fit_card_cost(const struct place_plan *plan, const struct place_node *node,
                                    uint32_t card, const struct place_card *left,
                                    const struct place_amount *amount) {
    (void) plan, (void) node, (void) card, (void) left, (void) amount;
    return 0;
}

static int64_t first_fit_node_value(const struct place_plan *plan, const struct place_node *node,
                                    const struct place_amount *taken) {
    (void) plan, (void) node, (void) taken;
    return 0;
}

const struct place_policy place_first_fit = {
    .name = "first-fit",
    .card_cost = first_fit_card_cost,
    .node_value = first_fit_node_value,
};
