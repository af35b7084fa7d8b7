/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PROBE_GPUS_MAX 64

struct probe_gpu {
    char uuid[48];
    uint64_t memory_bytes;
    uint64_t context_bytes;  /* what a context costs, 0 where that could not be measured */
    uint64_t unlisted_bytes; /* in use for no process that the driver lists */
    bool instance;           /* of a divided card (MIG) */
};

/* Lists the GPUs of the driver in NVML's order, then the instances of divided ones, and measures
 * the memory of a context on each by creating one. Runs in a child process, so that the caller
 * loads nothing of the driver. Returns their number; -ENODEV: there is no driver, or it has no GPU.
 */
int probe_gpus(struct probe_gpu ret[static PROBE_GPUS_MAX], struct err *err);
