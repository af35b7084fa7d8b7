/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/managed.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/stream.h"
#include "sim/list.h"

#define NOWHERE (-2) /* the driver's value for no location; CU_DEVICE_CPU is -1 */
#define HOST (-1)

struct managed {
    struct managed *next;
    struct memory *memory;
    int device; /* where the resident bytes are */
    size_t resident;
    uint64_t used; /* when it was used last, by a count of uses */
    bool read_mostly;
    int preferred;
    int prefetched;
    uint64_t accessed_by; /* bit per device; the highest is the host's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here; taken before cuda_lock */
static struct managed *all;
static _Atomic unsigned int nmanaged; /* in total; read without the lock */
static uint64_t uses;

struct managed *managed_new(struct memory *memory) {
    struct managed *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->memory = memory;
    m->device = memory->device;
    m->preferred = m->prefetched = NOWHERE;
    (void) pthread_mutex_lock(&lock);
    LIST_PUSH(all, m, next);
    nmanaged++;
    (void) pthread_mutex_unlock(&lock);
    return m;
}

/* With the lock. */
static void move_to_host(struct managed *m, size_t bytes) {
    if (bytes > m->resident)
        bytes = m->resident;
    m->resident -= bytes;
    if (bytes > 0)
        cuda_give_managed(m->device, bytes);
}

void managed_free(struct managed *m) {
    (void) pthread_mutex_lock(&lock);
    for (struct managed **p = &all; *p; p = &(*p)->next)
        if (*p == m) {
            *p = m->next;
            break;
        }
    nmanaged--;
    move_to_host(m, m->resident);
    (void) pthread_mutex_unlock(&lock);
    free(m);
}

/* With the lock: the longest unused on the device, but for one. */
static struct managed *least_recently_used(int device, const struct managed *except) {
    struct managed *found = NULL;
    for (struct managed *m = all; m; m = m->next)
        if (m != except && m->device == device && m->resident > 0 &&
            (!found || m->used < found->used))
            found = m;
    return found;
}

/* With the lock. */
static bool evict_from_card(int device, size_t bytes, const struct managed *except) {
    struct managed *m = least_recently_used(device, except);
    if (!m)
        return false;
    move_to_host(m, bytes);
    return true;
}

bool managed_evict(int device, size_t bytes) {
    (void) pthread_mutex_lock(&lock);
    bool moved = evict_from_card(device, bytes, NULL);
    (void) pthread_mutex_unlock(&lock);
    return moved;
}

/* With the lock: as much as there is room for; what does not fit stays on the host and is brought
 * and moved out again while it is used. */
static void move_to_card(struct managed *m, size_t bytes, int device) {
    m->used = ++uses;
    if (m->device != device) {
        move_to_host(m, m->resident);
        m->device = device;
    }
    if (bytes > m->memory->size)
        bytes = m->memory->size;
    while (bytes > m->resident) {
        size_t more = bytes - m->resident;
        if (cuda_take_managed(device, more) == CUDA_SUCCESS) {
            m->resident += more;
            continue;
        }
        if (evict_from_card(device, more, m))
            continue;
        size_t room = cuda_room(device);
        if (room == 0 || cuda_take_managed(device, room < more ? room : more) != CUDA_SUCCESS)
            return;
        m->resident += room < more ? room : more;
    }
}

void managed_touch(CUdeviceptr p, size_t bytes, int device) {
    struct memory *memory = nmanaged > 0 ? memory_find(p) : NULL;
    struct managed *m = memory ? memory->managed : NULL;
    if (!m)
        return;
    (void) pthread_mutex_lock(&lock);
    if (m->preferred != HOST)
        move_to_card(m, bytes > m->resident ? bytes : m->resident, device);
    (void) pthread_mutex_unlock(&lock);
}

/* -- the functions --------------------------------------------------------------------------- */

static CUresult enter_range(CUdeviceptr p, size_t count, struct managed **ret) {
    CUDA_TRY(cuda_enter());
    struct memory *m = memory_find(p);
    if (!m || !m->managed || count == 0 || count > m->size || p - m->base > m->size - count)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = m->managed;
    return CUDA_SUCCESS;
}

/* A device, or HOST for any kind of host location. */
static CUresult device_of(const CUmemLocation *l, int *ret) {
    if (l->type >= CU_MEM_LOCATION_TYPE_HOST && l->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT) {
        *ret = HOST;
        return CUDA_SUCCESS;
    }
    *ret = l->id;
    return l->type == CU_MEM_LOCATION_TYPE_DEVICE ? cuda_enter_device(l->id)
                                                  : CUDA_ERROR_INVALID_VALUE;
}

static CUmemLocation location_of(int device) {
    return device == HOST ? (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}
                          : (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr dev_ptr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream stream) {
    CUstream s;
    struct managed *m;
    int device;
    CUresult r = stream_enter_work(stream, &s);
    if (r == CUDA_SUCCESS && s->capture)
        return capture_refuse(s);
    if (r == CUDA_SUCCESS)
        r = enter_range(dev_ptr, count, &m);
    if (r == CUDA_SUCCESS)
        r = device_of(&location, &device);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    m->prefetched = device;
    if (device == HOST)
        move_to_host(m, count);
    else
        move_to_card(m, m->device == device ? m->resident + count : count, device);
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPrefetchAsync(CUdeviceptr dev_ptr, size_t count, CUdevice dst, CUstream stream) {
    return cuMemPrefetchAsync_v2(dev_ptr, count, location_of(dst), 0, stream);
}

/* locations[k] is for the ranges from location_indexes[k] to before location_indexes[k + 1]. */
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                 CUmemLocation *locations, size_t *location_indexes,
                                 size_t num_locations, unsigned long long flags, CUstream stream) {
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    if (!dptrs || !sizes || count == 0 || !locations || !location_indexes || num_locations == 0 ||
        num_locations > count || location_indexes[0] != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t k = 1; k < num_locations; k++)
        if (location_indexes[k] <= location_indexes[k - 1] || location_indexes[k] >= count)
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0, k = 0; i < count && r == CUDA_SUCCESS; i++) {
        if (k + 1 < num_locations && location_indexes[k + 1] == i)
            k++;
        r = cuMemPrefetchAsync_v2(dptrs[i], sizes[i], locations[k], 0, stream);
    }
    return r;
}

/* The driver may discard the contents; this one keeps them. */
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           CUmemLocation *locations, size_t *location_indexes,
                                           size_t num_locations, unsigned long long flags,
                                           CUstream stream) {
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, locations, location_indexes, num_locations,
                                   flags, stream);
}

/* With the lock. */
static CUresult apply_advice(struct managed *m, CUmem_advise advice, int device) {
    uint64_t bit = 1ull << (device == HOST ? 63 : device);
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        m->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        m->preferred = device;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        m->preferred = NOWHERE;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        m->accessed_by |= bit;
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        m->accessed_by &= ~bit;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool needs_location(CUmem_advise advice) {
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
           advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

CUresult cuMemAdvise_v2(CUdeviceptr dev_ptr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
    struct managed *m;
    int device = HOST;
    CUresult r = enter_range(dev_ptr, count, &m);
    if (r == CUDA_SUCCESS && needs_location(advice))
        r = device_of(&location, &device);
    if (r != CUDA_SUCCESS)
        return r;
    (void) pthread_mutex_lock(&lock);
    r = apply_advice(m, advice, device);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemAdvise(CUdeviceptr dev_ptr, size_t count, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(dev_ptr, count, advice, location_of(device));
}

static int type_of(int device) {
    return device == NOWHERE ? CU_MEM_LOCATION_TYPE_INVALID
           : device == HOST  ? CU_MEM_LOCATION_TYPE_HOST
                             : CU_MEM_LOCATION_TYPE_DEVICE;
}

/* The devices one after the other, then NOWHERE. */
static CUresult list_accessors(const struct managed *m, int *data, size_t n) {
    size_t k = 0;
    for (int i = 0; i < 64 && k < n; i++)
        if (m->accessed_by & (1ull << i))
            data[k++] = i == 63 ? HOST : i;
    while (k < n)
        data[k++] = NOWHERE;
    return CUDA_SUCCESS;
}

/* With the lock. */
static CUresult range_attribute(const struct managed *m, int *data, size_t size,
                                CUmem_range_attribute which) {
    if (which == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY)
        return size > 0 && size % 4 == 0 ? list_accessors(m, data, size / 4)
                                         : CUDA_ERROR_INVALID_VALUE;
    if (size != sizeof(*data))
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int) which) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *data = m->read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *data = m->preferred;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *data = m->prefetched;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *data = type_of(m->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *data = m->preferred < 0 ? 0 : m->preferred;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *data = type_of(m->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *data = m->prefetched < 0 ? 0 : m->prefetched;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemRangeGetAttributes(void **data, size_t *data_sizes, CUmem_range_attribute *attributes,
                                 size_t num_attributes, CUdeviceptr dev_ptr, size_t count) {
    struct managed *m;
    CUresult r = enter_range(dev_ptr, count, &m);
    if (r != CUDA_SUCCESS)
        return r;
    if (!data || !data_sizes || !attributes || num_attributes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    for (size_t i = 0; i < num_attributes && r == CUDA_SUCCESS; i++)
        r = data[i] ? range_attribute(m, data[i], data_sizes[i], attributes[i])
                    : CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemRangeGetAttribute(void *data, size_t data_size, CUmem_range_attribute attribute,
                                CUdeviceptr dev_ptr, size_t count) {
    return cuMemRangeGetAttributes(&data, &data_size, &attribute, 1, dev_ptr, count);
}
