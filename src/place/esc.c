/* SPDX-License-Identifier: Apache-2.0 */
#include "place/model.h"
#include "place/policies.h"
#include "place/stranded.h"

/* Expected stranded capacity: the placement after which least will be left over in the end, given
 * what typically arrives, with a price on what is scarce: slots for pods of several cards, and
 * cards of models that others insist on. All in thousandths of a card. */

/* Differences below this are noise: the first of the nodes in their order gets the pod, which keeps
 * the load together. */
#define BUCKET 50
/* More than any node can lose or gain: costs of cards are not negative. */
#define MOST (INT64_C(1000) * PLACE_CARDS_MAX)

static bool any_model(const struct place_plan *plan) {
    return plan->models == WORKLOAD_ANY_MODEL;
}

static uint64_t esc_card_cost(const struct place_plan *plan, const struct place_node *node,
                              uint32_t card, const struct place_card *left,
                              const struct place_amount *amount) {
    struct place_amount holds[PLACE_CARDS_MAX];
    if (!place_model_knows(plan->model))
        return place_best_fit.card_cost(plan, node, card, left, amount);
    if (amount->core == 100 && amount->memory == left->memory)
        return left->memory >> 20; /* whole cards differ in nothing but their size */
    place_model_holds(node, card, left, amount, holds);
    uint32_t broken = place_model_broken(plan->model, plan, node, holds);
    int64_t price = place_model_slots_price(plan->model, broken);
    int64_t growth = place_model_growth(plan->model, plan, node, holds);
    return (uint64_t) (growth + (price + MOST) * STRANDED_SCALE);
}

static int64_t esc_node_value(const struct place_plan *plan, const struct place_node *node,
                              const struct place_amount *holds) {
    struct place_model *m = plan->model;
    if (!place_model_knows(m))
        return place_best_fit.node_value(plan, node, holds);
    int64_t cost = place_model_growth(m, plan, node, holds) / STRANDED_SCALE;
    if (any_model(plan)) {
        struct place_shape shape = place_shape_of(plan);
        cost += place_model_model_price(m, node->model) * (int64_t) workload_milli(&shape) / 1000;
    }
    return -cost;
}

static uint32_t esc_node_toll(const struct place_plan *plan, const struct place_node *node,
                              const struct place_amount *holds) {
    if (!place_model_knows(plan->model))
        return 0;
    return place_model_broken(plan->model, plan, node, holds);
}

static int64_t floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

static int64_t esc_settle(const struct place_plan *plan, int64_t value, uint32_t toll) {
    if (!place_model_knows(plan->model))
        return value;
    return -floor_div(place_model_slots_price(plan->model, toll) - value, BUCKET);
}

const struct place_policy place_esc = {
    .name = "esc",
    .card_cost = esc_card_cost,
    .node_value = esc_node_value,
    .node_toll = esc_node_toll,
    .settle = esc_settle,
};
