/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's functions for nodes of each kind: the same three or four for every kind, in terms of
 * CUgraphNodeParams. */

#include <stddef.h>
#include <string.h>

#include "sim/cuda/graph.h"

static CUresult add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                         const CUgraphEdgeData *data, size_t n, CUgraphNodeParams *params) {
    CUDA_TRY(cuda_enter());
    if (!node || !graph_is(graph) || (n > 0 && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    return graph_add(graph, dependencies, data, n, params, node);
}

static CUresult set_params(CUgraphNode node, CUgraphNodeType type,
                           const CUgraphNodeParams *params) {
    CUresult r = graph_enter_kind(node, type);
    return r == CUDA_SUCCESS ? graph_set(node, params) : r;
}

static CUresult get_params(CUgraphNode node, CUgraphNodeType type, void *out, size_t at,
                           size_t size) {
    CUDA_TRY(graph_enter_kind(node, type));
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(out, (const char *) &node->params + at, size);
    return CUDA_SUCCESS;
}

/* `out` has the type of the member, or its first fields. */
#define GET(node, type, out, member)                                                               \
    get_params(node, type, out, offsetof(CUgraphNodeParams, member), sizeof(*(out)))

/* -- any kind -------------------------------------------------------------------------------- */

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependency_data, size_t num_dependencies,
                           CUgraphNodeParams *node_params) {
    if (!node_params)
        return cuda_invalid();
    return add_node(node, graph, dependencies, dependency_data, num_dependencies, node_params);
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t num_dependencies, CUgraphNodeParams *node_params) {
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, num_dependencies, node_params);
}

CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *dependency_data, size_t num_dependencies,
                           CUgraphNodeParams *node_params) {
    return cuGraphAddNode_v2(node, graph, dependencies, dependency_data, num_dependencies,
                             node_params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *node_params) {
    CUDA_TRY(graph_enter_node(node));
    return node_params ? graph_set(node, node_params) : CUDA_ERROR_INVALID_VALUE;
}

/* -- kernels --------------------------------------------------------------------------------- */

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t num_dependencies,
                                 const CUDA_KERNEL_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *node_params};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

static CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1 *v1) {
    CUDA_KERNEL_NODE_PARAMS p = {0};
    memcpy(&p, v1, sizeof(*v1));
    return p;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t num_dependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUDA_KERNEL_NODE_PARAMS p = widen(node_params);
    return cuGraphAddKernelNode_v2(node, graph, dependencies, num_dependencies, &p);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *node_params) {
    return GET(node, CU_GRAPH_NODE_TYPE_KERNEL, node_params, kernel);
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *node_params) {
    CUDA_KERNEL_NODE_PARAMS p;
    if (!node_params)
        return cuda_invalid();
    CUresult r = cuGraphKernelNodeGetParams_v2(node, &p);
    if (r == CUDA_SUCCESS)
        memcpy(node_params, &p, sizeof(*node_params));
    return r;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = *node_params};
    return set_params(node, CU_GRAPH_NODE_TYPE_KERNEL, &p);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node,
                                    const CUDA_KERNEL_NODE_PARAMS_v1 *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUDA_KERNEL_NODE_PARAMS p = widen(node_params);
    return cuGraphKernelNodeSetParams_v2(node, &p);
}

/* -- copies and fills ------------------------------------------------------------------------ */

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t num_dependencies, const CUDA_MEMCPY3D *copy_params,
                              CUcontext ctx) {
    if (!copy_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                           .memcpy = {.copyCtx = ctx, .copyParams = *copy_params}};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *node_params) {
    return GET(node, CU_GRAPH_NODE_TYPE_MEMCPY, node_params, memcpy.copyParams);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
                           .memcpy = {.copyParams = *node_params}};
    return set_params(node, CU_GRAPH_NODE_TYPE_MEMCPY, &p);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t num_dependencies, const CUDA_MEMSET_NODE_PARAMS *memset_params,
                              CUcontext ctx) {
    if (!memset_params)
        return cuda_invalid();
    CUgraphNodeParams p = graph_memset(memset_params, ctx);
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *node_params) {
    return GET(node, CU_GRAPH_NODE_TYPE_MEMSET, node_params, memset);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = graph_memset(node_params, NULL);
    return set_params(node, CU_GRAPH_NODE_TYPE_MEMSET, &p);
}

/* -- host functions, events, nothing --------------------------------------------------------- */

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t num_dependencies, const CUDA_HOST_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = *node_params};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *node_params) {
    return GET(node, CU_GRAPH_NODE_TYPE_HOST, node_params, host);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = *node_params};
    return set_params(node, CU_GRAPH_NODE_TYPE_HOST, &p);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t num_dependencies) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
                                   const CUgraphNode *dependencies, size_t num_dependencies,
                                   CUevent event) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .eventRecord = {event}};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t num_dependencies, CUevent event) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .eventWait = {event}};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

static CUresult set_event(CUgraphNode node, CUgraphNodeType type, CUevent event) {
    CUgraphNodeParams p = {.type = type, .eventRecord = {event}};
    return set_params(node, type, &p);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event_out) {
    return GET(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out, eventRecord.event);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
    return set_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event_out) {
    return GET(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out, eventWait.event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
    return set_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

/* -- child graphs ---------------------------------------------------------------------------- */

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t num_dependencies, CUgraph child_graph) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = child_graph};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph) {
    return GET(node, CU_GRAPH_NODE_TYPE_GRAPH, graph, graph.graph);
}

/* -- memory ---------------------------------------------------------------------------------- */

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t num_dependencies, CUDA_MEM_ALLOC_NODE_PARAMS *node_params) {
    if (!node_params)
        return cuda_invalid();
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .alloc = *node_params};
    CUresult r = add_node(node, graph, dependencies, NULL, num_dependencies, &p);
    if (r == CUDA_SUCCESS)
        node_params->dptr = p.alloc.dptr;
    return r;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params_out) {
    return GET(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, params_out, alloc);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t num_dependencies, CUdeviceptr dptr) {
    CUgraphNodeParams p = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .free = {dptr}};
    return add_node(node, graph, dependencies, NULL, num_dependencies, &p);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *dptr_out) {
    return GET(node, CU_GRAPH_NODE_TYPE_MEM_FREE, dptr_out, free.dptr);
}
