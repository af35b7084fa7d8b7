/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/books.h"

#include <errno.h>

static struct holdings out_of_memory = {.share = {.viewed = 1, .claimed = 1, .broken = true}};

const size_t share_state_bytes = sizeof(struct holdings);
struct share *const share_out_of_memory = &out_of_memory.share;

bool books_ref(struct share *share, enum entry_kind kind, uint64_t key) {
    struct entry *found;

    books_lock(share);
    found = allocations_find(books_allocations(share), kind, key);
    if (found)
        found->refs++;
    books_unlock(share);
    return found;
}

uint32_t books_unref(struct share *share, enum entry_kind kind, uint64_t key) {
    struct entry *found;
    uint32_t refs;

    books_lock(share);
    found = allocations_find(books_allocations(share), kind, key);
    refs = found ? found->refs : 0;
    if (refs > 1)
        found->refs--;
    books_unlock(share);
    return refs;
}

/* Another process has our slot, or the ledger is damaged: what we hold is no longer booked, so
 * nothing more is given. */
static void break_if_lost(struct share *share, int r) {
    if (__builtin_expect(r == -ESTALE || r == -EBADMSG, 0))
        share->broken = true;
}

static const struct ledger_owner *owner_of(struct share *share, enum booking how) {
    return how == BOOKED_EXPORTED ? &exports_of(share)->owner : &share->owner;
}

static bool on_card(const struct share *share, int device, enum booking how) {
    return share->bounded[device] && how != BOOKED_SPILLED;
}

/* Exceeds every limit. It is passed to the ledger so that the ledger counts the refusal. */
#define TOO_MUCH UINT64_MAX

/* Reserves in one account, within `limit` (0: none) less the overhead of the driver. */
static int reserve_within(struct share *share, unsigned int account, uint64_t bytes, uint64_t limit,
                          uint64_t overhead) {
    if (limit > 0 && overhead >= limit && bytes > 0)
        return ledger_reserve(&share->owner, account, TOO_MUCH, limit);
    return ledger_reserve(&share->owner, account, bytes, limit ? limit - overhead : 0);
}

static int reserve(struct share *share, int device, uint64_t bytes, enum booking how) {
    unsigned int d = (unsigned int) device;
    uint64_t overhead = limits_overhead(share->limits, d);
    int r = reserve_within(share, d, bytes, limits_memory(share->limits, d), overhead);

    if (r < 0 || !on_card(share, device, how))
        return r;
    r = reserve_within(share, ledger_card_account((uint32_t) device), bytes,
                       limits_physical(share->limits, d), overhead);
    if (r < 0)
        (void) ledger_refund(&share->owner, d, bytes);
    return r;
}

bool books_reserve_locked(struct share *share, int device, uint64_t bytes, enum booking how) {
    int r;

    if (device < 0 || share->broken)
        return false;
    r = reserve(share, device, bytes, how);
    break_if_lost(share, r);
    return r == 0;
}

bool books_reserve(struct share *share, int device, uint64_t bytes, enum booking how) {
    bool reserved;

    books_lock(share);
    reserved = books_reserve_locked(share, device, bytes, how);
    books_unlock(share);
    return reserved;
}

typedef int change_fn(const struct ledger_owner *, unsigned int, uint64_t);

static int reserve_without_limit(const struct ledger_owner *owner, unsigned int account,
                                 uint64_t bytes) {
    return ledger_reserve(owner, account, bytes, 0);
}

/* Changes the accounts of a device, whatever their limits; with the lock. */
static void change_accounts(struct share *share, int device, uint64_t bytes, enum booking how,
                            change_fn *fn) {
    const struct ledger_owner *owner = owner_of(share, how);
    int r;

    if (device < 0 || share->broken || bytes == 0)
        return;
    r = fn(owner, (unsigned int) device, bytes);
    if (r == 0 && on_card(share, device, how))
        r = fn(owner, ledger_card_account((uint32_t) device), bytes);
    break_if_lost(share, r);
}

static void lock_and_change(struct share *share, int device, uint64_t bytes, enum booking how,
                            change_fn *fn) {
    books_lock(share);
    change_accounts(share, device, bytes, how, fn);
    books_unlock(share);
}

void books_force(struct share *share, int device, uint64_t bytes, enum booking how) {
    lock_and_change(share, device, bytes, how, reserve_without_limit);
}

void books_refund_locked(struct share *share, int device, uint64_t bytes, enum booking how) {
    change_accounts(share, device, bytes, how, ledger_refund);
}

void books_refund(struct share *share, int device, uint64_t bytes, enum booking how) {
    lock_and_change(share, device, bytes, how, ledger_refund);
}

bool books_export(struct share *share, int device, uint64_t bytes, bool descriptor) {
    struct exports *exports = exports_of(share);
    int saved = errno;

    if (device < 0 || share->broken)
        return false;
    lock_take(&exports->lock);
    if (!exports->owner.file && ledger_claim_exports(share_ledger_path(), &exports->owner) < 0)
        exports->owner.file = NULL;
    lock_drop(&exports->lock);
    errno = saved;
    if (!exports->owner.file)
        return false;
    if (descriptor)
        ledger_note_descriptors(&exports->owner);
    /* In this order, so that it is booked at any moment. */
    books_force(share, device, bytes, BOOKED_EXPORTED);
    books_refund(share, device, bytes, BOOKED);
    return true;
}

void books_orphan(struct share *share, int device, uint64_t bytes) {
    if (exports_of(share)->owner.file)
        lock_and_change(share, device, bytes, BOOKED_EXPORTED, ledger_orphan);
}
