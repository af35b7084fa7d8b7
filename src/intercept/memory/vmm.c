/* SPDX-License-Identifier: Apache-2.0 */

/* Virtual memory management: memory lives as long as a handle, a mapping or a binding refers to it.
 * An entry counts them all: the handle's references (created, retained, imported), its mappings,
 * and its bindings to multicast objects and sparse arrays. A multicast object has an entry too,
 * which holds no memory: with its last reference its bindings end. */

#include "intercept/memory/vmm.h"

#include "intercept/memory/export.h"

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    struct charge charge = {.share = NULL};
    CUresult r;

    if (prop && location_device(&prop->location) >= 0)
        charge_on_device(&charge, location_device(&prop->location));
    if (!charge_reserve(&charge, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemCreate(handle, size, prop, flags);
    return charge_settle(&charge, r, ENTRY_HANDLE, r == CUDA_SUCCESS ? *handle : 0, HANDLE_OWN);
}

static bool handle_ref(struct share *share, uint64_t handle) {
    struct entry *found;

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found)
        found->refs++;
    lock_drop(&share->table_lock);
    return found;
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

/* Drops a reference for good; memory is refunded with its last one. */
static void handle_drop(struct share *share, uint64_t handle) {
    struct refund refund = {.share = share};

    if (handle_unref(share, handle, &refund.entry))
        (void) refund_settle(&refund, CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct refund refund = {.share = NULL};
    struct share *share = share_claim();
    CUresult r;

    if (share && handle_unref(share, handle, &refund.entry))
        refund.share = share;
    r = driver.cuMemRelease(handle);
    if (r != CUDA_SUCCESS && share && !refund.share)
        (void) handle_ref(share, handle);
    refund.entry.refs = 1; /* should it go back */
    (void) refund_settle(&refund, r);
    if (r == CUDA_SUCCESS && refund.share)
        bindings_end(share, handle, 0, UINT64_MAX, -1);
    return r;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    CUresult r = driver.cuMemRetainAllocationHandle(handle, addr);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        (void) handle_ref(share, *handle);
    return r;
}

/* -- mappings -------------------------------------------------------------------------------- */

/* How much of memory of another container is new to our books when it is mapped up to `end`. */
static uint64_t foreign_growth(struct share *share, uint64_t handle, uint64_t end,
                               int *ret_device) {
    const struct entry *found;
    uint64_t more = 0;

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found && found->link == HANDLE_FOREIGN && end > found->bytes) {
        more = end - found->bytes;
        *ret_device = found->device;
    }
    lock_drop(&share->table_lock);
    return more;
}

/* Books memory of another container as far as it gets mapped, which tells its size. */
static bool book_foreign(struct share *share, uint64_t handle, uint64_t offset, uint64_t size) {
    uint64_t end, more;
    struct entry *found;
    int device = -1;

    if (__builtin_add_overflow(offset, size, &end))
        return true; /* the driver refuses it */
    more = foreign_growth(share, handle, end, &device);
    if (more == 0 || device < 0)
        return true;
    if (!share_reserve(share, device, more, BOOKED))
        return false;
    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found)
        found->bytes += more;
    lock_drop(&share->table_lock);
    if (!found)
        share_refund(share, device, more, BOOKED);
    return true;
}

/* Counted before the driver maps, so that a release at the same time is not the last. */
bool binding_begin(struct share *share, uint64_t handle) {
    struct entry *found = NULL;

    lock_take(&share->table_lock);
    if (table_promise(&share->table)) {
        found = table_find(&share->table, ENTRY_HANDLE, handle);
        if (found)
            found->refs++;
        else
            table_unpromise(&share->table);
    }
    lock_drop(&share->table_lock);
    return found;
}

static CUresult entry_settle(struct share *share, CUresult result, const struct entry *entry) {
    lock_take(&share->table_lock);
    if (result == CUDA_SUCCESS)
        table_put(&share->table, entry);
    else
        table_unpromise(&share->table);
    lock_drop(&share->table_lock);
    if (result != CUDA_SUCCESS)
        handle_drop(share, entry->link);
    return result;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    struct entry mapping = {
        .key = ptr, .bytes = size, .link = handle, .refs = 1, .kind = ENTRY_MAPPING, .device = -1};
    struct share *share = share_claim();
    CUresult r;

    if (share && !book_foreign(share, handle, offset, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!share || !binding_begin(share, handle))
        return driver.cuMemMap(ptr, size, offset, handle, flags);
    r = driver.cuMemMap(ptr, size, offset, handle, flags);
    return entry_settle(share, r, &mapping);
}

/* Takes one mapping in the range out of the table: at first the one that begins where it does,
 * which is mostly all there is. */
static bool mapping_take(struct share *share, CUdeviceptr ptr, size_t size, bool first,
                         struct entry *ret) {
    bool found;

    lock_take(&share->table_lock);
    found = first ? table_take(&share->table, ENTRY_MAPPING, ptr, ret)
                  : table_take_between(&share->table, ENTRY_MAPPING, ptr, ptr + size, ret);
    if (found)
        table_unpromise(&share->table);
    lock_drop(&share->table_lock);
    return found;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    CUresult r = driver.cuMemUnmap(ptr, size);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;
    struct entry mapping = {.bytes = 0};

    if (!share)
        return r;
    if (mapping_take(share, ptr, size, true, &mapping))
        handle_drop(share, mapping.link);
    /* One call may undo several mappings, with memory among them that is not in our books. */
    if (mapping.bytes < size)
        while (mapping_take(share, ptr, size, false, &mapping))
            handle_drop(share, mapping.link);
    return r;
}

static bool covers(const struct entry *e, const void *arg) {
    CUdeviceptr address = *(const CUdeviceptr *) arg;

    return e->kind == ENTRY_MAPPING && address >= e->key && address - e->key < e->bytes;
}

uint64_t handle_mapped_at(struct share *share, CUdeviceptr address) {
    const struct entry *found;
    uint64_t handle;

    lock_take(&share->table_lock);
    found = table_find_if(&share->table, covers, &address);
    handle = found ? found->link : 0;
    lock_drop(&share->table_lock);
    return handle;
}

/* -- bindings -------------------------------------------------------------------------------- */

/* On which device of the driver's the memory of a handle is; -1: not known. */
static int16_t home_of(struct share *share, uint64_t handle) {
    const struct entry *found;
    int device;

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    device = found ? found->device : -1;
    lock_drop(&share->table_lock);
    return (int16_t) share_ordinal(share, device);
}

CUresult binding_settle(struct share *share, CUresult result, uint64_t object, uint64_t place,
                        uint64_t handle) {
    struct entry binding = {.key = place,
                            .bytes = object,
                            .link = handle,
                            .refs = 1,
                            .kind = ENTRY_BINDING,
                            .device = home_of(share, handle)};

    return entry_settle(share, result, &binding);
}

struct places {
    uint64_t object, from, to;
    CUdevice device;
};

static bool bound_there(const struct entry *e, const void *arg) {
    const struct places *p = arg;

    return e->kind == ENTRY_BINDING && e->bytes == p->object && e->key >= p->from &&
           e->key < p->to && (p->device < 0 || e->device < 0 || e->device == p->device);
}

void bindings_end(struct share *share, uint64_t object, uint64_t from, uint64_t to,
                  CUdevice device) {
    struct places places = {object, from, to, device};
    struct entry binding;
    bool found = true;

    while (found) {
        lock_take(&share->table_lock);
        found = table_take_if(&share->table, bound_there, &places, &binding);
        if (found)
            table_unpromise(&share->table);
        lock_drop(&share->table_lock);
        if (found)
            handle_drop(share, binding.link);
    }
}

/* -- handles that travel --------------------------------------------------------------------- */

/* With the export lock: another thread that exports the same handle would take it for booked while
 * it is not. */
static bool export_locked(struct share *share, CUmemGenericAllocationHandle handle) {
    struct entry *found, exported = {.device = -1};

    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found && found->link == HANDLE_OWN && found->device >= 0) {
        found->link = HANDLE_EXPORTED;
        exported = *found;
    }
    lock_drop(&share->table_lock);
    if (exported.device < 0 || share_export(share, exported.device, exported.bytes, true))
        return true;
    lock_take(&share->table_lock);
    found = table_find(&share->table, ENTRY_HANDLE, handle);
    if (found && found->link == HANDLE_EXPORTED)
        found->link = HANDLE_OWN;
    lock_drop(&share->table_lock);
    return false;
}

/* Before the driver makes a descriptor, which keeps the memory in any process that gets a copy, and
 * however this process ends. False: the memory cannot be booked as exported. */
static bool export_begin(struct share *share, CUmemGenericAllocationHandle handle) {
    bool ok;

    lock_take(&share->export_lock);
    ok = export_locked(share, handle);
    lock_drop(&share->export_lock);
    return ok;
}

CUresult cuMemExportToShareableHandle(void *shareable_handle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handle_type,
                                      unsigned long long flags) {
    struct share *share = share_claim();

    if (share && !export_begin(share, handle))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return driver.cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags);
}

static int16_t device_of_handle(struct share *share, CUmemGenericAllocationHandle handle) {
    CUmemAllocationProp prop = {0};

    if (driver.cuMemGetAllocationPropertiesFromHandle(&prop, handle) != CUDA_SUCCESS)
        return -1;
    return (int16_t) share_device(share, location_device(&prop.location));
}

/* The driver may answer with a handle that we know, and has then counted one more reference. */
static CUresult enter_import(struct import *import, CUmemGenericAllocationHandle handle) {
    struct share *share = import->share;
    struct entry entry = {.key = handle,
                          .link = import->foreign ? HANDLE_FOREIGN : HANDLE_IMPORTED,
                          .refs = 1,
                          .kind = ENTRY_HANDLE,
                          .device = -1};
    bool entered;

    if (handle_ref(share, handle)) {
        import_ended(share);
        return CUDA_SUCCESS;
    }
    if (import->foreign)
        entry.device = device_of_handle(share, handle);
    lock_take(&share->table_lock);
    entered = table_promise(&share->table);
    if (entered)
        table_put(&share->table, &entry);
    lock_drop(&share->table_lock);
    if (entered)
        return CUDA_SUCCESS;
    (void) driver.cuMemRelease(handle);
    import_ended(share);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType sh_handle_type) {
    struct import import;
    CUresult r;

    if (!import_begin(&import))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = import_settle(&import,
                      driver.cuMemImportFromShareableHandle(handle, os_handle, sh_handle_type));
    return r == CUDA_SUCCESS && import.share ? enter_import(&import, *handle) : r;
}
