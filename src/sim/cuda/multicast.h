/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Multicast objects: the participating devices and their bound memory. A program can create them,
 * bind memory, which they hold, and unbind it. Mapping one is refused: only a kernel with special
 * instructions writes to all devices at once, and no built-in kernel does. */

#include "sim/cuda/cuda.h"

bool multicast_is(CUmemGenericAllocationHandle handle);

/* cuMemRelease of one. */
CUresult multicast_release(CUmemGenericAllocationHandle handle);
