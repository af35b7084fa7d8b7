/* SPDX-License-Identifier: Apache-2.0 */

/* Multicast objects hold no memory of their own; what is bound to one stays while it is bound.
 * Sparse arrays likewise. */

#include "intercept/memory/charge.h"
#include "intercept/memory/vmm.h"

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mc_handle,
                           const CUmulticastObjectProp *prop) {
    struct charge charge = {.share = share_claim(), .device = -1};
    bool room = true;
    CUresult r;

    if (charge.share) {
        lock_take(&charge.share->table_lock);
        room = table_promise(&charge.share->table);
        lock_drop(&charge.share->table_lock);
    }
    if (!room)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = driver.cuMulticastCreate(mc_handle, prop);
    return charge_settle(&charge, r, ENTRY_HANDLE, r == CUDA_SUCCESS ? *mc_handle : 0, HANDLE_OWN);
}

/* Binds memory by `call`. */
#define BIND(mc_handle, mc_offset, memory, call)                                                   \
    do {                                                                                           \
        struct share *share = share_claim();                                                       \
        uint64_t handle = share ? (memory) : 0;                                                    \
        bool counted = handle && binding_begin(share, handle);                                     \
        CUresult r = call;                                                                         \
                                                                                                   \
        return counted ? binding_settle(share, r, mc_handle, mc_offset, handle) : r;               \
    } while (0)

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mc_handle, size_t mc_offset,
                            CUmemGenericAllocationHandle mem_handle, size_t mem_offset, size_t size,
                            unsigned long long flags) {
    BIND(mc_handle, mc_offset, mem_handle,
         driver.cuMulticastBindMem(mc_handle, mc_offset, mem_handle, mem_offset, size, flags));
}

CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mc_handle, CUdevice dev,
                               size_t mc_offset, CUmemGenericAllocationHandle mem_handle,
                               size_t mem_offset, size_t size, unsigned long long flags) {
    BIND(mc_handle, mc_offset, mem_handle,
         driver.cuMulticastBindMem_v2(mc_handle, dev, mc_offset, mem_handle, mem_offset, size,
                                      flags));
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mc_handle, size_t mc_offset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags) {
    BIND(mc_handle, mc_offset, handle_mapped_at(share, memptr),
         driver.cuMulticastBindAddr(mc_handle, mc_offset, memptr, size, flags));
}

CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mc_handle, CUdevice dev,
                                size_t mc_offset, CUdeviceptr memptr, size_t size,
                                unsigned long long flags) {
    BIND(mc_handle, mc_offset, handle_mapped_at(share, memptr),
         driver.cuMulticastBindAddr_v2(mc_handle, dev, mc_offset, memptr, size, flags));
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mc_handle, CUdevice dev, size_t mc_offset,
                           size_t size) {
    CUresult r = driver.cuMulticastUnbind(mc_handle, dev, mc_offset, size);
    struct share *share = r == CUDA_SUCCESS ? share_claim() : NULL;
    uint64_t end;

    if (share && !__builtin_add_overflow(mc_offset, size, &end))
        bindings_end(share, mc_handle, mc_offset, end, dev);
    return r;
}

/* The pieces of a sparse array are told apart by what the program calls them: a piece that is taken
 * away under another name stays counted until the array goes. */
static uint64_t place_of(const CUarrayMapInfo *info) {
    const unsigned char *bytes = (const unsigned char *) &info->subresource;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ info->subresourceType;

    for (size_t i = 0; i < sizeof(info->subresource); i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash == UINT64_MAX ? 0 : hash;
}

/* The array and the mipmapped array are the same in the union. */
static uint64_t object_of(const CUarrayMapInfo *info) {
    return (uint64_t) (uintptr_t) info->resource.array;
}

typedef CUresult map_array_fn(CUarrayMapInfo *, unsigned int, CUstream);

static CUresult map_piece(map_array_fn *fn, struct share *share, CUarrayMapInfo *info,
                          CUstream stream) {
    bool map = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP;
    bool counted = map && binding_begin(share, info->memHandle.memHandle);
    uint64_t place = place_of(info);
    CUresult r = fn(info, 1, stream);

    if (counted)
        return binding_settle(share, r, object_of(info), place, info->memHandle.memHandle);
    if (!map && r == CUDA_SUCCESS)
        bindings_end(share, object_of(info), place, place + 1, -1);
    return r;
}

/* One by one, so that each is counted as far as the driver got. */
static CUresult map_array(map_array_fn *fn, CUarrayMapInfo *list, unsigned int count,
                          CUstream stream) {
    struct share *share = list && count > 0 ? share_claim() : NULL;
    CUresult r = CUDA_SUCCESS;

    if (!share)
        return fn(list, count, stream);
    for (unsigned int i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = map_piece(fn, share, &list[i], stream);
    return r;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *map_info_list, unsigned int count, CUstream stream) {
    return map_array(driver.cuMemMapArrayAsync, map_info_list, count, stream);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *map_info_list, unsigned int count,
                                 CUstream stream) {
    return map_array(driver.cuMemMapArrayAsync_ptsz, map_info_list, count, stream);
}
