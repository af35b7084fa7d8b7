/* SPDX-License-Identifier: Apache-2.0 */

/* Primary and created contexts, and each thread's stack of them. */

#include "sim/cuda/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/cuda/array.h"
#include "sim/cuda/capture.h"
#include "sim/cuda/library.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/module.h"
#include "sim/cuda/ring.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

#define STACK_MAX 32
#define STACK_LIMIT_MAX ((size_t) 512 << 10)

static const size_t default_limits[7] = {
    [CU_LIMIT_STACK_SIZE] = 1024,
    [CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20,
    [CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20,
    [CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2,
    [CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048,
    [CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

/* Their memory is never used again: a thread may have any of them on its stack. */
static CUcontext contexts;

static __thread CUcontext stack[STACK_MAX];
static __thread int depth;
static __thread bool per_thread;

bool cuda_per_thread(bool on) {
    bool before = per_thread;
    per_thread = on;
    return before;
}

bool cuda_is_per_thread(void) {
    return per_thread;
}

CUcontext cuda_current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

bool cuda_context_alive(CUcontext ctx) {
    return ctx && ctx->tag == TAG_CONTEXT;
}

static CUresult push_context(CUcontext ctx) {
    if (depth == STACK_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

bool context_all_idle(void) {
    bool idle = worker_is_idle();
    (void) pthread_mutex_lock(&cuda_lock);
    for (CUcontext c = contexts; c && idle; c = c->next)
        for (CUstream s = c->tag == TAG_CONTEXT ? c->streams : NULL; s && idle; s = s->next)
            idle = ring_is_done(s->queue, s->last);
    (void) pthread_mutex_unlock(&cuda_lock);
    return idle;
}

/* -- life ------------------------------------------------------------------------------------ */

static CUcontext context_new(int device, unsigned int flags, bool primary) {
    static unsigned long long ids;
    CUcontext ctx = calloc(1, sizeof(*ctx));
    if (!ctx)
        return NULL;
    *ctx = (struct CUctx_st){.device = device, .flags = flags, .primary = primary, .references = 1};
    memcpy(ctx->limit, default_limits, sizeof(ctx->limit));
    (void) pthread_mutex_lock(&cuda_lock);
    ctx->id = ++ids;
    LIST_PUSH(contexts, ctx, next);
    ctx->legacy = stream_new(ctx, CU_STREAM_DEFAULT, 0);
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!ctx->legacy)
        return NULL;
    ctx->tag = TAG_CONTEXT;
    return ctx;
}

static void context_end(CUcontext ctx) {
    capture_release_context(ctx);
    (void) stream_synchronize_context(ctx);
    memory_release_context(ctx);
    array_release_context(ctx);
    library_release_context(ctx);
    module_release_context(ctx);
    for (size_t i = 0; i < sizeof(ctx->heap) / sizeof(ctx->heap[0]); i++)
        if (ctx->heap[i] > 0)
            cuda_give(ctx->device, ctx->heap[i]);
    (void) pthread_mutex_lock(&cuda_lock);
    ctx->tag = TAG_FREE;
    stream_release_context(ctx);
    (void) pthread_mutex_unlock(&cuda_lock);
    (void) client_do(&cuda_client, SIM_CTX_DESTROY, cuda_device[ctx->device].minor, 0);
}

/* Whether a control daemon has made its pipes where the process is told to find them. */
static bool uses_mps(void) {
    const char *pipes = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char path[256];
    return pipes && snprintf(path, sizeof(path), "%s/control", pipes) < (int) sizeof(path) &&
           access(path, F_OK) == 0;
}

static CUresult context_begin(int device, unsigned int flags, bool primary, CUcontext *ret) {
    CUDA_TRY(ring_open());
    CUDA_TRY(cuda_from_errno(
        client_do(&cuda_client, SIM_CTX_CREATE, cuda_device[device].minor, uses_mps())));
    CUcontext ctx = context_new(device, flags, primary);
    if (!ctx) {
        (void) client_do(&cuda_client, SIM_CTX_DESTROY, cuda_device[device].minor, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret = ctx;
    return CUDA_SUCCESS;
}

/* -- primary contexts ------------------------------------------------------------------------ */

/* Serialises the making and ending of primary contexts, which take round trips to the daemon. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev) {
    CUresult r = cuda_enter_device(dev);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    struct cuda_device *d = &cuda_device[dev];
    (void) pthread_mutex_lock(&primary_lock);
    if (!d->primary)
        r = context_begin(dev, d->primary_flags, true, &d->primary);
    if (r == CUDA_SUCCESS) {
        d->primary_refs++;
        *ctx = d->primary;
    }
    (void) pthread_mutex_unlock(&primary_lock);
    return r;
}

static void end_primary(struct cuda_device *d) {
    CUcontext ctx = d->primary;
    d->primary = NULL;
    d->primary_refs = 0;
    if (ctx)
        context_end(ctx);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
    CUresult r = cuda_enter_device(dev);
    if (r != CUDA_SUCCESS)
        return r;
    struct cuda_device *d = &cuda_device[dev];
    (void) pthread_mutex_lock(&primary_lock);
    if (d->primary_refs == 0)
        r = CUDA_ERROR_INVALID_CONTEXT;
    else if (--d->primary_refs == 0)
        end_primary(d);
    (void) pthread_mutex_unlock(&primary_lock);
    return r;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
    return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    (void) pthread_mutex_lock(&primary_lock);
    end_primary(&cuda_device[dev]);
    (void) pthread_mutex_unlock(&primary_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
    return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
    CUDA_TRY(cuda_enter_device(dev));
    if (flags & ~(unsigned int) CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    cuda_device[dev].primary_flags = flags;
    if (cuda_device[dev].primary)
        cuda_device[dev].primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = cuda_device[dev].primary_flags;
    *active = cuda_device[dev].primary != NULL;
    return CUDA_SUCCESS;
}

/* -- created contexts ------------------------------------------------------------------------ */

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev) {
    CUDA_TRY(cuda_enter_device(dev));
    if (!ctx || (flags & ~(unsigned int) CU_CTX_FLAGS_MASK))
        return CUDA_ERROR_INVALID_VALUE;
    CUcontext made;
    CUDA_TRY(context_begin(dev, flags, false, &made));
    CUresult r = push_context(made);
    if (r != CUDA_SUCCESS) {
        context_end(made);
        return r;
    }
    *ctx = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *ctx, unsigned int flags, CUdevice dev) {
    return cuCtxCreate_v2(ctx, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *ctx, CUexecAffinityParam *params_array, int num_params,
                        unsigned int flags, CUdevice dev) {
    if (params_array || num_params > 0)
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    return cuCtxCreate_v2(ctx, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *ctx, CUctxCreateParams *ctx_create_params, unsigned int flags,
                        CUdevice dev) {
    const CUctxCreateParams *p = ctx_create_params;
    if (p && p->execAffinityParams && p->cigParams)
        return CUDA_ERROR_INVALID_VALUE;
    if (p && (p->execAffinityParams || p->numExecAffinityParams > 0))
        return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    if (p && p->cigParams) /* shares a card with Direct3D or Vulkan */
        return CUDA_ERROR_NOT_SUPPORTED;
    return cuCtxCreate_v2(ctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
    CUDA_TRY(cuda_enter());
    if (!ctx)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cuda_context_alive(ctx) || ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (cuda_current() == ctx)
        depth--;
    context_end(ctx);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext ctx) {
    return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags) {
    CUcontext current;
    CUDA_TRY(cuda_enter_context(&current));
    if (!ctx || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    current->references++;
    *ctx = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext ctx) {
    CUDA_TRY(cuda_enter());
    if (!cuda_context_alive(ctx) || ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    return --ctx->references == 0 ? cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}

/* -- the stack ------------------------------------------------------------------------------- */

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    CUDA_TRY(cuda_enter());
    if (!cuda_context_alive(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    return push_context(ctx);
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
    return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
    CUDA_TRY(cuda_enter());
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (ctx)
        *ctx = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *ctx) {
    return cuCtxPopCurrent_v2(ctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
    CUDA_TRY(cuda_enter());
    if (ctx && !cuda_context_alive(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth > 0)
        depth--;
    return ctx ? push_context(ctx) : CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
    CUDA_TRY(cuda_enter());
    CUDA_RETURN_VALUE(ctx, cuda_current());
}

/* -- questions ------------------------------------------------------------------------------- */

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx) {
    CUDA_TRY(ctx ? cuda_enter() : cuda_enter_context(&ctx));
    if (!cuda_context_alive(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUDA_RETURN_VALUE(device, ctx->device);
}

CUresult cuCtxGetDevice(CUdevice *device) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    CUDA_RETURN_VALUE(device, ctx->device);
}

CUresult cuCtxGetFlags(unsigned int *flags) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    CUDA_RETURN_VALUE(flags, ctx->flags);
}

CUresult cuCtxSetFlags(unsigned int flags) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (flags & ~(unsigned int) CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    ctx->flags = flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctx_id) {
    CUDA_TRY(cuda_enter());
    if (!ctx)
        ctx = cuda_current();
    if (!cuda_context_alive(ctx))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    CUDA_RETURN_VALUE(ctx_id, ctx->id);
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
    CUDA_TRY(cuda_enter());
    if (!ctx)
        ctx = cuda_current();
    if (!cuda_context_alive(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUDA_RETURN_VALUE(version, 3020);
}

/* What a limit costs of the card: the defaults are part of what a context costs. The stack is
 * there for all threads that can be resident at a time. */
static size_t heap_bytes(CUcontext ctx, CUlimit limit, size_t value) {
    if (limit > CU_LIMIT_MALLOC_HEAP_SIZE || value <= default_limits[limit])
        return 0;
    size_t more = value - default_limits[limit];
    if (limit != CU_LIMIT_STACK_SIZE)
        return more;
    const struct sim_page *p = cuda_device[ctx->device].page;
    size_t threads = p->cc_major == 7 && p->cc_minor == 5 ? 1024 : p->cc_minor == 0 ? 2048 : 1536;
    return more * p->sm_count * threads;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == CU_LIMIT_STACK_SIZE && value > STACK_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    size_t bytes = heap_bytes(ctx, limit, value);
    size_t *held = limit <= CU_LIMIT_MALLOC_HEAP_SIZE ? &ctx->heap[limit] : &bytes;
    if (bytes > *held)
        r = cuda_take(ctx->device, bytes - *held);
    else if (bytes < *held)
        cuda_give(ctx->device, *held - bytes);
    if (r != CUDA_SUCCESS)
        return r;
    *held = bytes;
    ctx->limit[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *pvalue, CUlimit limit) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!pvalue)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *pvalue = ctx->limit[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *pconfig) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!pconfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pconfig = 0; /* no preference */
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    (void) config; /* a hint */
    CUcontext ctx;
    return cuda_enter_context(&ctx);
}

CUresult cuCtxGetStreamPriorityRange(int *least_priority, int *greatest_priority) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (least_priority)
        *least_priority = 0;
    if (greatest_priority)
        *greatest_priority = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r == CUDA_SUCCESS)
        r = capture_refuse_context(ctx);
    return r == CUDA_SUCCESS ? stream_synchronize_context(ctx) : r;
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
    CUDA_TRY(cuda_enter());
    if (!ctx)
        return cuCtxSynchronize();
    if (!cuda_context_alive(ctx))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUresult r = capture_refuse_context(ctx);
    return r == CUDA_SUCCESS ? stream_synchronize_context(ctx) : r;
}

CUresult cuCtxResetPersistingL2Cache(void) {
    CUcontext ctx;
    return cuda_enter_context(&ctx);
}

/* Profilers may come and go; there is nothing to see. */
CUresult cuProfilerStart(void) {
    CUcontext ctx;
    return cuda_enter_context(&ctx);
}

CUresult cuProfilerStop(void) {
    CUcontext ctx;
    return cuda_enter_context(&ctx);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer_context, unsigned int flags) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!cuda_context_alive(peer_context) || peer_context->device == ctx->device)
        return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer_context) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    return cuda_context_alive(peer_context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
