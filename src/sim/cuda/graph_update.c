/* SPDX-License-Identifier: Apache-2.0 */

/* Changing executable graphs: one node at a time, or all of them from a graph of the same shape. */

#include <string.h>

#include "sim/cuda/graph.h"

/* The executable's copy of a node of the graph that it was made of. Copies keep the place. */
static CUgraphNode find_copy(CUgraph g, const struct CUgraphNode_st *node) {
    if (node->index < g->nnodes && g->node[node->index]->origin == node->id)
        return g->node[node->index];
    for (size_t i = 0; i < g->nnodes; i++) {
        CUgraphNode n = g->node[i];
        if (n->origin == node->id)
            return n;
        CUgraphNode inside = n->params.type == CU_GRAPH_NODE_TYPE_GRAPH
                                 ? find_copy(n->params.graph.graph, node)
                                 : NULL;
        for (unsigned int k = 0; n->body && !inside && k < n->params.conditional.size; k++)
            inside = find_copy(n->body[k], node);
        if (inside)
            return inside;
    }
    return NULL;
}

static CUresult find_exec_node(CUgraphExec exec, CUgraphNode node, CUgraphNode *ret) {
    CUDA_TRY(graph_enter_node(node));
    CUgraph g = graph_of_exec(exec);
    *ret = g ? find_copy(g, node) : NULL;
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_exec_params(CUgraphExec exec, CUgraphNode node,
                                const CUgraphNodeParams *params) {
    CUgraphNode copy;
    CUresult r = find_exec_node(exec, node, &copy);
    return r == CUDA_SUCCESS ? graph_set(copy, params) : r;
}

/* -- the whole ------------------------------------------------------------------------------- */

/* Same nodes in the same places, with the same edges: what capture makes of the same code. */
static CUresult compare_graphs(CUgraph old, CUgraph new, CUgraphExecUpdateResultInfo *info) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (old->nnodes != new->nnodes)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    for (size_t i = 0; i < new->nnodes; i++) {
        const struct CUgraphNode_st *a = old->node[i], *b = new->node[i];
        info->errorNode = new->node[i];
        if (a->params.type != b->params.type) {
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
            return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        if (a->ndependencies != b->ndependencies)
            return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        for (size_t k = 0; k < a->ndependencies; k++) {
            info->errorFromNode = b->dependency[k].from;
            if (a->dependency[k].from->index != b->dependency[k].from->index)
                return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        info->errorFromNode = NULL;
        if (a->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
            CUDA_TRY(compare_graphs(a->params.graph.graph, b->params.graph.graph, info));
        }
    }
    info->errorNode = NULL;
    return CUDA_SUCCESS;
}

/* What may not change: the allocations, and which conditions there are. */
static bool is_same(const struct CUgraphNode_st *a, const struct CUgraphNode_st *b) {
    return a->alloc == b->alloc && a->condition == b->condition && !a->body == !b->body;
}

static CUresult adopt_params(CUgraph old, CUgraph new, CUgraphExecUpdateResultInfo *info) {
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < new->nnodes &&r == CUDA_SUCCESS; i++) {
        CUgraphNode a = old->node[i], b = new->node[i];
        info->errorNode = b;
        switch (b->params.type) {
        case CU_GRAPH_NODE_TYPE_GRAPH:
            r = adopt_params(a->params.graph.graph, b->params.graph.graph, info);
            break;
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
        case CU_GRAPH_NODE_TYPE_CONDITIONAL:
            r = is_same(a, b) ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
            break;
        default:
            r = graph_set(a, &b->params);
            info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
        }
        if (r == CUDA_SUCCESS)
            a->origin = b->id; /* later changes name nodes of the new graph */
    }
    return r;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *result_info) {
    CUDA_TRY(cuda_enter());
    CUgraph old = graph_of_exec(exec);
    if (!result_info || !old || !graph_is(graph))
        return CUDA_ERROR_INVALID_VALUE;
    *result_info = (CUgraphExecUpdateResultInfo){0};
    CUresult r = compare_graphs(old, graph, result_info);
    if (r == CUDA_SUCCESS)
        r = adopt_params(old, graph, result_info);
    if (r == CUDA_SUCCESS)
        *result_info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
    return r == CUDA_SUCCESS ? r : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node_out,
                           CUgraphExecUpdateResult *update_result_out) {
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult r = cuGraphExecUpdate_v2(exec, graph, &info);
    if (error_node_out)
        *error_node_out = info.errorNode;
    if (update_result_out)
        *update_result_out = info.result;
    return r;
}

/* -- one node -------------------------------------------------------------------------------- */

CUresult cuGraphExecNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                  CUgraphNodeParams *node_params) {
    return node_params ? set_exec_params(graph_exec, node, node_params) : cuda_invalid();
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec graph_exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *node_params};
    return set_exec_params(graph_exec, node, &p);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    memcpy(&p.kernel, node_params, sizeof(*node_params));
    return set_exec_params(graph_exec, node, &p);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *copy_params, CUcontext ctx) {
    if (!copy_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                           .memcpy = {.copyCtx = ctx, .copyParams = *copy_params}};
    return set_exec_params(graph_exec, node, &p);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *memset_params,
                                        CUcontext ctx) {
    if (!memset_params)
        return cuda_invalid();
    CUgraphNodeParams p = graph_memset(memset_params, ctx);
    return set_exec_params(graph_exec, node, &p);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = *node_params};
    return set_exec_params(graph_exec, node, &p);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec graph_exec, CUgraphNode node,
                                            CUevent event) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};
    return set_exec_params(graph_exec, node, &p);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec graph_exec, CUgraphNode node, CUevent event) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};
    return set_exec_params(graph_exec, node, &p);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec graph_exec, CUgraphNode node,
                                            CUgraph child_graph) {
    CUgraphNode copy;
    CUgraphExecUpdateResultInfo info;
    CUDA_TRY(find_exec_node(graph_exec, node, &copy));
    if (copy->params.type != CU_GRAPH_NODE_TYPE_GRAPH || !graph_is(child_graph))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult r = compare_graphs(copy->params.graph.graph, child_graph, &info);
    if (r == CUDA_SUCCESS)
        r = adopt_params(copy->params.graph.graph, child_graph, &info);
    return r == CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
}

/* -- switching nodes off --------------------------------------------------------------------- */

CUresult cuGraphNodeSetEnabled(CUgraphExec graph_exec, CUgraphNode node, unsigned int is_enabled) {
    CUgraphNode copy;
    CUDA_TRY(find_exec_node(graph_exec, node, &copy));
    if (!graph_kinds[copy->params.type].may_be_disabled)
        return CUDA_ERROR_INVALID_VALUE;
    copy->disabled = !is_enabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec graph_exec, CUgraphNode node, unsigned int *is_enabled) {
    CUgraphNode copy;
    CUDA_TRY(find_exec_node(graph_exec, node, &copy));
    if (!is_enabled || !graph_kinds[copy->params.type].may_be_disabled)
        return CUDA_ERROR_INVALID_VALUE;
    *is_enabled = !copy->disabled;
    return CUDA_SUCCESS;
}
