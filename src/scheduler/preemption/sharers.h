/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods that use the same ResourceClaims. What a claim has becomes free when the last of them has
 * ended, so that they are victims together or not at all. */

#include "scheduler/state/state.h"

/* Puts the pods of the node into rings (`preemption.next_sharer`), each with those that share
 * claims with it, directly or not, and itself; and names the one of the ring that came first
 * (`preemption.lead`), and one of its pods in the reserved capacity of each claim (`sharer`). That
 * is NULL where a user is unknown or not bound to the node: what the claim has does not become free
 * then, and its other users are in the ring nevertheless. Returns how many users of claims it
 * looked at. */
uint32_t sharers_find(struct state *s, struct state_node *node);
