/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Graphs. As with the real driver, two threads may not use a graph, or what is made of it, at the
 * same time; only capture, where several streams write into one graph, has a lock of its own.
 *
 * A node carries CUgraphNodeParams, the driver's own description of any node, and the data of its
 * kind. The table graph_kinds holds all differences between kinds. */

#include <string.h>

#include "sim/cuda/launch.h"

#define GRAPH_KINDS 14u

struct graph_edge {
    CUgraphNode from;
    CUgraphEdgeData data;
};

struct graph_condition;

struct CUgraphNode_st {
    enum cuda_tag tag;
    struct CUgraphNode_st *next_free;
    CUgraph graph;
    size_t index;              /* in its graph */
    unsigned long long id;     /* unique among all nodes ever created */
    unsigned long long origin; /* id of the node that it is a copy of */
    bool disabled;
    CUgraphNodeParams params;
    struct graph_edge *dependency;
    size_t ndependencies, dependency_room;
    struct launch_call call;   /* kernel */
    void *argument[4];         /* kernel: addresses of call.arg */
    struct graph_alloc *alloc; /* memory allocation */
    struct graph_condition *condition;
    CUgraph *body; /* conditional: params.conditional.size of them */
};

/* A memset node as CUDA's older functions describe it. */
static inline CUgraphNodeParams graph_memset(const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    memcpy(&p.memset, params, sizeof(*params));
    p.memset.ctx = ctx;
    return p;
}

struct graph_user_reference {
    struct graph_user_reference *next;
    struct CUuserObject_st *object;
    unsigned int count;
};

struct CUgraph_st {
    enum cuda_tag tag;
    struct CUgraph_st *next_free;
    CUgraphNode *node;
    size_t nnodes, room;
    CUgraphNode owner;       /* the node that it is the child or a body of */
    unsigned long long id;   /* unique among all graphs ever created */
    unsigned long long from; /* id of the graph that it is a copy of */
    bool conditional_body;
    CUgraphExec exec;   /* of a graph with memory nodes: it may have one at a time */
    CUgraphNode *order; /* of an executable graph: nnodes in topological order */
    struct graph_user_reference *references;
};

/* A value that kernels set and conditional nodes read. */
struct graph_condition {
    struct graph_condition *next;
    unsigned int value, default_value;
    bool assign; /* the default at each launch */
    bool used;   /* by a node */
};

/* A launch under way. */
struct graph_run {
    CUgraphExec exec;
    CUstream stream;
    int device; /* of the kernels collected below */
    size_t nkernels;
    uint64_t ns[256];
};

struct graph_kind {
    const char *name;
    /* Checks node->params, which have just been replaced, and copies what they point to; `node`
     * may have had others before. NULL: this kind is refused. */
    CUresult (*take)(CUgraphNode node);
    /* Makes a fresh node with the params of `from` its copy. NULL: nothing more to do. */
    CUresult (*copy)(CUgraphNode node, const struct CUgraphNode_st *from);
    void (*drop)(CUgraphNode node);
    CUresult (*run)(struct graph_run *run, CUgraphNode node);
    bool may_be_disabled;
    bool may_be_conditional; /* allowed in the body of a conditional node */
};

extern const struct graph_kind graph_kinds[GRAPH_KINDS];

/* -- graph.c --------------------------------------------------------------------------------- */

CUgraph graph_new(void);
void graph_free(CUgraph graph);
bool graph_is(CUgraph graph);

/* A copy, memory nodes included if `memory`. */
CUresult graph_copy(CUgraph from, bool memory, CUgraph *ret);

/* Adds a node behind `n` dependencies; `data` NULL: plain ones. Takes a copy of the parameters and
 * writes back what the driver decides (addresses, bodies). */
CUresult graph_add(CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                   size_t n, CUgraphNodeParams *params, CUgraphNode *ret);
CUresult graph_set(CUgraphNode node, const CUgraphNodeParams *params);
void graph_remove(CUgraphNode node);

CUresult graph_connect(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data);
bool graph_disconnect(CUgraphNode from, CUgraphNode to);

bool graph_has_kind(CUgraph graph, CUgraphNodeType type);
bool graph_has_memory(CUgraph graph);

/* Finds an order that keeps all dependencies, here and in all children; INVALID_VALUE when there
 * is none. */
CUresult graph_order(CUgraph graph);

/* cuda_enter(), and it is a node of a graph (of the kind). */
CUresult graph_enter_node(CUgraphNode node);
CUresult graph_enter_kind(CUgraphNode node, CUgraphNodeType type);

/* -- graph_kinds.c --------------------------------------------------------------------------- */

/* NULL when there is none of this handle. */
struct graph_condition *graph_condition_find(CUgraphConditionalHandle handle);
void graph_condition_set(CUgraphConditionalHandle handle, unsigned int value);

/* -- graph_exec.c ---------------------------------------------------------------------------- */

/* Runs an ordered graph and its children. */
CUresult graph_run(struct graph_run *run, CUgraph graph);
/* Submits the kernels collected so far, before work that has to follow them. */
CUresult graph_flush(struct graph_run *run);
/* The graph of an executable graph; NULL for another handle. */
CUgraph graph_of_exec(CUgraphExec exec);

/* -- graph_user.c ---------------------------------------------------------------------------- */

CUresult graph_copy_references(CUgraph to, CUgraph from);
void graph_drop_references(CUgraph graph);
