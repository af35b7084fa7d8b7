/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/extender/node_template.h"

#include <string.h>

#include "model/dialect.h"
#include "model/gpu_model.h"
#include "model/quantity.h"
#include "model/selection.h"

/* 0 when it is not there. */
static uint64_t read_amount(struct json list, const char *key) {
    const char *text = json_string(json_get(list, key));
    uint64_t value = 0;
    if (!text || quantity_parse(text, strlen(text), &value) < 0)
        return 0;
    return value;
}

static uint64_t count_cards(struct json allocatable, struct json labels) {
    uint64_t n = read_amount(allocatable, RESOURCE_CORE) / CORE_PER_CARD;
    if (n == 0)
        n = read_amount(allocatable, "nvidia.com/gpu");
    if (n == 0)
        n = read_amount(labels, "nvidia.com/gpu.count");
    return n < PLACE_CARDS_MAX ? n : PLACE_CARDS_MAX;
}

static uint64_t card_memory(struct json allocatable, struct json labels, uint64_t cards) {
    uint64_t all = read_amount(allocatable, RESOURCE_MEMORY), mib;
    if (all > 0)
        return all / cards;
    mib = read_amount(labels, "nvidia.com/gpu.memory");
    return mib < UINT64_MAX >> 20 ? mib << 20 : 0;
}

enum place_reason template_judge(struct place_plan *plan, const struct gpu_selection *selection,
                                 struct json node, int64_t *ret_score) {
    struct json labels = JSON_PATH(node, "metadata", "labels");
    struct json allocatable = JSON_PATH(node, "status", "allocatable");
    const char *model = json_string(json_get(labels, "nvidia.com/gpu.product"));
    struct place_card cards[PLACE_CARDS_MAX];
    struct place_result result;
    uint64_t n = count_cards(allocatable, labels);
    if (n == 0)
        return PLACE_NO_GPU;
    if (selection && !selection_model(selection, model ? model : ""))
        return PLACE_WRONG_GPU;
    uint64_t memory = card_memory(allocatable, labels, n);
    for (uint64_t i = 0; i < n; i++)
        cards[i] = (struct place_card){.memory = memory,
                                       .physical = memory,
                                       .tflops = gpu_model_tflops(model ? model : ""),
                                       .free = place_amount_of_card(memory),
                                       .healthy = true};
    const struct place_node empty = {.cards = cards, .ncards = (uint32_t) n};
    enum place_reason reason = place_on_node(&plan->policy, plan, &empty, &result);
    *ret_score = reason == PLACE_OK ? result.score : 0;
    return reason;
}
