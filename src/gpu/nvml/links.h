/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Links between the cards of this machine, from NVML. Runs in the NVML child. */

#include <stdint.h>

#include "gpu/device.h"
#include "gpu/nvml/nvml.h"

struct gpu_links {
    uint32_t count;
    struct gpu_connections of[GPU_CARDS_MAX]; /* by index */
};

/* Queries the first `count` cards; links that the driver does not report stay unknown. */
void gpu_links_read(const struct nvml *nvml, uint32_t count, struct gpu_links *ret);
