/* SPDX-License-Identifier: Apache-2.0 */

/* Stream-ordered allocation. A pool holds bytes of its device: those in use, and those kept for
 * next time up to its release threshold. Allocations take effect at submission; so do frees. */

#include "sim/cuda/pool.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/graph_memory.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/shared.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

struct CUmemPoolHandle_st {
    enum cuda_tag tag;
    struct CUmemPoolHandle_st *next; /* of all that ever were: their memory is kept */
    int device;
    bool is_default;
    uint64_t threshold;
    uint64_t held, held_high; /* charged to the device */
    uint64_t used, used_high;
    int reuse[3];
    bool shareable;
    struct shared shared; /* its identity in other processes, once it was exported */
    bool imported;        /* it represents the pool of another process */
};

/* Of the figures; taken before cuda_lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static CUmemoryPool pools;

static CUmemoryPool pool_new(int device, bool is_default) {
    CUmemoryPool p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->tag = TAG_POOL;
    p->device = device;
    p->is_default = is_default;
    p->shared.fd = -1;
    (void) pthread_mutex_lock(&cuda_lock);
    LIST_PUSH(pools, p, next);
    (void) pthread_mutex_unlock(&cuda_lock);
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    return p;
}

static CUresult pool_take(CUmemoryPool p, size_t bytes) {
    CUresult r = CUDA_SUCCESS;
    (void) pthread_mutex_lock(&lock);
    uint64_t kept = p->held - p->used;
    if (bytes > kept) {
        r = cuda_take(p->device, bytes - kept);
        if (r == CUDA_SUCCESS)
            p->held += bytes - kept;
    }
    if (r == CUDA_SUCCESS)
        p->used += bytes;
    p->held_high = p->held > p->held_high ? p->held : p->held_high;
    p->used_high = p->used > p->used_high ? p->used : p->used_high;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

/* Frees the unused bytes above `keep`. */
static void trim_pool(CUmemoryPool p, uint64_t keep) {
    uint64_t floor = p->used > keep ? p->used : keep;
    if (p->held <= floor)
        return;
    cuda_give(p->device, p->held - floor);
    p->held = floor;
}

void pool_give(CUmemoryPool p, size_t bytes, bool shared) {
    (void) pthread_mutex_lock(&lock);
    p->used -= bytes;
    if (shared)
        p->held -= bytes;
    trim_pool(p, p->tag == TAG_POOL ? p->threshold : 0);
    (void) pthread_mutex_unlock(&lock);
}

static CUmemoryPool default_pool(int device) {
    struct cuda_device *d = &cuda_device[device];
    (void) pthread_mutex_lock(&lock);
    if (!d->default_pool)
        d->default_pool = pool_new(device, true);
    if (!d->current_pool)
        d->current_pool = d->default_pool;
    (void) pthread_mutex_unlock(&lock);
    return d->default_pool;
}

static CUmemoryPool current_pool(int device) {
    return default_pool(device) ? cuda_device[device].current_pool : NULL;
}

static CUresult enter_pool(CUmemoryPool pool) {
    CUDA_TRY(cuda_enter());
    return pool && pool->tag == TAG_POOL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* In a capture the graph's own memory takes the pool's place. */
static CUresult capture_alloc(CUstream s, CUmemoryPool pool, size_t bytes, CUdeviceptr *dptr) {
    CUgraphNodeParams p = {
        .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, pool->device}},
                  .bytesize = bytes}};
    CUresult r = capture_add(s, &p);
    if (r == CUDA_SUCCESS)
        *dptr = p.alloc.dptr;
    return r;
}

static CUresult capture_free(CUstream s, const struct memory *m) {
    if (m->kind != MEMORY_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {.dptr = m->base}};
    return capture_add(s, &p);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    CUDA_TRY(enter_pool(pool));
    if (!dptr || bytes == 0 || pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture)
        return capture_alloc(s, pool, bytes, dptr);
    CUDA_TRY(pool_take(pool, bytes));
    struct memory *m;
    CUresult r = memory_new(MEMORY_POOL, s->context, pool->device, bytes, &m);
    if (r != CUDA_SUCCESS) {
        pool_give(pool, bytes, false);
        return r;
    }
    m->pool = pool;
    *dptr = m->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *dptr, size_t bytes, CUstream stream) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    CUmemoryPool pool = current_pool(s->context->device);
    return pool ? cuMemAllocFromPoolAsync(dptr, bytes, pool, stream) : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream stream) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    struct memory *m = memory_find(dptr);
    if (dptr == 0 || !m || m->base != dptr || !memory_is_freeable(m))
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture)
        return capture_free(s, m);
    if (m->kind == MEMORY_GRAPH)
        return graph_alloc_give(m->graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    memory_free(m);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!pool_out)
        return CUDA_ERROR_INVALID_VALUE;
    *pool_out = default_pool(dev);
    return *pool_out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    *pool = current_pool(dev);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
    CUDA_TRY(cuda_enter_device(dev));
    CUDA_TRY(enter_pool(pool));
    if (pool->device != dev)
        return CUDA_ERROR_INVALID_DEVICE;
    cuda_device[dev].current_pool = pool;
    return CUDA_SUCCESS;
}

/* There are pools of devices only, not of the host and not of managed memory. */
static CUresult enter_place(const CUmemLocation *location, CUmemAllocationType type,
                            const void *out) {
    CUDA_TRY(cuda_enter());
    if (!location || !out)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                                CUmemAllocationType type) {
    CUresult r = enter_place(location, type, pool_out);
    return r == CUDA_SUCCESS ? cuDeviceGetDefaultMemPool(pool_out, location->id) : r;
}

CUresult cuMemGetMemPool(CUmemoryPool *pool_out, CUmemLocation *location,
                         CUmemAllocationType type) {
    CUresult r = enter_place(location, type, pool_out);
    return r == CUDA_SUCCESS ? cuDeviceGetMemPool(pool_out, location->id) : r;
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool) {
    CUresult r = enter_place(location, type, pool);
    return r == CUDA_SUCCESS ? cuDeviceSetMemPool(location->id, pool) : r;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *pool_props) {
    CUDA_TRY(cuda_enter());
    if (!pool || !pool_props || pool_props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
        pool_props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool_props->handleTypes & ~(unsigned int) CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_TRY(cuda_enter_device(pool_props->location.id));
    CUmemoryPool p = pool_new(pool_props->location.id, false);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    p->shareable = pool_props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
    *pool = p;
    return CUDA_SUCCESS;
}

/* Allocations may outlive their pool; so does the pool's memory. */
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    CUDA_TRY(enter_pool(pool));
    if (pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    struct cuda_device *d = &cuda_device[pool->device];
    if (d->current_pool == pool)
        d->current_pool = d->default_pool;
    (void) pthread_mutex_lock(&lock);
    pool->tag = TAG_FREE;
    trim_pool(pool, 0);
    bool shared = pool->imported || pool->shared.id[0];
    (void) pthread_mutex_unlock(&lock);
    if (shared)
        shared_close(&pool->shared);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t min_bytes_to_keep) {
    CUDA_TRY(enter_pool(pool));
    (void) pthread_mutex_lock(&lock);
    trim_pool(pool, min_bytes_to_keep);
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Where a figure lives. The reuse switches are ints, the others 64 bits wide. */
static uint64_t *figure(CUmemoryPool p, CUmemPool_attribute attr) {
    switch (attr) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &p->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &p->held;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &p->held_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &p->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &p->used_high;
    default:
        return NULL;
    }
}

static bool is_switch(CUmemPool_attribute attr) {
    return attr >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    CUDA_TRY(enter_pool(pool));
    const uint64_t *f = figure(pool, attr);
    if (!value || (!f && !is_switch(attr)))
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    if (f)
        memcpy(value, f, sizeof(*f));
    else
        memcpy(value, &pool->reuse[attr - 1], sizeof(int));
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* The high-water marks can only be set back to zero, the current figures not at all. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value) {
    CUDA_TRY(enter_pool(pool));
    uint64_t *f = figure(pool, attr), v = 0;
    if (!value || (!f && !is_switch(attr)) || attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
        attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        return CUDA_ERROR_INVALID_VALUE;
    if (f)
        memcpy(&v, value, sizeof(v));
    if (f && attr != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && v != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    if (!f)
        memcpy(&pool->reuse[attr - 1], value, sizeof(int));
    else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *f = v;
    else
        *f = attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? pool->used : pool->held;
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count) {
    CUDA_TRY(enter_pool(pool));
    return map && count > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool mem_pool,
                            CUmemLocation *location) {
    CUDA_TRY(enter_pool(mem_pool));
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

/* -- between processes ----------------------------------------------------------------------- */

/* A share of no bytes, which represents the pool. */
static CUresult stand_for(CUmemoryPool p) {
    CUresult r = CUDA_SUCCESS;
    struct shared s;
    (void) pthread_mutex_lock(&lock);
    if (!p->shared.id[0]) {
        r = shared_new(p->device, 0, &s);
        if (r == CUDA_SUCCESS)
            p->shared = s;
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool,
                                          CUmemAllocationHandleType handle_type,
                                          unsigned long long flags) {
    CUDA_TRY(enter_pool(pool));
    if (!handle_out || flags != 0 || !pool->shareable || pool->imported ||
        handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = stand_for(pool);
    return r == CUDA_SUCCESS ? shared_export(&pool->shared, handle_out) : r;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle,
                                            CUmemAllocationHandleType handle_type,
                                            unsigned long long flags) {
    CUDA_TRY(cuda_enter());
    struct shared s;
    if (!pool_out || flags != 0 || handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = shared_import((int) (intptr_t) handle, &s);
    if (r != CUDA_SUCCESS)
        return r;
    CUmemoryPool p = s.bytes == 0 ? pool_new(s.device, false) : NULL;
    if (!p) {
        r = s.bytes == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
        shared_close(&s);
        return r;
    }
    p->imported = true;
    p->shared = s;
    *pool_out = p;
    return CUDA_SUCCESS;
}

/* What travels in CUmemPoolPtrExportData. */
struct pointer_data {
    uint64_t magic;
    uint64_t pool[2];
    uint64_t memory[2];
};

#define POINTER_MAGIC 0x7265746e696f70ull

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *share_data_out, CUdeviceptr ptr) {
    CUDA_TRY(cuda_enter());
    struct memory *m = memory_at(ptr, MEMORY_POOL);
    if (!share_data_out || !m || !m->pool->shareable)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_TRY(stand_for(m->pool));
    CUDA_TRY(memory_share(m));
    const struct shared *p = &m->pool->shared;
    struct pointer_data d = {.magic = POINTER_MAGIC,
                             .pool = {p->id[0], p->id[1]},
                             .memory = {m->shared->id[0], m->shared->id[1]}};
    memset(share_data_out, 0, sizeof(*share_data_out));
    memcpy(share_data_out, &d, sizeof(d));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool,
                                CUmemPoolPtrExportData *share_data) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    CUDA_TRY(enter_pool(pool));
    struct pointer_data d;
    struct shared s;
    struct memory *m;
    if (!ptr_out || !share_data || !pool->imported)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&d, share_data, sizeof(d));
    if (d.magic != POINTER_MAGIC || d.pool[0] != pool->shared.id[0] ||
        d.pool[1] != pool->shared.id[1])
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = shared_open(d.memory, &s);
    if (r == CUDA_SUCCESS)
        r = memory_adopt(MEMORY_IMPORTED, ctx, &s, 0, s.bytes, &m);
    if (r != CUDA_SUCCESS)
        return r;
    m->pool = pool;
    *ptr_out = m->base;
    return CUDA_SUCCESS;
}
