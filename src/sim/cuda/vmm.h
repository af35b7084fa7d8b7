/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/memory.h"

/* Are all `bytes` from `p` mapped and accessible, in a range of kind MEMORY_RESERVED? */
bool vmm_covers(const struct memory *m, CUdeviceptr p, size_t bytes);

/* Keeps the memory behind a handle, or behind an address, for as long as it is not dropped; all of
 * `size` is in it. */
CUresult vmm_hold(CUmemGenericAllocationHandle handle, size_t offset, size_t size, int *ret_device,
                  void **ret);
CUresult vmm_hold_at(CUdeviceptr ptr, size_t size, int *ret_device, void **ret);
void vmm_drop(void *hold);
