/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory of graphs. A node that allocates takes nothing when it is made or captured: the driver
 * takes memory for it when the graph is instantiated, uploaded or launched, and keeps it in a pool
 * of the device. So what that pool holds is booked, and before the driver may make it larger, as
 * much is reserved as the graph could need. */

#include "intercept/resolve/driver.h"
#include "intercept/session/session.h"

struct graph_use {
    struct share *share; /* NULL: no memory in it */
    uint64_t need[LIMITS_DEVICES_MAX];
};

/* There is a graph with a node that allocates, made or being captured. */
void graph_memory_seen(void);

/* Before a capture begins, and before memory is taken from a pool in the order of a stream. Another
 * thread may begin a capture between its own look at the stream and the driver's, so a process that
 * does both is taken to have such graphs. */
void graph_capture_begins(void);
void graph_pool_used(struct share *share);

/* Around the launch of a graph; false: answer CUDA_ERROR_OUT_OF_MEMORY. */
bool graph_use_begin_slowly(struct graph_use *use, CUgraphExec exec, CUstream stream,
                            bool per_thread);
CUresult graph_use_end(struct graph_use *use, CUresult result);

static inline bool graph_use_begin(struct graph_use *use, CUgraphExec exec, CUstream stream,
                                   bool per_thread) {
    const struct share *share = __atomic_load_n(&share_memory, __ATOMIC_ACQUIRE);

    use->share = NULL;
    if (__builtin_expect(!share || !__atomic_load_n(&share->graphs, __ATOMIC_RELAXED), 1))
        return true;
    return graph_use_begin_slowly(use, exec, stream, per_thread);
}
