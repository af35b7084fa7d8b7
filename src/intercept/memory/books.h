/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The bookings of this process in the ledger, and the table of what it holds: both change under one
 * lock. */

#include "intercept/memory/holdings.h"

/* How memory is booked. */
enum booking {
    BOOKED,          /* in the slot of this process; on the card */
    BOOKED_SPILLED,  /* in the slot of this process; not on the card (spill.h) */
    BOOKED_EXPORTED, /* in the slot of memory that other processes may open; on the card */
};

static inline void books_lock(struct share *share) {
    lock_take(&books_of(share)->lock);
}

static inline void books_unlock(struct share *share) {
    lock_drop(&books_of(share)->lock);
}

/* With the lock. */
static inline struct allocations *books_allocations(struct share *share) {
    return &books_of(share)->table;
}

/* References to an entry of the table. books_ref counts one more; false: there is no entry.
 * books_unref drops one unless it is the only one, and returns how many there were; 0: no entry. */
bool books_ref(struct share *share, enum entry_kind kind, uint64_t key);
uint32_t books_unref(struct share *share, enum entry_kind kind, uint64_t key);

/* Books if it fits; not for BOOKED_EXPORTED. Also false for a device that is not part of the share,
 * and when the share is broken. `device` is an index in the share here and below; a negative one
 * books nothing. The functions without `_locked` take the lock. */
bool books_reserve(struct share *share, int device, uint64_t bytes, enum booking how);
bool books_reserve_locked(struct share *share, int device, uint64_t bytes, enum booking how);

/* Books what is held already, whatever the limit. */
void books_force(struct share *share, int device, uint64_t bytes, enum booking how);

void books_refund(struct share *share, int device, uint64_t bytes, enum booking how);
void books_refund_locked(struct share *share, int device, uint64_t bytes, enum booking how);

/* Turns what is BOOKED into BOOKED_EXPORTED; false: no slot could be claimed for that, it stays as
 * it is. With `descriptor`, call it before the descriptor exists. */
bool books_export(struct share *share, int device, uint64_t bytes, bool descriptor);

/* What was exported by descriptor is closed here, which does not mean that it has left the card: it
 * stays booked, in no slot, until the driver's figures show that it has. */
void books_orphan(struct share *share, int device, uint64_t bytes);
