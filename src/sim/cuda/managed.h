/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where managed memory is. Of each allocation only the number of bytes on the card is known, not
 * which: they come by prefetching and by kernels and fills that use them, and leave by prefetching
 * to the host, when they are freed, or, longest unused first, when the process needs the card for
 * something else. What the program does with them on the host is not seen and moves nothing.
 * Memory that prefers the host is used over the bus and comes only by prefetching. */

#include "sim/cuda/memory.h"

/* A fresh allocation, all of it on the host. NULL when out of memory. */
struct managed *managed_new(struct memory *m);
void managed_free(struct managed *m);

/* Work on the card uses `bytes` of what is at `p`, which may be anything. */
void managed_touch(CUdeviceptr p, size_t bytes, int device);

/* Makes room for `bytes` on a device; false when there is nothing more to move. */
bool managed_evict(int device, size_t bytes);
