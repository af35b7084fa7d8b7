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
        return; /* the device is not known, so nothing can be booked, and allocations are refused */
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
    books_lock(charge->share);
    found = allocations_find(books_allocations(charge->share), ENTRY_CONTEXT,
                             (uint64_t) (uintptr_t) context);
    if (found) {
        charge->device = found->device;
        charge->context = found->key;
    }
    books_unlock(charge->share);
}

/* Gives back what pools keep without use, and exported memory that is no longer open. */
static bool make_room(struct share *share) {
    bool pools = pools_give_back(share), exports = exports_give_back(share);

    return pools || exports;
}

/* Room in the books and in the table. */
static bool try_to_reserve(const struct charge *charge) {
    struct share *share = charge->share;
    bool reserved;

    books_lock(share);
    reserved = allocations_reserve(books_allocations(share));
    if (reserved && !books_reserve_locked(share, charge->device, charge->bytes, charge->how)) {
        allocations_unreserve(books_allocations(share));
        reserved = false;
    }
    books_unlock(share);
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
    if (!books_reserve(charge->share, charge->device, more, charge->how))
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
                          .kind = (uint8_t) kind,
                          .device = (int16_t) charge->device};

    if (!charge->share)
        return result;
    books_lock(charge->share);
    if (result == CUDA_SUCCESS) {
        allocations_put(books_allocations(charge->share), &entry);
    } else {
        allocations_unreserve(books_allocations(charge->share));
        books_refund_locked(charge->share, charge->device, charge->bytes, charge->how);
    }
    books_unlock(charge->share);
    return result;
}

/* Refunds an entry at once if it is booked in the slot of this process and nowhere else; with the
 * lock of the books. Otherwise returns false: give_back_rest has to follow, without the lock. */
static bool give_back(struct share *share, const struct entry *entry) {
    switch (entry->kind) {
    case ENTRY_POOLED:
    case ENTRY_SHARED:
    case ENTRY_IMPORT:
    case ENTRY_HANDLE:
        return false;
    default:
        books_refund_locked(share, entry->device, entry->bytes,
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
        books_refund(share, entry->device, entry->bytes, BOOKED);
        import_ended(share);
        break;
    case ENTRY_HANDLE:
        if (entry->link == HANDLE_EXPORTED)
            books_orphan(share, entry->device, entry->bytes);
        else
            books_refund(share, entry->device, entry->bytes, BOOKED);
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
    books_lock(refund->share);
    found = allocations_take(books_allocations(refund->share), kind, key, &refund->entry);
    books_unlock(refund->share);
    if (!found)
        refund->share = NULL;
}

void refund_begin_pointer(struct refund *refund, CUdeviceptr dptr) {
    static const enum entry_kind kinds[] = {ENTRY_POINTER, ENTRY_POOLED, ENTRY_SHARED,
                                            ENTRY_SPILLED};
    bool found;

    refund->share = share_claim();
    if (!refund->share)
        return;
    books_lock(refund->share);
    found = allocations_take_newest(books_allocations(refund->share), kinds,
                                    sizeof(kinds) / sizeof(kinds[0]), dptr, &refund->entry);
    books_unlock(refund->share);
    if (!found)
        refund->share = NULL;
}

CUresult refund_settle(struct refund *refund, CUresult result) {
    bool done = true;

    if (!refund->share)
        return result;
    books_lock(refund->share);
    if (result == CUDA_SUCCESS) {
        allocations_unreserve(books_allocations(refund->share));
        done = give_back(refund->share, &refund->entry);
    } else {
        allocations_put(books_allocations(refund->share), &refund->entry);
    }
    books_unlock(refund->share);
    if (!done)
        give_back_rest(refund->share, &refund->entry);
    return result;
}

void context_end_begin(struct context_end *end, uint64_t context) {
    end->share = context ? share_claim() : NULL;
    if (!end->share)
        return;
    end->context = context;
    books_lock(end->share);
    /* Odd, so not the address of a context. */
    end->mark = books_of(end->share)->marks++ * 2 + 1;
    allocations_end_context(books_allocations(end->share), context, end->mark);
    books_unlock(end->share);
}

static void keep_context(const struct context_end *end) {
    books_lock(end->share);
    allocations_keep_context(books_allocations(end->share), end->context, end->mark);
    books_unlock(end->share);
}

static void remove_ended(const struct context_end *end) {
    bool more = true, done;
    struct entry entry;
    size_t at = 0;

    while (more) {
        books_lock(end->share);
        more = allocations_take_linked(books_allocations(end->share), end->mark, &at, &entry);
        done = !more;
        if (more) {
            allocations_unreserve(books_allocations(end->share));
            done = give_back(end->share, &entry);
        }
        books_unlock(end->share);
        if (!done)
            give_back_rest(end->share, &entry);
    }
    pools_refresh(end->share);
}

void context_end_settle(struct context_end *end, bool ended) {
    if (!end->share)
        return;
    if (ended)
        remove_ended(end);
    else
        keep_context(end);
}
