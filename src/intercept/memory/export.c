/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/export.h"

#include <errno.h>

void export_pointer(CUdeviceptr base) {
    struct share *share = share_claim();
    struct entry entry;
    bool found;

    if (!share)
        return;
    lock_take(&share->table_lock);
    found = table_take(&share->table, ENTRY_POINTER, base, &entry);
    if (found) {
        entry.kind = ENTRY_SHARED;
        table_put(&share->table, &entry);
    }
    lock_drop(&share->table_lock);
    if (!found || share_export(share, entry.device, entry.bytes, false))
        return;
    lock_take(&share->table_lock);
    if (table_take(&share->table, ENTRY_SHARED, base, &entry)) {
        entry.kind = ENTRY_POINTER;
        table_put(&share->table, &entry);
    }
    lock_drop(&share->table_lock);
}

static bool borrowed(const struct share *share) {
    int saved = errno;
    bool answer = ledger_borrowed(&share->exports);

    errno = saved;
    return answer;
}

void export_freed(struct share *share, int device, uint64_t bytes) {
    if (device < 0)
        return;
    if (!borrowed(share))
        share_refund(share, device, bytes, BOOKED_EXPORTED);
    else
        (void) __atomic_add_fetch(&share->lingering[device], bytes, __ATOMIC_RELAXED);
}

bool exports_give_back(struct share *share) {
    bool changed = false;

    for (uint32_t d = 0; d < share->ndevices; d++)
        changed |= __atomic_load_n(&share->lingering[d], __ATOMIC_RELAXED) > 0;
    if (!changed || borrowed(share))
        return false;
    for (uint32_t d = 0; d < share->ndevices; d++)
        share_refund(share, (int) d, __atomic_exchange_n(&share->lingering[d], 0, __ATOMIC_RELAXED),
                     BOOKED_EXPORTED);
    return true;
}

/* With the lock: who exports may have become more since the last time. */
static int renew_loan(struct share *share) {
    struct ledger_loan loan;
    int n = ledger_borrow(&share->owner, share->exports.file ? &share->exports : NULL, &loan);

    if (n < 0)
        return n;
    if (share->importing)
        ledger_return(&share->loan);
    share->loan = loan;
    share->importing = true;
    return n;
}

static void drop_one(struct share *share) {
    if (--share->imports == 0 && share->importing) {
        ledger_return(&share->loan);
        share->importing = false;
    }
}

/* Before the driver opens it, so that its owner cannot die in between without our holding it. */
bool import_begin(struct import *import) {
    int saved = errno, n;

    *import = (struct import){.share = share_claim()};
    if (!import->share)
        return true;
    if (import->share->broken)
        return false;
    lock_take(&import->share->loan_lock);
    n = renew_loan(import->share);
    if (n >= 0) {
        import->share->imports++;
        import->foreign = n == 0 && !import->share->exports.file;
    }
    lock_drop(&import->share->loan_lock);
    errno = saved;
    return n >= 0;
}

CUresult import_settle(struct import *import, CUresult result) {
    if (import->share && result != CUDA_SUCCESS)
        import_ended(import->share);
    return result;
}

void import_ended(struct share *share) {
    int saved = errno;

    lock_take(&share->loan_lock);
    drop_one(share);
    lock_drop(&share->loan_lock);
    errno = saved;
}
