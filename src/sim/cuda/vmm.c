/* SPDX-License-Identifier: Apache-2.0 */

/* Virtual memory management: addresses are reserved, memory is created, the one is mapped to the
 * other. All memory created lives in one sparse file of this process, because the same memory may
 * be mapped twice, and because a descriptor each would soon be too many. */

#include "sim/cuda/vmm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/cuda/multicast.h"
#include "sim/cuda/shared.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

#define GRANULARITY ((size_t) 2 << 20)
#define HEAP_BYTES ((off_t) 1 << 46)

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#define FALLOC_FL_PUNCH_HOLE 2
#endif

struct handle {
    struct handle *next;
    CUmemAllocationProp prop;
    size_t size;
    off_t offset;         /* in the heap file */
    struct shared shared; /* in a file of its own, if shared.fd >= 0 */
    unsigned int references;
    unsigned int mappings;
};

struct mapping {
    struct mapping *next;
    CUdeviceptr base;
    size_t size;
    struct handle *handle;
    CUmemAccess_flags access;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here; taken before cuda_lock */
static struct handle *handles;
static int heap = -1;
static off_t heap_used;

static bool is_aligned(unsigned long long v) {
    return v % GRANULARITY == 0;
}

/* With the lock. The handle may be any number. */
static struct handle *find_handle(CUmemGenericAllocationHandle h) {
    for (struct handle *i = handles; i; i = i->next)
        if ((uintptr_t) i == h)
            return i->references > 0 ? i : NULL;
    return NULL;
}

static bool open_heap(void) {
    if (heap >= 0)
        return true;
    heap = (int) syscall(SYS_memfd_create, "aliquot-sim-vmm", 1u /* close on exec */);
    if (heap >= 0 && ftruncate(heap, HEAP_BYTES) < 0) {
        (void) close(heap);
        heap = -1;
    }
    return heap >= 0;
}

/* With the lock: frees memory without references and mappings. */
static void drop_if_unused(struct handle *h) {
    if (h->references > 0 || h->mappings > 0)
        return;
    for (struct handle **p = &handles; *p; p = &(*p)->next)
        if (*p == h) {
            *p = h->next;
            break;
        }
    if (h->shared.fd >= 0) {
        shared_close(&h->shared);
    } else {
        (void) syscall(SYS_fallocate, heap, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, h->offset,
                       (off_t) h->size);
        cuda_give(h->prop.location.id, h->size);
    }
    free(h);
}

bool vmm_covers(const struct memory *m, CUdeviceptr p, size_t bytes) {
    (void) pthread_mutex_lock(&lock);
    bool progress = true;
    while (bytes > 0 && progress) {
        progress = false;
        for (const struct mapping *i = m->mappings; i && !progress; i = i->next) {
            if (p < i->base || p - i->base >= i->size || i->access == CU_MEM_ACCESS_FLAGS_PROT_NONE)
                continue;
            size_t here = i->size - (p - i->base);
            here = here < bytes ? here : bytes;
            p += here;
            bytes -= here;
            progress = true;
        }
    }
    (void) pthread_mutex_unlock(&lock);
    return bytes == 0;
}

/* -- addresses ------------------------------------------------------------------------------- */

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
    CUDA_TRY(cuda_enter());
    if (!ptr || size == 0 || !is_aligned(size) || flags != 0 || (alignment & (alignment - 1)))
        return CUDA_ERROR_INVALID_VALUE;
    size_t step = alignment > GRANULARITY ? alignment : GRANULARITY;
    size_t room;
    if (__builtin_add_overflow(size, step, &room))
        return CUDA_ERROR_INVALID_VALUE;
    char *p = mmap((void *) (uintptr_t) addr, room, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t before = (step - (uintptr_t) p % step) % step;
    if (before > 0)
        (void) munmap(p, before);
    (void) munmap(p + before + size, step - before);
    struct memory m = {.base = (uintptr_t) p + before, .size = size, .kind = MEMORY_RESERVED};
    if (memory_add(&m, NULL) < 0) {
        (void) munmap(p + before, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ptr = m.base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    CUDA_TRY(cuda_enter());
    struct memory *m = memory_at(ptr, MEMORY_RESERVED);
    if (!m || m->size != size || m->mappings)
        return CUDA_ERROR_INVALID_VALUE;
    memory_remove(m);
    (void) munmap((void *) (uintptr_t) ptr, size);
    free(m);
    return CUDA_SUCCESS;
}

/* -- memory ---------------------------------------------------------------------------------- */

static CUresult check_prop(const CUmemAllocationProp *prop) {
    if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return cuda_enter_device(prop->location.id);
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option) {
    (void) option;
    CUDA_TRY(cuda_enter());
    CUDA_TRY(check_prop(prop));
    CUDA_RETURN_VALUE(granularity, GRANULARITY);
}

/* Creates a handle by its description, with space in the heap where it has no file of its own. */
static CUresult handle_new(const struct handle *from, CUmemGenericAllocationHandle *ret) {
    struct handle *h = calloc(1, sizeof(*h));
    if (!h)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *h = *from;
    bool own = h->shared.fd >= 0;
    (void) pthread_mutex_lock(&lock);
    bool ok = own || (open_heap() && (off_t) h->size <= HEAP_BYTES - heap_used);
    if (ok) {
        h->offset = own ? 0 : heap_used;
        heap_used += own ? 0 : (off_t) h->size;
        LIST_PUSH(handles, h, next);
        *ret = (uintptr_t) h;
    }
    (void) pthread_mutex_unlock(&lock);
    if (!ok)
        free(h);
    return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
    CUDA_TRY(cuda_enter());
    CUDA_TRY(check_prop(prop));
    if (!handle || size == 0 || !is_aligned(size) || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~(unsigned int) CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult r = cuda_take(prop->location.id, size);
    if (r != CUDA_SUCCESS)
        return r;
    struct handle h = {.prop = *prop, .size = size, .references = 1, .shared = {.fd = -1}};
    if (prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
        r = shared_new(prop->location.id, size, &h.shared);
    if (r == CUDA_SUCCESS)
        r = handle_new(&h, handle);
    if (r == CUDA_SUCCESS)
        return r;
    if (h.shared.fd >= 0)
        shared_close(&h.shared);
    else
        cuda_give(prop->location.id, size);
    return r;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    CUDA_TRY(cuda_enter());
    if (multicast_is(handle))
        return multicast_release(handle);
    (void) pthread_mutex_lock(&lock);
    struct handle *h = find_handle(handle);
    if (h) {
        h->references--;
        drop_if_unused(h);
    }
    (void) pthread_mutex_unlock(&lock);
    return h ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle) {
    CUDA_TRY(cuda_enter());
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    const struct handle *h = find_handle(handle);
    if (h)
        *prop = h->prop;
    (void) pthread_mutex_unlock(&lock);
    return h ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- between processes ----------------------------------------------------------------------- */

CUresult cuMemExportToShareableHandle(void *shareable_handle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handle_type,
                                      unsigned long long flags) {
    CUDA_TRY(cuda_enter());
    if (!shareable_handle || flags != 0 || handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    const struct handle *h = find_handle(handle);
    CUresult r = h && h->shared.fd >= 0 ? shared_export(&h->shared, shareable_handle)
                                        : CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType sh_handle_type) {
    CUDA_TRY(cuda_enter());
    if (!handle || sh_handle_type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    struct handle h = {.references = 1};
    CUDA_TRY(shared_import((int) (intptr_t) os_handle, &h.shared));
    h.size = h.shared.bytes;
    h.prop = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                   .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                   .location = {CU_MEM_LOCATION_TYPE_DEVICE, h.shared.device}};
    CUresult r =
        h.size > 0 && is_aligned(h.size) ? handle_new(&h, handle) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        shared_close(&h.shared);
    return r;
}

/* -- mappings -------------------------------------------------------------------------------- */

static bool overlaps(const struct memory *m, CUdeviceptr ptr, size_t size) {
    for (const struct mapping *i = m->mappings; i; i = i->next)
        if (ptr < i->base + i->size && i->base < ptr + size)
            return true;
    return false;
}

/* The reservation that holds all of a range; NULL if none does. */
static struct memory *find_reservation(CUdeviceptr ptr, size_t size) {
    struct memory *m = memory_find(ptr);
    if (!m || m->kind != MEMORY_RESERVED || size > m->size || ptr - m->base > m->size - size)
        return NULL;
    return m;
}

/* With the lock. */
static CUresult map_handle(struct memory *m, CUdeviceptr ptr, size_t size, size_t offset,
                           struct handle *h) {
    if (overlaps(m, ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    struct mapping *i = calloc(1, sizeof(*i));
    if (!i)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = h->shared.fd >= 0 ? h->shared.fd : heap;
    void *p = mmap((void *) (uintptr_t) ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, fd,
                   h->offset + (off_t) offset);
    if (p == MAP_FAILED) {
        free(i);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void) madvise(p, size, MADV_DONTFORK);
    *i = (struct mapping){.next = m->mappings, .base = ptr, .size = size, .handle = h};
    m->mappings = i;
    h->mappings++;
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    CUDA_TRY(cuda_enter());
    if (multicast_is(handle))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct memory *m = find_reservation(ptr, size);
    if (!m || size == 0 || !is_aligned(ptr) || !is_aligned(size) || !is_aligned(offset) ||
        flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    struct handle *h = find_handle(handle);
    CUresult r = h && offset <= h->size && size <= h->size - offset
                     ? map_handle(m, ptr, size, offset, h)
                     : CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_unlock(&lock);
    return r;
}

/* Is the range a whole number of mappings, without gaps? With the lock. */
static bool is_whole(const struct memory *m, CUdeviceptr ptr, size_t size) {
    size_t covered = 0;
    for (const struct mapping *i = m->mappings; i; i = i->next) {
        bool inside = i->base >= ptr && i->base + i->size <= ptr + size;
        bool touches = i->base < ptr + size && ptr < i->base + i->size;
        if (touches && !inside)
            return false;
        covered += inside ? i->size : 0;
    }
    return covered == size;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
    CUDA_TRY(cuda_enter());
    struct memory *m = find_reservation(ptr, size);
    if (!m || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    worker_wait_all();
    (void) pthread_mutex_lock(&lock);
    bool whole = is_whole(m, ptr, size);
    for (struct mapping **p = (struct mapping **) &m->mappings; whole && *p;) {
        struct mapping *i = *p;
        if (i->base < ptr || i->base >= ptr + size) {
            p = &i->next;
            continue;
        }
        (void) mmap((void *) (uintptr_t) i->base, i->size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        *p = i->next;
        i->handle->mappings--;
        drop_if_unused(i->handle);
        free(i);
    }
    (void) pthread_mutex_unlock(&lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Every device of the process reaches all memory: access for one is access for all. */
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
    CUDA_TRY(cuda_enter());
    struct memory *m = find_reservation(ptr, size);
    if (!m || size == 0 || !desc || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (size_t i = 0; i < count; i++)
        if (desc[i].flags > flags)
            flags = desc[i].flags;
    int prot = flags == CU_MEM_ACCESS_FLAGS_PROT_NONE   ? PROT_NONE
               : flags == CU_MEM_ACCESS_FLAGS_PROT_READ ? PROT_READ
                                                        : PROT_READ | PROT_WRITE;
    (void) pthread_mutex_lock(&lock);
    bool whole = is_whole(m, ptr, size);
    for (struct mapping *i = m->mappings; whole && i; i = i->next) {
        if (i->base < ptr || i->base >= ptr + size)
            continue;
        i->access = flags;
        (void) mprotect((void *) (uintptr_t) i->base, i->size, prot);
    }
    (void) pthread_mutex_unlock(&lock);
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* With the lock. */
static struct mapping *find_mapping(CUdeviceptr ptr) {
    struct memory *m = find_reservation(ptr, 1);
    for (struct mapping *i = m ? m->mappings : NULL; i; i = i->next)
        if (ptr >= i->base && ptr - i->base < i->size)
            return i;
    return NULL;
}

CUresult vmm_hold(CUmemGenericAllocationHandle handle, size_t offset, size_t size, int *ret_device,
                  void **ret) {
    (void) pthread_mutex_lock(&lock);
    struct handle *h = find_handle(handle);
    bool fits = h && is_aligned(offset) && size <= h->size && offset <= h->size - size;
    if (fits) {
        h->mappings++;
        *ret_device = h->prop.location.id;
        *ret = h;
    }
    (void) pthread_mutex_unlock(&lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult vmm_hold_at(CUdeviceptr ptr, size_t size, int *ret_device, void **ret) {
    (void) pthread_mutex_lock(&lock);
    const struct mapping *i = find_mapping(ptr);
    bool fits = i && is_aligned(ptr) && size <= i->size && ptr - i->base <= i->size - size;
    if (fits) {
        i->handle->mappings++;
        *ret_device = i->handle->prop.location.id;
        *ret = i->handle;
    }
    (void) pthread_mutex_unlock(&lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void vmm_drop(void *hold) {
    struct handle *h = hold;
    (void) pthread_mutex_lock(&lock);
    h->mappings--;
    drop_if_unused(h);
    (void) pthread_mutex_unlock(&lock);
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
    CUDA_TRY(cuda_enter());
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    const struct mapping *i = find_mapping(ptr);
    if (i)
        *flags = i->access;
    (void) pthread_mutex_unlock(&lock);
    return i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
    CUDA_TRY(cuda_enter());
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    const struct mapping *i = find_mapping((uintptr_t) addr);
    if (i) {
        i->handle->references++;
        *handle = (uintptr_t) i->handle;
    }
    (void) pthread_mutex_unlock(&lock);
    return i ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
