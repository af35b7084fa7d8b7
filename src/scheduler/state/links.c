/* SPDX-License-Identifier: Apache-2.0 */

/* The links between the cards of a node, from its GPU objects. */

#include <stdlib.h>
#include <string.h>

#include "place/topology.h"
#include "scheduler/state/state_internal.h"

void state_links_seen(struct state_card *card, const struct gpu_object *gpu) {
    if (card->numa == gpu->numa && card->nlinks == gpu->nlinks &&
        memcmp(card->links, gpu->links, sizeof(card->links)) == 0)
        return;
    card->numa = gpu->numa;
    card->nlinks = gpu->nlinks;
    memcpy(card->links, gpu->links, sizeof(card->links));
    if (card->node) {
        card->node->relinked = true;
        state_touch(card->node);
    }
}

#define EQUAL_NODES_MAX 64

/* The link that both ends know of, or the worse one where they differ for a moment. */
static uint8_t link_between(const struct state_card *a, const struct state_card *b) {
    uint8_t one = b->index < a->nlinks ? a->links[b->index] : LINK_UNKNOWN;
    uint8_t other = a->index < b->nlinks ? b->links[a->index] : LINK_UNKNOWN;
    return one < other ? one : other;
}

static bool knows_links(const struct state_node *node) {
    for (uint32_t i = 0; i < node->ncards; i++)
        if (node->cards[i]->nlinks > 0)
            return true;
    return false;
}

/* Most machines of a cluster have equal links, and for a machine of 16 cards the work is
 * milliseconds. */
static bool copy_finished(const struct state *s, struct place_topology *t) {
    uint32_t seen = 0;
    for (const struct state_node *n = s->nodes; n && seen < EQUAL_NODES_MAX; n = n->hh.next) {
        const struct place_topology *other = n->topology;
        if (!other)
            continue;
        seen++;
        if (other->ncards == t->ncards &&
            memcmp(other->links, t->links, (size_t) t->ncards * t->ncards) == 0) {
            memcpy(t->best, other->best, sizeof(t->best));
            return true;
        }
    }
    return false;
}

void state_links_refresh(struct state_node *node) {
    if (!node->relinked)
        return;
    node->relinked = false;
    free(node->topology);
    node->topology = NULL;
    uint32_t n = node->ncards;
    if (n < 2 || !knows_links(node))
        return;
    struct place_topology *t = calloc(1, topology_size(n));
    if (!t)
        return; /* links are optional; cards are placed without them */
    t->ncards = n;
    for (uint32_t a = 0; a < n; a++) {
        t->numa[a] = node->cards[a]->numa;
        for (uint32_t b = 0; b < n; b++)
            t->links[a * n + b] =
                a == b ? LINK_UNKNOWN : link_between(node->cards[a], node->cards[b]);
    }
    if (!copy_finished(node->state, t))
        topology_finish(t);
    node->topology = t;
}
