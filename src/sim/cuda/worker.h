/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Host functions in streams, and what comes behind them.
 *
 * A thread of its own, made when the first host function is submitted, does jobs in the order of
 * submission, but for those whose turn in their stream has not come: the next may have. While any
 * is outstanding, operations on memory are not done at submission but become jobs, in every stream:
 * a later copy may need what the function writes. */

#include "sim/cuda/cuda.h"

/* Does `fn(arg)` in its place in the stream: now, or by the worker with a copy of the `size` bytes
 * at `arg`. Without cuda_lock. */
CUresult worker_do(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size);

/* Submits a host function. Without cuda_lock. */
CUresult worker_call(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size);

/* The same when it may be that the stream has to wait before: until `ready(arg)`. */
CUresult worker_wait_until(CUstream stream, bool (*ready)(void *arg), void (*fn)(void *arg),
                           const void *arg, size_t size);

/* Sleeps until the last job of every stream of the context is done, or of those that the legacy
 * stream waits for. Without cuda_lock. */
void worker_wait_context(CUcontext ctx, bool blocking_only);

/* Sleeps until all jobs are done that are outstanding now. Without cuda_lock. */
void worker_wait_all(void);

/* Sleeps until job number `job` is done. Without cuda_lock. */
void worker_wait(uint64_t job);
bool worker_is_done(uint64_t job);

/* Is nothing outstanding? */
bool worker_is_idle(void);
