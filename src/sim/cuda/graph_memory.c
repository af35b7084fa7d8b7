/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/ring.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

#define GRANULARITY ((uint64_t) 2 << 20) /* in which the reserve grows */

/* The reserve of a device for graphs. */
struct reserve {
    uint64_t used, used_high;
    uint64_t held, held_high; /* charged to the device */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all here; taken before cuda_lock */
static struct reserve reserves[SIM_MAX_GPUS];
static struct graph_alloc *allocs;
static struct graph_use *uses;

CUresult graph_alloc_new(CUcontext ctx, int device, size_t bytes, struct graph_alloc **ret) {
    struct graph_alloc *a = calloc(1, sizeof(*a));
    void *p = a ? memory_reserve(bytes) : NULL;
    struct memory m = {.base = (uintptr_t) p,
                       .size = bytes,
                       .kind = MEMORY_GRAPH,
                       .device = device,
                       .context = ctx,
                       .graph = a};
    if (!p || memory_add(&m, &a->memory) < 0) {
        if (p)
            memory_unreserve(p, bytes);
        free(a);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    a->references = 1;
    a->device = device;
    a->bytes = bytes;
    (void) pthread_mutex_lock(&lock);
    LIST_PUSH(allocs, a, next);
    (void) pthread_mutex_unlock(&lock);
    *ret = a;
    return CUDA_SUCCESS;
}

void graph_alloc_retain(struct graph_alloc *a) {
    (void) pthread_mutex_lock(&lock);
    a->references++;
    (void) pthread_mutex_unlock(&lock);
}

/* With the lock; true when the last one has let go. */
static bool release_reference(struct graph_alloc *a) {
    if (--a->references > 0)
        return false;
    for (struct graph_alloc **p = &allocs; *p; p = &(*p)->next)
        if (*p == a) {
            *p = a->next;
            break;
        }
    return true;
}

static void destroy_allocation(struct graph_alloc *a) {
    memory_remove(a->memory);
    worker_wait_all();
    memory_unreserve((void *) (uintptr_t) a->memory->base, a->memory->size);
    free(a->memory);
    free(a);
}

void graph_alloc_release(struct graph_alloc *a) {
    (void) pthread_mutex_lock(&lock);
    bool last = release_reference(a);
    (void) pthread_mutex_unlock(&lock);
    if (last)
        destroy_allocation(a);
}

CUresult graph_alloc_take(struct graph_alloc *a, struct graph_use *use) {
    struct reserve *v = &reserves[a->device];
    (void) pthread_mutex_lock(&lock);
    bool free_now = !a->live;
    if (free_now) {
        a->live = true;
        a->references++;
        a->use = use;
        use->alive += a->bytes;
        v->used += a->bytes;
        v->used_high = v->used > v->used_high ? v->used : v->used_high;
    }
    (void) pthread_mutex_unlock(&lock);
    return free_now ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

/* With the lock. */
static bool end_allocation(struct graph_alloc *a) {
    if (!a->live)
        return false;
    a->live = false;
    if (a->use)
        a->use->alive -= a->bytes;
    a->use = NULL;
    reserves[a->device].used -= a->bytes;
    return true;
}

bool graph_alloc_give(struct graph_alloc *a) {
    bool idle = worker_is_idle();
    (void) pthread_mutex_lock(&lock);
    bool was_live = end_allocation(a);
    bool last = was_live && release_reference(a);
    (void) pthread_mutex_unlock(&lock);
    if (was_live && idle && !last)
        memory_discard((void *) (uintptr_t) a->memory->base, a->memory->size);
    if (last)
        destroy_allocation(a);
    return was_live;
}

/* -- the reserve ----------------------------------------------------------------------------- */

/* With the lock: bytes that graphs need which may still be running, but not in `queue`. */
static uint64_t running(int device, const struct graph_use *except, int queue) {
    uint64_t bytes = 0;
    for (const struct graph_use *u = uses; u; u = u->next) {
        if (u == except || u->device != device || u->queue == queue || u->seq == 0)
            continue;
        if (!ring_is_done(u->queue, u->seq) && u->most > u->alive)
            bytes += u->most - u->alive;
    }
    return bytes;
}

static uint64_t round_up(uint64_t bytes) {
    return (bytes + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
}

CUresult graph_use_reserve(struct graph_use *use, uint16_t queue) {
    CUresult r = CUDA_SUCCESS;
    if (use->device < 0)
        return r;
    struct reserve *v = &reserves[use->device];
    (void) pthread_mutex_lock(&lock);
    uint64_t need = round_up(v->used + use->most + running(use->device, use, queue));
    if (need > v->held) {
        r = cuda_take(use->device, need - v->held);
        if (r == CUDA_SUCCESS)
            v->held = need;
        v->held_high = v->held > v->held_high ? v->held : v->held_high;
    }
    (void) pthread_mutex_unlock(&lock);
    return r;
}

/* With the lock. */
static void trim_reserve(int device) {
    struct reserve *v = &reserves[device];
    uint64_t need = round_up(v->used + running(device, NULL, -1));
    if (need >= v->held)
        return;
    cuda_give(device, v->held - need);
    v->held = need;
}

void graph_use_add(struct graph_use *use) {
    (void) pthread_mutex_lock(&lock);
    LIST_PUSH(uses, use, next);
    (void) pthread_mutex_unlock(&lock);
}

void graph_use_remove(struct graph_use *use) {
    (void) pthread_mutex_lock(&lock);
    for (struct graph_use **p = &uses; *p; p = &(*p)->next)
        if (*p == use) {
            *p = use->next;
            break;
        }
    for (struct graph_alloc *a = allocs; a; a = a->next)
        if (a->use == use)
            a->use = NULL;
    (void) pthread_mutex_unlock(&lock);
}

void graph_memory_release_context(CUcontext ctx) {
    struct graph_alloc *a;
    do {
        (void) pthread_mutex_lock(&lock);
        for (a = allocs; a; a = a->next)
            if (a->live && a->memory->context == ctx)
                break;
        bool last = a && end_allocation(a) && release_reference(a);
        (void) pthread_mutex_unlock(&lock);
        if (last)
            destroy_allocation(a);
    } while (a);
    (void) pthread_mutex_lock(&lock);
    trim_reserve(ctx->device);
    (void) pthread_mutex_unlock(&lock);
}

/* -- the functions --------------------------------------------------------------------------- */

CUresult cuDeviceGraphMemTrim(CUdevice device) {
    CUDA_TRY(cuda_enter_device(device));
    (void) pthread_mutex_lock(&lock);
    trim_reserve(device);
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static uint64_t *figure(struct reserve *v, CUgraphMem_attribute attr) {
    switch (attr) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &v->used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &v->used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &v->held;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &v->held_high;
    }
    return NULL;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    CUDA_TRY(cuda_enter_device(device));
    const uint64_t *f = figure(&reserves[device], attr);
    if (!f || !value)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    memcpy(value, f, sizeof(*f));
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Only the high-water marks, and only to zero, which sets them to the present use. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attr, void *value) {
    CUDA_TRY(cuda_enter_device(device));
    struct reserve *v = &reserves[device];
    uint64_t wanted;
    if (!value ||
        (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&wanted, value, sizeof(wanted));
    if (wanted != 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void) pthread_mutex_lock(&lock);
    if (attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        v->used_high = v->used;
    else
        v->held_high = v->held;
    (void) pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}
