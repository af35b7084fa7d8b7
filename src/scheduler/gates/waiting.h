/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Pods that wait for cards. */

#include "scheduler/gates/quota.h"
#include "scheduler/state/state.h"

/* Whether it is shown by the watch and holds nothing for certain. */
bool pod_waits(const struct state_pod *pod);

/* How many cards its request amounts to, by compute or by memory, whichever is more; memory by the
 * smallest card of the cluster. 0 for a request that is malformed. */
double pod_wanted_cards(struct quotas *quotas, const struct state_pod *pod, uint64_t now_ms);
