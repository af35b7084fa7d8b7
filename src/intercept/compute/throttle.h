/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The throttle: every launch is charged to the container's account of the card's time on its way to
 * the driver, and waits while the account is overdrawn. meter.h decides; here are clock, waiting,
 * events and the thread that reads them. Compute fails open: if anything is missing or broken here,
 * the launch goes on.
 *
 * Nothing here touches a stream that is being captured. While there is a capture in the process,
 * launches on other streams are measured one by one, so that no measurement is open when another
 * stream joins it. */

#include <stdbool.h>
#include <stdint.h>

#include "abi/cuda.h"
#include "intercept/compute/cost.h"
#include "intercept/compute/meter.h"

/* Launches over more devices at once are not charged. */
#define GATE_DEVICES_MAX 16

struct card;

/* A launch between throttle_enter and throttle_leave. */
struct passage {
    struct card *card; /* NULL: the launch is not metered */
    struct launch launch;
    CUstream stream;
    bool slow; /* it takes part in a measurement */
};

/* While it is open, launches pass without any other check: there is no share, or none with a limit
 * of compute; `index` (of the limits file) moves when that may have changed. */
struct throttle_view {
    bool open;
    const uint64_t *index;
    uint64_t seen;
};
extern struct throttle_view throttle_view;

static inline bool throttle_open(void) {
    return throttle_view.open &&
           (!throttle_view.index ||
            __atomic_load_n(throttle_view.index, __ATOMIC_RELAXED) == throttle_view.seen);
}

void throttle_enter_metered(struct passage *passage, uint64_t key, CUstream stream,
                            bool per_thread);
CUresult throttle_leave_slowly(struct passage *passage, CUresult result);

/* Before a launch; `handle`, `grid` and `block` name the kind of launch. `per_thread`: the default
 * stream is the thread's own. */
static inline void throttle_enter(struct passage *passage, const void *handle, uint64_t grid,
                                  uint64_t block, CUstream stream, bool per_thread) {
    passage->card = NULL;
    if (__builtin_expect(!throttle_open(), 0))
        throttle_enter_metered(passage, cost_key((uint64_t) (uintptr_t) handle, grid, block),
                               stream, per_thread);
}

/* After it, with the result of the driver, which it returns. */
static inline CUresult throttle_leave(struct passage *passage, CUresult result) {
    if (__builtin_expect(passage->card && (passage->slow || result != CUDA_SUCCESS), 0))
        return throttle_leave_slowly(passage, result);
    return result;
}

/* Three dimensions in one word; kinds that collide only share an estimate. */
static inline uint64_t throttle_grid(unsigned int x, unsigned int y, unsigned int z) {
    return x ^ (uint64_t) y << 32 ^ (uint64_t) z << 48 ^ z;
}

/* The graph was changed or destroyed, and with it its cost. */
void throttle_graph_changed(CUgraphExec exec);

/* Around a call that may end a context, with the events in it and the work that they measure. */
void throttle_context_ends(uint64_t context);
void throttle_context_ended(uint64_t context, bool ended);

/* The program is about to wait for the stream. */
void throttle_about_to_wait(CUstream stream, bool per_thread);

/* It is about to destroy the stream, which also ends a capture there. */
void throttle_stream_ends(CUstream stream);

/* It is about to wait for all streams. */
void throttle_about_to_wait_all(void);

/* It has waited: work that ran meanwhile is charged now, in case the program ends before our thread
 * reads the events. */
void throttle_waited(void);

/* Captures that began and ended in this process. */
void throttle_capture(bool begins);
