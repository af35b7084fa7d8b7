/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Work for the GPU: entries into the ring that is shared with the daemon, and waiting for it. */

#include "sim/cuda/cuda.h"

/* Gets the ring from the daemon, once. */
CUresult ring_open(void);

/* A queue of the GPU's front end for a new stream. There are fewer queues than streams may be:
 * streams then share, which orders more than it must. */
uint16_t ring_queue(void);

/* Appends an entry; returns its number in its queue, or 0 when the daemon is gone. With cuda_lock;
 * waits while the ring is full. */
uint64_t ring_put(enum sim_work kind, int device, uint16_t queue, uint32_t slot, uint64_t a);

bool ring_is_done(uint16_t queue, uint64_t seq);

/* Sleeps until an entry has completed. Without cuda_lock. */
CUresult ring_wait(uint16_t queue, uint64_t seq);

/* Lets the queue's SIM_HOLD go on. */
void ring_release(uint16_t queue);

/* The GPU time at which the last SIM_MARK of the slot completed. */
uint64_t ring_mark(uint32_t slot);
