/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whole MIG instances as extended resources, by the names and rules of NVIDIA's device plugin. With
 * strategy `mixed` each profile is a resource, nvidia.com/mig-<profile>. With `single` the
 * instances are nvidia.com/gpu, on a node whose cards are all divided into instances of one
 * profile. IDs are UUIDs. An instance whose compute instance is only a part of the GPU instance
 * ("1c.3g.40gb") is in no resource. */

#include <stdbool.h>

#include "agent/backends/resource.h"
#include "gpu/device.h"
#include "model/mig_strategy.h"

struct err;

/* A resource of instances. */
struct mig_row {
    struct resource resource; /* its data is this row */
    enum mig_strategy strategy;
    char profile[GPU_PROFILE_MAX]; /* of its instances; "": every one (MIG_STRATEGY_SINGLE) */
    char name[48], socket[RESOURCE_SOCKET_MAX + 1];
};

/* Fills the row of the instance's profile. Its texts point into it: it must not move. */
void mig_row_make(struct mig_row *row, enum mig_strategy strategy, const char *profile);

/* Whether the instance belongs to a resource of some row. */
bool mig_is_offered(const struct gpu_device *d);

/* Whether the strategy `single` can serve the node. -EINVAL: `why` has what is in its way. A node
 * without a divided card has no instances, which is no error. */
int mig_check_single(const struct gpu_snapshot *s, struct err *why);
