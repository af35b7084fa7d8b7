/* SPDX-License-Identifier: Apache-2.0 */

/* Memory and events of other processes, by handles of 64 bytes. */

#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/event.h"
#include "sim/cuda/memory.h"
#include "sim/cuda/shared.h"
#include "sim/cuda/shared_event.h"
#include "sim/cuda/stream.h"

#define MEMORY_MAGIC 0x6d656d2d637069ull
#define EVENT_MAGIC 0x6576652d637069ull

/* The contents of a handle. */
struct name {
    uint64_t magic;
    uint64_t id[2];
};

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr dptr) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    struct memory *m = memory_find(dptr);
    if (!handle || !m || m->kind != MEMORY_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    CUDA_TRY(stream_synchronize_context(ctx));
    CUDA_TRY(memory_share(m));
    struct name n = {MEMORY_MAGIC, {m->shared->id[0], m->shared->id[1]}};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &n, sizeof(n));
    return CUDA_SUCCESS;
}

/* A handle of this process's own is refused, and one that is open already opened once more. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    struct name n;
    memcpy(&n, &handle, sizeof(n));
    if (!pdptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || n.magic != MEMORY_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    struct memory *m = memory_opened(n.id);
    if (m && m->kind != MEMORY_IPC)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (m) {
        m->opened++;
        *pdptr = m->base;
        return CUDA_SUCCESS;
    }
    struct shared s;
    CUresult r = shared_open(n.id, &s);
    if (r == CUDA_SUCCESS)
        r = memory_adopt(MEMORY_IPC, ctx, &s, 0, s.bytes, &m);
    if (r == CUDA_SUCCESS)
        *pdptr = m->base;
    return r;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int flags) {
    return cuIpcOpenMemHandle_v2(pdptr, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr dptr) {
    CUcontext ctx;
    CUDA_TRY(capture_enter_context(&ctx));
    struct memory *m = memory_at(dptr, MEMORY_IPC);
    if (!m)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = stream_synchronize_context(ctx);
    if (--m->opened == 0)
        memory_free(m);
    return r;
}

/* -- events ---------------------------------------------------------------------------------- */

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
    CUDA_TRY(cuda_enter());
    if (!event || event->tag != TAG_EVENT)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!handle || !event->shared)
        return CUDA_ERROR_INVALID_VALUE;
    struct name n = {EVENT_MAGIC, {event->shared->id[0], event->shared->id[1]}};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &n, sizeof(n));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
    CUcontext ctx;
    CUDA_TRY(cuda_enter_context(&ctx));
    struct name n;
    memcpy(&n, &handle, sizeof(n));
    if (!event || n.magic != EVENT_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    return event_open(ctx, n.id, event);
}
