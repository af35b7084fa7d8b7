/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/export.h"

#include <errno.h>

void export_pointer(CUdeviceptr base) {
    struct share *share = share_claim();
    struct entry entry;
    bool found;

    if (!share)
        return;
    books_lock(share);
    found = allocations_take(books_allocations(share), ENTRY_POINTER, base, &entry);
    if (found) {
        entry.kind = ENTRY_SHARED;
        allocations_put(books_allocations(share), &entry);
    }
    books_unlock(share);
    if (!found || books_export(share, entry.device, entry.bytes, false))
        return;
    books_lock(share);
    if (allocations_take(books_allocations(share), ENTRY_SHARED, base, &entry)) {
        entry.kind = ENTRY_POINTER;
        allocations_put(books_allocations(share), &entry);
    }
    books_unlock(share);
}

static bool borrowed(struct share *share) {
    int saved = errno;
    bool answer = ledger_borrowed(&exports_of(share)->owner);

    errno = saved;
    return answer;
}

void export_freed(struct share *share, int device, uint64_t bytes) {
    if (device < 0)
        return;
    if (!borrowed(share))
        books_refund(share, device, bytes, BOOKED_EXPORTED);
    else
        (void) __atomic_add_fetch(&exports_of(share)->lingering[device], bytes, __ATOMIC_RELAXED);
}

bool exports_give_back(struct share *share) {
    uint64_t *lingering = exports_of(share)->lingering;
    bool changed = false;

    for (uint32_t d = 0; d < share->ndevices; d++)
        changed |= __atomic_load_n(&lingering[d], __ATOMIC_RELAXED) > 0;
    if (!changed || borrowed(share))
        return false;
    for (uint32_t d = 0; d < share->ndevices; d++)
        books_refund(share, (int) d, __atomic_exchange_n(&lingering[d], 0, __ATOMIC_RELAXED),
                     BOOKED_EXPORTED);
    return true;
}

/* With the lock. Processes may have begun to export since the last time. */
static int renew_loan(struct share *share) {
    struct exports *exports = exports_of(share);
    struct ledger_loan loan;
    int n = ledger_borrow(&share->owner, exports->owner.file ? &exports->owner : NULL, &loan);

    if (n < 0)
        return n;
    if (exports->lent)
        ledger_return(&exports->loan);
    exports->loan = loan;
    exports->lent = true;
    return n;
}

static void drop_import(struct exports *exports) {
    if (--exports->imports == 0 && exports->lent) {
        ledger_return(&exports->loan);
        exports->lent = false;
    }
}

/* Before the driver opens it, so that the slot of its owner is kept if the owner ends in between.
 */
bool import_begin(struct import *import) {
    struct exports *exports;
    int saved = errno, n;

    *import = (struct import){.share = share_claim()};
    if (!import->share)
        return true;
    if (import->share->broken)
        return false;
    exports = exports_of(import->share);
    lock_take(&exports->lock);
    n = renew_loan(import->share);
    if (n >= 0) {
        exports->imports++;
        import->foreign = n == 0 && !exports->owner.file;
    }
    lock_drop(&exports->lock);
    errno = saved;
    return n >= 0;
}

CUresult import_settle(struct import *import, CUresult result) {
    if (import->share && result != CUDA_SUCCESS)
        import_ended(import->share);
    return result;
}

void import_ended(struct share *share) {
    struct exports *exports = exports_of(share);
    int saved = errno;

    lock_take(&exports->lock);
    drop_import(exports);
    lock_drop(&exports->lock);
    errno = saved;
}
