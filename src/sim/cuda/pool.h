/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* Returns bytes of an allocation to its pool, which keeps them or gives them to the device; or,
 * where others may hold them, has them no longer. */
void pool_give(CUmemoryPool pool, size_t bytes, bool shared);
