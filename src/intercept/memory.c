/* SPDX-License-Identifier: Apache-2.0 */

/* Linear, pitched, managed and stream-ordered memory. */

#include "intercept/charge.h"

static CUresult settle_pointer(struct charge *charge, CUresult result, const CUdeviceptr *dptr) {
    return charge_settle(charge, result, ENTRY_POINTER, result == CUDA_SUCCESS ? *dptr : 0,
                         charge->context);
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes) {
    struct charge charge;
    CUresult r;

    charge_on_current(&charge);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAlloc_v2(dptr, bytes);
    return settle_pointer(&charge, r, dptr);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytes) {
    struct charge charge;
    CUdeviceptr wide = 0;
    CUresult r;

    charge_on_current(&charge);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAlloc(dptr, bytes);
    if (r == CUDA_SUCCESS)
        wide = *dptr;
    return settle_pointer(&charge, r, &wide);
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags) {
    struct charge charge;
    CUresult r;

    charge_on_current(&charge);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocManaged(dptr, bytes, flags);
    return settle_pointer(&charge, r, dptr);
}

/* Only the driver knows the pitch: at least width * height are needed before, and what comes on top
 * is booked when it is known. */
CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes) {
    struct charge charge;
    uint64_t least, actual;
    CUresult r;

    charge_on_current(&charge);
    if (__builtin_mul_overflow(width, height, &least))
        least = UINT64_MAX;
    if (!charge_reserve(&charge, least))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocPitch_v2(dptr, pitch, width, height, element_bytes);
    if (r == CUDA_SUCCESS) {
        if (__builtin_mul_overflow(*pitch, height, &actual) || actual < least)
            actual = least;
        if (!charge_add(&charge, actual - least)) {
            (void) driver.cuMemFree_v2(*dptr);
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return settle_pointer(&charge, r, dptr);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width,
                         unsigned int height, unsigned int element_bytes) {
    struct charge charge;
    CUdeviceptr wide = 0;
    uint64_t least = (uint64_t) width * height, actual;
    CUresult r;

    charge_on_current(&charge);
    if (!charge_reserve(&charge, least))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocPitch(dptr, pitch, width, height, element_bytes);
    if (r == CUDA_SUCCESS) {
        wide = *dptr;
        actual = (uint64_t) *pitch * height;
        if (actual > least && !charge_add(&charge, actual - least)) {
            (void) driver.cuMemFree(*dptr);
            r = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return settle_pointer(&charge, r, &wide);
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    struct refund refund;

    refund_begin(&refund, ENTRY_POINTER, dptr);
    return refund_settle(&refund, driver.cuMemFree_v2(dptr));
}

CUresult cuMemFree(CUdeviceptr_v1 dptr) {
    struct refund refund;

    refund_begin(&refund, ENTRY_POINTER, dptr);
    return refund_settle(&refund, driver.cuMemFree(dptr));
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
    struct charge charge;
    CUresult r;

    charge_on_stream(&charge, stream, false);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocAsync(dptr, bytes, stream);
    return settle_pointer(&charge, r, dptr);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
    struct charge charge;
    CUresult r;

    charge_on_stream(&charge, stream, true);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocAsync_ptsz(dptr, bytes, stream);
    return settle_pointer(&charge, r, dptr);
}

/* A pool's memory is where the pool is, which may be the host's. */
static void charge_on_pool(struct charge *charge, CUmemoryPool pool, CUstream stream,
                           bool per_thread) {
    const struct entry *found;

    charge_on_stream(charge, stream, per_thread);
    if (!charge->share)
        return;
    lock_take(&charge->share->table_lock);
    found = table_find(&charge->share->table, ENTRY_POOL, (uint64_t) (uintptr_t) pool);
    if (found)
        charge->device = found->device;
    lock_drop(&charge->share->table_lock);
    if (found && charge->device < 0)
        charge->share = NULL;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    struct charge charge;
    CUresult r;

    charge_on_pool(&charge, pool, stream, false);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocFromPoolAsync(dptr, bytes, pool, stream);
    return settle_pointer(&charge, r, dptr);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
    struct charge charge;
    CUresult r;

    charge_on_pool(&charge, pool, stream, true);
    if (!charge_reserve(&charge, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMemAllocFromPoolAsync_ptsz(dptr, bytes, pool, stream);
    return settle_pointer(&charge, r, dptr);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
    struct refund refund;

    refund_begin(&refund, ENTRY_POINTER, dptr);
    return refund_settle(&refund, driver.cuMemFreeAsync(dptr, stream));
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream stream) {
    struct refund refund;

    refund_begin(&refund, ENTRY_POINTER, dptr);
    return refund_settle(&refund, driver.cuMemFreeAsync_ptsz(dptr, stream));
}

/* Remembers where a pool is. Without memory for that, its allocations count for the stream's
 * device. */
static void pool_note(CUmemoryPool pool, int device) {
    struct entry entry = {
        .key = (uint64_t) (uintptr_t) pool, .kind = ENTRY_POOL, .device = (int16_t) device};
    struct share *share = share_claim();

    if (!share)
        return;
    lock_take(&share->table_lock);
    if (!table_find(&share->table, ENTRY_POOL, entry.key) && table_promise(&share->table))
        table_put(&share->table, &entry);
    lock_drop(&share->table_lock);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *pool_props) {
    CUresult r = driver.cuMemPoolCreate(pool, pool_props);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        pool_note(*pool, pool_props->location.type == CU_MEM_LOCATION_TYPE_DEVICE
                             ? share_device(share, pool_props->location.id)
                             : -1);
    return r;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    struct refund refund;

    refund_begin(&refund, ENTRY_POOL, (uint64_t) (uintptr_t) pool);
    return refund_settle(&refund, driver.cuMemPoolDestroy(pool));
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev) {
    CUresult r = driver.cuDeviceGetDefaultMemPool(pool, dev);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        pool_note(*pool, share_device(share, dev));
    return r;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    CUresult r = driver.cuDeviceGetMemPool(pool, dev);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;

    if (share)
        pool_note(*pool, share_device(share, dev));
    return r;
}
