/* SPDX-License-Identifier: Apache-2.0 */

/* Executable graphs: an ordered copy of a graph, launched as often as one likes. Nodes run one
 * after the other, as on one card that each of them fills. */

#include "sim/cuda/graph_exec.h"

#include <stdlib.h>
#include <string.h>

#include "sim/cuda/capture.h"
#include "sim/cuda/stream.h"
#include "sim/list.h"

struct CUgraphExec_st {
    enum cuda_tag tag;
    struct CUgraphExec_st *next_free;
    CUgraph graph;
    CUgraph source; /* with memory nodes: it knows of this one */
    unsigned long long source_id;
    unsigned long long flags;
    struct graph_use use;
};

static CUgraphExec free_execs;

struct graph_use *graph_exec_use(CUgraphExec exec) {
    return &exec->use;
}

static bool is_exec(CUgraphExec e) {
    return e && e->tag == TAG_EXEC;
}

CUgraph graph_of_exec(CUgraphExec e) {
    return is_exec(e) ? e->graph : NULL;
}

static CUresult enter_exec(CUgraphExec e) {
    CUDA_TRY(cuda_enter());
    return is_exec(e) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUgraphExec exec_new(void) {
    CUgraphExec e;
    CUDA_NEW_OBJECT(e, free_execs, next_free,
                    (struct CUgraphExec_st){.tag = TAG_EXEC, .use = {.device = -1}});
    return e;
}

static void exec_free(CUgraphExec e) {
    if (e->use.device >= 0)
        graph_use_remove(&e->use);
    if (e->source && graph_is(e->source) && e->source->id == e->source_id)
        e->source->exec = NULL;
    graph_free(e->graph);
    (void) pthread_mutex_lock(&cuda_lock);
    e->tag = TAG_FREE;
    LIST_PUSH(free_execs, e, next_free);
    (void) pthread_mutex_unlock(&cuda_lock);
}

/* -- instantiation --------------------------------------------------------------------------- */

/* The most that the graph has allocated at a time, in the order in which it will run. */
static void measure_memory(CUgraph g, struct graph_use *use, int64_t *now) {
    for (size_t i = 0; i < g->nnodes; i++) {
        const struct CUgraphNode_st *n = g->order[i];
        if (n->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
            measure_memory(n->params.graph.graph, use, now);
        } else if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            use->device = n->alloc->device;
            *now += (int64_t) n->alloc->bytes;
            if (*now > (int64_t) use->most)
                use->most = (uint64_t) *now;
        } else if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            *now -= (int64_t) n->alloc->bytes;
        }
    }
}

static CUresult fill_exec(CUgraphExec e, CUgraph graph) {
    CUresult r = graph_copy(graph, true, &e->graph);
    if (r == CUDA_SUCCESS)
        r = graph_order(e->graph);
    if (r != CUDA_SUCCESS || !graph_has_memory(graph))
        return r;
    int64_t now = 0;
    measure_memory(e->graph, &e->use, &now);
    if (e->use.device >= 0)
        graph_use_add(&e->use);
    e->source = graph;
    e->source_id = graph->id;
    graph->exec = e;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CUDA_TRY(cuda_enter());
    const unsigned long long known =
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
        CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    if (!exec || !graph_is(graph) || graph->owner || graph->exec || (flags & ~known))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphExec e = exec_new();
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->flags = flags;
    CUresult r = fill_exec(e, graph);
    if (r != CUDA_SUCCESS) {
        exec_free(e);
        return r;
    }
    *exec = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        return cuda_invalid();
    return instantiate(exec, graph, flags);
}

/* The older forms have room for a text, of which there is none. */
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                               char *log_buffer, size_t buffer_size) {
    if (error_node)
        *error_node = NULL;
    if (log_buffer && buffer_size > 0)
        *log_buffer = '\0';
    return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                            char *log_buffer, size_t buffer_size) {
    return cuGraphInstantiate_v2(exec, graph, error_node, log_buffer, buffer_size);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiate_params) {
    CUDA_GRAPH_INSTANTIATE_PARAMS *p = instantiate_params;
    if (!p)
        return cuda_invalid();
    CUresult r = instantiate(exec, graph, p->flags);
    p->hErrNode_out = NULL;
    p->result_out = r == CUDA_SUCCESS               ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                    : r == CUDA_ERROR_INVALID_VALUE ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                                    : CUDA_GRAPH_INSTANTIATE_ERROR;
    if (r == CUDA_SUCCESS && (p->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD))
        r = cuGraphUpload(*exec, p->hUploadStream);
    return r;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CUresult r = enter_exec(exec);
    if (r == CUDA_SUCCESS)
        exec_free(exec);
    return r;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags) {
    CUDA_TRY(enter_exec(exec));
    CUDA_RETURN_VALUE(flags, exec->flags);
}

/* -- launch ---------------------------------------------------------------------------------- */

CUresult graph_flush(struct graph_run *run) {
    if (run->nkernels == 0)
        return CUDA_SUCCESS;
    size_t n = run->nkernels;
    run->nkernels = 0;
    return stream_submit_kernels(run->stream, run->device, run->ns, n);
}

CUresult graph_run(struct graph_run *run, CUgraph g) {
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < g->nnodes && r == CUDA_SUCCESS; i++) {
        CUgraphNode n = g->order[i];
        if (!n->disabled)
            r = graph_kinds[n->params.type].run(run, n);
    }
    return r;
}

static void assign_defaults(CUgraph g) {
    for (size_t i = 0; i < g->nnodes; i++) {
        CUgraphNode n = g->node[i];
        if (n->condition && n->condition->assign)
            n->condition->value = n->condition->default_value;
        for (unsigned int k = 0; n->body && k < n->params.conditional.size; k++)
            assign_defaults(n->body[k]);
    }
}

static void free_allocations(CUgraph g) {
    for (size_t i = 0; i < g->nnodes; i++) {
        CUgraphNode n = g->node[i];
        if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            (void) graph_alloc_give(n->alloc);
        else if (n->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            free_allocations(n->params.graph.graph);
    }
}

static CUresult prepare_memory(CUgraphExec e, CUstream s) {
    if (e->use.alive > 0) {
        if (!(e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
            return CUDA_ERROR_INVALID_VALUE;
        free_allocations(e->graph);
    }
    return graph_use_reserve(&e->use, s->queue);
}

/* In a capture the graph becomes a child graph of the captured one. */
static CUresult capture_graph(CUstream s, CUgraphExec e) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph = {.graph = e->graph}};
    return capture_add(s, &p);
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (!is_exec(graph))
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture)
        return capture_graph(s, graph);
    CUDA_TRY(prepare_memory(graph, s));
    assign_defaults(graph->graph);
    struct graph_run run;
    run.exec = graph;
    run.stream = s;
    run.device = s->context->device;
    run.nkernels = 0;
    CUresult r = graph_run(&run, graph->graph);
    if (r == CUDA_SUCCESS)
        r = graph_flush(&run);
    graph->use.queue = s->queue;
    graph->use.seq = s->last;
    return r;
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
    CUstream s;
    CUDA_TRY(stream_enter_work(stream, &s));
    if (!is_exec(graph))
        return CUDA_ERROR_INVALID_VALUE;
    return s->capture ? capture_refuse(s) : graph_use_reserve(&graph->use, s->queue);
}
