/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* Returns bytes of an allocation to its pool, which keeps them or gives them to the device. */
void pool_give(CUmemoryPool pool, size_t bytes);
