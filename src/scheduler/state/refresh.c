/* SPDX-License-Identifier: Apache-2.0 */

/* Derived figures of nodes: what is free on their cards, their rank, links and class. */

#include <string.h>
#include <utlist.h>

#include "scheduler/state/state_internal.h"

static int by_name(struct state_node *a, struct state_node *b) {
    return strcmp(a->name, b->name);
}

static void rank_nodes(struct state *s) {
    uint32_t rank = 0;
    HASH_SORT(s->nodes, by_name);
    for (struct state_node *node = s->nodes; node; node = node->hh.next)
        if (node->head->rank != rank++) {
            node->head->rank = rank - 1;
            node->version = ++s->version;
        }
    s->ranks_dirty = false;
}

void state_refresh(struct state *s, struct state_node *node) {
    if (s->ranks_dirty)
        rank_nodes(s);
    if (!node->head->dirty)
        return;
    state_links_refresh(node);
    state_count(node, NULL, false, node->place);
    state_learn_node(s, node, false);
    state_equivalence_refresh(node);
    node->version = ++s->version;
    node->head->dirty = false;
    DL_DELETE2(s->dirty, node, dirty_prev, dirty_next);
}

void state_refresh_all(struct state *s) {
    if (s->ranks_dirty)
        rank_nodes(s);
    while (s->dirty)
        state_refresh(s, s->dirty);
}
