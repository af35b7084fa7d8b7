/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an allocated ResourceClaim has of the devices of this node. No I/O. */

#include <stdbool.h>
#include <stddef.h>

#include "kube/objects/assignment.h"
#include "kube/objects/resource_claim.h"

struct err;
struct gpu_device;
struct gpu_snapshot;

/* The devices whose names are not their UUIDs, and how devices are given out. */
struct dra_source {
    /* A device that is made for claims. -ENOENT: the name is no such device's; -EAGAIN: it is not
     * there yet. */
    int (*make)(const char *device, const struct gpu_device **ret, void *userdata, struct err *err);
    /* Whether one claim gets all of the device, so that its allocation names no amounts. */
    bool (*is_whole)(const struct gpu_device *d, void *userdata);
    void *userdata;
};

/* The name of a device in the node's pool: its UUID, so that another card in its place is another
 * device. */
void dra_device_name(const char *uuid, char ret[static DEVICE_NAME_MAX]);

/* The devices, each once, and the first request of each: what several results have of one is added
 * up. -EAGAIN: not now, which may pass; -EINVAL: it will not. */
int dra_claim_devices(const struct resource_claim *claim, const char *node,
                      const struct gpu_snapshot *s, const struct dra_source *source,
                      struct assigned_device ret[static DEVICE_RESULTS_MAX],
                      const char *ret_requests[static DEVICE_RESULTS_MAX], size_t *ret_n,
                      struct err *err);
