/* SPDX-License-Identifier: Apache-2.0 */

/* Equivalence classes of nodes. A pod of a kind not seen before is judged once for each
 * state that nodes are in, not for each node: in a large cluster most have company. What is
 * compared is everything that state_view() hands to placement for a pod that may take any card, or
 * cards of certain models, byte by byte. */

#include <stdlib.h>
#include <string.h>

#include "place/topology.h"
#include "scheduler/state/state_internal.h"

/* Without gaps between the members, which would be compared too. */
struct key_card {
    uint64_t memory, physical, free_memory;
    uint32_t free_core, free_slots, tflops, model;
    uint8_t healthy, only, core, cpus_known;
    uint32_t replicas, cpus_above, cpus_upto;
};
struct key_node {
    uint64_t cpu_free, cpu, memory_free, memory;
    uint32_t model, ncards;
};
struct key {
    struct key_node node;
    struct key_card cards[PLACE_CARDS_MAX];
    unsigned char topology[sizeof(struct place_topology) + PLACE_CARDS_MAX * PLACE_CARDS_MAX];
};
_Static_assert(sizeof(struct key_card) == 56 && sizeof(struct key_node) == 40, "no gaps");

/* Models without an id are compared by name. */
static bool has_model_id(const struct state_card *card) {
    return card->model_id != 0 || card->model[0] == '\0';
}

/* Returns how long the key is; 0: the node is like no other. */
static size_t make_key(const struct state_node *node, struct key *ret) {
    const struct place_node view = state_place_node(node);
    size_t len = sizeof(ret->node) + node->ncards * sizeof(ret->cards[0]);
    ret->node = (struct key_node){view.cpu_free, view.cpu,   view.memory_free,
                                  view.memory,   view.model, node->ncards};
    for (uint32_t i = 0; i < node->ncards; i++) {
        const struct place_card *card = &node->place[i];
        if (!has_model_id(node->cards[i]))
            return 0;
        ret->cards[i] =
            (struct key_card){.memory = card->memory,
                              .physical = card->physical,
                              .free_memory = card->free.memory,
                              .free_core = card->free.core,
                              .free_slots = card->free.slots,
                              .tflops = card->tflops,
                              .model = node->cards[i]->model_id,
                              .healthy = card->healthy,
                              .only = (uint8_t) (card->whole_only | card->mps_only << 1),
                              .core = (uint8_t) card->core,
                              .cpus_known = card->cpus.known,
                              .cpus_above = card->cpus.above,
                              .cpus_upto = card->cpus.upto,
                              .replicas = card_replicas_code(&card->replicas)};
    }
    if (node->topology) {
        size_t more = topology_size(node->topology->ncards);
        memcpy((unsigned char *) ret + len, node->topology, more);
        len += more;
    }
    return len;
}

static struct state_equivalence *equivalence_new(struct state *s, const struct key *key,
                                                 size_t len) {
    struct state_equivalence *class = calloc(1, sizeof(*class) + len);
    if (!class)
        return NULL;
    class->len = len;
    memcpy(class->key, key, len);
    HASH_ADD(hh, s->equivalences, key, len, class);
    return hash_added_or_freed(class);
}

void state_equivalence_leave(struct state_node *node) {
    struct state_equivalence *class = node->head->equivalence;
    node->head->equivalence = NULL;
    if (!class || --class->nodes > 0)
        return;
    HASH_DEL(node->state->equivalences, class);
    free(class);
}

void state_equivalence_refresh(struct state_node *node) {
    struct key key;
    struct state_equivalence *class = NULL;
    size_t len = node->ncards > 0 ? make_key(node, &key) : 0;
    if (len > 0)
        HASH_FIND(hh, node->state->equivalences, &key, len, class);
    if (len > 0 && !class)
        class = equivalence_new(node->state, &key, len);
    if (class)
        class->nodes++;
    state_equivalence_leave(node);
    node->head->equivalence = class;
}
