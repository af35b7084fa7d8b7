/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/multicast.h"

#include <stdlib.h>

#include "sim/cuda/vmm.h"
#include "sim/list.h"

#define GRANULARITY ((size_t) 2 << 20)

struct binding {
    struct binding *next;
    int device;
    size_t offset, size; /* in the object */
    void *hold;
};

struct multicast {
    struct multicast *next;
    CUmulticastObjectProp prop;
    uint64_t devices; /* bit each */
    struct binding *bindings;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here; taken before vmm.c's */
static struct multicast *objects;

/* With the lock. The handle may be any number. */
static struct multicast *find_multicast(CUmemGenericAllocationHandle handle) {
    struct multicast *m = objects;
    while (m && (uintptr_t) m != handle)
        m = m->next;
    return m;
}

bool multicast_is(CUmemGenericAllocationHandle handle) {
    (void) pthread_mutex_lock(&lock);
    bool is = find_multicast(handle);
    (void) pthread_mutex_unlock(&lock);
    return is;
}

static void drop_binding(struct binding **p) {
    struct binding *b = *p;
    *p = b->next;
    vmm_drop(b->hold);
    free(b);
}

CUresult multicast_release(CUmemGenericAllocationHandle handle) {
    (void) pthread_mutex_lock(&lock);
    struct multicast **p = &objects;
    while (*p && (uintptr_t) *p != handle)
        p = &(*p)->next;
    struct multicast *m = *p;
    if (m) {
        *p = m->next;
        while (m->bindings)
            drop_binding(&m->bindings);
    }
    (void) pthread_mutex_unlock(&lock);
    free(m);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool is_supported(int device) {
    int value = 0;
    return cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device) ==
               CUDA_SUCCESS &&
           value;
}

static CUresult check_prop(const CUmulticastObjectProp *p) {
    CUDA_TRY(cuda_enter());
    if (!p || p->numDevices == 0 || p->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < cuda_ndevices; i++)
        if (!is_supported(i))
            return CUDA_ERROR_NOT_SUPPORTED;
    return p->numDevices <= (unsigned int) cuda_ndevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
                                   CUmulticastGranularity_flags option) {
    CUDA_TRY(check_prop(prop));
    if (!granularity || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mc_handle,
                           const CUmulticastObjectProp *prop) {
    CUDA_TRY(check_prop(prop));
    if (!mc_handle || prop->size == 0 || prop->size % GRANULARITY != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    struct multicast *m = calloc(1, sizeof(*m));
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    m->prop = *prop;
    (void) pthread_mutex_lock(&lock);
    LIST_PUSH(objects, m, next);
    (void) pthread_mutex_unlock(&lock);
    *mc_handle = (uintptr_t) m;
    return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mc_handle, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    (void) pthread_mutex_lock(&lock);
    struct multicast *m = find_multicast(mc_handle);
    uint64_t bit = 1ull << dev;
    bool room = m && !(m->devices & bit) &&
                (unsigned int) __builtin_popcountll(m->devices) < m->prop.numDevices;
    if (room)
        m->devices |= bit;
    (void) pthread_mutex_unlock(&lock);
    return room ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With the lock: owns `hold`, and drops it when it cannot be bound. */
static CUresult bind_memory(struct multicast *m, int device, size_t offset, size_t size,
                            void *hold) {
    struct binding *b = calloc(1, sizeof(*b));
    CUresult r = b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!m || !(m->devices & (1ull << device)) || offset % GRANULARITY || size % GRANULARITY ||
        size == 0 || size > m->prop.size || offset > m->prop.size - size)
        r = CUDA_ERROR_INVALID_VALUE;
    else if ((unsigned int) __builtin_popcountll(m->devices) < m->prop.numDevices)
        r = CUDA_ERROR_ILLEGAL_STATE; /* the team is not complete */
    for (const struct binding *i = r == CUDA_SUCCESS ? m->bindings : NULL; i; i = i->next)
        if (i->device == device && offset < i->offset + i->size && i->offset < offset + size)
            r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS) {
        free(b);
        vmm_drop(hold);
        return r;
    }
    *b = (struct binding){
        .next = m->bindings, .device = device, .offset = offset, .size = size, .hold = hold};
    m->bindings = b;
    return CUDA_SUCCESS;
}

/* Binds `size` bytes of the memory from `at` on, or (NULL) those at the address `at`. */
static CUresult bind_range(CUmemGenericAllocationHandle mc_handle, size_t mc_offset,
                           const CUmemGenericAllocationHandle *memory, CUdeviceptr at, size_t size,
                           unsigned long long flags) {
    int device;
    void *hold;
    CUDA_TRY(cuda_enter());
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    CUresult r = memory ? vmm_hold(*memory, at, size, &device, &hold)
                        : vmm_hold_at(at, size, &device, &hold);
    if (r == CUDA_SUCCESS)
        r = bind_memory(find_multicast(mc_handle), device, mc_offset, size, hold);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mc_handle, size_t mc_offset,
                            CUmemGenericAllocationHandle mem_handle, size_t mem_offset, size_t size,
                            unsigned long long flags) {
    return bind_range(mc_handle, mc_offset, &mem_handle, mem_offset, size, flags);
}

/* The memory says itself on which device it is. */
CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle mc_handle, CUdevice dev,
                               size_t mc_offset, CUmemGenericAllocationHandle mem_handle,
                               size_t mem_offset, size_t size, unsigned long long flags) {
    CUmemAllocationProp prop;
    CUDA_TRY(cuMemGetAllocationPropertiesFromHandle(&prop, mem_handle));
    if (prop.location.id != dev)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMulticastBindMem(mc_handle, mc_offset, mem_handle, mem_offset, size, flags);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mc_handle, size_t mc_offset,
                             CUdeviceptr memptr, size_t size, unsigned long long flags) {
    return bind_range(mc_handle, mc_offset, NULL, memptr, size, flags);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mc_handle, CUdevice dev, size_t mc_offset,
                           size_t size) {
    CUDA_TRY(cuda_enter_device(dev));
    (void) pthread_mutex_lock(&lock);
    struct multicast *m = find_multicast(mc_handle);
    struct binding **p = m ? &m->bindings : NULL;
    while (p && *p && ((*p)->device != dev || (*p)->offset != mc_offset || (*p)->size != size))
        p = &(*p)->next;
    bool found = p && *p;
    if (found)
        drop_binding(p);
    (void) pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
