/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Work for the GPU: entries into the ring that is shared with the daemon, and waiting for it. */

#include "sim/cuda/cuda.h"

/* Gets the ring from the daemon, once. */
CUresult ring_open(void);

/* A queue of the GPU's front end for a new stream. With more streams than queues, streams share
 * one, which orders more than necessary. */
uint16_t ring_queue(void);

/* Appends an entry; returns its number in its queue, or 0 when the daemon is gone. With cuda_lock;
 * waits while the ring is full. */
uint64_t ring_put(enum sim_work kind, int device, uint16_t queue, uint32_t slot, uint64_t a);

/* `n` kernels of a queue with one reading of clock and bell, else as ring_put(). n > 0. */
uint64_t ring_put_kernels(int device, uint16_t queue, const uint64_t *ns, size_t n);

/* The error that ended this process's contexts on the device; CUDA_SUCCESS: they are intact. */
CUresult ring_broken(int device);

bool ring_is_done(uint16_t queue, uint64_t seq);

/* Sleeps until an entry has completed. Without cuda_lock. */
CUresult ring_wait(uint16_t queue, uint64_t seq);

/* The same for any word that the daemon counts up: until it has reached `n`. */
CUresult ring_wait_word(_Atomic uint64_t *word, uint64_t n, _Atomic uint32_t *waiters);

/* True when the daemon has closed the connection: nothing will complete. */
bool ring_is_lost(void);

/* Waits for an entry, but no longer than `ns`. */
void ring_poll(uint16_t queue, uint64_t seq, uint32_t ns);

/* Lets the queue's SIM_HOLD go on. */
void ring_release(uint16_t queue);

/* The GPU time at which the last SIM_MARK of the slot completed. */
uint64_t ring_mark(uint32_t slot);
