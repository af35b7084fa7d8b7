/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which slot a process belongs to, by its control group. */

#include <stdint.h>

struct cgroup_id;
struct shares;
struct slot;

/* The slot with the share of the container that the process belongs to, or NULL. */
struct slot *slot_of_process(struct shares *s, uint32_t pid);

/* The same for a process of that control group. */
struct slot *slot_of_group(struct shares *s, const struct cgroup_id *id);
