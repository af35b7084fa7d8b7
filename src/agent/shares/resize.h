/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shares that grow while their container runs: the scheduler has signed more for it. */

struct pod_entry;
struct shares;

/* A pod was seen, perhaps with another assignment: its containers get what they have more by it, if
 * it is the scheduler's and there is room. They never get less. */
void resize_pod(struct shares *s, const struct pod_entry *e);
