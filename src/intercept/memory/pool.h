/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory pools are booked by what they hold, not by what was allocated from them: a pool keeps
 * freed memory up to its release threshold, and grows in pieces larger than the allocation. */

#include "intercept/memory/holdings.h"

static inline void pools_lock(struct share *share) {
    lock_take(&pools_of(share)->lock);
}

static inline void pools_unlock(struct share *share) {
    lock_drop(&pools_of(share)->lock);
}

/* Makes pools of this process give back what they keep without use, and books that. True if
 * anything changed. */
bool pools_give_back(struct share *share);

/* Brings the books up to what the pools hold now. */
void pools_refresh(struct share *share);

/* The program has waited for the device: frees that were in its streams have happened. */
void pools_waited(void);

/* For cuMemFree of memory that came from a pool: `book` is the link of the entry. */
void pool_freed(struct share *share, uint64_t book, uint64_t bytes);

/* A descriptor of the pool is about to be made. False: what it holds cannot be booked as exported.
 */
bool pool_export_begin(CUmemoryPool pool);

/* The pool is another process's: nothing of it is booked here. */
void pool_imported(CUmemoryPool pool);

/* For graphs, with the lock of the pools: the book of what a device's graphs hold, which begins
 * with nothing booked (NULL: no room for it); bringing a book up to date; and pools_give_back. */
struct pool_book *graph_book(struct share *share, int device);
bool book_refresh(struct share *share, struct pool_book *book);
bool pools_give_back_locked(struct share *share);

/* From now on there are books to bring up to date, also at the next wait. */
void pools_note_use(struct share *share);

/* A graph has a node that allocates, or a stream that allocates is being captured: from now on
 * graphs_allocate is true, and graphs are searched for such nodes. */
void graphs_note_allocation(void);

static inline bool graphs_allocate(void) {
    struct share *share = __atomic_load_n(&share_memory, __ATOMIC_ACQUIRE);

    return share && __atomic_load_n(&pools_of(share)->graphs, __ATOMIC_RELAXED);
}

/* Before a capture begins. Another thread may begin a capture between an allocation's query of the
 * stream's state and the allocation. So a process that both captures and allocates from pools is
 * assumed to have graphs that allocate. */
void pools_note_capture(void);
