/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/charge.h"

#include "intercept/pool.h"

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

bool charge_reserve(struct charge *charge, uint64_t bytes) {
    bool room;

    if (!charge->share)
        return true;
    charge->bytes = bytes;
    lock_take(&charge->share->table_lock);
    room = table_promise(&charge->share->table);
    lock_drop(&charge->share->table_lock);
    if (!room)
        return false;
    if (share_reserve(charge->share, charge->device, bytes))
        return true;
    /* What pools keep without use is memory that this could have. */
    if (pools_give_back(charge->share) && share_reserve(charge->share, charge->device, bytes))
        return true;
    lock_take(&charge->share->table_lock);
    table_unpromise(&charge->share->table);
    lock_drop(&charge->share->table_lock);
    return false;
}

bool charge_add(struct charge *charge, uint64_t more) {
    if (!charge->share || more == 0)
        return true;
    if (!share_reserve(charge->share, charge->device, more))
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
    if (result == CUDA_SUCCESS)
        table_put(&charge->share->table, &entry);
    else
        table_unpromise(&charge->share->table);
    lock_drop(&charge->share->table_lock);
    if (result != CUDA_SUCCESS)
        share_refund(charge->share, charge->device, charge->bytes);
    return result;
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
    const struct share *share;

    refund_begin(refund, ENTRY_POINTER, dptr);
    share = refund->share ? NULL : share_claim();
    if (share && __atomic_load_n(&share->pools, __ATOMIC_RELAXED))
        refund_begin(refund, ENTRY_POOLED, dptr);
}

CUresult refund_settle(struct refund *refund, CUresult result) {
    if (!refund->share)
        return result;
    lock_take(&refund->share->table_lock);
    if (result == CUDA_SUCCESS)
        table_unpromise(&refund->share->table);
    else
        table_put(&refund->share->table, &refund->entry);
    lock_drop(&refund->share->table_lock);
    if (result != CUDA_SUCCESS)
        return result;
    if (refund->entry.kind == ENTRY_POOLED)
        pool_freed(refund->share, refund->entry.link, refund->entry.bytes);
    else
        share_refund(refund->share, refund->entry.device, refund->entry.bytes);
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
    struct entry entry;
    bool more = true;

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
        more = table_take_linked(&end->share->table, end->tombstone, &entry);
        if (more)
            table_unpromise(&end->share->table);
        lock_drop(&end->share->table_lock);
        if (more)
            share_refund(end->share, entry.device, entry.bytes);
    }
    pools_refresh(end->share);
    return result;
}
