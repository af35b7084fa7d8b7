/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the Node's status.capacity shows of all cards together, beside the resources that a device
 * plugin of the agent serves. No I/O. */

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "wire/json.h"

struct gpu_snapshot;
struct shares;

/* The annotation of the Node with the names that an agent wrote, where the configuration decides
 * whether they are shown: others are never removed. */
#define NODE_CAPACITY_OWNED "elasticgpu.io/capacity"

#define NODE_CAPACITY_NAMES 6
#define NODE_CAPACITY_NONE UINT64_MAX /* not present */

struct node_capacity {
    uint64_t amounts[NODE_CAPACITY_NAMES];
    bool owned[NODE_CAPACITY_NAMES];
};

/* As the Node has it. */
void node_capacity_read(struct json node, struct node_capacity *ret);

/* As it should be. */
void node_capacity_want(const struct shares *shares, const struct gpu_snapshot *s,
                        struct node_capacity *ret);

bool node_capacity_differs(const struct node_capacity *have, const struct node_capacity *want);

/* A strategic merge patch of the Node with what differs. */
void node_capacity_patch(const struct node_capacity *have, const struct node_capacity *want,
                         struct buf *ret);
