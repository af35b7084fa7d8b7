/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How MIG instances are offered, in the names of NVIDIA's device plugin. */
#define MIG_RESOURCE_PREFIX "nvidia.com/mig-" /* of resources of whole MIG instances */

enum mig_strategy {
    MIG_STRATEGY_NONE,   /* not at all: nvidia.com/gpu is of whole cards */
    MIG_STRATEGY_SINGLE, /* as nvidia.com/gpu: all cards are in MIG mode, all instances alike */
    MIG_STRATEGY_MIXED,  /* as nvidia.com/mig-PROFILE */
    MIG_STRATEGIES,
};

/* "none", "single" or "mixed". */
const char *mig_strategy_name(enum mig_strategy strategy);

/* The strategy of that name, or -EINVAL. */
int mig_strategy_parse(const char *name, enum mig_strategy *ret);
