/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Multicast objects: which devices take part and what memory of theirs is bound. They can be made,
 * filled and emptied, and hold what is bound to them; the one thing for which there are special
 * instructions, writing to all devices at once, would need a kernel that does it: mapping one is
 * refused. */

#include "sim/cuda/cuda.h"

bool multicast_is(CUmemGenericAllocationHandle handle);

/* cuMemRelease of one. */
CUresult multicast_release(CUmemGenericAllocationHandle handle);
