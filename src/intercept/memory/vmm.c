/* SPDX-License-Identifier: Apache-2.0 */

/* Virtual memory management: memory lives as long as a handle, a mapping or a binding refers to it.
 * An entry counts them all: the handle's references (created, retained, imported), its mappings,
 * and its bindings to multicast objects and sparse arrays. A multicast object has an entry too,
 * which holds no memory: with its last reference its bindings end.
 *
 * A call of the driver that makes or ends such a reference, and its entry, are one step under the
 * handle lock. Otherwise another thread could have the driver map memory whose entry does not exist
 * yet, or does not exist any more, and such a mapping would be counted nowhere. A binding of memory
 * that has an entry needs no lock, as it counts its reference first. */

#include "intercept/memory/vmm.h"

#include "intercept/memory/export.h"

void handle_lock(struct share *share) {
    if (share)
        lock_take(&holdings_of(share)->handle_lock);
}

void handle_unlock(struct share *share) {
    if (share)
        lock_drop(&holdings_of(share)->handle_lock);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    struct charge charge = {.share = NULL};
    CUresult r;

    if (prop && location_device(&prop->location) >= 0)
        charge_on_device(&charge, location_device(&prop->location));
    if (!charge_reserve(&charge, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle_lock(charge.share);
    r = driver.cuMemCreate(handle, size, prop, flags);
    r = charge_settle(&charge, r, ENTRY_HANDLE, r == CUDA_SUCCESS ? *handle : 0, HANDLE_OWN);
    handle_unlock(charge.share);
    return r;
}

/* Drops a reference; with the last one the entry is handed out, its room reserved. */
static bool handle_unref(struct share *share, uint64_t handle, struct entry *ret) {
    struct entry *found;
    bool last = false;

    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_HANDLE, handle);
    if (found && --found->refs == 0)
        last = allocations_take(books_allocations(share), ENTRY_HANDLE, handle, ret);
    books_unlock(share);
    return last;
}

/* Drops a reference; the last one credits the memory. */
static void handle_drop(struct share *share, uint64_t handle) {
    struct refund refund = {.share = share};

    if (handle_unref(share, handle, &refund.entry))
        (void) refund_settle(&refund, CUDA_SUCCESS);
}

static CUresult release(struct share *share, CUmemGenericAllocationHandle handle) {
    struct refund refund = {.share = NULL};
    CUresult r;

    if (handle_unref(share, handle, &refund.entry))
        refund.share = share;
    r = driver.cuMemRelease(handle);
    if (r != CUDA_SUCCESS && !refund.share)
        (void) books_ref(share, ENTRY_HANDLE, handle);
    refund.entry.refs = 1; /* should it go back */
    (void) refund_settle(&refund, r);
    if (r == CUDA_SUCCESS && refund.share)
        (void) bindings_settle(share, r, bindings_mark(share, handle, 0, UINT64_MAX, -1));
    return r;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct share *share = share_claim();
    CUresult r;

    if (!share)
        return driver.cuMemRelease(handle);
    handle_lock(share);
    r = release(share, handle);
    handle_unlock(share);
    return r;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    struct share *share = share_claim();
    CUresult r;

    handle_lock(share);
    r = driver.cuMemRetainAllocationHandle(handle, addr);
    if (r == CUDA_SUCCESS && share)
        (void) books_ref(share, ENTRY_HANDLE, *handle);
    handle_unlock(share);
    return r;
}

/* -- mappings -------------------------------------------------------------------------------- */

/* How many bytes of memory of another container are not booked yet when it is mapped up to `end`.
 */
static uint64_t foreign_growth(struct share *share, uint64_t handle, uint64_t end,
                               int *ret_device) {
    const struct entry *found;
    uint64_t more = 0;

    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_HANDLE, handle);
    if (found && found->link == HANDLE_FOREIGN && end > found->bytes) {
        more = end - found->bytes;
        *ret_device = found->device;
    }
    books_unlock(share);
    return more;
}

/* Books memory of another container as far as it is mapped, which is all that is known of its size.
 */
static bool book_foreign(struct share *share, uint64_t handle, uint64_t offset, uint64_t size) {
    uint64_t end, more;
    struct entry *found;
    int device = -1;

    if (__builtin_add_overflow(offset, size, &end))
        return true; /* the driver refuses it */
    more = foreign_growth(share, handle, end, &device);
    if (more == 0 || device < 0)
        return true;
    if (!books_reserve(share, device, more, BOOKED))
        return false;
    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_HANDLE, handle);
    if (found)
        found->bytes += more;
    books_unlock(share);
    if (!found)
        books_refund(share, device, more, BOOKED);
    return true;
}

/* Counted before the driver maps, so that a release at the same time is not the last. */
bool binding_begin(struct share *share, uint64_t handle) {
    struct entry *found = NULL;

    books_lock(share);
    if (allocations_reserve(books_allocations(share))) {
        found = allocations_find(books_allocations(share), ENTRY_HANDLE, handle);
        if (found)
            found->refs++;
        else
            allocations_unreserve(books_allocations(share));
    }
    books_unlock(share);
    return found;
}

static CUresult entry_settle(struct share *share, CUresult result, const struct entry *entry) {
    books_lock(share);
    if (result == CUDA_SUCCESS)
        allocations_put(books_allocations(share), entry);
    else
        allocations_unreserve(books_allocations(share));
    books_unlock(share);
    if (result != CUDA_SUCCESS)
        handle_drop(share, entry->link);
    return result;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    struct entry mapping = {
        .key = ptr, .bytes = size, .link = handle, .refs = 1, .kind = ENTRY_MAPPING, .device = -1};
    struct share *share = share_claim();
    bool counted;
    CUresult r;

    if (share && !book_foreign(share, handle, offset, size))
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle_lock(share);
    counted = share && binding_begin(share, handle);
    r = driver.cuMemMap(ptr, size, offset, handle, flags);
    if (counted)
        r = entry_settle(share, r, &mapping);
    handle_unlock(share);
    return r;
}

/* Takes one mapping in the range out of the table: at first the one that begins where it does,
 * which is mostly all there is. */
static bool mapping_take(struct share *share, CUdeviceptr ptr, size_t size, bool first,
                         struct entry *ret) {
    bool found;

    books_lock(share);
    found = first ? allocations_take(books_allocations(share), ENTRY_MAPPING, ptr, ret)
                  : allocations_take_between(books_allocations(share), ENTRY_MAPPING, ptr,
                                             ptr + size, ret);
    if (found)
        allocations_unreserve(books_allocations(share));
    books_unlock(share);
    return found;
}

static void mappings_end(struct share *share, CUdeviceptr ptr, size_t size) {
    struct entry mapping = {.bytes = 0};

    if (mapping_take(share, ptr, size, true, &mapping))
        handle_drop(share, mapping.link);
    /* One call may undo several mappings, with memory among them that is not in our books. */
    if (mapping.bytes < size)
        while (mapping_take(share, ptr, size, false, &mapping))
            handle_drop(share, mapping.link);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    struct share *share = share_claim();
    CUresult r;

    handle_lock(share);
    r = driver.cuMemUnmap(ptr, size);
    if (r == CUDA_SUCCESS && share)
        mappings_end(share, ptr, size);
    handle_unlock(share);
    return r;
}

static bool covers(const struct entry *e, const void *arg) {
    CUdeviceptr address = *(const CUdeviceptr *) arg;

    return e->kind == ENTRY_MAPPING && address >= e->key && address - e->key < e->bytes;
}

uint64_t handle_mapped_at(struct share *share, CUdeviceptr address) {
    const struct entry *found;
    uint64_t handle;

    books_lock(share);
    found = allocations_find_if(books_allocations(share), covers, &address);
    handle = found ? found->link : 0;
    books_unlock(share);
    return handle;
}

/* -- bindings -------------------------------------------------------------------------------- */

/* The refs of a binding that no call is ending. */
#define UNMARKED 1

/* On which device of the driver's the memory of a handle is; -1: not known. */
static int16_t home_of(struct share *share, uint64_t handle) {
    const struct entry *found;
    int device;

    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_HANDLE, handle);
    device = found ? found->device : -1;
    books_unlock(share);
    return (int16_t) share_ordinal(share, device);
}

CUresult binding_settle(struct share *share, CUresult result, uint64_t object, uint64_t place,
                        uint64_t handle) {
    struct entry binding = {.key = place,
                            .bytes = object,
                            .link = handle,
                            .refs = UNMARKED,
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

    return e->kind == ENTRY_BINDING && e->refs == UNMARKED && e->bytes == p->object &&
           e->key >= p->from && e->key < p->to &&
           (p->device < 0 || e->device < 0 || e->device == p->device);
}

static bool marked(const struct entry *e, const void *arg) {
    return e->kind == ENTRY_BINDING && e->refs == *(const uint32_t *) arg;
}

uint32_t bindings_mark(struct share *share, uint64_t object, uint64_t from, uint64_t to,
                       CUdevice device) {
    struct places places = {object, from, to, device};
    uint32_t mark;

    books_lock(share);
    mark = (uint32_t) books_of(share)->marks++ | 1u << 31;
    allocations_mark(books_allocations(share), bound_there, &places, mark);
    books_unlock(share);
    return mark;
}

static void bindings_end(struct share *share, uint32_t mark) {
    struct entry binding;
    bool found = true;

    while (found) {
        books_lock(share);
        found = allocations_take_if(books_allocations(share), marked, &mark, &binding);
        if (found)
            allocations_unreserve(books_allocations(share));
        books_unlock(share);
        if (found)
            handle_drop(share, binding.link);
    }
}

CUresult bindings_settle(struct share *share, CUresult result, uint32_t mark) {
    if (result == CUDA_SUCCESS) {
        bindings_end(share, mark);
        return result;
    }
    books_lock(share);
    allocations_mark(books_allocations(share), marked, &mark, UNMARKED);
    books_unlock(share);
    return result;
}

/* -- export and import of handles
 * --------------------------------------------------------------------- */

/* With the handle lock, before the driver makes a descriptor, which keeps the memory in any process
 * that gets a copy, and however this process ends. False: the memory cannot be booked as exported.
 */
static bool export_begin(struct share *share, CUmemGenericAllocationHandle handle) {
    struct entry *found, exported = {.device = -1};

    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_HANDLE, handle);
    if (found && found->link == HANDLE_OWN && found->device >= 0) {
        found->link = HANDLE_EXPORTED;
        exported = *found;
    }
    books_unlock(share);
    if (exported.device < 0 || books_export(share, exported.device, exported.bytes, true))
        return true;
    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_HANDLE, handle);
    if (found && found->link == HANDLE_EXPORTED)
        found->link = HANDLE_OWN;
    books_unlock(share);
    return false;
}

CUresult cuMemExportToShareableHandle(void *shareable_handle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handle_type,
                                      unsigned long long flags) {
    struct share *share = share_claim();
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    handle_lock(share);
    if (!share || export_begin(share, handle))
        r = driver.cuMemExportToShareableHandle(shareable_handle, handle, handle_type, flags);
    handle_unlock(share);
    return r;
}

static int16_t device_of_handle(struct share *share, CUmemGenericAllocationHandle handle) {
    CUmemAllocationProp prop = {0};

    if (driver.cuMemGetAllocationPropertiesFromHandle(&prop, handle) != CUDA_SUCCESS)
        return -1;
    return (int16_t) share_device(share, location_device(&prop.location));
}

/* The driver may return a handle that has an entry, and has then counted one more reference. */
static CUresult enter_import(struct import *import, CUmemGenericAllocationHandle handle) {
    struct share *share = import->share;
    struct entry entry = {.key = handle,
                          .link = import->foreign ? HANDLE_FOREIGN : HANDLE_IMPORTED,
                          .refs = 1,
                          .kind = ENTRY_HANDLE,
                          .device = -1};
    bool entered;

    if (books_ref(share, ENTRY_HANDLE, handle)) {
        import_ended(share);
        return CUDA_SUCCESS;
    }
    if (import->foreign)
        entry.device = device_of_handle(share, handle);
    books_lock(share);
    entered = allocations_reserve(books_allocations(share));
    if (entered)
        allocations_put(books_allocations(share), &entry);
    books_unlock(share);
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
    handle_lock(import.share);
    r = import_settle(&import,
                      driver.cuMemImportFromShareableHandle(handle, os_handle, sh_handle_type));
    if (r == CUDA_SUCCESS && import.share)
        r = enter_import(&import, *handle);
    handle_unlock(import.share);
    return r;
}
