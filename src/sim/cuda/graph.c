/* SPDX-License-Identifier: Apache-2.0 */

/* Graphs as objects: nodes, edges, copies, an order to run them in. */

#include "sim/cuda/graph.h"
#include "sim/list.h"

#include <stdlib.h>
#include <string.h>

static CUgraph free_graphs;
static CUgraphNode free_nodes;

/* With cuda_lock, as the free lists. */
static unsigned long long new_id(void) {
    static unsigned long long ids;
    return ++ids;
}

bool graph_is(CUgraph graph) {
    return graph && graph->tag == TAG_GRAPH;
}

CUgraph graph_new(void) {
    CUgraph g;
    CUDA_NEW_OBJECT(g, free_graphs, next_free,
                    (struct CUgraph_st){.tag = TAG_GRAPH, .id = new_id()});
    return g;
}

static CUgraphNode node_new(void) {
    CUgraphNode n;
    CUDA_NEW_OBJECT(n, free_nodes, next_free,
                    (struct CUgraphNode_st){.tag = TAG_NODE, .id = new_id()});
    return n;
}

static void node_free(CUgraphNode n) {
    const struct graph_kind *k = &graph_kinds[n->params.type];
    if (k->drop)
        k->drop(n);
    free(n->dependency);
    (void) pthread_mutex_lock(&cuda_lock);
    n->tag = TAG_FREE;
    n->graph = NULL;
    n->dependency = NULL;
    LIST_PUSH(free_nodes, n, next_free);
    (void) pthread_mutex_unlock(&cuda_lock);
}

void graph_free(CUgraph g) {
    if (!g)
        return;
    for (size_t i = 0; i < g->nnodes; i++)
        node_free(g->node[i]);
    graph_drop_references(g);
    free(g->node);
    free(g->order);
    (void) pthread_mutex_lock(&cuda_lock);
    g->tag = TAG_FREE;
    LIST_PUSH(free_graphs, g, next_free);
    (void) pthread_mutex_unlock(&cuda_lock);
}

/* Room for one more element in an array that grows. */
static bool make_room(void **array, size_t n, size_t *room, size_t element) {
    if (n < *room)
        return true;
    size_t more = *room ? *room * 2 : 4;
    void *p = realloc(*array, more * element);
    if (!p)
        return false;
    *array = p;
    *room = more;
    return true;
}

static bool append_node(CUgraph g, CUgraphNode n) {
    if (!make_room((void **) &g->node, g->nnodes, &g->room, sizeof(CUgraphNode)))
        return false;
    n->graph = g;
    n->index = g->nnodes;
    g->node[g->nnodes++] = n;
    return true;
}

CUresult graph_enter_node(CUgraphNode node) {
    CUDA_TRY(cuda_enter());
    return node && node->tag == TAG_NODE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_enter_kind(CUgraphNode node, CUgraphNodeType type) {
    CUDA_TRY(graph_enter_node(node));
    return node->params.type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool graph_has_kind(CUgraph g, CUgraphNodeType type) {
    for (size_t i = 0; i < g->nnodes; i++) {
        const CUgraphNodeParams *p = &g->node[i]->params;
        if (p->type == type ||
            (p->type == CU_GRAPH_NODE_TYPE_GRAPH && graph_has_kind(p->graph.graph, type)))
            return true;
    }
    return false;
}

bool graph_has_memory(CUgraph g) {
    return graph_has_kind(g, CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
           graph_has_kind(g, CU_GRAPH_NODE_TYPE_MEM_FREE);
}

/* -- edges ----------------------------------------------------------------------------------- */

static struct graph_edge *find_edge(CUgraphNode from, CUgraphNode to) {
    for (size_t i = 0; i < to->ndependencies; i++)
        if (to->dependency[i].from == from)
            return &to->dependency[i];
    return NULL;
}

CUresult graph_connect(CUgraphNode from, CUgraphNode to, const CUgraphEdgeData *data) {
    if (!from || !to || from->tag != TAG_NODE || to->tag != TAG_NODE || from == to ||
        from->graph != to->graph || find_edge(from, to))
        return CUDA_ERROR_INVALID_VALUE;
    if (data && (data->from_port || data->to_port || data->type) &&
        (from->params.type != CU_GRAPH_NODE_TYPE_KERNEL ||
         to->params.type != CU_GRAPH_NODE_TYPE_KERNEL))
        return CUDA_ERROR_INVALID_VALUE;
    if (!make_room((void **) &to->dependency, to->ndependencies, &to->dependency_room,
                   sizeof(*to->dependency)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct graph_edge *e = &to->dependency[to->ndependencies++];
    *e = (struct graph_edge){.from = from};
    if (data)
        e->data = *data;
    return CUDA_SUCCESS;
}

bool graph_disconnect(CUgraphNode from, CUgraphNode to) {
    struct graph_edge *e = find_edge(from, to);
    if (!e)
        return false;
    *e = to->dependency[--to->ndependencies];
    return true;
}

/* -- nodes ----------------------------------------------------------------------------------- */

static CUresult check_new(CUgraph g, const CUgraphNodeParams *p) {
    if (p->type >= GRAPH_KINDS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!graph_kinds[p->type].take)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (; g; g = g->owner ? g->owner->graph : NULL)
        if (g->conditional_body && !graph_kinds[p->type].may_be_conditional)
            return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

CUresult graph_add(CUgraph g, const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                   size_t n, CUgraphNodeParams *params, CUgraphNode *ret) {
    CUDA_TRY(check_new(g, params));
    for (size_t i = 0; i < n; i++)
        if (!dependencies[i] || dependencies[i]->tag != TAG_NODE || dependencies[i]->graph != g)
            return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode node = node_new();
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->params = *params;
    if (!append_node(g, node)) {
        node->params.type = CU_GRAPH_NODE_TYPE_EMPTY;
        node_free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult r = graph_kinds[params->type].take(node);
    if (r != CUDA_SUCCESS)
        node->params.type = CU_GRAPH_NODE_TYPE_EMPTY; /* there is nothing to drop */
    for (size_t i = 0; i < n && r == CUDA_SUCCESS; i++)
        r = graph_connect(dependencies[i], node, data ? &data[i] : NULL);
    if (r != CUDA_SUCCESS) {
        g->nnodes--; /* the last one */
        node_free(node);
        return r;
    }
    if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
        params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        *params = node->params;
    *ret = node;
    return CUDA_SUCCESS;
}

CUresult graph_set(CUgraphNode node, const CUgraphNodeParams *params) {
    const struct graph_kind *k = &graph_kinds[node->params.type];
    bool fixed = params->type == CU_GRAPH_NODE_TYPE_GRAPH ||
                 params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                 params->type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
                 params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    if (params->type != node->params.type || fixed)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNodeParams before = node->params;
    struct launch_call call = node->call;
    node->params = *params;
    CUresult r = k->take(node);
    if (r != CUDA_SUCCESS) {
        node->params = before;
        node->call = call;
    }
    return r;
}

void graph_remove(CUgraphNode node) {
    CUgraph g = node->graph;
    for (size_t i = 0; i < g->nnodes; i++)
        (void) graph_disconnect(node, g->node[i]);
    for (size_t i = node->index; i + 1 < g->nnodes; i++) {
        g->node[i] = g->node[i + 1];
        g->node[i]->index = i;
    }
    g->nnodes--;
    node_free(node);
}

/* -- copies ---------------------------------------------------------------------------------- */

static CUresult copy_node(CUgraph to, const struct CUgraphNode_st *from) {
    CUgraphNode n = node_new();
    if (!n)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct graph_kind *k = &graph_kinds[from->params.type];
    n->params = from->params;
    n->origin = from->id;
    n->disabled = from->disabled;
    CUresult r = k->copy ? k->copy(n, from) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS)
        n->params.type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (r == CUDA_SUCCESS && append_node(to, n))
        return CUDA_SUCCESS;
    node_free(n);
    return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

static CUresult copy_edges(CUgraph to, CUgraph from) {
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < from->nnodes && r == CUDA_SUCCESS; i++) {
        const struct CUgraphNode_st *n = from->node[i];
        for (size_t k = 0; k < n->ndependencies && r == CUDA_SUCCESS; k++)
            r = graph_connect(to->node[n->dependency[k].from->index], to->node[i],
                              &n->dependency[k].data);
    }
    return r;
}

CUresult graph_copy(CUgraph from, bool memory, CUgraph *ret) {
    if (!memory && graph_has_memory(from))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraph to = graph_new();
    if (!to)
        return CUDA_ERROR_OUT_OF_MEMORY;
    to->from = from->id;
    to->conditional_body = from->conditional_body;
    CUresult r = graph_copy_references(to, from);
    for (size_t i = 0; i < from->nnodes && r == CUDA_SUCCESS; i++)
        r = copy_node(to, from->node[i]);
    if (r == CUDA_SUCCESS)
        r = copy_edges(to, from);
    if (r != CUDA_SUCCESS) {
        graph_free(to);
        return r;
    }
    *ret = to;
    return CUDA_SUCCESS;
}

/* -- order ----------------------------------------------------------------------------------- */

static CUresult order_children(CUgraph g) {
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < g->nnodes && r == CUDA_SUCCESS; i++) {
        CUgraphNode n = g->node[i];
        if (n->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            r = graph_order(n->params.graph.graph);
        for (unsigned int k = 0; n->body && k < n->params.conditional.size; k++)
            if (r == CUDA_SUCCESS)
                r = graph_order(n->body[k]);
    }
    return r;
}

/* The dependents of each node, in one common list. */
struct successors {
    size_t *missing; /* dependencies of each node that have not come yet */
    size_t *first;   /* nnodes + 1 */
    size_t *list;
};

static void list_successors(CUgraph g, struct successors *s) {
    for (size_t i = 0; i < g->nnodes; i++) {
        s->missing[i] = g->node[i]->ndependencies;
        for (size_t k = 0; k < g->node[i]->ndependencies; k++)
            s->first[g->node[i]->dependency[k].from->index + 1]++;
    }
    for (size_t i = 0; i < g->nnodes; i++)
        s->first[i + 1] += s->first[i];
    for (size_t i = g->nnodes; i-- > 0;)
        for (size_t k = 0; k < g->node[i]->ndependencies; k++)
            s->list[--s->first[g->node[i]->dependency[k].from->index + 1]] = i;
    /* Each first[i + 1] is now the beginning of node i's part. */
}

/* Topological order: roots first, then the nodes that have become free, by creation. */
static bool sort_nodes(CUgraph g, const struct successors *s, size_t nedges, CUgraphNode *order) {
    size_t n = 0;
    for (size_t i = 0; i < g->nnodes; i++)
        if (s->missing[i] == 0)
            order[n++] = g->node[i];
    for (size_t at = 0; at < n; at++) {
        size_t i = order[at]->index;
        size_t end = i + 2 <= g->nnodes ? s->first[i + 2] : nedges;
        for (size_t k = s->first[i + 1]; k < end; k++)
            if (--s->missing[s->list[k]] == 0)
                order[n++] = g->node[s->list[k]];
    }
    return n == g->nnodes;
}

CUresult graph_order(CUgraph g) {
    size_t nedges = 0;
    for (size_t i = 0; i < g->nnodes; i++)
        nedges += g->node[i]->ndependencies;
    size_t *memory = calloc(2 * g->nnodes + 1 + nedges, sizeof(*memory));
    CUgraphNode *order = calloc(g->nnodes + 1, sizeof(CUgraphNode));
    CUresult r = memory && order ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS) {
        struct successors s = {memory, memory + g->nnodes, memory + 2 * g->nnodes + 1};
        list_successors(g, &s);
        if (!sort_nodes(g, &s, nedges, order))
            r = CUDA_ERROR_INVALID_VALUE;
    }
    free(memory);
    if (r != CUDA_SUCCESS) {
        free(order);
        return r;
    }
    free(g->order);
    g->order = order;
    return order_children(g);
}
