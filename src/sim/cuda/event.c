/* SPDX-License-Identifier: Apache-2.0 */

#include <stdlib.h>

#include "sim/cuda/ring.h"
#include "sim/cuda/stream.h"
#include "sim/cuda/worker.h"

/* Events without timing share a place for the time that nobody reads. */
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

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    CUcontext ctx;
    CUresult r = cuda_enter_context(&ctx);
    if (r != CUDA_SUCCESS)
        return r;
    bool shared = flags & CU_EVENT_INTERPROCESS;
    if (!event || flags > 7 || (shared && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    if (shared)
        return CUDA_ERROR_NOT_SUPPORTED;
    (void) pthread_mutex_lock(&cuda_lock);
    CUevent e = event_new(flags);
    if (e)
        *e = (struct CUevent_st){.tag = TAG_EVENT, .context = ctx, .flags = flags, .slot = e->slot};
    (void) pthread_mutex_unlock(&cuda_lock);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *event = e;
    return CUDA_SUCCESS;
}

static CUresult enter_event(CUevent event) {
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    if (!event || event->tag != TAG_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    return cuda_context_alive(event->context) ? event->context->error
                                              : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUresult r = cuda_enter();
    if (r != CUDA_SUCCESS)
        return r;
    if (!event || event->tag != TAG_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    (void) pthread_mutex_lock(&cuda_lock);
    event->tag = TAG_FREE;
    event->next_free = free_events;
    free_events = event;
    (void) pthread_mutex_unlock(&cuda_lock);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    CUstream s;
    CUresult r = stream_enter(stream, &s);
    if (r == CUDA_SUCCESS)
        r = enter_event(event);
    if (r != CUDA_SUCCESS)
        return r;
    if (event->context != s->context)
        return CUDA_ERROR_INVALID_HANDLE;
    (void) pthread_mutex_lock(&cuda_lock);
    r = stream_put(s, SIM_MARK, event->slot, 0);
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
    return flags > 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
}

static bool is_complete(CUevent e) {
    return !e->recorded || (ring_is_done(e->queue, e->seq) && worker_is_done(e->job));
}

CUresult cuEventQuery(CUevent event) {
    CUresult r = enter_event(event);
    if (r != CUDA_SUCCESS)
        return r;
    if (is_complete(event))
        return CUDA_SUCCESS;
    return client_is_lost(&cuda_client) ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult r = enter_event(event);
    if (r != CUDA_SUCCESS || !event->recorded)
        return r;
    uint64_t job = event->job;
    r = ring_wait(event->queue, event->seq);
    if (r == CUDA_SUCCESS)
        worker_wait(job);
    return r;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CUresult r = enter_event(start);
    if (r == CUDA_SUCCESS)
        r = enter_event(end);
    if (r != CUDA_SUCCESS)
        return r;
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
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
