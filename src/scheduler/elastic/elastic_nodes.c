/* SPDX-License-Identifier: Apache-2.0 */

/* The labels of nodes: where an ElasticGPU may be (nodeAffinity), and where those of a class may be
 * made (allowedTopologies). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "scheduler/elastic/elastic_internal.h"

struct elastic_node {
    UT_hash_handle hh;
    char *labels;
    char name[];
};

static struct elastic_node *find_node(const struct elastic *e, const char *name) {
    struct elastic_node *node;
    HASH_FIND_STR(e->nodes, name, node);
    return node;
}

static struct elastic_node *get_node(struct elastic *e, const char *name) {
    struct elastic_node *node = find_node(e, name);
    size_t len = strlen(name) + 1;
    if (node || !(node = calloc(1, sizeof(*node) + len)))
        return node;
    memcpy(node->name, name, len);
    HASH_ADD_STR(e->nodes, name, node);
    return hash_added_or_freed(node);
}

static void free_node(struct elastic *e, struct elastic_node *node) {
    HASH_DEL(e->nodes, node);
    free(node->labels);
    free(node);
}

int elastic_node(struct elastic *e, const char *name, struct json labels) {
    _cleanup_free_ char *text = NULL;
    struct elastic_node *node = find_node(e, name);
    struct state_node *seen = state_node_find(e->state, name);
    if (labels_read(labels, &text) < 0)
        return -ENOMEM;
    if (node ? text && strcmp(node->labels, text) == 0 : !text)
        return 0;
    if (seen)
        state_touch(seen);
    if (!text) {
        free_node(e, node);
        return 0;
    }
    if (!node && !(node = get_node(e, name)))
        return -ENOMEM;
    free(node->labels);
    node->labels = take_ptr(text);
    return 0;
}

void elastic_nodes_end(struct elastic *e) {
    struct elastic_node *node, *next;
    HASH_ITER(hh, e->nodes, node, next) {
        const struct state_node *seen = state_node_find(e->state, node->name);
        if (!seen || !seen->exists)
            free_node(e, node);
    }
}

void elastic_nodes_drop(struct elastic *e) {
    hash_drop_all(e, e->nodes, free_node);
}

bool elastic_is_on(const struct elastic *e, const struct node_selector *among,
                   const struct state_node *node) {
    const struct elastic_node *known = among->n > 0 ? find_node(e, node->name) : NULL;
    return node_selector_holds(among, known ? known->labels : NULL, node->name);
}

bool elastic_may_be_on(const struct elastic *e, const struct egpu_claim *claim,
                       const struct state_node *node) {
    const struct egpu_class *class = claims_class_of(e->claims, claim);
    return !class || elastic_is_on(e, &class->topologies, node);
}
