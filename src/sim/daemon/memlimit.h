/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Limits on the memory of a card for control groups, as drivers from 615 on keep them
 * (nvmlDeviceSetMemoryLimits_v1). No I/O: the caller says which groups a process is in.
 *
 * "misc" are the driver's own books: only groups with a limit are charged, from then on; the
 * nearest group with a limit counts alone; a limit below the present use is refused; an entry is
 * known by the address of its group, so that a group which is made after the end of another may
 * find the limit of that one. "dmem" is the kernel's controller: every group and its ancestors are
 * charged from the beginning, the limit of each counts, and any limit is accepted. */

#include "sim/daemon/machine.h"

#define MEMLIMIT_NONE UINT64_MAX /* NVML's word for no limit */
#define MEMLIMIT_DEPTH 24u

/* A control group and its ancestors, nearest first, without the root. None: it is not known, or
 * the root itself. */
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

/* What counts for the group. -EOPNOTSUPP: the driver has no such limits; with "misc" also: neither
 * the group nor an ancestor has one. */
int memlimit_get(struct sim_gpu *g, const struct sim_groups *groups, struct sim_memory_limits *ret);

/* `bytes` that the channel's process takes are charged to a group. Of groups that are not known
 * nothing is charged and nothing is refused. -ENOMEM: the limit is reached. */
int memlimit_charge(struct sim_channel *c, const struct sim_groups *groups, uint64_t bytes);

/* `bytes` of the channel's are given back, or become those of a share (`to`, may be NULL). Which
 * allocation they were is not known: the oldest is taken, so that what was there before the limit
 * never makes room below it. */
void memlimit_release(struct sim_channel *c, uint64_t bytes, struct sim_charge **to);

/* All charges of a list. */
void memlimit_release_all(struct sim_charge **list);

/* No group with that number is there any more. */
void memlimit_group_gone(struct sim_gpu *g, uint64_t id);

/* Calls `fn` with each group that has a limit or is charged; 0 for `id`: the group is gone. */
void memlimit_each(const struct sim_gpu *g,
                   void (*fn)(uint64_t id, const struct sim_memory_limits *limits, void *userdata),
                   void *userdata);

/* With the machine. */
void memlimit_done(struct sim_gpu *g);
