/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes: their begin and end, and the marks of their changes. */

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "scheduler/state/state_internal.h"

struct state_node *state_node_get(struct state *s, const char *name) {
    struct state_node *node = state_node_find(s, name);
    if (node)
        return node;
    size_t len = strlen(name);
    if (len >= sizeof(node->name) || !(node = calloc(1, sizeof(*node))))
        return NULL;
    memcpy(node->name, name, len + 1);
    node->state = s;
    HASH_ADD_STR(s->nodes, name, node);
    if (hash_added(node) && state_head_new(s, node) == 0) {
        s->ranks_dirty = true;
        return node;
    }
    if (hash_added(node))
        HASH_DEL(s->nodes, node);
    free(node);
    return NULL;
}

void state_touch(struct state_node *node) {
    if (node->head->dirty)
        return;
    node->head->dirty = true;
    DL_APPEND2(node->state->dirty, node, dirty_prev, dirty_next);
}

void state_unproject(struct state_node *node) {
    if (node->unprojected)
        return;
    node->unprojected = true;
    node->state->nunprojected++;
    DL_APPEND2(node->state->unprojected, node, behind_prev, behind_next);
}

void state_projected(struct state_node *node) {
    if (!node->unprojected)
        return;
    assert(node->state->nunprojected > 0);
    node->unprojected = false;
    node->state->nunprojected--;
    DL_DELETE2(node->state->unprojected, node, behind_prev, behind_next);
}

void state_node_changed(struct state_node *node) {
    state_touch(node);
    state_unproject(node);
}

/* No other object refers to it any more. */
void state_node_free(struct state *s, struct state_node *node) {
    state_equivalence_leave(node);
    state_projected(node);
    if (node->head->dirty)
        DL_DELETE2(s->dirty, node, dirty_prev, dirty_next);
    HASH_DEL(s->nodes, node);
    state_head_free(s, node->head);
    free(node->topology);
    free(node);
}

void state_node_drop_if_unused(struct state *s, struct state_node *node) {
    if (node->exists || node->ncards > 0 || node->apart || node->pods || node->reserved ||
        node->loads)
        return;
    state_learn_node(s, node, true);
    state_node_free(s, node);
}
