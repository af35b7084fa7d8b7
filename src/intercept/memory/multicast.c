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
        books_lock(charge.share);
        room = allocations_reserve(books_allocations(charge.share));
        books_unlock(charge.share);
    }
    if (!room)
        return CUDA_ERROR_OUT_OF_MEMORY;
    handle_lock(charge.share);
    r = driver.cuMulticastCreate(mc_handle, prop);
    r = charge_settle(&charge, r, ENTRY_HANDLE, r == CUDA_SUCCESS ? *mc_handle : 0, HANDLE_OWN);
    handle_unlock(charge.share);
    return r;
}

/* Memory that is about to be bound. A handle without an entry may be one that is just being made or
 * released, so the driver is called under the handle lock for it; not for others, since a bind may
 * wait for other members of a team. */
struct bound {
    struct share *share;
    uint64_t handle;
    bool counted, locked;
};

static void bound_begin(struct bound *bound, struct share *share, uint64_t handle) {
    *bound = (struct bound){.share = share, .handle = handle};
    if (!share || !handle)
        return;
    bound->counted = binding_begin(share, handle);
    if (bound->counted)
        return;
    handle_lock(share);
    bound->counted = binding_begin(share, handle);
    bound->locked = !bound->counted;
    if (bound->counted)
        handle_unlock(share);
}

static CUresult bound_settle(const struct bound *bound, CUresult r, uint64_t object,
                             uint64_t place) {
    if (bound->locked)
        handle_unlock(bound->share);
    return bound->counted ? binding_settle(bound->share, r, object, place, bound->handle) : r;
}

/* Binds memory by `call`. */
#define BIND(mc_handle, mc_offset, memory, call)                                                   \
    do {                                                                                           \
        struct share *share = share_claim();                                                       \
        struct bound bound;                                                                        \
                                                                                                   \
        bound_begin(&bound, share, share ? (memory) : 0);                                          \
        return bound_settle(&bound, call, mc_handle, mc_offset);                                   \
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
    struct share *share = share_claim();
    uint64_t end;
    uint32_t mark;

    if (!share || __builtin_add_overflow(mc_offset, size, &end))
        return driver.cuMulticastUnbind(mc_handle, dev, mc_offset, size);
    mark = bindings_mark(share, mc_handle, mc_offset, end, dev);
    return bindings_settle(share, driver.cuMulticastUnbind(mc_handle, dev, mc_offset, size), mark);
}

/* The pieces of a sparse array are identified as the program names them: a piece that is unmapped
 * under another name stays counted until the array is destroyed. */
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
    uint64_t place = place_of(info), object = object_of(info);
    struct bound bound;
    uint32_t mark;

    if (info->memOperationType != CU_MEM_OPERATION_TYPE_MAP) {
        mark = bindings_mark(share, object, place, place + 1, -1);
        return bindings_settle(share, fn(info, 1, stream), mark);
    }
    bound_begin(&bound, share, info->memHandle.memHandle);
    return bound_settle(&bound, fn(info, 1, stream), object, place);
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
