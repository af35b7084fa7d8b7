/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Figures of a device that are rates: NVML's profiling metrics (GPM, from Hopper on) and the
 * counters of its NVLinks, over the time between two readings. */

#include <stdbool.h>
#include <stdint.h>

#include "gpu/device.h"
#include "gpu/nvml/nvml.h"

/* What is kept of a card, or of a GPU instance, between polls. All 0: nothing yet. */
struct gpu_rates {
    char uuid[GPU_UUID_MAX]; /* of which device the readings are */
    nvmlGpmSample_t older, newer;
    bool sampled;               /* `newer` has a sample */
    uint64_t kib;               /* moved by the links; UINT64_MAX: not known */
    uint64_t kib_us;            /* when that was, by the driver's clock */
    uint64_t read_ns;           /* when all of this was read, CLOCK_MONOTONIC; 0: never */
    struct gpu_rate_figures of; /* up to then */
};

/* Reads the counters of a card anew, unless they were read a moment ago, and puts the rates into
 * *ret: not told until there are two readings, and where the driver does not know them. gi: of
 * this GPU instance of the card, whose device has that UUID; NVML_NO_INSTANCE: of the card. */
void gpu_rates_read(const struct nvml *nvml, nvmlDevice_t card, unsigned int gi, const char *uuid,
                    struct gpu_rates *rates, struct gpu_sample *ret);
