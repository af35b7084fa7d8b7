/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* More memory than the card has for the container: what does not fit is managed memory that the
 * driver is told to keep in the host's memory, where the device reaches it. None of it moves to the
 * card, so the bound on what is there holds exactly, at the price of speed. */

#include "intercept/memory/charge.h"

/* Allocates for `where` off the card, with the flags of cuMemAllocManaged; `managed`: the program
 * has requested managed memory. CUDA_ERROR_OUT_OF_MEMORY where the share has no such memory, or no
 * room for it. */
CUresult spill_allocate(const struct charge *where, CUdeviceptr *dptr, size_t bytes,
                        unsigned int flags, bool managed);
