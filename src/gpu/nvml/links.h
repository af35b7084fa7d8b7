/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How the cards of this machine are connected, as NVML tells it. Runs in the NVML child. */

#include <stdint.h>

#include "gpu/device.h"
#include "gpu/nvml/nvml.h"

struct gpu_links {
    uint32_t count;
    struct gpu_connections of[GPU_CARDS_MAX]; /* by index */
};

/* Asks about the first `count` cards; what the driver does not tell stays unknown. */
void gpu_links_read(const struct nvml *nvml, uint32_t count, struct gpu_links *ret);
