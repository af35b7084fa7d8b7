/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Residency of managed memory. For each allocation only the number of bytes on the card is known,
 * not which. They move to the card by prefetching and by kernels and fills that use them. They
 * leave it by prefetching to the host, by freeing, or, least recently used first, when the process
 * needs the card for other memory. Accesses on the host are not seen and move nothing. Memory that
 * prefers the host is used over the bus and moves only by prefetching. */

#include "sim/cuda/memory.h"

/* A fresh allocation, all of it on the host. NULL when out of memory. */
struct managed *managed_new(struct memory *m);
void managed_free(struct managed *m);

/* Work on the card uses `bytes` at `p`, which may be any address. */
void managed_touch(CUdeviceptr p, size_t bytes, int device);

/* Makes room for `bytes` on a device; false when there is nothing more to move. */
bool managed_evict(int device, size_t bytes);
