/* SPDX-License-Identifier: Apache-2.0 */

/* Lookups, and objects of the state as placement takes them. They change nothing. */

#include <string.h>

#include "base/hash.h"
#include "scheduler/state/state_internal.h"

struct cpu_memory state_room_add(struct cpu_memory a, struct cpu_memory b) {
    return (struct cpu_memory){a.cpu + b.cpu, a.memory + b.memory, a.exclusive + b.exclusive};
}

struct cpu_memory state_room_sub(struct cpu_memory a, struct cpu_memory b) {
    return (struct cpu_memory){a.cpu > b.cpu ? a.cpu - b.cpu : 0,
                               a.memory > b.memory ? a.memory - b.memory : 0,
                               a.exclusive > b.exclusive ? a.exclusive - b.exclusive : 0};
}

struct state_pod *state_pod_find(struct state *s, const char *uid) {
    struct state_pod *pod;
    HASH_FIND_STR(s->pods, uid, pod);
    return pod;
}

struct state_card *state_instance_find(struct state *s, const char *gpu, const char *profile,
                                       uint32_t start, uint32_t *ret_at) {
    struct state_card *card;
    HASH_FIND_STR(s->cards, gpu, card);
    for (uint32_t c = 0; card && card->node && c < card->node->ncards; c++) {
        struct state_card *instance = card->node->cards[c];
        if (strcmp(instance->parent, card->uuid) == 0 && instance->start == start &&
            strcmp(instance->profile, profile) == 0) {
            *ret_at = c;
            return instance;
        }
    }
    return NULL;
}

const char *state_stage_name(enum pod_stage stage) {
    static const char *const names[POD_STAGES] = {"pending",  "assumed", "binding",
                                                  "in-doubt", "awaited", "bound"};
    return names[stage];
}

void state_pod_request(const struct state_pod *pod, struct gpu_request *ret) {
    ret->n = pod->ncontainers;
    if (pod->ncontainers > 0)
        memcpy(ret->containers, pod->containers, pod->ncontainers * sizeof(*pod->containers));
}

uint64_t state_models_of(const struct state *s, const struct gpu_selection *selection) {
    uint64_t set = UINT64_MAX;
    for (uint32_t i = 0; selection && i <= s->nmodels; i++)
        if (!selection_model(selection, s->models[i]))
            set &= ~(UINT64_C(1) << i);
    return set;
}

enum place_reason state_node_absent(const struct state_node *node) {
    for (uint32_t i = 0; node->head->absence != PLACE_OK && i < node->ncards; i++)
        if (node->cards[i]->healthy || node->cards[i]->unknown)
            return node->head->absence;
    return PLACE_OK;
}

enum place_reason state_card_absent(const struct state_card *card) {
    const struct state_node *node = card->node;
    if (!card->apart)
        return state_node_absent(node);
    if (node->ncards > 0)
        return node->head->absence;
    if (node->apart_absence == PLACE_OK && node->agent.uid[0] && !node->agent.runs)
        return PLACE_NO_AGENT;
    return node->apart_absence;
}

struct place_node state_place_node(const struct state_node *node) {
    struct cpu_memory left = state_room_sub(node->room, node->used);
    return (struct place_node){.cards = node->place,
                               .ncards = node->ncards,
                               .rank = node->head->rank,
                               .cpu_free = left.cpu,
                               .cpu = node->room.cpu,
                               .memory_free = left.memory,
                               .memory = node->room.memory,
                               .model = node->ncards > 0 ? node->cards[0]->model_id : 0,
                               .topology = node->topology};
}

uint64_t state_hash(uint64_t hash, const char *text) {
    hash = hash_text(hash ? hash : HASH_START, text);
    return hash ? hash : 1;
}

struct state_draw *state_draw_find(const struct state_pod *pod, const char *container) {
    for (struct state_draw *d = pod->draws; d; d = d->next)
        if (strcmp(d->container, container ? container : "") == 0)
            return d;
    return NULL;
}

/* The reserved capacity for containers without a row of their own. */
static const char *id_of_pod(const struct state_pod *pod) {
    const struct state_draw *draw = state_draw_find(pod, NULL);
    return draw ? draw->id : pod->uid;
}

const char *state_draw_id(const struct state_pod *pod, const char *container) {
    const struct state_draw *draw = state_draw_find(pod, container);
    return draw ? draw->id : id_of_pod(pod);
}
