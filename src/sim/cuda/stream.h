/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "sim/cuda/cuda.h"

/* With cuda_lock; NULL when out of memory. */
CUstream stream_new(CUcontext ctx, unsigned int flags, int priority);

/* All streams of a context that ends. With cuda_lock. */
void stream_release_context(CUcontext ctx);

/* The stream of a handle for the calling thread in its current context, 0 and the two special
 * handles included. Makes the checks common to all calls with a stream. */
CUresult stream_enter(CUstream handle, CUstream *ret);

/* The same for calls that submit work: refuses the legacy stream while the work would become part
 * of a capture. */
CUresult stream_enter_work(CUstream handle, CUstream *ret);

/* Appends work to a stream, after the work that the rules of the legacy stream put before it. With
 * cuda_lock; stream->last is its number. */
CUresult stream_put(CUstream stream, enum sim_work kind, uint32_t slot, uint64_t a);

/* The same without the lock. */
CUresult stream_submit(CUstream stream, enum sim_work kind, uint32_t slot, uint64_t a);

/* Kernels of a device, one after the other, as one piece of work. Without the lock. */
CUresult stream_submit_kernels(CUstream stream, int device, const uint64_t *ns, size_t n);

/* Calls a host function in stream order. Without the lock. */
CUresult stream_call(CUstream stream, CUhostFn fn, void *user_data);

/* Sleeps until all that was submitted is complete. Without the lock. */
CUresult stream_synchronize(CUstream stream);
CUresult stream_synchronize_context(CUcontext ctx);
