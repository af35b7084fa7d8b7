/* SPDX-License-Identifier: Apache-2.0 */
#include "place/policies/policies.h"
#include "place/workload/stranded.h"
#include "place/workload/workload_model.h"

/* Expected stranded capacity: the placement after which least will be left over in the end, given
 * what typically arrives, with a price on what is scarce: places for pods with several cards or
 * selected models. All in thousandths of a card. */

/* Wide enough for place_binpack.card_cost, and for a number of cards. */
#define CARD_ORDER 65536
#define NODE_ORDER (PLACE_CARDS_MAX + 1)
/* More than any node can lose or gain: costs of cards are not negative. */
#define MOST (INT64_C(1000) * PLACE_CARDS_MAX)

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

/* Costs whose difference is below the model's precision are equal: binpack decides. */
static uint64_t esc_card_cost(const struct place_plan *plan, const struct place_node *node,
                              uint32_t card, const struct place_card *left,
                              const struct place_amount *amount) {
    struct place_amount taken[PLACE_CARDS_MAX];
    uint64_t order = place_binpack.card_cost(plan, node, card, left, amount);
    if (!place_model_knows(plan->model))
        return order;
    if (amount->core == CORE_PER_CARD && amount->memory == left->memory)
        return left->memory >> 20; /* whole cards differ in nothing but their size */
    place_model_taken(node, card, left, amount, taken);
    uint64_t broken = place_model_broken(plan->model, plan, node, taken);
    int64_t price = place_model_slots_price(plan->model, broken);
    int64_t growth = place_model_growth(plan->model, plan, node, taken) / STRANDED_SCALE;
    int64_t step = place_model_resolution(plan->model);
    return (uint64_t) (floor_div(growth + price + MOST + step / 2, step)) * CARD_ORDER + order;
}

/* Idle cards of which the pod takes a part. */
static int64_t opened(const struct place_node *node, const struct place_amount *taken) {
    int64_t n = 0;
    for (uint32_t c = 0; c < node->ncards; c++)
        n += taken[c].memory > 0 && place_card_is_idle(&node->cards[c]);
    return n;
}

static int64_t esc_node_value(const struct place_plan *plan, const struct place_node *node,
                              const struct place_amount *taken) {
    if (!place_model_knows(plan->model))
        return place_binpack.node_value(plan, node, taken);
    int64_t cost = place_model_growth(plan->model, plan, node, taken) / STRANDED_SCALE;
    return (cost + MOST) * NODE_ORDER + opened(node, taken);
}

static uint64_t esc_node_toll(const struct place_plan *plan, const struct place_node *node,
                              const struct place_amount *taken) {
    if (!place_model_knows(plan->model))
        return 0;
    return place_model_broken(plan->model, plan, node, taken);
}

static int64_t esc_settle(const struct place_plan *plan, int64_t value, uint64_t toll) {
    if (!place_model_knows(plan->model))
        return value;
    int64_t cost = value / NODE_ORDER - MOST + place_model_slots_price(plan->model, toll);
    int64_t step = place_model_resolution(plan->model);
    return -(floor_div(cost + step / 2, step) * NODE_ORDER + value % NODE_ORDER);
}

const struct place_policy place_esc = {
    .name = "esc",
    .card_cost = esc_card_cost,
    .node_value = esc_node_value,
    .node_toll = esc_node_toll,
    .settle = esc_settle,
};
