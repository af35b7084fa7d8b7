/* SPDX-License-Identifier: Apache-2.0 */

/* Virtual memory management: memory lives as long as a handle or a mapping refers to it. An entry
 * counts both: the handle's references (created, retained) and its mappings. Handles that came from
 * elsewhere are not in the table; whoever created them has booked them. */

#include "intercept/charge.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    struct charge charge = {.share = NULL};
    CUresult r;

    if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        charge_on_device(&charge, prop->location.id);
    if (!charge_reserve(&charge, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemCreate(handle, size, prop, flags);
    return charge_settle(&charge, r, ENTRY_HANDLE, r == CUDA_SUCCESS ? *handle : 0, 0);
}

static void handle_ref(struct share *share, uint64_t handle) {
    struct entry *found;

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found)
        found->refs++;
    lock_drop(&share->table_lock);
}

/* Drops a reference; with the last one the entry is handed out, its room promised. */
static bool handle_unref(struct share *share, uint64_t handle, struct entry *ret) {
    struct entry *found;
    bool last = false;

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found && --found->refs == 0)
        last = table_take(&share->table, ENTRY_HANDLE, handle, ret);
    lock_drop(&share->table_lock);
    return last;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct refund refund = {.share = NULL};
    struct share *share = share_claim();
    CUresult r;

    if (share && handle_unref(share, handle, &refund.entry))
        refund.share = share;
    r = driver.cuMemRelease(handle);
    if (r != CUDA_SUCCESS && share && !refund.share)
        handle_ref(share, handle);
    refund.entry.refs = 1; /* should it go back */
    return refund_settle(&refund, r);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    CUresult r = driver.cuMemRetainAllocationHandle(handle, addr);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        handle_ref(share, *handle);
    return r;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    struct entry mapping = {
        .key = ptr, .bytes = size, .link = handle, .refs = 1, .kind = ENTRY_MAPPING, .device = -1};
    struct share *share = share_claim();
    struct entry *found = NULL;
    CUresult r;

    /* Counted before the driver maps, so that a release at the same time is not the last. */
    if (share) {
        lock_take(&share->table_lock);
        if (table_promise(&share->table)) {
            found = table_find(&share->table, ENTRY_HANDLE, handle);
            if (found)
                found->refs++;
            else
                table_unpromise(&share->table);
        }
        lock_drop(&share->table_lock);
    }
    r = driver.cuMemMap(ptr, size, offset, handle, flags);
    if (!found)
        return r;
    lock_take(&share->table_lock);
    if (r == CUDA_SUCCESS) {
        table_put(&share->table, &mapping);
    } else {
        table_unpromise(&share->table);
        found = table_find(&share->table, ENTRY_HANDLE, handle);
        if (found)
            found->refs--; /* not the last: the caller still has the handle */
    }
    lock_drop(&share->table_lock);
    return r;
}

/* Takes one mapping out of the books; the handle's memory is refunded with its last reference. */
static void mapping_gone(struct share *share, const struct entry *mapping) {
    struct refund refund = {.share = share};

    if (handle_unref(share, mapping->link, &refund.entry))
        (void) refund_settle(&refund, CUDA_SUCCESS);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    CUresult r = driver.cuMemUnmap(ptr, size);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;
    bool found = true;

    /* One call may undo several mappings, with memory among them that is not in our books. */
    while (share && found) {
        struct entry mapping;

        lock_take(&share->table_lock);
        found = table_take_between(&share->table, ENTRY_MAPPING, ptr, ptr + size, &mapping);
        if (found)
            table_unpromise(&share->table);
        lock_drop(&share->table_lock);
        if (found)
            mapping_gone(share, &mapping);
    }
    return r;
}

/* What was handed to others may outlive all that we see of it: it stays booked until this process
 * ends. */
CUresult cuMemExportToShareableHandle(void *shareable_handle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handle_type,
                                      unsigned long long flags) {
    CUresult r = driver.cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;
    struct entry *found;

    if (!share)
        return r;
    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found && !found->link) {
        found->link = 1;
        found->refs++;
    }
    lock_drop(&share->table_lock);
    return r;
}
