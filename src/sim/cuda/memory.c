/* SPDX-License-Identifier: Apache-2.0 */

/* Linear, pitched, managed and host memory. */

#include "sim/cuda/memory.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/graph_memory.h"
#include "sim/cuda/managed.h"
#include "sim/cuda/pool.h"
#include "sim/cuda/shared.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/vmm.h"
#include "sim/cuda/worker.h"

#define SMALL ((size_t) 64 << 10) /* below: from the heap, or a process runs out of mappings */
#define PITCH 512u

/* The analyzer does not see that the tree keeps what is put into it. */
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"

static void *tree;

/* Ranges never overlap, so that two that do are the same one, or a key within it. */
static int compare_base(const void *a, const void *b) {
    const struct memory *x = a, *y = b;
    if (x->base + x->size <= y->base)
        return -1;
    return x->base >= y->base + y->size;
}

void *memory_reserve(size_t bytes) {
    if (bytes < SMALL) {
        void *p; /* in whole pages, so that other pages can take their place */
        return posix_memalign(&p, 4096, shared_room(bytes)) == 0 ? memset(p, 0, bytes) : NULL;
    }
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* A forked child has no device memory; and one byte touched should not cost two MiB. */
    (void) madvise(p, bytes, MADV_DONTFORK);
    (void) madvise(p, bytes, MADV_NOHUGEPAGE);
    return p;
}

void memory_unreserve(void *p, size_t bytes) {
    if (bytes < SMALL)
        free(p);
    else
        (void) munmap(p, bytes);
}

void memory_discard(void *p, size_t bytes) {
    if (bytes >= SMALL)
        (void) madvise(p, bytes, MADV_DONTNEED);
}

int memory_add(const struct memory *m, struct memory **ret) {
    static unsigned long long ids;
    struct memory *copy = malloc(sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    *copy = *m;
    (void) pthread_mutex_lock(&cuda_lock);
    copy->id = ++ids;
    struct memory **node = tsearch(copy, &tree, compare_base);
    bool added = node && *node == copy;
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!added) {
        free(copy);
        return node ? -EEXIST : -ENOMEM;
    }
    if (ret)
        *ret = copy;
    return 0;
}

void memory_remove(struct memory *m) {
    (void) pthread_mutex_lock(&cuda_lock);
    (void) tdelete(m, &tree, compare_base);
    (void) pthread_mutex_unlock(&cuda_lock);
}

struct memory *memory_find(CUdeviceptr p) {
    struct memory key = {.base = p, .size = 1};
    (void) pthread_mutex_lock(&cuda_lock);
    struct memory **node = tfind(&key, &tree, compare_base);
    struct memory *m = node ? *node : NULL;
    (void) pthread_mutex_unlock(&cuda_lock);
    return m;
}

struct memory *memory_at(CUdeviceptr base, enum memory_kind kind) {
    struct memory *m = memory_find(base);
    return m && m->base == base && m->kind == kind ? m : NULL;
}

bool memory_covers(CUdeviceptr p, size_t bytes) {
    if (bytes == 0)
        return true;
    const struct memory *m = memory_find(p);
    if (!m || bytes > m->size || p - m->base > m->size - bytes)
        return false;
    if (m->kind == MEMORY_GRAPH)
        return m->graph->live;
    return m->kind != MEMORY_RESERVED || vmm_covers(m, p, bytes);
}

bool memory_is_private(const struct memory *m) {
    return m->kind <= MEMORY_GRAPH && !m->shared;
}

bool memory_is_freeable(const struct memory *m) {
    return m->kind <= MEMORY_GRAPH || m->kind == MEMORY_IMPORTED;
}

static bool on_device(enum memory_kind kind) {
    return kind == MEMORY_DEVICE;
}

CUresult memory_new(enum memory_kind kind, CUcontext ctx, int device, size_t bytes,
                    struct memory **ret) {
    CUDA_TRY(on_device(kind) ? cuda_take(device, bytes) : CUDA_SUCCESS);
    void *p = memory_reserve(bytes);
    struct memory m = {
        .base = (uintptr_t) p, .size = bytes, .kind = kind, .device = device, .context = ctx};
    if (p && memory_add(&m, ret) == 0)
        return CUDA_SUCCESS;
    if (p)
        memory_unreserve(p, bytes);
    if (on_device(kind))
        cuda_give(device, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The heap gets pages of its own back before it gets the range. */
static void give_up_share(struct memory *m) {
    void *p = (void *) (uintptr_t) m->base;
    size_t room = shared_room(m->size);
    if (m->size >= SMALL || m->kind == MEMORY_IPC || m->kind == MEMORY_IMPORTED)
        (void) munmap(p, room);
    else if (mmap(p, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                  0) != MAP_FAILED)
        free(p);
    shared_close(m->shared);
}

void memory_free(struct memory *m) {
    memory_remove(m);
    worker_wait_all();
    if (m->shared)
        give_up_share(m);
    else
        memory_unreserve((void *) (uintptr_t) m->base, m->size);
    if (m->managed)
        managed_free(m->managed);
    if (m->kind == MEMORY_POOL)
        pool_give(m->pool, m->size, m->shared);
    else if (on_device(m->kind) && !m->shared)
        cuda_give(m->device, m->size);
    free(m->shared);
    free(m);
}

/* Only touched pages: most of a large card has none. */
static bool copy_pages(char *to, const char *from, size_t bytes) {
    unsigned char present[4096];
    const size_t step = sizeof(present) * 4096;
    for (size_t at = 0; at < bytes; at += step) {
        size_t n = bytes - at < step ? bytes - at : step;
        if (mincore((void *) (uintptr_t) (from + at), n, present) < 0)
            return false;
        for (size_t i = 0; i < n; i += 4096)
            if (present[i / 4096] & 1)
                memcpy(to + at + i, from + at + i, 4096);
    }
    return true;
}

CUresult memory_share(struct memory *m) {
    if (m->shared)
        return CUDA_SUCCESS;
    struct shared *s = calloc(1, sizeof(*s));
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult r = shared_new(m->device, m->size, s);
    if (r != CUDA_SUCCESS) {
        free(s);
        return r;
    }
    worker_wait_all();
    char *here = (char *) (uintptr_t) m->base, *there = shared_map(s, 0, m->size, NULL);
    size_t room = shared_room(m->size);
    bool ok = there && copy_pages(there, here, room) && shared_map(s, 0, m->size, here);
    if (there)
        (void) munmap(there, room);
    if (!ok) {
        /* The share is this process's alone: closing it gives the bytes back. */
        shared_close(s);
        free(s);
        (void) cuda_take(m->device, m->size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void) close(s->fd);
    s->fd = -1;
    m->shared = s;
    return CUDA_SUCCESS;
}

CUresult memory_adopt(enum memory_kind kind, CUcontext ctx, const struct shared *shared,
                      size_t offset, size_t bytes, struct memory **ret) {
    struct shared *s = malloc(sizeof(*s));
    void *p = s ? shared_map(shared, offset, bytes, NULL) : NULL;
    struct memory m = {.base = (uintptr_t) p,
                       .size = bytes,
                       .kind = kind,
                       .device = shared->device,
                       .context = ctx,
                       .shared = s,
                       .opened = 1};
    struct shared own = *shared;
    if (p && memory_add(&m, ret) == 0) {
        (void) close(own.fd);
        own.fd = -1;
        *s = own;
        return CUDA_SUCCESS;
    }
    if (p)
        (void) munmap(p, shared_room(bytes));
    free(s);
    shared_close(&own);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool (*matches)(const struct memory *m, const void *wanted);
static const void *wanted;
static struct memory *found;

static void visit(const void *node, VISIT which, int level) {
    (void) level;
    struct memory *m = *(struct memory *const *) node;
    if ((which == postorder || which == leaf) && matches(m, wanted))
        found = m;
}

static struct memory *find(bool (*predicate)(const struct memory *m, const void *wanted),
                           const void *value) {
    (void) pthread_mutex_lock(&cuda_lock);
    matches = predicate;
    wanted = value;
    found = NULL;
    twalk(tree, visit);
    struct memory *m = found;
    (void) pthread_mutex_unlock(&cuda_lock);
    return m;
}

static bool has_id(const struct memory *m, const void *id) {
    return m->shared && (m->kind == MEMORY_IPC || m->kind == MEMORY_DEVICE) &&
           memcmp(m->shared->id, id, sizeof(m->shared->id)) == 0;
}

struct memory *memory_opened(const uint64_t id[2]) {
    return find(has_id, id);
}

static bool ends_with(const struct memory *m, const void *ctx) {
    return m->context == ctx && m->kind != MEMORY_RESERVED && m->kind != MEMORY_REGISTERED &&
           m->kind != MEMORY_GRAPH;
}

void memory_release_context(CUcontext ctx) {
    graph_memory_release_context(ctx);
    for (struct memory *m; (m = find(ends_with, ctx));)
        memory_free(m);
}

/* -- the functions --------------------------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    if (client_is_lost(&cuda_client))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    const struct sim_page *p = cuda_device[ctx->device].page;
    *total = p->memory_total - p->memory_reserved;
    *free_bytes = *total - atomic_load(&p->memory_used);
    size_t hard, used;
    if (cuda_group_limit(ctx->device, &hard, &used)) {
        size_t left = used < hard ? hard - used : 0;
        *total = hard < *total ? hard : *total;
        *free_bytes = left < *free_bytes ? left : *free_bytes;
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total) {
    size_t f, t;
    CUDA_TRY(cuMemGetInfo_v2(&f, &t));
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = f > UINT32_MAX ? UINT32_MAX : (unsigned int) f;
    *total = t > UINT32_MAX ? UINT32_MAX : (unsigned int) t;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytes) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    if (!dptr || bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct memory *m;
    CUresult r = memory_new(MEMORY_DEVICE, ctx, ctx->device, bytes, &m);
    if (r == CUDA_SUCCESS)
        *dptr = m->base;
    return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                            unsigned int element_bytes) {
    if (!dptr || !pitch || width == 0 || height == 0 ||
        (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return cuda_invalid();
    size_t row, bytes;
    if (__builtin_add_overflow(width, PITCH - 1, &row) ||
        __builtin_mul_overflow(row &= ~(size_t) (PITCH - 1), height, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = cuMemAlloc_v2(dptr, bytes);
    if (r == CUDA_SUCCESS)
        *pitch = row;
    return r;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytes, unsigned int flags) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    if (!dptr || bytes == 0 || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    struct memory *m;
    CUDA_TRY(memory_new(MEMORY_MANAGED, ctx, ctx->device, bytes, &m));
    m->managed = managed_new(m);
    if (!m->managed) {
        memory_free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *dptr = m->base;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
    CUcontext ctx;
    CUresult r = capture_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (dptr == 0)
        return CUDA_SUCCESS;
    struct memory *m = memory_find(dptr);
    if (!m || m->base != dptr || !memory_is_freeable(m))
        return CUDA_ERROR_INVALID_VALUE;
    /* Running work may still use it. */
    if (m->context && cuda_context_alive(m->context))
        r = stream_synchronize_context(m->context);
    if (m->kind == MEMORY_GRAPH)
        return graph_alloc_give(m->graph) ? r : CUDA_ERROR_INVALID_VALUE;
    memory_free(m);
    return r == CUDA_SUCCESS ? cuda_enter() : r; /* the daemon may be found gone just now */
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    const struct memory *m = memory_find(dptr);
    if (!m)
        return CUDA_ERROR_NOT_FOUND;
    if (pbase)
        *pbase = m->base;
    if (psize)
        *psize = m->size;
    return CUDA_SUCCESS;
}

/* -- host memory ----------------------------------------------------------------------------- */

CUresult cuMemHostAlloc(void **pp, size_t bytes, unsigned int flags) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    if (!pp || bytes == 0 || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    struct memory *m;
    CUDA_TRY(memory_new(MEMORY_HOST, ctx, ctx->device, bytes, &m));
    m->flags = flags;
    *pp = (void *) (uintptr_t) m->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytes) {
    return cuMemHostAlloc(pp, bytes, 0);
}

CUresult cuMemFreeHost(void *p) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    struct memory *m = memory_at((uintptr_t) p, MEMORY_HOST);
    if (!m)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = stream_synchronize_context(ctx);
    memory_free(m);
    return r;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    if (!p || bytes == 0 || flags > 15)
        return CUDA_ERROR_INVALID_VALUE;
    struct memory m = {.base = (uintptr_t) p,
                       .size = bytes,
                       .kind = MEMORY_REGISTERED,
                       .device = ctx->device,
                       .context = ctx,
                       .flags = flags};
    int e = memory_add(&m, NULL);
    if (e == -EEXIST)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return e < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags) {
    return cuMemHostRegister_v2(p, bytes, flags);
}

CUresult cuMemHostUnregister(void *p) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    struct memory *m = memory_at((uintptr_t) p, MEMORY_REGISTERED);
    if (!m)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    memory_remove(m);
    free(m);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int flags) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    const struct memory *m = memory_find((uintptr_t) p);
    if (!pdptr || flags != 0 || !m || (m->kind != MEMORY_HOST && m->kind != MEMORY_REGISTERED))
        return CUDA_ERROR_INVALID_VALUE;
    *pdptr = (uintptr_t) p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    const struct memory *m = memory_find((uintptr_t) p);
    if (!flags || !m || m->kind != MEMORY_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = m->flags;
    return CUDA_SUCCESS;
}
