/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* GPU time in the agent: brings slots and the arbiter together, follows what pods ask while they
 * run, and gives the arbiter the driver's figures to check against. */

#include <stdint.h>

#include "agent/shares/shares.h"
#include "share/arbiter.h"

/* Starts the arbiter; slots that were loaded go on as they are. */
int gputime_start(struct shares *s, struct err *err);
void gputime_stop(struct shares *s);

/* Takes in all slots that the arbiter does not have yet. */
void gputime_join(struct shares *s);

/* The terms of a container that is going to start. */
void gputime_terms(struct shares *s, const struct pod *pod, struct slot_grant *g);

/* A pod was seen, perhaps with other annotations: its containers' terms follow. */
void gputime_pod(struct shares *s, const struct pod_entry *e);

/* The snapshot has changed: what the driver saw the containers take since the last. */
void gputime_sample(struct shares *s);

/* What is known of a slot on one of its devices; zeroes where the arbiter does not have it. */
void gputime_view(const struct slot *slot, uint32_t device, struct arbiter_view *ret);
