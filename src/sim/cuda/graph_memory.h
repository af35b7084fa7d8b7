/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that graphs allocate. An address belongs to its node for ever; the bytes behind it come
 * from a reserve of the device, which grows when a graph is launched or uploaded that needs more,
 * is shared by graphs that cannot run at the same time, and shrinks only by
 * cuDeviceGraphMemTrim. */

#include "sim/cuda/memory.h"

struct graph_alloc {
    struct graph_alloc *next;
    unsigned int references; /* nodes, and the program while it is allocated */
    struct memory *memory;
    int device;
    size_t bytes;
    bool live;
    struct graph_use *use; /* by which it was allocated */
};

/* What one executable graph needs. */
struct graph_use {
    struct graph_use *next;
    int device;     /* -1: it has no memory nodes */
    uint64_t most;  /* bytes at the same time in one run */
    uint64_t alive; /* of its allocations, now */
    uint16_t queue; /* of the last launch */
    uint64_t seq;
};

CUresult graph_alloc_new(CUcontext ctx, int device, size_t bytes, struct graph_alloc **ret);
void graph_alloc_retain(struct graph_alloc *a);
void graph_alloc_release(struct graph_alloc *a);

/* By the node in a run: ILLEGAL_STATE when it is allocated already. */
CUresult graph_alloc_take(struct graph_alloc *a, struct graph_use *use);
/* By a free node, cuMemFree or cuMemFreeAsync; false when it is not allocated. */
bool graph_alloc_give(struct graph_alloc *a);

/* The context ends: nothing of it is allocated any more, and the reserve is given back. */
void graph_memory_release_context(CUcontext ctx);

void graph_use_add(struct graph_use *use);
void graph_use_remove(struct graph_use *use);
/* Grows the reserve so that the graph can run behind what its stream has. */
CUresult graph_use_reserve(struct graph_use *use, uint16_t queue);
