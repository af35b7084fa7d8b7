/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "place/policies/policies.h"
#include "place/workload/workload_model.h"

/* Fragmentation gradient descent (Weng et al., USENIX ATC 2023): the placement that makes least
 * more of the node useless for the next typical pod. Scores are whole numbers from 0 to 100, as
 * published: what is equal then goes to the first node. */

#define CARD 1000.0
#define SCORE_MAX 100.0

static int64_t score(double before, double after) {
    double steps = (before - after) / CARD;
    return (int64_t) (SCORE_MAX / (1.0 + exp(-steps)));
}

static int64_t fgd_score(const struct place_plan *plan, const struct place_node *node,
                         const struct place_amount *taken) {
    return score(place_model_next(plan->model, plan, node, NULL),
                 place_model_next(plan->model, plan, node, taken));
}

static uint64_t fgd_card_cost(const struct place_plan *plan, const struct place_node *node,
                              uint32_t card, const struct place_card *left,
                              const struct place_amount *amount) {
    struct place_amount taken[PLACE_CARDS_MAX];
    if (!place_model_knows(plan->model))
        return place_best_fit.card_cost(plan, node, card, left, amount);
    place_model_taken(node, card, left, amount, taken);
    return (uint64_t) ((int64_t) SCORE_MAX - fgd_score(plan, node, taken));
}

static int64_t fgd_node_value(const struct place_plan *plan, const struct place_node *node,
                              const struct place_amount *taken) {
    if (!place_model_knows(plan->model))
        return place_best_fit.node_value(plan, node, taken);
    return fgd_score(plan, node, taken);
}

const struct place_policy place_fgd = {
    .name = "fgd",
    .card_cost = fgd_card_cost,
    .node_value = fgd_node_value,
};
