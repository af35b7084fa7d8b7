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

/* Links of which nothing is known. */
void gpu_links_init(struct gpu_links *ret);

/* Queries the first `count` cards; links that the driver does not report stay unknown. `reading` is
 * called before calls that concern a card. */
void gpu_links_read(const struct nvml *nvml, uint32_t count,
                    void (*reading)(uint32_t index, void *userdata), void *userdata,
                    struct gpu_links *ret);
