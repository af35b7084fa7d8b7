/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Amounts of a card: arithmetic, and what requests take of a card of a node. Used inside place. */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "place/place.h"

static inline struct place_amount amount_add(struct place_amount a, struct place_amount b) {
    return (struct place_amount){a.memory + b.memory, a.core + b.core, a.slots + b.slots};
}

static inline struct place_amount amount_max(struct place_amount a, struct place_amount b) {
    return (struct place_amount){
        a.memory > b.memory ? a.memory : b.memory,
        a.core > b.core ? a.core : b.core,
        a.slots > b.slots ? a.slots : b.slots,
    };
}

static inline struct place_amount amount_min(struct place_amount a, struct place_amount b) {
    return (struct place_amount){
        a.memory < b.memory ? a.memory : b.memory,
        a.core < b.core ? a.core : b.core,
        a.slots < b.slots ? a.slots : b.slots,
    };
}

static inline bool amount_fits(const struct place_amount *a, const struct place_amount *free) {
    return a->memory <= free->memory && a->core <= free->core && a->slots <= free->slots;
}

/* a - b, where b <= a in every part. */
static inline struct place_amount amount_sub(struct place_amount a, struct place_amount b) {
    assert(amount_fits(&b, &a));
    return (struct place_amount){a.memory - b.memory, a.core - b.core, a.slots - b.slots};
}

static inline bool amount_is_zero(const struct place_amount *a) {
    return a->memory == 0 && a->core == 0 && a->slots == 0;
}

static inline bool amount_equal(const struct place_amount *a, const struct place_amount *b) {
    return a->memory == b->memory && a->core == b->core && a->slots == b->slots;
}

/* What the containers of the set hold of card c together. */
struct place_amount place_held_by(const struct gpu_request *request, const struct place_node *node,
                                  uint32_t containers, uint32_t c);

/* What the containers of the set take of the free amounts of card c together: their sum there, less
 * the reserved capacity that they draw on. Containers that draw on the same reservation use it
 * once. */
struct place_amount place_taken_by(const struct gpu_request *request, const struct place_node *node,
                                   uint32_t containers, uint32_t c);

/* Whether the card can be given to a container with that request, if enough of it is free. */
static inline bool is_candidate(const struct container_request *req,
                                const struct place_card *card) {
    return card->healthy && (place_is_whole(req, card) || !card->whole_only) &&
           (req->takes_mps || !card->mps_only) && place_card_serves(req, card);
}

/* Whether the container may take card c of the node. */
static inline bool may_take(const struct place_node *node, uint32_t container, uint32_t c) {
    return !node->allowed || node->allowed[container] >> c & 1;
}
