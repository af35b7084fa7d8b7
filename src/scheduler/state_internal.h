/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between state.c (objects and their life) and holds.c (who holds what). */

#include "scheduler/state.h"

/* The pod gives up its holds and leaves its node. */
void state_pod_detach(struct state_pod *pod);

/* The pod takes over `holds` on the node; what it had before is given up. */
void state_pod_attach(struct state_pod *pod, struct state_node *node, struct state_hold *holds,
                      uint32_t nholds);

/* The watch shows the pod on the node. 0 or -ENOMEM. */
int state_pod_bound(struct state *s, struct state_pod *pod, struct state_node *node,
                    const struct pod *seen, uint64_t now_ms);

/* What place_on_node() is told about a node; borrows it and itself. */
struct state_view {
    struct place_node node;
    struct place_card cards[PLACE_CARDS_MAX]; /* unless the node's own will do */
    uint64_t allowed[GPU_ASKS_MAX];
};

/* Looks at the node for the pod `self` (may be NULL), see state_place(). PLACE_OK, or the reason
 * why a selector keeps the pod off it. */
enum place_reason state_view(struct state *s, struct state_node *node, const struct state_pod *self,
                             bool settled_only, struct state_view *ret);

extern const struct state_selector state_selection; /* by the pod's own annotations */

/* Counts what is free on each card of the node into cards[], leaving out the pod `without` (may be
 * NULL), and with `settled_only` all whose Binding is not certain. When nothing is
 * left out, it also brings the node's `unsettled` and its cards' `overcommitted` up to date. */
void state_count(struct state_node *node, const struct state_pod *without, bool settled_only,
                 struct place_card cards[static PLACE_CARDS_MAX]);
