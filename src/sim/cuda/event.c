/* SPDX-License-Identifier: Apache-2.0 */

#include "sim/cuda/event.h"

#include <stdlib.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/ring.h"
#include "sim/cuda/shared_event.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"
#include "sim/list.h"

/* Events without timing share one slot; its time is never read. */
#define UNTIMED (SIM_MARKS - 1)

static CUevent free_events; /* with their slots */
static uint32_t slots_used;

/* With cuda_lock. */
static CUevent event_new(unsigned int flags) {
    for (CUevent *p = &free_events; *p; p = &(*p)->next_free) {
        CUevent e = *p;
        if ((e->slot == UNTIMED) != !!(flags & CU_EVENT_DISABLE_TIMING))
            continue;
        *p = e->next_free;
        return e;
    }
    uint32_t slot = flags & CU_EVENT_DISABLE_TIMING ? UNTIMED : slots_used;
    if (slot != UNTIMED && slots_used == UNTIMED)
        return NULL;
    CUevent e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    if (slot != UNTIMED)
        slots_used++;
    e->slot = slot;
    return e;
}

/* Owns `shared`, which may be NULL. */
static CUresult event_make(CUcontext ctx, unsigned int flags, struct shared_event *shared,
                           CUevent *ret) {
    (void) pthread_mutex_lock(&cuda_lock);
    CUevent e = event_new(flags);
    if (e)
        *e = (struct CUevent_st){
            .tag = TAG_EVENT, .context = ctx, .flags = flags, .slot = e->slot, .shared = shared};
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!e && shared)
        shared_event_close(shared);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = e;
    return CUDA_SUCCESS;
}

CUresult event_open(CUcontext ctx, const uint64_t id[2], CUevent *ret) {
    struct shared_event *shared;
    CUDA_TRY(shared_event_open(id, &shared));
    return event_make(ctx, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, shared, ret);
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    struct shared_event *shared = NULL;
    bool between = flags & CU_EVENT_INTERPROCESS;
    if (!event || flags > 7 || (between && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    if (between)
        r = shared_event_open(NULL, &shared);
    return r == CUDA_SUCCESS ? event_make(ctx, flags, shared, event) : r;
}

static CUresult enter_event(CUevent event) {
    CUDA_TRY(cuda_enter());
    if (!event || event->tag != TAG_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    return cuda_context_alive(event->context) ? event->context->error
                                              : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUDA_TRY(cuda_enter());
    if (!event || event->tag != TAG_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->captured)
        capture_forget_event(event);
    if (event->shared)
        shared_event_close(event->shared);
    (void) pthread_mutex_lock(&cuda_lock);
    event->tag = TAG_FREE;
    event->shared = NULL;
    LIST_PUSH(free_events, event, next_free);
    (void) pthread_mutex_unlock(&cuda_lock);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

CUresult event_record(CUstream s, CUevent event) {
    if (event->shared)
        return shared_event_record(s, event->shared);
    (void) pthread_mutex_lock(&cuda_lock);
    CUresult r = stream_put(s, SIM_MARK, event->slot, 0);
    if (r == CUDA_SUCCESS) {
        event->recorded = true;
        event->queue = s->queue;
        event->seq = s->last;
        event->job = s->last_job;
    }
    (void) pthread_mutex_unlock(&cuda_lock);
    return r;
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
    CUstream s;
    if (flags > CU_EVENT_RECORD_EXTERNAL)
        return cuda_invalid();
    CUDA_TRY(stream_enter_work(stream, &s));
    CUDA_TRY(enter_event(event));
    if (event->context != s->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return capture_record(s, event, flags == CU_EVENT_RECORD_EXTERNAL);
    if (event->captured)
        capture_forget_event(event);
    return event_record(s, event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    return cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_DEFAULT);
}

/* Waiting for an event, or asking it, may be forbidden by a capture. */
static CUresult enter_to_wait(CUevent event) {
    CUDA_TRY(enter_event(event));
    return event->captured ? capture_refuse_event(event) : capture_unsafe();
}

static bool is_complete(CUevent e) {
    if (e->shared)
        return shared_event_is_complete(e->shared);
    return !e->recorded || (ring_is_done(e->queue, e->seq) && worker_is_done(e->job));
}

CUresult cuEventQuery(CUevent event) {
    CUDA_TRY(enter_to_wait(event));
    if (is_complete(event))
        return CUDA_SUCCESS;
    return client_is_lost(&cuda_client) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult r = enter_to_wait(event);
    if (r == CUDA_SUCCESS && event->shared)
        return shared_event_synchronize(event->shared);
    if (r != CUDA_SUCCESS || !event->recorded)
        return r;
    uint64_t job = event->job;
    r = ring_wait(event->queue, event->seq);
    if (r == CUDA_SUCCESS)
        worker_wait(job);
    return r;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CUDA_TRY(enter_event(start));
    CUDA_TRY(enter_event(end));
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (start->captured || end->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!start->recorded || !end->recorded || start->slot == UNTIMED || end->slot == UNTIMED)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_complete(start) || !is_complete(end))
        return CUDA_ERROR_NOT_READY;
    int64_t ns = (int64_t) (ring_mark(end->slot) - ring_mark(start->slot));
    *milliseconds = (float) ((double) ns / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime(milliseconds, start, end);
}
