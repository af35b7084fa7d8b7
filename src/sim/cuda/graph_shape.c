/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's functions for whole graphs: creation, edges, lists of nodes, dot output. */

#include <stdio.h>
#include <string.h>

#include "sim/cuda/graph.h"

static CUresult enter_graph(CUgraph graph) {
    CUDA_TRY(cuda_enter());
    return graph_is(graph) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
    CUDA_TRY(cuda_enter());
    if (!graph || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = graph_new();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph) {
    CUDA_TRY(enter_graph(graph));
    if (graph->owner)
        return CUDA_ERROR_INVALID_VALUE;
    graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *graph_clone, CUgraph original_graph) {
    CUDA_TRY(enter_graph(original_graph));
    if (!graph_clone)
        return CUDA_ERROR_INVALID_VALUE;
    return graph_copy(original_graph, false, graph_clone);
}

CUresult cuGraphDestroyNode(CUgraphNode node) {
    CUDA_TRY(graph_enter_node(node));
    if (graph_has_memory(node->graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    graph_remove(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    CUDA_TRY(graph_enter_node(node));
    CUDA_RETURN_VALUE(type, node->params.type);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original_node,
                                CUgraph cloned_graph) {
    CUDA_TRY(graph_enter_node(original_node));
    CUDA_TRY(enter_graph(cloned_graph));
    if (!node || cloned_graph->from != original_node->graph->id)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < cloned_graph->nnodes; i++)
        if (cloned_graph->node[i]->origin == original_node->id) {
            *node = cloned_graph->node[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

/* -- lists: the number alone, or as many as there is room for -------------------------------- */

/* One list being written: entries beyond the caller's room are only counted. */
struct list {
    CUgraphNode *node, *other; /* NULL: not wanted */
    CUgraphEdgeData *data;
    size_t room, n;
    bool lossy; /* there was data that the caller cannot see */
};

static void list_append(struct list *l, CUgraphNode node, CUgraphNode other,
                        const CUgraphEdgeData *data) {
    static const CUgraphEdgeData plain;
    size_t at = l->n++;
    if (at >= l->room)
        return;
    if (l->node)
        l->node[at] = node;
    if (l->other)
        l->other[at] = other;
    if (l->data && data)
        l->data[at] = *data;
    else if (data && memcmp(data, &plain, sizeof(plain)) != 0)
        l->lossy = true;
}

/* Nulls the rest of the caller's array and returns the number of entries. */
static CUresult list_finish(struct list *l, size_t *number) {
    if (l->lossy)
        return CUDA_ERROR_LOSSY_QUERY;
    for (size_t i = l->n; i < l->room; i++) {
        if (l->node)
            l->node[i] = NULL;
        if (l->other)
            l->other[i] = NULL;
    }
    *number = l->room > 0 && l->n > l->room ? l->room : l->n;
    return CUDA_SUCCESS;
}

static CUresult list_nodes(CUgraph graph, bool roots, CUgraphNode *nodes, size_t *number) {
    CUDA_TRY(enter_graph(graph));
    if (!number)
        return CUDA_ERROR_INVALID_VALUE;
    struct list l = {.node = nodes, .room = nodes ? *number : 0};
    for (size_t i = 0; i < graph->nnodes; i++)
        if (!roots || graph->node[i]->ndependencies == 0)
            list_append(&l, graph->node[i], NULL, NULL);
    return list_finish(&l, number);
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *num_nodes) {
    return list_nodes(graph, false, nodes, num_nodes);
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *root_nodes, size_t *num_root_nodes) {
    return list_nodes(graph, true, root_nodes, num_root_nodes);
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edge_data, size_t *num_edges) {
    CUDA_TRY(enter_graph(graph));
    if (!num_edges || !from != !to)
        return CUDA_ERROR_INVALID_VALUE;
    struct list l = {.node = from, .other = to, .data = edge_data, .room = from ? *num_edges : 0};
    for (size_t i = 0; i < graph->nnodes; i++)
        for (size_t k = 0; k < graph->node[i]->ndependencies; k++) {
            const struct graph_edge *e = &graph->node[i]->dependency[k];
            list_append(&l, e->from, graph->node[i], &e->data);
        }
    return list_finish(&l, num_edges);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *num_edges) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, num_edges);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edge_data, size_t *num_dependencies) {
    CUDA_TRY(graph_enter_node(node));
    if (!num_dependencies)
        return CUDA_ERROR_INVALID_VALUE;
    struct list l = {
        .node = dependencies, .data = edge_data, .room = dependencies ? *num_dependencies : 0};
    for (size_t k = 0; k < node->ndependencies; k++)
        list_append(&l, node->dependency[k].from, NULL, &node->dependency[k].data);
    return list_finish(&l, num_dependencies);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *dependencies,
                                    size_t *num_dependencies) {
    return cuGraphNodeGetDependencies_v2(node, dependencies, NULL, num_dependencies);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *dependent_nodes,
                                         CUgraphEdgeData *edge_data, size_t *num_dependent_nodes) {
    CUDA_TRY(graph_enter_node(node));
    if (!num_dependent_nodes)
        return CUDA_ERROR_INVALID_VALUE;
    struct list l = {.node = dependent_nodes,
                     .data = edge_data,
                     .room = dependent_nodes ? *num_dependent_nodes : 0};
    for (size_t i = 0; i < node->graph->nnodes; i++) {
        CUgraphNode other = node->graph->node[i];
        for (size_t k = 0; k < other->ndependencies; k++)
            if (other->dependency[k].from == node)
                list_append(&l, other, NULL, &other->dependency[k].data);
    }
    return list_finish(&l, num_dependent_nodes);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *dependent_nodes,
                                      size_t *num_dependent_nodes) {
    return cuGraphNodeGetDependentNodes_v2(node, dependent_nodes, NULL, num_dependent_nodes);
}

/* -- edges ----------------------------------------------------------------------------------- */

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edge_data, size_t num_dependencies) {
    CUresult r = enter_graph(graph);
    if (r == CUDA_SUCCESS && num_dependencies > 0 && (!from || !to))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < num_dependencies && r == CUDA_SUCCESS; i++)
        r = to[i] && to[i]->tag == TAG_NODE && to[i]->graph == graph
                ? graph_connect(from[i], to[i], edge_data ? &edge_data[i] : NULL)
                : CUDA_ERROR_INVALID_VALUE;
    return r;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t num_dependencies) {
    return cuGraphAddDependencies_v2(graph, from, to, NULL, num_dependencies);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *edge_data, size_t num_dependencies) {
    (void) edge_data; /* two nodes have one edge at most */
    CUresult r = enter_graph(graph);
    if (r != CUDA_SUCCESS || num_dependencies == 0)
        return r;
    if (!from || !to)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph_has_memory(graph))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < num_dependencies; i++)
        if (!to[i] || to[i]->tag != TAG_NODE || to[i]->graph != graph ||
            !graph_disconnect(from[i], to[i]))
            return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t num_dependencies) {
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, num_dependencies);
}

/* -- a picture ------------------------------------------------------------------------------- */

static void print_graph(FILE *f, CUgraph g) {
    (void) fprintf(f, "subgraph cluster_%llu {\nlabel=\"graph_%llu\"\n", g->id, g->id);
    for (size_t i = 0; i < g->nnodes; i++) {
        const struct CUgraphNode_st *n = g->node[i];
        (void) fprintf(f, "\"node_%llu\"[label=\"%zu %s\"]\n", n->id, n->index,
                       graph_kinds[n->params.type].name);
        for (size_t k = 0; k < n->ndependencies; k++)
            (void) fprintf(f, "\"node_%llu\" -> \"node_%llu\"\n", n->dependency[k].from->id, n->id);
        if (n->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            print_graph(f, n->params.graph.graph);
        for (unsigned int k = 0; n->body && k < n->params.conditional.size; k++)
            print_graph(f, n->body[k]);
    }
    (void) fprintf(f, "}\n");
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags) {
    (void) flags; /* more detail than there is */
    CUDA_TRY(enter_graph(graph));
    FILE *f = path ? fopen(path, "we") : NULL;
    if (!f)
        return CUDA_ERROR_INVALID_VALUE;
    (void) fprintf(f, "digraph dot {\n");
    print_graph(f, graph);
    (void) fprintf(f, "}\n");
    return fclose(f) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
