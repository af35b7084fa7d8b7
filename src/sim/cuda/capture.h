/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Stream capture: work submitted to a capturing stream becomes nodes of a graph. */

#include "sim/cuda/cuda.h"
#include "sim/cuda/fill.h"

/* -- operations that cannot be captured: their errors, and the captures that they end -------- */

/* An operation on a capturing stream that no node represents. */
CUresult capture_refuse(CUstream stream);
/* The legacy stream, while a stream that synchronises with it captures. */
CUresult capture_refuse_legacy(CUcontext ctx);
CUresult capture_refuse_event(CUevent event);
CUresult capture_refuse_context(CUcontext ctx);
/* A call that may wait for the device; SUCCESS where no capture forbids it to this thread. */
CUresult capture_unsafe(void);
/* The same, for a call in the thread's current context. */
CUresult capture_enter_context(CUcontext *ret);

/* -- operations that are captured; the stream is capturing ----------------------------------- */

CUresult capture_add(CUstream stream, CUgraphNodeParams *params);
CUresult capture_kernel(CUstream stream, CUfunction f, const unsigned int grid[3],
                        const unsigned int block[3], void **params, void **extra);
CUresult capture_copy(CUstream stream, const CUDA_MEMCPY3D *copy);
CUresult capture_fill(CUstream stream, const struct fill *fill);
CUresult capture_host(CUstream stream, CUhostFn fn, void *user_data);
CUresult capture_record(CUstream stream, CUevent event, bool external);
/* The stream, the event or both are part of a capture. */
CUresult capture_wait(CUstream stream, CUevent event, bool external);

/* -- ends ------------------------------------------------------------------------------------ */

void capture_forget_event(CUevent event);
/* The stream is destroyed; the context is destroyed. */
void capture_abandon(CUstream stream);
void capture_release_context(CUcontext ctx);
