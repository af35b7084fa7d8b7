/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/memory.h"

/* True when all `bytes` from `p` are mapped and accessible, in a range of kind MEMORY_RESERVED. */
bool vmm_covers(const struct memory *m, CUdeviceptr p, size_t bytes);

/* Keeps the memory of a handle, or at an address, until vmm_drop(); it contains all of `size`. */
CUresult vmm_hold(CUmemGenericAllocationHandle handle, size_t offset, size_t size, int *ret_device,
                  void **ret);
CUresult vmm_hold_at(CUdeviceptr ptr, size_t size, int *ret_device, void **ret);
void vmm_drop(void *hold);
