/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How MIG instances are offered, in the names of NVIDIA's device plugin. */

#include <stddef.h>

#define MIG_RESOURCE_PREFIX "nvidia.com/mig-" /* of resources of whole MIG instances */

enum mig_strategy {
    MIG_STRATEGY_NONE,   /* not at all: nvidia.com/gpu is of whole cards */
    MIG_STRATEGY_SINGLE, /* as nvidia.com/gpu: all cards are in MIG mode, all instances equal */
    MIG_STRATEGY_MIXED,  /* as nvidia.com/mig-PROFILE */
    MIG_STRATEGIES,
};

/* "none", "single" or "mixed". */
const char *mig_strategy_name(enum mig_strategy strategy);

/* The strategy of that name, or -EINVAL. */
int mig_strategy_parse(const char *name, enum mig_strategy *ret);

/* The resource of the instances of a profile, with a dot for the plus sign, which names of
 * resources do not have: "nvidia.com/mig-1g.10gb.me" of "1g.10gb+me". Cut to `size` bytes. */
void mig_resource_name(const char *profile, char *ret, size_t size);
