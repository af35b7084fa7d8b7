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

/* Counts what is free on each card of the node into cards[], leaving out the pod `without` (may be
 * NULL), and with `settled_only` all whose Binding is not certain. When nothing is
 * left out, it also brings the node's `unsettled` and its cards' `overcommitted` up to date. */
void state_count(struct state_node *node, const struct state_pod *without, bool settled_only,
                 struct place_card cards[static PLACE_CARDS_MAX]);
