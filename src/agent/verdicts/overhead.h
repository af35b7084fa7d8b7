/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Estimates the driver's overhead for a container: memory beyond its ledger's bookings, such as
 * modules, heaps and rounding of small blocks. Pure arithmetic on samples.
 *
 * The ledger and NVML cannot be read at the same instant. So a sample counts only if the ledger was
 * unchanged during the poll, and the result is the median of the last three: a single wrong sample
 * (a process that is credited but not yet torn down, a booking whose allocation is not yet made)
 * has no effect, and a lasting change takes effect with the second sample. */

#include <stdbool.h>
#include <stdint.h>

/* The driver gives memory in blocks of this size; less is noise. */
#define OVERHEAD_GRAIN ((uint64_t) 2 << 20)

struct overhead {
    uint64_t samples[3];
    uint8_t next, count;
    uint64_t before_used, before_operation; /* of the ledger when the driver's poll began */
    bool armed;
    uint64_t bytes; /* the result, a multiple of OVERHEAD_GRAIN */
};

/* Before a poll: the ledger's figure. */
void overhead_begin(struct overhead *r, uint64_t used, uint64_t operation);

/* After the poll: the ledger's figure and the driver's. Returns whether the new sample differs from
 * the result, so that another should follow soon. May change `r->bytes`. */
bool overhead_end(struct overhead *r, uint64_t used, uint64_t operation, uint64_t driver,
                  uint32_t processes);
