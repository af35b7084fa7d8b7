/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster/card_place.h"

#include <string.h>

#include "kube/objects/gpu_object.h"

struct place_card card_place(const struct card *card) {
    struct place_card place = {
        .memory = card->memory,
        .physical = card->memory,
        .free = {card->free_memory, (uint32_t) card->free_core, SLOTS_PER_CARD},
        .healthy = strcmp(card->state, "Healthy") == 0 && card->memory > 0,
        .core = card->parent[0] ? (uint32_t) card->core : 0,
    };
    struct gpu_object gpu;

    for (size_t i = 0; i < card->nholders; i++)
        place.free.slots -= place.free.slots > 0 && card->holders[i].core == 0;
    place.tflops = gpu_model_tflops(card->model);
    if (gpu_object_parse(card->object, &gpu, NULL) < 0)
        return place;
    if (gpu.memory > 0)
        place.physical = gpu.memory;
    place.whole_only = gpu.whole_only;
    place.replicas = gpu.replicas;
    return place;
}

struct place_card card_place_new(const struct card *card) {
    struct place_card place = card_place(card);

    place.healthy = card->memory > 0;
    place.free = place_amount_of(&place);
    return place;
}
