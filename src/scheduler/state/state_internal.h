/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files of this directory call of each other. None calls one that is later in this list:
 * names.c, lookup.c and namespace_usage.c; equivalence.c and learn.c; node.c; cpus.c, links.c,
 * other_pods.c and reserved.c; allocation.c; refresh.c; placing.c; objects.c. */

#include "scheduler/state/state.h"

#define STATE_DRAWS_MAX 64 /* of one pod on one node */

/* node.c: finds the node or makes one; NULL: out of memory. */
struct state_node *state_node_get(struct state *s, const char *name);

/* What is free on the node's cards has changed: state_touch() and state_unproject(). */
void state_node_changed(struct state_node *node);

/* Removes a node that no object refers to any more; state_node_free() does not check that. */
void state_node_drop_if_unused(struct state *s, struct state_node *node);
void state_node_free(struct state *s, struct state_node *node);

/* names.c: gives the node, which has its name, a head, or returns -ENOMEM. */
int state_head_new(struct state *s, struct state_node *node);
void state_head_free(struct state *s, struct state_head *head);
void state_heads_free(struct state *s); /* of all nodes */

/* lookup.c: sum and, never below zero, difference; the node as it is, with all that is counted on
 * it. */
struct cpu_memory state_room_add(struct cpu_memory a, struct cpu_memory b);
struct cpu_memory state_room_sub(struct cpu_memory a, struct cpu_memory b);
struct place_node state_place_node(const struct state_node *node);

/* equivalence.c: puts the node into its equivalence class, and takes it out. */
void state_equivalence_refresh(struct state_node *node);
void state_equivalence_leave(struct state_node *node);

/* Whether its Binding is certain. */
static inline bool state_pod_is_settled(const struct state_pod *pod) {
    return pod->stage == POD_BOUND || pod->stage == POD_AWAITED;
}

/* links.c: takes over how a card is connected, and makes the node's topology of that. */
void state_links_seen(struct state_card *card, const struct gpu_object *gpu);
void state_links_refresh(struct state_node *node);

/* cpus.c: writes for each card which containers get their exclusive CPUs where it is, without what
 * the pod `without` (may be NULL) has of them. */
void state_count_cpus(const struct state_node *node, const struct state_pod *without,
                      struct place_card cards[static PLACE_CARDS_MAX]);

/* other_pods.c */
int state_load_seen(struct state *s, const struct pod *seen, struct state_node *node);
void state_load_gone(struct state *s, const char *uid);
void state_load_unlisted(struct state *s);

/* placing.c: forgets the namespaces that were not shown. */
void state_namespaces_unlisted(struct state *s);

/* learn.c: what the policies learn from. */
void state_learn_arrival(struct state *s, const struct state_pod *pod);
void state_learn_load(struct state *s, const struct state_load *load);
void state_learn_start(struct state *s, struct state_pod *pod);
void state_learn_end(struct state *s, struct state_pod *pod);
void state_learn_node(struct state *s, struct state_node *node, bool gone);

/* allocation.c: takes memory that is in use and of no container from what is free. No pod is short
 * of its own for it. */
void state_take_unattributed(const struct state_card *card, struct place_amount *free);

/* reserved.c: takes what is held for others than `without` from what is free; without `shared` not
 * what has a sharer. */
void state_count_reserved(const struct state_node *node, const struct state_pod *without,
                          bool settled_only, bool shared,
                          struct place_card cards[static PLACE_CARDS_MAX]);

/* All that is reserved of cards[card] of its node, also what was taken of it. */
struct place_amount state_reserved_total(const struct state_reserved *reserved, uint32_t card);

/* Whether the pod draws on reserved capacity of that node, and the amounts by card. */
bool state_draws_here(const struct state *s, const struct state_pod *pod,
                      const struct state_node *node);
uint32_t state_list_draws(const struct state_pod *pod, const struct state_node *node,
                          bool settled_only, struct place_draw draws[static STATE_DRAWS_MAX]);
void state_draws_drop(struct state_pod *pod);

/* lookup.c: what was given to the container of the pod, NULL: to all; NULL: nothing. */
struct state_draw *state_draw_find(const struct state_pod *pod, const char *container);

/* The id that the container draws on: the pod's UID, where it was given none. */
const char *state_draw_id(const struct state_pod *pod, const char *container);

/* allocation.c: the pod gives up its holds and leaves its node. */
void state_pod_detach(struct state_pod *pod);

/* The pod takes over `allocations` on the node; what it had before is given up. */
void state_pod_attach(struct state_pod *pod, struct state_node *node,
                      struct state_allocation *allocations, uint32_t nallocations);

/* The watch shows the pod on the node. 0 or -ENOMEM. */
int state_pod_bound(struct state *s, struct state_pod *pod, struct state_node *node,
                    const struct pod *seen, uint64_t now_ms);

/* The input of place_on_node() for a node; points into it. */
struct state_view {
    struct place_node node;
    struct place_card cards[PLACE_CARDS_MAX]; /* unless the node's own will do */
    uint64_t allowed[GPU_CONTAINERS_MAX];
    struct place_draw draws[STATE_DRAWS_MAX];
};

/* Looks at the node for the pod `self` (may be NULL), see state_place(). PLACE_OK, or the reason
 * why its agent or a selector keeps the pod off it. */
enum place_reason state_view(struct state *s, struct state_node *node, const struct state_pod *self,
                             bool settled_only, struct state_view *ret);

extern const struct state_selector state_selection; /* by the pod's own annotations */

/* Computes the free amounts of each card into cards[], without the pod `without` (may be NULL), and
 * with `settled_only` without all pods whose Binding is not certain. If no pod is left out, it also
 * updates the node's `unsettled` and its cards' `overcommitted`. */
void state_count(struct state_node *node, const struct state_pod *without, bool settled_only,
                 struct place_card cards[static PLACE_CARDS_MAX]);
