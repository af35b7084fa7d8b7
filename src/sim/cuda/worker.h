/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Host functions in streams, and what comes behind them.
 *
 * A thread of its own, made when the first host function is submitted, calls them in the order of
 * submission. While one is outstanding, operations on memory are not done at submission but queue
 * up behind it, in every stream: a later copy may need what the function writes. */

#include "sim/cuda/cuda.h"

/* Does `fn(arg)` in its place in the stream: now, or by the worker with a copy of the `size` bytes
 * at `arg`. Without cuda_lock. */
CUresult worker_do(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size);

/* Submits a host function. Without cuda_lock. */
CUresult worker_call(CUstream stream, void (*fn)(void *arg), const void *arg, size_t size);

/* Sleeps until job number `job` is done. Without cuda_lock. */
void worker_wait(uint64_t job);
bool worker_is_done(uint64_t job);

/* The last job submitted: wait for it before memory goes away. */
uint64_t worker_last(void);
