/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Host functions in streams, and the work after them.
 *
 * A thread, started with the first host function, executes jobs in the order of submission, except
 * that it skips jobs that have to wait in their stream. While a job is outstanding, operations on
 * memory do not run at submission but become jobs, in every stream: a later copy may need what the
 * function writes. */

#include "sim/cuda/cuda.h"

/* Executes `fn(arg)` in stream order: now, or in the worker with a copy of the `size` bytes at
 * `arg`. Without cuda_lock. */
CUresult worker_do(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size);

/* Submits a host function. Without cuda_lock. */
CUresult worker_call(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size);

/* The same where the stream may have to wait first: until `ready(arg)`. */
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

/* True when no job is outstanding. */
bool worker_is_idle(void);
