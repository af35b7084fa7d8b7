/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* Returns bytes of an allocation to its pool, which keeps them or returns them to the device. With
 * `shared`, other processes may hold them: the pool only stops counting them. */
void pool_give(CUmemoryPool pool, size_t bytes, bool shared);
