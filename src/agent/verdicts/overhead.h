/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the driver holds for a container beyond what its ledger has booked: modules, heaps, the
 * rounding of small blocks. Pure arithmetic on samples.
 *
 * The two readings are never of one moment. So a sample counts only when the ledger did not move
 * while the driver was asked, and the result is the median of the last three: one sample that lies
 * (a process that has been credited but not yet torn down, an allocation that is reserved but not
 * yet made) moves nothing, a change that stays arrives with the second sample. */

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

/* The driver is going to be asked; the ledger stands at this. */
void overhead_begin(struct overhead *r, uint64_t used, uint64_t operation);

/* The driver has answered; the ledger stands at this now. Returns whether a sample was taken that
 * differs from the result: then another should come soon. `r->bytes` may have changed. */
bool overhead_end(struct overhead *r, uint64_t used, uint64_t operation, uint64_t driver,
                  uint32_t processes);
