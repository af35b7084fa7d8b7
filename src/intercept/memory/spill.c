/* SPDX-License-Identifier: Apache-2.0 */
#include "intercept/memory/spill.h"

/* How it is shown to the program: refs of its entry. */
enum {
    SHOWN_AS_DEVICE = 1,
    SHOWN_AS_MANAGED = 2,
};

static bool possible(const struct charge *where) {
    return where->share && !where->share->broken && where->device >= 0 &&
           where->share->bounded[where->device];
}

/* False on devices that would migrate the memory as a whole. */
static bool keep_off_card(const struct charge *where, CUdeviceptr dptr, size_t bytes) {
    int ordinal = share_ordinal(where->share, where->device);

    return driver.cuMemAdvise(dptr, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU) ==
               CUDA_SUCCESS &&
           driver.cuMemAdvise(dptr, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, ordinal) == CUDA_SUCCESS;
}

static void enter_spilled(struct charge *charge, CUdeviceptr dptr, uint32_t shown) {
    struct share *share = charge->share;
    struct entry *found;

    (void) charge_settle(charge, CUDA_SUCCESS, ENTRY_SPILLED, dptr, charge->context);
    books_lock(share);
    found = allocations_find(books_allocations(share), ENTRY_SPILLED, dptr);
    if (found)
        found->refs = shown;
    books_unlock(share);
    __atomic_store_n(&holdings_of(share)->spilled, true, __ATOMIC_RELEASE);
}

CUresult spill_allocate(const struct charge *where, CUdeviceptr *dptr, size_t bytes,
                        unsigned int flags, bool managed) {
    struct charge charge = *where;
    CUresult r;

    if (!possible(where) || !charge_reserve_spilled(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocManaged(dptr, bytes, flags);
    if (r == CUDA_SUCCESS && !keep_off_card(&charge, *dptr, bytes)) {
        (void) driver.cuMemFree_v2(*dptr);
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r == CUDA_SUCCESS)
        enter_spilled(&charge, *dptr, managed ? SHOWN_AS_MANAGED : SHOWN_AS_DEVICE);
    else
        (void) charge_settle(&charge, r, ENTRY_SPILLED, 0, 0);
    return r;
}

/* -- hints that would move it to the card, and queries that would reveal it
 * ----------------------------- */

struct range {
    CUdeviceptr from;
    size_t count;
};

static bool overlaps(const struct entry *e, const void *arg) {
    const struct range *range = arg;

    if (e->kind != ENTRY_SPILLED)
        return false;
    return range->from < e->key ? e->key - range->from < range->count
                                : range->from - e->key < e->bytes;
}

/* How the spilled memory in a range is shown; 0: there is none. */
static uint32_t spilled_in(CUdeviceptr from, size_t count) {
    struct share *share = __atomic_load_n(&share_memory, __ATOMIC_ACQUIRE);
    struct range range = {from, count};
    const struct entry *found;
    uint32_t shown;

    if (!share || !__atomic_load_n(&holdings_of(share)->spilled, __ATOMIC_ACQUIRE))
        return 0;
    books_lock(share);
    found = allocations_find_if(books_allocations(share), overlaps, &range);
    shown = found ? found->refs : 0;
    books_unlock(share);
    return shown;
}

/* A hint that is not followed, because the memory must stay where it is. */
static bool ignored(CUdeviceptr dptr, size_t count, CUmem_advise advice, bool to_host) {
    switch (advice) {
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        return !to_host && spilled_in(dptr, count);
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        return spilled_in(dptr, count);
    default:
        return false;
    }
}

static bool is_host(CUmemLocation location) {
    return location.type != CU_MEM_LOCATION_TYPE_DEVICE;
}

CUresult cuMemAdvise(CUdeviceptr dev_ptr, size_t count, CUmem_advise advice, CUdevice device) {
    if (ignored(dev_ptr, count, advice, device == CU_DEVICE_CPU))
        return CUDA_SUCCESS;
    return driver.cuMemAdvise(dev_ptr, count, advice, device);
}

CUresult cuMemAdvise_v2(CUdeviceptr dev_ptr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
    if (ignored(dev_ptr, count, advice, is_host(location)))
        return CUDA_SUCCESS;
    return driver.cuMemAdvise_v2(dev_ptr, count, advice, location);
}

CUresult cuMemPrefetchAsync(CUdeviceptr dev_ptr, size_t count, CUdevice dst, CUstream stream) {
    if (dst != CU_DEVICE_CPU && spilled_in(dev_ptr, count))
        return CUDA_SUCCESS;
    return driver.cuMemPrefetchAsync(dev_ptr, count, dst, stream);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr dev_ptr, size_t count, CUdevice dst, CUstream stream) {
    if (dst != CU_DEVICE_CPU && spilled_in(dev_ptr, count))
        return CUDA_SUCCESS;
    return driver.cuMemPrefetchAsync_ptsz(dev_ptr, count, dst, stream);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr dev_ptr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream stream) {
    if (!is_host(location) && spilled_in(dev_ptr, count))
        return CUDA_SUCCESS;
    return driver.cuMemPrefetchAsync_v2(dev_ptr, count, location, flags, stream);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr dev_ptr, size_t count, CUmemLocation location,
                                    unsigned int flags, CUstream stream) {
    if (!is_host(location) && spilled_in(dev_ptr, count))
        return CUDA_SUCCESS;
    return driver.cuMemPrefetchAsync_v2_ptsz(dev_ptr, count, location, flags, stream);
}

/* Whether a batch would bring memory to the card that must not go there: then none of it is
 * prefetched. */
static bool batch_ignored(const CUdeviceptr *dptrs, const size_t *sizes, size_t count) {
    for (size_t i = 0; dptrs && sizes && i < count; i++)
        if (spilled_in(dptrs[i], sizes[i]))
            return true;
    return false;
}

#define PREFETCH_BATCH(symbol)                                                                     \
    CUresult symbol(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *locations,     \
                    size_t *location_indexes, size_t num_locations, unsigned long long flags,      \
                    CUstream stream) {                                                             \
        if (batch_ignored(dptrs, sizes, count))                                                    \
            return CUDA_SUCCESS;                                                                   \
        return driver.symbol(dptrs, sizes, count, locations, location_indexes, num_locations,      \
                             flags, stream);                                                       \
    }

PREFETCH_BATCH(cuMemPrefetchBatchAsync)
PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync)
PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz)

/* Memory that the program did not allocate as managed is shown as other memory of the device. */
static void disguise(CUpointer_attribute attribute, void *data) {
    if (!data)
        return;
    if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        *(unsigned int *) data = 0;
    else if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(unsigned int *) data = CU_MEMORYTYPE_DEVICE;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    CUresult r = driver.cuPointerGetAttribute(data, attribute, ptr);

    if (r == CUDA_SUCCESS && spilled_in(ptr, 1) == SHOWN_AS_DEVICE)
        disguise(attribute, data);
    return r;
}

CUresult cuPointerGetAttributes(unsigned int num_attributes, CUpointer_attribute *attributes,
                                void **data, CUdeviceptr ptr) {
    CUresult r = driver.cuPointerGetAttributes(num_attributes, attributes, data, ptr);

    if (r == CUDA_SUCCESS && spilled_in(ptr, 1) == SHOWN_AS_DEVICE)
        for (unsigned int i = 0; i < num_attributes; i++)
            disguise(attributes[i], data[i]);
    return r;
}
