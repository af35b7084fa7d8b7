/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/stream.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/event.h"
#include "sim/cuda/ring.h"
#include "sim/cuda/shared_event.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

static CUstream free_streams;
static __thread struct {
    CUcontext context;
    CUstream stream;
} own[16]; /* this thread's default streams */

CUstream stream_new(CUcontext ctx, unsigned int flags, int priority) {
    static unsigned long long ids;
    CUstream s;
    CUDA_REUSE_OBJECT(s, free_streams, next);
    if (!s)
        return NULL;
    *s = (struct CUstream_st){.tag = TAG_STREAM,
                              .context = ctx,
                              .queue = ring_queue(),
                              .blocking = !(flags & CU_STREAM_NON_BLOCKING),
                              .flags = flags,
                              .priority = priority,
                              .id = ++ids,
                              .next = ctx->streams};
    ctx->streams = s;
    return s;
}

static void stream_free(CUstream s) {
    s->tag = TAG_FREE;
    LIST_PUSH(free_streams, s, next);
}

void stream_release_context(CUcontext ctx) {
    while (ctx->streams) {
        CUstream s = ctx->streams;
        ctx->streams = s->next;
        stream_free(s);
    }
    ctx->legacy = NULL;
}

static CUstream per_thread_stream(CUcontext ctx) {
    size_t empty = 0;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (own[i].context == ctx)
            return own[i].stream;
        if (!own[i].context || own[i].context->tag != TAG_CONTEXT)
            empty = i;
    }
    (void) pthread_mutex_lock(&cuda_lock);
    CUstream s = stream_new(ctx, CU_STREAM_DEFAULT, 0);
    (void) pthread_mutex_unlock(&cuda_lock);
    if (s) {
        own[empty].context = ctx;
        own[empty].stream = s;
    }
    return s;
}

CUresult stream_enter(CUstream handle, CUstream *ret) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    CUstream s = handle;
    if (handle == CU_STREAM_LEGACY || (!handle && !cuda_is_per_thread()))
        s = ctx->legacy;
    else if (handle == CU_STREAM_PER_THREAD || !handle)
        s = per_thread_stream(ctx);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (s->tag != TAG_STREAM)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret = s;
    return s->context->error;
}

CUresult stream_enter_work(CUstream handle, CUstream *ret) {
    CUresult r = stream_enter(handle, ret);
    if (r == CUDA_SUCCESS && *ret == (*ret)->context->legacy && (*ret)->context->capturing > 0)
        return capture_refuse_legacy((*ret)->context);
    return r;
}

/* The legacy stream waits for all blocking streams of its context, and they for it. */
static CUresult put_order(CUstream s) {
    CUcontext ctx = s->context;
    if (!s->blocking)
        return CUDA_SUCCESS;
    for (CUstream other = ctx->streams; other; other = other->next) {
        if (other == s || !other->blocking || (s != ctx->legacy && other != ctx->legacy))
            continue;
        if (other->queue == s->queue || ring_is_done(other->queue, other->last))
            continue;
        s->last = ring_put(SIM_WAIT, ctx->device, s->queue, other->queue, other->last);
        if (s->last == 0)
            return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    return CUDA_SUCCESS;
}

CUresult stream_put(CUstream s, enum sim_work kind, uint32_t slot, uint64_t a) {
    CUDA_TRY(put_order(s));
    uint64_t seq = ring_put(kind, s->context->device, s->queue, slot, a);
    if (seq == 0)
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    s->last = seq;
    return CUDA_SUCCESS;
}

CUresult stream_submit(CUstream s, enum sim_work kind, uint32_t slot, uint64_t a) {
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = stream_put(s, kind, slot, a);
    (void) pthread_mutex_unlock(&cuda_lock);
    return r;
}

CUresult stream_submit_kernels(CUstream s, int device, const uint64_t *ns, size_t n) {
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = put_order(s);
    uint64_t seq = r == CUDA_SUCCESS ? ring_put_kernels(device, s->queue, ns, n) : 0;
    if (seq > 0)
        s->last = seq;
    else if (r == CUDA_SUCCESS)
        r = CUDA_ERROR_DEVICE_UNAVAILABLE;
    (void) pthread_mutex_unlock(&cuda_lock);
    return r;
}

CUresult stream_synchronize(CUstream s) {
    bool legacy = s == s->context->legacy;
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = legacy ? put_order(s) : CUDA_SUCCESS;
    uint64_t last = s->last;
    uint64_t job = s->last_job;
    (void) pthread_mutex_unlock(&cuda_lock);
    if (r == CUDA_SUCCESS)
        r = ring_wait(s->queue, last);
    if (r == CUDA_SUCCESS && legacy)
        worker_wait_context(s->context, true);
    else if (r == CUDA_SUCCESS)
        worker_wait(job);
    return r == CUDA_SUCCESS ? s->context->error : r;
}

struct point {
    uint16_t queue;
    uint64_t seq;
};

CUresult stream_synchronize_context(CUcontext ctx) {
    size_t n = 0, busy = 0;
    struct point *points = NULL;
    (void) pthread_mutex_lock(&cuda_lock);
    for (CUstream s = ctx->streams; s; s = s->next)
        busy += !ring_is_done(s->queue, s->last);
    if (busy > 0)
        points = malloc(busy * sizeof(*points));
    for (CUstream s = ctx->streams; s && points && n < busy; s = s->next)
        if (!ring_is_done(s->queue, s->last))
            points[n++] = (struct point){s->queue, s->last};
    (void) pthread_mutex_unlock(&cuda_lock);
    CUresult r = busy > 0 && !points ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    for (size_t i = 0; i < n && r == CUDA_SUCCESS; i++)
        r = ring_wait(points[i].queue, points[i].seq);
    free(points);
    if (r == CUDA_SUCCESS)
        worker_wait_context(ctx, false);
    return r == CUDA_SUCCESS ? ctx->error : r;
}

/* -- the functions --------------------------------------------------------------------------- */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!stream || (flags & ~(unsigned int) CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    if (priority > 0)
        priority = 0;
    if (priority < -5)
        priority = -5;
    (void) pthread_mutex_lock(&cuda_lock);
    CUstream s = stream_new(ctx, flags, priority);
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *stream = s;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        stream->tag != TAG_STREAM || stream == stream->context->legacy)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture)
        capture_abandon(stream);
    (void) pthread_mutex_lock(&cuda_lock);
    for (CUstream *p = &stream->context->streams; *p; p = &(*p)->next)
        if (*p == stream) {
            *p = stream->next;
            break;
        }
    stream_free(stream); /* its work continues in its queue */
    (void) pthread_mutex_unlock(&cuda_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

/* Waiting for a stream, or asking it, is nothing that could be captured. */
static CUresult enter_to_wait(CUstream handle, CUstream *ret) {
    CUDA_TRY(stream_enter_work(handle, ret));
    return (*ret)->capture ? capture_refuse(*ret) : capture_unsafe();
}

CUresult cuStreamSynchronize(CUstream stream) {
    CUstream s;
    CUresult r = enter_to_wait(stream, &s);
    return r == CUDA_SUCCESS ? stream_synchronize(s) : r;
}

CUresult cuStreamQuery(CUstream stream) {
    CUstream s;
    CUresult r = enter_to_wait(stream, &s);
    if (r != CUDA_SUCCESS)
        return r;
    if (client_is_lost(&cuda_client))
        return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (!ring_is_done(s->queue, s->last) || !worker_is_done(s->last_job))
        return CUDA_ERROR_NOT_READY;
    if (s != s->context->legacy)
        return CUDA_SUCCESS;
    (void) pthread_mutex_lock(&cuda_lock);
    for (CUstream i = s->context->streams; i; i = i->next)
        if (i->blocking && !ring_is_done(i->queue, i->last))
            r = CUDA_ERROR_NOT_READY;
    (void) pthread_mutex_unlock(&cuda_lock);
    return r;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority) {
    CUstream s;
    CUDA_TRY(stream_enter(stream, &s));
    CUDA_RETURN_VALUE(priority, s->priority);
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags) {
    CUstream s;
    CUDA_TRY(stream_enter(stream, &s));
    CUDA_RETURN_VALUE(flags, s->flags);
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *stream_id) {
    CUstream s;
    CUDA_TRY(stream_enter(stream, &s));
    CUDA_RETURN_VALUE(stream_id, s->id);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *ctx) {
    CUstream s;
    CUDA_TRY(stream_enter(stream, &s));
    CUDA_RETURN_VALUE(ctx, s->context);
}

CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *ctx, CUgreenCtx *green_ctx) {
    CUresult r = cuStreamGetCtx(stream, ctx);
    if (r == CUDA_SUCCESS && green_ctx)
        *green_ctx = NULL;
    return r;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device) {
    CUstream s;
    CUDA_TRY(stream_enter(stream, &s));
    CUDA_RETURN_VALUE(device, s->context->device);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
    (void) dptr; /* every stream may use managed memory at any time here */
    (void) length;
    (void) flags;
    CUstream s;
    CUresult r = stream_enter_work(stream, &s);
    return r == CUDA_SUCCESS && s->capture ? capture_refuse(s) : r;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (!event || event->tag != TAG_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    if (flags > CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture || event->captured)
        return capture_wait(s, event, flags == CU_EVENT_WAIT_EXTERNAL);
    return event_wait(s, event);
}

CUresult event_wait(CUstream s, CUevent event) {
    if (event->shared)
        return shared_event_wait(s, event->shared);
    if (!event->recorded || event->queue == s->queue || ring_is_done(event->queue, event->seq))
        return CUDA_SUCCESS;
    return stream_submit(s, SIM_WAIT, event->queue, event->seq);
}

/* -- host functions -------------------------------------------------------------------------- */

struct host_call {
    CUhostFn fn;
    CUstreamCallback callback;
    CUstream stream;
    void *user_data;
};

static void call_host(void *arg) {
    struct host_call *c = arg;
    if (c->fn)
        c->fn(c->user_data);
    else
        c->callback(c->stream, CUDA_SUCCESS, c->user_data);
}

CUresult stream_call(CUstream s, CUhostFn fn, void *user_data) {
    struct host_call c = {.fn = fn, .user_data = user_data};
    return worker_call(s, call_host, &c, sizeof(c));
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *user_data) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    return s->capture ? capture_host(s, fn, user_data) : stream_call(s, fn, user_data);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *user_data,
                             unsigned int flags) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (!callback || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture)
        return capture_refuse(s);
    struct host_call c = {.callback = callback, .stream = stream, .user_data = user_data};
    return worker_call(s, call_host, &c, sizeof(c));
}
