/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory beyond the physical part of the share: managed memory with the host as its preferred
 * location, which the device accesses. None of it migrates to the card, so the limit of the
 * physical part is exact, at the price of speed. */

#include "intercept/memory/charge.h"

/* Allocates for `where` off the card, with the flags of cuMemAllocManaged; `managed`: the program
 * has requested managed memory. CUDA_ERROR_OUT_OF_MEMORY where the share has no such memory, or no
 * room for it. */
CUresult spill_allocate(const struct charge *where, CUdeviceptr *dptr, size_t bytes,
                        unsigned int flags, bool managed);
