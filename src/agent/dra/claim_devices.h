/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an allocated ResourceClaim has of the devices of this node. No I/O. */

#include <stddef.h>

#include "kube/objects/assignment.h"
#include "kube/objects/resource_claim.h"

struct err;
struct gpu_snapshot;

/* The name of a device in the node's pool: its UUID, so that another card in its place is another
 * device. */
void dra_device_name(const char *uuid, char ret[static DEVICE_NAME_MAX]);

/* The cards, each once: what several results have of one is added up. -EAGAIN: not now, which may
 * pass; -EINVAL: it will not. */
int dra_claim_devices(const struct resource_claim *claim, const char *node,
                      const struct gpu_snapshot *s,
                      struct assigned_device ret[static DEVICE_RESULTS_MAX], size_t *ret_n,
                      struct err *err);
