/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/charge.h"

#include "intercept/memory/export.h"
#include "intercept/memory/pool.h"

void charge_on_device(struct charge *charge, CUdevice device) {
    *charge = (struct charge){.share = share_claim(), .device = -1};
    if (!charge->share)
        return;
    charge->device = share_device(charge->share, device);
    if (charge->device == -2)
        charge->share = NULL;
}

void charge_on_current(struct charge *charge) {
    CUcontext context = NULL;
    CUdevice device;
    CUresult r;

    *charge = (struct charge){.share = share_claim(), .device = -1};
    if (!charge->share)
        return;
    r = driver.cuCtxGetCurrent(&context);
    if (r == CUDA_SUCCESS && context)
        r = driver.cuCtxGetDevice(&device);
    if (r == CUDA_ERROR_NOT_SUPPORTED)
        return; /* no answer at all: then nothing can be booked, and nothing is given */
    if (r != CUDA_SUCCESS || !context) {
        charge->share = NULL;
        return;
    }
    charge->device = share_device(charge->share, device);
    charge->context = (uint64_t) (uintptr_t) context;
    if (charge->device == -2)
        charge->share = NULL;
}

/* A stream may belong to another context than the current one, and the memory goes to the stream's
 * device. */
void charge_on_stream(struct charge *charge, CUstream stream, bool per_thread) {
    CUcontext context = NULL;
    const struct entry *found;
    CUresult r;

    charge_on_current(charge);
    if (!charge->share || !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return;
    r = per_thread ? driver.cuStreamGetCtx_ptsz(stream, &context)
                   : driver.cuStreamGetCtx(stream, &context);
    if (r != CUDA_SUCCESS || !context || (uint64_t) (uintptr_t) context == charge->context)
        return;
    lock_take(&charge->share->table_lock);
    found = table_find(&charge->share->table, ENTRY_CONTEXT, (uint64_t) (uintptr_t) context);
    if (found) {
        charge->device = found->device;
        charge->context = found->key;
    }
    lock_drop(&charge->share->table_lock);
}

/* What could be given back to make room: what pools keep without use, and what others had open. */
static bool make_room(struct share *share) {
    bool pools = pools_give_back(share), exports = exports_give_back(share);

    return pools || exports;
}

/* Room in the books and in the table. */
static bool try_to_reserve(const struct charge *charge) {
    struct share *share = charge->share;
    bool reserved;

    lock_take(&share->table_lock);
    reserved = table_promise(&share->table);
    if (reserved && !share_reserve_locked(share, charge->device, charge->bytes, charge->how)) {
        table_unpromise(&share->table);
        reserved = false;
    }
    lock_drop(&share->table_lock);
    return reserved;
}

static bool reserve(struct charge *charge, uint64_t bytes, enum booking how) {
    if (!charge->share)
        return true;
    charge->bytes = bytes;
    charge->how = how;
    return try_to_reserve(charge) || (make_room(charge->share) && try_to_reserve(charge));
}

bool charge_reserve(struct charge *charge, uint64_t bytes) {
    return reserve(charge, bytes, BOOKED);
}

bool charge_reserve_spilled(struct charge *charge, uint64_t bytes) {
    return reserve(charge, bytes, BOOKED_SPILLED);
}

bool charge_add(struct charge *charge, uint64_t more) {
    return charge_add_free(charge, more) ||
           (make_room(charge->share) && charge_add_free(charge, more));
}

bool charge_add_free(struct charge *charge, uint64_t more) {
    if (!charge->share || more == 0)
        return true;
    if (!share_reserve(charge->share, charge->device, more, charge->how))
        return false;
    charge->bytes += more;
    return true;
}

CUresult charge_settle(struct charge *charge, CUresult result, enum entry_kind kind, uint64_t key,
                       uint64_t links) {
    struct entry entry = {.key = key,
                          .bytes = charge->bytes,
                          .link = links,
                          .refs = 1,
                          .kind = (uint16_t) kind,
                          .device = (int16_t) charge->device};

    if (!charge->share)
        return result;
    lock_take(&charge->share->table_lock);
    if (result == CUDA_SUCCESS) {
        table_put(&charge->share->table, &entry);
    } else {
        table_unpromise(&charge->share->table);
        share_refund_locked(charge->share, charge->device, charge->bytes, charge->how);
    }
    lock_drop(&charge->share->table_lock);
    return result;
}

/* What an entry stood for goes out of the books at once if it is booked in our slot and nowhere
 * else; with the table's lock. Otherwise give_back_rest has to follow, without the lock. */
static bool give_back(struct share *share, const struct entry *entry) {
    switch (entry->kind) {
    case ENTRY_POOLED:
    case ENTRY_SHARED:
    case ENTRY_IMPORT:
    case ENTRY_HANDLE:
        return false;
    default:
        share_refund_locked(share, entry->device, entry->bytes,
                            entry->kind == ENTRY_SPILLED ? BOOKED_SPILLED : BOOKED);
        return true;
    }
}

static void give_back_rest(struct share *share, const struct entry *entry) {
    switch (entry->kind) {
    case ENTRY_POOLED:
        pool_freed(share, entry->link, entry->bytes);
        break;
    case ENTRY_SHARED:
        export_freed(share, entry->device, entry->bytes);
        break;
    case ENTRY_IMPORT:
        share_refund(share, entry->device, entry->bytes, BOOKED);
        import_ended(share);
        break;
    case ENTRY_HANDLE:
        if (entry->link == HANDLE_EXPORTED)
            share_orphan(share, entry->device, entry->bytes);
        else
            share_refund(share, entry->device, entry->bytes, BOOKED);
        if (entry->link == HANDLE_IMPORTED || entry->link == HANDLE_FOREIGN)
            import_ended(share);
        break;
    default:
        break;
    }
}

void refund_begin(struct refund *refund, enum entry_kind kind, uint64_t key) {
    bool found;

    refund->share = share_claim();
    if (!refund->share)
        return;
    /* Out of the table before the driver may hand the same address to another thread. */
    lock_take(&refund->share->table_lock);
    found = table_take(&refund->share->table, kind, key, &refund->entry);
    lock_drop(&refund->share->table_lock);
    if (!found)
        refund->share = NULL;
}

void refund_begin_pointer(struct refund *refund, CUdeviceptr dptr) {
    static const enum entry_kind kinds[] = {ENTRY_POINTER, ENTRY_POOLED, ENTRY_SHARED,
                                            ENTRY_SPILLED};
    bool found = false;

    refund->share = share_claim();
    if (!refund->share)
        return;
    lock_take(&refund->share->table_lock);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !found; i++)
        found = table_take(&refund->share->table, kinds[i], dptr, &refund->entry);
    lock_drop(&refund->share->table_lock);
    if (!found)
        refund->share = NULL;
}

CUresult refund_settle(struct refund *refund, CUresult result) {
    bool done = true;

    if (!refund->share)
        return result;
    lock_take(&refund->share->table_lock);
    if (result == CUDA_SUCCESS) {
        table_unpromise(&refund->share->table);
        done = give_back(refund->share, &refund->entry);
    } else {
        table_put(&refund->share->table, &refund->entry);
    }
    lock_drop(&refund->share->table_lock);
    if (!done)
        give_back_rest(refund->share, &refund->entry);
    return result;
}

void context_end_begin(struct context_end *end, uint64_t context) {
    end->share = context ? share_claim() : NULL;
    if (!end->share)
        return;
    end->context = context;
    lock_take(&end->share->table_lock);
    /* Odd, so no context's address: entries wait under it until the driver has spoken, while the
     * address may already be a new context's. */
    end->tombstone = end->share->tombstones++ * 2 + 1;
    table_relink(&end->share->table, context, end->tombstone);
    lock_drop(&end->share->table_lock);
}

CUresult context_end_settle(struct context_end *end, CUresult result) {
    bool more = true, done;
    struct entry entry;
    size_t at = 0;

    if (!end->share)
        return result;
    if (result != CUDA_SUCCESS) {
        lock_take(&end->share->table_lock);
        table_relink(&end->share->table, end->tombstone, end->context);
        lock_drop(&end->share->table_lock);
        return result;
    }
    while (more) {
        lock_take(&end->share->table_lock);
        more = table_take_linked(&end->share->table, end->tombstone, &at, &entry);
        done = !more;
        if (more) {
            table_unpromise(&end->share->table);
            done = give_back(end->share, &entry);
        }
        lock_drop(&end->share->table_lock);
        if (!done)
            give_back_rest(end->share, &entry);
    }
    pools_refresh(end->share);
    return result;
}
