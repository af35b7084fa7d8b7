/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Limits on the memory of a card for control groups, as drivers from 615 on enforce them
 * (nvmlDeviceSetMemoryLimits_v1). No I/O: the caller names the groups of a process.
 *
 * "misc" is the driver's own accounting: only groups with a limit are charged, from the time of the
 * limit; only the nearest group with a limit counts; a limit below the present use is refused; the
 * address of a group identifies its entry, so that a group created after the end of another may
 * inherit its limit. "dmem" is the kernel's controller: every group and its ancestors are charged
 * from the beginning, the limit of each counts, and any limit is accepted. */

#include "sim/daemon/machine.h"

#define MEMLIMIT_NONE UINT64_MAX /* NVML's value for no limit */
#define MEMLIMIT_DEPTH 24u

/* A control group and its ancestors, nearest first, without the root. Depth 0: unknown, or the root
 * itself. */
struct sim_groups {
    uint32_t depth;
    uint64_t id[MEMLIMIT_DEPTH];
};

struct sim_memory_limits {
    uint64_t soft, hard; /* bytes; MEMLIMIT_NONE */
    uint64_t used;       /* bytes that the group is charged for */
};

/* -EOPNOTSUPP: the driver has no such limits, or the group is the root; -ERANGE: more is used;
 * -ENOMEM. */
int memlimit_set(struct sim_gpu *g, const struct sim_groups *groups, uint64_t soft, uint64_t hard);

/* The limits in force for the group. -EOPNOTSUPP: the driver has no such limits; with "misc" also:
 * neither the group nor an ancestor has one. */
int memlimit_get(struct sim_gpu *g, const struct sim_groups *groups, struct sim_memory_limits *ret);

/* Charges `bytes` of the channel's process to a group. For unknown groups, charges and refuses
 * nothing. -ENOMEM: the limit is reached. */
int memlimit_charge(struct sim_channel *c, const struct sim_groups *groups, uint64_t bytes);

/* Credits `bytes` of the channel, or moves them to a share (`to`, may be NULL). Their allocation is
 * not known: the oldest is taken, so that bytes from before the limit never make room below it. */
void memlimit_release(struct sim_channel *c, uint64_t bytes, struct sim_charge **to);

/* Credits all charges of a list. */
void memlimit_release_all(struct sim_charge **list);

/* The group with that number has been removed. */
void memlimit_group_gone(struct sim_gpu *g, uint64_t id);

/* Calls `fn` for each group with a limit or a charge; 0 for `id`: the group has been removed. */
void memlimit_each(const struct sim_gpu *g,
                   void (*fn)(uint64_t id, const struct sim_memory_limits *limits, void *userdata),
                   void *userdata);

/* With the machine. */
void memlimit_done(struct sim_gpu *g);
