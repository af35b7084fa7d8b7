/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes by name. Each filter names every node of the cluster, and each link of a chain in the hash
 * table is a cache miss. So a compact cache has the last position of a name and the fields that
 * filter reads (struct state_head). */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler/state/state_internal.h"

static uint64_t mix_hash(uint64_t hash, const char *word) {
    uint64_t more;
    memcpy(&more, word, sizeof(more));
    hash = (hash ^ more) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t hash_of(const char *name, size_t len) {
    char word[sizeof(uint64_t)] = "";
    uint64_t hash = len;
    size_t at = 0;
    for (; at + sizeof(word) <= len; at += sizeof(word))
        hash = mix_hash(hash, name + at);
    if (len >= sizeof(word))
        return mix_hash(hash, name + len - sizeof(word)); /* some of it again, which does no harm */
    memcpy(word, name, len);
    return mix_hash(hash, word);
}

/* Places where a name may be kept: one line of the cache has that many. */
#define SET 4

/* The first of them. The high bits of a product depend on all bits of the factors: names often
 * differ in their last letters alone. */
static struct state_name *places_of(struct state *s, uint64_t hash) {
    return &s->names[(hash >> 32) * STATE_NAMES >> 32 & ~(uint64_t) (SET - 1)];
}

uint64_t state_name_soon(struct state *s, const char *name, size_t len) {
    uint64_t hash = hash_of(name, len);
    __builtin_prefetch(places_of(s, hash));
    return hash;
}

void state_head_soon(struct state *s, uint64_t hash) {
    const struct state_name *at = places_of(s, hash);
    for (int i = 0; i < SET; i++)
        if (at[i].hash == hash)
            __builtin_prefetch(at[i].head);
}

static bool is_named(const struct state_head *head, const char *name, size_t len) {
    const size_t part = sizeof(head->name);
    if (head->name_len != len)
        return false;
    return len <= part ? memcmp(head->name, name, len) == 0
                       : memcmp(head->node->name, name, len) == 0;
}

struct state_node *state_node_find(struct state *s, const char *name) {
    size_t len = strlen(name);
    const struct state_head *head = state_head_at(s, name, len, hash_of(name, len));
    return head ? head->node : NULL;
}

struct state_head *state_head_at(struct state *s, const char *name, size_t len, uint64_t hash) {
    struct state_name *at = places_of(s, hash);
    struct state_node *node;
    for (int i = 0; i < SET; i++)
        if (at[i].hash == hash && at[i].head && is_named(at[i].head, name, len))
            return at[i].head;
    HASH_FIND_STR(s->nodes, name, node);
    if (!node)
        return NULL;
    memmove(at + 1, at, (SET - 1) * sizeof(*at));
    at[0] = (struct state_name){hash, node->head};
    return node->head;
}

/* ---- heads ---- */

/* A block with an unused head; NULL: out of memory. */
static struct state_heads *block_with_room(struct state *s) {
    struct state_heads *heads = s->heads;
    while (heads && heads->used == STATE_HEADS)
        heads = heads->next;
    if (heads || !(heads = aligned_alloc(CACHE_LINE, sizeof(*heads))))
        return heads;
    memset(heads, 0, sizeof(*heads));
    heads->next = s->heads;
    return s->heads = heads;
}

int state_head_new(struct state *s, struct state_node *node) {
    struct state_heads *heads = block_with_room(s);
    struct state_head *head;
    if (!heads)
        return -ENOMEM;
    for (head = heads->of; head->node;)
        head++;
    heads->used++;
    size_t len = strlen(node->name);
    *head = (struct state_head){.node = node, .name_len = (uint8_t) len};
    memcpy(head->name, node->name, len < sizeof(head->name) ? len : sizeof(head->name));
    node->head = head;
    return 0;
}

void state_head_free(struct state *s, struct state_head *head) {
    struct state_name *at = places_of(s, hash_of(head->node->name, head->name_len));
    for (int i = 0; i < SET; i++)
        if (at[i].head == head)
            at[i] = (struct state_name){0};
    head->node = NULL;
    for (struct state_heads *heads = s->heads; heads; heads = heads->next)
        heads->used -= head >= heads->of && head < heads->of + STATE_HEADS;
}

void state_heads_free(struct state *s) {
    struct state_heads *heads, *next;
    for (heads = s->heads; heads; heads = next) {
        next = heads->next;
        free(heads);
    }
}
