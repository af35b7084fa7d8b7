/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory for the state of this process: zeroed, and zeroed again in a forked child, which so begins
 * without the slot, the locks and the threads of its parent. */

#include <stddef.h>
#include <sys/mman.h>

/* NULL: there is no memory, or the kernel cannot zero it in children (Linux before 4.14). Pages
 * that are not written take no memory. */
static inline void *map_zeroed_on_fork(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    if (madvise(memory, bytes, MADV_WIPEONFORK) == 0)
        return memory;
    (void) munmap(memory, bytes);
    return NULL;
}
