/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods that use the same ResourceClaims. What a claim has becomes free when the last of them has
 * ended, so that they are victims together or not at all. */

#include "scheduler/state/state.h"

/* Puts the pods of the node into rings (`preemption.next_sharer`), each with those that share
 * claims with it, directly or not, and itself; and names one of them in the reserved capacity of
 * each claim
 * (`sharer`). It is NULL where a user is unknown or not bound to the node: what the claim has does
 * not become free then, and its other users are in the ring nevertheless. */
void sharers_find(struct state *s, struct state_node *node);

/* Whether the pods are in one ring. */
bool sharers_are(const struct state_pod *a, const struct state_pod *b);
