/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/memory.h"

/* Are all `bytes` from `p` mapped and accessible, in a range of kind MEMORY_RESERVED? */
bool vmm_covers(const struct memory *m, CUdeviceptr p, size_t bytes);
