/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Memory that graphs allocate. An address belongs to its node for ever; its bytes come from a
 * reserve of the device. The reserve grows when a graph that needs more is launched or uploaded.
 * Graphs that cannot run at the same time share it. Only cuDeviceGraphMemTrim shrinks it. */

#include "sim/cuda/memory.h"

struct graph_alloc {
    struct graph_alloc *next;
    unsigned int references; /* nodes, and the program while it is allocated */
    struct memory *memory;
    int device;
    size_t bytes;
    bool live;
    struct graph_use *use; /* that allocated it */
};

/* The demand of one executable graph. */
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

/* The context ends: its allocations end, and the reserve is freed. */
void graph_memory_release_context(CUcontext ctx);

void graph_use_add(struct graph_use *use);
void graph_use_remove(struct graph_use *use);
/* Grows the reserve so that the graph can run after the work of its stream. */
CUresult graph_use_reserve(struct graph_use *use, uint16_t queue);
