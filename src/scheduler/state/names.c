/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes by name. Each filter names every node of the cluster, and each link of a chain of the hash
 * table is a cache miss; so where a name was found last is kept beside it, in little memory. */

#include <string.h>

#include "scheduler/state/state_internal.h"

static uint64_t hash_of(const char *name, size_t len) {
    uint64_t hash = len, word;
    for (; len >= sizeof(word); len -= sizeof(word), name += sizeof(word)) {
        memcpy(&word, name, sizeof(word));
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    word = 0;
    memcpy(&word, name, len);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

/* Places where a name may be kept: one line of the cache has that many. */
#define SET 4

/* The first of them. */
static struct state_name *places_of(struct state *s, uint64_t hash) {
    return &s->names[hash % STATE_NAMES & ~(uint64_t) (SET - 1)];
}

uint64_t state_name_soon(struct state *s, const char *name) {
    uint64_t hash = hash_of(name, strlen(name));
    __builtin_prefetch(places_of(s, hash));
    return hash;
}

void state_node_soon(struct state *s, uint64_t hash) {
    const struct state_name *at = places_of(s, hash);
    for (int i = 0; i < SET; i++)
        if (at[i].hash == hash && at[i].node)
            __builtin_prefetch(at[i].node);
}

struct state_node *state_node_find(struct state *s, const char *name) {
    return state_node_at(s, name, hash_of(name, strlen(name)));
}

struct state_node *state_node_at(struct state *s, const char *name, uint64_t hash) {
    struct state_name *at = places_of(s, hash);
    struct state_node *node;
    for (int i = 0; i < SET; i++)
        if (at[i].hash == hash && at[i].node && strcmp(at[i].node->name, name) == 0)
            return at[i].node;
    HASH_FIND_STR(s->nodes, name, node);
    if (node) {
        memmove(at + 1, at, (SET - 1) * sizeof(*at));
        at[0] = (struct state_name){hash, node};
    }
    return node;
}

void state_name_forget(struct state *s, const struct state_node *node) {
    struct state_name *at = places_of(s, hash_of(node->name, strlen(node->name)));
    for (int i = 0; i < SET; i++)
        if (at[i].node == node)
            at[i] = (struct state_name){0};
}
