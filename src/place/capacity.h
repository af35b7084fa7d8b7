/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How many nodes of one kind pods need, with the search of the scheduler: each pod in its turn goes
 * to the best node that has room, and a node is added where none has. Pure, as place.h. */

#include <stdbool.h>
#include <stdint.h>

#include "place/place.h"

struct capacity_pod {
    const struct gpu_request *request;
    struct place_policy policy;
    enum topology_policy topology;
    bool numa_bind;
};

struct capacity_nodes {
    struct place_node *list;  /* each has its cards in `cards` */
    struct place_card *cards; /* of all nodes, in their order; all three are freed with free() */
    uint32_t n, ncards;
    /* The cards of list[node] that pods[pod] may take, bit i: card i; of an added node, of which
     * all are equal, `node` is UINT32_MAX. */
    uint64_t (*allow)(void *self, uint32_t pod, uint32_t node);
    void *self;
};

/* Takes from the nodes what the pods get, which are tried in their order. `kind`: a node with
 * nothing allocated, of which copies are added; NULL: none is. Its `allowed` and draws are not
 * used. By pod *ret_reasons is PLACE_OK, or why neither the last node tried nor a new one takes it.
 * `cut_short`, if not NULL: set where the search for a pod was cut short, so that fewer nodes may
 * do. 0 or -ENOMEM. */
int capacity_pack(const struct capacity_pod *pods, uint32_t npods, struct capacity_nodes *nodes,
                  const struct place_node *kind, enum place_reason *ret_reasons, bool *cut_short);

/* What of the nodes is free: idle cards, and percent and bytes of all healthy cards. */
struct capacity_left {
    uint64_t idle, core, memory;
};
struct capacity_left capacity_left(const struct capacity_nodes *nodes);
