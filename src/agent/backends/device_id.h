/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The IDs by which kubelet knows whole devices and replicas: "<UUID>" and "<UUID>::<number>", as
 * those of NVIDIA's device plugin. */

#include <stdbool.h>
#include <stdint.h>

#include "agent/backends/backend.h"
#include "gpu/device.h"

struct device_id {
    char uuid[GPU_UUID_MAX];
    bool is_replica;
    uint64_t replica; /* 0 for an ID without one; UINT64_MAX: it is no number */
};

void device_id_put(const char *uuid, bool is_replica, uint32_t replica,
                   char ret[static BACKEND_ID_SIZE]);
void device_id_parse(const char *text, struct device_id *ret);

/* The device of an ID; NULL: there is none. */
const struct gpu_device *device_id_find(const struct gpu_snapshot *s, const char *text);
