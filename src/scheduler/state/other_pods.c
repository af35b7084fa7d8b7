/* SPDX-License-Identifier: Apache-2.0 */

/* CPU and memory of nodes, and pods that request only these. kube-scheduler ensures that they fit;
 * placement policies use them to estimate how much of the cards is still usable. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "scheduler/state/state_internal.h"

static bool is_same(struct cpu_memory a, struct cpu_memory b) {
    return a.cpu == b.cpu && a.memory == b.memory && a.exclusive == b.exclusive;
}

int state_node_room(struct state *s, const char *name, struct cpu_memory allocatable) {
    struct state_node *node = state_node_get(s, name);
    if (!node)
        return -ENOMEM;
    if (!is_same(node->room, allocatable))
        state_touch(node);
    node->room = allocatable;
    return 0;
}

static struct state_load *load_new(struct state *s, const char *uid) {
    size_t len = strlen(uid) + 1;
    struct state_load *load = calloc(1, sizeof(*load) + len);
    if (!load)
        return NULL;
    memcpy(load->uid, uid, len);
    HASH_ADD_STR(s->loads, uid, load);
    return hash_added_or_freed(load);
}

int state_load_seen(struct state *s, const struct pod *seen, struct state_node *node) {
    struct state_load *load;
    HASH_FIND_STR(s->loads, seen->uid, load);
    if (!load) {
        if (!(load = load_new(s, seen->uid)))
            return -ENOMEM;
        load->node = node;
        load->created = seen->created;
        load->room = seen->room;
        node->used = state_room_add(node->used, load->room);
        DL_APPEND(node->loads, load);
        load->came = ++node->arrivals;
        state_learn_load(s, load);
        if (node->ncards > 0)
            state_touch(node);
    }
    load->listed = true;
    if (is_same(load->room, seen->room))
        return 0;
    struct state_node *at = load->node; /* a pod stays on its node */
    at->used = state_room_add(state_room_sub(at->used, load->room), seen->room);
    load->room = seen->room;
    if (at->ncards > 0)
        state_touch(at);
    return 0;
}

static void load_free(struct state *s, struct state_load *load) {
    struct state_node *node = load->node;
    node->used = state_room_sub(node->used, load->room);
    if (node->ncards > 0)
        state_touch(node);
    HASH_DEL(s->loads, load);
    DL_DELETE(node->loads, load);
    free(load);
    state_node_drop_if_unused(s, node);
}

void state_load_gone(struct state *s, const char *uid) {
    hash_drop_named(s, s->loads, uid, load_free);
}

void state_load_unlisted(struct state *s) {
    hash_drop_unlisted(s, s->loads, load_free);
}
